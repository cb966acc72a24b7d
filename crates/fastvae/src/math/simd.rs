//! Vector kernels with run-time dispatch: one source for AVX-512, AVX2, SSE and NEON.
//!
//! Sums run in 16 lanes on every processor, so that results differ between instruction sets only by fused
//! multiply-adds. Functions over `S: Simd` are building blocks, inlined into a dispatched body; the others
//! dispatch themselves and are for whole rows or longer.

use std::sync::OnceLock;

use fearless_simd::{Level, dispatch, f32x16, i32x16, prelude::*};

use crate::error::{Error, Result};
use crate::math::Stream;
use crate::math::matrix::LANES;

/// The environment variable that forces an instruction set: see [`FORCED`].
pub const SIMD_VARIABLE: &str = "FASTVAE_SIMD";

/// What [`SIMD_VARIABLE`] may ask for: `portable` is what every processor of the kind has.
pub const FORCED: [&str; 3] = ["avx512", "avx2", "portable"];

/// The instruction set in use: the best of this processor, or the one that [`SIMD_VARIABLE`] asks for where there is
/// such a one.
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        std::env::var(SIMD_VARIABLE).ok().and_then(|name| forced_level(&name)).unwrap_or_else(Level::new)
    })
}

/// Whether [`SIMD_VARIABLE`] asks for what can be had: a program that shows what it measured wants to know.
///
/// # Errors
/// [`Error::Config`] if it does not.
pub fn check_variable() -> Result<()> {
    match std::env::var(SIMD_VARIABLE) {
        Ok(name) if forced_level(&name).is_none() => Err(Error::config(
            SIMD_VARIABLE,
            format!("{name} is none of {}, or this processor does not have it", FORCED.join(", ")),
            format!("take it out of the environment for the best that there is, {}", name_of(Level::new())),
        )),
        _ => Ok(()),
    }
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn forced_level(name: &str) -> Option<Level> {
    let best = Level::new();
    match name {
        "avx512" => best.as_avx512().map(Level::Avx512),
        "avx2" => best.as_avx2().map(Level::Avx2),
        "portable" => best.as_sse2().map(Level::Sse2),
        _ => None,
    }
}

/// Where all processors have the same vectors.
#[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
fn forced_level(name: &str) -> Option<Level> {
    (name == "portable").then(Level::new)
}

/// The name of the instruction set in use.
pub fn level_name() -> String {
    name_of(level())
}

fn name_of(level: Level) -> String {
    let name = format!("{level:?}");
    name.split('(').next().unwrap_or(&name).to_lowercase()
}

/// `e^x` in each lane, relative error below 3e-7; arguments are clamped to ±87.
#[inline(always)]
pub fn exp<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
    let x = x.min(f32x16::splat(simd, 87.0)).max(f32x16::splat(simd, -87.0));
    // A sum with 1.5 * 2^23 has no digits after the point: rounded there, the last ones of its bits are the whole number.
    let magic = f32x16::splat(simd, 12_582_912.0);
    let shifted = x.mul_add(f32x16::splat(simd, std::f32::consts::LOG2_E), magic);
    let n = shifted - magic;
    // ln 2 in two parts, the first with zeros at the end, so that n * LN2_HIGH is exact.
    let r = n.mul_add(f32x16::splat(simd, -0.693_359_4), x);
    let r = n.mul_add(f32x16::splat(simd, 2.121_944_4e-4), r);
    // Two sums at a time: neither waits for the other.
    let square = r * r;
    let a = r.mul_add(f32x16::splat(simd, 1.987_569_1e-4), f32x16::splat(simd, 1.398_2e-3));
    let b = r.mul_add(f32x16::splat(simd, 8.333_452e-3), f32x16::splat(simd, 4.166_579_6e-2));
    let c = r.mul_add(f32x16::splat(simd, 1.666_666_5e-1), f32x16::splat(simd, 0.5));
    let p = a.mul_add(square, b).mul_add(square, c);
    let fraction = p.mul_add(square, r) + 1.0;
    let exponent = (shifted.bitcast::<i32x16<S>>() << 23) + (127 << 23);
    fraction * exponent.bitcast::<f32x16<S>>()
}

