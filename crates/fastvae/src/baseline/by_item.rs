//! Interactions the other way round: who touched an item.

use crate::data::{Interactions, UserId};

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
        let mut offsets = vec![0; data.n_items() + 1];
        for &item in data.items() {
            offsets[item as usize + 1] += 1;
        }
        for item in 0..data.n_items() {
            offsets[item + 1] += offsets[item];
        }
        let mut next = offsets.clone();
        let mut users = vec![0; data.n_interactions()];
        let mut places = vec![0; data.n_interactions()];
        for (user, span) in data.offsets().windows(2).enumerate() {
            for place in span[0]..span[1] {
                let to = &mut next[data.items()[place] as usize];
                users[*to] = user as UserId;
                places[*to] = place;
                *to += 1;
            }
        }
        Self { offsets, users, places }
    }
}
