//! [`Spread`]: the first halves of the draws of some queries, by partition.
//!
//! Queries are drawn for one by one, but the second half is done partition by partition, for all queries and by any
//! thread. Runs stay where they were drawn: copies in the order in which they are read would cost more than they save. A
//! table in that order says where they are, and those of the next query are asked for ahead.

use super::Partitions;
use super::systematic::{Choices, Run, Runs, Systematic};
use crate::math::matrix::LANES;
use crate::math::{Stream, simd};

/// Where the draws of some queries fell, query after query: as runs that places have still to be chosen for, or as
/// places, of kinds that know them at once. Its memory is reused.
#[derive(Debug, Clone, Default)]
pub struct Spread {
    runs: Runs,
    places: Vec<u32>,
    correction: Vec<f32>,
    /// Of each query.
    choices: Vec<Choices>,
    /// Which of them fell in each partition, partition after partition with room for `capacity` queries each.
    parts: Vec<Part>,
    capacity: usize,
    totals: Vec<Total>,
}

/// The draws of one query in one partition.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    /// Where they lie among the runs or places.
    start: u32,
    end: u32,
    /// How many there are.
    n: u32,
}

/// The draws of all queries in one partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// How many there are.
    pub draws: usize,
    /// How many lines of [`LANES`] they take, if those of each query start a line.
    pub lines: usize,
}

/// The runs of one query in one partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartRuns<'a> {
    pub(super) runs: &'a [Run],
    pub(super) choices: Choices,
    /// How many draws they are.
    pub(super) n: usize,
}

impl Spread {
    /// Forgets all queries, and makes room for draws of `n_queries` in `n_partitions` partitions.
    pub fn clear(&mut self, n_partitions: usize, n_queries: usize) {
        self.runs.clear();
        self.places.clear();
        self.correction.clear();
        self.choices.clear();
        self.parts.resize(n_partitions * n_queries, Part::default());
        self.capacity = n_queries;
        self.totals.clear();
        self.totals.resize(n_partitions, Total::default());
    }

    /// Number of queries.
    pub fn n_queries(&self) -> usize {
        self.choices.len()
    }

    /// The draws of all queries in partition `partition`.
    pub fn total(&self, partition: usize) -> Total {
        self.totals[partition]
    }

