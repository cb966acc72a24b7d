//! [`Interactions`]: users x items in compressed sparse rows.

use std::sync::Arc;

use crate::data::storage::Storage;
use crate::data::{IdMap, ItemId};
use crate::error::{Error, Result};

/// Who touched what: a sparse matrix of users x items with optional weights and timestamps.
///
/// Row `u` holds the items of user `u`, ascending and without duplicates. Memory follows the interactions:
/// 4 bytes each, 4 more with weights, 8 more with timestamps. Those of a [`Cache`](crate::data::Cache) stay in its
/// mapped file. A clone shares all of it.
#[derive(Debug, Clone)]
pub struct Interactions {
    offsets: Storage<usize>,
    items: Storage<ItemId>,
    weights: Option<Storage<f32>>,
    timestamps: Option<Storage<i64>>,
    user_ids: Arc<IdMap>,
    item_ids: Arc<IdMap>,
}

/// The interactions of one user; the slices run in parallel.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Items, ascending.
    pub items: &'a [ItemId],
    /// Weights, where the data has them.
    pub weights: Option<&'a [f32]>,
    /// Seconds since the epoch, where the data has them.
    pub timestamps: Option<&'a [i64]>,
}

impl Interactions {
    /// Bytes of so many rows and entries in memory, without weights, timestamps and names.
    pub(crate) fn bytes_of(n_users: usize, n_interactions: usize) -> u64 {
        (n_interactions * size_of::<ItemId>() + n_users * size_of::<usize>()) as u64
    }

    /// Takes compressed sparse rows whose items ascend strictly within each row.
    ///
    /// # Errors
    /// [`Error::Data`] if the arrays disagree in length, or a row is unsorted, repeated or out of range.
    pub fn from_parts(
        offsets: Vec<usize>,
        items: Vec<ItemId>,
        weights: Option<Vec<f32>>,
        timestamps: Option<Vec<i64>>,
        user_ids: Arc<IdMap>,
        item_ids: Arc<IdMap>,
    ) -> Result<Self> {
        Self::from_storage(
            offsets.into(),
            items.into(),
            weights.map(Storage::from),
            timestamps.map(Storage::from),
            user_ids,
            item_ids,
            |_| {},
        )
    }

    /// As [`Interactions::from_parts`]; `each` sees every row once, in order, while it is in the processor's cache.
    pub(crate) fn from_storage(
        offsets: Storage<usize>,
        items: Storage<ItemId>,
        weights: Option<Storage<f32>>,
        timestamps: Option<Storage<i64>>,
        user_ids: Arc<IdMap>,
        item_ids: Arc<IdMap>,
        mut each: impl FnMut(&[ItemId]),
    ) -> Result<Self> {
        let broken = |problem: String| Error::data(problem, "build rows with strictly ascending items");
        if offsets.len() != user_ids.len() + 1
            || offsets.first() != Some(&0)
            || offsets.last() != Some(&items.len())
        {
            return Err(broken(format!(
                "{} row offsets do not describe {} users and {} interactions",
                offsets.len(),
                user_ids.len(),
                items.len()
            )));
        }
        if weights.as_ref().is_some_and(|w| w.len() != items.len())
            || timestamps.as_ref().is_some_and(|t| t.len() != items.len())
        {
            return Err(broken(format!("weights or timestamps are not {} long", items.len())));
        }
        let all = &items[..];
        for (user, span) in offsets.windows(2).enumerate() {
            let row = all
                .get(span[0]..span[1])
                .ok_or_else(|| broken(format!("row {user} ends before it starts")))?;
            // Without an early exit, so that it becomes vector code: the check is most of opening a cache.
            let ascending = row.iter().zip(row.iter().skip(1)).fold(true, |good, (a, b)| good & (a < b));
            if !ascending || row.last().is_some_and(|&i| i as usize >= item_ids.len()) {
                return Err(broken(format!(
                    "row {user} is unsorted, repeats an item or passes {}",
                    item_ids.len()
                )));
            }
            each(row);
        }
        Ok(Self { offsets, items, weights, timestamps, user_ids, item_ids })
    }

    /// Number of users, those without interactions included.
    pub fn n_users(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Number of items in the catalogue, those without interactions included.
    pub fn n_items(&self) -> usize {
        self.item_ids.len()
    }

    /// Number of (user, item) pairs.
    pub fn n_interactions(&self) -> usize {
        self.items.len()
    }

    /// The interactions of user `user`.
    ///
    /// # Panics
    /// If `user` is not below [`Interactions::n_users`].
    pub fn row(&self, user: usize) -> Row<'_> {
        let span = self.offsets[user]..self.offsets[user + 1];
        Row {
            items: &self.items[span.clone()],
            weights: self.weights.as_ref().map(|w| &w[span.clone()]),
            timestamps: self.timestamps.as_ref().map(|t| &t[span]),
        }
    }

    /// Row boundaries: `n_users + 1` positions into [`Interactions::items`].
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// The items of all rows, one after another.
    pub fn items(&self) -> &[ItemId] {
        &self.items
    }

    /// The weights beside [`Interactions::items`], where the data has them.
    pub fn weights(&self) -> Option<&[f32]> {
        self.weights.as_deref()
    }

    /// The timestamps beside [`Interactions::items`], where the data has them.
    pub fn timestamps(&self) -> Option<&[i64]> {
        self.timestamps.as_deref()
    }

    /// The outside names of the users.
    pub fn user_ids(&self) -> &Arc<IdMap> {
        &self.user_ids
    }

    /// The outside names of the items.
    pub fn item_ids(&self) -> &Arc<IdMap> {
        &self.item_ids
    }

    /// How many users touched each item.
    pub fn item_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.n_items()];
        for &item in &self.items[..] {
            counts[item as usize] += 1;
        }
        counts
    }

    /// Whether the pairs lie in the mapped file of a [`Cache`](crate::data::Cache) instead of memory.
    pub fn is_mapped(&self) -> bool {
        self.items.is_mapped()
    }

    /// The same interactions under equal identifiers, so that maps are shared instead of held twice.
    pub(crate) fn with_ids(self, user_ids: Arc<IdMap>, item_ids: Arc<IdMap>) -> Self {
        debug_assert!(*self.user_ids == *user_ids && *self.item_ids == *item_ids, "equal identifiers");
        Self { user_ids, item_ids, ..self }
    }

    /// The same interactions with every weight 1.
    #[must_use]
    pub(crate) fn binarized(mut self) -> Self {
        self.weights = None;
        self
    }
}
