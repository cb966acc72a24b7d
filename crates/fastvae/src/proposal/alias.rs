//! Alias tables (Walker, 1977; built as by Hübschle-Schneider and Sanders, 2019): a draw from any fixed distribution in
//! constant time.

use bytemuck::{Pod, Zeroable};
use fearless_simd::{prelude::*, u32x8};

/// One slot: itself with probability `keep / 2^32`, else the slot `other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Slot {
    keep: u32,
    other: u32,
}

impl Slot {
    /// The outcome of a draw that fell on this slot, numbered `own`: what [`super::members`] finds for sixteen at once.
    /// Slots that are never left name themselves, so that a keep of 2^32 - 1 is exact.
    #[cfg(test)]
    pub(super) fn choose(self, own: u32, coin: u32) -> u32 {
        if coin < self.keep { own } else { self.other }
    }

    /// The slot that a draw may leave this one for.
    pub(super) fn other(self) -> u32 {
        self.other
    }
}

/// The outcomes up to which one word makes a draw: the coin keeps 16 bits, so that the weight of an
/// outcome is met to 2^-16 of the mean weight.
pub(super) const ONE_WORD: u32 = 1 << 16;

/// A slot of the `len` from `start` on by a random word, and the coin that the rest of the word makes: good for draws
/// from no more than [`ONE_WORD`] slots.
#[inline(always)]
pub(super) fn place_and_coin(word: u32, start: u32, len: u32) -> (u32, u32) {
    let product = u64::from(word) * u64::from(len);
    (start + (product >> 32) as u32, product as u32)
}

/// As [`place_and_coin`], of eight words.
#[inline(always)]
pub(super) fn place_and_coin_in<S: Simd>(
    simd: S,
    words: u32x8<S>,
    start: u32,
    len: u32,
) -> (u32x8<S>, u32x8<S>) {
    // The upper half of a product of 64 bits, by halves of both; of 48 bits where that is enough.
    let (high, low) = (words >> 16, words & 0xffff);
    let own = if len <= ONE_WORD {
        (high * len + ((low * len) >> 16)) >> 16
    } else {
        let (len_high, len_low) = (len >> 16, len & 0xffff);
        let middle = high * len_low + ((low * len_low) >> 16);
        let lower = (middle & 0xffff) + low * len_high;
        high * len_high + (middle >> 16) + (lower >> 16)
    };
    (own + u32x8::splat(simd, start), words * len)
}

/// Builds the alias table of `weights` into `slots`, numbered from `first`.
///
/// What the slots below the mean miss is handed to them by those above it, both in their order, and a slot above the
/// mean that has given too much is filled up by the next one. Who fills whom follows from two lists of sums, so that
/// many processors can work it out at once and find the same table.
///
/// Weights that sum to nothing (or to no number) make all outcomes alike.
pub(super) fn fill(weights: &[f64], first: u32, slots: &mut [Slot]) {
    let n = weights.len();
    let sum: f64 = weights.iter().sum();
    let scale = n as f64 / sum;
    for (i, slot) in slots.iter_mut().enumerate() {
        *slot = Slot { keep: u32::MAX, other: first + i as u32 };
    }
    if !(sum > 0.0 && scale.is_finite()) {
        return;
    }
    let running = |part: fn(f64) -> f64| {
        let mut sum = 0.0;
        let next = |weight: &f64| {
            sum += part(weight * scale).max(0.0);
            sum
        };
        weights.iter().map(next).collect::<Vec<f64>>()
    };
    let (missing, spare) = (running(|share| 1.0 - share), running(|share| share - 1.0));
    let (mut rich, mut poor, mut next) = (0, 0, 0);
    let above = |sums: &[f64], from: &mut usize, value: f64| {
        while sums.get(*from).is_some_and(|&sum| sum <= value) {
            *from += 1;
        }
        (*from < n).then_some(*from)
    };
    let before = |i: usize| if i == 0 { 0.0 } else { missing[i - 1] };
    let keep = |share: f64| (share.max(0.0) * 4_294_967_296.0) as u32;
    // Where nobody is found, what is missing is rounding.
    for (i, weight) in weights.iter().enumerate() {
        let share = weight * scale;
        if share < 1.0 {
            if let Some(rich) = above(&spare, &mut rich, before(i)) {
                slots[i] = Slot { keep: keep(share), other: first + rich as u32 };
            }
        } else if share > 1.0
            && let (Some(poor), Some(next)) =
                (above(&missing, &mut poor, spare[i]), above(&spare, &mut next, spare[i]))
            && before(poor) < spare[i]
        {
            slots[i] = Slot { keep: keep(1.0 - (missing[poor] - spare[i])), other: first + next as u32 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{Purpose, Stream};

    #[test]
    fn frequencies_follow_the_weights() {
        let weights = [0.0, 1.0, 5.0, 0.5, 3.5];
        let mut slots = [Slot::default(); 5];
        fill(&weights, 0, &mut slots);
        let n = 200_000;
        let mut words = vec![0; 2 * n];
        Stream::new(1, Purpose::Negatives, 0, 0).fill(0, &mut words);
        let mut counts = [0usize; 5];
        words.chunks_exact(2).for_each(|w| {
            let own = ((u64::from(w[0]) * 5) >> 32) as u32;
            counts[slots[own as usize].choose(own, w[1]) as usize] += 1;
        });
        for (weight, count) in weights.iter().zip(counts) {
            let p = weight / 10.0;
            // Five standard errors of a binomial count.
            let tolerance = 5.0 * (n as f64 * p * (1.0 - p)).sqrt();
            assert!((count as f64 - n as f64 * p).abs() <= tolerance, "{counts:?}");
        }
    }

    #[test]
    fn slots_hold_exactly_the_probabilities() {
        let weights: Vec<f64> = (1..400).map(|i| 1.0 / f64::from(i)).collect();
        let mut slots = vec![Slot::default(); weights.len()];
        fill(&weights, 0, &mut slots);
        let mut mass = vec![0.0; weights.len()];
        for (i, slot) in slots.iter().enumerate() {
            let keep = f64::from(slot.keep) / 4_294_967_296.0;
            mass[i] += keep;
            mass[slot.other as usize] += 1.0 - keep;
        }
        let sum: f64 = weights.iter().sum();
        let n = weights.len() as f64;
        assert!(mass.iter().zip(&weights).all(|(m, w)| (m / n - w / sum).abs() < 1e-9));
    }

    #[test]
    fn weights_without_a_sum_make_all_outcomes_alike() {
        for weights in [[0.0, 0.0], [f64::NAN, 1.0]] {
            let mut slots = [Slot::default(); 2];
            fill(&weights, 0, &mut slots);
            assert_eq!((slots[0].choose(0, 9), slots[1].choose(1, 9)), (0, 1));
        }
    }
}
