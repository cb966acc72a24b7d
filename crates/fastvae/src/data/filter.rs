//! Filters: the iterative k-core, and dropping what has no interactions.

use crate::data::{Interactions, ItemId, UserId};
use crate::error::{Error, Result};

/// Removes users and items with fewer than `k` interactions until none is left to remove.
///
/// Removed users and items lose their identifiers too. The result does not depend on the order of removal.
/// Cost: linear in the interactions times the number of rounds (about ten on real data).
///
/// # Errors
/// [`Error::Data`] if nothing remains.
pub fn k_core(data: &Interactions, k: usize) -> Result<Interactions> {
    let mut user_alive = vec![true; data.n_users()];
    let mut item_alive = vec![true; data.n_items()];
    loop {
        let mut changed = false;
        let mut item_counts = vec![0usize; data.n_items()];
        for (user, user_alive) in user_alive.iter_mut().enumerate().filter(|(_, alive)| **alive) {
            let items = data.row(user).items;
            let alive = items.iter().filter(|&&item| item_alive[item as usize]).count();
            if alive < k {
                *user_alive = false;
                changed = true;
                continue;
            }
            for &item in items {
                item_counts[item as usize] += 1;
            }
        }
        for (alive, count) in item_alive.iter_mut().zip(item_counts) {
            if *alive && count < k {
                *alive = false;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let part = select(data, &user_alive, &item_alive)?;
    if part.n_interactions() == 0 && data.n_interactions() > 0 {
        return Err(Error::data(
            format!("no interaction remains in the {k}-core of {}", data.n_interactions()),
            "lower --k-core",
        ));
    }
    Ok(part)
}

/// The same interactions without the users and items that have none.
///
/// # Errors
/// None in practice: a part of valid interactions is valid.
pub fn drop_empty(data: &Interactions) -> Result<Interactions> {
    let users: Vec<bool> = data.offsets().windows(2).map(|span| span[0] < span[1]).collect();
    let items: Vec<bool> = data.item_counts().into_iter().map(|count| count > 0).collect();
    select(data, &users, &items)
}

fn select(data: &Interactions, users: &[bool], items: &[bool]) -> Result<Interactions> {
    data.select_users(&positions::<UserId>(users))?.select_items(&positions::<ItemId>(items))
}

fn positions<T: From<u32>>(alive: &[bool]) -> Vec<T> {
    (0..alive.len()).filter(|&at| alive[at]).map(|at| T::from(at as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{IdMap, InteractionsBuilder};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn rows(pairs: &BTreeSet<(u32, u32)>) -> Interactions {
        let mut builder = InteractionsBuilder::new();
        for &(user, item) in pairs {
            builder.push(user, item, None, None);
        }
        builder.build(Arc::new(IdMap::range(8)), Arc::new(IdMap::range(8))).unwrap().0
    }

    fn named(data: &Interactions) -> BTreeSet<(u32, u32)> {
        let id = |map: &IdMap, at: u32| map.name(at).parse::<u32>().unwrap();
        (0..data.n_users())
            .flat_map(|user| {
                let user_id = id(data.user_ids(), user as u32);
                data.row(user).items.iter().map(move |&item| (user_id, id(data.item_ids(), item)))
            })
            .collect()
    }

    proptest! {
        #[test]
        fn the_core_equals_removal_one_at_a_time(
            pairs in prop::collection::btree_set((0u32..8, 0u32..8), 0..50), k in 1usize..4,
        ) {
            let mut expected = pairs.clone();
            while let Some(&victim) = expected.iter().find(|(user, item)| {
                expected.iter().filter(|(u, _)| u == user).count() < k
                    || expected.iter().filter(|(_, i)| i == item).count() < k
            }) {
                expected.remove(&victim);
            }
            match k_core(&rows(&pairs), k) {
                Ok(core) => prop_assert_eq!(named(&core), expected),
                Err(error) => {
                    prop_assert!(expected.is_empty() && error.to_string().contains("lower --k-core"))
                }
            }
        }
    }

    #[test]
    fn empty_users_and_items_lose_their_identifiers() {
        let part = drop_empty(&rows(&BTreeSet::from([(1, 7), (3, 2)]))).unwrap();
        assert_eq!((part.n_users(), part.n_items()), (2, 2));
        assert_eq!(named(&part), BTreeSet::from([(1, 7), (3, 2)]));
    }
}
