//! [`Description`]: where a model comes from.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::Config;
use crate::eval::Evaluation;

/// What is worth knowing about a model beside its numbers; JSON in the header of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Version of the library that trained it.
    #[serde(rename = "library_version")]
    pub trained_by: String,
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
    /// How many cells of the index an approximate search visits, where that was measured.
    #[serde(default)]
    pub search: Option<Calibration>,
}

/// How many cells a search visits, and what that was measured to give.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The recall that was asked for.
    pub target: f64,
    /// The k of the recall.
    pub k: usize,
    /// Cells to visit.
    pub cells: usize,
    /// Recall measured on queries that the number of cells was not chosen on.
    pub recall: f64,
    /// Share of the catalogue that was scored, on average over those queries.
    pub scored_share: f64,
}

impl Description {
    /// A description of a model trained by this version of the library.
    pub fn new(config: Config) -> Self {
        Self {
            trained_by: env!("CARGO_PKG_VERSION").to_string(),
            config,
            statistics: None,
            evaluation: None,
            epochs: Vec::new(),
            search: None,
        }
    }
}
