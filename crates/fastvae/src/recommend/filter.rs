//! Which items may be recommended: lists of items in order, and identifiers turned into items.

use crate::data::{IdMap, ItemId};
use crate::error::{Error, Result};
use crate::model_file::Model;
use crate::recommend::Recommender;

/// What became of a list of outside identifiers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownItems {
    /// The items that the model knows, ascending and without repetition.
    pub items: Vec<ItemId>,
    /// The identifiers that it does not know, as they were given.
    pub unknown: Vec<String>,
}

impl KnownItems {
    /// What becomes of `ids` among the items named by `names`.
    pub(super) fn of<S: AsRef<str>>(names: &IdMap, ids: impl IntoIterator<Item = S>) -> Self {
        let mut known = Self::default();
        for id in ids {
            match names.position(id.as_ref()) {
                Some(item) => known.items.push(item),
                None => known.unknown.push(id.as_ref().to_string()),
            }
        }
        known.items.sort_unstable();
        known.items.dedup();
        known
    }
}

impl Model {
    /// The items behind outside identifiers; unknown ones are reported and do no harm.
    pub fn known_items<S: AsRef<str>>(&self, ids: impl IntoIterator<Item = S>) -> KnownItems {
        KnownItems::of(self.item_ids(), ids)
    }

    /// The item behind one outside identifier.
    ///
    /// # Errors
    /// [`Error::UnknownId`] if the model does not know it.
    pub fn item(&self, id: &str) -> Result<ItemId> {
        Recommender::item(self, id)
    }
}

/// `items` of a catalogue of `n_items`, ascending and without repetition.
pub(crate) fn ascending(n_items: usize, items: &[ItemId]) -> Result<Vec<ItemId>> {
    let mut items = items.to_vec();
    items.sort_unstable();
    items.dedup();
    match items.last() {
        Some(&item) if item as usize >= n_items => Err(Error::UnknownId {
            what: "item",
            id: item.to_string(),
            remedy: format!("give positions below {n_items}"),
        }),
        _ => Ok(items),
    }
}

/// The items of two ascending lists together, ascending and without repetition.
pub(super) fn union(a: &[ItemId], b: &[ItemId]) -> Vec<ItemId> {
    let (mut a, mut b) = (a, b);
    let mut all = Vec::with_capacity(a.len() + b.len());
    while let (Some(&x), Some(&y)) = (a.first(), b.first()) {
        all.push(x.min(y));
        a = &a[usize::from(x <= y)..];
        b = &b[usize::from(y <= x)..];
    }
    all.extend_from_slice(a);
    all.extend_from_slice(b);
    all
}

/// The places in the ascending list `of` of those of the ascending `items` that it holds.
pub(super) fn places(items: &[ItemId], of: &[ItemId]) -> Vec<ItemId> {
    items.iter().filter_map(|item| of.binary_search(item).ok()).map(|place| place as ItemId).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_and_places_of_ascending_lists() {
        assert_eq!(union(&[1, 3, 5], &[0, 3, 9, 10]), [0, 1, 3, 5, 9, 10]);
        assert_eq!(union(&[], &[2]), [2]);
        assert_eq!(union(&[2], &[]), [2]);
        assert_eq!(places(&[1, 4, 9], &[0, 4, 8, 9]), [1, 3]);
    }
}
