//! Many draws from a list of weights at once, as counts: the draws of a node are split among its children, from
//! the root of a tree down to the weights.
//!
//! A draw at a node costs one comparison of its target with the running sums of the node's sixteen children, which
//! is one vector; nothing is stored, sorted or searched for it. Each level has its own words of the query's stream,
//! and a draw's word follows from its number alone, so that any processor can draw the same.

use fearless_simd::{dispatch, f32x16, i32x16, prelude::*, u32x16};

use crate::math::matrix::LANES;
use crate::math::{Stream, simd};

/// The block of a stream where the words start that choose within a cell; those of the tree start at 0.
pub(super) const CHOICES: u32 = 1 << 28;

/// Draws that fell on the same weight.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Run {
    /// The position of the weight; for MIDX, the slot of a cell.
    pub(super) slot: u32,
    /// How many draws, at least one.
    pub(super) count: u32,
    /// ln Q of an item of weight one in the slot.
    pub(super) log_base: f32,
}

/// Running sums over a list of weights, level by level.
#[derive(Debug, Clone, Default)]
pub(super) struct SplitTree {
    /// For each node the sums of its first 1 to 16 children's weights; the nodes over the weights themselves first,
    /// the root last.
    sums: Vec<f32>,
    /// Where each level starts in `sums`, from the root down.
    levels: Vec<usize>,
    /// Draws of the nodes of one level, and of the next.
    counts: [Vec<u32>; 2],
    words: Vec<u32>,
    /// The draws of one node in units of weight.
    targets: Vec<f32>,
}

impl SplitTree {
    /// Takes over `weights`, none negative. Cost: one addition a weight.
    ///
    /// # Panics
    /// If there are none, or their number is not a multiple of [`LANES`].
    pub(super) fn build(&mut self, weights: &[f32]) {
        assert!(!weights.is_empty() && weights.len().is_multiple_of(LANES), "whole vectors");
        self.levels.clear();
        self.levels.push(0);
        self.sums.resize(weights.len(), 0.0);
        running_sums(weights, &mut self.sums);
        let (mut start, mut width) = (0, weights.len());
        while width > LANES {
            let (below, n_nodes) = (start, width / LANES);
            (start, width) = (start + width, n_nodes.next_multiple_of(LANES));
            self.sums.resize(start + width, 0.0);
            let (done, level) = self.sums.split_at_mut(start);
            for (total, node) in level.iter_mut().zip(done[below..].chunks_exact(LANES)) {
                *total = node[LANES - 1];
            }
            level[n_nodes..].fill(0.0);
            add_up(level);
            self.levels.push(start);
        }
        self.levels.reverse();
    }

    /// `n` independent draws, as runs in the order of the weights; a weight of zero gets none. Without a sum that is
    /// positive and a number, all fall on the first.
    ///
    /// Draw s at level l (the root's is 0), numbered in the order of the nodes, takes word l * pad + s of `stream`,
    /// pad being `n` rounded up to [`Stream::RUN`].
    pub(super) fn draw(&mut self, n: usize, stream: &Stream, runs: &mut Vec<Run>) {
        runs.clear();
        let total = self.sums[self.sums.len() - 1];
        if n == 0 || !(total > 0.0 && total.is_finite()) {
            runs.extend((n > 0).then_some(Run { slot: 0, count: n as u32, log_base: 0.0 }));
            return;
        }
        let pad = n.next_multiple_of(Stream::RUN);
        let Self { sums, levels, counts: [counts, below], words, targets } = self;
        // A vector more, so that the last draws of a level can be loaded with what follows them.
        words.resize(levels.len() * pad + LANES, 0);
        stream.fill(0, &mut words[..levels.len() * pad]);
        targets.resize(pad, 0.0);
        counts.clear();
        counts.push(n as u32);
        let (&lowest, upper) = levels.split_last().expect("a tree has a level");
        for (level, &start) in upper.iter().enumerate() {
            below.resize(counts.len() * LANES, 0);
            let words = &words[level * pad..];
            dispatch!(simd::level(), simd => split(simd, &sums[start..], counts, words, targets, below));
            std::mem::swap(counts, below);
            counts.truncate(sums_of_level(levels, level + 1, sums.len()) / LANES);
        }
        runs.resize(n.min(counts.len() * LANES) + LANES, Run::default());
        let words = &words[upper.len() * pad..];
        let n_runs = dispatch!(simd::level(), simd => {
            split_into_runs(simd, &sums[lowest..], counts, words, targets, runs)
        });
        runs.truncate(n_runs);
    }
}

/// Floats of level `level`.
fn sums_of_level(levels: &[usize], level: usize, end: usize) -> usize {
    (if level == 0 { end } else { levels[level - 1] }) - levels[level]
}

/// The sums of each sixteen weights, added from left to right: they never fall, and a weight of zero leaves the sum
/// exactly as it was.
fn running_sums(weights: &[f32], sums: &mut [f32]) {
    sums.copy_from_slice(weights);
    add_up(sums);
}

