//! [`NegativeSum`]: logits, softmax weights and weighted vectors of one query's negatives, in one pass.

use fearless_simd::{dispatch, f32x16, prelude::*};

use crate::data::ItemId;
use crate::loss::sampled::bias;
use crate::math::matrix::LANES;
use crate::math::simd::{exp, lane_sums, level, prefetch};
use crate::proposal::ItemTable;

/// Rows longer than eight vectors asked for ahead of their use: few, since each fills the processor's queue of misses.
const AHEAD_WIDE: usize = 8;
/// Negatives scored together: few enough for their rows to stay in the first-level cache for the weighted sum.
const CHUNK: usize = 32;

/// The running softmax sum over one query's negatives, taken a few of them at a time. The sum of their vectors,
/// weighted by `exp(logit - largest)`, is kept by the caller.
#[derive(Debug, Clone, Copy)]
pub struct NegativeSum {
    largest: f32,
    pub(super) total: f32,
}

impl Default for NegativeSum {
    fn default() -> Self {
        Self { largest: f32::NEG_INFINITY, total: 0.0 }
    }
}

impl NegativeSum {
    /// Adds the first negatives of `ids`, as many as `logits` are: it holds their corrections and is left with
    /// their corrected logits. `vectors` is the weighted sum so far, all zero at first. The rest of `ids` are rows
    /// that come next, to be asked for meanwhile.
    ///
    /// `query` and `vectors` are padded rows; the item vectors must be padded too. Cost: O(T D).
    pub fn add(
        &mut self,
        query: &[f32],
        items: ItemTable<'_>,
        ids: &[ItemId],
        logits: &mut [f32],
        vectors: &mut [f32],
    ) {
        debug_assert_eq!(query.len(), items.vectors.stride(), "a padded query");
        // The number of vectors in a row is a constant for the usual sizes, so that they stay in registers.
        match query.len() / LANES {
            1 => {
                dispatch!(level(), simd => add_negatives::<_, 1>(simd, self, query, items, ids, logits, vectors))
            }
            2 => {
                dispatch!(level(), simd => add_negatives::<_, 2>(simd, self, query, items, ids, logits, vectors))
            }
            4 => {
                dispatch!(level(), simd => add_negatives::<_, 4>(simd, self, query, items, ids, logits, vectors))
            }
            8 => {
                dispatch!(level(), simd => add_negatives::<_, 8>(simd, self, query, items, ids, logits, vectors))
            }
            _ => {
                dispatch!(level(), simd => add_long_negatives(simd, self, query, items, ids, logits, vectors))
            }
        }
    }

    /// ln of the sum of the exponentials of all corrected logits.
    pub(super) fn log_sum(&self) -> f32 {
        self.largest + self.total.ln()
    }
}

