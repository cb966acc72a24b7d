//! Many draws from a list of weights at once, as counts: systematic sampling (Madow, 1949).
//!
//! The weights lie end to end on a line as long as the number of draws, and a comb with one tooth in each unit of it,
//! moved by one random number, decides: each weight is drawn as often as teeth fall on it. So every draw by itself
//! follows the weights, a weight that n draws hit x times on average is hit floor(x) or ceil(x) times, and sums over
//! the draws vary less than with independent ones. Neither a random number nor a search is spent on a draw: the cost
//! is a few operations a weight.

use bytemuck::{Pod, Zeroable};
use fearless_simd::{Level, dispatch, f32x16, i32x16, prelude::*, u32x8, u32x16};

use crate::math::matrix::LANES;
use crate::math::random::{mix, mix_in};
use crate::math::{Stream, simd};

/// Draws that fell on the same weight.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Run {
    /// The position of the weight; for MIDX, the slot of a cell.
    pub(super) slot: u32,
    /// How many draws, at least one.
    pub(super) count: u32,
    /// What goes with the weight; for MIDX, ln Q of an item of weight one in the slot.
    pub(super) log_base: f32,
    /// The random word of the first draw: see [`Choices`].
    pub(super) word: u32,
}

/// Bytes of a run.
pub(crate) const RUN_BYTES: u64 = size_of::<Run>() as u64;

/// The random words that choose among the outcomes of a weight, once it was drawn: again a comb. The draws of a run
/// are spread evenly over its outcomes, moved by a word that the slot has of two random keys of the query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Choices([u32; 2]);

/// The golden ratio of all words: its multiples lie far from each other.
const WEYL: u32 = 0x9E37_79B9;

impl Choices {
    /// The word of the first draw of a run in `slot`. Each draw by itself has a word as random as the key.
    pub(super) fn word(self, slot: u32) -> u32 {
        mix(self.0[0].wrapping_add(slot.wrapping_mul(WEYL)))
    }

    /// As [`Choices::word`], for sixteen slots.
    #[inline(always)]
    fn words_in<S: Simd>(self, slots: u32x16<S>) -> u32x16<S> {
        mix_in(slots * WEYL + self.0[0])
    }

    /// A second word of a draw, which says nothing about its `word`.
    #[cfg(test)]
    pub(super) fn second(self, word: u32) -> u32 {
        mix(word ^ self.0[1])
    }

    /// A second word of each of eight draws, which says nothing about the first.
    #[inline(always)]
    pub(super) fn second_in<S: Simd>(self, simd: S, words: u32x8<S>) -> u32x8<S> {
        mix_in(words ^ u32x8::splat(simd, self.0[1]))
    }
}

impl Run {
    /// How far the words of its draws are apart.
    #[inline(always)]
    pub(super) fn step(&self) -> u32 {
        u32::MAX / self.count
    }
}

/// A list of runs that vectors of them are written to, the last beyond its end.
#[derive(Debug, Clone, Default)]
pub(super) struct Runs {
    /// The first `len` are the list.
    all: Vec<Run>,
    len: usize,
}

impl std::ops::Deref for Runs {
    type Target = [Run];

    fn deref(&self) -> &[Run] {
        &self.all[..self.len]
    }
}

impl Runs {
    /// Forgets them.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Room for `n` after the end.
    fn room(&mut self, n: usize) -> &mut [Run] {
        let wanted = self.len + n;
        if self.all.len() < wanted {
            self.all.resize(wanted.next_power_of_two(), Run::zeroed());
        }
        &mut self.all[self.len..wanted]
    }

    /// Fills `places` with the slots, each as often as it was drawn, and `correction` with the `log_q` of each; none is left.
    pub(super) fn unroll(
        &mut self,
        log_q: impl Fn(u32) -> f32,
        places: &mut Vec<u32>,
        correction: &mut Vec<f32>,
    ) {
        places.clear();
        correction.clear();
        for &Run { slot, count, .. } in self.iter() {
            let n = places.len() + count as usize;
            places.resize(n, slot);
            correction.resize(n, log_q(slot));
        }
        self.clear();
    }
}

