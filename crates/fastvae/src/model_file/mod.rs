//! Named arrays on disk, and the parts that files of models and checkpoints share.

pub(crate) mod parts;
pub mod tensors;