    /// The runs of query `query` in partition `partition`; those of the next query are asked for.
    #[inline(always)]
    pub(super) fn runs(&self, partition: usize, query: usize) -> PartRuns<'_> {
        let parts = &self.parts[partition * self.capacity..][..self.capacity];
        if let Some(next) = parts.get(query + 1) {
            let first: *const Run = self.runs.as_ptr().wrapping_add(next.start as usize);
            simd::prefetch_at(first.cast(), 2 * LANES);
        }
        let Part { start, end, n } = parts[query];
        let runs = &self.runs[start as usize..end as usize];
        PartRuns { runs, choices: self.choices[query], n: n as usize }
    }

    /// The places of query `query` in partition `partition`, and their corrections.
    pub(super) fn places(&self, partition: usize, query: usize) -> (&[u32], &[f32]) {
        let Part { start, end, .. } = self.parts[partition * self.capacity + query];
        let here = start as usize..end as usize;
        (&self.places[here.clone()], &self.correction[here])
    }

    /// Adds a query whose `n` draws by `weights` fall in partitions that end at the weights `slot_ends`: see
    /// [`Systematic::draw`].
    pub(super) fn draw(
        &mut self,
        systematic: &mut Systematic,
        (weights, log_bases): (&[f32], Option<&[f32]>),
        n: usize,
        stream: &Stream,
        slot_ends: &[u32],
    ) {
        let first = self.runs.len() as u32;
        let choices = systematic.draw(weights, log_bases, n, stream, &mut self.runs);
        let mut start = (0, 0);
        for (partition, &slot_end) in slot_ends.iter().enumerate() {
            let end = systematic.before(slot_end);
            self.set(partition, Part { start: first + start.1, end: first + end.1, n: end.0 - start.0 });
            start = end;
        }
        debug_assert_eq!(start.0 as usize, n, "every slot lies below the last end");
        self.choices.push(choices);
    }

    /// Adds a query whose draws have these ascending places.
    pub(super) fn push_places(&mut self, places: &[u32], correction: &[f32], partitions: &Partitions) {
        let first = self.places.len();
        let mut start = 0;
        for (partition, &limit) in partitions.starts()[1..].iter().enumerate() {
            let end = start + places[start..].partition_point(|&place| place < limit);
            let (from, to) = ((first + start) as u32, (first + end) as u32);
            self.set(partition, Part { start: from, end: to, n: to - from });
            start = end;
        }
        debug_assert_eq!(start, places.len(), "every place lies in a partition");
        self.places.extend_from_slice(places);
        self.correction.extend_from_slice(correction);
        self.choices.push(Choices::default());
    }

    /// Says which draws of the query that is being added fell in partition `partition`.
    #[inline(always)]
    fn set(&mut self, partition: usize, part: Part) {
        let query = self.choices.len();
        assert!(query < self.capacity, "no more queries than there is room for");
        self.parts[partition * self.capacity + query] = part;
        let total = &mut self.totals[partition];
        total.draws += part.n as usize;
        total.lines += (part.n as usize).div_ceil(LANES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::Purpose;

    #[test]
    fn runs_come_back_by_partition_and_query() {
        let (mut spread, mut systematic) = (Spread::default(), Systematic::default());
        let slot_ends = [1, 7, 7, 48];
        for round in 0..2 {
            spread.clear(slot_ends.len(), 6);
            let all: Vec<(Vec<Run>, Choices)> = (0..5)
                .map(|query| {
                    let weights: Vec<f32> = (0..48).map(|slot| (slot * (query + 1) % 7) as f32).collect();
                    let stream = Stream::new(1, Purpose::Negatives, round, query);
                    spread.draw(&mut systematic, (&weights, None), 100, &stream, &slot_ends);
                    let mut runs = Runs::default();
                    let choices = systematic.draw(&weights, None, 100, &stream, &mut runs);
                    (runs.to_vec(), choices)
                })
                .collect();
            assert_eq!(spread.n_queries(), 5);
            for (query, (runs, choices)) in all.iter().enumerate() {
                let mut start = 0;
                for (partition, &end) in slot_ends.iter().enumerate() {
                    let here = |run: &&Run| (start..end).contains(&run.slot);
                    let expected: Vec<Run> = runs.iter().filter(here).copied().collect();
                    let part = spread.runs(partition, query);
                    assert_eq!((part.runs, part.choices), (&expected[..], *choices));
                    assert_eq!(part.n, expected.iter().map(|run| run.count as usize).sum::<usize>());
                    start = end;
                }
            }
            for partition in 0..slot_ends.len() {
                let of_each = (0..5).map(|query| spread.runs(partition, query).n);
                let lines = of_each.clone().map(|n| n.div_ceil(LANES)).sum();
                assert_eq!(spread.total(partition), Total { draws: of_each.sum(), lines });
            }
        }
    }

    #[test]
    fn places_come_back_by_partition_and_query() {
        let partitions = Partitions::ranges(40, 4);
        let mut spread = Spread::default();
        spread.clear(partitions.len(), 3);
        let queries: [&[u32]; 3] = [&[0, 0, 9, 10, 35, 39], &[], &[20, 21]];
        for places in queries {
            let correction: Vec<f32> = places.iter().map(|&place| -(place as f32)).collect();
            spread.push_places(places, &correction, &partitions);
        }
        let counts = |partition| [0, 1, 2].map(|query| spread.places(partition, query).0.len());
        assert_eq!([0, 1, 2, 3].map(counts), [[3, 0, 0], [1, 0, 0], [0, 0, 2], [2, 0, 0]]);
        assert_eq!(spread.places(3, 0), (&[35, 39][..], &[-35.0, -39.0][..]));
        assert_eq!(spread.places(2, 2).0, [20, 21]);
        assert_eq!(spread.total(2), Total { draws: 2, lines: 1 });
    }
}
