//! The sampled softmax with `ln Q` correction (section 3.2), in two estimators.
//!
//! **Sampled** (the paper). For one query z with corrected logits a_j = z.q_j - ln Q(j) over the T negatives and a_i for the positives:
//! loss = sum over positives of y_i [logaddexp(a_i, N) - a_i] with N = logsumexp_j a_j. With
//! s_i = y_i sigmoid(N - a_i) and S = sum s_i, the gradient is S exp(a_j - N) at each negative's logit and
//! -s_i at each positive's. `ln Q` is not differentiated.
//!
//! **Stratified**. The normaliser of the full softmax has a known part, the user's own positives, and an unknown
//! one, all other items. Only the unknown part is estimated: Z = sum over positives of exp(z.q_i) + 1/T sum over
//! the draws that are no positives of exp(a_j), and loss = sum of y_i [ln Z - z.q_i]. Z is unbiased, and its
//! largest terms carry no noise.

use fearless_simd::{dispatch, f32x16, prelude::*};

use crate::config::Estimator;
use crate::data::ItemId;
use crate::math::matrix::LANES;
use crate::math::simd::{axpy_in, dot_in, exp, lane_sums, level, prefetch};
use crate::proposal::{Draws, ItemTable};

/// Rows asked for ahead of their use.
const AHEAD: usize = 16;
/// The same for rows longer than eight vectors, which fill the processor's queue of misses by themselves.
const AHEAD_WIDE: usize = 8;
/// Negatives scored together: few enough for their rows to stay in the first-level cache for the weighted sum.
const CHUNK: usize = 32;

/// The items of one user that the loss should rank high.
#[derive(Debug, Clone, Copy)]
pub struct Positives<'a> {
    /// Items.
    pub items: &'a [ItemId],
    /// Their weights y; 1 where absent.
    pub weights: Option<&'a [f32]>,
    /// What the proposal says to subtract from their logits; the stratified estimator does not read it.
    pub correction: &'a [f32],
}

/// Subtracted from the logit of a draw that must not count.
const EXCLUDED: f32 = 1e30;

impl Draws {
    /// Takes the draws out of the loss that `is_positive` names, as the stratified estimator asks.
    pub fn exclude(&mut self, is_positive: impl Fn(ItemId) -> bool) {
        for (&item, correction) in self.items.iter().zip(&mut self.correction) {
            if is_positive(item) {
                *correction = EXCLUDED;
            }
        }
    }
}

/// The loss of one query and the gradient at its logits; buffers are reused from query to query.
#[derive(Debug, Default)]
pub struct SampledSoftmax {
    /// Gradient at each negative's logit, beside the draws.
    pub negatives: Vec<f32>,
    /// Gradient at each positive's logit, beside the positives.
    pub positives: Vec<f32>,
}

impl Positives<'_> {
    /// The weight of the positive at position `k`.
    fn weight(&self, k: usize) -> f32 {
        self.weights.map_or(1.0, |weights| weights[k])
    }
}

impl SampledSoftmax {
    /// Computes the loss, fills the gradients at the logits, and writes the gradient at the query.
    ///
    /// `query` and `query_gradient` are padded rows; the item vectors must be padded too. Each negative's row
    /// is read once. Cost: O((T + n) D).
    pub fn run(
        &mut self,
        estimator: Estimator,
        query: &[f32],
        items: ItemTable<'_>,
        positives: Positives<'_>,
        draws: &Draws,
        query_gradient: &mut [f32],
    ) -> f64 {
        assert_eq!(query.len(), items.vectors.stride(), "a padded query");
        self.negatives.resize(draws.items.len(), 0.0);
        self.positives.resize(positives.items.len(), 0.0);
        let negatives = &mut self.negatives;
        // The number of vectors in a row is a constant for the usual sizes, so that they stay in registers.
        let log_sum = match query.len() / LANES {
            1 => {
                dispatch!(level(), simd => negative_pass::<_, 1>(simd, query, items, draws, negatives, query_gradient))
            }
            2 => {
                dispatch!(level(), simd => negative_pass::<_, 2>(simd, query, items, draws, negatives, query_gradient))
            }
            4 => {
                dispatch!(level(), simd => negative_pass::<_, 4>(simd, query, items, draws, negatives, query_gradient))
            }
            8 => {
                dispatch!(level(), simd => negative_pass::<_, 8>(simd, query, items, draws, negatives, query_gradient))
            }
            _ => {
                dispatch!(level(), simd => negative_pass::<_, 0>(simd, query, items, draws, negatives, query_gradient))
            }
        };
        dispatch!(level(), simd => self.positive_logits(simd, query, items, positives));
        let (loss, pull) = match estimator {
            Estimator::Sampled => self.sampled(positives, log_sum),
            Estimator::Stratified => self.stratified(positives, log_sum - (draws.items.len() as f32).ln()),
        };
        dispatch!(level(), simd => self.finish(simd, items, positives, log_sum, pull, query_gradient));
        loss
    }

