//! [`Spread`]: the first halves of the draws of some queries, by partition.
//!
//! Queries are drawn for one by one, but the second half is done partition by partition, for all queries and by any
//! thread. So what it needs lies in the order in which it is read.

use fearless_simd::dispatch;

use super::settle::{Settling, fill_up};
use super::systematic::{Choices, Run, RunSlice, Runs};
use super::{Partitions, Proposal};
use crate::math::matrix::LANES;
use crate::math::simd::level;

/// Where the draws of some queries fell; its memory is reused.
#[derive(Debug, Clone, Default)]
pub struct Spread {
    parts: Vec<PartSpread>,
    /// Of each query.
    choices: Vec<Choices>,
}

/// Those in one partition, query after query: runs that [`Proposal::settle`] has still to choose places for, or
/// places, of kinds that know them at once.
#[derive(Debug, Clone, Default)]
struct PartSpread {
    runs: Vec<Run>,
    places: Vec<u32>,
    correction: Vec<f32>,
    ends: Vec<Ends>,
    lines: usize,
}

/// How many draws and runs there are up to the end of a query.
#[derive(Debug, Clone, Copy, Default)]
struct Ends {
    draws: u32,
    runs: u32,
}

/// The draws of one query in one partition.
#[derive(Debug, Clone, Copy)]
pub struct PartDraws<'a> {
    /// How many there are.
    pub n: usize,
    /// What is still to be settled.
    pub(super) runs: RunSlice<'a>,
    pub(super) places: &'a [u32],
    pub(super) correction: &'a [f32],
}

impl Spread {
    /// Forgets all queries, and makes room for draws in `n_partitions` partitions.
    pub fn clear(&mut self, n_partitions: usize) {
        self.choices.clear();
        self.parts.resize_with(n_partitions, PartSpread::default);
        for part in &mut self.parts {
            part.runs.clear();
            part.places.clear();
            part.correction.clear();
            part.ends.clear();
            part.lines = 0;
        }
    }

    /// Number of queries.
    pub fn n_queries(&self) -> usize {
        self.choices.len()
    }

    /// How many lines of [`LANES`] the draws in partition `partition` take, if those of each query start a line.
    pub fn lines(&self, partition: usize) -> usize {
        self.parts[partition].lines
    }

    /// The draws of query `query` in partition `partition`.
    #[inline(always)]
    pub fn draws(&self, partition: usize, query: usize) -> PartDraws<'_> {
        let PartSpread { runs, places, correction, ends, .. } = &self.parts[partition];
        let start = if query == 0 { Ends::default() } else { ends[query - 1] };
        let end = ends[query];
        let draws = start.draws as usize..end.draws as usize;
        // Where there are runs, there are no places.
        let placed = if places.is_empty() { 0..0 } else { draws.clone() };
        PartDraws {
            n: draws.len(),
            runs: RunSlice {
                runs: &runs[start.runs as usize..end.runs as usize],
                choices: self.choices[query],
            },
            places: &places[placed.clone()],
            correction: &correction[placed],
        }
    }

    /// Adds a query whose draws are `runs`, in partitions that end at the slots `slot_ends`.
    pub(super) fn push_runs(&mut self, runs: &Runs, slot_ends: &[u32]) {
        self.choices.push(runs.choices());
        let (slots, mut end) = (runs.slots(), 0);
        for (part, &slot_end) in self.parts.iter_mut().zip(slot_ends) {
            let start = end;
            while slots.get(end).is_some_and(|&slot| slot < slot_end) {
                end += 1;
            }
            part.runs.extend(runs.range(start..end));
            // Summed up where they lie by themselves: read back from the runs, each would wait for its writing.
            part.end(runs.counts()[start..end].iter().sum());
        }
        debug_assert_eq!(end, slots.len(), "every slot lies below the last end");
    }

    /// Adds a query whose draws have these ascending places.
    pub(super) fn push_places(&mut self, places: &[u32], correction: &[f32], partitions: &Partitions) {
        self.choices.push(Choices::default());
        let mut start = 0;
        for (part, &limit) in self.parts.iter_mut().zip(&partitions.starts()[1..]) {
            let end = start + places[start..].partition_point(|&place| place < limit);
            part.places.extend_from_slice(&places[start..end]);
            part.correction.extend_from_slice(&correction[start..end]);
            part.end((end - start) as u32);
            start = end;
        }
        debug_assert_eq!(start, places.len(), "every place lies in a partition");
    }
}

