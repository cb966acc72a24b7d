//! [`Members`]: draws from spans of places by fixed weights, in constant time.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use super::alias::{self, Slot};
use crate::math::List;

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

impl Place {
    /// The place drawn and ln of its weight.
    #[inline(always)]
    fn choose(&self, own: u32, coin: u32) -> (u32, f32) {
        let (place, other) = self.slot.choose(own, coin);
        (place, self.log_weights[usize::from(other)])
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

    /// The place drawn by one that all of its span are as likely for, with a coin, and ln of its weight.
    #[inline(always)]
    pub(super) fn choose(&self, own: u32, coin: u32) -> (u32, f32) {
        self.places[own as usize].choose(own, coin)
    }

    /// ln of the weight at `place`.
    #[inline(always)]
    pub(super) fn log_weight(&self, place: u32) -> f32 {
        self.places[place as usize].log_weights[0]
    }
}
