//! Parts of [`Interactions`]: some pairs, some users, some items.

use std::sync::Arc;

use crate::data::{Interactions, ItemId, UserId};
use crate::error::Result;

impl Interactions {
    /// The pairs where `first` is true, and the others; both keep all users and items.
    ///
    /// `first` stands beside [`Interactions::items`].
    ///
    /// # Panics
    /// If `first` is not [`Interactions::n_interactions`] long.
    pub fn partition(&self, first: &[bool]) -> (Self, Self) {
        assert_eq!(first.len(), self.n_interactions(), "one flag per interaction");
        (self.filtered(|at| first[at]), self.filtered(|at| !first[at]))
    }

    /// The rows of `users` in that order, with their identifiers; the catalogue stays.
    ///
    /// # Errors
    /// [`crate::Error::Data`] if a user appears twice.
    ///
    /// # Panics
    /// If a user is not below [`Interactions::n_users`].
    pub fn select_users(&self, users: &[UserId]) -> Result<Self> {
        let mut offsets = vec![0];
        let mut items = Vec::new();
        let mut weights = self.weights().map(|_| Vec::new());
        let mut timestamps = self.timestamps().map(|_| Vec::new());
        for &user in users {
            let row = self.row(user as usize);
            items.extend_from_slice(row.items);
            if let (Some(weights), Some(of_row)) = (&mut weights, row.weights) {
                weights.extend_from_slice(of_row);
            }
            if let (Some(timestamps), Some(of_row)) = (&mut timestamps, row.timestamps) {
                timestamps.extend_from_slice(of_row);
            }
            offsets.push(items.len());
        }
        let user_ids = Arc::new(self.user_ids().select(users)?);
        Self::from_parts(offsets, items, weights, timestamps, user_ids, self.item_ids().clone())
    }

    /// The catalogue of `items`, ascending, without the interactions of other items; all users stay.
    ///
    /// # Errors
    /// [`crate::Error::Data`] if `items` does not ascend strictly.
    ///
    /// # Panics
    /// If an item is not below [`Interactions::n_items`].
    pub fn select_items(&self, items: &[ItemId]) -> Result<Self> {
        const DROPPED: ItemId = ItemId::MAX;
        let mut moved = vec![DROPPED; self.n_items()];
        for (to, &from) in items.iter().enumerate() {
            moved[from as usize] = to as ItemId;
        }
        let of_pairs = self.items();
        let kept = self.filtered(|at| moved[of_pairs[at] as usize] != DROPPED);
        let renumbered = kept.items().iter().map(|&item| moved[item as usize]).collect();
        Self::from_parts(
            kept.offsets().to_vec(),
            renumbered,
            kept.weights().map(<[f32]>::to_vec),
            kept.timestamps().map(<[i64]>::to_vec),
            self.user_ids().clone(),
            Arc::new(self.item_ids().select(items)?),
        )
    }

    fn filtered(&self, keep: impl Fn(usize) -> bool) -> Self {
        // Counted first: a list of places, or arrays that grow, would be larger than the result.
        let mut offsets = Vec::with_capacity(self.offsets().len());
        offsets.push(0);
        let mut n_kept = 0;
        for span in self.offsets().windows(2) {
            n_kept += (span[0]..span[1]).filter(|&at| keep(at)).count();
            offsets.push(n_kept);
        }
        Self::from_parts(
            offsets,
            kept(self.items(), n_kept, &keep),
            self.weights().map(|weights| kept(weights, n_kept, &keep)),
            self.timestamps().map(|timestamps| kept(timestamps, n_kept, &keep)),
            self.user_ids().clone(),
            self.item_ids().clone(),
        )
        .expect("a part of sorted rows is sorted")
    }
}

/// The `n` values at the places that `keep` is true for.
fn kept<T: Copy>(values: &[T], n: usize, keep: impl Fn(usize) -> bool) -> Vec<T> {
    let mut part = Vec::with_capacity(n);
    part.extend(values.iter().enumerate().filter(|(at, _)| keep(*at)).map(|(_, value)| *value));
    part
}

#[cfg(test)]
mod tests {
    use crate::data::{IdMap, Interactions};
    use std::sync::Arc;

    fn example() -> Interactions {
        Interactions::from_parts(
            vec![0, 2, 2, 5],
            vec![0, 3, 1, 2, 3],
            Some(vec![1.0, 2.0, 3.0, 4.0, 5.0]),
            Some(vec![10, 20, 30, 40, 50]),
            Arc::new(IdMap::from_strings(["a", "b", "c"]).unwrap()),
            Arc::new(IdMap::range(4)),
        )
        .unwrap()
    }

    #[test]
    fn a_partition_loses_nothing() {
        let (first, second) = example().partition(&[true, false, false, true, true]);
        assert_eq!((first.offsets(), first.items()), (&[0, 1, 1, 3][..], &[0, 2, 3][..]));
        assert_eq!((second.offsets(), second.items()), (&[0, 1, 1, 2][..], &[3, 1][..]));
        assert_eq!(second.weights(), Some(&[2.0, 3.0][..]));
        assert_eq!(second.timestamps(), Some(&[20, 30][..]));
    }

    #[test]
    fn selected_users_keep_their_rows_and_names() {
        let part = example().select_users(&[2, 0]).unwrap();
        assert_eq!((part.offsets(), part.items()), (&[0, 3, 5][..], &[1, 2, 3, 0, 3][..]));
        assert_eq!(part.user_ids().name(0), "c");
        assert_eq!(part.n_items(), 4);
    }

    #[test]
    fn selected_items_are_renumbered() {
        let part = example().select_items(&[1, 3]).unwrap();
        assert_eq!((part.offsets(), part.items()), (&[0, 1, 1, 3][..], &[1, 0, 1][..]));
        assert_eq!(part.item_ids().name(1), "3");
        assert_eq!(part.weights(), Some(&[2.0, 3.0, 5.0][..]));
    }
}
