//! What a training tells while it runs.

use crate::model::EpochRecord;

/// What the observer of a training is told.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A step ended.
    Step(StepProgress),
    /// An epoch ended.
    Epoch(EpochRecord),
    /// The epochs are chosen. Where the model is trained again on everything, that comes next.
    Chosen,
    /// A pass of a baseline over the data ended; the first is told of before it begins.
    Pass {
        /// Passes that are done.
        done: usize,
        /// Passes in all.
        total: usize,
        /// Mean loss of the last pass, for methods that take it along.
        loss: Option<f64>,
    },
}

/// Where an epoch stands.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct StepProgress {
    /// Epoch, counted from 1.
    pub epoch: usize,
    /// Steps done in this epoch.
    pub step: usize,
    /// Steps in an epoch.
    pub n_steps: usize,
    /// Mean loss per user so far in this epoch.
    pub loss: f64,
    /// Mean KL divergence per user so far in this epoch, unweighted.
    pub kl: f64,
    /// Users trained on per second in this epoch.
    pub users_per_second: f64,
    /// Whether it is of the training on everything.
    pub refit: bool,
}
