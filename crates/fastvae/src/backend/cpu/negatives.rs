//! The negatives of a batch, partition by partition.
//!
//! Queries are drawn for one by one, as far as to know how many draws fall where. Then each partition is one task: it
//! chooses the items of the draws that fell in it and adds them to softmax sums of its own, query after query, so that
//! the rows of a partition are loaded once for the whole batch. At last each query puts the sums of its partitions
//! together, in their order: results do not depend on the number of threads.

use std::ops::Range;
use std::sync::Mutex;
use std::time::Instant;

use fearless_simd::{dispatch, prelude::*};

use crate::backend::cpu::block::UserBlock;
use crate::backend::cpu::team::Team;
use crate::backend::{Phase, PhaseTimes};
use crate::loss::{Drawn, NegativeSum, exclude};
use crate::math::matrix::LANES;
use crate::math::{Matrix, MatrixView, simd};
use crate::proposal::{ItemTable, Partitions, Proposal, Settling, Spread};

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
}

/// The negatives of a block of users.
#[derive(Debug, Default)]
pub(super) struct BlockNegatives {
    /// Where the draws of each query fell.
    pub spread: Spread,
    /// The places of each query's positives, query after query, and where they end.
    positives: Vec<u32>,
    positive_ends: Vec<usize>,
    /// Their `ln Q`, for the sampled estimator; none for the other.
    correction: Vec<f32>,
    /// For each partition, what turns the weights of each query's draws into the gradients at their logits.
    factors: Vec<f32>,
    /// The places of each query's positives in ascending order, for the stratified estimator; none for the other.
    excluded: Vec<u32>,
}

impl BlockNegatives {
    /// Forgets the last batch and makes room for `n_queries`.
    pub fn begin(&mut self, n_queries: usize, partitions: &Partitions) {
        self.spread.clear(partitions.len(), n_queries);
        self.positives.clear();
        self.positive_ends.clear();
        self.correction.clear();
        self.factors.resize(partitions.len() * n_queries, 0.0);
        self.excluded.clear();
    }

    /// Number of queries of this batch.
    pub fn n_queries(&self) -> usize {
        self.spread.n_queries()
    }

    /// The places of the positives of query `query`, and their corrections where there are any.
    pub fn positives(&self, query: usize) -> (&[u32], &[f32]) {
        let mine = self.of_query(query);
        (&self.positives[mine.clone()], self.correction.get(mine).unwrap_or_default())
    }

    /// Which of the positives are those of query `query`.
    fn of_query(&self, query: usize) -> Range<usize> {
        let start = if query == 0 { 0 } else { self.positive_ends[query - 1] };
        start..self.positive_ends[query]
    }

    /// Adds the positives of the next query, by place.
    pub fn push_positives(&mut self, places: impl Iterator<Item = u32>) {
        self.positives.extend(places);
        self.positive_ends.push(self.positives.len());
    }

    /// Room for the places and the corrections of the `n` positives of the next query.
    pub fn room_for_corrected(&mut self, n: usize) -> (&mut [u32], &mut [f32]) {
        let start = self.positives.len();
        self.positives.resize(start + n, 0);
        self.correction.resize(start + n, 0.0);
        self.positive_ends.push(start + n);
        (&mut self.positives[start..], &mut self.correction[start..])
    }

    /// What turns the weights of the draws of each query in partition `partition` into gradients.
    pub fn factors(&self, partition: usize) -> &[f32] {
        let n = self.n_queries();
        &self.factors[partition * n..][..n]
    }

    /// Draws of the positives that were added last shall not count for their query.
    pub fn exclude_positives(&mut self) {
        let start = self.excluded.len();
        self.excluded.extend_from_slice(&self.positives[start..]);
        self.excluded[start..].sort_unstable();
    }

