//! [`Scorer`]: whatever gives every item of a catalogue a score for a user.

use std::fmt;
use std::sync::Arc;

use crate::data::{IdMap, Row, UserId};
use crate::error::Result;
use crate::math::Matrix;
use crate::model::{History, ParametersView, encode};
use crate::proposal::ItemTable;

/// Somebody to be recommended to: by what they did, by who they are, or both.
#[derive(Debug, Clone, Copy, Default)]
pub struct Viewer<'a> {
    /// What the user did.
    pub history: History<'a>,
    /// The user's position among [`Scorer::user_ids`], where the scorer has users and knows this one.
    pub user: Option<UserId>,
}

impl<'a> From<History<'a>> for Viewer<'a> {
    fn from(history: History<'a>) -> Self {
        Self { history, user: None }
    }
}

impl<'a> From<Row<'a>> for Viewer<'a> {
    fn from(row: Row<'a>) -> Self {
        Self { history: row.into(), user: None }
    }
}

/// Writes the scores of the whole catalogue for the user at a place of a block.
pub type RowScores<'a> = dyn Fn(usize, &mut [f32]) + Send + Sync + 'a;

/// The scores of a block of users, in the form from which they are computed.
pub enum BlockScores<'a> {
    /// score = query . item vector + item bias: computed in tiles, many users at once.
    Vectors {
        /// One query for each user.
        queries: Matrix,
        /// The item side.
        items: ItemTable<'a>,
    },
    /// `rows(at, scores)` writes the scores of the whole catalogue for the user at place `at` of the block.
    Rows(Box<RowScores<'a>>),
}

impl fmt::Debug for BlockScores<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vectors { queries, .. } => write!(f, "Vectors({queries:?})"),
            Self::Rows(_) => write!(f, "Rows"),
        }
    }
}

/// Whatever scores a catalogue for users: a model, or a baseline.
pub trait Scorer: Sync {
    /// Number of items in the catalogue.
    fn n_items(&self) -> usize;

    /// The scores of some users; a larger one is better. Histories are within the catalogue.
    ///
    /// # Errors
    /// [`crate::Error::Data`] if a method that has vectors for its training users alone is asked for another.
    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>>;

    /// The outside names of the users that [`Viewer::user`] counts, for methods that learn something of each.
    fn user_ids(&self) -> Option<&Arc<IdMap>> {
        None
    }

    /// The item side of the methods whose scores are inner products.
    fn item_table(&self) -> Option<ItemTable<'_>> {
        None
    }
}

impl Scorer for ParametersView<'_> {
    fn n_items(&self) -> usize {
        self.items.vectors.rows()
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        let queries = encode(*self, viewers.len(), |row| viewers[row].history);
        Ok(BlockScores::Vectors { queries, items: self.items })
    }

    fn item_table(&self) -> Option<ItemTable<'_>> {
        Some(self.items)
    }
}

impl<S: Scorer + ?Sized> Scorer for &S {
    fn n_items(&self) -> usize {
        (**self).n_items()
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        (**self).block(viewers)
    }

    fn user_ids(&self) -> Option<&Arc<IdMap>> {
        (**self).user_ids()
    }

    fn item_table(&self) -> Option<ItemTable<'_>> {
        (**self).item_table()
    }
}

/// For each user of `ids`, the position among the scorer's own users; nobody where the scorer has none.
pub fn positions_of(scorer: &(impl Scorer + ?Sized), ids: &Arc<IdMap>) -> Vec<Option<UserId>> {
    match scorer.user_ids() {
        None => vec![None; ids.len()],
        Some(own) if own == ids => (0..ids.len() as UserId).map(Some).collect(),
        Some(own) => (0..ids.len() as UserId).map(|user| own.position(&ids.name(user))).collect(),
    }
}
