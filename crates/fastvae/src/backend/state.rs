//! [`RunState`]: what a run has learned and where it stands, between its steps.

use crate::config::{Config, ModelKind};
use crate::data::{Interactions, UserId};
use crate::error::Result;
use crate::network::{Parameters, Shape, Tables};
use crate::optim::Moments;
use crate::proposal::{self, Proposal};

/// All that steps read and change: with its progress, everything that a run needs to go on.
///
/// While a run is under way its [`Backend`](super::Backend) may keep what is newer, or keep it in another order:
/// [`Backend::download`](super::Backend::download) comes before a look.
#[derive(Debug, Default)]
pub struct RunState {
    /// What is learned.
    pub parameters: Parameters,
    /// The optimiser's running means for each table.
    pub moments: Tables<Moments>,
    /// Where negatives come from; none for the full softmax, which draws nothing.
    pub proposal: Option<Box<dyn Proposal>>,
    /// The users of the epoch under way, in the order of its batches.
    pub order: Vec<UserId>,
}

impl RunState {
    /// Random parameters for `train`, and nothing learned yet.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if the configuration cannot work.
    pub fn new(config: &Config, train: &Interactions) -> Result<Self> {
        config.validate()?;
        let n_items = train.n_items();
        let proposal = match config.model {
            ModelKind::FastVae => Some(proposal::build(config, &train.item_counts())?),
            ModelKind::MultVae => None,
        };
        Ok(Self {
            parameters: Parameters::random(config, n_items),
            moments: Tables::<Shape>::of(config, n_items).map(|_, shape| Moments::of(shape)),
            proposal,
            order: Vec::new(),
        })
    }
}
