//! `aobpr`: negatives that rank high by one of the user's factors, geometrically often.
//!
//! A factor f is drawn in proportion to |p_uf| times its deviation over the items, a rank r in proportion to
//! e^(-r / scale), and the negative is the item of rank r by q_f, counted from the end where p_uf < 0. Ranks are
//! taken anew at each epoch.

use fearless_simd::Simd;
use rayon::prelude::*;

use super::{Negatives, Pair, Pulls, logistic};
use crate::data::ItemId;
use crate::math::{Matrix, Stream};

pub(super) struct ByFactorRank {
    n: usize,
    scale: f32,
    /// Items by each factor, largest first.
    orders: Vec<Vec<ItemId>>,
    deviations: Vec<f32>,
}

impl ByFactorRank {
    pub(super) fn new(n: usize, scale: f32) -> Self {
        Self { n, scale, orders: Vec::new(), deviations: Vec::new() }
    }

    /// A rank below `n_items`, geometric up to that.
    #[inline(always)]
    fn rank(&self, n_items: usize, stream: &mut Stream) -> usize {
        // By inversion of the distribution cut off at n_items.
        let most = 1.0 - f64::from(-(n_items as f32) / self.scale).exp();
        let rank = -(1.0 - stream.uniform() * most).ln() * f64::from(self.scale);
        (rank as usize).min(n_items - 1)
    }
}

impl Negatives for ByFactorRank {
    fn refresh(&mut self, _: &Matrix, items: &Matrix, _: u32) {
        let factor = |f: usize| {
            let mut order: Vec<ItemId> = (0..items.rows() as ItemId).collect();
            let value = |item: ItemId| items.row(item as usize)[f];
            order.sort_unstable_by(|&a, &b| value(b).total_cmp(&value(a)).then(a.cmp(&b)));
            let n = items.rows() as f64;
            let (sum, squares) = (0..items.rows()).fold((0.0, 0.0), |(sum, squares), item| {
                let value = f64::from(items.row(item)[f]);
                (sum + value, squares + value * value)
            });
            (order, (squares / n - (sum / n).powi(2)).max(0.0).sqrt() as f32)
        };
        (self.orders, self.deviations) = (0..items.cols()).into_par_iter().map(factor).unzip();
    }

    #[inline(always)]
    fn pull<S: Simd>(&self, simd: S, pair: &Pair<'_>, stream: &mut Stream, pulls: &mut Pulls) -> f32 {
        let positive = pair.score(simd, pair.item);
        let share = 1.0 / self.n as f32;
        let n_items = pair.items.rows();
        pulls.scratch.clear();
        let mut sum = 0.0;
        for (value, deviation) in pair.query.iter().zip(&self.deviations) {
            sum += value.abs() * deviation;
            pulls.scratch.push(sum);
        }
        let mut total = 0.0;
        for _ in 0..self.n {
            let at = stream.uniform() as f32 * sum;
            let factor = pulls.scratch.partition_point(|&mass| mass <= at).min(self.orders.len() - 1);
            let rank = self.rank(n_items, stream);
            let place = if pair.query[factor] >= 0.0 { rank } else { n_items - 1 - rank };
            let item = self.orders[factor][place];
            if pair.has(item) {
                continue;
            }
            let (loss, pull) = logistic(positive - pair.score(simd, item));
            pulls.entries.push((item, share * pull));
            total += share * loss;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::Purpose;
    use crate::math::simd::level;
    use fearless_simd::dispatch;

    #[test]
    fn draws_follow_the_factor_and_the_geometric_rank() {
        // Factor 0 ascends with the item, factor 1 is constant and so never chosen.
        let values: Vec<f32> = (0..200).flat_map(|k| [k as f32, 5.0]).collect();
        let items = Matrix::from_rows(200, 2, &values);
        let mut negatives = ByFactorRank::new(1, 20.0);
        negatives.refresh(&items, &items, 0);
        for sign in [1.0f32, -1.0] {
            let mut query = [0.0; 16];
            (query[0], query[1]) = (sign, 3.0);
            let pair = Pair { query: &query, item: 0, seen: &[], items: &items };
            let n = 50_000;
            let mut counts = [0u32; 200];
            for draw in 0..n {
                let mut stream = Stream::new(3, Purpose::Negatives, 0, draw);
                let mut pulls = Pulls::default();
                dispatch!(level(), simd => negatives.pull(simd, &pair, &mut stream, &mut pulls));
                counts[pulls.entries[0].0 as usize] += 1;
            }
            for rank in [0usize, 1, 10, 40] {
                let item = if sign > 0.0 { 199 - rank } else { rank };
                let p = (-(rank as f64) / 20.0).exp() * (1.0 - (-1.0f64 / 20.0).exp());
                let expected = p * f64::from(n);
                // Five deviations of a binomial count.
                assert!((f64::from(counts[item]) - expected).abs() < 5.0 * expected.sqrt(), "{rank}");
            }
        }
    }
}
