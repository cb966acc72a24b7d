//! [`Description`]: where a model comes from.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::Config;
use crate::eval::Evaluation;

/// What is worth knowing about a model beside its numbers; JSON in the header of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Version of the library that trained it.
    pub library_version: String,
    /// The settings of the training run.
    pub config: Config,
    /// The training data: [`crate::data::Statistics`] as JSON.
    #[serde(default)]
    pub statistics: Option<Value>,
    /// How well it did on held-out data, where it was evaluated.
    #[serde(default)]
    pub evaluation: Option<Evaluation>,
    /// One record for each epoch, as the training loop wrote it.
    #[serde(default)]
    pub epochs: Vec<Value>,
}

impl Description {
    /// A description of a model trained by this version of the library.
    pub fn new(config: Config) -> Self {
        Self {
            library_version: env!("CARGO_PKG_VERSION").to_string(),
            config,
            statistics: None,
            evaluation: None,
            epochs: Vec::new(),
        }
    }
}