fn add_up(level: &mut [f32]) {
    for node in level.as_chunks_mut::<LANES>().0 {
        let mut sum = 0.0;
        for weight in node {
            sum += *weight;
            *weight = sum;
        }
    }
}

/// The draws of each node's children.
#[inline(always)]
fn split<S: Simd>(
    simd: S,
    sums: &[f32],
    counts: &[u32],
    words: &[u32],
    targets: &mut [f32],
    below: &mut [u32],
) {
    let (mut first, one) = (0, ones(simd));
    for ((node, children), &n) in
        sums.as_chunks::<LANES>().0.iter().zip(below.as_chunks_mut::<LANES>().0).zip(counts)
    {
        // Also for a node without draws, whose children have none: what stands there is from another level.
        children_counts(simd, node, &words[first..], n as usize, targets, one).store_slice(children);
        first += n as usize;
    }
}

/// As [`split`], for the lowest level; returns the number of runs.
#[inline(always)]
fn split_into_runs<S: Simd>(
    simd: S,
    sums: &[f32],
    counts: &[u32],
    words: &[u32],
    targets: &mut [f32],
    runs: &mut [Run],
) -> usize {
    let (mut first, mut n_runs, one) = (0, 0, ones(simd));
    for (node, (sums, &n)) in sums.as_chunks::<LANES>().0.iter().zip(counts).enumerate() {
        if n == 0 {
            continue;
        }
        let counts = children_counts(simd, sums, &words[first..], n as usize, targets, one);
        first += n as usize;
        // Each child is written and the end moves only past those with draws: which these are is a surprise, and a
        // branch would be guessed wrong.
        for (child, &count) in counts.as_slice().iter().enumerate() {
            runs[n_runs] = Run { slot: (node * LANES + child) as u32, count, log_base: 0.0 };
            n_runs += usize::from(count > 0);
        }
    }
    n_runs
}

/// How many of the `n` draws with these words go to each child of the node with running sums `sums`; `targets` is a
/// buffer.
///
/// A draw goes to the first child whose running sum exceeds u * total, u = the upper 24 bits of its word * 2^-24. That
/// product may round up to the total, which no sum exceeds: it is kept below.
#[inline(always)]
fn children_counts<S: Simd>(
    simd: S,
    sums: &[f32; LANES],
    words: &[u32],
    n: usize,
    targets: &mut [f32],
    one: u32x16<S>,
) -> u32x16<S> {
    const UNIT: f32 = 1.0 / (1u32 << 24) as f32;
    let total = sums[LANES - 1];
    // One step down: a total that draws reach is positive.
    let limit = f32x16::splat(simd, f32::from_bits(total.to_bits().wrapping_sub(1)));
    let padded = n.next_multiple_of(LANES);
    for (words, targets) in
        words[..padded].as_chunks::<LANES>().0.iter().zip(targets[..padded].as_chunks_mut::<LANES>().0)
    {
        let bits = (u32x16::load_array_ref(simd, words) >> 8).bitcast::<i32x16<S>>();
        (bits.to_float::<f32x16<S>>() * UNIT * total).min(limit).store_slice(targets);
    }
    // Lane k counts the draws that lie below sum k. One draw against sixteen sums at a time: as cheap as sixteen draws
    // against one sum, and nothing is left to be added up across lanes.
    let sums = f32x16::load_array_ref(simd, sums);
    let zero = u32x16::splat(simd, 0);
    let mut below = zero;
    for &target in &targets[..n] {
        below += f32x16::splat(simd, target).simd_lt(sums).select(one, zero);
    }
    below - below.shift_elements_right::<1>(0)
}