    /// Fills `positives` with their logits.
    #[inline(always)]
    fn positive_logits<S: Simd>(
        &mut self,
        simd: S,
        query: &[f32],
        items: ItemTable<'_>,
        positives: Positives<'_>,
    ) {
        for (k, (&item, logit)) in positives.items.iter().zip(&mut self.positives).enumerate() {
            if let Some(&next) = positives.items.get(k + AHEAD) {
                prefetch(items.vectors.padded_row(next as usize));
            }
            *logit = dot_in(simd, query, items.vectors.padded_row(item as usize)) + bias(items, item);
        }
    }

    /// Turns the positives' logits into gradients; returns the loss and the negatives' share of the gradient.
    fn sampled(&mut self, positives: Positives<'_>, log_sum: f32) -> (f64, f32) {
        let (mut loss, mut pull) = (0.0, 0.0);
        for (k, gradient) in self.positives.iter_mut().enumerate() {
            let margin = log_sum - (*gradient - positives.correction[k]);
            let weight = positives.weight(k);
            // softplus(margin) and its slope, without overflow on either side.
            let e = (-margin.abs()).exp();
            loss += f64::from(weight) * f64::from(margin.max(0.0) + e.ln_1p());
            let slope = weight * if margin > 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) };
            *gradient = -slope;
            pull += slope;
        }
        (loss, pull)
    }

    /// As [`SampledSoftmax::sampled`], with the positives summed exactly; `log_rest` estimates the other items.
    fn stratified(&mut self, positives: Positives<'_>, log_rest: f32) -> (f64, f32) {
        let top = self.positives.iter().copied().fold(log_rest, f32::max);
        let sum = self.positives.iter().map(|l| (l - top).exp()).sum::<f32>() + (log_rest - top).exp();
        let log_sum = top + sum.ln();
        let mass: f32 = (0..self.positives.len()).map(|k| positives.weight(k)).sum();
        let mut loss = 0.0;
        for (k, gradient) in self.positives.iter_mut().enumerate() {
            let weight = positives.weight(k);
            loss += f64::from(weight) * f64::from(log_sum - *gradient);
            *gradient = mass * (*gradient - log_sum).exp() - weight;
        }
        (loss, mass * (log_rest - log_sum).exp())
    }

    /// Turns the negatives' logits into gradients and completes the query's.
    #[inline(always)]
    fn finish<S: Simd>(
        &mut self,
        simd: S,
        items: ItemTable<'_>,
        positives: Positives<'_>,
        log_sum: f32,
        pull: f32,
        query_gradient: &mut [f32],
    ) {
        let mut lanes = self.negatives.chunks_exact_mut(LANES);
        for lane in &mut lanes {
            (exp(simd, f32x16::from_slice(simd, lane) - log_sum) * pull).store_slice(lane);
        }
        for logit in lanes.into_remainder() {
            *logit = (*logit - log_sum).exp() * pull;
        }
        query_gradient.iter_mut().for_each(|g| *g *= pull);
        for (&item, &gradient) in positives.items.iter().zip(&self.positives) {
            axpy_in(simd, gradient, items.vectors.padded_row(item as usize), query_gradient);
        }
    }
}

#[inline(always)]
fn bias(items: ItemTable<'_>, item: ItemId) -> f32 {
    items.bias.map_or(0.0, |bias| bias[item as usize])
}

