//! The second half of draws: which item of its span each run fell on.
//!
//! A run has few draws, but whole vectors of them are worked out: each run writes over what the one before wrote too
//! much. A loop that ends after each run's count would be guessed wrong at most of its ends.

use fearless_simd::{dispatch, f32x8, f32x16, prelude::*, u32x8, u32x16};

use super::alias::place_and_coin_in;
use super::cells::Span;
use super::members::Members;
use super::systematic::RunSlice;
use crate::math::matrix::LANES;
use crate::math::simd::level;

/// Where the draws of one query in one partition go. Both lists have room for a line more than the draws fill: it may
/// be written over, and so may what is left of their last line.
#[derive(Debug)]
pub struct Settling<'a> {
    /// The place of each draw; any of them up to the end of the last line.
    pub places: &'a mut [u32],
    /// What the loss subtracts from the logit of each; infinity up to the end of the last line.
    pub correction: &'a mut [f32],
    /// A buffer.
    pub coins: &'a mut Vec<u32>,
}

/// Draws of a run that are worked out together: most runs have fewer, and longer vectors would be written across two
/// cache lines most times.
const AT_ONCE: usize = 8;
/// The number of each of them.
const NUMBERS: [u32; AT_ONCE] = [0, 1, 2, 3, 4, 5, 6, 7];

/// Settles the `n` draws of `runs`, which fell on `spans`. Each gets one of the places of its span: all alike, or as
/// `members` weigh them. `log_base` stands for those of the runs, where there is one.
pub(super) fn settle(
    runs: RunSlice<'_>,
    spans: &[Span],
    members: Option<&Members>,
    log_base: Option<f32>,
    n: usize,
    out: Settling<'_>,
) {
    #[inline(always)]
    fn body<S: Simd>(
        simd: S,
        runs: RunSlice<'_>,
        spans: &[Span],
        members: Option<&Members>,
        log_base: Option<f32>,
        n: usize,
        mut out: Settling<'_>,
    ) {
        let exact = members.is_some_and(|members| !members.one_word());
        fall(simd, runs, spans, exact, log_base, n, &mut out);
        fill_up(simd, n, out.places, out.correction);
        if let Some(members) = members {
            let lines = n.next_multiple_of(LANES);
            let (places, correction) = (&mut out.places[..lines], &mut out.correction[..lines]);
            members.choose(simd, &out.coins[..lines], places, correction);
        }
    }
    dispatch!(level(), simd => body(simd, runs, spans, members, log_base, n, out));
}

/// Gives each draw one of the places of its span, all alike, and a coin: the rest of the word that chose the place or,
/// where they are asked to be `exact`, a second one.
#[inline(always)]
fn fall<S: Simd>(
    simd: S,
    runs: RunSlice<'_>,
    spans: &[Span],
    exact: bool,
    log_base: Option<f32>,
    n: usize,
    out: &mut Settling<'_>,
) {
    let Settling { places, correction, coins } = out;
    let room = n.next_multiple_of(LANES) + LANES;
    if coins.len() < room {
        coins.resize(room, 0);
    }
    let (places, correction, coins) = (&mut places[..room], &mut correction[..room], &mut coins[..room]);
    let numbers = u32x8::load_array_ref(simd, &NUMBERS);
    let mut at = 0;
    for run in runs.runs {
        let Span { start, len } = spans[run.slot as usize];
        let step = run.step();
        let mut words = numbers * step + run.word;
        let base = f32x8::splat(simd, log_base.unwrap_or(run.log_base));
        let mut left = run.count as usize;
        loop {
            let (place, mut coin) = place_and_coin_in(simd, words, start, len);
            if exact {
                coin = runs.choices.second_in(simd, words);
            }
            place.store_slice(&mut places[at..][..AT_ONCE]);
            coin.store_slice(&mut coins[at..][..AT_ONCE]);
            base.store_slice(&mut correction[at..][..AT_ONCE]);
            if left <= AT_ONCE {
                break;
            }
            (at, left) = (at + AT_ONCE, left - AT_ONCE);
            words += step.wrapping_mul(AT_ONCE as u32);
        }
        at += left;
    }
    debug_assert_eq!(at, n, "as many draws as the runs count");
}

