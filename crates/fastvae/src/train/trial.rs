//! [`Trial`]: a training like the one under way, with another part held out.

use std::sync::Arc;

use crate::config::{Activation, Config};
use crate::data::Interactions;
use crate::error::Result;
use crate::network::Parameters;
use crate::train::blend::Trained;
use crate::train::{Refit, TrainOptions, Training, TrainingInternals};

/// What a training on another part has chosen.
pub(super) struct Trial {
    parameters: Parameters,
    train: Arc<Interactions>,
    part: Arc<Interactions>,
    /// Epochs of its best validation.
    pub(super) epoch: usize,
}

impl Trial {
    pub(super) fn run(data: &Arc<Interactions>, config: &Config) -> Result<Self> {
        let options = TrainOptions { refit: Refit::Never, ..TrainOptions::default() };
        let mut run = Training::new(Arc::clone(data), config, options)?;
        while !run.has_all_epochs() {
            run.advance()?;
        }
        run.parameters()?;
        let epoch = run.progress.best.map_or(run.progress.epoch, |best| best.epoch);
        let Training { best, state, train, validation, .. } = run;
        let part = validation.expect("a part was held out, as of the run that this one is like");
        Ok(Self { parameters: best.unwrap_or(state.parameters), train, part, epoch })
    }

    pub(super) fn trained(&self, activation: Activation) -> Trained<'_> {
        Trained { network: self.parameters.network(activation), train: &self.train, part: &self.part }
    }
}
