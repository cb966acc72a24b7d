//! `dns`: the best scored of a few uniform draws (dynamic negative sampling, Zhang et al., 2013).
//!
//! Of B draws with replacement, the item of rank r (1 = best) wins with
//! Q = ((M - r + 1)^B - (M - r)^B) / M^B. Its ln needs the rank among all items, so [`Proposal::log_q`] is for
//! plots and tests; training takes the constant correction 0, as the paper's authors do.

use fearless_simd::{dispatch, prelude::*};

use super::alias::place_and_coin;
use super::logits::logits;
use super::{ItemTable, Partitions, Proposal, Scratch, Spread};
use crate::config::ProposalKind;
use crate::data::ItemId;
use crate::error::Result;
use crate::math::{Stream, simd};

/// Uniform draws that compete for each negative (B).
pub const COMPETITORS: usize = 10;

/// The best scored of `COMPETITORS` uniform draws.
#[derive(Debug, Clone)]
pub struct Dns {
    n_items: usize,
    partitions: Partitions,
}

impl Dns {
    /// Over the items of `partitions`, at least one, places being items.
    pub fn new(partitions: Partitions) -> Self {
        Self { n_items: partitions.starts()[partitions.len()] as usize, partitions }
    }

    /// ln Q of the item of rank `rank`, counted from 0.
    fn log_probability(&self, rank: u32) -> f32 {
        // ln(x^B - y^B) - B ln M with x = M - r, y = x - 1, through the ratio y/x so that nothing cancels.
        let (m, x) = (self.n_items as f64, self.n_items as f64 - f64::from(rank));
        let b = COMPETITORS as f64;
        let log_rest = (-(b * (-1.0 / x).ln_1p()).exp_m1()).ln();
        (b * (x.ln() - m.ln()) + log_rest) as f32
    }
}

impl Proposal for Dns {
    fn kind(&self) -> ProposalKind {
        ProposalKind::Dns
    }

    fn refresh(&mut self, _: ItemTable<'_>, _: u64, _: u32) -> Result<()> {
        Ok(())
    }

    fn prepare(&self, _: &[f32], _: ItemTable<'_>, scratch: &mut Scratch) {
        scratch.ranks.clear();
    }

    fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    fn spread(
        &self,
        n: usize,
        query: &[f32],
        items: ItemTable<'_>,
        stream: &Stream,
        scratch: &mut Scratch,
        spread: &mut Spread,
    ) {
        #[inline(always)]
        fn body<S: Simd>(simd: S, query: &[f32], items: ItemTable<'_>, drawn: &[u32], best: &mut [ItemId]) {
            for (t, winner) in best.iter_mut().enumerate() {
                if let Some(next) = drawn.get((t + 1) * COMPETITORS..(t + 2) * COMPETITORS) {
                    next.iter().for_each(|&item| simd::prefetch(items.vectors.row(item as usize)));
                }
                let mut lead = (f32::NEG_INFINITY, u32::MAX);
                for &item in &drawn[t * COMPETITORS..][..COMPETITORS] {
                    let bias = items.bias.map_or(0.0, |bias| bias[item as usize]);
                    let logit = simd::dot_in(simd, items.vectors.row(item as usize), query) + bias;
                    // Of equals the lower item wins, as in the ranks. The first of all wins over none, so that a
                    // logit that is not a number leaves a valid item.
                    if logit > lead.0 || (logit == lead.0 && item < lead.1) || lead.1 == u32::MAX {
                        lead = (logit, item);
                    }
                }
                *winner = lead.1;
            }
        }
        let Scratch { words, places, correction, .. } = scratch;
        places.resize(n, 0);
        correction.clear();
        correction.resize(n, 0.0);
        words.resize(n * COMPETITORS, 0);
        stream.fill(0, words);
        words.iter_mut().for_each(|word| *word = place_and_coin(*word, 0, self.n_items as u32).0);
        let query = &query[..items.vectors.cols()];
        dispatch!(simd::level(), simd => body(simd, query, items, words, places));
        places.sort_unstable();
        spread.push_places(places, correction, &self.partitions);
    }

    /// Cost: O(M D + M ln M), to rank all items, once for each query.
    fn log_q(
        &self,
        of: &[ItemId],
        query: &[f32],
        items: ItemTable<'_>,
        scratch: &mut Scratch,
        log_q: &mut [f32],
    ) {
        let Scratch { query: padded, logits: values, order, ranks, .. } = scratch;
        if ranks.is_empty() {
            values.resize(self.n_items, 0.0);
            logits(items, 0, query, padded, values);
            order.clear();
            order.extend(0..self.n_items as u32);
            order.sort_by(|&a, &b| values[b as usize].total_cmp(&values[a as usize]));
            ranks.resize(self.n_items, 0);
            for (rank, &item) in order.iter().enumerate() {
                ranks[item as usize] = rank as u32;
            }
        }
        for (out, &item) in log_q.iter_mut().zip(of) {
            *out = self.log_probability(ranks[item as usize]);
        }
    }

    fn correction(&self, _: &[ItemId], _: &[f32], _: ItemTable<'_>, _: &mut Scratch, correction: &mut [f32]) {
        correction.fill(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{Matrix, MatrixView};

    #[test]
    fn items_are_ranked_once_for_each_query() {
        let vectors = [1.0, 0.0, 0.5, 0.5, 0.0, 1.0];
        let items = ItemTable { vectors: MatrixView::new(&vectors, 3, 2), bias: None };
        let dns = Dns::new(Partitions::ranges(3, 1));
        let expected = [0, 1, 2].map(|rank| dns.log_probability(rank));
        let (mut scratch, mut log_q) = (Scratch::default(), [0.0; 3]);
        dns.prepare(&[2.0, 1.0], items, &mut scratch);
        dns.log_q(&[0, 1, 2], &[2.0, 1.0], items, &mut scratch, &mut log_q);
        assert_eq!(log_q, expected);
        // A table of other items shows that the ranks of the first look are kept.
        let zeros = Matrix::zeros(3, 2);
        let others = ItemTable { vectors: zeros.view(), bias: None };
        dns.log_q(&[2, 0], &[2.0, 1.0], others, &mut scratch, &mut log_q[..2]);
        assert_eq!(log_q[..2], [expected[2], expected[0]]);
        dns.prepare(&[1.0, 2.0], items, &mut scratch);
        dns.log_q(&[0, 1, 2], &[1.0, 2.0], items, &mut scratch, &mut log_q);
        assert_eq!(log_q, [expected[2], expected[1], expected[0]]);
    }

    #[test]
    fn the_rank_formula_sums_to_one_and_is_the_closed_form() {
        for n_items in [1, 2, 10, 1000] {
            let dns = Dns::new(Partitions::ranges(n_items, 8));
            let mut sum = 0.0;
            for rank in 0..n_items {
                let (m, r, b) = (n_items as f64, rank as f64, COMPETITORS as i32);
                let expected = ((m - r) / m).powi(b) - ((m - r - 1.0) / m).powi(b);
                let q = f64::from(dns.log_probability(rank as u32)).exp();
                assert!((q - expected).abs() < 1e-6, "rank {rank} of {n_items}: {q} against {expected}");
                sum += q;
            }
            assert!((sum - 1.0).abs() < 1e-5);
        }
    }
}
