//! What training minimises, with gradients by hand: the softmax over items, sampled or full, and the KL
//! divergence of the latent distribution.

mod kl;
mod sampled;

pub use kl::{KlWeight, kl};
pub use sampled::{NegativeGradient, NegativeSum, Positives, SampledSoftmax, exclude};
