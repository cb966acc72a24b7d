//! `popularity`: by a function of the item's count, Q(i) = pop(i) / sum of pop.

use super::cells::Span;
use super::members::Members;
use super::settle::{Settling, settle};
use super::{ItemTable, Partitions, Proposal, Scratch, Spread};
use crate::config::ProposalKind;
use crate::data::ItemId;
use crate::error::Result;
use crate::math::Stream;
use crate::math::matrix::LANES;

/// By fixed weights of the items.
#[derive(Debug, Clone)]
pub struct PopularityProposal {
    partitions: Partitions,
    members: Members,
    /// The share of each partition, padded with zeros to whole vectors.
    shares: Vec<f32>,
    /// The position in `shares` where each partition ends.
    slot_ends: Vec<u32>,
    spans: Vec<Span>,
    /// ln of the sum of all weights.
    log_sum: f32,
}

impl PopularityProposal {
    /// With the given weight of each item of `partitions`, all positive, places being items.
    pub fn new(weights: impl Iterator<Item = f32>, partitions: Partitions) -> Self {
        let log_weights: Vec<f32> = weights.map(f32::ln).collect();
        let (members, log_masses) = Members::new(&log_weights, partitions.starts());
        let sum: f64 = log_masses.iter().map(|log_mass| log_mass.exp()).sum();
        let mut shares: Vec<f32> = log_masses.iter().map(|log_mass| (log_mass.exp() / sum) as f32).collect();
        shares.resize(shares.len().next_multiple_of(LANES), 0.0);
        let slot_ends = (1..=partitions.len() as u32).collect();
        let spans = Span::of(&partitions);
        Self { partitions, members, shares, slot_ends, spans, log_sum: sum.ln() as f32 }
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
        spread.draw(&mut scratch.systematic, (&self.shares, None), n, stream, &self.slot_ends);
    }

    fn settle(&self, spread: &Spread, partition: usize, out: Settling<'_>) {
        settle(spread, partition, &self.spans, Some(&self.members), Some(-self.log_sum), out);
    }

    fn log_q(&self, of: &[ItemId], _: &[f32], _: ItemTable<'_>, _: &mut Scratch, log_q: &mut [f32]) {
        for (out, &item) in log_q.iter_mut().zip(of) {
            *out = self.members.log_weight(item) - self.log_sum;
        }
    }
}
