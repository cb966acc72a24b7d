//! [`NegativeSum`]: logits, softmax weights and weighted vectors of one query's negatives, in one pass.

use fearless_simd::{dispatch, f32x16, prelude::*};

use crate::data::ItemId;
use crate::loss::sampled::bias;
use crate::math::matrix::LANES;
use crate::math::simd::{self, exp, lane_sums, level, prefetch};
use crate::proposal::ItemTable;

/// Rows longer than eight vectors asked for ahead of their use: few, since each fills the processor's queue of misses.
const AHEAD_WIDE: usize = 8;

/// Negatives scored together: few enough for their rows to stay in the first-level cache for the weighted sum.
const CHUNK: usize = 32;
/// A logit this far above the shift makes the sum move to a higher one: exponentials stay far from overflow, and few
/// sums move.
const HEADROOM: f32 = 30.0;

/// The softmax sum over some negatives of one query: `total` is the sum of `exp(logit - shift)`. The sum of their
/// vectors, weighted alike, is kept by the caller.
#[derive(Debug, Clone, Copy)]
pub struct NegativeSum {
    shift: f32,
    pub(super) total: f32,
}

impl Default for NegativeSum {
    fn default() -> Self {
        Self { shift: f32::NEG_INFINITY, total: 0.0 }
    }
}

impl NegativeSum {
    /// The sum over the first negatives of `ids`, as many as `weights` are: these are their corrections, and become
    /// their `exp(corrected logit - shift)`. `vectors` is set to the weighted sum of their vectors. The rest of `ids`
    /// are rows that come next, to be asked for meanwhile.
    ///
    /// `query` and `vectors` are padded rows; the item vectors must be padded too. Cost: O(T D).
    pub fn of(
        query: &[f32],
        items: ItemTable<'_>,
        ids: &[ItemId],
        weights: &mut [f32],
        vectors: &mut [f32],
    ) -> Self {
        debug_assert_eq!(query.len(), items.vectors.stride(), "a padded query");
        // The number of vectors in a row is a constant for the usual sizes, so that they stay in registers.
        match query.len() / LANES {
            1 => dispatch!(level(), simd => sum_negatives::<_, 1>(simd, query, items, ids, weights, vectors)),
            2 => dispatch!(level(), simd => sum_negatives::<_, 2>(simd, query, items, ids, weights, vectors)),
            4 => dispatch!(level(), simd => sum_negatives::<_, 4>(simd, query, items, ids, weights, vectors)),
            8 => dispatch!(level(), simd => sum_negatives::<_, 8>(simd, query, items, ids, weights, vectors)),
            _ => dispatch!(level(), simd => sum_long_negatives(simd, query, items, ids, weights, vectors)),
        }
    }

    /// The sum over the negatives of all `parts`; `factors` is filled with what a weight of each part is worth in it.
    pub fn join<'a>(parts: impl Iterator<Item = &'a Self> + Clone, factors: &mut Vec<f32>) -> Self {
        factors.clear();
        factors.extend(parts.clone().map(|part| part.shift));
        // Parts without negatives have no shift, and where there are only such, nothing matters.
        let shift = simd::max(factors).max(f32::MIN);
        simd::exp_shifted(factors, shift);
        Self { shift, total: parts.zip(factors).map(|(part, factor)| part.total * *factor).sum() }
    }

    /// ln of the sum of the exponentials of all corrected logits.
    pub(super) fn log_sum(&self) -> f32 {
        self.shift + self.total.ln()
    }

    /// Moves to a shift that suits `logits`; returns what all that was summed before is to be multiplied by, where
    /// that changes anything.
    #[inline(always)]
    fn fit<S: Simd>(&mut self, simd: S, logits: &[f32x16<S>; CHUNK / LANES]) -> Option<f32> {
        let mut top = logits[0];
        for &line in &logits[1..] {
            top = top.max(line);
        }
        // One comparison in most cases: finding the largest of the lanes takes as long as their exponentials.
        if !top.simd_gt(f32x16::splat(simd, self.shift + HEADROOM)).any_true() {
            return None;
        }
        let top = top.reduce_max();
        let scale = (self.shift - top).exp();
        self.shift = top;
        Some(scale)
    }
}

