//! The second half of draws: which item of its span each run fell on.

use super::alias::place_and_coin;
use super::cells::Span;
use super::systematic::{Run, RunSlice};

/// Fills `places` and `correction` for the draws of `runs`, which fell on `spans`. Each draw gets one of the places of
/// its span, all alike, and a coin; `choose` makes a place and a correction of these and of what goes with the run. The
/// coin is the rest of the word that chose the place or, where they are asked to be `exact`, a second one.
#[inline(always)]
pub(super) fn settle(
    runs: RunSlice<'_>,
    spans: &[Span],
    exact: bool,
    mut places: &mut [u32],
    mut correction: &mut [f32],
    choose: impl Fn(u32, u32, f32) -> (u32, f32),
) {
    for &Run { slot, count, log_base } in runs.runs {
        let span = spans[slot as usize];
        let (mut word, step) = runs.choices.comb(slot, count);
        let mine = (places.split_off_mut(..count as usize), correction.split_off_mut(..count as usize));
        let (Some(places), Some(correction)) = mine else { unreachable!("a place for each draw") };
        for (place, correction) in places.iter_mut().zip(correction) {
            let (own, mut coin) = place_and_coin(word, span.start, span.len);
            if exact {
                coin = runs.choices.second(word);
            }
            (*place, *correction) = choose(own, coin, log_base);
            word = word.wrapping_add(step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{Purpose, Stream};
    use crate::proposal::{Runs, Systematic};

    /// The runs of `n` draws from sixteen spans of `len` places each, and the place and coin of each draw.
    fn draws(len: u32, weights: &[f32], n: usize, entity: u32, exact: bool) -> (Runs, Vec<u32>, Vec<f32>) {
        let spans: Vec<Span> = (0..16).map(|i| Span { start: i * len, len }).collect();
        let mut runs = Runs::default();
        let stream = Stream::new(5, Purpose::Negatives, 0, entity);
        Systematic::default().draw(weights, None, n, &stream, &mut runs);
        let (mut places, mut coins) = (vec![0; n], vec![0.0; n]);
        let all: Vec<Run> = runs.iter().collect();
        let all = RunSlice { runs: &all, choices: runs.choices() };
        settle(all, &spans, exact, &mut places, &mut coins, |own, coin, _| (own, coin as f32));
        (runs, places, coins)
    }

    #[test]
    fn the_draws_of_a_run_are_spread_evenly_over_its_span() {
        let mut weights = [1.0; 16];
        weights[3] = 40.0;
        for (len, n, exact) in [(1, 3, false), (100, 7, true), (7, 500, false), (100, 500, false)] {
            let (runs, places, _) = draws(len, &weights, n, 0, exact);
            let mut chosen = places.iter();
            for Run { slot, count, .. } in runs.iter() {
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
        // Frequencies of (place within its span, half of the coin) of the third draw over many queries.
        for exact in [false, true] {
            let (len, calls) = (5, 20_000);
            let mut counts = [[0.0; 2]; 5];
            for entity in 0..calls {
                let (_, places, coins) = draws(len, &[1.0; 16], 6, entity, exact);
                counts[(places[2] % len) as usize][usize::from(coins[2] >= 2f32.powi(31))] += 1.0;
            }
            let expected = f64::from(calls) / f64::from(2 * len);
            let deviation = (expected * (1.0 - 0.5 / f64::from(len))).sqrt();
            for count in counts.as_flattened() {
                assert!((count - expected).abs() < 5.0 * deviation, "{counts:?}");
            }
        }
    }

    #[test]
    fn each_draw_has_what_its_run_says() {
        let spans: Vec<Span> = (0..9).map(|i| Span { start: 100 * i, len: i + 1 }).collect();
        let counts = [1, 3, 16, 17, 1, 70, 2, 15];
        let run = |k: u32| Run { slot: 8 - k, count: counts[k as usize], log_base: -(k as f32) };
        let all: Vec<Run> = (0..8).map(run).collect();
        let runs = RunSlice { runs: &all, choices: Default::default() };
        let n = counts.iter().sum::<u32>() as usize;
        let (mut places, mut bases) = (vec![0; n], vec![0.0; n]);
        settle(runs, &spans, false, &mut places, &mut bases, |own, _, base| (own, base));
        let expected = (0..8).flat_map(|k| vec![k; counts[k] as usize]);
        for ((k, place), base) in expected.zip(places).zip(bases) {
            let span = spans[all[k].slot as usize];
            assert!((span.start..span.start + span.len).contains(&place));
            assert_eq!(base, all[k].log_base);
        }
    }
}
