//! [`Model`]: a trained model with the names of its items.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::config::Activation;
use crate::data::{IdMap, Interactions, ItemId, Titles};
use crate::error::{Error, Result};
use crate::index::InvertedMultiIndex;
use crate::math::ByteMatrix;
use crate::model::{Parameters, ParametersView};
use crate::model_file::description::Description;
use crate::model_file::tensors::Array;
use crate::proposal::ItemTable;

/// A trained model: parameters, in memory or in a mapped file, and all that names and explains them.
pub struct Model {
    pub(super) parameters: Storage,
    pub(super) item_ids: Arc<IdMap>,
    pub(super) item_counts: Vec<u32>,
    pub(super) titles: Option<Titles>,
    pub(super) index: Option<InvertedMultiIndex>,
    pub(super) users: Option<Arc<Interactions>>,
    pub(super) description: Description,
    /// 1 / |q_i| of every item vector, from the first time it is asked for.
    pub(super) inverse_norms: OnceLock<Vec<f32>>,
    /// ln(1 + count) of every item, from the first time it is asked for.
    pub(crate) log_counts: OnceLock<Vec<f32>>,
    /// The item vectors as bytes, where they were asked for.
    pub(crate) small_items: Option<ByteMatrix>,
}

/// Where the parameters are.
pub(super) enum Storage {
    Memory(Parameters),
    File {
        activation: Activation,
        encoder: Array<f32>,
        encoder_map: Option<Array<f32>>,
        hidden_bias: Array<f32>,
        head: Array<f32>,
        head_bias: Array<f32>,
        items: Array<f32>,
        item_bias: Option<Array<f32>>,
    },
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters = self.parameters();
        write!(f, "Model({} items, {}-{})", self.n_items(), parameters.hidden(), parameters.latent())
    }
}

impl Model {
    /// A model from what training learned; `item_counts` says how many users touched each item.
    ///
    /// # Errors
    /// [`Error::Data`] if the arguments disagree about the number of items.
    pub fn new(
        parameters: Parameters,
        item_ids: Arc<IdMap>,
        item_counts: Vec<u32>,
        description: Description,
    ) -> Result<Self> {
        let n_items = parameters.items.rows();
        same_items("the encoder", parameters.encoder.rows(), n_items)?;
        same_items("the item identifiers", item_ids.len(), n_items)?;
        same_items("the item counts", item_counts.len(), n_items)?;
        Ok(Self {
            parameters: Storage::Memory(parameters),
            item_ids,
            item_counts,
            titles: None,
            index: None,
            users: None,
            description,
            inverse_norms: OnceLock::new(),
            log_counts: OnceLock::new(),
            small_items: None,
        })
    }

    /// The same model with titles.
    ///
    /// # Errors
    /// [`Error::Data`] if there is not one for each item.
    pub fn with_titles(mut self, titles: Titles) -> Result<Self> {
        same_items("the titles", titles.len(), self.n_items())?;
        self.titles = Some(titles);
        Ok(self)
    }

    /// The same model with the index that it was trained with.
    ///
    /// # Errors
    /// [`Error::Data`] if it is over other items or vectors of another length.
    pub fn with_index(mut self, index: InvertedMultiIndex) -> Result<Self> {
        same_items("the index", index.n_items(), self.n_items())?;
        if index.dim() != self.parameters().latent() {
            return Err(Error::data(
                format!("the index is over {} dimensions, not {}", index.dim(), self.parameters().latent()),
                "give the index of this model",
            ));
        }
        self.index = Some(index);
        Ok(self)
    }

    /// The same model with the histories of users, so that it can recommend to them by name. Timestamps are not
    /// stored.
    ///
    /// # Errors
    /// [`Error::Data`] if they are over other items.
    pub fn with_users(mut self, users: Arc<Interactions>) -> Result<Self> {
        if users.item_ids() != &self.item_ids {
            return Err(Error::data(
                "the histories and the model name their items differently",
                "give the data that the model was trained on",
            ));
        }
        self.users = Some(users);
        Ok(self)
    }

