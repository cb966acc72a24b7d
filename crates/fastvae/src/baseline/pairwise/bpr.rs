//! Uniform negatives: all of them alike (`bpr`), the best scored (`dns`), or weighted by their scores (`sa`).

use fearless_simd::Simd;

use super::{Negatives, Pair, Pulls, logistic, softmax_weighted};
use crate::math::Stream;

/// n uniform negatives.
pub(super) struct Uniform {
    pub(super) n: usize,
}

impl Negatives for Uniform {
    #[inline(always)]
    fn pull<S: Simd>(&self, simd: S, pair: &Pair<'_>, stream: &mut Stream, pulls: &mut Pulls) -> f32 {
        let positive = pair.score(simd, pair.item);
        let share = 1.0 / self.n as f32;
        let mut total = 0.0;
        pair.draw_uniform(self.n, stream, &mut pulls.entries);
        for (item, strength) in &mut pulls.entries {
            let (loss, pull) = logistic(positive - pair.score(simd, *item));
            *strength = share * pull;
            total += share * loss;
        }
        total
    }
}

/// The best scored of n uniform draws.
pub(super) struct BestOf {
    pub(super) n: usize,
}

impl Negatives for BestOf {
    #[inline(always)]
    fn pull<S: Simd>(&self, simd: S, pair: &Pair<'_>, stream: &mut Stream, pulls: &mut Pulls) -> f32 {
        let mut best = None;
        pair.draw_uniform(self.n, stream, &mut pulls.entries);
        for &(item, _) in &pulls.entries {
            let score = pair.score(simd, item);
            if best.is_none_or(|(_, most)| score > most) {
                best = Some((item, score));
            }
        }
        pulls.entries.clear();
        let Some((item, score)) = best else { return 0.0 };
        let (loss, pull) = logistic(pair.score(simd, pair.item) - score);
        pulls.entries.push((item, pull));
        loss
    }
}

/// n uniform negatives, weighted by the softmax of their scores.
pub(super) struct SelfAdversarial {
    pub(super) n: usize,
    pub(super) temperature: f32,
}

impl Negatives for SelfAdversarial {
    #[inline(always)]
    fn pull<S: Simd>(&self, simd: S, pair: &Pair<'_>, stream: &mut Stream, pulls: &mut Pulls) -> f32 {
        pair.draw_uniform(self.n, stream, &mut pulls.entries);
        for (item, score) in &mut pulls.entries {
            *score = pair.score(simd, *item);
            pulls.scores.push(*score / self.temperature);
        }
        softmax_weighted(pulls, pair.score(simd, pair.item))
    }
}