/// Makes such draws; its memory is reused.
#[derive(Debug, Clone, Default)]
pub(super) struct Systematic {
    /// For each sixteen weights the sums of the first 1 to 16 of them.
    sums: Vec<f32>,
    /// How many of the last draws fell on each weight and those before it.
    drawn: Vec<u32>,
    /// Each sixteen weights, and one that begins where all end.
    nodes: Vec<Node>,
}

/// Sixteen weights, after draws.
#[derive(Debug, Clone, Copy, Default)]
struct Node {
    /// Runs before these.
    runs: u32,
    /// Which of the weights were drawn, as bits.
    drawn_from: u32,
}

impl Systematic {
    /// Adds `n` draws by `weights`, none negative, to `runs`, in the order of the weights; a weight of zero gets none.
    /// Without a sum that is positive and a number, all fall on the first. The first word of `stream` moves the comb, the
    /// next two are the keys of the [`Choices`]; `log_bases` go with the weights, or zeros where there are none.
    ///
    /// # Panics
    /// If there are no weights, or their number is not a multiple of [`LANES`].
    pub(super) fn draw(
        &mut self,
        weights: &[f32],
        log_bases: Option<&[f32]>,
        n: usize,
        stream: &Stream,
        runs: &mut Runs,
    ) -> Choices {
        assert!(!weights.is_empty() && weights.len().is_multiple_of(LANES), "whole vectors");
        let mut words = [0; 3];
        stream.fill(0, &mut words);
        let [word, keys @ ..] = words;
        let choices = Choices(keys);
        let offset = f64::from(word) / 4_294_967_296.0;
        self.draw_at(simd::level(), weights, log_bases, n, (offset, choices), runs);
        choices
    }

    /// As [`Systematic::draw`], with a comb that is moved by `offset`.
    fn draw_at(
        &mut self,
        level: Level,
        weights: &[f32],
        log_bases: Option<&[f32]>,
        n: usize,
        comb: (f64, Choices),
        runs: &mut Runs,
    ) {
        self.sums.resize(weights.len(), 0.0);
        self.drawn.resize(weights.len(), 0);
        self.nodes.resize(weights.len() / LANES + 1, Node::default());
        let room = runs.room(n.min(weights.len()) + LANES);
        runs.len += dispatch!(level, simd => self.draw_in(simd, weights, log_bases, n as u32, comb, room));
    }

    /// How many of the last draws fell on weights before `slot`, which is not the first, and how many runs they are.
    #[inline(always)]
    pub(super) fn before(&self, slot: u32) -> (u32, u32) {
        let Node { runs, drawn_from } = self.nodes[slot as usize / LANES];
        let here = drawn_from & ((1 << (slot as usize % LANES)) - 1);
        (self.drawn[slot as usize - 1], runs + here.count_ones())
    }

