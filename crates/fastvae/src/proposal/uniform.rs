//! `uniform`: every item alike, Q(i) = 1/M.

use super::cells::Span;
use super::settle::{Settling, settle};
use super::{ItemTable, Partitions, Proposal, Scratch, Spread};
use crate::config::ProposalKind;
use crate::data::ItemId;
use crate::error::Result;
use crate::math::Stream;
use crate::math::matrix::LANES;

/// Every item alike.
#[derive(Debug, Clone)]
pub struct Uniform {
    n_items: usize,
    partitions: Partitions,
    /// The number of items of each partition, padded with zeros to whole vectors.
    widths: Vec<f32>,
    /// The position in `widths` where each partition ends.
    slot_ends: Vec<u32>,
    spans: Vec<Span>,
}

impl Uniform {
    /// Over the items of `partitions`, at least one, places being items.
    pub fn new(partitions: Partitions) -> Self {
        let mut widths: Vec<f32> =
            partitions.starts().windows(2).map(|pair| (pair[1] - pair[0]) as f32).collect();
        widths.resize(widths.len().next_multiple_of(LANES), 0.0);
        let slot_ends = (1..=partitions.len() as u32).collect();
        let spans = Span::of(&partitions);
        Self { n_items: partitions.starts()[partitions.len()] as usize, partitions, widths, slot_ends, spans }
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
        spread: &mut Spread,
    ) {
        spread.draw(&mut scratch.systematic, (&self.widths, None), n, stream, &self.slot_ends);
    }

    fn settle(&self, spread: &Spread, partition: usize, out: Settling<'_>) {
        settle(spread, partition, &self.spans, None, Some(self.log_probability()), out);
    }

    fn log_q(&self, _: &[ItemId], _: &[f32], _: ItemTable<'_>, _: &mut Scratch, log_q: &mut [f32]) {
        log_q.fill(self.log_probability());
    }
}
