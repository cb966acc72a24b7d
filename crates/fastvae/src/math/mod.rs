//! The numerical ground: matrices, random numbers by address, vector kernels, dense products.

pub mod random;

pub use random::{Purpose, Stream};