/// Fills up the last line of `n` draws with what weighs nothing, and some more that is not looked at.
#[inline(always)]
pub(super) fn fill_up<S: Simd>(simd: S, n: usize, places: &mut [u32], correction: &mut [f32]) {
    if n > 0 {
        u32x16::splat(simd, places[n - 1]).store_slice(&mut places[n..][..LANES]);
        f32x16::splat(simd, f32::INFINITY).store_slice(&mut correction[n..][..LANES]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::simd::levels;
    use crate::math::{Purpose, Stream};
    use crate::proposal::alias::place_and_coin;
    use crate::proposal::systematic::Run;
    use crate::proposal::{Runs, Systematic};

    /// Place, coin and base of each draw of `runs`, one after the other.
    fn one_by_one(runs: RunSlice<'_>, spans: &[Span], exact: bool) -> Vec<(u32, u32, f32)> {
        let mut draws = Vec::new();
        for run in runs.runs {
            let mut word = runs.choices.word(run.slot);
            let Span { start, len } = spans[run.slot as usize];
            for _ in 0..run.count {
                let (place, coin) = place_and_coin(word, start, len);
                draws.push((place, if exact { runs.choices.second(word) } else { coin }, run.log_base));
                word = word.wrapping_add(run.step());
            }
        }
        draws
    }

    /// As [`one_by_one`], by vectors, in lists that are filled with anything before.
    fn by_vectors(
        level: fearless_simd::Level,
        runs: RunSlice<'_>,
        spans: &[Span],
        exact: bool,
        n: usize,
    ) -> Vec<(u32, u32, f32)> {
        let room = n.next_multiple_of(LANES) + LANES;
        let (mut places, mut correction, mut coins) = (vec![7; room], vec![7.0; room], vec![7; 3]);
        let mut out = Settling { places: &mut places, correction: &mut correction, coins: &mut coins };
        dispatch!(level, simd => fall(simd, runs, spans, exact, None, n, &mut out));
        (0..n).map(|i| (places[i], coins[i], correction[i])).collect()
    }

    /// The runs of `n` draws from sixteen spans of `len` places each, and place, coin and base of each draw.
    fn draws(
        len: u32,
        weights: &[f32],
        n: usize,
        entity: u32,
        exact: bool,
    ) -> (Vec<Run>, Vec<(u32, u32, f32)>) {
        let spans: Vec<Span> = (0..16).map(|i| Span { start: i * len, len }).collect();
        let mut runs = Runs::default();
        let stream = Stream::new(5, Purpose::Negatives, 0, entity);
        Systematic::default().draw(weights, None, n, &stream, &mut runs);
        let all: Vec<Run> = runs.iter().collect();
        let slice = RunSlice { runs: &all, choices: runs.choices() };
        let drawn = by_vectors(level(), slice, &spans, exact, n);
        (all, drawn)
    }

    #[test]
    fn vectors_of_draws_equal_draws_one_by_one() {
        let mut stream = Stream::new(2, Purpose::Generate, 0, 0);
        for round in 0..40 {
            let n_spans = 1 + stream.below(30) as usize;
            let mut start = 0;
            let spans: Vec<Span> = (0..n_spans)
                .map(|_| {
                    // Short ones, up to the most that one word is good for, and far beyond.
                    let most = [1 << 16, 200, 100_000_000, 200][round % 4];
                    let len = 1 + stream.below(most) as u32;
                    start += len;
                    Span { start: start - len, len }
                })
                .collect();
            let weights: Vec<f32> =
                (0..32).map(|i| if i < n_spans { stream.normal().exp() as f32 } else { 0.0 }).collect();
            let (n, mut runs) = (1 + stream.below(300) as usize, Runs::default());
            let bases: Vec<f32> = (0..32).map(|i| -(i as f32)).collect();
            Systematic::default().draw(&weights, Some(&bases), n, &stream, &mut runs);
            let all: Vec<Run> = runs.iter().collect();
            let slice = RunSlice { runs: &all, choices: runs.choices() };
            for exact in [false, true] {
                let expected = one_by_one(slice, &spans, exact);
                for level in levels() {
                    assert_eq!(by_vectors(level, slice, &spans, exact, n), expected, "{level:?}");
                }
            }
        }
    }

    #[test]
    fn lines_are_filled_up_with_what_weighs_nothing() {
        let spans = [Span { start: 40, len: 60 }];
        let log_weights: Vec<f32> = (0..100).map(|i| (i % 3) as f32).collect();
        let members = Members::new(&log_weights, &[0, 40, 100]).0;
        let (mut places, mut correction, mut coins) = (vec![99; 64], vec![7.0; 64], Vec::new());
        for n in [1, 15, 16, 17, 32, 33] {
            let runs = [Run { slot: 0, count: n as u32, log_base: -1.0, word: 77 }];
            let runs = RunSlice { runs: &runs, choices: Default::default() };
            for members in [None, Some(&members)] {
                let out = Settling { places: &mut places, correction: &mut correction, coins: &mut coins };
                settle(runs, &spans, members, Some(-2.0), n, out);
                let lines = n.next_multiple_of(LANES);
                assert!(places[..lines].iter().all(|place| (40..100).contains(place)));
                assert!(correction[n..lines].iter().all(|&c| c == f32::INFINITY));
                for (&place, &correction) in places[..n].iter().zip(&correction) {
                    let log_weight = members.map_or(0.0, |_| log_weights[place as usize]);
                    assert_eq!(correction, log_weight - 2.0);
                }
            }
        }
    }

    #[test]
    fn the_draws_of_a_run_are_spread_evenly_over_its_span() {
        let mut weights = [1.0; 16];
        weights[3] = 40.0;
        for (len, n, exact) in [(1, 3, false), (100, 7, true), (7, 500, false), (100, 500, false)] {
            let (runs, drawn) = draws(len, &weights, n, 0, exact);
            let mut chosen = drawn.iter();
            for Run { slot, count, .. } in runs {
                let mut counts = vec![0; len as usize];
                for (place, ..) in chosen.by_ref().take(count as usize) {
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
        // Frequencies of (place within its span, half of the coin) of the third draw over many queries.
        for exact in [false, true] {
            let (len, calls) = (5, 20_000);
            let mut counts = [[0.0; 2]; 5];
            for entity in 0..calls {
                let (_, drawn) = draws(len, &[1.0; 16], 6, entity, exact);
                let (place, coin, _) = drawn[2];
                counts[(place % len) as usize][(coin >> 31) as usize] += 1.0;
            }
            let expected = f64::from(calls) / f64::from(2 * len);
            let deviation = (expected * (1.0 - 0.5 / f64::from(len))).sqrt();
            for count in counts.as_flattened() {
                assert!((count - expected).abs() < 5.0 * deviation, "{counts:?}");
            }
        }
    }
}