    /// Where the model comes from.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Where the model comes from, to complete.
    pub fn description_mut(&mut self) -> &mut Description {
        &mut self.description
    }

    /// The learned values.
    pub fn parameters(&self) -> ParametersView<'_> {
        match &self.parameters {
            Storage::Memory(parameters) => parameters.view(),
            Storage::File {
                activation,
                encoder,
                encoder_map,
                hidden_bias,
                head,
                head_bias,
                items,
                item_bias,
            } => ParametersView {
                activation: *activation,
                encoder: encoder.view(),
                encoder_map: encoder_map.as_ref().map(Array::view),
                hidden_bias,
                head: head.view(),
                head_bias,
                items: ItemTable { vectors: items.view(), bias: item_bias.as_deref() },
            },
        }
    }

    /// Number of items in the catalogue.
    pub fn n_items(&self) -> usize {
        self.item_counts.len()
    }

    /// The outside names of the items.
    pub fn item_ids(&self) -> &Arc<IdMap> {
        &self.item_ids
    }

    /// How many users touched each item in training.
    pub fn item_counts(&self) -> &[u32] {
        &self.item_counts
    }

    /// The title of `item`, where it has one.
    pub fn title(&self, item: ItemId) -> Option<&str> {
        self.titles.as_ref()?.get(item)
    }

    /// The titles, where the model has them.
    pub fn titles(&self) -> Option<&Titles> {
        self.titles.as_ref()
    }

    /// The inverted multi-index, where the model has one.
    pub fn index(&self) -> Option<&InvertedMultiIndex> {
        self.index.as_ref()
    }

    /// The histories of the training users, where the model was saved with them.
    pub fn users(&self) -> Option<&Arc<Interactions>> {
        self.users.as_ref()
    }

    /// Whether every learned value is finite. Reads all of them, which loading a file does not.
    pub fn is_finite(&self) -> bool {
        let p = self.parameters();
        let finite = |values: &[f32]| values.iter().all(|value| value.is_finite());
        [p.encoder.data(), p.hidden_bias, p.head.data(), p.head_bias, p.items.vectors.data()]
            .into_iter()
            .chain(p.encoder_map.map(|map| map.data()))
            .chain(p.items.bias)
            .all(finite)
    }

    /// The same model with a copy of its item vectors in a quarter of the memory, over which
    /// [`Model::recommend_together`] finds candidates. The vectors themselves stay in the file, where there is one.
    pub fn with_small_items(mut self) -> Self {
        self.small_items = Some(ByteMatrix::nearest(self.parameters().items.vectors));
        if let Storage::File { items, .. } = &self.parameters {
            items.forget();
        }
        self
    }

    /// Bytes of the small copy of the item vectors, where there is one.
    pub fn small_items_bytes(&self) -> Option<usize> {
        self.small_items.as_ref().map(ByteMatrix::bytes)
    }

    /// 1 / |q_i| of every item vector; 0 for a vector of zeros. Computed once.
    pub(crate) fn inverse_norms(&self) -> &[f32] {
        use rayon::prelude::*;
        self.inverse_norms.get_or_init(|| {
            let vectors = self.parameters().items.vectors;
            (0..vectors.rows())
                .into_par_iter()
                .map(|item| {
                    let norm = crate::math::simd::dot(vectors.row(item), vectors.row(item)).sqrt();
                    if norm > 0.0 { 1.0 / norm } else { 0.0 }
                })
                .collect()
        })
    }
}

fn same_items(what: &str, n: usize, n_items: usize) -> Result<()> {
    if n == n_items {
        return Ok(());
    }
    Err(Error::data(
        format!("{what} are of {n} items, the item vectors of {n_items}"),
        "give parts of one model",
    ))
}
