//! Recommendations from large catalogues.
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

pub use config::Config;
pub use error::{Error, Result};
pub use model_file::Model;
pub use train::{Training, train};