/// The body of [`NegativeSum::add`] for rows of `L` vectors. Streaming: the sum is rescaled when a larger logit appears.
#[inline(always)]
fn add_negatives<S: Simd, const L: usize>(
    simd: S,
    sum: &mut NegativeSum,
    query: &[f32],
    items: ItemTable<'_>,
    ids: &[ItemId],
    logits: &mut [f32],
    vectors: &mut [f32],
) {
    let zero = f32x16::splat(simd, 0.0);
    let (mut q, mut sum_vector) = ([zero; L], [zero; L]);
    for l in 0..L {
        q[l] = f32x16::from_slice(simd, &query[l * LANES..][..LANES]);
        sum_vector[l] = f32x16::from_slice(simd, &vectors[l * LANES..][..LANES]);
    }
    let rows = items.vectors.data().as_chunks::<LANES>().0.as_chunks::<L>().0;
    let mut weights = [0.0f32; CHUNK];
    for (chunk, logits) in logits.chunks_mut(CHUNK).enumerate() {
        let start = chunk * CHUNK;
        let chunk_ids = &ids[start..start + logits.len()];
        for (group, logits) in logits.chunks_mut(LANES).enumerate() {
            let first = group * LANES;
            // The rows of the next sixteen are asked for before these are used.
            for &next in ids.iter().skip(start + first + LANES).take(LANES) {
                prefetch(rows[next as usize].as_flattened());
            }
            let group_ids = &chunk_ids[first..first + logits.len()];
            if let Some(ids) = group_ids.first_chunk() {
                subtract(simd, group_dots(simd, rows, &q, ids), items, group_ids, logits);
            } else {
                let mut padded = [group_ids[0]; LANES];
                padded[..group_ids.len()].copy_from_slice(group_ids);
                subtract(simd, group_dots(simd, rows, &q, &padded), items, group_ids, logits);
            }
        }
        if let Some(scale) = weigh(simd, sum, logits, &mut weights) {
            for sum in &mut sum_vector {
                *sum *= scale;
            }
        }
        for (&item, &weight) in chunk_ids.iter().zip(&weights) {
            let row = &rows[item as usize];
            let weight = f32x16::splat(simd, weight);
            for l in 0..L {
                sum_vector[l] = f32x16::load_array_ref(simd, &row[l]).mul_add(weight, sum_vector[l]);
            }
        }
    }
    for (l, sum) in sum_vector.iter().enumerate() {
        sum.store_slice(&mut vectors[l * LANES..][..LANES]);
    }
}

/// The inner products of sixteen rows with the query.
#[inline(always)]
fn group_dots<S: Simd, const L: usize>(
    simd: S,
    rows: &[[[f32; LANES]; L]],
    query: &[f32x16<S>; L],
    ids: &[ItemId; LANES],
) -> f32x16<S> {
    let mut products = [f32x16::splat(simd, 0.0); LANES];
    for (product, &id) in products.iter_mut().zip(ids) {
        let row = &rows[id as usize];
        for l in 0..L {
            *product = f32x16::load_array_ref(simd, &row[l]).mul_add(query[l], *product);
        }
    }
    lane_sums(products)
}

/// As [`add_negatives`], for rows of any length, whose sum does not fit the registers.
#[inline(always)]
fn add_long_negatives<S: Simd>(
    simd: S,
    sum: &mut NegativeSum,
    query: &[f32],
    items: ItemTable<'_>,
    ids: &[ItemId],
    logits: &mut [f32],
    vectors: &mut [f32],
) {
    let mut weights = [0.0f32; CHUNK];
    for (chunk, logits) in logits.chunks_mut(CHUNK).enumerate() {
        let start = chunk * CHUNK;
        let chunk_ids = &ids[start..start + logits.len()];
        for (group, logits) in logits.chunks_mut(LANES).enumerate() {
            let first = group * LANES;
            let group_ids = &chunk_ids[first..first + logits.len()];
            let mut products = [f32x16::splat(simd, 0.0); LANES];
            for (k, (product, &item)) in products.iter_mut().zip(group_ids).enumerate() {
                if let Some(&next) = ids.get(start + first + k + AHEAD_WIDE) {
                    prefetch(items.vectors.padded_row(next as usize));
                }
                *product = partial_dot(simd, query, items.vectors.padded_row(item as usize));
            }
            subtract(simd, lane_sums(products), items, group_ids, logits);
        }
        if let Some(scale) = weigh(simd, sum, logits, &mut weights) {
            vectors.iter_mut().for_each(|v| *v *= scale);
        }
        add_rows(simd, items, chunk_ids, &weights, vectors);
    }
}

/// Turns the corrections of up to sixteen negatives, in `logits`, into corrected logits.
#[inline(always)]
fn subtract<S: Simd>(simd: S, dots: f32x16<S>, items: ItemTable<'_>, ids: &[ItemId], logits: &mut [f32]) {
    if items.bias.is_none() && logits.len() == LANES {
        (dots - f32x16::from_slice(simd, logits)).store_slice(logits);
    } else {
        for (k, logit) in logits.iter_mut().enumerate() {
            *logit = dots.as_slice()[k] + bias(items, ids[k]) - *logit;
        }
    }
}

