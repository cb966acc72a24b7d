//! `popularity`: by a function of the item's count, Q(i) = pop(i) / sum of pop.

use super::cells::Span;
use super::members::Members;
use super::partitions::ends_at;
use super::walk::{CHOICES, sorted_targets, walk};
use super::{Draws, ItemTable, Partitions, Proposal, Scratch};
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
    /// ln of the sum of all weights.
    log_sum: f32,
}

impl PopularityProposal {
    /// With the given weight of each item of `partitions`, all positive, places being items.
    pub fn new(weights: impl Iterator<Item = f32>, partitions: Partitions) -> Self {
        let (members, log_masses) = Members::new(weights.map(f32::ln).collect(), partitions.starts());
        let sum: f64 = log_masses.iter().map(|log_mass| log_mass.exp()).sum();
        let mut shares: Vec<f32> = log_masses.iter().map(|log_mass| (log_mass.exp() / sum) as f32).collect();
        shares.resize(shares.len().next_multiple_of(LANES), 0.0);
        Self { partitions, members, shares, log_sum: sum.ln() as f32 }
    }

    fn span(&self, partition: usize) -> Span {
        let range = self.partitions.range(partition);
        Span { start: range.start, len: range.end - range.start }
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
        draws: &mut Draws,
    ) {
        draws.resize(n);
        let total = self.shares.iter().map(|&share| f64::from(share)).sum();
        sorted_targets(n, total, stream, &mut scratch.words, &mut scratch.targets);
        walk(&self.shares, &scratch.targets, &mut draws.places);
        let limits: Vec<u32> = (1..=self.partitions.len() as u32).collect();
        ends_at(&draws.places, &limits, &mut draws.ends);
        scratch.words.resize(2 * n, 0);
        stream.fill(CHOICES, &mut scratch.words);
        for partition in 0..self.partitions.len() {
            let span = self.span(partition);
            for t in draws.range(partition) {
                let place =
                    self.members.choose_by_two(span, [scratch.words[2 * t], scratch.words[2 * t + 1]]);
                draws.places[t] = place;
                draws.correction[t] = self.members.log_weight(place) - self.log_sum;
            }
        }
    }

    fn log_q(&self, of: &[ItemId], _: &[f32], _: ItemTable<'_>, _: &mut Scratch, log_q: &mut [f32]) {
        for (out, &item) in log_q.iter_mut().zip(of) {
            *out = self.members.log_weight(item) - self.log_sum;
        }
    }
}
