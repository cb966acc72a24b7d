//! One file that holds everything a model needs to serve.

pub mod tensors;
