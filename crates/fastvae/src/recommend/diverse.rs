//! Lists that do not repeat themselves: maximal marginal relevance (Carbonell & Goldstein, 1998).

use crate::eval::Scored;
use crate::math::simd;
use crate::model_file::Model;

impl Model {
    /// Picks `n` of `candidates` (best first), each time the one with the largest (1 - `diversity`) x relevance -
    /// `diversity` x similarity. Relevance is the score mapped to 0..1 over the candidates, similarity the largest
    /// cosine with what is already picked. Cost: `n` x candidates x latent.
    pub(super) fn diversified(&self, candidates: &[Scored], n: usize, diversity: f32) -> Vec<Scored> {
        let vectors = self.parameters().items.vectors;
        let lengths = self.inverse_norms();
        let cosine = |a: Scored, b: Scored| {
            let (a, b) = (a.item as usize, b.item as usize);
            simd::dot(vectors.row(a), vectors.row(b)) * lengths[a] * lengths[b]
        };
        let best = candidates.first().map_or(0.0, |scored| scored.score);
        let span = best - candidates.last().map_or(0.0, |scored| scored.score);
        let relevance = |scored: Scored| if span > 0.0 { 1.0 - (best - scored.score) / span } else { 1.0 };
        // Each candidate with its largest similarity so far; updated by one product per pick.
        let mut left: Vec<(Scored, f32)> = candidates.iter().map(|&scored| (scored, -1.0)).collect();
        let mut picked: Vec<Scored> = Vec::with_capacity(n.min(left.len()));
        while picked.len() < n && !left.is_empty() {
            if let Some(&last) = picked.last() {
                left.iter_mut().for_each(|(scored, nearest)| *nearest = nearest.max(cosine(*scored, last)));
            }
            let value = |&(scored, nearest): &(Scored, f32)| {
                let repeated = if picked.is_empty() { 0.0 } else { nearest };
                (1.0 - diversity) * relevance(scored) - diversity * repeated
            };
            let mut next = 0;
            for at in 1..left.len() {
                if value(&left[at]) > value(&left[next]) {
                    next = at;
                }
            }
            picked.push(left.remove(next).0);
        }
        picked
    }
}
