//! [`Members`]: draws from spans of places by fixed weights, in constant time.

use bytemuck::{Pod, Zeroable};
use fearless_simd::{f32x16, prelude::*, u32x4, u32x16};
use rayon::prelude::*;

use super::alias::{self, Slot};
use crate::math::List;
use crate::math::matrix::LANES;

/// One alias table for each of consecutive spans, end to end.
#[derive(Debug, Clone)]
pub(super) struct Members {
    places: List<Place>,
    /// Whether every span is short enough for one random word to make a draw.
    one_word: bool,
}

/// All that a draw which falls on a place may need, in one cache line.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(16))]
struct Place {
    slot: Slot,
    /// ln of the weight at the place itself, and at the one that its slot names.
    log_weights: [f32; 2],
}

/// The fields of four of the places `of`, from number `at` on.
///
/// # Safety
/// They must be less than there are.
#[inline(always)]
unsafe fn four<S: Simd>(simd: S, all: &[[u32; 4]], of: &[u32; LANES], at: usize) -> u32x16<S> {
    // SAFETY: passed on to the caller.
    unsafe {
        let a = u32x4::load_array_ref(simd, all.get_unchecked(of[at] as usize));
        let b = u32x4::load_array_ref(simd, all.get_unchecked(of[at + 1] as usize));
        let c = u32x4::load_array_ref(simd, all.get_unchecked(of[at + 2] as usize));
        let d = u32x4::load_array_ref(simd, all.get_unchecked(of[at + 3] as usize));
        a.combine(b).combine(c.combine(d))
    }
}

impl Members {
    /// With `log_weights` at the places and spans that begin at `starts`, the last entry being the end. Also
    /// returns the ln of the mass of each span.
    pub(super) fn new(log_weights: &[f32], starts: &[u32]) -> (Self, Vec<f64>) {
        let mut places = List::zeros(log_weights.len());
        let mut rest = &mut *places;
        let mut spans = Vec::with_capacity(starts.len() - 1);
        for pair in starts.windows(2) {
            let (span, after) = rest.split_at_mut((pair[1] - pair[0]) as usize);
            spans.push((pair[0], span));
            rest = after;
        }
        let one_word = spans.iter().all(|(_, span)| span.len() <= alias::ONE_WORD as usize);
        let log_masses = spans
            .into_par_iter()
            .map(|(start, places)| {
                let log_weights = &log_weights[start as usize..][..places.len()];
                let weights: Vec<f64> = log_weights.iter().map(|&log| f64::from(log).exp()).collect();
                let mut slots = vec![Slot::default(); places.len()];
                alias::fill(&weights, start, &mut slots);
                for ((place, slot), &log_weight) in places.iter_mut().zip(slots).zip(log_weights) {
                    let other = log_weights[(slot.other() - start) as usize];
                    *place = Place { slot, log_weights: [log_weight, other] };
                }
                weights.iter().sum::<f64>().ln()
            })
            .collect();
        (Self { places, one_word }, log_masses)
    }

    /// Whether every span is short enough for one random word to make a draw.
    pub(super) fn one_word(&self) -> bool {
        self.one_word
    }

    /// Replaces `places` that all of their spans were as likely for by those that their `coins` choose, and adds the ln of
    /// their weights to `sums`. All are whole lines.
    #[inline(always)]
    pub(super) fn choose<S: Simd>(&self, simd: S, coins: &[u32], places: &mut [u32], sums: &mut [f32]) {
        let all: &[[u32; 4]] = bytemuck::cast_slice(&self.places);
        let (coins, places, sums) =
            (coins.as_chunks().0, places.as_chunks_mut().0, sums.as_chunks_mut::<LANES>().0);
        // One look at sixteen places: a look at each would take as long as the choice.
        let mut largest = u32x16::splat(simd, 0);
        for places in &*places {
            largest = largest.max(u32x16::load_array_ref(simd, places));
        }
        let n_places = u32x16::splat(simd, all.len() as u32);
        assert!(largest.simd_lt(n_places).all_true(), "places of the table");
        for ((places, coins), sums) in places.iter_mut().zip(coins).zip(sums) {
            // SAFETY: every place is below their number.
            let [a, b, c, d] = unsafe {
                [
                    four(simd, all, places, 0),
                    four(simd, all, places, 4),
                    four(simd, all, places, 8),
                    four(simd, all, places, 12),
                ]
            };
            // From sixteen times four fields to four times sixteen.
            let (ab, cd) = (a.unzip_low(b), c.unzip_low(d));
            let (keep, own_weight) = (ab.unzip_low(cd), ab.unzip_high(cd));
            let (ab, cd) = (a.unzip_high(b), c.unzip_high(d));
            let (other, other_weight) = (ab.unzip_low(cd), ab.unzip_high(cd));
            let stay = u32x16::load_array_ref(simd, coins).simd_lt(keep);
            stay.select(u32x16::load_array_ref(simd, places), other).store_slice(places);
            let log_weight: f32x16<S> = stay.select(own_weight, other_weight).bitcast();
            (f32x16::load_array_ref(simd, sums) + log_weight).store_slice(sums);
        }
    }

    /// ln of the weight at `place`.
    #[inline(always)]
    pub(super) fn log_weight(&self, place: u32) -> f32 {
        self.places[place as usize].log_weights[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::simd::levels;
    use crate::math::{Purpose, Stream};
    use fearless_simd::dispatch;

    #[test]
    fn lines_of_choices_equal_choices_one_by_one() {
        let mut stream = Stream::new(1, Purpose::Generate, 0, 0);
        let log_weights: Vec<f32> = (0..500).map(|_| stream.normal() as f32).collect();
        let (members, _) = Members::new(&log_weights, &[0, 1, 40, 500]);
        let own: Vec<u32> = (0..6 * LANES).map(|_| stream.below(500) as u32).collect();
        let coins: Vec<u32> = own.iter().map(|_| stream.next_word()).collect();
        for level in levels() {
            let (mut places, mut sums) = (own.clone(), vec![0.5; own.len()]);
            dispatch!(level, simd => members.choose(simd, &coins, &mut places, &mut sums));
            let moved = places.iter().zip(&own).filter(|(place, own)| place != own).count();
            assert!(moved > 10, "some coins choose another");
            for (k, (&place, &sum)) in places.iter().zip(&sums).enumerate() {
                assert_eq!(place, members.places[own[k] as usize].slot.choose(own[k], coins[k]));
                assert_eq!(sum, 0.5 + log_weights[place as usize]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "places of the table")]
    fn a_place_beyond_the_table_is_refused() {
        let (members, _) = Members::new(&[0.0; 20], &[0, 20]);
        let mut places = [0; LANES];
        places[7] = 20;
        dispatch!(crate::math::simd::level(), simd => {
            members.choose(simd, &[0; LANES], &mut places, &mut [0.0; LANES]);
        });
    }
}
