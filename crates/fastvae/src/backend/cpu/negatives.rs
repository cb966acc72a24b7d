//! The negatives of a batch, partition by partition.
//!
//! Queries are drawn for one by one, as far as to know how many draws fall where. Then each partition is one task: it
//! chooses the items of the draws that fell in it and adds them to softmax sums of its own, query after query, so that
//! the rows of a partition are loaded once for the whole batch. At last each query puts the sums of its partitions
//! together, in their order: results do not depend on the number of threads.

use std::ops::Range;
use std::time::Instant;

use fearless_simd::{dispatch, prelude::*};

use crate::backend::cpu::block::UserBlock;
use crate::backend::{Phase, PhaseTimes};
use crate::data::ItemId;
use crate::loss::{Drawn, NegativeSum, exclude};
use crate::math::matrix::LANES;
use crate::math::{Matrix, MatrixView, simd};
use crate::proposal::{ItemTable, Partitions, Proposal, Spread};

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

    /// The place of the item whose row is `row`.
    #[inline(always)]
    pub fn place_of(&self, row: u32) -> u32 {
        if self.by_place { row } else { self.partitions.place(row) }
    }

    /// The row of `item`.
    pub fn of_item(&self, item: ItemId) -> u32 {
        if self.by_place { self.partitions.place(item) } else { item }
    }
}

/// The negatives of a block of users.
#[derive(Debug, Default)]
pub(super) struct BlockNegatives {
    /// Where the draws of each query fell.
    pub spread: Spread,
    /// Those of this batch first, then some left over from larger ones, whose memory is reused.
    queries: Vec<QueryNegatives>,
    /// For each partition, what turns the weights of each query's draws into the gradients at their logits.
    factors: Vec<f32>,
    /// The places of the positives of each query, ascending, for the stratified estimator.
    excluded: Vec<u32>,
    /// Where they end; none for the other estimator.
    excluded_ends: Vec<u32>,
}

/// What is kept of one query.
#[derive(Debug, Default)]
pub(super) struct QueryNegatives {
    /// The rows of the user's positives.
    pub positive_rows: Vec<u32>,
    /// Their `ln Q`, for the sampled estimator.
    pub correction: Vec<f32>,
}

impl BlockNegatives {
    /// Forgets the last batch and makes room for `n_queries`.
    pub fn begin(&mut self, n_queries: usize, partitions: &Partitions) {
        self.spread.clear(partitions.len());
        if self.queries.len() < n_queries {
            self.queries.resize_with(n_queries, QueryNegatives::default);
        }
        self.factors.resize(partitions.len() * n_queries, 0.0);
        self.excluded.clear();
        self.excluded_ends.clear();
    }

    /// Number of queries of this batch.
    pub fn n_queries(&self) -> usize {
        self.spread.n_queries()
    }

    /// Query `query`.
    pub fn query(&mut self, query: usize) -> &mut QueryNegatives {
        &mut self.queries[query]
    }

    /// What turns the weights of the draws of each query in partition `partition` into gradients.
    pub fn factors(&self, partition: usize) -> &[f32] {
        let n = self.n_queries();
        &self.factors[partition * n..][..n]
    }

    /// Draws of these items shall not count for the next query.
    pub fn exclude(&mut self, history: &[ItemId], partitions: &Partitions) {
        let start = self.excluded.len();
        self.excluded.extend(history.iter().map(|&item| partitions.place(item)));
        self.excluded[start..].sort_unstable();
        self.excluded_ends.push(self.excluded.len() as u32);
    }

    /// The excluded places of query `query` among `places`.
    fn excluded(&self, query: usize, places: Range<u32>) -> &[u32] {
        let Some(&end) = self.excluded_ends.get(query) else { return &[] };
        let start = if query == 0 { 0 } else { self.excluded_ends[query - 1] };
        let all = &self.excluded[start as usize..end as usize];
        let from = all.partition_point(|&place| place < places.start);
        let here = &all[from..];
        &here[..here.partition_point(|&place| place < places.end)]
    }

    /// Keeps the `factors` of query `query` times `scale`.
    pub fn keep_factors(&mut self, query: usize, factors: &[f32], scale: f32) {
        let n = self.n_queries();
        for (of_part, factor) in self.factors.chunks_exact_mut(n).zip(factors) {
            of_part[query] = factor * scale;
        }
    }
}

/// Puts the sums of the partitions together for query `row` of the batch: `vectors` is left with the weighted vectors of
/// all negatives, and `factors` with the weight of each partition's own.
pub(super) fn gather(
    parts: &[PartNegatives],
    row: usize,
    factors: &mut Vec<f32>,
    vectors: &mut [f32],
) -> NegativeSum {
    #[inline(always)]
    fn add<S: Simd>(simd: S, parts: &[PartNegatives], row: usize, factors: &[f32], vectors: &mut [f32]) {
        for (part, &factor) in parts.iter().zip(factors) {
            simd::axpy_in(simd, factor, part.vectors.row(row), vectors);
        }
    }
    vectors.fill(0.0);
    let sum = NegativeSum::join(parts.iter().map(|part| &part.sums[row]), factors);
    dispatch!(simd::level(), simd => add(simd, parts, row, factors, vectors));
    sum
}

