//! [`Recommender`]: what every model and every baseline can be asked for.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::data::{IdMap, Interactions, ItemId, Titles};
use crate::error::{Error, Result};
use crate::eval::{BlockScores, Scored, Scorer, Viewer};
use crate::model_file::Model;
use crate::proposal::ItemTable;
use crate::recommend::filter::KnownItems;
use crate::recommend::single::{self, Request};

/// A trained method with the names of its items: [`Model`], or one of [`crate::baseline`].
///
/// It ranks through [`Scorer`], so [`crate::eval::evaluate`] and [`crate::recommend::recommend_all`] take any.
pub trait Recommender: Scorer + fmt::Debug + Send {
    /// The outside names of the items.
    fn item_ids(&self) -> &Arc<IdMap>;

    /// How many users touched each item in training.
    fn item_counts(&self) -> &[u32];

    /// The titles, where it was saved with them.
    fn titles(&self) -> Option<&Titles>;

    /// The histories of the training users, where it was saved with them.
    fn users(&self) -> Option<&Arc<Interactions>>;

    /// The `n` items most like `item`, nearest first, without the item itself.
    ///
    /// # Errors
    /// [`Error::UnknownId`] if `item` is beyond the catalogue, [`Error::Data`] if the method compares no items.
    fn similar(&self, item: ItemId, n: usize) -> Result<Vec<Scored>>;

    /// Writes it to `path`, which appears whole or not at all; [`crate::baseline::load`] reads any of them.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    fn save(&self, path: &Path) -> Result<()>;

    /// As [`Recommender::save`], without the histories of the training users.
    ///
    /// # Errors
    /// As [`Recommender::save`].
    fn save_without_users(&self, path: &Path) -> Result<()>;

    /// The title of `item`, where it has one.
    fn title(&self, item: ItemId) -> Option<&str> {
        self.titles()?.get(item)
    }

    /// The best items for a history or a training user, best first; as [`Model::recommend`].
    ///
    /// # Errors
    /// As [`Model::recommend`], and [`Error::Data`] if the method cannot score this viewer.
    fn recommend(&self, request: &Request<'_>) -> Result<Vec<Scored>> {
        single::recommend(self, request)
    }

    /// The items behind outside identifiers; unknown ones are reported and do no harm.
    fn known_items(&self, ids: &[&str]) -> KnownItems {
        KnownItems::of(self.item_ids(), ids)
    }

    /// The item behind one outside identifier.
    ///
    /// # Errors
    /// [`Error::UnknownId`] if it is not known.
    fn item(&self, id: &str) -> Result<ItemId> {
        self.item_ids().position(id).ok_or_else(|| Error::UnknownId {
            what: "item",
            id: id.to_string(),
            remedy: "give an item of the training data, spelt as it is there".to_string(),
        })
    }
}

impl Scorer for Model {
    fn n_items(&self) -> usize {
        Self::n_items(self)
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        let parameters = self.parameters();
        let queries = crate::model::encode(parameters, viewers.len(), |row| viewers[row].history);
        Ok(BlockScores::Vectors { queries, items: parameters.items })
    }

    fn item_table(&self) -> Option<ItemTable<'_>> {
        Some(self.parameters().items)
    }
}

impl Recommender for Model {
    fn item_ids(&self) -> &Arc<IdMap> {
        Self::item_ids(self)
    }

    fn item_counts(&self) -> &[u32] {
        Self::item_counts(self)
    }

    fn titles(&self) -> Option<&Titles> {
        Self::titles(self)
    }

    fn users(&self) -> Option<&Arc<Interactions>> {
        Self::users(self)
    }

    fn similar(&self, item: ItemId, n: usize) -> Result<Vec<Scored>> {
        Self::similar(self, item, n)
    }

    fn save(&self, path: &Path) -> Result<()> {
        Self::save(self, path)
    }

    fn save_without_users(&self, path: &Path) -> Result<()> {
        Self::save_without_users(self, path)
    }
}