/// Adds a chunk of logits to the sum and fills `weights` with their `exp(logit - largest)`. Where one of them is the
/// largest so far, returns what the vectors summed before are to be multiplied by.
#[inline(always)]
fn weigh<S: Simd>(simd: S, sum: &mut NegativeSum, logits: &[f32], weights: &mut [f32; CHUNK]) -> Option<f32> {
    weights[..logits.len()].copy_from_slice(logits);
    weights[logits.len()..].fill(f32::NEG_INFINITY);
    let lines = weights.as_chunks_mut::<LANES>().0;
    let none = f32x16::splat(simd, f32::NEG_INFINITY);
    let mut top = none;
    for line in &*lines {
        top = top.max(f32x16::load_array_ref(simd, line));
    }
    let top = top.reduce_max();
    let scale = (top > sum.largest).then(|| (sum.largest - top).exp());
    if let Some(scale) = scale {
        sum.total *= scale;
        sum.largest = top;
    }
    let mut line_sum = f32x16::splat(simd, 0.0);
    for line in lines {
        let logit = f32x16::load_array_ref(simd, line);
        let weight = logit.simd_gt(none).select(exp(simd, logit - sum.largest), f32x16::splat(simd, 0.0));
        weight.store_slice(line);
        line_sum += weight;
    }
    sum.total += line_sum.reduce_sum();
    scale
}

/// Sixteen partial sums of an inner product of padded rows.
#[inline(always)]
pub(super) fn partial_dot<S: Simd>(simd: S, query: &[f32], row: &[f32]) -> f32x16<S> {
    let mut sums = [f32x16::splat(simd, 0.0); 2];
    for (i, (a, b)) in query.chunks_exact(LANES).zip(row.chunks_exact(LANES)).enumerate() {
        sums[i & 1] = f32x16::from_slice(simd, a).mul_add(f32x16::from_slice(simd, b), sums[i & 1]);
    }
    sums[0] + sums[1]
}

/// `sum += weights[k] * vectors[ids[k]]`, a few columns at a time so that their sums stay in registers.
#[inline(always)]
pub(super) fn add_rows<S: Simd>(simd: S, items: ItemTable<'_>, ids: &[ItemId], weights: &[f32], sum: &mut [f32]) {
    let mut column = 0;
    while column < sum.len() {
        column += match sum.len() - column {
            128.. => add_columns::<S, 8>(simd, items, ids, weights, column, sum),
            64..128 => add_columns::<S, 4>(simd, items, ids, weights, column, sum),
            32..64 => add_columns::<S, 2>(simd, items, ids, weights, column, sum),
            _ => add_columns::<S, 1>(simd, items, ids, weights, column, sum),
        };
    }
}

/// `L` vectors of columns of [`add_rows`]; returns how many columns that is.
#[inline(always)]
fn add_columns<S: Simd, const L: usize>(
    simd: S,
    items: ItemTable<'_>,
    ids: &[ItemId],
    weights: &[f32],
    column: usize,
    sum: &mut [f32],
) -> usize {
    let mut sums = [f32x16::splat(simd, 0.0); L];
    for (l, s) in sums.iter_mut().enumerate() {
        *s = f32x16::from_slice(simd, &sum[column + l * LANES..][..LANES]);
    }
    for (&item, &weight) in ids.iter().zip(weights) {
        let row = &items.vectors.padded_row(item as usize)[column..column + L * LANES];
        let w = f32x16::splat(simd, weight);
        for (l, s) in sums.iter_mut().enumerate() {
            *s = f32x16::from_slice(simd, &row[l * LANES..][..LANES]).mul_add(w, *s);
        }
    }
    for (l, s) in sums.iter().enumerate() {
        s.store_slice(&mut sum[column + l * LANES..][..LANES]);
    }
    L * LANES
}
