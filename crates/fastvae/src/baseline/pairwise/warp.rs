//! `warp`: draws until a negative comes within the margin; how long that took tells the item's rank.

use fearless_simd::Simd;

use super::{Negatives, Pair, Pulls};
use crate::math::Stream;

/// How far below the item a negative must stay.
const MARGIN: f32 = 1.0;

/// At most `weights.len() - 1` trials; `weights[t]` is the weight of a violation at trial t, from 1.
pub(super) struct Warp {
    weights: Vec<f32>,
}

impl Warp {
    pub(super) fn new(trials: usize, n_items: usize) -> Self {
        Self { weights: (0..=trials).map(|trial| rank_weight(n_items, trial.max(1))).collect() }
    }
}

/// The weight of an item that `trials` draws put at rank (n_items - 1) / trials: its logarithm, at least 1.
///
/// The sum 1 + 1/2 + ... + 1/rank of Weston et al. grows as this logarithm, which LightFM uses too.
fn rank_weight(n_items: usize, trials: usize) -> f32 {
    let rank = ((n_items.saturating_sub(1)) / trials).max(1);
    (rank as f32).ln().max(1.0)
}

impl Negatives for Warp {
    #[inline(always)]
    fn pull<S: Simd>(&self, simd: S, pair: &Pair<'_>, stream: &mut Stream, pulls: &mut Pulls) -> f32 {
        let positive = pair.score(simd, pair.item);
        for (trial, &weight) in self.weights.iter().enumerate().skip(1) {
            debug_assert!(trial > 0);
            let Some(item) = pair.uniform(stream) else { continue };
            let violation = pair.score(simd, item) - positive + MARGIN;
            if violation > 0.0 {
                pulls.entries.push((item, weight));
                return weight * violation;
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ItemId;
    use crate::math::simd::level;
    use crate::math::{Matrix, Purpose};
    use fearless_simd::dispatch;

    #[test]
    fn trials_suggest_the_rank_of_brute_force() {
        // Item k scores k / 10; the pair's item is 900 of 1000, so 99 others are above it and 9 more within the
        // margin. Their share of the other items is one over the mean number of trials.
        let values: Vec<f32> = (0..1000).map(|k| k as f32 / 10.0).collect();
        let items = Matrix::from_rows(1000, 1, &values);
        let mut query = [0.0; 16];
        query[0] = 1.0;
        let pair = Pair { query: &query, item: 900, seen: &[900], items: &items };
        let violating = (0..1000).filter(|&k| k != 900 && values[k] > values[900] - MARGIN).count();
        let warp = Warp::new(5000, 1000);
        let n = 20_000;
        let mut trials = 0.0;
        for draw in 0..n {
            let mut stream = Stream::new(1, Purpose::Negatives, 0, draw);
            let mut pulls = Pulls::default();
            dispatch!(level(), simd => warp.pull(simd, &pair, &mut stream, &mut pulls));
            let [(item, weight)] = pulls.entries[..] else { panic!("a violation is found") };
            assert!(item != 900 && values[item as usize] > values[900] - MARGIN);
            // The weight says how many trials it took, up to the rounding of the rank.
            let rank = if weight > 1.0 { weight.exp() } else { std::f32::consts::E };
            trials += 999.0 / f64::from(rank);
        }
        // Geometric with mean 999/108 = 9.25, deviation as large: five standard errors are 0.33, and cutting
        // ranks to whole numbers shifts the mean a little.
        let expected = 999.0 / violating as f64;
        assert!((trials / f64::from(n) - expected).abs() < 0.5, "{} {expected}", trials / f64::from(n));
    }

    #[test]
    fn weights_follow_the_harmonic_sum_of_the_rank() {
        for n_items in [50usize, 1_000, 40_988] {
            for trials in [1usize, 2, 7, 50] {
                let rank = ((n_items - 1) / trials).max(1);
                let harmonic: f64 = (1..=rank).map(|r| 1.0 / r as f64).sum();
                let weight = f64::from(rank_weight(n_items, trials));
                // ln(rank) is below the harmonic sum by at most 1.
                assert!(weight <= harmonic + 1e-6 && harmonic <= weight + 1.0, "{n_items} {trials}");
            }
        }
        let all: Vec<ItemId> = (0..3).collect();
        let items = Matrix::zeros(3, 1);
        let pair = Pair { query: &[0.0; 16], item: 0, seen: &all, items: &items };
        let mut pulls = Pulls::default();
        let mut stream = Stream::new(1, Purpose::Negatives, 0, 0);
        let loss = dispatch!(level(), simd => Warp::new(9, 3).pull(simd, &pair, &mut stream, &mut pulls));
        assert!(loss == 0.0 && pulls.entries.is_empty(), "who has everything has no negatives");
    }
}