/// The draws of a batch that fall in one partition, query after query.
#[derive(Debug)]
pub(super) struct PartNegatives {
    /// Those of each query start a line of their own, and the rest of its last line is filled up.
    places: Vec<u32>,
    /// Corrections at first, then `exp(corrected logit - shift)`, the shift being that of the query's sum.
    weights: Vec<f32>,
    /// Where the draws of each query end.
    ends: Vec<u32>,
    n_draws: usize,
    /// The softmax sums of each query.
    sums: Vec<NegativeSum>,
    /// Their vectors, by query.
    vectors: Matrix,
    pub times: PhaseTimes,
    buffers: Buffers,
}

impl Default for PartNegatives {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            weights: Vec::new(),
            ends: Vec::new(),
            n_draws: 0,
            sums: Vec::new(),
            vectors: Matrix::zeros(0, 0),
            times: PhaseTimes::default(),
            buffers: Buffers::default(),
        }
    }
}

#[derive(Debug, Default)]
struct Buffers {
    marks: Marks,
    rows: Vec<u32>,
}

impl PartNegatives {
    /// How many draws there are.
    pub fn len(&self) -> usize {
        self.n_draws
    }

    /// The places of the draws, query by query.
    pub fn places(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.ends.len()).map(|row| &self.places[self.range(row)])
    }

    /// The places and weights of the draws of query `row`.
    #[inline(always)]
    pub fn of_query(&self, row: usize) -> (&[u32], &[f32]) {
        let range = self.range(row);
        (&self.places[range.clone()], &self.weights[range])
    }

    #[inline(always)]
    fn range(&self, row: usize) -> Range<usize> {
        let start = if row == 0 { 0 } else { self.ends[row - 1] as usize };
        start.next_multiple_of(LANES)..self.ends[row] as usize
    }

    /// Chooses the items of the draws of `blocks` in this partition, and sums them up; `queries` has a row for each.
    pub fn sum(
        &mut self,
        partition: usize,
        blocks: &[UserBlock],
        proposal: &dyn Proposal,
        items: ItemTable<'_>,
        rows: ItemRows<'_>,
        queries: MatrixView<'_>,
    ) {
        let mut lap = Instant::now();
        if self.vectors.rows() < queries.rows() || self.vectors.cols() != queries.cols() {
            self.vectors = Matrix::zeros(queries.rows(), queries.cols());
        }
        self.ends.clear();
        let counts = blocks.iter().flat_map(|block| block.negatives.spread.counts(partition));
        let lines: usize = counts.map(|n| n.div_ceil(LANES)).sum();
        self.places.resize(lines * LANES, 0);
        self.weights.resize(lines * LANES, 0.0);
        self.n_draws = 0;
        let (mut start, here) = (0, rows.partitions.range(partition));
        for block in blocks {
            for query in 0..block.negatives.n_queries() {
                let draws = block.negatives.spread.draws(partition, query);
                let end = start + draws.n;
                let next = end.next_multiple_of(LANES);
                let (places, weights) = (&mut self.places[start..next], &mut self.weights[start..next]);
                // Any row will do for what fills up the last line: it weighs nothing.
                if let (Some(place), Some(weight)) = (places.last_chunk_mut(), weights.last_chunk_mut()) {
                    (*place, *weight) = ([here.start; LANES], [f32::INFINITY; LANES]);
                }
                let (places, weights) = (&mut places[..draws.n], &mut weights[..draws.n]);
                draws.settle_into(proposal, places, weights);
                let excluded = block.negatives.excluded(query, here.clone());
                if !excluded.is_empty() {
                    self.buffers.marks.exclude(excluded, here.start, places, weights);
                }
                self.ends.push(end as u32);
                self.n_draws += draws.n;
                start = next;
            }
        }
        self.times.lap(Phase::Settle, &mut lap);
        self.add_up(items, rows, queries);
        self.times.lap(Phase::Softmax, &mut lap);
    }

    /// Sums up the settled draws.
    fn add_up(&mut self, items: ItemTable<'_>, rows: ItemRows<'_>, queries: MatrixView<'_>) {
        let Self { places, weights, ends, sums, vectors, buffers, .. } = self;
        let mut drawn = places.as_slice();
        if !rows.by_place {
            buffers.rows.clear();
            buffers.rows.extend(drawn.iter().map(|&place| rows.of_place(place)));
            drawn = &buffers.rows;
        }
        NegativeSum::of_each(queries, items, Drawn { ids: drawn, weights, ends }, vectors, sums);
    }
}

/// A set of numbers as one bit each; cleared one by one, so that a use costs what it holds.
#[derive(Debug, Default)]
struct Marks {
    words: Vec<u64>,
}

impl Marks {
    /// Takes the draws at the ascending `excluded` places out of the loss; all places are counted from `start`.
    fn exclude(&mut self, excluded: &[u32], start: u32, places: &[u32], correction: &mut [f32]) {
        self.set(excluded, start);
        exclude(places, correction, |place| self.contains(place - start));
        self.clear(excluded, start);
    }

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
