//! [`Model`]: what a training leaves, whole: a method that scores, the catalogue that it scores, an index over it, and where
//! it all comes from.

mod description;
pub(crate) mod file;
pub(crate) mod inside;
pub(crate) mod linear;
mod vae;

use std::fmt;
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use crate::baseline::{Fallback, Method};
use crate::config::Config;
use crate::data::{IdMap, Interactions, ItemId, Titles};
use crate::error::{Error, Result};
use crate::eval::{BlockScores, Evaluation, Metric, Scorer, Viewer, evaluate};
use crate::index::{FirstCells, IndexSettings, InvertedMultiIndex};
use crate::math::{ByteMatrix, simd};
use crate::proposal::ItemTable;

pub use description::{Blend, Calibration, Description, EpochRecord, Learned, ProposalDiagnostics, Settings};

pub(crate) use inside::ModelInternals;
pub(crate) use vae::Vae;

/// A trained model: any method, in memory or in a mapped file, with all that names and explains it.
pub struct Model {
    pub(crate) method: Box<dyn Method>,
    catalogue: Catalogue,
    pub(crate) index: Option<Index>,
    description: Description,
    derived: Derived,
}

/// The items, and the users that lists can be asked for by name.
struct Catalogue {
    item_ids: Arc<IdMap>,
    item_counts: Vec<u32>,
    titles: Option<Titles>,
    users: Option<Arc<Interactions>>,
}

/// An inverted multi-index over the item vectors, to be searched.
pub(crate) struct Index {
    pub(crate) cells: InvertedMultiIndex,
    pub(crate) first_cells: FirstCells,
}

/// What is computed from the parts, the first time that it is asked for.
#[derive(Default)]
struct Derived {
    /// 1 / |q_i| of every item vector.
    inverse_norms: OnceLock<Vec<f32>>,
    /// ln(1 + count) of every item.
    log_counts: OnceLock<Vec<f32>>,
    /// The item vectors as bytes.
    small_items: Option<ByteMatrix>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Model({}, {} items", self.name(), self.n_items())?;
        match self.network() {
            Some(network) => write!(f, ", {}-{})", network.hidden(), network.latent()),
            None => write!(f, ")"),
        }
    }
}

impl Index {
    fn of(cells: InvertedMultiIndex) -> Self {
        Self { first_cells: FirstCells::of(cells.lists()), cells }
    }
}

impl Model {
    /// A model of `method`; `item_counts` says how many users touched each item.
    pub(crate) fn of(
        method: Box<dyn Method>,
        item_ids: Arc<IdMap>,
        item_counts: Vec<u32>,
        description: Description,
    ) -> Result<Self> {
        let n_items = method.n_items();
        same_items("the item identifiers", item_ids.len(), n_items)?;
        same_items("the item counts", item_counts.len(), n_items)?;
        let catalogue = Catalogue { item_ids, item_counts, titles: None, users: None };
        Ok(Self { method, catalogue, index: None, description, derived: Derived::default() })
    }

    /// The same model with titles.
    ///
    /// # Errors
    /// [`Error::Data`] if there is not one for each item.
    pub fn with_titles(mut self, titles: Titles) -> Result<Self> {
        same_items("the titles", titles.len(), self.n_items())?;
        self.catalogue.titles = Some(titles);
        Ok(self)
    }

    /// The same model with the histories of users, so that it can recommend to them by name. Timestamps are not
    /// stored.
    ///
    /// # Errors
    /// [`Error::Data`] if they are over other items.
    pub fn with_users(mut self, users: Arc<Interactions>) -> Result<Self> {
        if users.item_ids() != &self.catalogue.item_ids {
            return Err(Error::data(
                "the histories and the model name their items differently",
                "give the data that the model was trained on",
            ));
        }
        self.catalogue.users = Some(users);
        Ok(self)
    }

    /// Keeps how well the model did on held-out interactions, and the name of what it was measured on.
    pub fn note_evaluation(&mut self, evaluation: Evaluation, measured_on: impl Into<String>) {
        self.description.evaluation = Some(evaluation);
        self.description.measured_on = Some(measured_on.into());
    }

    /// Puts an index over the item vectors in place of the model's own: of the settings of the model, or with
    /// `n_codewords` in each codebook. Nothing where the method has no vectors or the catalogue fewer items.
    pub(crate) fn build_index(&mut self, n_codewords: Option<usize>) -> Result<()> {
        let config = self.config().cloned().unwrap_or_default();
        let mut settings = IndexSettings::from(&config);
        settings.n_codewords = n_codewords.unwrap_or(settings.n_codewords);
        let Some(table) = self.method.item_table() else { return Ok(()) };
        if settings.n_codewords > self.n_items() && n_codewords.is_none() {
            return Ok(());
        }
        let epoch = if n_codewords.is_some() { 0 } else { config.epochs as u32 };
        let cells = InvertedMultiIndex::build(table.vectors, settings, None, config.seed, epoch)?;
        self.index = Some(Index::of(cells));
        Ok(())
    }

