//! Recommendations from large catalogues: a variational autoencoder for implicit feedback, trained with negatives
//! from an inverted multi-index (Chen et al., WWW 2022).
//!
//! [`data`] reads and splits interactions, [`Config`] holds every setting, [`train()`] gives a [`Model`], which
//! recommends, saves and loads; [`eval`] measures it. [`Training`] is the same with checkpoints and control.
//!
//! Modules stand in pipeline order; a module uses only modules above it.

pub mod config;
pub mod error;
pub mod math;
pub mod resources;
pub mod write;

pub mod data;
pub mod index;
pub mod proposal;
pub mod model;
pub mod loss;
pub mod optim;
pub mod backend;
pub mod eval;
pub mod model_file;
pub mod train;
pub mod plan;
pub mod recommend;
pub mod baseline;

pub use config::Config;
pub use error::{Error, Result};
pub use model_file::Model;
pub use train::{Training, train};

/// The README's example runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
