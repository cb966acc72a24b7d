//! [`NegativeSum`]: logits, softmax weights and weighted vectors of one query's negatives, in one pass.

use fearless_simd::{dispatch, f32x16, prelude::*, u32x16};

use crate::data::ItemId;
use crate::loss::sampled::bias;
use crate::math::matrix::LANES;
use crate::math::simd::{self, QUAD, exp, lane_sums, level, prefetch, prefetch_at, quad_sums};
use crate::math::{Matrix, MatrixView};
use crate::proposal::ItemTable;

/// Rows longer than eight vectors asked for ahead of their use: few, since each fills the processor's queue of misses.
const AHEAD_WIDE: usize = 8;

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

/// Negatives of some queries, query after query, each in whole lines.
pub struct Drawn<'a> {
    /// Their rows in the item table; any row where there is no negative.
    pub ids: &'a [ItemId],
    /// Their corrections, infinite where there is no negative; they become `exp(corrected logit - shift)`, zero where
    /// there is none.
    pub weights: &'a mut [f32],
    /// Where those of each query end.
    pub ends: &'a [u32],
}

impl NegativeSum {
    /// The sums over the negatives of each query; the rows of `vectors` are set to the weighted sums of their vectors.
    ///
    /// `queries` and item vectors have padded rows. Cost: O(n D).
    pub fn of_each(
        queries: MatrixView<'_>,
        items: ItemTable<'_>,
        drawn: Drawn<'_>,
        vectors: &mut Matrix,
        sums: &mut Vec<Self>,
    ) {
        debug_assert_eq!(queries.stride(), items.vectors.stride(), "padded queries");
        sums.clear();
        // The number of vectors in a row is a constant for the usual sizes, so that they stay in registers.
        match queries.stride() / LANES {
            1 => {
                dispatch!(level(), simd => of_each::<_, Short<1>>(simd, queries, items, drawn, vectors, sums))
            }
            2 => {
                dispatch!(level(), simd => of_each::<_, Short<2>>(simd, queries, items, drawn, vectors, sums))
            }
            4 => {
                dispatch!(level(), simd => of_each::<_, Short<4>>(simd, queries, items, drawn, vectors, sums))
            }
            8 => {
                dispatch!(level(), simd => of_each::<_, Short<8>>(simd, queries, items, drawn, vectors, sums))
            }
            _ => dispatch!(level(), simd => of_each::<_, Long>(simd, queries, items, drawn, vectors, sums)),
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
    fn fit<S: Simd>(&mut self, simd: S, logits: f32x16<S>) -> Option<f32> {
        // One comparison in most cases: finding the largest of the lanes takes as long as their exponentials.
        if !logits.simd_gt(f32x16::splat(simd, self.shift + HEADROOM)).any_true() {
            return None;
        }
        let top = logits.reduce_max();
        let scale = (self.shift - top).exp();
        self.shift = top;
        Some(scale)
    }
}

/// The negatives of one query, and where the sum of their vectors goes.
struct OneQuery<'a> {
    query: &'a [f32],
    n: usize,
    /// Their rows first, then some that come next, to be asked for meanwhile.
    ids: &'a [ItemId],
    weights: &'a mut [f32],
    vectors: &'a mut [f32],
}

/// The sum over one query's negatives, for rows of some length.
trait Sum {
    fn sum<S: Simd>(simd: S, items: ItemTable<'_>, of: OneQuery<'_>) -> NegativeSum;
}

/// Rows of `L` vectors, which stay in registers.
struct Short<const L: usize>;

/// Rows of any length.
struct Long;

/// The body of [`NegativeSum::of_each`].
#[inline(always)]
fn of_each<S: Simd, R: Sum>(
    simd: S,
    queries: MatrixView<'_>,
    items: ItemTable<'_>,
    drawn: Drawn<'_>,
    vectors: &mut Matrix,
    sums: &mut Vec<NegativeSum>,
) {
    let Drawn { ids, weights: mut rest, ends } = drawn;
    let mut start = 0;
    for (query, &end) in ends.iter().enumerate() {
        let n = end as usize - start;
        let (weights, after) = rest.split_at_mut(n.next_multiple_of(LANES));
        let (ids, vectors) = (&ids[start..], vectors.row_mut(query));
        let query = queries.padded_row(query);
        sums.push(R::sum(simd, items, OneQuery { query, n, ids, weights, vectors }));
        (rest, start) = (after, start + n.next_multiple_of(LANES));
    }
}

impl<const L: usize> Sum for Short<L> {
    #[inline(always)]
    fn sum<S: Simd>(simd: S, items: ItemTable<'_>, of: OneQuery<'_>) -> NegativeSum {
        let OneQuery { query, n, ids, weights, vectors } = of;
        let rows = items.vectors.data().as_chunks::<LANES>().0.as_chunks::<L>().0;
        let zero = f32x16::splat(simd, 0.0);
        let mut sums =
            Sums { of: NegativeSum::default(), query: [zero; L], totals: zero, vectors: [[zero; L]; 2] };
        for l in 0..L {
            sums.query[l] = f32x16::from_slice(simd, &query[l * LANES..][..LANES]);
        }
        let (ids, weights) = (ids.as_chunks().0, weights.as_chunks_mut().0);
        // One look at sixteen ids: a look at each would take as long as the inner product of its row.
        let mut largest = u32x16::splat(simd, 0);
        for ids in &ids[..weights.len()] {
            largest = largest.max(u32x16::load_array_ref(simd, ids));
        }
        let n_rows = u32x16::splat(simd, u32::try_from(rows.len()).unwrap_or(u32::MAX));
        assert!(largest.simd_lt(n_rows).all_true(), "rows of the table");
        for line in 0..weights.len() {
            // Even from the second-level cache rows come too late where a processor looks less far ahead.
            if let Some(next) = ids.get(line + 1) {
                next.iter()
                    .for_each(|&id| prefetch_at(rows.as_ptr().wrapping_add(id as usize).cast(), L * LANES));
            }
            // SAFETY: every id is below the number of rows.
            unsafe {
                let here = n - line * LANES;
                let logits = if here >= LANES {
                    sums.logits(simd, items, &ids[line], LANES)
                } else {
                    sums.logits(simd, items, &ids[line], here.next_multiple_of(QUAD))
                };
                // The vectors are added a line later than the weights are known: neither then waits for the other.
                if line > 0 {
                    sums.add_vectors(simd, items, &ids[line - 1], &weights[line - 1], LANES);
                }
                sums.weigh(simd, logits, weights, line);
            }
        }
        if let Some(last) = weights.len().checked_sub(1) {
            let here = (n - last * LANES).next_multiple_of(QUAD);
            // SAFETY: as above.
            unsafe { sums.add_vectors(simd, items, &ids[last], &weights[last], here) };
        }
        for l in 0..L {
            (sums.vectors[0][l] + sums.vectors[1][l]).store_slice(&mut vectors[l * LANES..][..LANES]);
        }
        sums.of.total = sums.totals.reduce_sum();
        sums.of
    }
}

/// A [`NegativeSum`] in the making, with rows of `L` vectors.
struct Sums<S: Simd, const L: usize> {
    of: NegativeSum,
    query: [f32x16<S>; L],
    /// Of the weights, by lane.
    totals: f32x16<S>,
    /// Of the weighted vectors, even ones and odd ones: so that one's addition does not wait for that of the one before.
    vectors: [[f32x16<S>; L]; 2],
}

impl<S: Simd, const L: usize> Sums<S, L> {
    /// The logits of the first `n` of a line of negatives, a multiple of [`QUAD`].
    ///
    /// # Safety
    /// All `ids` must be rows of the item table.
    #[inline(always)]
    unsafe fn logits(&self, simd: S, items: ItemTable<'_>, ids: &[ItemId; LANES], n: usize) -> f32x16<S> {
        let rows = items.vectors.data().as_chunks::<LANES>().0.as_chunks::<L>().0;
        let mut quads = [f32x16::splat(simd, 0.0); LANES / QUAD];
        for (q, quad) in quads[..n / QUAD].iter_mut().enumerate() {
            let mut products = [f32x16::splat(simd, 0.0); QUAD];
            for (k, product) in products.iter_mut().enumerate() {
                // SAFETY: passed on to the caller.
                let row = unsafe { rows.get_unchecked(ids[q * QUAD + k] as usize) };
                *product = f32x16::load_array_ref(simd, &row[0]) * self.query[0];
                for l in 1..L {
                    *product = f32x16::load_array_ref(simd, &row[l]).mul_add(self.query[l], *product);
                }
            }
            *quad = quad_sums(products);
        }
        let logits = quad_sums(quads);
        if items.bias.is_some() { logits + biases(simd, items, ids) } else { logits }
    }

