//! [`Question`]: who asks, what may be listed, and how.

use crate::data::{ItemId, UserId};
use crate::error::{Error, Result};
use crate::eval::Viewer;
use crate::network::History;
use crate::recommend::knobs::Knobs;

/// What is asked of [`Model::answer`](crate::Model::answer).
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Question {
    /// What the user did; may be empty. Items in any order; of repeated ones the first counts.
    pub history: Vec<ItemId>,
    /// A weight for each item of the history; all alike where absent.
    pub weights: Option<Vec<f32>>,
    /// The user, among [`Scorer::user_ids`](crate::eval::Scorer::user_ids), for methods that learn a vector for each.
    pub user: Option<UserId>,
    /// What may be in the list, and how it is made.
    pub list: ListOptions,
}

impl Question {
    /// What to show somebody who did `history`.
    pub fn of(history: impl Into<Vec<ItemId>>) -> Self {
        Self { history: history.into(), ..Self::default() }
    }

    /// What to show `viewer`: a history, a row of interactions, or a user of the training data.
    pub fn for_viewer<'a>(viewer: impl Into<Viewer<'a>>) -> Self {
        let Viewer { history, user } = viewer.into();
        let weights = history.weights.map(<[f32]>::to_vec);
        Self { history: history.items.to_vec(), weights, user, list: ListOptions::default() }
    }

    /// The same question about another list.
    #[must_use]
    pub fn with(mut self, list: ListOptions) -> Self {
        self.list = list;
        self
    }
}

/// What may be in a list, and how it is made.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ListOptions {
    /// How many items, at most.
    pub n: usize,
    /// Items that must not be recommended.
    pub exclude: Vec<ItemId>,
    /// The only items that may be recommended, where given.
    pub only: Option<Vec<ItemId>>,
    /// Whether items of the history may be recommended.
    pub keep_seen: bool,
    /// How the list differs from the plain best.
    pub knobs: Knobs,
    /// Whether the list may come from the index, faster and nearly the same, instead of from every item.
    ///
    /// The index is not used where it would be wrong or slow: with `only`, with knobs that change scores, where half of the
    /// catalogue is excluded, and where scores are not inner products. Then every allowed item is scored, and the answer
    /// says so.
    pub approximate: bool,
    /// Reasons given for each item, at most.
    pub reasons: usize,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self {
            n: 10,
            exclude: Vec::new(),
            only: None,
            keep_seen: false,
            knobs: Knobs::default(),
            approximate: false,
            reasons: 0,
        }
    }
}

impl ListOptions {
    /// The `n` best items that are not of the history.
    pub fn best(n: usize) -> Self {
        Self { n, ..Self::default() }
    }

    /// Whether it is the plain best `n`, found by scoring every item.
    pub(super) fn is_plain(&self) -> bool {
        self.knobs == Knobs { seed: self.knobs.seed, ..Knobs::default() }
            && !self.approximate
            && self.reasons == 0
    }
}

/// A history in order, and what of a catalogue may be listed for it: filters are resolved here and nowhere else.
pub(super) struct Allowed {
    pub items: Vec<ItemId>,
    pub weights: Option<Vec<f32>>,
    /// Items that are left out, ascending.
    pub excluded: Vec<ItemId>,
    /// The only items that may be listed, ascending and without those left out.
    pub only: Option<Vec<ItemId>>,
}

impl Allowed {
    /// Of a catalogue of `n_items`.
    pub(super) fn of(n_items: usize, history: History<'_>, list: &ListOptions) -> Result<Self> {
        list.knobs.validate()?;
        let (items, weights) = clean_history(n_items, history)?;
        let mut excluded = ascending(n_items, &list.exclude)?;
        if !list.keep_seen {
            excluded = union(&excluded, &items);
        }
        let only = match &list.only {
            None => None,
            Some(only) => {
                let mut only = ascending(n_items, only)?;
                only.retain(|item| excluded.binary_search(item).is_err());
                Some(only)
            }
        };
        Ok(Self { items, weights, excluded, only })
    }
}

/// The history ascending, each item once, with its weights.
fn clean_history(n_items: usize, history: History<'_>) -> Result<(Vec<ItemId>, Option<Vec<f32>>)> {
    check_weights(history)?;
    let Some(weights) = history.weights else { return Ok((ascending(n_items, history.items)?, None)) };
    let items = ascending(n_items, history.items)?;
    let mut first = vec![None; items.len()];
    for (item, &weight) in history.items.iter().zip(weights) {
        let place = items.binary_search(item).expect("every item of the history is in its sorted copy");
        first[place].get_or_insert(weight);
    }
    Ok((items, Some(first.into_iter().flatten().collect())))
}

/// Refuses weights that are not one finite number for each item.
pub(super) fn check_weights(History { items, weights }: History<'_>) -> Result<()> {
    match weights {
        Some(weights) if weights.len() != items.len() || weights.iter().any(|weight| !weight.is_finite()) => {
            Err(Error::data(
                format!("{} weights for {} items of a history", weights.len(), items.len()),
                "give one finite weight for each item",
            ))
        }
        _ => Ok(()),
    }
}

/// `items` of a catalogue of `n_items`, ascending and without repetition.
pub(super) fn ascending(n_items: usize, items: &[ItemId]) -> Result<Vec<ItemId>> {
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
