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
use crate::loss::NegativeSum;
use crate::loss::negative_sum::{add_rows, partial_dot};
use crate::math::matrix::LANES;
use crate::math::simd::{exp, lane_sums, level, ln};
use crate::proposal::ItemTable;

/// The items of one user that the loss should rank high.
#[derive(Debug, Clone, Copy)]
pub struct Positives<'a> {
    /// Their rows in the item table.
    pub items: &'a [ItemId],
    /// Their weights y; 1 where absent.
    pub weights: Option<&'a [f32]>,
    /// What the proposal says to subtract from their logits; the stratified estimator does not read it.
    pub correction: &'a [f32],
}

/// Subtracted from the logit of a draw that must not count.
const EXCLUDED: f32 = 1e30;

/// Takes the draws out of the loss whose place `is_positive`, as the stratified estimator asks.
pub fn exclude(places: &[u32], correction: &mut [f32], is_positive: impl Fn(u32) -> bool) {
    for (&place, correction) in places.iter().zip(correction) {
        if is_positive(place) {
            *correction = EXCLUDED;
        }
    }
}

/// The loss of one query and the gradients at its positives; buffers are reused from query to query.
#[derive(Debug, Default)]
pub struct SampledSoftmax {
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
    /// The loss of a query whose `n_draws` negatives are summed up in `negatives`. Turns `query_gradient`, which
    /// holds their weighted vectors, into the gradient at the query, and fills that at the positives' logits. Also
    /// returns what the weight of a negative in the sum is to be multiplied by to get the gradient at its logit.
    /// Cost: O(n D).
    pub fn finish(
        &mut self,
        estimator: Estimator,
        query: &[f32],
        items: ItemTable<'_>,
        positives: Positives<'_>,
        (negatives, n_draws): (&NegativeSum, usize),
        query_gradient: &mut [f32],
    ) -> (f64, f32) {
        self.positives.resize(positives.items.len(), 0.0);
        dispatch!(level(), simd => self.positive_logits(simd, query, items, positives));
        let log_sum = negatives.log_sum();
        let (loss, pull) = match estimator {
            Estimator::Sampled => dispatch!(level(), simd => self.sampled(simd, positives, log_sum)),
            Estimator::Stratified => self.stratified(positives, log_sum - (n_draws as f32).ln()),
        };
        let scale = pull / negatives.total;
        dispatch!(level(), simd => self.query_gradient(simd, items, positives, scale, query_gradient));
        (loss, scale)
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
        for (ids, logits) in positives.items.chunks(LANES).zip(self.positives.chunks_mut(LANES)) {
            let mut products = [f32x16::splat(simd, 0.0); LANES];
            for (product, &item) in products.iter_mut().zip(ids) {
                *product = partial_dot(simd, query, items.vectors.padded_row(item as usize));
            }
            for ((logit, sum), &item) in logits.iter_mut().zip(lane_sums(products).as_slice()).zip(ids) {
                *logit = sum + bias(items, item);
            }
        }
    }

