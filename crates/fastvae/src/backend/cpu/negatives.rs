//! The negatives of a batch, partition by partition.
//!
//! Queries are drawn for one by one, as far as to know how many draws fall where. Then each partition is one task: it
//! chooses the items of the draws that fell in it and adds them to softmax sums of its own, query after query, so that
//! the rows of a partition are loaded once for the whole batch. At last each query puts the sums of its partitions
//! together, in their order: results do not depend on the number of threads.

use std::time::Instant;

use crate::backend::cpu::block::UserBlock;
use crate::backend::{Phase, PhaseTimes};
use crate::data::ItemId;
use crate::loss::{NegativeSum, exclude};
use crate::math::matrix::LANES;
use crate::math::{Matrix, MatrixView, simd};
use crate::proposal::{Draws, ItemTable, Partitions, Proposal};

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

    /// The place of `item`, whose row is `row`.
    #[inline(always)]
    pub fn place_of(&self, row: u32, item: ItemId) -> u32 {
        if self.by_place { row } else { self.partitions.place(item) }
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
}

/// What is kept of one query.
#[derive(Debug, Default)]
pub(super) struct QueryNegatives {
    /// Where the draws fell.
    pub draws: Draws,
    /// For each partition, what turns the weights of its draws into the gradients at their logits.
    pub factors: Vec<f32>,
    /// The rows of the user's positives.
    pub positive_rows: Vec<u32>,
    /// Their `ln Q`, for the sampled estimator.
    pub correction: Vec<f32>,
    /// The places of the positives, ascending, for the stratified estimator.
    excluded: Vec<u32>,
}

impl BlockNegatives {
    /// Forgets the last batch.
    pub fn begin(&mut self) {
        self.n_queries = 0;
    }

    /// The next query, of a user with positives `history`.
    pub fn push(&mut self, history: &[ItemId], rows: ItemRows<'_>) -> &mut QueryNegatives {
        if self.n_queries == self.queries.len() {
            self.queries.push(QueryNegatives::default());
        }
        let query = &mut self.queries[self.n_queries];
        self.n_queries += 1;
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
}

impl QueryNegatives {
    /// Draws of these items shall not count.
    pub fn exclude(&mut self, history: &[ItemId], partitions: &Partitions) {
        self.excluded.extend(history.iter().map(|&item| partitions.place(item)));
        self.excluded.sort_unstable();
    }

    /// Puts the sums of the partitions together for query `row` of the batch: `vectors` is left with the weighted
    /// vectors of all negatives, and `factors` with the weight of each partition's own.
    pub fn gather(&mut self, parts: &[PartNegatives], row: usize, vectors: &mut [f32]) -> NegativeSum {
        vectors.fill(0.0);
        let sum = NegativeSum::join(parts.iter().map(|part| &part.sums[row]), &mut self.factors);
        for (part, &factor) in parts.iter().zip(&self.factors) {
            simd::axpy(factor, part.vectors.row(row), vectors);
        }
        sum
    }
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
    fn range(&self, row: usize) -> std::ops::Range<usize> {
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
        self.sums.clear();
        let per_query = |query: &QueryNegatives| query.draws.range(partition).len();
        let counts = blocks.iter().flat_map(|block| block.negatives.queries()).map(per_query);
        let lines: usize = counts.map(|n| n.div_ceil(LANES)).sum();
        self.places.resize(lines * LANES, 0);
        self.weights.resize(lines * LANES, 0.0);
        let (mut start, mut n_draws) = (0, 0);
        let first = rows.partitions.range(partition).start;
        for query in blocks.iter().flat_map(|block| block.negatives.queries()) {
            let n = per_query(query);
            let end = start + n;
            let next = end.next_multiple_of(LANES);
            // Any row will do for what fills up the last line: it weighs nothing.
            if let Some(last) = self.places[start..next].last_chunk_mut::<LANES>() {
                *last = [first; LANES];
            }
            if let Some(last) = self.weights[start..next].last_chunk_mut::<LANES>() {
                *last = [f32::INFINITY; LANES];
            }
            self.settle(partition, query, start..end, proposal);
            self.ends.push(end as u32);
            n_draws += n;
            start = next;
        }
        self.n_draws = n_draws;
        self.times.lap(Phase::Settle, &mut lap);
        self.add_up(items, rows, queries);
        self.times.lap(Phase::Softmax, &mut lap);
    }

    /// Fills the places and corrections of one query's draws; those of positives are taken out.
    fn settle(
        &mut self,
        partition: usize,
        query: &QueryNegatives,
        range: std::ops::Range<usize>,
        proposal: &dyn Proposal,
    ) {
        let Self { places, weights, buffers, .. } = self;
        let (drawn, correction) = (&mut places[range.clone()], &mut weights[range]);
        if let Some(runs) = query.draws.runs(partition) {
            proposal.settle(runs, drawn, correction);
        } else {
            let range = query.draws.range(partition);
            drawn.copy_from_slice(&query.draws.places[range.clone()]);
            correction.copy_from_slice(&query.draws.correction[range]);
        }
        let places = proposal.partitions().range(partition);
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

    /// Sums up the settled draws.
    fn add_up(&mut self, items: ItemTable<'_>, rows: ItemRows<'_>, queries: MatrixView<'_>) {
        let Self { places, weights, ends, sums, vectors, buffers, .. } = self;
        let mut drawn = places.as_slice();
        if !rows.by_place {
            buffers.rows.clear();
            buffers.rows.extend(drawn.iter().map(|&place| rows.of_place(place)));
            drawn = &buffers.rows;
        }
        let (mut rest, mut start) = (weights.as_mut_slice(), 0);
        for (row, &end) in ends.iter().enumerate() {
            let n = end as usize - start;
            let (mine, after) = rest.split_at_mut(n.next_multiple_of(LANES));
            let vectors = vectors.row_mut(row);
            sums.push(NegativeSum::of(queries.padded_row(row), items, n, &drawn[start..], mine, vectors));
            (rest, start) = (after, start + n.next_multiple_of(LANES));
        }
    }
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