    /// The excluded places of query `query` among `places`.
    fn excluded(&self, query: usize, places: Range<u32>) -> &[u32] {
        let all = self.excluded.get(self.of_query(query)).unwrap_or_default();
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

/// The negatives of a batch, partition after partition and there query after query; their memory is reused.
///
/// They are in one list, whose length hardly changes from step to step. In a list for each partition they would take the
/// most that ever fell in each, which grows for as long as a training lasts.
#[derive(Debug, Default)]
pub(super) struct StepNegatives {
    /// Those of each query start a line of their own, and the rest of its last line is filled up.
    places: Vec<u32>,
    /// Corrections at first, then `exp(corrected logit - shift)`, the shift being that of the query's sum.
    weights: Vec<f32>,
    /// Their rows, where these are not the places.
    rows: Vec<u32>,
    parts: Vec<PartSums>,
}

/// What there is of the negatives of one partition beside them.
#[derive(Debug)]
struct PartSums {
    /// Where they start among all, and how many lines they take; one more is written over.
    start: usize,
    lines: usize,
    /// Where those of each query end, counted from there.
    ends: Vec<u32>,
    n_draws: usize,
    /// The softmax sums of each query.
    sums: Vec<NegativeSum>,
    /// Their vectors, by query.
    vectors: Matrix,
    marks: Marks,
    coins: Vec<u32>,
}

impl PartSums {
    /// Numbers that their lists have room for.
    fn room(&self) -> usize {
        (self.lines + 1) * LANES
    }
}

impl Default for PartSums {
    fn default() -> Self {
        Self {
            start: 0,
            lines: 0,
            ends: Vec::new(),
            n_draws: 0,
            sums: Vec::new(),
            vectors: Matrix::zeros(0, 0),
            marks: Marks::default(),
            coins: Vec::new(),
        }
    }
}

impl StepNegatives {
    /// Chooses the items of the draws of `blocks` and sums them up; `queries` has a row for each query. Returns how long it
    /// took.
    pub fn sum(
        &mut self,
        team: &mut Team,
        blocks: &[UserBlock],
        proposal: &dyn Proposal,
        items: ItemTable<'_>,
        rows: ItemRows<'_>,
        queries: MatrixView<'_>,
    ) -> PhaseTimes {
        self.parts.resize_with(rows.partitions.len(), PartSums::default);
        let mut end = 0;
        for (partition, part) in self.parts.iter_mut().enumerate() {
            part.start = end;
            part.lines = blocks.iter().map(|block| block.negatives.spread.total(partition).lines).sum();
            end += part.room();
        }
        fit(&mut self.places, end);
        fit(&mut self.weights, end);
        fit(&mut self.rows, if rows.by_place { 0 } else { end });
        let mut lists = (&mut self.places[..], &mut self.weights[..], &mut self.rows[..]);
        let mut tasks: Vec<PartTask<'_>> = self
            .parts
            .iter_mut()
            .map(|part| {
                let n = part.room();
                let (places, weights) = (take(&mut lists.0, n), take(&mut lists.1, n));
                PartTask { part, places, weights, rows: take(&mut lists.2, n) }
            })
            .collect();
        let times = Mutex::new(PhaseTimes::default());
        team.for_each_mut(&mut tasks, |partition, task| {
            let mut lap = Instant::now();
            let mut mine = PhaseTimes::default();
            task.settle(partition, blocks, proposal, rows.partitions);
            mine.lap(Phase::Settle, &mut lap);
            task.add_up(items, rows, queries);
            mine.lap(Phase::Softmax, &mut lap);
            times.lock().expect("no task panics while it adds up").add(&mine);
        });
        times.into_inner().expect("as above")
    }

    /// Puts the sums of the partitions together for query `row` of the batch: `vectors` is left with the weighted vectors
    /// of all negatives, and `factors` with the weight of each partition's own.
    pub fn gather(&self, row: usize, factors: &mut Vec<f32>, vectors: &mut [f32]) -> NegativeSum {
        #[inline(always)]
        fn add<S: Simd>(simd: S, parts: &[PartSums], row: usize, factors: &[f32], vectors: &mut [f32]) {
            for (part, &factor) in parts.iter().zip(factors) {
                simd::axpy_in(simd, factor, part.vectors.row(row), vectors);
            }
        }
        vectors.fill(0.0);
        let sum = NegativeSum::join(self.parts.iter().map(|part| &part.sums[row]), factors);
        dispatch!(simd::level(), simd => add(simd, &self.parts, row, factors, vectors));
        sum
    }

    /// Asks the processor to load soon what [`Self::gather`] reads for query `row`: other cores have written it.
    pub fn ask(&self, row: usize) {
        for part in &self.parts {
            simd::prefetch(part.vectors.row(row));
        }
    }

    /// Those in one partition.
    pub fn part(&self, partition: usize) -> PartNegatives<'_> {
        let PartSums { start, lines, ends, n_draws, .. } = &self.parts[partition];
        let mine = *start..start + lines * LANES;
        PartNegatives {
            n_draws: *n_draws,
            ends,
            places: &self.places[mine.clone()],
            weights: &self.weights[mine],
        }
    }
}

/// The negatives of one partition, query after query.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartNegatives<'a> {
    n_draws: usize,
    ends: &'a [u32],
    places: &'a [u32],
    weights: &'a [f32],
}

