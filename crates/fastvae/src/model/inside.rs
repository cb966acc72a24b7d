//! [`ModelInternals`]: what experiments, tests and the service see of a model that its users need not.

use std::sync::Arc;

use crate::config::Config;
use crate::data::IdMap;
use crate::error::Result;
use crate::eval::Scorer;
use crate::index::InvertedMultiIndex;
use crate::math::ByteMatrix;
use crate::model::{Description, Model, Vae, same_items};
use crate::network::{Network, Parameters};

/// A look into a [`Model`].
pub trait ModelInternals: Sized {
    /// A variational autoencoder of `config` with these learned values.
    ///
    /// # Errors
    /// [`crate::Error::Data`] if the arguments disagree about the number of items.
    fn of_parameters(
        config: &Config,
        parameters: Parameters,
        item_ids: Arc<IdMap>,
        item_counts: Vec<u32>,
    ) -> Result<Self>;

    /// What scores, of a variational autoencoder.
    fn network(&self) -> Option<Network<'_>>;

    /// The inverted multi-index, where the model has one.
    fn index(&self) -> Option<&InvertedMultiIndex>;

    /// Where the model comes from, to complete.
    fn description_mut(&mut self) -> &mut Description;

    /// Bytes of the small copy of the item vectors, where there is one.
    fn small_items_bytes(&self) -> Option<usize>;

    /// Whether every learned value is finite. Reads all of them, which loading a file does not.
    fn is_finite(&self) -> bool;
}

impl ModelInternals for Model {
    fn of_parameters(
        config: &Config,
        parameters: Parameters,
        item_ids: Arc<IdMap>,
        item_counts: Vec<u32>,
    ) -> Result<Self> {
        same_items("the encoder", parameters.encoder.rows(), parameters.items.rows())?;
        let description = Description::new(config.clone().into());
        Self::of(Box::new(Vae::new(config, parameters, false)), item_ids, item_counts, description)
    }

    fn network(&self) -> Option<Network<'_>> {
        self.method.network()
    }

    fn index(&self) -> Option<&InvertedMultiIndex> {
        self.index.as_ref().map(|index| &index.cells)
    }

    fn description_mut(&mut self) -> &mut Description {
        &mut self.description
    }

    fn small_items_bytes(&self) -> Option<usize> {
        self.small_items().map(ByteMatrix::bytes)
    }

    fn is_finite(&self) -> bool {
        let finite = |values: &[f32]| values.iter().all(|value| value.is_finite());
        match (self.network(), self.item_table()) {
            (Some(network), _) => network.tables.into_iter().all(|(_, table)| finite(table.data())),
            (None, Some(table)) => finite(table.vectors.data()) && table.bias.is_none_or(finite),
            // What is not a vector is checked when it is loaded.
            (None, None) => true,
        }
    }
}