/// Natural logarithm in each lane of positive normal numbers, absolute error below 2e-7 near 1.
#[inline(always)]
pub fn ln<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
    let bits = x.bitcast::<i32x16<S>>();
    // Mantissa in [sqrt(1/2), sqrt(2)): shift the cut so that the exponent carries over there.
    let shifted = bits - 0x3f35_04f3;
    let exponent: f32x16<S> = (shifted >> 23).to_float();
    let mantissa = ((shifted & 0x007f_ffff) + 0x3f35_04f3).bitcast::<f32x16<S>>();
    let f = mantissa - 1.0;
    let mut p = f32x16::splat(simd, 7.037_683_6e-2);
    for c in [
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        0.333_333_3,
    ] {
        p = p.mul_add(f, f32x16::splat(simd, c));
    }
    let square = f * f;
    let tail = (p * f).mul_add(square, square * -0.5);
    let low = exponent.mul_add(f32x16::splat(simd, -2.121_944_4e-4), tail);
    exponent.mul_add(f32x16::splat(simd, 0.693_359_4), f + low)
}

/// Inner product of two slices of equal length.
#[inline(always)]
pub fn dot_in<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let (a_lines, a_rest) = a.as_chunks::<LANES>();
    let (b_lines, b_rest) = b.as_chunks::<LANES>();
    // Two named sums: an array of them indexed by the loop would go through memory.
    let (mut even, mut odd) = (f32x16::splat(simd, 0.0), f32x16::splat(simd, 0.0));
    let (a_pairs, a_last) = a_lines.as_chunks::<2>();
    let (b_pairs, b_last) = b_lines.as_chunks::<2>();
    for (x, y) in a_pairs.iter().zip(b_pairs) {
        even = f32x16::load_array_ref(simd, &x[0]).mul_add(f32x16::load_array_ref(simd, &y[0]), even);
        odd = f32x16::load_array_ref(simd, &x[1]).mul_add(f32x16::load_array_ref(simd, &y[1]), odd);
    }
    if let ([x], [y]) = (a_last, b_last) {
        even = f32x16::load_array_ref(simd, x).mul_add(f32x16::load_array_ref(simd, y), even);
    }
    let mut tail = 0.0;
    for (x, y) in a_rest.iter().zip(b_rest) {
        tail += x * y;
    }
    (even + odd).reduce_sum() + tail
}

/// `y += alpha * x` for slices of equal length.
#[inline(always)]
pub fn axpy_in<S: Simd>(simd: S, alpha: f32, x: &[f32], y: &mut [f32]) {
    let a = f32x16::splat(simd, alpha);
    let (mut x, mut y) = (x.chunks_exact(LANES), y.chunks_exact_mut(LANES));
    for (x, y) in (&mut x).zip(&mut y) {
        f32x16::from_slice(simd, x).mul_add(a, f32x16::from_slice(simd, y)).store_slice(y);
    }
    for (x, y) in x.remainder().iter().zip(y.into_remainder()) {
        *y += alpha * x;
    }
}

/// Pairwise sums: those of `a` in the lower half of the lanes, those of `b` in the upper half.
// A function, not a closure: a closure would lose the target features of the dispatched body.
#[inline(always)]
fn pair_sums<S: Simd>(a: f32x16<S>, b: f32x16<S>) -> f32x16<S> {
    a.unzip_low(b) + a.unzip_high(b)
}

