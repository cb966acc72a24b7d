//! The negatives of a batch, partition by partition.
//!
//! Queries are drawn for one by one, and their draws are put down by partition. Then, for each partition, the draws
//! of all queries are settled and added to the queries' softmax sums: the rows of a partition stay in the
//! second-level cache meanwhile. Each query sees the partitions in one order, so results do not depend on how
//! queries are grouped.

use std::time::Instant;

use crate::backend::cpu::block::UserBlock;
use crate::backend::{Phase, PhaseTimes};
use crate::data::ItemId;
use crate::loss::{NegativeGradient, NegativeSum, exclude};
use crate::math::Stream;
use crate::proposal::{Draws, ItemTable, Partitions, Proposal, Run, Settling};

/// The row of an item in the item table: its place where the table is in the order of the partitions.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemRows<'a> {
    pub partitions: &'a Partitions,
    pub by_place: bool,
}

impl ItemRows<'_> {
    /// The row of the item at `place`.
    #[inline(always)]
    pub fn of_place(&self, place: u32) -> u32 {
        if self.by_place { place } else { self.partitions.item(place) }
    }

    /// The row of `item`.
    pub fn of_item(&self, item: ItemId) -> u32 {
        if self.by_place { self.partitions.place(item) } else { item }
    }
}

/// The negatives of a block of users.
#[derive(Debug, Default)]
pub(super) struct BlockNegatives {
    /// Those of this batch first, then some left over from larger ones, whose memory is reused.
    queries: Vec<QueryNegatives>,
    n_queries: usize,
    /// By partition.
    pub parts: Vec<PartDraws>,
}

/// What is kept of one query.
#[derive(Debug, Default)]
pub(super) struct QueryNegatives {
    pub sum: NegativeSum,
    pub gradient: NegativeGradient,
    /// The rows of the user's positives.
    pub positive_rows: Vec<u32>,
    /// Their `ln Q`, for the sampled estimator.
    pub correction: Vec<f32>,
    /// Where the draws come from.
    stream: Option<Stream>,
    /// The places of the positives, ascending, for the stratified estimator.
    excluded: Vec<u32>,
}

/// The draws of a block that fall in one partition, query after query.
#[derive(Debug, Default)]
pub(super) struct PartDraws {
    pub places: Vec<u32>,
    /// Corrections; corrected logits once they are summed.
    pub logits: Vec<f32>,
    /// Where the draws of each query end.
    ends: Vec<u32>,
    /// Draws that wait for their places.
    runs: Vec<Run>,
    /// Where the runs of each query end.
    run_ends: Vec<u32>,
}

impl PartDraws {
    /// How many draws there are.
    pub fn len(&self) -> usize {
        self.ends.last().map_or(0, |&end| end as usize)
    }

    /// Makes room for `n` draws; what stands there is left over from before.
    fn resize(&mut self, n: usize) {
        self.places.resize(n, 0);
        self.logits.resize(n, 0.0);
    }

    /// The draws of query `query`.
    #[inline(always)]
    pub fn range(&self, query: usize) -> std::ops::Range<usize> {
        stretch(&self.ends, query)
    }
}

/// The stretch that ends at `ends[k]`.
#[inline(always)]
fn stretch(ends: &[u32], k: usize) -> std::ops::Range<usize> {
    let start = if k == 0 { 0 } else { ends[k - 1] };
    start as usize..ends[k] as usize
}

impl BlockNegatives {
    /// Forgets the last batch.
    pub fn begin(&mut self, n_partitions: usize) {
        self.n_queries = 0;
        self.parts.resize_with(n_partitions, PartDraws::default);
        for part in &mut self.parts {
            part.ends.clear();
            part.runs.clear();
            part.run_ends.clear();
        }
    }

    /// Takes the draws of the next query, of a user with positives `history`.
    pub fn push(
        &mut self,
        draws: &Draws,
        stream: Stream,
        history: &[ItemId],
        rows: ItemRows<'_>,
    ) -> &mut QueryNegatives {
        for (partition, part) in self.parts.iter_mut().enumerate() {
            let range = draws.range(partition);
            let start = part.len();
            part.ends.push((start + range.len()) as u32);
            if let Some(runs) = draws.runs(partition) {
                part.runs.extend_from_slice(runs);
                part.run_ends.push(part.runs.len() as u32);
            } else {
                part.resize(start);
                part.places.extend_from_slice(&draws.places[range.clone()]);
                part.logits.extend_from_slice(&draws.correction[range]);
            }
        }
        if self.n_queries == self.queries.len() {
            self.queries.push(QueryNegatives::default());
        }
        let query = &mut self.queries[self.n_queries];
        self.n_queries += 1;
        query.sum = NegativeSum::default();
        query.stream = Some(stream);
        query.excluded.clear();
        query.positive_rows.clear();
        query.positive_rows.extend(history.iter().map(|&item| rows.of_item(item)));
        query
    }

