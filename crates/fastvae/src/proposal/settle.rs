//! [`Settling`]: what the second half of a draw reads, laid out draw by draw.

use fearless_simd::{dispatch, f32x16, prelude::*, u32x16};

use super::alias::place_and_coin;
use super::cells::Span;
use super::systematic::RunSlice;
use crate::math::matrix::LANES;
use crate::math::simd;

/// Buffers of [`super::Proposal::settle`]; one per thread, reused.
#[derive(Debug, Default)]
pub struct Settling {
    /// Random words.
    pub(super) words: Vec<u32>,
    /// For each draw the first place of its cell, followed by what the last vector left over.
    pub(super) starts: Vec<u32>,
    /// The number of items there.
    pub(super) lens: Vec<u32>,
    /// `ln Q` of an item of weight one there.
    pub(super) bases: Vec<f32>,
}

impl Settling {
    /// Lays out the `n` draws of `runs`, which fell on cells with the items `spans`.
    pub(super) fn lay_out(&mut self, runs: RunSlice<'_>, spans: &[Span], n: usize) {
        let Self { starts, lens, bases, .. } = self;
        if starts.len() < n + LANES {
            starts.resize(n + LANES, 0);
            lens.resize(n + LANES, 0);
            bases.resize(n + LANES, 0.0);
        }
        dispatch!(simd::level(), simd => lay_out(simd, runs, spans, starts, lens, bases));
    }

    /// Turns the first `n` of `starts` into a place of each draw's cell, by the draw's word, and of `lens` into what
    /// the rest of the word makes: see [`place_and_coin`].
    pub(super) fn toss(&mut self, n: usize) {
        // A loop of its own: it is made of vectors, which one with the look-ups that follow could not be.
        #[inline(always)]
        fn body<S: Simd>(_: S, words: &[u32], starts: &mut [u32], lens: &mut [u32]) {
            for ((&word, start), len) in words.iter().zip(starts).zip(lens) {
                (*start, *len) = place_and_coin(word, *start, *len);
            }
        }
        let Self { words, starts, lens, .. } = self;
        dispatch!(simd::level(), simd => body(simd, &words[..n], &mut starts[..n], &mut lens[..n]));
    }
}

/// Whole vectors are written for each run, and the next run starts where its draws end: so short runs, whose length
/// is a surprise each time, take no branch.
#[inline(always)]
fn lay_out<S: Simd>(
    simd: S,
    runs: RunSlice<'_>,
    spans: &[Span],
    starts: &mut [u32],
    lens: &mut [u32],
    bases: &mut [f32],
) {
    let mut first = 0;
    for ((&slot, &count), &log_base) in runs.slots.iter().zip(runs.counts).zip(runs.log_bases) {
        let span = spans[slot as usize];
        let end = first + count as usize;
        let (start, len) = (u32x16::splat(simd, span.start), u32x16::splat(simd, span.len));
        let base = f32x16::splat(simd, log_base);
        loop {
            start.store_slice(&mut starts[first..first + LANES]);
            len.store_slice(&mut lens[first..first + LANES]);
            base.store_slice(&mut bases[first..first + LANES]);
            first += LANES;
            if first >= end {
                break;
            }
        }
        first = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_draw_has_what_its_run_says() {
        let spans: Vec<Span> = (0..9).map(|i| Span { start: 100 * i, len: i + 1 }).collect();
        let counts = [1, 3, 16, 17, 1, 70, 2, 15];
        let slots: Vec<u32> = (0..8).map(|k| 8 - k).collect();
        let log_bases: Vec<f32> = (0..8).map(|k| -(k as f32)).collect();
        let runs = RunSlice { slots: &slots, counts: &counts, log_bases: &log_bases };
        let n = counts.iter().sum::<u32>() as usize;
        let mut settling = Settling::default();
        // The second time, with values left over.
        for _ in 0..2 {
            settling.lay_out(runs, &spans, n);
            let expected = (0..8).flat_map(|k| vec![k; counts[k] as usize]);
            for (t, k) in expected.enumerate() {
                let span = spans[slots[k] as usize];
                assert_eq!((settling.starts[t], settling.lens[t]), (span.start, span.len));
                assert_eq!(settling.bases[t], log_bases[k]);
            }
        }
    }
}
