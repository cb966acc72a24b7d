//! [`Settling`]: the second half of draws, laid out draw by draw.

use fearless_simd::{dispatch, f32x16, prelude::*, u32x16};

use super::alias::place_and_coin;
use super::cells::Span;
use super::systematic::RunSlice;
use crate::math::matrix::LANES;
use crate::math::simd;

/// Buffers of [`super::Proposal::settle`]; one per thread, reused.
#[derive(Debug, Default)]
pub struct Settling {
    /// For each draw a random word at first, then a coin; followed by what the last vector left over, as all lists.
    pub(super) words: Vec<u32>,
    /// The first place of its span at first, then one of its places.
    pub(super) places: Vec<u32>,
    /// The number of items there.
    lens: Vec<u32>,
    /// What goes with its run.
    pub(super) bases: Vec<f32>,
}

impl Settling {
    /// Lays out the `n` draws of `runs`, which fell on `spans`, and chooses one of the places of its span for each,
    /// all alike. The coin comes from the same word or, where they are asked to be `exact`, from a second one.
    pub(super) fn toss(&mut self, runs: RunSlice<'_>, spans: &[Span], n: usize, exact: bool) {
        let Self { words, places, lens, bases } = self;
        if words.len() < n + LANES {
            words.resize(n + LANES, 0);
            places.resize(n + LANES, 0);
            lens.resize(n + LANES, 0);
            bases.resize(n + LANES, 0.0);
        }
        dispatch!(simd::level(), simd => {
            lay_out(simd, runs, spans, words, places, lens, bases);
            // A loop of its own: it is made of vectors, which one with the look-ups that follow could not be.
            let draws = words[..n].iter_mut().zip(&mut places[..n]).zip(&lens[..n]);
            if exact {
                for ((word, place), &len) in draws {
                    (*place, *word) = (place_and_coin(*word, *place, len).0, runs.choices.second(*word));
                }
            } else {
                for ((word, place), &len) in draws {
                    (*place, *word) = place_and_coin(*word, *place, len);
                }
            }
        });
    }
}

/// Whole vectors are written for each run, and the next run starts where its draws end: so short runs, whose length
/// is a surprise each time, take no branch.
#[inline(always)]
fn lay_out<S: Simd>(
    simd: S,
    runs: RunSlice<'_>,
    spans: &[Span],
    words: &mut [u32],
    places: &mut [u32],
    lens: &mut [u32],
    bases: &mut [f32],
) {
    let lanes = u32x16::from_fn(simd, |lane| lane as u32);
    let mut first = 0;
    for ((&slot, &count), &log_base) in runs.slots.iter().zip(runs.counts).zip(runs.log_bases) {
        let span = spans[slot as usize];
        let end = first + count as usize;
        let (place, len) = (u32x16::splat(simd, span.start), u32x16::splat(simd, span.len));
        let base = f32x16::splat(simd, log_base);
        let (word, step) = runs.choices.comb(slot, count);
        let mut word = lanes * step + word;
        loop {
            word.store_slice(&mut words[first..first + LANES]);
            place.store_slice(&mut places[first..first + LANES]);
            len.store_slice(&mut lens[first..first + LANES]);
            base.store_slice(&mut bases[first..first + LANES]);
            first += LANES;
            if first >= end {
                break;
            }
            word += step.wrapping_mul(LANES as u32);
        }
        first = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{Purpose, Stream};
    use crate::proposal::{Runs, Systematic};

    /// The places of `n` draws from spans of `len` places each.
    fn places(len: u32, weights: &[f32], n: usize, entity: u32, exact: bool) -> (Vec<(u32, u32)>, Settling) {
        let spans: Vec<Span> = (0..16).map(|i| Span { start: i * len, len }).collect();
        let mut runs = Runs::default();
        let stream = Stream::new(5, Purpose::Negatives, 0, entity);
        Systematic::default().draw(weights, None, n, &stream, &mut runs);
        let mut settling = Settling::default();
        // The second time, with values left over.
        for _ in 0..2 {
            settling.toss(runs.slice(0..runs.len()), &spans, n, exact);
        }
        (runs.iter().collect(), settling)
    }

    #[test]
    fn the_draws_of_a_run_are_spread_evenly_over_its_span() {
        let mut weights = [1.0; 16];
        weights[3] = 40.0;
        for (len, n, exact) in [(1, 3, false), (100, 7, true), (7, 500, false), (100, 500, false)] {
            let (runs, settling) = places(len, &weights, n, 0, exact);
            let mut chosen = settling.places[..n].iter();
            for (slot, count) in runs {
                let mut counts = vec![0; len as usize];
                for place in chosen.by_ref().take(count as usize) {
                    counts[(place - slot * len) as usize] += 1;
                }
                // A comb has floor or ceil of the teeth that a place asks for, or one more where it wraps around.
                let least = count / len;
                assert!(counts.iter().all(|&c| (least..=least + 2).contains(&c)), "{counts:?} of {count}");
            }
            assert_eq!(chosen.next(), None);
        }
    }

    #[test]
    fn each_draw_is_as_likely_on_every_place_with_every_coin() {
        // Frequencies of (place, half of the coin) of the third draw over many queries.
        for exact in [false, true] {
            let (len, calls) = (5, 20_000);
            let mut counts = vec![0.0; 16 * 2 * len as usize];
            for entity in 0..calls {
                let (_, settling) = places(len, &[1.0; 16], 6, entity, exact);
                counts[settling.places[2] as usize * 2 + (settling.words[2] >> 31) as usize] += 1.0;
            }
            // The third of six draws falls on the sixth to the ninth of sixteen weights.
            let within: Vec<f64> = (0..2 * len as usize)
                .map(|at| (0..16).map(|slot| counts[slot * 2 * len as usize + at]).sum())
                .collect();
            let expected = f64::from(calls) / f64::from(2 * len);
            for count in within {
                let deviation = (expected * (1.0 - 0.5 / f64::from(len))).sqrt();
                assert!((count - expected).abs() < 5.0 * deviation, "{count} of {expected}");
            }
        }
    }

    #[test]
    fn each_draw_has_what_its_run_says() {
        let spans: Vec<Span> = (0..9).map(|i| Span { start: 100 * i, len: i + 1 }).collect();
        let counts = [1, 3, 16, 17, 1, 70, 2, 15];
        let slots: Vec<u32> = (0..8).map(|k| 8 - k).collect();
        let log_bases: Vec<f32> = (0..8).map(|k| -(k as f32)).collect();
        let runs =
            RunSlice { slots: &slots, counts: &counts, log_bases: &log_bases, choices: Default::default() };
        let n = counts.iter().sum::<u32>() as usize;
        let mut settling = Settling::default();
        settling.toss(runs, &spans, n, false);
        let expected = (0..8).flat_map(|k| vec![k; counts[k] as usize]);
        for (t, k) in expected.enumerate() {
            let span = spans[slots[k] as usize];
            assert!((span.start..span.start + span.len).contains(&settling.places[t]));
            assert_eq!(settling.bases[t], log_bases[k]);
        }
    }
}
