//! Recommending from one history, as a server does: the catalogue is split over the threads, not the users.

use rayon::prelude::*;

use crate::data::ItemId;
use crate::error::{Error, Result};
use crate::eval::{Scored, TopK};
use crate::math::simd;
use crate::model::History;
use crate::model_file::Model;
use crate::recommend::knobs::Knobs;

/// Items that one thread scores at a time; fixed, so that the list does not depend on the threads.
const PART: usize = 1 << 15;

/// What is asked of [`Model::recommend`].
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What the user did; may be empty. Items in any order; of repeated ones the first counts.
    pub history: History<'a>,
    /// How many items to recommend.
    pub n: usize,
    /// Items that must not be recommended.
    pub exclude: &'a [ItemId],
    /// The only items that may be recommended, where given.
    pub only: Option<&'a [ItemId]>,
    /// Whether items of the history may be recommended.
    pub keep_seen: bool,
}

impl Default for Request<'_> {
    fn default() -> Self {
        Self { history: History::default(), n: 10, exclude: &[], only: None, keep_seen: false }
    }
}

impl Model {
    /// The best items for a history, best first: exactly `n`, or all that are allowed where these are fewer.
    ///
    /// Scores are logits; ties go to the smaller item. Cost: items x latent, spread over the current thread pool,
    /// or the length of `only` x latent.
    ///
    /// # Errors
    /// [`Error::UnknownId`] if a position is beyond the catalogue, [`Error::Data`] if the weights are not one
    /// finite number for each item.
    pub fn recommend(&self, request: &Request<'_>) -> Result<Vec<Scored>> {
        Ok(self.recommend_with(request, &Knobs::default(), None)?.0)
    }

    /// The history ascending, each item once, with its weights.
    pub(super) fn clean_history(&self, history: History<'_>) -> Result<(Vec<ItemId>, Option<Vec<f32>>)> {
        let Some(weights) = history.weights else { return Ok((self.ascending(history.items)?, None)) };
        if weights.len() != history.items.len() || weights.iter().any(|weight| !weight.is_finite()) {
            return Err(Error::data(
                format!("{} weights for {} items of a history", weights.len(), history.items.len()),
                "give one finite weight for each item",
            ));
        }
        let items = self.ascending(history.items)?;
        let mut first = vec![None; items.len()];
        for (item, &weight) in history.items.iter().zip(weights) {
            let place = items.binary_search(item).expect("every item of the history is in its sorted copy");
            first[place].get_or_insert(weight);
        }
        Ok((items, Some(first.into_iter().flatten().collect())))
    }

    /// The logits of the items from `first` on.
    pub(super) fn logits(&self, query: &[f32], first: usize, scores: &mut [f32]) {
        let items = self.parameters().items;
        simd::block_dots(items.vectors.rows_from(first, scores.len()), query, scores);
        if let Some(bias) = items.bias {
            simd::axpy(1.0, &bias[first..first + scores.len()], scores);
        }
    }

    /// The `n` best of the whole catalogue by `score(first, scores)`, without the ascending `excluded`.
    pub(super) fn best(
        &self,
        n: usize,
        excluded: &[ItemId],
        score: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Vec<Scored> {
        let n_items = self.n_items();
        let n = n.min(n_items);
        let best_of_part = |part: usize| {
            let first = part * PART;
            let end = n_items.min(first + PART);
            let mut scores = vec![0.0; end - first];
            score(first, &mut scores);
            let from = excluded.partition_point(|&item| (item as usize) < first);
            for &item in excluded[from..].iter().take_while(|&&item| (item as usize) < end) {
                scores[item as usize - first] = f32::NEG_INFINITY;
            }
            let mut top = TopK::default();
            top.reset(n);
            top.offer(first as ItemId, &scores);
            let mut best = Vec::new();
            top.drain_into(&mut best);
            best
        };
        let mut parts: Vec<Vec<Scored>> =
            (0..n_items.div_ceil(PART)).into_par_iter().map(best_of_part).collect();
        if parts.len() == 1 {
            return parts.swap_remove(0);
        }
        ordered(parts.concat(), n)
    }

    /// The `n` best of the ascending `allowed` by `score(item)`.
    pub(super) fn best_of(
        &self,
        n: usize,
        allowed: &[ItemId],
        score: impl Fn(ItemId) -> f32 + Sync,
    ) -> Vec<Scored> {
        let scored = |&item: &ItemId| {
            // As in `TopK`: zeros are alike, and what is not a number is never ranked.
            Some(Scored { item, score: score(item) + 0.0 }).filter(|scored| scored.score > f32::NEG_INFINITY)
        };
        ordered(allowed.par_iter().with_min_len(1 << 12).filter_map(scored).collect(), n)
    }
}

/// The first `n` by score, ties by item.
fn ordered(mut scored: Vec<Scored>, n: usize) -> Vec<Scored> {
    scored.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.item.cmp(&b.item)));
    scored.truncate(n);
    scored
}
