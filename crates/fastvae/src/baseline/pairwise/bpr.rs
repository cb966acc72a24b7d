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
        for _ in 0..self.n {
            let Some(item) = pair.uniform(stream) else { continue };
            let (loss, pull) = logistic(positive - pair.score(simd, item));
            pulls.entries.push((item, share * pull));
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
        for _ in 0..self.n {
            let Some(item) = pair.uniform(stream) else { continue };
            let score = pair.score(simd, item);
            if best.is_none_or(|(_, most)| score > most) {
                best = Some((item, score));
            }
        }
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
        for _ in 0..self.n {
            let Some(item) = pair.uniform(stream) else { continue };
            let score = pair.score(simd, item);
            pulls.entries.push((item, score));
            pulls.scores.push(score / self.temperature);
        }
        softmax_weighted(pulls, pair.score(simd, pair.item))
    }
}
