//! What a run tells while it runs.

use serde::{Deserialize, Serialize};

/// What the observer of a run is told.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A step ended.
    Step(StepProgress),
    /// An epoch ended.
    Epoch(&'a EpochRecord),
}

/// What the observer answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    Continue,
    /// Stop here; the run can go on later.
    Stop,
}

/// Where an epoch stands.
#[derive(Debug, Clone, Copy)]
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
}

/// What one epoch saw and cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Epoch, counted from 1.
    pub epoch: usize,
    /// Loss per user, the weighted KL divergence included.
    pub loss: f64,
    /// Negative log-likelihood per user.
    pub likelihood_loss: f64,
    /// KL divergence per user, unweighted.
    pub kl: f64,
    /// Step size.
    pub learning_rate: f32,
    /// NDCG@50 on the validation part, where the epoch was validated.
    pub validation: Option<f64>,
    /// Wall-clock seconds of the refresh and the steps; validation and diagnostics are not counted.
    pub seconds: f64,
    /// Of these, seconds of the refresh.
    pub index_seconds: f64,
    /// Processor seconds of the refresh and the steps, over all threads.
    pub cpu_seconds: f64,
    /// Users trained on per second.
    pub users_per_second: f64,
    /// How close the proposal is to the softmax, where the model samples.
    pub proposal: Option<ProposalDiagnostics>,
}

/// How close a proposal is to the softmax, on a sample of users.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProposalDiagnostics {
    /// Mean KL(Q || softmax).
    pub kl_to_softmax: f64,
    /// Mean effective sample size of the negatives, as a share of their number: 1 for draws from the softmax.
    pub effective_sample_share: f64,
    /// Cells of the index that hold items, where there is an index.
    pub occupied_cells: Option<usize>,
    /// Items in the largest cell.
    pub largest_cell: Option<usize>,
}
