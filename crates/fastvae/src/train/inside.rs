//! [`TrainingInternals`]: what benchmarks, experiments and bindings see of a run that its users need not.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::backend::{Part, PhaseTimes, RunState};
use crate::data::Interactions;
use crate::error::Result;
use crate::eval::{Measure, Metric};
use crate::loss::KlWeight;
use crate::network::{Network, Parameters};
use crate::train::Training;

/// What early stopping watches.
pub const VALIDATION_METRIC: Metric = Metric { measure: Measure::Ndcg, k: 50 };

/// What a run is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// It trains, and chooses its epochs where there is a validation part.
    #[default]
    Choosing,
    /// The epochs are chosen, and nothing has been done since.
    Chosen,
    /// It trains again, on everything.
    Refit,
}

/// A look into a [`Training`].
pub trait TrainingInternals {
    /// What the model learns from first: the data less the validation part.
    fn train_part(&self) -> &Arc<Interactions>;

    /// What the epochs are chosen by.
    fn validation_part(&self) -> Option<&Arc<Interactions>>;

    /// What the model learns from in the end.
    fn learned_part(&self) -> &Arc<Interactions>;

    /// Whether the model is trained again once the epochs are chosen.
    fn refits(&self) -> bool;

    /// Epochs of that training.
    fn refit_epochs(&self) -> usize;

    /// What the run is doing.
    fn phase(&self) -> Phase;

    /// Whether nothing is left to do.
    fn is_finished(&self) -> bool;

    /// The parameters of the best validation, or without one those of now; of both phases as one, where both stay.
    ///
    /// # Errors
    /// What the device reports.
    fn parameters(&mut self) -> Result<&Parameters>;

    /// Runs `work` on [`TrainingInternals::parameters`], on the run's threads.
    ///
    /// # Errors
    /// What the device reports.
    fn with_parameters<T: Send>(&mut self, work: impl FnOnce(Network<'_>) -> T + Send) -> Result<T>;

    /// The parameters as the last step left them.
    ///
    /// # Errors
    /// What the device reports.
    fn latest_parameters(&mut self) -> Result<&Parameters>;

    /// The state as the last step left it.
    ///
    /// # Errors
    /// What the device reports.
    fn state(&mut self) -> Result<&RunState>;

    /// The weight of the KL divergence in use.
    fn kl_weight(&self) -> KlWeight;

    /// Time of each phase of the steps since the start, summed over threads.
    fn phase_times(&self) -> PhaseTimes;

    /// Epochs from one refresh of the index to the next.
    fn refresh_interval(&self) -> usize;

    /// Runs `work` on the run's threads.
    fn on_threads<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T;
}

impl TrainingInternals for Training {
    fn is_finished(&self) -> bool {
        match self.progress.phase {
            Phase::Choosing => false,
            Phase::Chosen => self.refit.is_none(),
            Phase::Refit => self.has_all_epochs(),
        }
    }

    fn train_part(&self) -> &Arc<Interactions> {
        &self.train
    }

    fn validation_part(&self) -> Option<&Arc<Interactions>> {
        self.validation.as_ref()
    }

    fn learned_part(&self) -> &Arc<Interactions> {
        self.refit.as_ref().unwrap_or(&self.train)
    }

    fn refits(&self) -> bool {
        self.refit.is_some()
    }

    fn refit_epochs(&self) -> usize {
        self.chosen_epochs()
    }

    fn phase(&self) -> Phase {
        self.progress.phase
    }

    fn parameters(&mut self) -> Result<&Parameters> {
        let is_pair = self.is_pair();
        if is_pair || self.best.is_none() {
            self.backend.download(&mut self.state, Part::Parameters)?;
        }
        if is_pair && self.pair.is_none() {
            let first = self.best.as_ref().expect("what the first phase has chosen is kept for its pair");
            self.pair = Some(first.pair(&self.state.parameters, self.shapes()));
        }
        Ok(self.kept())
    }

    fn with_parameters<T: Send>(&mut self, work: impl FnOnce(Network<'_>) -> T + Send) -> Result<T> {
        let activation = self.config.activation;
        self.parameters()?;
        let network = self.kept().network(activation);
        Ok(self.pool.install(|| work(network)))
    }

    fn latest_parameters(&mut self) -> Result<&Parameters> {
        self.backend.download(&mut self.state, Part::Parameters)?;
        Ok(&self.state.parameters)
    }

    fn state(&mut self) -> Result<&RunState> {
        self.backend.download(&mut self.state, Part::Everything)?;
        Ok(&self.state)
    }

    fn kl_weight(&self) -> KlWeight {
        self.backend.kl_weight()
    }

    fn phase_times(&self) -> PhaseTimes {
        self.backend.phase_times()
    }

    fn refresh_interval(&self) -> usize {
        self.config.refresh_interval(self.users.len(), self.train.n_items())
    }

    fn on_threads<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.pool.install(work)
    }
}
