//! The variational autoencoder: its learned tables, and the encoder that reads a history (section 3.1).
//!
//! h = act(b0 + sum of w_i E_i), (mu, log-variance) = h W + b1, logit_i = z . q_i. The encoder is an embedding
//! bag: its cost follows the history, never the catalogue.

mod encoder;
mod pair;
mod parameters;
mod tables;

pub use encoder::{History, bag, encode, input_weights};
pub use parameters::{Network, Parameters};
pub use tables::{Joint, Shape, Tables};
