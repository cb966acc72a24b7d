//! The best items of a catalogue: all of them scored, block by block, and the best kept.
//!
//! Several lists are made in one pass. Reading the item vectors is most of the work of one list, and a block of them
//! that was read for one query is still in the cache for the next.

use rayon::prelude::*;

use crate::data::ItemId;
use crate::eval::topk::{Scored, TopK};
use crate::math::{dots, simd};
use crate::proposal::ItemTable;

/// Items that one thread scores at a time; fixed, so that the list does not depend on the threads.
const PART: usize = 1 << 16;
/// Items scored before their scores are looked at: few enough for these to stay in the first-level cache.
const CHUNK: usize = 1 << 10;

/// How long a list may be and what must not be in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// How many items, at most.
    pub n: usize,
    /// Items that are left out, ascending.
    pub excluded: &'a [ItemId],
}

/// The logits of the items from `first` on.
pub(crate) fn logits(items: ItemTable<'_>, query: &[f32], first: usize, scores: &mut [f32]) {
    dots::block_dots(items.vectors.rows_from(first, scores.len()), query, scores);
    add_bias(items, first, scores);
}

/// Adds the biases of the items from `first` on.
pub(crate) fn add_bias(items: ItemTable<'_>, first: usize, scores: &mut [f32]) {
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
    let lists = best_each(n_items, &[Wanted { n, excluded }], |_, first, scores| score(first, scores));
    lists.into_iter().next().expect("one list for one that is wanted")
}

/// A list for each that is `wanted` of a catalogue of `n_items`, by `score(which, first, scores)`. Each is the one
/// that it would be alone.
pub(crate) fn best_each(
    n_items: usize,
    wanted: &[Wanted<'_>],
    score: impl Fn(usize, usize, &mut [f32]) + Sync,
) -> Vec<Vec<Scored>> {
    let best_of_part = |part: usize| -> Vec<Vec<Scored>> {
        let end = n_items.min((part + 1) * PART);
        let mut tops = vec![TopK::default(); wanted.len()];
        tops.iter_mut().zip(wanted).for_each(|(top, wanted)| top.reset(wanted.n.min(n_items)));
        let mut scores = [0.0; CHUNK];
        for first in (part * PART..end).step_by(CHUNK) {
            let scores = &mut scores[..CHUNK.min(end - first)];
            for (which, (top, wanted)) in tops.iter_mut().zip(wanted).enumerate() {
                score(which, first, scores);
                mask(first, scores, wanted.excluded);
                top.offer(first as ItemId, scores);
            }
        }
        let drained = |mut top: TopK| {
            let mut best = Vec::new();
            top.drain_into(&mut best);
            best
        };
        tops.into_iter().map(drained).collect()
    };
    let parts: Vec<Vec<Vec<Scored>>> =
        (0..n_items.div_ceil(PART).max(1)).into_par_iter().map(best_of_part).collect();
    let merged = |mut lists: Vec<Vec<Scored>>, part: Vec<Vec<Scored>>| {
        lists.iter_mut().zip(part).for_each(|(list, part)| list.extend(part));
        lists
    };
    let several = parts.len() > 1;
    let lists = parts.into_iter().reduce(merged).unwrap_or_default();
    match several {
        true => lists.into_iter().zip(wanted).map(|(list, wanted)| ordered(list, wanted.n)).collect(),
        false => lists,
    }
}

/// Takes the `excluded` items out of the `scores` from `first` on.
fn mask(first: usize, scores: &mut [f32], excluded: &[ItemId]) {
    let from = excluded.partition_point(|&item| (item as usize) < first);
    let after = first + scores.len();
    for &item in excluded[from..].iter().take_while(|&&item| (item as usize) < after) {
        scores[item as usize - first] = f32::NEG_INFINITY;
    }
}

/// The `n` best of the ascending `allowed`, by `score`.
pub(crate) fn best_of(n: usize, allowed: &[ItemId], score: impl Fn(usize) -> f32 + Sync) -> Vec<Scored> {
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