    /// The body of [`Systematic::draw_at`]; returns the number of runs.
    #[inline(always)]
    fn draw_in<S: Simd>(
        &mut self,
        simd: S,
        weights: &[f32],
        log_bases: Option<&[f32]>,
        n: u32,
        (offset, choices): (f64, Choices),
        runs: &mut [Run],
    ) -> usize {
        let Self { sums, drawn: drawn_until, nodes } = self;
        let total = add_up(weights, sums);
        let log_bases = log_bases.map(|bases| bases.as_chunks::<LANES>().0);
        if !(total > 0.0 && total.is_finite()) || n == 0 {
            let log_base = log_bases.map_or(0.0, |bases| bases[0][0]);
            runs[0] = Run { slot: 0, count: n, log_base, word: choices.word(0) };
            let n_runs = n.min(1);
            drawn_until.fill(n);
            nodes.fill(Node { runs: n_runs, drawn_from: 0 });
            nodes[0] = Node { runs: 0, drawn_from: n_runs };
            return n_runs as usize;
        }
        let scale = f64::from(n) / total;
        // Of weights so small that this overflows, the last of sixteen takes all their draws.
        let scale_in_node = scale.min(f64::from(f32::MAX)) as f32;
        let (mut below, mut drawn, mut n_runs) = (0.0, 0, 0);
        let lanes = u32x16::from_fn(simd, |lane| lane as u32);
        let fields: &mut [u32] = bytemuck::cast_slice_mut(runs);
        // Where the comb stands at the start of sixteen weights, in teeth.
        let mut start = offset;
        let of_nodes = sums.as_chunks::<LANES>().0.iter().zip(drawn_until.as_chunks_mut::<LANES>().0);
        for (number, ((sums, until), node)) in of_nodes.zip(&mut *nodes).enumerate() {
            // Below one: rounded up to it, a tooth would fall on a first weight of zero.
            let (first, fraction) = (drawn, ((start - f64::from(drawn)) as f32).min(1f32.next_down()));
            let whole = sums[LANES - 1];
            below += f64::from(whole);
            start = below * scale + offset;
            // All teeth lie below the sum of all weights, whatever rounding says.
            drawn = if below < total { (start as u32).min(n) } else { n };
            // Most nodes where weights are many more than draws, none where they are few.
            if drawn == first {
                u32x16::splat(simd, first).store_slice(until);
                *node = Node { runs: n_runs as u32, drawn_from: 0 };
                continue;
            }
            // How many teeth lie below the end of each weight; in the node's own small numbers, where f32 is exact enough.
            let ends = f32x16::load_array_ref(simd, sums);
            let most = f32x16::splat(simd, (drawn - first) as f32);
            let last = ends.simd_ge(f32x16::splat(simd, whole));
            let teeth = last.select(most, (ends * scale_in_node + fraction).min(most));
            let teeth = teeth.to_int::<i32x16<S>>();
            (teeth.bitcast::<u32x16<S>>() + first).store_slice(until);
            let counts = teeth - teeth.shift_elements_right::<1>(0);
            let drawn_from = counts.simd_gt(i32x16::splat(simd, 0));
            let slots = (lanes + (number * LANES) as u32).compress(drawn_from);
            let counts = counts.bitcast::<u32x16<S>>().compress(drawn_from);
            let words = choices.words_in(slots);
            let bases = match log_bases {
                Some(bases) => f32x16::load_array_ref(simd, &bases[number]).compress(drawn_from),
                None => f32x16::splat(simd, 0.0),
            };
            // From four times sixteen fields to sixteen runs.
            let bases: u32x16<S> = bases.bitcast();
            let (even, odd) = (slots.zip_low(bases), counts.zip_low(words));
            let to = &mut fields[n_runs * RUN_FIELDS..][..RUN_FIELDS * LANES];
            even.zip_low(odd).store_slice(&mut to[..LANES]);
            even.zip_high(odd).store_slice(&mut to[LANES..][..LANES]);
            let (even, odd) = (slots.zip_high(bases), counts.zip_high(words));
            even.zip_low(odd).store_slice(&mut to[2 * LANES..][..LANES]);
            even.zip_high(odd).store_slice(&mut to[3 * LANES..]);
            let drawn_from = drawn_from.to_bitmask() as u32;
            *node = Node { runs: n_runs as u32, drawn_from };
            n_runs += drawn_from.count_ones() as usize;
        }
        nodes[sums.len() / LANES] = Node { runs: n_runs as u32, drawn_from: 0 };
        n_runs
    }
}

/// Words of a run.
const RUN_FIELDS: usize = size_of::<Run>() / size_of::<u32>();

