//! [`InteractionsBuilder`]: loose (user, item) pairs to sorted rows.

use std::sync::Arc;

use crate::data::{IdMap, Interactions, ItemId, UserId};
use crate::error::{Error, Result};

/// Collects (user, item) pairs in any order and sorts them into rows.
///
/// Repeated pairs become one: weights are summed and the latest timestamp stays. While collecting, a pair costs
/// 8 bytes, 4 more once a weight differs from 1, 8 more with timestamps.
#[derive(Debug, Default)]
pub struct InteractionsBuilder {
    users: Vec<UserId>,
    items: Vec<ItemId>,
    /// Absent while every weight is 1.
    weights: Option<Vec<f32>>,
    timestamps: Vec<i64>,
    weighted: bool,
}

impl InteractionsBuilder {
    /// A builder without pairs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of pairs so far, repeated ones included.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there are none yet.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Adds a pair; give a timestamp to every pair or to none.
    #[inline]
    pub fn push(&mut self, user: UserId, item: ItemId, weight: Option<f32>, timestamp: Option<i64>) {
        self.users.push(user);
        self.items.push(item);
        if let Some(weight) = weight {
            self.weighted = true;
            if weight != 1.0 && self.weights.is_none() {
                self.weights = Some(vec![1.0; self.users.len() - 1]);
            }
        }
        if let Some(weights) = &mut self.weights {
            weights.push(weight.unwrap_or(1.0));
        }
        self.timestamps.extend(timestamp);
    }

    /// Moves positions as `users` and `items` say, where they are given.
    pub(crate) fn renumber(&mut self, users: Option<&[u32]>, items: Option<&[u32]>) {
        for (positions, moved) in [(&mut self.users, users), (&mut self.items, items)] {
            if let Some(moved) = moved {
                for position in positions.iter_mut() {
                    *position = moved[*position as usize];
                }
            }
        }
    }

    /// The rows, and how many pairs were merged into another.
    ///
    /// # Errors
    /// [`Error::Data`] if a position is outside its map, or only some pairs have a timestamp.
    pub fn build(self, user_ids: Arc<IdMap>, item_ids: Arc<IdMap>) -> Result<(Interactions, usize)> {
        if !self.timestamps.is_empty() && self.timestamps.len() != self.users.len() {
            return Err(Error::data(
                format!("{} of {} interactions have a timestamp", self.timestamps.len(), self.users.len()),
                "give a timestamp to all of them or to none",
            ));
        }
        if let Some(&user) = self.users.iter().find(|&&user| user as usize >= user_ids.len()) {
            return Err(Error::data(
                format!("user position {user} is not below {}", user_ids.len()),
                "give positions of the user map",
            ));
        }
        let mut offsets = offsets_of(&self.users, user_ids.len());
        let places = Places::new(&self.users, &offsets);
        let mut items = places.scatter(self.items);
        let mut weights = self.weights.map(|weights| places.scatter(weights));
        let mut timestamps = (!self.timestamps.is_empty()).then(|| places.scatter(self.timestamps));
        drop(self.users);
        let merged = sort_rows(&mut offsets, &mut items, &mut weights, &mut timestamps, self.weighted);
        let rows = Interactions::from_parts(offsets, items, weights, timestamps, user_ids, item_ids)?;
        Ok((rows, merged))
    }
}

/// Where each user's row starts, by counting.
fn offsets_of(users: &[UserId], n_users: usize) -> Vec<usize> {
    let mut offsets = vec![0; n_users + 1];
    for &user in users {
        offsets[user as usize + 1] += 1;
    }
    for user in 0..n_users {
        offsets[user + 1] += offsets[user];
    }
    offsets
}

/// The order of a stable sort by user.
enum Places<'a> {
    /// The pairs came user by user, as most files have them: nothing moves.
    InOrder,
    Scattered {
        users: &'a [UserId],
        offsets: &'a [usize],
    },
}

impl<'a> Places<'a> {
    fn new(users: &'a [UserId], offsets: &'a [usize]) -> Self {
        if users.is_sorted() { Self::InOrder } else { Self::Scattered { users, offsets } }
    }

    fn scatter<T: Copy + Default>(&self, values: Vec<T>) -> Vec<T> {
        match self {
            Self::InOrder => values,
            Self::Scattered { users, offsets } => {
                let mut next = offsets.to_vec();
                let mut sorted = vec![T::default(); values.len()];
                for (&user, value) in users.iter().zip(values) {
                    sorted[next[user as usize]] = value;
                    next[user as usize] += 1;
                }
                sorted
            }
        }
    }
}

