//! Recommendations from large catalogues.
//!
//! Modules stand in pipeline order; a module uses only modules above it.

pub mod config;
pub mod error;
pub mod math;
pub mod write;

pub mod data;
pub mod index;
pub mod model;
pub mod proposal;

pub mod eval;
pub mod model_file;

pub use config::Config;
pub use error::{Error, Result};
