//! Recommendations from large catalogues: a variational autoencoder for implicit feedback, trained with negatives
//! from an inverted multi-index (Chen et al., WWW 2022).
//!
//! [`data`] reads and splits interactions, [`Config`] holds every setting, [`train()`] gives a [`Model`], which
//! recommends, saves and loads; [`eval`] measures it. [`Training`] is the same with checkpoints and control.
//!
//! Modules stand in pipeline order; a module uses only modules above it.

#[cfg(not(unix))]
compile_error!("fastvae runs on Linux (and macOS by care); Windows is not supported");

pub mod error;
mod math;
mod resources;
pub mod config;
mod control;
mod write;

pub mod data;
mod index;
mod proposal;
mod network;
mod loss;
mod optim;
mod backend;
pub mod eval;
mod model_file;
pub mod baseline;
pub mod model;
pub mod recommend;
pub mod train;
mod plan;
pub mod internals;

pub use config::Config;
pub use error::{Error, Result};
pub use model::Model;
pub use train::{Training, fit, train};

/// The README's example runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