impl<'a> PartNegatives<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.n_draws
    }

    /// Their places, query by query.
    pub fn places(self) -> impl Iterator<Item = &'a [u32]> {
        (0..self.ends.len()).map(move |row| &self.places[of_row(self.ends, row)])
    }

    /// The places and weights of those of query `row`.
    #[inline(always)]
    pub fn of_query(&self, row: usize) -> (&'a [u32], &'a [f32]) {
        let mine = of_row(self.ends, row);
        (&self.places[mine.clone()], &self.weights[mine])
    }
}

/// Where the draws of query `row` lie, those of each starting a line and ending at its `ends`.
#[inline(always)]
fn of_row(ends: &[u32], row: usize) -> Range<usize> {
    let start = if row == 0 { 0 } else { ends[row - 1] as usize };
    start.next_multiple_of(LANES)..ends[row] as usize
}

/// What one task writes.
struct PartTask<'a> {
    part: &'a mut PartSums,
    places: &'a mut [u32],
    weights: &'a mut [f32],
    rows: &'a mut [u32],
}

impl PartTask<'_> {
    /// Chooses the items of the draws of `blocks` in this partition.
    fn settle(
        &mut self,
        partition: usize,
        blocks: &[UserBlock],
        proposal: &dyn Proposal,
        partitions: &Partitions,
    ) {
        let PartSums { ends, n_draws, marks, coins, .. } = &mut *self.part;
        ends.clear();
        *n_draws = 0;
        let here = partitions.range(partition);
        for block in blocks {
            let (negatives, done) = (&block.negatives, ends.len());
            let (places, correction) = (&mut *self.places, &mut *self.weights);
            proposal.settle(&negatives.spread, partition, Settling { places, correction, ends, coins });
            *n_draws += negatives.spread.total(partition).draws;
            for query in 0..negatives.n_queries() {
                let excluded = negatives.excluded(query, here.clone());
                if !excluded.is_empty() {
                    let mine = of_row(ends, done + query);
                    marks.exclude(excluded, here.start, &self.places[mine.clone()], &mut self.weights[mine]);
                }
            }
        }
    }

    /// Sums up the settled draws.
    fn add_up(&mut self, items: ItemTable<'_>, rows: ItemRows<'_>, queries: MatrixView<'_>) {
        let PartSums { lines, ends, sums, vectors, .. } = &mut *self.part;
        let n = *lines * LANES;
        if vectors.rows() < queries.rows() || vectors.cols() != queries.cols() {
            *vectors = Matrix::zeros(queries.rows(), queries.cols());
        }
        let (places, weights) = (&self.places[..n], &mut self.weights[..n]);
        for (row, &place) in self.rows.iter_mut().zip(places) {
            *row = rows.of_place(place);
        }
        let ids = if rows.by_place { places } else { &self.rows[..n] };
        NegativeSum::of_each(queries, items, Drawn { ids, weights, ends }, vectors, sums);
    }
}

/// Takes the first `n` off a list, or all of one that is not used.
fn take<'a, T>(list: &mut &'a mut [T], n: usize) -> &'a mut [T] {
    list.split_off_mut(..n.min(list.len())).expect("no more than there are")
}

/// Makes `values` `n` long. Where they must grow they do so by an eighth, which will last.
fn fit<T: Copy + Default>(values: &mut Vec<T>, n: usize) {
    if values.capacity() < n {
        values.clear();
        values.reserve_exact(n + n / 8);
    }
    values.resize(n, T::default());
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
