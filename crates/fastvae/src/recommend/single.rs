//! Recommending from one history, as a server does: the catalogue is split over the threads, not the users.

use rayon::prelude::*;

use crate::data::{ItemId, UserId};
use crate::error::{Error, Result};
use crate::eval::{BlockScores, Scored, Scorer, TopK, Viewer};
use crate::math::simd;
use crate::model::History;
use crate::model_file::Model;
use crate::proposal::ItemTable;
use crate::recommend::filter::{ascending, union};

/// Items that one thread scores at a time; fixed, so that the list does not depend on the threads.
const PART: usize = 1 << 15;
/// Items scored before their scores are looked at: few enough for these to stay in the first-level cache.
const CHUNK: usize = 1 << 10;

/// What is asked of [`Model::recommend`].
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What the user did; may be empty. Items in any order; of repeated ones the first counts.
    pub history: History<'a>,
    /// The user, among [`Scorer::user_ids`], for methods that learn a vector for each.
    pub user: Option<UserId>,
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
        Self { history: History::default(), user: None, n: 10, exclude: &[], only: None, keep_seen: false }
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
        recommend(self, request)
    }
}

/// The best items for one viewer, by any method.
pub(super) fn recommend<S: Scorer + ?Sized>(scorer: &S, request: &Request<'_>) -> Result<Vec<Scored>> {
    let n_items = scorer.n_items();
    let (items, weights) = clean_history(n_items, request.history)?;
    let mut excluded = ascending(n_items, request.exclude)?;
    if !request.keep_seen {
        excluded = union(&excluded, &items);
    }
    let history = History { items: &items, weights: weights.as_deref() };
    let viewers = [Viewer { history, user: request.user }];
    let allowed = match request.only {
        None => None,
        Some(only) => {
            let mut allowed = ascending(n_items, only)?;
            allowed.retain(|item| excluded.binary_search(item).is_err());
            Some(allowed)
        }
    };
    let block = scorer.block(&viewers)?;
    Ok(match (block, allowed) {
        (BlockScores::Vectors { queries, items }, None) => {
            let query = queries.view().row(0);
            best(n_items, request.n, &excluded, |first, scores| logits(items, query, first, scores))
        }
        (BlockScores::Vectors { queries, items }, Some(allowed)) => best_of(request.n, &allowed, |at| {
            let score = simd::dot(items.vectors.row(at), queries.view().row(0));
            score + items.bias.map_or(0.0, |bias| bias[at])
        }),
        (BlockScores::Rows(rows), allowed) => {
            let mut row = vec![0.0; n_items];
            rows(0, &mut row);
            match allowed {
                Some(allowed) => best_of(request.n, &allowed, |at| row[at]),
                None => best(n_items, request.n, &excluded, |first, scores| {
                    scores.copy_from_slice(&row[first..first + scores.len()]);
                }),
            }
        }
    })
}

/// The history ascending, each item once, with its weights.
pub(super) fn clean_history(n_items: usize, history: History<'_>) -> Result<(Vec<ItemId>, Option<Vec<f32>>)> {
    let Some(weights) = history.weights else { return Ok((ascending(n_items, history.items)?, None)) };
    if weights.len() != history.items.len() || weights.iter().any(|weight| !weight.is_finite()) {
        return Err(Error::data(
            format!("{} weights for {} items of a history", weights.len(), history.items.len()),
            "give one finite weight for each item",
        ));
    }
    let items = ascending(n_items, history.items)?;
    let mut first = vec![None; items.len()];
    for (item, &weight) in history.items.iter().zip(weights) {
        let place = items.binary_search(item).expect("every item of the history is in its sorted copy");
        first[place].get_or_insert(weight);
    }
    Ok((items, Some(first.into_iter().flatten().collect())))
}

/// The logits of the items from `first` on.
pub(super) fn logits(items: ItemTable<'_>, query: &[f32], first: usize, scores: &mut [f32]) {
    simd::block_dots(items.vectors.rows_from(first, scores.len()), query, scores);
    if let Some(bias) = items.bias {
        simd::axpy(1.0, &bias[first..first + scores.len()], scores);
    }
}

/// The `n` best of a catalogue of `n_items` by `score(first, scores)`, without the ascending `excluded`.
pub(crate) fn best(
    n_items: usize,
    n: usize,
    excluded: &[ItemId],
    score: impl Fn(usize, &mut [f32]) + Sync,
) -> Vec<Scored> {
    let n = n.min(n_items);
    let best_of_part = |part: usize| {
        let end = n_items.min((part + 1) * PART);
        let mut top = TopK::default();
        top.reset(n);
        let mut scores = [0.0; CHUNK];
        for first in (part * PART..end).step_by(CHUNK) {
            let scores = &mut scores[..CHUNK.min(end - first)];
            score(first, scores);
            let from = excluded.partition_point(|&item| (item as usize) < first);
            let after = first + scores.len();
            for &item in excluded[from..].iter().take_while(|&&item| (item as usize) < after) {
                scores[item as usize - first] = f32::NEG_INFINITY;
            }
            top.offer(first as ItemId, scores);
        }
        let mut best = Vec::new();
        top.drain_into(&mut best);
        best
    };
    let mut parts: Vec<Vec<Scored>> = (0..n_items.div_ceil(PART)).into_par_iter().map(best_of_part).collect();
    if parts.len() == 1 {
        return parts.swap_remove(0);
    }
    ordered(parts.concat(), n)
}

/// The `n` best of the ascending `allowed`, by `score`.
pub(super) fn best_of(n: usize, allowed: &[ItemId], score: impl Fn(usize) -> f32 + Sync) -> Vec<Scored> {
    let scored = |&item: &ItemId| {
        // As in `TopK`: zeros are alike, and what is not a number is never ranked.
        let scored = Scored { item, score: score(item as usize) + 0.0 };
        Some(scored).filter(|scored| scored.score > f32::NEG_INFINITY)
    };
    ordered(allowed.par_iter().with_min_len(1 << 12).filter_map(scored).collect(), n)
}

/// The first `n` by score, ties by item.
fn ordered(mut scored: Vec<Scored>, n: usize) -> Vec<Scored> {
    scored.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.item.cmp(&b.item)));
    scored.truncate(n);
    scored
}