    /// The queries of this batch.
    pub fn queries(&self) -> &[QueryNegatives] {
        &self.queries[..self.n_queries]
    }

    /// The queries of this batch.
    pub fn queries_mut(&mut self) -> &mut [QueryNegatives] {
        &mut self.queries[..self.n_queries]
    }

    /// Settles the draws of all queries in one partition; draws of positives are taken out.
    fn settle(&mut self, partition: usize, proposal: &dyn Proposal, buffers: &mut Buffers) {
        let places = proposal.partitions().range(partition);
        let part = &mut self.parts[partition];
        part.resize(part.len());
        for (q, query) in self.queries[..self.n_queries].iter().enumerate() {
            let range = part.range(q);
            let (drawn, correction) = (&mut part.places[range.clone()], &mut part.logits[range]);
            if !part.run_ends.is_empty() {
                let runs = &part.runs[stretch(&part.run_ends, q)];
                let stream = query.stream.as_ref().expect("a query that was pushed has a stream");
                proposal.settle(partition, stream, runs, drawn, correction, &mut buffers.settling);
            }
            let from = query.excluded.partition_point(|&place| place < places.start);
            let here = &query.excluded[from..];
            let here = &here[..here.partition_point(|&place| place < places.end)];
            if !here.is_empty() {
                let marks = &mut buffers.marks;
                marks.set(here, places.start);
                exclude(drawn, correction, |place| marks.contains(place - places.start));
                marks.clear(here, places.start);
            }
        }
    }
}

impl QueryNegatives {
    /// Draws of these items shall not count.
    pub fn exclude(&mut self, history: &[ItemId], partitions: &Partitions) {
        self.excluded.extend(history.iter().map(|&item| partitions.place(item)));
        self.excluded.sort_unstable();
    }
}

#[derive(Default)]
struct Buffers {
    settling: Settling,
    marks: Marks,
    rows: Vec<u32>,
}

/// Sums up the negatives of the queries of some blocks; `queries` and `gradients` are the padded rows of these.
pub(super) fn sum_negatives(
    blocks: &mut [UserBlock],
    proposal: &dyn Proposal,
    items: ItemTable<'_>,
    rows: ItemRows<'_>,
    queries: &[f32],
    gradients: &mut [f32],
) -> PhaseTimes {
    let (mut times, mut lap) = (PhaseTimes::default(), Instant::now());
    let stride = items.vectors.stride();
    let mut buffers = Buffers::default();
    for partition in 0..proposal.partitions().len() {
        let mut rest = queries.chunks_exact(stride).zip(gradients.chunks_exact_mut(stride));
        for block in &mut *blocks {
            let negatives = &mut block.negatives;
            negatives.settle(partition, proposal, &mut buffers);
            times.lap(Phase::Settle, &mut lap);
            let part = &mut negatives.parts[partition];
            let drawn = if rows.by_place {
                &part.places
            } else {
                buffers.rows.clear();
                buffers.rows.extend(part.places.iter().map(|&place| rows.of_place(place)));
                &buffers.rows
            };
            let mut start = 0;
            for (query, &end) in negatives.queries[..negatives.n_queries].iter_mut().zip(&part.ends) {
                let (z, gradient) = rest.next().expect("a row for each query");
                let end = end as usize;
                query.sum.add(z, items, &drawn[start..], &mut part.logits[start..end], gradient);
                start = end;
            }
            times.lap(Phase::Softmax, &mut lap);
        }
    }
    times
}

/// A set of numbers as one bit each; cleared one by one, so that a use costs what it holds.
#[derive(Debug, Default)]
struct Marks {
    words: Vec<u64>,
}

impl Marks {
    /// Adds ascending `places`, counted from `start`.
    fn set(&mut self, places: &[u32], start: u32) {
        let largest = places.last().map_or(0, |place| (place - start) as usize);
        if self.words.len() <= largest / 64 {
            self.words.resize(largest / 64 + 1, 0);
        }
        for place in places {
            self.words[(place - start) as usize / 64] |= 1 << ((place - start) % 64);
        }
    }

    fn clear(&mut self, places: &[u32], start: u32) {
        for place in places {
            self.words[(place - start) as usize / 64] = 0;
        }
    }

    #[inline(always)]
    fn contains(&self, number: u32) -> bool {
        self.words.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }
}