/// Ones that the compiler does not know as such: it would turn the sum of a mask into a mask made a vector and then
/// subtracted, where AVX-512 adds under the mask at once.
#[inline(always)]
fn ones<S: Simd>(simd: S) -> u32x16<S> {
    u32x16::splat(simd, std::hint::black_box(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::Purpose;

    fn stream(entity: u32) -> Stream {
        Stream::new(3, Purpose::Negatives, 0, entity)
    }

    fn draws(weights: &[f32], n: usize, entity: u32) -> Vec<Run> {
        let (mut tree, mut runs) = (SplitTree::default(), Vec::new());
        tree.build(weights);
        tree.draw(n, &stream(entity), &mut runs);
        runs
    }

    /// Weights over many magnitudes, half of them zero.
    fn weights(n: usize, seed: u64, scale: f32) -> Vec<f32> {
        let mut stream = Stream::new(seed, Purpose::Generate, 0, 0);
        let mut weights: Vec<f32> = (0..n)
            .map(|_| if stream.uniform() < 0.5 { 0.0 } else { scale * (stream.normal() * 4.0).exp() as f32 })
            .collect();
        weights[n / 2] = scale;
        weights
    }

    /// The definition, one draw at a time.
    fn oracle(weights: &[f32], n: usize, stream: &Stream) -> Vec<Run> {
        let mut totals = vec![weights.to_vec()];
        while totals[0].len() > LANES {
            let mut above: Vec<f32> = totals[0].chunks(LANES).map(|node| node.iter().sum()).collect();
            above.resize(above.len().next_multiple_of(LANES), 0.0);
            totals.insert(0, above);
        }
        let pad = n.next_multiple_of(Stream::RUN);
        let mut words = vec![0; totals.len() * pad];
        stream.fill(0, &mut words);
        let mut nodes = vec![0; n];
        for (level, totals) in totals.iter().enumerate() {
            for (s, node) in nodes.iter_mut().enumerate() {
                let mut sums: Vec<f32> = totals[*node * LANES..][..LANES].to_vec();
                (1..LANES).for_each(|k| sums[k] += sums[k - 1]);
                let u = (words[level * pad + s] >> 8) as f32 / (1u32 << 24) as f32;
                let target = (u * sums[LANES - 1]).min(sums[LANES - 1].next_down());
                *node = *node * LANES + sums.iter().filter(|&&sum| target >= sum).count().min(LANES - 1);
            }
            // Draws are numbered in the order of the nodes.
            nodes.sort_unstable();
        }
        let mut runs: Vec<Run> = Vec::new();
        for slot in nodes {
            match runs.last_mut() {
                Some(run) if run.slot == slot as u32 => run.count += 1,
                _ => runs.push(Run { slot: slot as u32, count: 1, log_base: 0.0 }),
            }
        }
        runs
    }

    #[test]
    fn splits_equal_the_draws_one_by_one() {
        // One to four levels, full and ragged.
        for (k, n_weights) in [16, 32, 256, 272, 4096, 5008, 65_536].into_iter().enumerate() {
            for n in [1, 2, 11, 15, 16, 17, 63, 64, 1000] {
                for scale in [1.0, 1e-38, 1e25] {
                    let weights = weights(n_weights, n as u64, scale);
                    let expected = oracle(&weights, n, &stream(k as u32));
                    assert_eq!(draws(&weights, n, k as u32), expected, "{n} draws from {n_weights}");
                }
            }
        }
    }

    #[test]
    fn every_level_counts_the_same() {
        let weights = weights(256, 1, 1.0);
        assert!(weights.chunks(LANES).all(|node| node.iter().any(|&weight| weight > 0.0)));
        let mut tree = SplitTree::default();
        tree.build(&weights);
        let (mut words, mut targets) = (vec![0; 1000], vec![0.0; 1000]);
        stream(0).fill(0, &mut words);
        for node in tree.sums.as_chunks::<LANES>().0 {
            for n in [1, 7, 16, 500] {
                let mut expected = [0; LANES];
                for word in &words[..n] {
                    let target = (word >> 8) as f32 / (1u32 << 24) as f32 * node[LANES - 1];
                    let target = target.min(node[LANES - 1].next_down());
                    expected[node.iter().filter(|&&sum| target >= sum).count()] += 1;
                }
                for level in simd::levels() {
                    let counts = dispatch!(level, simd => {
                        children_counts(simd, node, &words, n, &mut targets, ones(simd)).as_slice().to_vec()
                    });
                    assert_eq!(counts, expected, "{level:?}");
                }
            }
        }
    }

    #[test]
    fn weights_of_zero_are_never_drawn() {
        for seed in 0..200 {
            let weights = weights(64, seed, 1.0);
            let runs = draws(&weights, 300, seed as u32);
            assert!(runs.iter().all(|run| run.count > 0 && weights[run.slot as usize] > 0.0));
            assert_eq!(runs.iter().map(|run| run.count).sum::<u32>(), 300);
        }
        let mut single = vec![0.0; 4096];
        single[4095] = f32::MIN_POSITIVE;
        assert_eq!(draws(&single, 9, 0), [Run { slot: 4095, count: 9, log_base: 0.0 }]);
    }

    #[test]
    fn frequencies_follow_the_weights() {
        let weights: Vec<f32> = (0..512).map(|i| (i % 7) as f32 * (i % 5) as f32).collect();
        let total: f32 = weights.iter().sum();
        let (n, calls) = (1000, 400);
        let mut counts = vec![0.0; weights.len()];
        for call in 0..calls {
            draws(&weights, n, call).iter().for_each(|run| counts[run.slot as usize] += f64::from(run.count));
        }
        let (mut statistic, mut bins) = (0.0, 0.0);
        for (&weight, count) in weights.iter().zip(counts) {
            let expected = f64::from(weight / total) * n as f64 * f64::from(calls);
            if expected > 0.0 {
                statistic += (count - expected).powi(2) / expected;
                bins += 1.0;
            }
        }
        // A chi-square of k degrees has mean k and variance 2k; five standard deviations.
        assert!((statistic - bins).abs() < 5.0 * (2.0f64 * bins).sqrt(), "{statistic} with {bins} bins");
    }

    #[test]
    fn without_a_sum_all_draws_fall_on_the_first() {
        for weight in [0.0, f32::NAN, f32::INFINITY] {
            assert_eq!(draws(&[weight; 32], 5, 0), [Run { slot: 0, count: 5, log_base: 0.0 }]);
            assert_eq!(draws(&[weight; 32], 0, 0), []);
        }
    }
}
