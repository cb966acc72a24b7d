//! Two numbers in one float: what compact first moments are kept as.
//!
//! A moment is rounded to the upper sixteen bits of a float (bfloat16): the same range, and three digits, which is more
//! than a mean of the last ten noisy gradients is worth. It loses a tenth in each step, far more than rounding hides.
//! Of each 32 columns, the first sixteen lie in the upper halves of sixteen words, the others in the lower ones: so
//! vectors are taken apart and put together by masks and shifts alone.

use fearless_simd::{f32x16, prelude::*, u32x16};

use crate::math::matrix::LANES;

const UPPER: u32 = 0xffff_0000;

/// Words for a row of `columns` numbers.
pub fn words(columns: usize) -> usize {
    columns.div_ceil(2 * LANES) * LANES
}

/// The numbers of sixteen words, those of the upper halves first.
#[inline(always)]
pub(super) fn unpack<S: Simd>(simd: S, words: &[f32; LANES]) -> [f32x16<S>; 2] {
    let words = f32x16::load_array_ref(simd, words).bitcast::<u32x16<S>>();
    [(words & UPPER).bitcast(), (words << 16).bitcast()]
}

/// Sixteen words of these numbers.
#[inline(always)]
pub(super) fn pack<S: Simd>([high, low]: [f32x16<S>; 2], words: &mut [f32; LANES]) {
    let (high, low) = (rounded(high), rounded(low));
    ((high & UPPER) | (low >> 16)).bitcast::<f32x16<S>>().store_slice(words);
}

/// Numbers whose upper halves are the nearest, or of two as near the one that is further from zero.
#[inline(always)]
fn rounded<S: Simd>(numbers: f32x16<S>) -> u32x16<S> {
    let bits = numbers.bitcast::<u32x16<S>>();
    bits + 0x8000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::simd::levels;
    use crate::math::{Purpose, Stream};
    use fearless_simd::dispatch;

    #[test]
    fn numbers_come_back_rounded_to_the_nearest() {
        let mut stream = Stream::new(1, Purpose::Generate, 0, 0);
        for level in levels() {
            for exponent in [-17, -3, 0, 5, 30] {
                let mut numbers = [0.0f32; 2 * LANES];
                numbers.iter_mut().for_each(|x| *x = stream.normal() as f32 * 10f32.powi(exponent));
                numbers[3] = 0.0;
                let mut packed = [0.0; LANES];
                let back = dispatch!(level, simd => {
                    let lines = numbers.as_chunks::<LANES>().0;
                    let lines = [0, 1].map(|i| f32x16::load_array_ref(simd, &lines[i]));
                    pack(lines, &mut packed);
                    unpack(simd, &packed).map(|line| <[f32; LANES]>::try_from(line.as_slice()).unwrap())
                });
                for (&x, &y) in numbers.iter().zip(back.as_flattened()) {
                    assert_eq!(y.to_bits() & 0xffff, 0);
                    assert!((x - y).abs() <= x.abs() / 256.0, "{x} {y}");
                    // No neighbour is nearer.
                    let step = f32::from_bits(y.to_bits() + 0x1_0000) - y;
                    assert!((x - y).abs() <= step.abs() / 2.0, "{x} {y}");
                }
            }
        }
    }

    #[test]
    fn a_row_takes_whole_lines_of_half_its_length() {
        assert_eq!([1, 16, 32, 33, 200, 208].map(words), [16, 16, 16, 32, 112, 112]);
    }
}