/// The sum of the lanes of each of 16 vectors: lane i of the result is the sum of `vectors[i]`.
///
/// A tree of pairwise sums: three operations a vector, where a sum of its own would take eight.
#[inline(always)]
pub fn lane_sums<S: Simd>(v: [f32x16<S>; LANES]) -> f32x16<S> {
    let a = quad_sums([v[0], v[1], v[2], v[3]]);
    let b = quad_sums([v[4], v[5], v[6], v[7]]);
    let c = quad_sums([v[8], v[9], v[10], v[11]]);
    let d = quad_sums([v[12], v[13], v[14], v[15]]);
    quad_sums([a, b, c, d])
}

/// Vectors that [`quad_sums`] takes together.
pub const QUAD: usize = 4;

/// Four sums of four lanes of each of four vectors, vector after vector: twice applied, the sums of all lanes.
#[inline(always)]
pub fn quad_sums<S: Simd>([a, b, c, d]: [f32x16<S>; QUAD]) -> f32x16<S> {
    pair_sums(pair_sums(a, b), pair_sums(c, d))
}

/// Inner product of two slices of equal length.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    dispatch!(level(), simd => dot_in(simd, a, b))
}

/// `y += alpha * x` for slices of equal length.
pub fn axpy(alpha: f32, x: &[f32], y: &mut [f32]) {
    debug_assert_eq!(x.len(), y.len());
    dispatch!(level(), simd => axpy_in(simd, alpha, x, y));
}

/// Replaces each value by `e^(value - shift)` and returns their sum in f64.
pub fn exp_shifted(values: &mut [f32], shift: f32) -> f64 {
    #[inline(always)]
    fn body<S: Simd>(simd: S, values: &mut [f32], shift: f32) -> f64 {
        let mut total = 0.0;
        // Sums of 256 values stay exact enough in f32; longer ones are added in f64.
        for block in values.chunks_mut(256) {
            let mut sum = f32x16::splat(simd, 0.0);
            let mut lanes = block.chunks_exact_mut(LANES);
            for lane in &mut lanes {
                let e = exp(simd, f32x16::from_slice(simd, lane) - shift);
                e.store_slice(lane);
                sum += e;
            }
            total += f64::from(sum.reduce_sum());
            let tail = lanes.into_remainder();
            if !tail.is_empty() {
                let e = exp(simd, f32x16::from_fn(simd, |i| tail.get(i).copied().unwrap_or(0.0)) - shift);
                let e = &e.as_slice()[..tail.len()];
                tail.copy_from_slice(e);
                total += f64::from(e.iter().sum::<f32>());
            }
        }
        total
    }
    dispatch!(level(), simd => body(simd, values, shift))
}

/// Replaces each of whole vectors of values by `e^(value - shift)`, within vector code.
#[inline(always)]
pub fn exp_in<S: Simd>(simd: S, values: &mut [f32], shift: f32) {
    for lane in values.as_chunks_mut::<LANES>().0 {
        exp(simd, f32x16::load_array_ref(simd, lane) - shift).store_slice(lane);
    }
}

/// The largest value, or negative infinity for an empty slice.
pub fn max(values: &[f32]) -> f32 {
    dispatch!(level(), simd => max_in(simd, values))
}

/// As [`max`], within vector code.
#[inline(always)]
pub fn max_in<S: Simd>(simd: S, values: &[f32]) -> f32 {
    let mut best = f32x16::splat(simd, f32::NEG_INFINITY);
    let mut lanes = values.chunks_exact(LANES);
    for lane in &mut lanes {
        best = best.max(f32x16::from_slice(simd, lane));
    }
    lanes.remainder().iter().fold(best.reduce_max(), |a, &b| a.max(b))
}

/// Replaces each positive value by its natural logarithm.
pub fn ln_in_place(values: &mut [f32]) {
    #[inline(always)]
    fn body<S: Simd>(simd: S, values: &mut [f32]) {
        let mut lanes = values.chunks_exact_mut(LANES);
        for lane in &mut lanes {
            ln(simd, f32x16::from_slice(simd, lane)).store_slice(lane);
        }
        let tail = lanes.into_remainder();
        let padded = ln(simd, f32x16::from_fn(simd, |i| tail.get(i).copied().unwrap_or(1.0)));
        tail.copy_from_slice(&padded.as_slice()[..tail.len()]);
    }
    dispatch!(level(), simd => body(simd, values));
}

