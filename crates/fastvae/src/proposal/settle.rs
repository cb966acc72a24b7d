//! The second half of draws: which item of its span each run fell on.
//!
//! A run has few draws, but whole vectors of them are worked out: each run writes over what the one before wrote too
//! much. A loop that ends after each run's count would be guessed wrong at most of its ends.

use fearless_simd::{dispatch, f32x8, f32x16, prelude::*, u32x8, u32x16};

use super::alias::place_and_coin_in;
use super::cells::Span;
use super::members::Members;
use super::spread::{PartRuns, Spread};
use crate::math::matrix::LANES;
use crate::math::simd::level;

/// Where the draws of some queries in one partition go, after those that are there. The draws of each query start a line,
/// and the rest of its last line is filled up. The lists have room for a line more than the draws fill: it may be
/// written over.
#[derive(Debug)]
pub struct Settling<'a> {
    /// The place of each draw; any of the partition up to the end of a query's last line.
    pub places: &'a mut [u32],
    /// What the loss subtracts from the logit of each; infinity up to the end of a query's last line.
    pub correction: &'a mut [f32],
    /// Where the draws of each query end.
    pub ends: &'a mut Vec<u32>,
    /// A buffer.
    pub coins: &'a mut Vec<u32>,
}

impl Settling<'_> {
    /// Where the next draws go.
    #[inline(always)]
    fn start(&self) -> usize {
        self.ends.last().map_or(0, |&end| (end as usize).next_multiple_of(LANES))
    }
}

/// Draws of a run that are worked out together: most runs have fewer, and longer vectors would be written across two
/// cache lines most times.
const AT_ONCE: usize = 8;
/// The number of each of them.
const NUMBERS: [u32; AT_ONCE] = [0, 1, 2, 3, 4, 5, 6, 7];

/// Settles the runs in partition `partition`, which fell on `spans`. Each draw gets one of the places of its span: all
/// alike, or as `members` weigh them. `log_base` stands for those of the runs, where there is one.
pub(super) fn settle(
    spread: &Spread,
    partition: usize,
    spans: &[Span],
    members: Option<&Members>,
    log_base: Option<f32>,
    out: Settling<'_>,
) {
    #[inline(always)]
    fn body<S: Simd>(
        simd: S,
        (spread, partition): (&Spread, usize),
        spans: &[Span],
        members: Option<&Members>,
        log_base: Option<f32>,
        out: Settling<'_>,
    ) {
        let exact = members.is_some_and(|members| !members.one_word());
        let first = out.start();
        let lines = spread.total(partition).lines * LANES;
        let (places, correction) = (&mut out.places[first..], &mut out.correction[first..]);
        if out.coins.len() < lines + LANES {
            out.coins.resize(lines + LANES, 0);
        }
        let mut start = 0;
        for query in 0..spread.n_queries() {
            let part = spread.runs(partition, query);
            let room = part.n.next_multiple_of(LANES) + LANES;
            let (places, correction) = (&mut places[start..][..room], &mut correction[start..][..room]);
            fall(simd, part, spans, exact, log_base, (places, correction, &mut out.coins[start..][..room]));
            fill_up(simd, part.n, places, correction);
            out.ends.push((first + start + part.n) as u32);
            start += room - LANES;
        }
        if let Some(members) = members {
            members.choose(simd, &out.coins[..lines], &mut places[..lines], &mut correction[..lines]);
        }
    }
    dispatch!(level(), simd => body(simd, (spread, partition), spans, members, log_base, out));
}

/// As [`settle`], for draws that have places.
pub(super) fn copy_places(spread: &Spread, partition: usize, out: Settling<'_>) {
    for query in 0..spread.n_queries() {
        let start = out.start();
        let (places, correction) = spread.places(partition, query);
        let n = places.len();
        out.places[start..][..n].copy_from_slice(places);
        out.correction[start..][..n].copy_from_slice(correction);
        let rest = (&mut out.places[start..], &mut out.correction[start..]);
        dispatch!(level(), simd => fill_up(simd, n, rest.0, rest.1));
        out.ends.push((start + n) as u32);
    }
}