/// Sorts every row by item and merges repeated items, closing the gaps; returns how many were merged.
fn sort_rows(
    offsets: &mut [usize],
    items: &mut Vec<ItemId>,
    weights: &mut Option<Vec<f32>>,
    timestamps: &mut Option<Vec<i64>>,
    weighted: bool,
) -> usize {
    let n = items.len();
    let mut kept = 0;
    let mut row: Vec<(ItemId, f32, i64)> = Vec::new();
    let mut start = 0;
    for user in 0..offsets.len() - 1 {
        let end = offsets[user + 1];
        if items[start..end].windows(2).all(|pair| pair[0] < pair[1]) {
            if kept < start {
                items.copy_within(start..end, kept);
                if let Some(weights) = weights {
                    weights.copy_within(start..end, kept);
                }
                if let Some(timestamps) = timestamps {
                    timestamps.copy_within(start..end, kept);
                }
            }
            kept += end - start;
        } else {
            row.clear();
            row.extend((start..end).map(|at| {
                let weight = weights.as_ref().map_or(1.0, |weights| weights[at]);
                (items[at], weight, timestamps.as_ref().map_or(0, |timestamps| timestamps[at]))
            }));
            // Stable, so that weights are summed in the order of the file.
            row.sort_by_key(|&(item, ..)| item);
            let before = kept;
            for &(item, weight, timestamp) in &row {
                if kept > before && items[kept - 1] == item {
                    if weighted {
                        weights.get_or_insert_with(|| vec![1.0; n])[kept - 1] += weight;
                    }
                    if let Some(timestamps) = timestamps {
                        timestamps[kept - 1] = timestamps[kept - 1].max(timestamp);
                    }
                    continue;
                }
                items[kept] = item;
                if let Some(weights) = weights {
                    weights[kept] = weight;
                }
                if let Some(timestamps) = timestamps {
                    timestamps[kept] = timestamp;
                }
                kept += 1;
            }
        }
        start = end;
        offsets[user + 1] = kept;
    }
    items.truncate(kept);
    if let Some(weights) = weights {
        weights.truncate(kept);
    }
    if let Some(timestamps) = timestamps {
        timestamps.truncate(kept);
    }
    n - kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn maps(users: usize, items: usize) -> (Arc<IdMap>, Arc<IdMap>) {
        (Arc::new(IdMap::range(users)), Arc::new(IdMap::range(items)))
    }

    proptest! {
        #[test]
        fn rows_equal_those_of_an_ordered_map(
            pairs in prop::collection::vec((0u32..6, 0u32..8, 1u8..4, any::<i32>()), 0..60),
        ) {
            let mut builder = InteractionsBuilder::new();
            let mut expected: BTreeMap<(u32, u32), (f32, i64)> = BTreeMap::new();
            for &(user, item, weight, time) in &pairs {
                builder.push(user, item, Some(f32::from(weight)), Some(i64::from(time)));
                let entry = expected.entry((user, item)).or_insert((0.0, i64::MIN));
                *entry = (entry.0 + f32::from(weight), entry.1.max(i64::from(time)));
            }
            let (users, items) = maps(6, 8);
            let (rows, merged) = builder.build(users, items).unwrap();
            prop_assert_eq!(merged, pairs.len() - expected.len());
            let mut got = BTreeMap::new();
            for user in 0..rows.n_users() {
                let row = rows.row(user);
                for (at, &item) in row.items.iter().enumerate() {
                    let weight = row.weights.map_or(1.0, |weights| weights[at]);
                    got.insert((user as u32, item), (weight, row.timestamps.unwrap()[at]));
                }
            }
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn weights_of_one_are_not_kept_unless_merging_sums_them() {
        let (users, items) = maps(1, 2);
        let mut builder = InteractionsBuilder::new();
        builder.push(0, 0, Some(1.0), None);
        builder.push(0, 1, Some(1.0), None);
        let (rows, _) = builder.build(users.clone(), items.clone()).unwrap();
        assert!(rows.weights().is_none());
        let mut builder = InteractionsBuilder::new();
        for item in [0, 1, 0] {
            builder.push(0, item, Some(1.0), None);
        }
        let (rows, merged) = builder.build(users.clone(), items.clone()).unwrap();
        assert_eq!((rows.weights(), merged), (Some(&[2.0, 1.0][..]), 1));
        let mut builder = InteractionsBuilder::new();
        for item in [0, 1, 0] {
            builder.push(0, item, None, None);
        }
        assert!(builder.build(users, items).unwrap().0.weights().is_none());
    }

    #[test]
    fn positions_outside_the_maps_and_half_given_timestamps_are_errors() {
        let (users, items) = maps(1, 1);
        for (user, item) in [(1, 0), (0, 1)] {
            let mut builder = InteractionsBuilder::new();
            builder.push(user, item, None, None);
            assert!(builder.build(users.clone(), items.clone()).is_err());
        }
        let mut builder = InteractionsBuilder::new();
        builder.push(0, 0, None, Some(1));
        builder.push(0, 0, None, None);
        let error = builder.build(users, items).unwrap_err().to_string();
        assert!(error.contains("1 of 2 interactions have a timestamp"));
    }
}