/// `sin(2 pi t)` in each lane for |t| <= 1/4, absolute error below 1e-6.
#[inline(always)]
fn sin_turns<S: Simd>(simd: S, t: f32x16<S>) -> f32x16<S> {
    let x = t * std::f32::consts::TAU;
    let square = x * x;
    let mut p = f32x16::splat(simd, 2.605_0e-6);
    for c in [-1.980_741_8e-4, 8.333_025e-3, -1.666_665_7e-1] {
        p = p.mul_add(square, f32x16::splat(simd, c));
    }
    (p * square).mul_add(x, x)
}

/// Fills `out` with standard normals by Box and Muller's transform: pair k of them is made from words 2k and
/// 2k+1 of `stream`, the cosine first.
pub fn fill_normals(stream: &Stream, out: &mut [f32]) {
    #[inline(always)]
    fn body<S: Simd>(simd: S, words: &[u32], out: &mut [f32]) {
        const SCALE: f32 = 1.0 / (1u32 << 24) as f32;
        let radius = f32x16::from_fn(simd, |i| ((words[2 * i] >> 8) + 1) as f32 * SCALE);
        let turn = f32x16::from_fn(simd, |i| (words[2 * i + 1] >> 8) as f32 * SCALE) - 0.5;
        let radius = (ln(simd, radius) * -2.0).max(f32x16::splat(simd, 0.0)).sqrt();
        let cosine = sin_turns(simd, f32x16::splat(simd, 0.25) - turn.abs());
        // Beyond a quarter turn the sine is that of the reflected angle.
        let reflected = f32x16::splat(simd, 0.5).copysign(turn) - turn;
        let near = turn.abs().simd_le(f32x16::splat(simd, 0.25));
        let sine = sin_turns(simd, near.select(turn, reflected));
        let (low, high) = (cosine * radius).interleave(sine * radius);
        low.store_slice(&mut out[..LANES]);
        high.store_slice(&mut out[LANES..2 * LANES]);
    }
    let mut words = [0; Stream::RUN];
    for (run, out) in out.chunks_mut(Stream::RUN).enumerate() {
        stream.fill((run * Stream::RUN / 4) as u32, &mut words);
        for (words, out) in words.chunks_exact(2 * LANES).zip(out.chunks_mut(2 * LANES)) {
            if out.len() == 2 * LANES {
                dispatch!(level(), simd => body(simd, words, out));
            } else {
                let mut padded = [0.0; 2 * LANES];
                dispatch!(level(), simd => body(simd, words, &mut padded));
                out.copy_from_slice(&padded[..out.len()]);
            }
        }
    }
}

/// Asks the processor to load the cache lines of `row` soon.
#[inline(always)]
pub fn prefetch(row: &[f32]) {
    prefetch_at(row.as_ptr(), row.len());
}

/// As [`prefetch`], for `len` floats at any address: nothing is read or written.
#[inline(always)]
pub fn prefetch_at(row: *const f32, len: usize) {
    for line in (0..len).step_by(LANES) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: prefetching has no effect on memory and accepts any address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(line).cast());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) row.wrapping_add(line), options(nostack, preserves_flags));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = (row, line);
    }
}