impl PartDraws<'_> {
    /// Settles these draws by the second half of `proposal`.
    #[inline(always)]
    pub fn settle_into(&self, proposal: &(impl Proposal + ?Sized), out: Settling<'_>) {
        if self.runs.runs.is_empty() {
            out.places[..self.n].copy_from_slice(self.places);
            out.correction[..self.n].copy_from_slice(self.correction);
            dispatch!(level(), simd => fill_up(simd, self.n, out.places, out.correction));
        } else {
            proposal.settle(self.runs, self.n, out);
        }
    }
}

impl PartSpread {
    /// Ends a query with `n` more draws.
    #[inline(always)]
    fn end(&mut self, n: u32) {
        let before = self.ends.last().map_or(0, |end| end.draws);
        self.lines += (n as usize).div_ceil(LANES);
        self.ends.push(Ends { draws: before + n, runs: self.runs.len() as u32 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{Purpose, Stream};
    use crate::proposal::Systematic;

    #[test]
    fn runs_come_back_by_partition_and_query() {
        let (mut spread, mut systematic) = (Spread::default(), Systematic::default());
        let slot_ends = [1, 7, 7, 48];
        for round in 0..2 {
            spread.clear(slot_ends.len());
            let all: Vec<Runs> = (0..5)
                .map(|query| {
                    let weights: Vec<f32> = (0..48).map(|slot| (slot * (query + 1) % 7) as f32).collect();
                    let mut runs = Runs::default();
                    let stream = Stream::new(1, Purpose::Negatives, round, query);
                    systematic.draw(&weights, None, 100, &stream, &mut runs);
                    spread.push_runs(&runs, &slot_ends);
                    runs
                })
                .collect();
            assert_eq!(spread.n_queries(), 5);
            for (query, runs) in all.iter().enumerate() {
                let mut start = 0;
                for (partition, &end) in slot_ends.iter().enumerate() {
                    let here = |run: &Run| (start..end).contains(&run.slot);
                    let expected: Vec<Run> = runs.iter().filter(here).collect();
                    let draws = spread.draws(partition, query);
                    assert_eq!((draws.runs.runs, draws.runs.choices), (&expected[..], runs.choices()));
                    assert_eq!(draws.n, expected.iter().map(|run| run.count as usize).sum::<usize>());
                    assert!(draws.places.is_empty());
                    start = end;
                }
            }
            for partition in 0..slot_ends.len() {
                let lines = (0..5).map(|query| spread.draws(partition, query).n.div_ceil(LANES));
                assert_eq!(spread.lines(partition), lines.sum::<usize>());
            }
        }
    }

    #[test]
    fn places_come_back_by_partition_and_query() {
        let partitions = Partitions::ranges(40, 4);
        let mut spread = Spread::default();
        spread.clear(partitions.len());
        let queries: [&[u32]; 3] = [&[0, 0, 9, 10, 35, 39], &[], &[20, 21]];
        for places in queries {
            let correction: Vec<f32> = places.iter().map(|&place| -(place as f32)).collect();
            spread.push_places(places, &correction, &partitions);
        }
        let counts = |partition| [0, 1, 2].map(|query| spread.draws(partition, query).n);
        assert_eq!([0, 1, 2, 3].map(counts), [[3, 0, 0], [1, 0, 0], [0, 0, 2], [2, 0, 0]]);
        let draws = spread.draws(3, 0);
        assert_eq!((draws.n, draws.places, draws.correction), (2, &[35, 39][..], &[-35.0, -39.0][..]));
        assert_eq!(spread.draws(2, 2).places, [20, 21]);
        assert_eq!(spread.draws(2, 1).n, 0);
    }
}
