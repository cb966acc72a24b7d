//! Recommendations from large catalogues.
//!
//! Modules stand in pipeline order; a module uses only modules above it.

pub mod error;
pub mod math;

pub mod data;

pub use error::{Error, Result};
