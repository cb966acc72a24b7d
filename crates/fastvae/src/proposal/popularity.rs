//! `popularity`: by a function of the item's count, Q(i) = pop(i) / sum of pop.

use super::{AliasTable, Draws, ItemTable, Proposal, Scratch};
use crate::config::ProposalKind;
use crate::data::ItemId;
use crate::error::Result;
use crate::math::Stream;

/// By fixed weights of the items.
#[derive(Debug, Clone)]
pub struct PopularityProposal {
    table: AliasTable,
    log_q: Vec<f32>,
}

impl PopularityProposal {
    /// With the given weight of each item, all positive.
    pub fn new(weights: impl Iterator<Item = f32>) -> Self {
        let weights: Vec<f64> = weights.map(f64::from).collect();
        let log_sum = weights.iter().sum::<f64>().ln();
        let log_q = weights.iter().map(|weight| (weight.ln() - log_sum) as f32).collect();
        Self { table: AliasTable::new(&weights), log_q }
    }
}

impl Proposal for PopularityProposal {
    fn kind(&self) -> ProposalKind {
        ProposalKind::Popularity
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
        scratch: &mut Scratch,
        draws: &mut Draws,
    ) {
        draws.resize(n);
        scratch.words.resize(2 * n, 0);
        stream.fill(0, &mut scratch.words);
        for (item, words) in draws.items.iter_mut().zip(scratch.words.chunks_exact(2)) {
            *item = self.table.choose(words[0], words[1]);
        }
        for (correction, &item) in draws.correction.iter_mut().zip(&draws.items) {
            *correction = self.log_q[item as usize];
        }
    }

    fn log_q(&self, of: &[ItemId], _: &[f32], _: ItemTable<'_>, _: &mut Scratch, log_q: &mut [f32]) {
        for (out, &item) in log_q.iter_mut().zip(of) {
            *out = self.log_q[item as usize];
        }
    }
}