    /// Turns the corrections of line `line` into weights, and adds these up.
    #[inline(always)]
    fn weigh(&mut self, simd: S, logits: f32x16<S>, weights: &mut [[f32; LANES]], line: usize) {
        let logits = logits - f32x16::load_array_ref(simd, &weights[line]);
        // Any of them will do to begin with: most are close to each other, and the others make the sum move.
        if line == 0 {
            self.of.shift = logits.as_slice()[0];
        }
        if let Some(scale) = self.of.fit(simd, logits) {
            self.totals *= scale;
            for sum in self.vectors.as_flattened_mut() {
                *sum *= scale;
            }
            weights[..line].as_flattened_mut().iter_mut().for_each(|weight| *weight *= scale);
        }
        let weight = weigh(simd, logits, self.of.shift);
        self.totals += weight;
        weight.store_slice(&mut weights[line]);
    }

    /// Adds the weighted vectors of the first `n` of a line of negatives, a multiple of [`QUAD`].
    ///
    /// # Safety
    /// All `ids` must be rows of the item table.
    #[inline(always)]
    unsafe fn add_vectors(
        &mut self,
        simd: S,
        items: ItemTable<'_>,
        ids: &[ItemId; LANES],
        weights: &[f32; LANES],
        n: usize,
    ) {
        let rows = items.vectors.data().as_chunks::<LANES>().0.as_chunks::<L>().0;
        for pair in 0..n / 2 {
            for odd in 0..2 {
                let k = 2 * pair + odd;
                // SAFETY: passed on to the caller.
                let row = unsafe { rows.get_unchecked(ids[k] as usize) };
                let weight = f32x16::splat(simd, weights[k]);
                for l in 0..L {
                    let sum = &mut self.vectors[odd][l];
                    *sum = f32x16::load_array_ref(simd, &row[l]).mul_add(weight, *sum);
                }
            }
        }
    }
}

/// `exp(logit - shift)`, zero for those that are not there.
#[inline(always)]
fn weigh<S: Simd>(simd: S, logits: f32x16<S>, shift: f32) -> f32x16<S> {
    let (zero, none) = (f32x16::splat(simd, 0.0), f32x16::splat(simd, f32::NEG_INFINITY));
    logits.simd_gt(none).select(exp(simd, logits - shift), zero)
}

/// The biases of sixteen items.
#[inline(always)]
fn biases<S: Simd>(simd: S, items: ItemTable<'_>, ids: &[ItemId; LANES]) -> f32x16<S> {
    let mut biases = [0.0; LANES];
    for (value, &item) in biases.iter_mut().zip(ids) {
        *value = bias(items, item);
    }
    f32x16::load_array_ref(simd, &biases)
}

impl Sum for Long {
    #[inline(always)]
    fn sum<S: Simd>(simd: S, items: ItemTable<'_>, of: OneQuery<'_>) -> NegativeSum {
        let OneQuery { query, n, ids, weights, vectors } = of;
        let (mut sum, mut totals) = (NegativeSum::default(), f32x16::splat(simd, 0.0));
        vectors.fill(0.0);
        let lines = ids.as_chunks::<LANES>().0;
        for (line, group) in lines[..weights.len() / LANES].iter().enumerate() {
            let start = line * LANES;
            let mut products = [f32x16::splat(simd, 0.0); LANES];
            for (k, (product, &item)) in products.iter_mut().zip(group).enumerate().take(n - start) {
                if let Some(&next) = ids.get(start + k + AHEAD_WIDE) {
                    prefetch(items.vectors.padded_row(next as usize));
                }
                *product = partial_dot(simd, query, items.vectors.padded_row(item as usize));
            }
            let mut logits = lane_sums(products) - f32x16::from_slice(simd, &weights[start..][..LANES]);
            if items.bias.is_some() {
                logits += biases(simd, items, group);
            }
            if let Some(scale) = sum.fit(simd, logits) {
                totals *= scale;
                vectors.iter_mut().for_each(|v| *v *= scale);
                weights[..start].iter_mut().for_each(|weight| *weight *= scale);
            }
            let weight = weigh(simd, logits, sum.shift);
            totals += weight;
            weight.store_slice(&mut weights[start..][..LANES]);
            let here = LANES.min(n - start);
            add_rows(simd, items, &group[..here], &weights[start..][..here], vectors);
        }
        sum.total = totals.reduce_sum();
        sum
    }
}

/// Sixteen partial sums of an inner product of padded rows.
#[inline(always)]
pub(super) fn partial_dot<S: Simd>(simd: S, query: &[f32], row: &[f32]) -> f32x16<S> {
    let (query, row) = (query.as_chunks::<LANES>().0, row.as_chunks::<LANES>().0);
    #[inline(always)]
    fn add<S: Simd>(simd: S, sum: f32x16<S>, a: &[f32; LANES], b: &[f32; LANES]) -> f32x16<S> {
        f32x16::load_array_ref(simd, a).mul_add(f32x16::load_array_ref(simd, b), sum)
    }
    // Two sums by name: chosen by a number, they would go through memory.
    let (mut even, mut odd) = (f32x16::splat(simd, 0.0), f32x16::splat(simd, 0.0));
    let ((queries, last_query), (rows, last_row)) = (query.as_chunks::<2>(), row.as_chunks::<2>());
    for (a, b) in queries.iter().zip(rows) {
        even = add(simd, even, &a[0], &b[0]);
        odd = add(simd, odd, &a[1], &b[1]);
    }
    if let ([a], [b]) = (last_query, last_row) {
        even = add(simd, even, a, b);
    }
    even + odd
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
