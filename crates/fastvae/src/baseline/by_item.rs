//! Interactions the other way round: who touched an item.

use crate::data::{Interactions, ItemId, UserId};

/// A sparse matrix of items x users; users ascend within an item.
#[derive(Debug, Clone)]
pub(crate) struct ByItem {
    pub(crate) offsets: Vec<usize>,
    pub(crate) users: Vec<UserId>,
    /// For each entry, its place among [`Interactions::items`].
    pub(crate) places: Vec<usize>,
}

impl ByItem {
    /// The transpose of `data`.
    pub(crate) fn of(data: &Interactions) -> Self {
        Self::of_rows(data.n_items(), data.offsets(), data.items())
    }

    /// The transpose of rows of `n_items` columns.
    pub(crate) fn of_rows(n_items: usize, rows: &[usize], items: &[ItemId]) -> Self {
        let mut offsets = vec![0; n_items + 1];
        for &item in items {
            offsets[item as usize + 1] += 1;
        }
        for item in 0..n_items {
            offsets[item + 1] += offsets[item];
        }
        let mut next = offsets.clone();
        let mut users = vec![0; items.len()];
        let mut places = vec![0; items.len()];
        for (user, span) in rows.windows(2).enumerate() {
            for place in span[0]..span[1] {
                let to = &mut next[items[place] as usize];
                users[*to] = user as UserId;
                places[*to] = place;
                *to += 1;
            }
        }
        Self { offsets, users, places }
    }
}
