//! Many draws from a list of weights at once: sorted uniforms walked against the cumulated weights.
//!
//! n sorted uniforms are the prefix sums of n + 1 exponential spacings, divided by the last sum; so no draw
//! needs a search, and n draws over w weights cost O(n + w). Draws come out in the order of the weights.

use fearless_simd::{dispatch, f32x16, f64x8, i32x16, prelude::*, u32x16};

use crate::math::matrix::LANES;
use crate::math::{Stream, simd};

/// The block of a stream where the words start that choose within a cell; spacings start at 0.
pub(super) const CHOICES: u32 = 1 << 28;

/// Fills `targets` with `n` sorted independent uniforms in 0 ..= `total`, from the stream's words 0 to n.
pub(super) fn sorted_targets(
    n: usize,
    total: f64,
    stream: &Stream,
    words: &mut Vec<u32>,
    targets: &mut Vec<f64>,
) {
    #[inline(always)]
    fn body<S: Simd>(simd: S, words: &[u32], targets: &mut [f64]) {
        let mut carry = 0.0;
        for (words, targets) in words.chunks_exact(LANES).zip(targets.chunks_exact_mut(LANES)) {
            // 24 bits and a half: never zero.
            let bits = (u32x16::from_slice(simd, words) >> 8).bitcast::<i32x16<S>>();
            let uniform = (bits.to_float::<f32x16<S>>() + 0.5) * (1.0 / (1u32 << 24) as f32);
            let sums = prefix_sums(simd, -simd::ln(simd, uniform));
            // Sixteen spacings add up in f32, the rest in f64: no precision is lost at many draws.
            let (low, high) = sums.widen();
            (low + f64x8::splat(simd, carry)).store_slice(&mut targets[..8]);
            (high + f64x8::splat(simd, carry)).store_slice(&mut targets[8..]);
            carry = targets[15];
        }
    }
    #[inline(always)]
    fn scale<S: Simd>(_: S, targets: &mut [f64], factor: f64) {
        for target in targets {
            *target *= factor;
        }
    }
    let padded = (n + 1).next_multiple_of(Stream::RUN);
    words.resize(padded, 0);
    targets.resize(padded, 0.0);
    stream.fill(0, words);
    dispatch!(simd::level(), simd => body(simd, words, targets));
    let factor = total / targets[n];
    targets.truncate(n);
    dispatch!(simd::level(), simd => scale(simd, targets, factor));
}

/// `picks[t]` = the position at which the cumulated `weights` pass the sorted `targets[t]`; picks ascend.
///
/// A position of weight zero is never picked while any weight is positive, whatever the rounding; targets
/// beyond the sum go to the last positive position. Cost: O(weights + targets).
///
/// # Panics
/// If the length of `weights` is not a multiple of [`LANES`], or fewer picks than targets.
pub(super) fn walk(weights: &[f32], targets: &[f64], picks: &mut [u32]) {
    #[inline(always)]
    fn body<S: Simd>(simd: S, weights: &[f32], targets: &[f64], picks: &mut [u32]) {
        let (mut t, mut carry, mut last, mut previous) = (0, 0.0f64, 0, 0);
        for (chunk, weights) in weights.chunks_exact(LANES).enumerate() {
            if t == targets.len() {
                return;
            }
            let weights = f32x16::from_slice(simd, weights);
            let sums = prefix_sums(simd, weights);
            let end = carry + f64::from(sums.as_slice()[LANES - 1]);
            let positive = weights.simd_gt(f32x16::splat(simd, 0.0)).to_bitmask();
            if positive != 0 {
                let top = positive.ilog2();
                let base = (chunk * LANES) as u32;
                last = base + top;
                // Prefix sums taken in halves need not grow at every step: the mask keeps draws off lanes of
                // weight zero, the top lane takes what rounding leaves over, and no pick goes back.
                let mut stop = t;
                while stop < targets.len() && targets[stop] < end {
                    stop += 1;
                }
                for (target, pick) in targets[t..stop].iter().zip(&mut picks[t..stop]) {
                    let local = f32x16::splat(simd, (target - carry) as f32);
                    let passed = sums.simd_gt(local).to_bitmask() & positive;
                    previous = previous.max(base + (passed | (1 << top)).trailing_zeros());
                    *pick = previous;
                }
                t = stop;
            }
            carry = end;
        }
        picks[t..targets.len()].fill(last);
    }
    assert!(
        weights.len().is_multiple_of(LANES) && picks.len() >= targets.len(),
        "whole vectors, and room for picks"
    );
    dispatch!(simd::level(), simd => body(simd, weights, targets, picks));
}

/// The sums of lanes `0..=i` for each lane i.
#[inline(always)]
fn prefix_sums<S: Simd>(_: S, x: f32x16<S>) -> f32x16<S> {
    let x = x + x.shift_elements_right::<1>(0.0);
    let x = x + x.shift_elements_right::<2>(0.0);
    let x = x + x.shift_elements_right::<4>(0.0);
    x + x.shift_elements_right::<8>(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::Purpose;

    fn targets(n: usize, total: f64, entity: u32) -> Vec<f64> {
        let (mut words, mut targets) = (Vec::new(), Vec::new());
        let stream = Stream::new(3, Purpose::Negatives, 0, entity);
        sorted_targets(n, total, &stream, &mut words, &mut targets);
        targets
    }

    #[test]
    fn targets_are_sorted_and_uniform() {
        for n in [1, 15, 16, 1000] {
            let drawn = targets(n, 2.0, 0);
            assert_eq!(drawn.len(), n);
            assert!(drawn.windows(2).all(|pair| pair[0] <= pair[1]) && drawn[n - 1] <= 2.0);
        }
        // Kolmogorov and Smirnov's distance; 1.95 / sqrt(n) is passed once in a thousand.
        let n = 100_000;
        let drawn = targets(n, 1.0, 1);
        let distance =
            drawn.iter().enumerate().map(|(i, u)| (u - i as f64 / n as f64).abs()).fold(0.0, f64::max);
        assert!(distance < 1.95 / (n as f64).sqrt(), "{distance}");
    }

    #[test]
    fn a_walk_equals_the_search_in_cumulated_weights() {
        let mut weights: Vec<f32> = (0..160).map(|i| if i % 3 == 0 { 0.0 } else { i as f32 }).collect();
        weights[140..].fill(0.0);
        let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
        let drawn = targets(5000, total, 2);
        let mut picks = vec![0; 5000];
        walk(&weights, &drawn, &mut picks);
        let mut differ = 0;
        for (target, &pick) in drawn.iter().zip(&picks) {
            let mut sum = 0.0;
            let expected = weights.iter().position(|&weight| {
                sum += f64::from(weight);
                sum > *target
            });
            differ += usize::from(expected != Some(pick as usize));
        }
        assert_eq!(differ, 0);
    }

    #[test]
    fn weights_of_zero_are_never_picked() {
        for seed in 0..200u64 {
            let mut stream = Stream::new(seed, Purpose::Generate, 0, 0);
            let weights: Vec<f32> = (0..64)
                .map(|_| if stream.uniform() < 0.5 { 0.0 } else { (stream.normal() * 8.0).exp() as f32 })
                .collect();
            let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
            // A total too large by rounding and more: some targets lie beyond the end.
            let drawn = targets(300, total * 1.001, seed as u32);
            let mut picks = vec![0; 300];
            walk(&weights, &drawn, &mut picks);
            assert!(picks.iter().all(|&pick| weights[pick as usize] > 0.0));
        }
    }
}