/// Sixteen partial sums of an inner product of padded rows.
#[inline(always)]
fn partial_dot<S: Simd>(simd: S, query: &[f32], row: &[f32]) -> f32x16<S> {
    let mut sums = [f32x16::splat(simd, 0.0); 2];
    for (i, (a, b)) in query.chunks_exact(LANES).zip(row.chunks_exact(LANES)).enumerate() {
        sums[i & 1] = f32x16::from_slice(simd, a).mul_add(f32x16::from_slice(simd, b), sums[i & 1]);
    }
    sums[0] + sums[1]
}

/// As [`partial_dot`], with the query in registers.
#[inline(always)]
fn register_dot<S: Simd, const L: usize>(simd: S, query: &[f32x16<S>; L], row: &[f32]) -> f32x16<S> {
    let row = &row[..L * LANES];
    let mut sum = f32x16::splat(simd, 0.0);
    for (l, q) in query.iter().enumerate() {
        sum = f32x16::from_slice(simd, &row[l * LANES..][..LANES]).mul_add(*q, sum);
    }
    sum
}

/// `sum += weights[k] * vectors[ids[k]]`, a few columns at a time so that their sums stay in registers.
#[inline(always)]
fn add_rows<S: Simd>(simd: S, items: ItemTable<'_>, ids: &[ItemId], weights: &[f32], sum: &mut [f32]) {
    let mut column = 0;
    while column < sum.len() {
        column += match sum.len() - column {
            128.. => add_columns::<S, 8>(simd, items, ids, weights, column, sum),
            64..128 => add_columns::<S, 4>(simd, items, ids, weights, column, sum),
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

/// Fills `logits` with the corrected logits of the negatives and `mean` with their softmax-weighted mean
/// vector; returns their log-sum-exp. Streaming: the sum is rescaled when a larger logit appears.
///
/// `L` is the number of vectors in a row, or 0 for any number.
#[inline(always)]
fn negative_pass<S: Simd, const L: usize>(
    simd: S,
    query: &[f32],
    items: ItemTable<'_>,
    draws: &Draws,
    logits: &mut [f32],
    mean: &mut [f32],
) -> f32 {
    let zero = f32x16::splat(simd, 0.0);
    let mut q = [zero; L];
    let mut sum_vector = [zero; L];
    for (l, q) in q.iter_mut().enumerate() {
        *q = f32x16::from_slice(simd, &query[l * LANES..][..LANES]);
    }
    mean.fill(0.0);
    let (mut largest, mut total) = (f32::NEG_INFINITY, 0.0f32);
    let mut weights = [0.0f32; CHUNK];
    for (chunk, logits) in logits.chunks_mut(CHUNK).enumerate() {
        let start = chunk * CHUNK;
        let ids = &draws.items[start..start + logits.len()];
        let correction = &draws.correction[start..start + logits.len()];
        for (group, logits) in logits.chunks_mut(LANES).enumerate() {
            let first = group * LANES;
            let mut products = [zero; LANES];
            let ahead = if L == 0 { AHEAD_WIDE } else { AHEAD };
            for (k, (product, &item)) in
                products.iter_mut().zip(&ids[first..first + logits.len()]).enumerate()
            {
                if let Some(&next) = draws.items.get(start + first + k + ahead) {
                    prefetch(items.vectors.padded_row(next as usize));
                }
                let row = items.vectors.padded_row(item as usize);
                *product = if L == 0 { partial_dot(simd, query, row) } else { register_dot(simd, &q, row) };
            }
            let sums = lane_sums(products);
            for (k, logit) in logits.iter_mut().enumerate() {
                *logit = sums.as_slice()[k] + bias(items, ids[first + k]) - correction[first + k];
            }
        }
        let chunk_largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if chunk_largest > largest {
            let scale = (largest - chunk_largest).exp();
            total *= scale;
            for sum in &mut sum_vector {
                *sum *= scale;
            }
            if L == 0 {
                mean.iter_mut().for_each(|m| *m *= scale);
            }
            largest = chunk_largest;
        }
        weights[logits.len()..].fill(0.0);
        for (weights, logits) in weights.chunks_exact_mut(LANES).zip(logits.chunks(LANES)) {
            let a = if logits.len() == LANES {
                f32x16::from_slice(simd, logits)
            } else {
                f32x16::from_fn(simd, |i| logits.get(i).copied().unwrap_or(f32::NEG_INFINITY))
            };
            exp(simd, a - largest).store_slice(weights);
            weights[logits.len()..].fill(0.0);
        }
        total += weights[..logits.len().next_multiple_of(LANES)].iter().sum::<f32>();
        if L == 0 {
            add_rows(simd, items, ids, &weights, mean);
            continue;
        }
        for (&item, &weight) in ids.iter().zip(&weights) {
            let row = &items.vectors.padded_row(item as usize)[..L * LANES];
            let w = f32x16::splat(simd, weight);
            for l in 0..L {
                sum_vector[l] =
                    f32x16::from_slice(simd, &row[l * LANES..][..LANES]).mul_add(w, sum_vector[l]);
            }
        }
    }
    for (l, sum) in sum_vector.iter().enumerate() {
        sum.store_slice(&mut mean[l * LANES..][..LANES]);
    }
    mean.iter_mut().for_each(|m| *m /= total);
    largest + total.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{Matrix, Purpose, Stream};

    fn log_sum_exp(values: &[f64]) -> f64 {
        let top = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        top + values.iter().map(|v| (v - top).exp()).sum::<f64>().ln()
    }

    /// The formulas of the module doc in f64.
    fn oracle(
        estimator: Estimator,
        query: &[f32],
        items: ItemTable<'_>,
        positives: Positives<'_>,
        draws: &Draws,
    ) -> f64 {
        let logit = |item: ItemId| {
            let row = items.vectors.row(item as usize);
            let dot: f64 = row.iter().zip(query).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            dot + f64::from(bias(items, item))
        };
        let drawn = draws.items.iter().zip(&draws.correction).map(|(&j, &c)| logit(j) - f64::from(c));
        let normaliser = |k: usize, i: ItemId| match estimator {
            Estimator::Sampled => {
                let own = logit(i) - f64::from(positives.correction[k]);
                log_sum_exp(&drawn.clone().chain([own]).collect::<Vec<_>>())
                    + f64::from(positives.correction[k])
            }
            Estimator::Stratified => {
                let share = (draws.items.len() as f64).ln();
                let rest =
                    draws.items.iter().zip(drawn.clone()).filter(|(j, _)| !positives.items.contains(j));
                let rest = rest.map(|(_, a)| a - share);
                log_sum_exp(&rest.chain(positives.items.iter().map(|&i| logit(i))).collect::<Vec<_>>())
            }
        };
        let loss = |(k, &i): (usize, &ItemId)| f64::from(positives.weight(k)) * (normaliser(k, i) - logit(i));
        positives.items.iter().enumerate().map(loss).sum()
    }

    struct Case {
        table: Matrix,
        bias: Vec<f32>,
        query: Matrix,
        draws: Draws,
        correction: Vec<f32>,
    }

    fn case(dim: usize, n_draws: usize, scale: f64) -> Case {
        let mut stream = Stream::new(dim as u64, Purpose::Initialise, 0, n_draws as u32);
        let mut normals =
            |n: usize, scale: f64| (0..n).map(|_| (stream.normal() * scale) as f32).collect::<Vec<_>>();
        let table = Matrix::from_rows(40, dim, &normals(40 * dim, 0.4));
        let query = Matrix::from_rows(1, dim, &normals(dim, scale));
        let bias = normals(40, 0.5);
        let correction = normals(n_draws, 1.0);
        let draws = Draws { items: (0..n_draws).map(|k| (k * 17 % 40) as u32).collect(), correction };
        Case { table, bias, query, draws, correction: normals(3, 1.0) }
    }

    #[test]
    fn loss_and_gradients_equal_the_formula_and_finite_differences() {
        for dim in [5, 16, 32, 64, 100, 128, 256] {
            for (n_draws, weights, estimator) in [
                (1, None, Estimator::Sampled),
                (64, None, Estimator::Sampled),
                (203, Some([0.5f32, 2.0, 1.0]), Estimator::Sampled),
                (1, None, Estimator::Stratified),
                (203, Some([0.5f32, 2.0, 1.0]), Estimator::Stratified),
            ] {
                let c = case(dim, n_draws, 0.7);
                let items = ItemTable { vectors: c.table.view(), bias: Some(&c.bias) };
                let positives = Positives {
                    items: &[3, 9, 21],
                    weights: weights.as_ref().map(|w| &w[..]),
                    correction: &c.correction,
                };
                let mut softmax = SampledSoftmax::default();
                let mut gradient = vec![f32::NAN; c.query.stride()];
                let mut draws = c.draws.clone();
                if estimator == Estimator::Stratified {
                    draws.exclude(|item| positives.items.contains(&item));
                }
                let loss = softmax.run(estimator, c.query.row(0), items, positives, &draws, &mut gradient);
                let expected = oracle(estimator, c.query.view().row(0), items, positives, &c.draws);
                assert!((loss / expected - 1.0).abs() < 1e-4, "dim {dim}: {loss} {expected}");
                assert!(gradient[dim..].iter().all(|&g| g == 0.0), "padding has no gradient");
                for d in [0, dim / 2, dim - 1] {
                    let h = 1e-3;
                    let moved = |by: f32| {
                        let mut query = c.query.view().row(0).to_vec();
                        query[d] += by;
                        oracle(estimator, &query, items, positives, &c.draws)
                    };
                    let slope = (moved(h) - moved(-h)) / f64::from(2.0 * h);
                    assert!(
                        (slope - f64::from(gradient[d])).abs() < 2e-3 * slope.abs().max(1.0),
                        "{slope} {}",
                        gradient[d]
                    );
                }
                // Gradients at the logits: move one item's bias and the loss must follow.
                let slope_at = |item: u32| {
                    let moved = |by: f32| {
                        let mut bias = c.bias.clone();
                        bias[item as usize] += by;
                        let moved = ItemTable { bias: Some(&bias), ..items };
                        oracle(estimator, c.query.view().row(0), moved, positives, &c.draws)
                    };
                    (moved(1e-3) - moved(-1e-3)) / 2e-3
                };
                for item in [3u32, 17, 0] {
                    let at = |ids: &[u32], g: &[f32]| {
                        ids.iter()
                            .zip(g)
                            .filter(|(i, _)| **i == item)
                            .map(|(_, g)| f64::from(*g))
                            .sum::<f64>()
                    };
                    let got =
                        at(&c.draws.items, &softmax.negatives) + at(positives.items, &softmax.positives);
                    assert!(
                        (got - slope_at(item)).abs() < 2e-3 * got.abs().max(1.0),
                        "item {item}: {got} {}",
                        slope_at(item)
                    );
                }
            }
        }
    }

    #[test]
    fn a_user_whose_draws_are_all_positives_trains_on_the_positives_alone() {
        let mut c = case(32, 5, 0.7);
        c.draws.items = vec![3, 3, 9, 21, 9];
        c.draws.exclude(|item| [3, 9, 21].contains(&item));
        let items = ItemTable { vectors: c.table.view(), bias: None };
        let positives = Positives { items: &[3, 9, 21], weights: None, correction: &c.correction };
        let (mut softmax, mut gradient) = (SampledSoftmax::default(), vec![0.0; 32]);
        let run =
            softmax.run(Estimator::Stratified, c.query.row(0), items, positives, &c.draws, &mut gradient);
        assert!(run.is_finite() && gradient.iter().all(|g| g.is_finite()));
        assert!(softmax.negatives.iter().all(|&g| g == 0.0));
        assert!(softmax.positives.iter().sum::<f32>().abs() < 1e-5);
    }

    #[test]
    fn large_logits_stay_finite() {
        let c = case(32, 200, 60.0);
        let items = ItemTable { vectors: c.table.view(), bias: None };
        let positives = Positives { items: &[3, 9, 21], weights: None, correction: &c.correction };
        let mut gradient = vec![0.0; 32];
        let loss = SampledSoftmax::default().run(
            Estimator::Sampled,
            c.query.row(0),
            items,
            positives,
            &c.draws,
            &mut gradient,
        );
        let expected = oracle(Estimator::Sampled, c.query.view().row(0), items, positives, &c.draws);
        assert!((loss / expected - 1.0).abs() < 1e-4);
        assert!(gradient.iter().all(|g| g.is_finite()));
    }
}