    /// Turns the positives' logits into gradients; returns the loss and the negatives' share of the gradient.
    #[inline(always)]
    fn sampled<S: Simd>(&mut self, simd: S, positives: Positives<'_>, log_sum: f32) -> (f64, f32) {
        let (zero, one) = (f32x16::splat(simd, 0.0), f32x16::splat(simd, 1.0));
        let (mut loss, mut pull) = (0.0, zero);
        let lines = self.positives.chunks_mut(LANES).zip(positives.correction.chunks(LANES));
        for (line, (logits, correction)) in lines.enumerate() {
            let n = logits.len();
            // What is missing from a last line weighs nothing.
            let (mut weights, mut margins) = ([0.0; LANES], [0.0; LANES]);
            match positives.weights {
                Some(all) => weights[..n].copy_from_slice(&all[line * LANES..][..n]),
                None => weights[..n].fill(1.0),
            }
            for ((margin, logit), correction) in margins.iter_mut().zip(&*logits).zip(correction) {
                *margin = log_sum - (logit - correction);
            }
            let weight = f32x16::load_array_ref(simd, &weights);
            let margin = f32x16::load_array_ref(simd, &margins);
            // softplus(margin) and its slope, without overflow on either side.
            let e = exp(simd, zero - margin.abs());
            let softplus = margin.max(zero) + ln(simd, e + one);
            let slope = weight * margin.simd_gt(zero).select(one, e) / (e + one);
            loss += f64::from((weight * softplus).reduce_sum());
            pull += slope;
            logits.copy_from_slice(&(zero - slope).as_slice()[..n]);
        }
        (loss, pull.reduce_sum())
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

    /// Scales the negatives' part of the query's gradient and adds the positives'.
    #[inline(always)]
    fn query_gradient<S: Simd>(
        &self,
        simd: S,
        items: ItemTable<'_>,
        positives: Positives<'_>,
        scale: f32,
        query_gradient: &mut [f32],
    ) {
        query_gradient.iter_mut().for_each(|g| *g *= scale);
        add_rows(simd, items, positives.items, &self.positives, query_gradient);
    }
}

/// The bias of `item`.
#[inline(always)]
pub(super) fn bias(items: ItemTable<'_>, item: ItemId) -> f32 {
    items.bias.map_or(0.0, |bias| bias[item as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Drawn;
    use crate::math::{Matrix, MatrixView, Purpose, Stream};
    use crate::proposal::Draws;

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
        let items = (0..n_draws).map(|k| (k * 17 % 40) as u32).collect();
        let mut draws = Draws::default();
        (draws.items, draws.correction) = (items, correction);
        Case { table, bias, query, draws, correction: normals(3, 1.0) }
    }

    /// A whole query: loss, gradient at the query, at the negatives and at the positives.
    fn run(
        estimator: Estimator,
        query: &[f32],
        items: ItemTable<'_>,
        positives: Positives<'_>,
        draws: &Draws,
    ) -> (f64, Vec<f32>, Vec<f32>, Vec<f32>) {
        // In uneven pieces, as the partitions bring them.
        let (n, cut) = (draws.items.len(), draws.items.len() / 3);
        let piece = |range: std::ops::Range<usize>| {
            let n = range.len();
            let mut ids = draws.items[range.clone()].to_vec();
            let mut weights = draws.correction[range].to_vec();
            ids.resize(n.next_multiple_of(LANES), 0);
            weights.resize(n.next_multiple_of(LANES), f32::INFINITY);
            let (mut vectors, mut sums) =
                (Matrix::from_rows(1, query.len(), &vec![f32::NAN; query.len()]), vec![]);
            let drawn = Drawn { ids: &ids, weights: &mut weights, ends: &[n as u32] };
            NegativeSum::of_each(
                MatrixView::new(query, 1, query.len()),
                items,
                drawn,
                &mut vectors,
                &mut sums,
            );
            assert!(weights[n..].iter().all(|&weight| weight == 0.0));
            weights.truncate(n);
            (sums[0], weights, vectors.row(0).to_vec())
        };
        let ((first, mut weights, mut gradient), (second, rest, other)) = (piece(0..cut), piece(cut..n));
        weights.extend(rest);
        let parts = [first, second];
        let mut factors = Vec::new();
        let sum = NegativeSum::join(parts.iter(), &mut factors);
        gradient.iter_mut().zip(&other).for_each(|(a, b)| *a = factors[0] * *a + factors[1] * b);
        let mut softmax = SampledSoftmax::default();
        let negatives = (&sum, draws.items.len());
        let (loss, scale) = softmax.finish(estimator, query, items, positives, negatives, &mut gradient);
        let factor = |k: usize| scale * factors[usize::from(k >= cut)];
        weights.iter_mut().enumerate().for_each(|(k, weight)| *weight *= factor(k));
        (loss, gradient, weights, softmax.positives)
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
                let mut draws = c.draws.clone();
                if estimator == Estimator::Stratified {
                    exclude(&draws.items, &mut draws.correction, |item| positives.items.contains(&item));
                }
                let (loss, gradient, negatives, at_positives) =
                    run(estimator, c.query.row(0), items, positives, &draws);
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
                    let got = at(&c.draws.items, &negatives) + at(positives.items, &at_positives);
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
        exclude(&c.draws.items, &mut c.draws.correction, |item| [3, 9, 21].contains(&item));
        let items = ItemTable { vectors: c.table.view(), bias: None };
        let positives = Positives { items: &[3, 9, 21], weights: None, correction: &c.correction };
        let (loss, gradient, negatives, at_positives) =
            run(Estimator::Stratified, c.query.row(0), items, positives, &c.draws);
        assert!(loss.is_finite() && gradient.iter().all(|g| g.is_finite()));
        assert!(negatives.iter().all(|&g| g == 0.0));
        assert!(at_positives.iter().sum::<f32>().abs() < 1e-5);
    }

    #[test]
    fn large_logits_stay_finite() {
        let c = case(32, 200, 60.0);
        let items = ItemTable { vectors: c.table.view(), bias: None };
        let positives = Positives { items: &[3, 9, 21], weights: None, correction: &c.correction };
        let (loss, gradient, ..) = run(Estimator::Sampled, c.query.row(0), items, positives, &c.draws);
        let expected = oracle(Estimator::Sampled, c.query.view().row(0), items, positives, &c.draws);
        assert!((loss / expected - 1.0).abs() < 1e-4);
        assert!(gradient.iter().all(|g| g.is_finite()));
    }
}
