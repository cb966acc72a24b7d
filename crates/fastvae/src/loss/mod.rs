//! What training minimises, with gradients by hand: the softmax over items, sampled or full, and the KL
//! divergence of the latent distribution.

mod kl;
mod negative_sum;
mod sampled;

pub use kl::{KlWeight, kl};
pub use negative_sum::{Drawn, NegativeSum};
pub use sampled::{Positives, SampledSoftmax, exclude};
