//! `uniform`: every item alike, Q(i) = 1/M.

use super::{Draws, ItemTable, Proposal, Scratch};
use crate::config::ProposalKind;
use crate::data::ItemId;
use crate::error::Result;
use crate::math::Stream;

/// Every item alike.
#[derive(Debug, Clone)]
pub struct Uniform {
    n_items: usize,
}

impl Uniform {
    /// Over `n_items` items, at least one.
    pub fn new(n_items: usize) -> Self {
        Self { n_items }
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

    fn draw(
        &self,
        n: usize,
        _: &[f32],
        _: ItemTable<'_>,
        stream: &Stream,
        _: &mut Scratch,
        draws: &mut Draws,
    ) {
        draws.resize(n);
        stream.fill(0, &mut draws.items);
        draws.items.iter_mut().for_each(|word| *word = below(*word, self.n_items as u32));
        draws.correction.fill(self.log_probability());
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