/// The body of [`NegativeSum::of`] for rows of `L` vectors.
#[inline(always)]
fn sum_negatives<S: Simd, const L: usize>(
    simd: S,
    query: &[f32],
    items: ItemTable<'_>,
    ids: &[ItemId],
    weights: &mut [f32],
    vectors: &mut [f32],
) -> NegativeSum {
    let zero = f32x16::splat(simd, 0.0);
    let (mut q, mut sum_vector, mut totals) = ([zero; L], [zero; L], zero);
    for l in 0..L {
        q[l] = f32x16::from_slice(simd, &query[l * LANES..][..LANES]);
    }
    let rows = items.vectors.data().as_chunks::<LANES>().0.as_chunks::<L>().0;
    let mut sum = NegativeSum::default();
    let n = weights.len();
    for start in (0..n).step_by(CHUNK) {
        let end = n.min(start + CHUNK);
        let chunk_ids = &ids[start..end];
        let mut logits = [f32x16::splat(simd, f32::NEG_INFINITY); CHUNK / LANES];
        let groups = chunk_ids.chunks(LANES).zip(&mut logits).zip(weights[start..end].chunks(LANES));
        for (g, ((group, logits), corrections)) in groups.enumerate() {
            // The rows of the next sixteen are asked for before these are used.
            for &next in ids.iter().skip(start + (g + 1) * LANES).take(LANES) {
                prefetch(rows[next as usize].as_flattened());
            }
            *logits =
                if let (Some(group), Some(corrections)) = (group.first_chunk(), corrections.first_chunk()) {
                    group_dots(simd, rows, &q, group) - f32x16::load_array_ref(simd, corrections)
                } else {
                    let mut padded = [group[0]; LANES];
                    padded[..group.len()].copy_from_slice(group);
                    // What is missing from the last line weighs nothing.
                    let mut line = [f32::INFINITY; LANES];
                    line[..group.len()].copy_from_slice(corrections);
                    group_dots(simd, rows, &q, &padded) - f32x16::load_array_ref(simd, &line)
                };
            if items.bias.is_some() {
                *logits +=
                    f32x16::from_fn(simd, |lane| group.get(lane).map_or(0.0, |&item| bias(items, item)));
            }
        }
        if let Some(scale) = sum.fit(simd, &logits) {
            totals *= scale;
            sum_vector.iter_mut().for_each(|sum| *sum *= scale);
            weights[..start].iter_mut().for_each(|weight| *weight *= scale);
        }
        let chunk = &mut weights[start..end];
        totals += weigh(simd, &logits, sum.shift, chunk);
        for (&item, &weight) in chunk_ids.iter().zip(&*chunk) {
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
    sum.total = totals.reduce_sum();
    sum
}

/// Fills `weights` with `exp(logit - shift)`, zero for those that are not there, and returns their sums by lane.
#[inline(always)]
fn weigh<S: Simd>(
    simd: S,
    logits: &[f32x16<S>; CHUNK / LANES],
    shift: f32,
    weights: &mut [f32],
) -> f32x16<S> {
    let (zero, none) = (f32x16::splat(simd, 0.0), f32x16::splat(simd, f32::NEG_INFINITY));
    let mut totals = zero;
    for (&logit, weights) in logits.iter().zip(weights.chunks_mut(LANES)) {
        let weight = logit.simd_gt(none).select(exp(simd, logit - shift), zero);
        totals += weight;
        if let Some(weights) = weights.first_chunk_mut::<LANES>() {
            weight.store_slice(weights);
        } else {
            weights.copy_from_slice(&weight.as_slice()[..weights.len()]);
        }
    }
    totals
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

/// As [`sum_negatives`], for rows of any length, whose sum does not fit the registers.
#[inline(always)]
fn sum_long_negatives<S: Simd>(
    simd: S,
    query: &[f32],
    items: ItemTable<'_>,
    ids: &[ItemId],
    weights: &mut [f32],
    vectors: &mut [f32],
) -> NegativeSum {
    let (mut sum, mut totals) = (NegativeSum::default(), f32x16::splat(simd, 0.0));
    vectors.fill(0.0);
    let n = weights.len();
    for start in (0..n).step_by(CHUNK) {
        let end = n.min(start + CHUNK);
        let mut logits = [f32x16::splat(simd, f32::NEG_INFINITY); CHUNK / LANES];
        for (g, (group, logits)) in ids[start..end].chunks(LANES).zip(&mut logits).enumerate() {
            let first = start + g * LANES;
            let mut products = [f32x16::splat(simd, 0.0); LANES];
            for (k, (product, &item)) in products.iter_mut().zip(group).enumerate() {
                if let Some(&next) = ids.get(first + k + AHEAD_WIDE) {
                    prefetch(items.vectors.padded_row(next as usize));
                }
                *product = partial_dot(simd, query, items.vectors.padded_row(item as usize));
            }
            let dots = lane_sums(products);
            *logits = f32x16::from_fn(simd, |lane| match group.get(lane) {
                Some(&item) => dots.as_slice()[lane] + bias(items, item) - weights[first + lane],
                None => f32::NEG_INFINITY,
            });
        }
        if let Some(scale) = sum.fit(simd, &logits) {
            totals *= scale;
            vectors.iter_mut().for_each(|v| *v *= scale);
            weights[..start].iter_mut().for_each(|weight| *weight *= scale);
        }
        totals += weigh(simd, &logits, sum.shift, &mut weights[start..end]);
        add_rows(simd, items, &ids[start..end], &weights[start..end], vectors);
    }
    sum.total = totals.reduce_sum();
    sum
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
pub(super) fn add_rows<S: Simd>(
    simd: S,
    items: ItemTable<'_>,
    ids: &[ItemId],
    weights: &[f32],
    sum: &mut [f32],
) {
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
