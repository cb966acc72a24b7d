//! `softmax`: the exact distribution, Q(i given z) = exp(z.q_i + b_i) / Z; linear in the catalogue.

use super::logits::logits;
use super::{ItemTable, Partitions, Proposal, Scratch, Spread};
use crate::config::ProposalKind;
use crate::data::ItemId;
use crate::error::Result;
use crate::math::matrix::LANES;
use crate::math::{Stream, simd};

/// The exact softmax.
#[derive(Debug, Clone)]
pub struct Softmax {
    n_items: usize,
    partitions: Partitions,
}

impl Softmax {
    /// Over the items of `partitions`, at least one, places being items.
    pub fn new(partitions: Partitions) -> Self {
        Self { n_items: partitions.starts()[partitions.len()] as usize, partitions }
    }
}

impl Proposal for Softmax {
    fn kind(&self) -> ProposalKind {
        ProposalKind::Softmax
    }

    fn refresh(&mut self, _: ItemTable<'_>, _: u64, _: u32) -> Result<()> {
        Ok(())
    }

    fn prepare(&self, query: &[f32], items: ItemTable<'_>, scratch: &mut Scratch) {
        scratch.logits.resize(self.n_items, 0.0);
        logits(items, 0, query, &mut scratch.query, &mut scratch.logits);
        let shift = simd::max(&scratch.logits);
        scratch.weights.clear();
        scratch.weights.extend_from_slice(&scratch.logits);
        scratch.total = simd::exp_shifted(&mut scratch.weights, shift);
        scratch.weights.resize(self.n_items.next_multiple_of(LANES), 0.0);
        scratch.log_z = (f64::from(shift) + scratch.total.ln()) as f32;
    }

    fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    fn spread(
        &self,
        n: usize,
        _: &[f32],
        _: ItemTable<'_>,
        stream: &Stream,
        scratch: &mut Scratch,
        spread: &mut Spread,
    ) {
        let Scratch { weights, logits, log_z, systematic, runs, places, correction, .. } = scratch;
        systematic.draw(weights, None, n, stream, runs);
        runs.unroll(|item| logits[item as usize] - *log_z, places, correction);
        spread.push_places(places, correction, &self.partitions);
    }

    fn log_q(&self, of: &[ItemId], _: &[f32], _: ItemTable<'_>, scratch: &mut Scratch, log_q: &mut [f32]) {
        for (out, &item) in log_q.iter_mut().zip(of) {
            *out = scratch.logits[item as usize] - scratch.log_z;
        }
    }
}