    /// The same model with a copy of its item vectors in a quarter of the memory, over which [`Model::answer`] finds
    /// candidates. The vectors themselves stay in the file, where there is one. Nothing changes where the method has no
    /// item vectors.
    pub fn with_small_items(mut self) -> Self {
        if let Some(table) = self.method.item_table() {
            self.derived.small_items = Some(ByteMatrix::nearest(table.vectors));
            self.method.forget_items();
        }
        self
    }

    pub(crate) fn small_items(&self) -> Option<&ByteMatrix> {
        self.derived.small_items.as_ref()
    }

    /// The method's name in flags, files and output: `fastvae`, `item-knn` and so on.
    pub fn name(&self) -> &'static str {
        self.description.settings.name()
    }

    /// Where the model comes from.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The settings, of a variational autoencoder.
    pub fn config(&self) -> Option<&Config> {
        self.description.settings.config()
    }

    /// Number of items in the catalogue.
    pub fn n_items(&self) -> usize {
        self.catalogue.item_counts.len()
    }

    /// The outside names of the items.
    pub fn item_ids(&self) -> &Arc<IdMap> {
        &self.catalogue.item_ids
    }

    /// The item behind one outside identifier.
    ///
    /// # Errors
    /// [`Error::UnknownId`] if the model does not know it.
    pub fn item(&self, id: &str) -> Result<ItemId> {
        self.item_ids().position(id).ok_or_else(|| Error::UnknownId {
            what: "item",
            id: id.to_string(),
            remedy: "give an item of the training data, spelt as it is there".to_string(),
        })
    }

    /// How many users touched each item in training.
    pub fn item_counts(&self) -> &[u32] {
        &self.catalogue.item_counts
    }

    /// The title of `item`, where it has one.
    pub fn title(&self, item: ItemId) -> Option<&str> {
        self.titles()?.get(item)
    }

    /// The titles, where the model has them.
    pub fn titles(&self) -> Option<&Titles> {
        self.catalogue.titles.as_ref()
    }

    /// The histories of the training users, where the model was saved with them.
    pub fn users(&self) -> Option<&Arc<Interactions>> {
        self.catalogue.users.as_ref()
    }

    /// Measures how the model ranks the items of `test` for users of whom it knows `histories`: row u of both is of the
    /// same user, and items of the history are never ranked. Users without test items are left out. Cost: users x items x
    /// latent, spread over the current thread pool.
    ///
    /// # Errors
    /// [`Error::Data`] if the two differ in users, differ from the model in items, or have a user whom the method cannot
    /// score.
    pub fn evaluate(
        &self,
        histories: &Interactions,
        test: &Interactions,
        metrics: &[Metric],
    ) -> Result<Evaluation> {
        evaluate(self, histories, test, metrics)
    }

    /// 1 / |q_i| of every vector of `items`; 0 for a vector of zeros. Computed once.
    pub(crate) fn inverse_norms(&self, items: ItemTable<'_>) -> &[f32] {
        self.derived.inverse_norms.get_or_init(|| {
            let inverse = |item: usize| {
                let norm = simd::dot(items.vectors.row(item), items.vectors.row(item)).sqrt();
                if norm > 0.0 { 1.0 / norm } else { 0.0 }
            };
            (0..items.vectors.rows()).into_par_iter().map(inverse).collect()
        })
    }

    /// ln(1 + count) of every item. Computed once.
    pub(crate) fn log_counts(&self) -> &[f32] {
        self.derived.log_counts.get_or_init(|| {
            self.item_counts().par_iter().map(|&count| f64::from(count).ln_1p() as f32).collect()
        })
    }

    /// What `viewer` is shown where nothing is known of them.
    pub(crate) fn fallback(&self, viewer: &Viewer<'_>) -> Option<Fallback> {
        viewer.is_nobody().then(|| self.method.nobody().unwrap_or(Fallback::Popularity))
    }
}

/// Scores are the method's. Where it has no answer to a viewer of whom nothing is known, they are the items' counts.
impl Scorer for Model {
    fn n_items(&self) -> usize {
        Self::n_items(self)
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        let scores = self.method.block(viewers)?;
        if self.method.nobody().is_some() || !viewers.iter().any(Viewer::is_nobody) {
            return Ok(scores);
        }
        let counts = self.item_counts();
        Ok(scores.plus(move |at, first, scores| {
            if viewers[at].is_nobody() {
                scores.iter_mut().zip(&counts[first..]).for_each(|(score, &count)| *score += count as f32);
            }
        }))
    }

    fn user_ids(&self) -> Option<&Arc<IdMap>> {
        self.method.user_ids()
    }

    fn item_table(&self) -> Option<ItemTable<'_>> {
        self.method.item_table()
    }
}

fn same_items(what: &str, n: usize, n_items: usize) -> Result<()> {
    if n == n_items {
        return Ok(());
    }
    Err(Error::data(format!("{what} are of {n} items, the model of {n_items}"), "give parts of one model"))
}