/// Gives each draw one of the places of its span, all alike, what the loss subtracts, and a coin: the rest of the word that
/// chose the place or, where they are asked to be `exact`, a second one.
#[inline(always)]
fn fall<S: Simd>(
    simd: S,
    part: PartRuns<'_>,
    spans: &[Span],
    exact: bool,
    log_base: Option<f32>,
    (places, correction, coins): (&mut [u32], &mut [f32], &mut [u32]),
) {
    let numbers = u32x8::load_array_ref(simd, &NUMBERS);
    let mut at = 0;
    for run in part.runs {
        let Span { start, len } = spans[run.slot as usize];
        let step = run.step();
        let mut words = numbers * step + run.word;
        let base = f32x8::splat(simd, log_base.unwrap_or(run.log_base));
        let mut left = run.count as usize;
        loop {
            let (place, mut coin) = place_and_coin_in(simd, words, start, len);
            if exact {
                coin = part.choices.second_in(simd, words);
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
    debug_assert_eq!(at, part.n, "as many draws as the runs count");
}

/// Fills up the last line of `n` draws with what weighs nothing, and some more that is not looked at.
#[inline(always)]
fn fill_up<S: Simd>(simd: S, n: usize, places: &mut [u32], correction: &mut [f32]) {
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
    fn one_by_one(part: PartRuns<'_>, spans: &[Span], exact: bool) -> Vec<(u32, u32, f32)> {
        let mut draws = Vec::new();
        for run in part.runs {
            let mut word = part.choices.word(run.slot);
            let Span { start, len } = spans[run.slot as usize];
            for _ in 0..run.count {
                let (place, coin) = place_and_coin(word, start, len);
                draws.push((place, if exact { part.choices.second(word) } else { coin }, run.log_base));
                word = word.wrapping_add(run.step());
            }
        }
        draws
    }

    /// As [`one_by_one`], by vectors, in lists that are filled with anything before.
    fn by_vectors(
        level: fearless_simd::Level,
        part: PartRuns<'_>,
        spans: &[Span],
        exact: bool,
    ) -> Vec<(u32, u32, f32)> {
        let room = part.n.next_multiple_of(LANES) + LANES;
        let (mut places, mut correction, mut coins) = (vec![7; room], vec![7.0; room], vec![7; room]);
        let out = (&mut places[..], &mut correction[..], &mut coins[..]);
        dispatch!(level, simd => fall(simd, part, spans, exact, None, out));
        (0..part.n).map(|i| (places[i], coins[i], correction[i])).collect()
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
        let choices = Systematic::default().draw(weights, None, n, &stream, &mut runs);
        let drawn = by_vectors(level(), PartRuns { runs: &runs, choices, n }, &spans, exact);
        (runs.to_vec(), drawn)
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
            let choices = Systematic::default().draw(&weights, Some(&bases), n, &stream, &mut runs);
            let part = PartRuns { runs: &runs, choices, n };
            for exact in [false, true] {
                let expected = one_by_one(part, &spans, exact);
                for level in levels() {
                    assert_eq!(by_vectors(level, part, &spans, exact), expected, "{level:?}");
                }
            }
        }
    }

    #[test]
    fn each_query_starts_a_line_and_lines_are_filled_up_with_what_weighs_nothing() {
        let spans: Vec<Span> = (0..16).map(|slot| Span { start: 40 + slot, len: 60 - slot }).collect();
        let log_weights: Vec<f32> = (0..100).map(|i| (i % 3) as f32).collect();
        let members = Members::new(&log_weights, &[0, 40, 100]).0;
        let queries = [1, 15, 0, 16, 17, 32, 33];
        let (mut spread, mut systematic) = (Spread::default(), Systematic::default());
        // The second partition has none of them.
        spread.clear(2, queries.len());
        for (entity, n) in (0..).zip(queries) {
            let stream = Stream::new(5, Purpose::Negatives, 0, entity);
            let weights = [1.0; LANES];
            spread.draw(&mut systematic, (&weights, None), n, &stream, &[16, 16]);
        }
        for members in [None, Some(&members)] {
            let (mut places, mut correction, mut coins) = (vec![99; 512], vec![7.0; 512], Vec::new());
            // Others were settled before.
            let mut ends = vec![20];
            for (partition, log_base) in [(0, -2.0), (1, -3.0)] {
                let out = Settling {
                    places: &mut places,
                    correction: &mut correction,
                    ends: &mut ends,
                    coins: &mut coins,
                };
                settle(&spread, partition, &spans, members, Some(log_base), out);
            }
            assert_eq!(ends.len(), 1 + 2 * queries.len());
            for (pair, n) in ends.windows(2).zip(queries.into_iter().chain([0; 7])) {
                let (start, end) = (pair[0].next_multiple_of(16) as usize, pair[1] as usize);
                assert_eq!(end, start + n);
                let lines = start..end.next_multiple_of(LANES);
                assert!(places[lines.clone()].iter().all(|place| (40..100).contains(place)));
                assert!(correction[end..lines.end].iter().all(|&c| c == f32::INFINITY));
                for (&place, &correction) in places[start..end].iter().zip(&correction[start..]) {
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