/// The sums of each sixteen weights, added from left to right: they never fall, and a weight of zero leaves the sum
/// exactly as it was. Returns the sum of all.
#[inline(always)]
fn add_up(weights: &[f32], sums: &mut [f32]) -> f64 {
    let mut total = 0.0;
    for (weights, sums) in weights.as_chunks::<LANES>().0.iter().zip(sums.as_chunks_mut::<LANES>().0) {
        let mut sum = 0.0;
        for (weight, out) in weights.iter().zip(sums) {
            sum += weight;
            *out = sum;
        }
        total += f64::from(sum);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::Purpose;

    /// Slots and counts.
    fn pairs(runs: &Runs) -> Vec<(u32, u32)> {
        runs.iter().map(|run| (run.slot, run.count)).collect()
    }

    fn draws(weights: &[f32], n: usize, entity: u32) -> Vec<(u32, u32)> {
        let mut runs = Runs::default();
        let stream = Stream::new(3, Purpose::Negatives, 0, entity);
        let bases: Vec<f32> = (0..weights.len()).map(|slot| slot as f32).collect();
        let mut systematic = Systematic::default();
        let choices = systematic.draw(weights, Some(&bases), n, &stream, &mut runs);
        assert!(runs.iter().all(|run| run.slot as f32 == run.log_base));
        assert!(runs.iter().all(|run| run.word == choices.word(run.slot)));
        let mut before = (0, 0);
        for slot in 1..=weights.len() as u32 {
            if let Some(run) = runs.get(before.1 as usize).filter(|run| run.slot == slot - 1) {
                before = (before.0 + run.count, before.1 + 1);
            }
            assert_eq!(systematic.before(slot), before, "before {slot} of {}", weights.len());
        }
        pairs(&runs)
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

    #[test]
    fn runs_equal_the_teeth_counted_one_by_one() {
        for n_weights in [16, 32, 256, 272, 5008, 65_536] {
            for n in [1, 2, 11, 16, 17, 64, 1000] {
                for scale in [1.0, 1e-30, 1e25] {
                    let weights = weights(n_weights, n as u64, scale);
                    let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
                    let mut word = [0];
                    Stream::new(3, Purpose::Negatives, 0, 7).fill(0, &mut word);
                    let offset = f64::from(word[0]) / 2f64.powi(32);
                    // Tooth t stands at t + 1 - offset.
                    let (mut expected, mut slot, mut end) = (vec![0; n_weights], 0, f64::from(weights[0]));
                    for tooth in 0..n {
                        let place = (tooth as f64 + 1.0 - offset) * total / n as f64;
                        while end < place && slot + 1 < n_weights {
                            slot += 1;
                            end += f64::from(weights[slot]);
                        }
                        expected[slot] += 1;
                    }
                    let mut counts = vec![0; n_weights];
                    draws(&weights, n, 7).iter().for_each(|&(slot, count)| counts[slot as usize] += count);
                    // Sums of sixteen are rounded, so that a tooth next to an edge may fall on the other side.
                    let moved: u32 =
                        counts.iter().zip(&expected).map(|(a, b): (&u32, &u32)| a.abs_diff(*b)).sum();
                    assert!(moved <= 2, "{n} draws from {n_weights}: {moved} moved");
                }
            }
        }
    }

    #[test]
    fn every_level_draws_the_same() {
        let weights = weights(272, 1, 1.0);
        for n in [1, 7, 16, 1000] {
            let expected = draws(&weights, n, 0);
            let mut words = [0; 3];
            Stream::new(3, Purpose::Negatives, 0, 0).fill(0, &mut words);
            let comb = (f64::from(words[0]) / 4_294_967_296.0, Choices([words[1], words[2]]));
            let bases: Vec<f32> = (0..weights.len()).map(|slot| -(slot as f32)).collect();
            for level in simd::levels() {
                let (mut systematic, mut runs) = (Systematic::default(), Runs::default());
                systematic.draw_at(level, &weights, Some(&bases), n, comb, &mut runs);
                assert_eq!(pairs(&runs), expected, "{level:?}");
                let (mut drawn, mut before) = (0, 0);
                for (number, run) in runs.iter().enumerate() {
                    assert_eq!(
                        (run.log_base, run.word),
                        (-(run.slot as f32), comb.1.word(run.slot)),
                        "{level:?}"
                    );
                    // Nothing falls between one run and the next.
                    (before..run.slot).for_each(|slot| {
                        assert_eq!(systematic.before(slot + 1), (drawn, number as u32), "{level:?}");
                    });
                    (drawn, before) = (drawn + run.count, run.slot + 1);
                    assert_eq!(systematic.before(before), (drawn, number as u32 + 1), "{level:?}");
                }
                assert_eq!(systematic.before(272), (n as u32, runs.len() as u32), "{level:?}");
            }
        }
    }

    #[test]
    fn weights_of_zero_are_never_drawn() {
        for seed in 0..200 {
            let weights = weights(64, seed, 1.0);
            let runs = draws(&weights, 300, seed as u32);
            assert!(runs.iter().all(|&(slot, count)| count > 0 && weights[slot as usize] > 0.0));
            assert_eq!(runs.iter().map(|run| run.1).sum::<u32>(), 300);
        }
        // Also where weights are so small that their scale overflows.
        let tiny = weights(64, 1, 1e-38);
        let runs = draws(&tiny, 300, 0);
        assert!(runs.iter().all(|&(slot, count)| count > 0 && tiny[slot as usize] > 0.0));
        assert_eq!(runs.iter().map(|run| run.1).sum::<u32>(), 300);
        // A comb that stands as close to the next tooth as a word can say, before weights of zero.
        let offset = f64::from(u32::MAX) / 4_294_967_296.0;
        for (n, first) in [(1, 1), (2, 16), (300, 3), (300, 17)] {
            let weights: Vec<f32> =
                (0..64).map(|i| if i < first || i % 16 == 0 { 0.0 } else { 1.0 }).collect();
            let (mut runs, comb) = (Runs::default(), (offset, Choices::default()));
            Systematic::default().draw_at(simd::level(), &weights, None, n, comb, &mut runs);
            assert!(runs.iter().all(|run| weights[run.slot as usize] > 0.0), "{n} draws after {first} zeros");
            assert_eq!(runs.iter().map(|run| run.count).sum::<u32>(), n as u32);
        }
        let mut single = vec![0.0; 4096];
        single[4095] = f32::MIN_POSITIVE;
        assert_eq!(draws(&single, 9, 0), [(4095, 9)]);
    }

    #[test]
    fn each_weight_is_drawn_as_often_as_it_asks_for_or_once_more() {
        let weights: Vec<f32> = (0..512).map(|i| (i % 7) as f32 * (i % 5) as f32).collect();
        let total: f32 = weights.iter().sum();
        let (n, calls) = (1000, 4000);
        let mut counts = vec![0.0; weights.len()];
        for call in 0..calls {
            for (slot, count) in draws(&weights, n, call) {
                let share = f64::from(weights[slot as usize] / total) * n as f64;
                assert!((f64::from(count) - share).abs() < 1.0 + 1e-3, "{count} of {share}");
                counts[slot as usize] += f64::from(count);
            }
        }
        // A count is floor(x) or floor(x) + 1, so its variance is p (1 - p), p the fraction of x; five deviations.
        for (&weight, count) in weights.iter().zip(counts) {
            let share = f64::from(weight / total) * n as f64;
            let fraction = share.fract();
            let deviation = (f64::from(calls) * fraction * (1.0 - fraction)).sqrt();
            assert!(
                (count - share * f64::from(calls)).abs() <= 5.0 * deviation + 1e-2 * share,
                "{count} of {share}"
            );
        }
    }

    #[test]
    fn without_a_sum_all_draws_fall_on_the_first() {
        for weight in [0.0, f32::NAN, f32::INFINITY] {
            assert_eq!(draws(&[weight; 32], 5, 0), [(0, 5)]);
            assert_eq!(draws(&[weight; 32], 0, 0), []);
        }
    }
}
