//! Recommendations from large catalogues.
//!
//! Modules stand in pipeline order; a module uses only modules above it.

pub mod config;
pub mod error;
pub mod math;

pub mod data;
pub mod index;
pub mod loss;
pub mod model;
pub mod optim;
pub mod proposal;

pub mod eval;

pub use config::Config;
pub use error::{Error, Result};
