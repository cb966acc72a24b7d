//! Where a training step runs. One trait, cut at the step, not at the tensor operation: the CPU backend is the
//! specification, and any other repeats its verbs and passes the same contract tests.

mod cpu;
mod phases;

pub use cpu::{CpuBackend, MomentTables};
pub use phases::{Phase, PhaseTimes};

use crate::data::UserId;
use crate::error::Result;
use crate::model::Parameters;

/// Where in a run a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepContext {
    /// Epoch, counted from 0.
    pub epoch: usize,
    /// Steps since the start of the run, counted from 0.
    pub step: u64,
}

/// What a step saw, summed over its users.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepReport {
    /// Negative log-likelihood.
    pub likelihood_loss: f64,
    /// KL divergence, unweighted.
    pub kl: f64,
    /// KL divergence as it enters the loss.
    pub weighted_kl: f64,
}

impl std::ops::AddAssign for StepReport {
    fn add_assign(&mut self, other: Self) {
        self.likelihood_loss += other.likelihood_loss;
        self.kl += other.kl;
        self.weighted_kl += other.weighted_kl;
    }
}

/// A machine that trains: it holds the interactions, the parameters, the optimiser's state and the proposal.
pub trait Backend: Send {
    /// Rebuilds what the proposal derives from the item vectors.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if the proposal's settings do not fit the catalogue.
    fn refresh(&mut self, epoch: usize) -> Result<()>;

    /// Runs one step on a batch of distinct users and returns what it saw.
    ///
    /// # Errors
    /// What the device reports; the CPU reports none.
    fn step(&mut self, users: &[UserId], context: StepContext) -> Result<StepReport>;

    /// The parameters as they are now, brought into the order of the items from wherever the steps keep them.
    fn parameters(&mut self) -> &Parameters;
}
