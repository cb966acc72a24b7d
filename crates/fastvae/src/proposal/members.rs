//! [`Members`]: draws from spans of places by fixed weights, in constant time.

use rayon::prelude::*;

use super::alias::{self, Slot};
use super::cells::Span;
use super::uniform::below;

/// One alias table for each of consecutive spans, end to end.
#[derive(Debug, Clone)]
pub(super) struct Members {
    slots: Vec<Slot>,
    /// ln of the weight at each place.
    log_weights: Vec<f32>,
    /// Whether every span is short enough for one random word to make a draw.
    one_word: bool,
}

impl Members {
    /// With `log_weights` at the places and spans that begin at `starts`, the last entry being the end. Also
    /// returns the ln of the mass of each span.
    pub(super) fn new(log_weights: Vec<f32>, starts: &[u32]) -> (Self, Vec<f64>) {
        let mut slots = vec![Slot::default(); log_weights.len()];
        let mut rest = slots.as_mut_slice();
        let mut spans = Vec::with_capacity(starts.len() - 1);
        for pair in starts.windows(2) {
            let (span, after) = rest.split_at_mut((pair[1] - pair[0]) as usize);
            spans.push((pair[0], span));
            rest = after;
        }
        let one_word = spans.iter().all(|(_, span)| span.len() <= alias::ONE_WORD as usize);
        let log_masses = spans
            .into_par_iter()
            .map(|(start, slots)| {
                let weights: Vec<f64> = log_weights[start as usize..][..slots.len()]
                    .iter()
                    .map(|&log_weight| f64::from(log_weight).exp())
                    .collect();
                alias::fill(&weights, start, slots);
                weights.iter().sum::<f64>().ln()
            })
            .collect();
        (Self { slots, log_weights, one_word }, log_masses)
    }

    /// Whether [`Members::choose`] may be used.
    pub(super) fn one_word(&self) -> bool {
        self.one_word
    }

    /// A place of `span` by one random word.
    #[inline(always)]
    pub(super) fn choose(&self, span: Span, word: u32) -> u32 {
        let (place, coin) = alias::place_and_coin(word, span.start, span.len);
        self.slots[place as usize].choose(place, coin)
    }

    /// A place of `span`, of any length, by two random words.
    #[inline(always)]
    pub(super) fn choose_by_two(&self, span: Span, words: [u32; 2]) -> u32 {
        let place = span.start + below(words[0], span.len);
        self.slots[place as usize].choose(place, words[1])
    }

    /// ln of the weight at `place`.
    #[inline(always)]
    pub(super) fn log_weight(&self, place: u32) -> f32 {
        self.log_weights[place as usize]
    }
}
