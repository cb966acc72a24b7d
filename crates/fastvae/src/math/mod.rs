//! The numerical ground: matrices, random numbers by address, vector kernels, dense products.

pub mod bytes;
pub mod dense;
pub mod dots;
pub(crate) mod lines;
pub mod list;
pub mod matrix;
pub mod random;
pub mod simd;

pub use bytes::ByteMatrix;
pub use list::List;
pub use matrix::{Matrix, MatrixView};
pub use random::{Purpose, Stream};
