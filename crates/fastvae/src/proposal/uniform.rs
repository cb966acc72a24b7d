//! `uniform`: every item alike, Q(i) = 1/M.

use super::walk::sorted_targets;
use super::{Draws, ItemTable, Partitions, Proposal, Scratch};
use crate::config::ProposalKind;
use crate::data::ItemId;
use crate::error::Result;
use crate::math::Stream;

/// Every item alike.
#[derive(Debug, Clone)]
pub struct Uniform {
    n_items: usize,
    partitions: Partitions,
}

impl Uniform {
    /// Over the items of `partitions`, at least one, places being items.
    pub fn new(partitions: Partitions) -> Self {
        Self { n_items: partitions.starts()[partitions.len()] as usize, partitions }
    }

    fn log_probability(&self) -> f32 {
        -(self.n_items as f32).ln()
    }
}

impl Proposal for Uniform {
    fn kind(&self) -> ProposalKind {
        ProposalKind::Uniform
    }

    fn refresh(&mut self, _: ItemTable<'_>, _: u64, _: u32) -> Result<()> {
        Ok(())
    }

    fn prepare(&self, _: &[f32], _: ItemTable<'_>, _: &mut Scratch) {}

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
        draws: &mut Draws,
    ) {
        draws.resize(n);
        // Sorted uniforms, so that the draws come out partition by partition.
        sorted_targets(n, self.n_items as f64, stream, &mut scratch.words, &mut scratch.targets);
        let last = self.n_items as u32 - 1;
        for (place, &target) in draws.places.iter_mut().zip(&scratch.targets) {
            *place = (target as u32).min(last);
        }
        draws.correction.fill(self.log_probability());
        self.partitions.ends(&draws.places, &mut draws.ends);
    }

    fn log_q(&self, _: &[ItemId], _: &[f32], _: ItemTable<'_>, _: &mut Scratch, log_q: &mut [f32]) {
        log_q.fill(self.log_probability());
    }
}

/// A random word as a number below `n`; the bias is below n / 2^32.
#[inline(always)]
pub(super) fn below(word: u32, n: u32) -> u32 {
    ((u64::from(word) * u64::from(n)) >> 32) as u32
}
