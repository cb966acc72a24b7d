//! [`Scorer`]: whatever gives every item of a catalogue a score for a user.

use std::fmt;
use std::sync::Arc;

use crate::data::{IdMap, ItemId, Row, UserId};
use crate::error::Result;
use crate::eval::topk::Scored;
use crate::math::{Matrix, simd};
use crate::network::{History, Network, encode};
use crate::proposal::ItemTable;

/// Somebody to be recommended to: by what they did, by who they are, or both.
#[derive(Debug, Clone, Copy, Default)]
pub struct Viewer<'a> {
    /// What the user did.
    pub history: History<'a>,
    /// The user's position among [`Scorer::user_ids`], where the scorer has users and knows this one.
    pub user: Option<UserId>,
}

impl Viewer<'_> {
    /// Whether nothing is known of them.
    pub(crate) fn is_nobody(&self) -> bool {
        self.history.items.is_empty() && self.user.is_none()
    }
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

/// `add(at, first, scores)` adds to the scores of the items from `first` on for the user at place `at` of a block.
pub type AddScores<'a> = dyn Fn(usize, usize, &mut [f32]) + Send + Sync + 'a;

/// `few(at)` is what is added to the scores of a few items, ascending, for the user at place `at` of a block.
pub type FewScores<'a> = dyn Fn(usize) -> Vec<Scored> + Send + Sync + 'a;

/// The scores of a block of users, in the parts that they are the sum of; without parts, every score is 0.
#[derive(Default)]
pub struct BlockScores<'a> {
    /// query . item vector + item bias, with a query for each user: computed in tiles, many users at once.
    pub products: Option<(Matrix, ItemTable<'a>)>,
    /// Scores that come user by user.
    pub rows: Option<Box<AddScores<'a>>>,
    /// Scores that come user by user and item by item, for few of them.
    pub few: Option<Box<FewScores<'a>>>,
}

impl fmt::Debug for BlockScores<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let products = self.products.as_ref().map(|(queries, _)| queries);
        f.debug_struct("BlockScores")
            .field("products", &products)
            .field("rows", &self.rows.is_some())
            .field("few", &self.few.is_some())
            .finish()
    }
}

impl<'a> BlockScores<'a> {
    /// Inner products of `queries` with `items`.
    pub fn products(queries: Matrix, items: ItemTable<'a>) -> Self {
        Self { products: Some((queries, items)), ..Self::default() }
    }

    /// Scores that come user by user.
    pub fn rows(add: impl Fn(usize, usize, &mut [f32]) + Send + Sync + 'a) -> Self {
        Self { rows: Some(Box::new(add)), ..Self::default() }
    }

    /// Scores of a few items, user by user.
    pub fn few(few: impl Fn(usize) -> Vec<Scored> + Send + Sync + 'a) -> Self {
        Self { few: Some(Box::new(few)), ..Self::default() }
    }

    /// The same scores with those of a few items added, which had none of the kind.
    #[must_use]
    pub fn plus_few(self, few: impl Fn(usize) -> Vec<Scored> + Send + Sync + 'a) -> Self {
        debug_assert!(self.few.is_none(), "one part of the kind");
        Self { few: Some(Box::new(few)), ..self }
    }

    /// The same scores with those of `add` added.
    #[must_use]
    pub fn plus(self, add: impl Fn(usize, usize, &mut [f32]) + Send + Sync + 'a) -> Self {
        let rows: Box<AddScores<'a>> = match self.rows {
            None => Box::new(add),
            Some(rows) => Box::new(move |at, first, scores| {
                rows(at, first, scores);
                add(at, first, scores);
            }),
        };
        Self { rows: Some(rows), ..self }
    }

    /// What the rows add to the products for the user at place `at`, over a catalogue of `n_items`; None where nothing is.
    pub fn row(&self, at: usize, n_items: usize) -> Option<Vec<f32>> {
        self.rows.as_ref().map(|add| {
            let mut row = vec![0.0; n_items];
            add(at, 0, &mut row);
            row
        })
    }

    /// The scores of some items for the user at place `at`.
    pub fn of_items(&self, at: usize, items: &[ItemId], n_items: usize) -> Vec<f32> {
        let row = self.row(at, n_items);
        let few = self.few.as_ref().map(|few| few(at)).unwrap_or_default();
        let score = |&item: &ItemId| {
            let few = few_of(&few, item);
            let item = item as usize;
            let product = self.products.as_ref().map_or(0.0, |(queries, table)| {
                simd::dot(queries.view().row(at), table.vectors.row(item))
                    + table.bias.map_or(0.0, |bias| bias[item])
            });
            product + row.as_ref().map_or(0.0, |row| row[item]) + few
        };
        items.iter().map(score).collect()
    }
}

/// What `few`, ascending, adds to the score of `item`.
fn few_of(few: &[Scored], item: ItemId) -> f32 {
    few.binary_search_by_key(&item, |scored| scored.item).map_or(0.0, |at| few[at].score)
}

/// Adds `few`, ascending, to the scores of the items from `first` on.
pub(crate) fn add_few(few: &[Scored], first: usize, scores: &mut [f32]) {
    add_next(&few[few.partition_point(|scored| (scored.item as usize) < first)..], first, scores);
}

/// As [`add_few`], where none of `few` comes before `first`; what is left of them comes after these scores.
pub(crate) fn add_next<'f>(few: &'f [Scored], first: usize, scores: &mut [f32]) -> &'f [Scored] {
    for (at, scored) in few.iter().enumerate() {
        let Some(score) = scores.get_mut(scored.item as usize - first) else { return &few[at..] };
        *score += scored.score;
    }
    &[]
}

/// Whatever scores a catalogue for users: a model, or a method by itself.
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

impl Scorer for Network<'_> {
    fn n_items(&self) -> usize {
        Network::n_items(self)
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        let queries = encode(*self, viewers.len(), |row| viewers[row].history);
        Ok(BlockScores::products(queries, Network::item_table(self)))
    }

    fn item_table(&self) -> Option<ItemTable<'_>> {
        Some(Network::item_table(self))
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