/// Every instruction set that this machine has.
#[cfg(test)]
pub(crate) fn levels() -> Vec<Level> {
    let mut levels = vec![Level::new()];
    levels.extend(FORCED.iter().filter_map(|name| forced_level(name)));
    levels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::Purpose;

    fn values(n: usize, scale: f64) -> Vec<f32> {
        let mut stream = Stream::new(3, Purpose::Initialise, 0, n as u32);
        (0..n).map(|_| (stream.normal() * scale) as f32).collect()
    }

    #[test]
    fn every_level_agrees_with_scalar_code_on_dot_and_axpy() {
        for level in levels() {
            for n in [0, 1, 15, 16, 17, 32, 200, 603] {
                let (a, b) = (values(n, 1.0), values(n + 1, 1.0));
                let expected: f64 = a.iter().zip(&b).map(|(x, y)| f64::from(x * y)).sum();
                let got = dispatch!(level, simd => dot_in(simd, &a, &b[..n]));
                assert!((f64::from(got) - expected).abs() < 1e-4, "{level:?} {n}");
                let mut y = b[..n].to_vec();
                dispatch!(level, simd => axpy_in(simd, 0.7, &a, &mut y));
                assert!(y.iter().zip(&a).zip(&b).all(|((y, a), b)| (y - (b + 0.7 * a)).abs() < 1e-5));
            }
        }
    }

    #[test]
    fn vector_exp_and_ln_are_as_exact_as_f32_allows() {
        for level in levels() {
            for x in values(4096, 25.0) {
                let e = dispatch!(level, simd => exp(simd, f32x16::splat(simd, x)).as_slice()[3]);
                let expected = f64::from(x.clamp(-87.0, 87.0)).exp();
                assert!((f64::from(e) / expected - 1.0).abs() < 3e-7, "exp({x}) = {e} on {level:?}");
                let positive = x.abs().max(1e-30);
                let l = dispatch!(level, simd => ln(simd, f32x16::splat(simd, positive)).as_slice()[3]);
                let expected = f64::from(positive).ln();
                assert!(
                    (f64::from(l) - expected).abs() < 3e-7 * expected.abs().max(1.0),
                    "ln({positive}) = {l}"
                );
            }
        }
    }

    #[test]
    fn lane_sums_keep_the_order_of_the_vectors() {
        for level in levels() {
            let sums = dispatch!(level, simd => {
                let vectors = std::array::from_fn(|i| f32x16::from_fn(simd, |lane| (100 * i + lane) as f32));
                lane_sums(vectors).as_slice().to_vec()
            });
            assert!(sums.iter().enumerate().all(|(i, &sum)| sum == (1600 * i + 120) as f32), "{sums:?}");
        }
    }

    #[test]
    fn normals_equal_box_and_muller_in_f64() {
        let stream = Stream::new(9, Purpose::Latent, 1, 2);
        let mut out = vec![0.0; 1003];
        fill_normals(&stream, &mut out);
        let mut words = vec![0; 1004];
        stream.fill(0, &mut words);
        for (pair, words) in out.chunks(2).zip(words.chunks(2)) {
            let unit = |word: u32| f64::from(word >> 8) / f64::from(1 << 24);
            let radius = (-2.0 * (unit(words[0]) + 1.0 / f64::from(1 << 24)).ln()).sqrt();
            let angle = std::f64::consts::TAU * (unit(words[1]) - 0.5);
            for (got, want) in pair.iter().zip([radius * angle.cos(), radius * angle.sin()]) {
                assert!((f64::from(*got) - want).abs() < 2e-5, "{got} {want}");
            }
        }
    }

    #[test]
    fn shifted_exponentials_and_maxima_cover_tails() {
        for n in [1, 16, 300, 1001] {
            let mut v = values(n, 3.0);
            let shift = max(&v);
            assert_eq!(shift, v.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let expected: f64 = v.iter().map(|x| f64::from(x - shift).exp()).sum();
            assert!((exp_shifted(&mut v, shift) / expected - 1.0).abs() < 1e-6);
            let before = v.clone();
            ln_in_place(&mut v);
            assert!(v.iter().zip(&before).all(|(l, b)| (l - b.ln()).abs() < 1e-5));
        }
    }
}
