//! k-means by Lloyd's iterations, over a few columns of the item vectors.
//!
//! Points are read block by block, so that no `n_items x K` matrix and no copy of the item vectors exists:
//! memory is O(n_items + K D). Work is cut into a fixed number of strips whose partial sums are added in order;
//! the result is the same, bit for bit, at any number of threads.

use std::ops::Range;

use fearless_simd::{dispatch, f32x16, i32x16, prelude::*};
use rayon::prelude::*;

use super::codebook::Codebook;
use crate::math::matrix::LANES;
use crate::math::{Matrix, MatrixView, Purpose, Stream, simd};

/// Iterations from random codewords.
pub const COLD_ITERATIONS: usize = 10;
/// Iterations from the codewords of the last refresh.
pub const WARM_ITERATIONS: usize = 3;
/// Points that the iterations look at, at most (or 256 per codeword, if that is more). A refresh must cost far less than an
/// epoch, and more bring the proposal no closer: over 40 epochs on Gowalla its mean divergence from the softmax is .34 to .38
/// with these and .35 to .38 with all 40,988.
pub const SAMPLE: usize = 1 << 14;

/// Parts that the points are cut into, whatever the number of threads.
const STRIPS: usize = 32;
/// Points loaded at a time; with 256 columns they fill half of a first-level cache.
const BLOCK: usize = 64;
/// Points that share each load of sixteen codewords.
const TOGETHER: usize = 8;
/// Points per codeword among which the first codewords are chosen.
const SEEDS: usize = 16;
/// Points looked at to give an empty cluster a far one.
const CANDIDATES: usize = 64;

/// Item vectors as the points of one codebook: some columns, less what earlier codebooks have coded.
#[derive(Debug, Clone)]
pub struct Points<'a> {
    vectors: MatrixView<'a>,
    columns: Range<usize>,
    /// Codebooks over the same columns with their codes of all items; empty for product quantisation.
    earlier: Vec<(&'a Codebook, &'a [u8])>,
}

impl<'a> Points<'a> {
    /// The `columns` of `vectors`.
    pub fn new(vectors: MatrixView<'a>, columns: Range<usize>) -> Self {
        Self { vectors, columns, earlier: Vec::new() }
    }

    /// The same points, less the codewords of `codebook` that `codes` names for each.
    pub fn without(mut self, codebook: &'a Codebook, codes: &'a [u8]) -> Self {
        self.earlier.push((codebook, codes));
        self
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.vectors.rows()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn load(&self, point: usize, out: &mut [f32]) {
        let width = self.columns.len();
        out[..width].copy_from_slice(&self.vectors.row(point)[self.columns.clone()]);
        for (codebook, codes) in &self.earlier {
            let codeword = codebook.codeword(usize::from(codes[point]));
            out[..width].iter_mut().zip(codeword).for_each(|(x, c)| *x -= c);
        }
    }
}

/// What [`cluster`] found.
#[derive(Debug, Clone)]
pub struct Clustering {
    /// The codewords over the points' columns.
    pub codebook: Codebook,
    /// The nearest codeword of each point.
    pub codes: Vec<u8>,
    /// Mean squared distance of a point to its codeword.
    pub distortion: f64,
}

/// Clusters `points` around `n_codewords` codewords, starting from `warm` where given.
///
/// Iterations run on a sample of the points where there are many; the codes are of all points. `part` tells apart the random numbers of
/// several codebooks. Cost: O(iterations x sample x K D + n K D).
///
/// # Panics
/// If `n_codewords` is 0 or above 256, there are no points, or `warm` has another shape.
pub fn cluster(
    points: &Points<'_>,
    n_codewords: usize,
    warm: Option<&Codebook>,
    seed: u64,
    epoch: u32,
    part: u16,
) -> Clustering {
    assert!(
        (1..=256).contains(&n_codewords) && !points.is_empty(),
        "between 1 and 256 codewords, and points"
    );
    let mut stream = Stream::with_part(seed, Purpose::KMeans, part, epoch, 0);
    let sample = Sample::of(points.len(), SAMPLE.max(256 * n_codewords), &mut stream);
    let (mut codebook, iterations) = match warm {
        Some(codebook) => {
            assert_eq!(
                (codebook.len(), codebook.columns()),
                (n_codewords, points.columns.clone()),
                "a warm start"
            );
            (codebook.clone(), WARM_ITERATIONS)
        }
        None => (first_codewords(points, n_codewords, &mut stream), COLD_ITERATIONS),
    };
    for _ in 0..iterations {
        codebook = moved(points, &sample, &codebook, &mut stream);
    }
    let mut codes = vec![0; points.len()];
    let distortion = assign(points, &codebook, &mut codes);
    Clustering { codebook, codes, distortion }
}

/// How [`cluster`] starts: the offset of its sample and, unless `warm`, the first codewords.
#[cfg(feature = "cuda")]
pub(crate) fn start(
    points: &Points<'_>,
    n_codewords: usize,
    warm: bool,
    seed: u64,
    epoch: u32,
    part: u16,
) -> (usize, Option<Codebook>) {
    let mut stream = Stream::with_part(seed, Purpose::KMeans, part, epoch, 0);
    let sample = Sample::of(points.len(), SAMPLE.max(256 * n_codewords), &mut stream);
    (sample.offset, (!warm).then(|| first_codewords(points, n_codewords, &mut stream)))
}

/// Evenly spaced points: `n` of `of`, the whole or a part.
#[derive(Debug, Clone, Copy)]
struct Sample {
    n: usize,
    of: usize,
    offset: usize,
}

impl Sample {
    fn of(of: usize, most: usize, stream: &mut Stream) -> Self {
        let n = of.min(most);
        let offset = if n < of { stream.below(of as u64) as usize } else { 0 };
        Self { n, of, offset }
    }

    #[inline(always)]
    fn point(&self, i: usize) -> usize {
        if self.n == self.of { i } else { (i * self.of + self.offset) / self.n }
    }
}

/// The first codewords: each drawn with probability proportional to the squared distance to those before it
/// (k-means++), among a few points per codeword.
fn first_codewords(points: &Points<'_>, n_codewords: usize, stream: &mut Stream) -> Codebook {
    let width = points.columns.len();
    let sample = Sample::of(points.len(), SEEDS * n_codewords, stream);
    let mut candidates = Matrix::zeros(sample.n, width);
    for i in 0..sample.n {
        points.load(sample.point(i), candidates.row_mut(i));
    }
    let mut codewords = Matrix::zeros(n_codewords, width);
    let mut distances = vec![f64::INFINITY; sample.n];
    let mut chosen = stream.below(sample.n as u64) as usize;
    for k in 0..n_codewords {
        codewords.row_mut(k).copy_from_slice(candidates.row(chosen));
        for (i, distance) in distances.iter_mut().enumerate() {
            *distance = distance.min(squared_distance(candidates.row(i), candidates.row(chosen)));
        }
        let mut target = stream.uniform() * distances.iter().sum::<f64>();
        chosen = distances
            .iter()
            .position(|&distance| {
                target -= distance;
                target < 0.0
            })
            .unwrap_or(sample.n - 1);
    }
    Codebook::new(points.columns.clone(), codewords)
}

fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    let sum: f32 = a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum();
    f64::from(sum)
}

/// One Lloyd iteration: the mean of each cluster's points, and a far point for each cluster that has none.
fn moved(points: &Points<'_>, sample: &Sample, codebook: &Codebook, stream: &mut Stream) -> Codebook {
    let width = points.columns.len();
    let n_codewords = codebook.len();
    let half_norms = half_norms(codebook);
    let partial: Vec<(Matrix, Vec<u32>)> = strips(sample.n)
        .into_par_iter()
        .map(|strip| {
            let (mut sums, mut counts) = (Matrix::zeros(n_codewords, width), vec![0u32; n_codewords]);
            let mut loaded = Matrix::zeros(BLOCK, width);
            for start in strip.clone().step_by(BLOCK) {
                let n = BLOCK.min(strip.end - start);
                for i in 0..n {
                    points.load(sample.point(start + i), loaded.row_mut(i));
                }
                dispatch!(simd::level(), simd => {
                    let mut nearest = [(0, 0.0); BLOCK];
                    nearest_in(simd, &loaded, n, codebook.transposed(), &half_norms, &mut nearest);
                    for (i, &(k, _)) in nearest[..n].iter().enumerate() {
                        counts[k as usize] += 1;
                        simd::axpy_in(simd, 1.0, loaded.row(i), sums.row_mut(k as usize));
                    }
                });
            }
            (sums, counts)
        })
        .collect();
    let mut codewords = Matrix::zeros(n_codewords, width);
    for k in 0..n_codewords {
        let count: u64 = partial.iter().map(|(_, counts)| u64::from(counts[k])).sum();
        if count == 0 {
            let far = far_point(points, codebook, &half_norms, stream);
            points.load(far, codewords.row_mut(k));
            continue;
        }
        for d in 0..width {
            let sum: f64 = partial.iter().map(|(sums, _)| f64::from(sums.row(k)[d])).sum();
            codewords.row_mut(k)[d] = (sum / count as f64) as f32;
        }
    }
    Codebook::new(points.columns.clone(), codewords)
}

/// The farthest from its codeword of a few random points.
fn far_point(points: &Points<'_>, codebook: &Codebook, half_norms: &[f32], stream: &mut Stream) -> usize {
    let mut loaded = Matrix::zeros(BLOCK, points.columns.len());
    let mut best = (f32::NEG_INFINITY, 0);
    for _ in 0..CANDIDATES.div_ceil(BLOCK) {
        let drawn: Vec<usize> = (0..BLOCK).map(|_| stream.below(points.len() as u64) as usize).collect();
        for (i, &point) in drawn.iter().enumerate() {
            points.load(point, loaded.row_mut(i));
        }
        let mut nearest = [(0, 0.0); BLOCK];
        dispatch!(simd::level(), simd =>
            nearest_in(simd, &loaded, BLOCK, codebook.transposed(), half_norms, &mut nearest));
        for (i, &point) in drawn.iter().enumerate() {
            let distance = simd::dot(loaded.row(i), loaded.row(i)) - 2.0 * nearest[i].1;
            if distance > best.0 {
                best = (distance, point);
            }
        }
    }
    best.1
}

/// Writes the nearest codeword of every point and returns the mean squared distance.
fn assign(points: &Points<'_>, codebook: &Codebook, codes: &mut [u8]) -> f64 {
    let half_norms = half_norms(codebook);
    let strip = codes.len().div_ceil(STRIPS).max(1);
    let distances: Vec<f64> = codes
        .par_chunks_mut(strip)
        .enumerate()
        .map(|(number, codes)| {
            let mut loaded = Matrix::zeros(BLOCK, points.columns.len());
            let mut total = 0.0;
            for (block, codes) in codes.chunks_mut(BLOCK).enumerate() {
                for i in 0..codes.len() {
                    points.load(number * strip + block * BLOCK + i, loaded.row_mut(i));
                }
                dispatch!(simd::level(), simd => {
                    let mut nearest = [(0, 0.0); BLOCK];
                    nearest_in(simd, &loaded, codes.len(), codebook.transposed(), &half_norms, &mut nearest);
                    for (i, (code, (k, score))) in codes.iter_mut().zip(nearest).enumerate() {
                        *code = k;
                        let norm = simd::dot_in(simd, loaded.row(i), loaded.row(i));
                        // The difference of large squares may fall below zero by rounding.
                        total += f64::from((norm - 2.0 * score).max(0.0));
                    }
                });
            }
            total
        })
        .collect();
    distances.iter().sum::<f64>() / codes.len() as f64
}

fn strips(n: usize) -> Vec<Range<usize>> {
    let strip = n.div_ceil(STRIPS).max(1);
    (0..n).step_by(strip).map(|start| start..n.min(start + strip)).collect()
}

/// |c|^2 / 2 of each codeword, infinite for the padding, so that it is never the nearest.
fn half_norms(codebook: &Codebook) -> Vec<f32> {
    let mut norms = vec![f32::INFINITY; codebook.score_len()];
    for (k, norm) in norms[..codebook.len()].iter_mut().enumerate() {
        *norm = codebook.codeword(k).iter().map(|c| c * c).sum::<f32>() / 2.0;
    }
    norms
}

/// For the first `n` rows of `loaded`, the codeword with the largest `x . c - |c|^2 / 2` (the nearest; the
/// lowest of equals) and that value.
#[inline(always)]
fn nearest_in<S: Simd>(
    simd: S,
    loaded: &Matrix,
    n: usize,
    transposed: &Matrix,
    half_norms: &[f32],
    nearest: &mut [(u8, f32); BLOCK],
) {
    let (width, row_stride) = (transposed.rows(), loaded.stride());
    let (lines, _) = transposed.data().as_chunks::<LANES>();
    let lines_per_row = transposed.stride() / LANES;
    let lanes = i32x16::from_fn(simd, |lane| lane as i32);
    for first in (0..n).step_by(TOGETHER) {
        // Rows beyond `n` hold older points; their results are not read.
        let block = &loaded.data()[first * row_stride..][..TOGETHER * row_stride];
        let mut rows = [block; TOGETHER];
        for (p, row) in rows.iter_mut().enumerate() {
            *row = &block[p * row_stride..][..width];
        }
        let mut best = [f32x16::splat(simd, f32::NEG_INFINITY); TOGETHER];
        let mut winners = [i32x16::splat(simd, 0); TOGETHER];
        for line in 0..lines_per_row {
            let start = -f32x16::from_slice(simd, &half_norms[line * LANES..][..LANES]);
            let mut scores = [start; TOGETHER];
            for d in 0..width {
                let centre = f32x16::load_array_ref(simd, &lines[d * lines_per_row + line]);
                for p in 0..TOGETHER {
                    scores[p] = centre.mul_add(f32x16::splat(simd, rows[p][d]), scores[p]);
                }
            }
            let numbers = lanes + (line * LANES) as i32;
            for p in 0..TOGETHER {
                let better = scores[p].simd_gt(best[p]);
                best[p] = better.select(scores[p], best[p]);
                winners[p] = better.select(numbers, winners[p]);
            }
        }
        for p in 0..TOGETHER.min(n - first) {
            let score = best[p].reduce_max();
            let tied = best[p].simd_eq(f32x16::splat(simd, score));
            // A point that is not a number ties with nothing and goes to the first codeword.
            let k = tied.select(winners[p], i32x16::splat(simd, i32::MAX)).reduce_min();
            nearest[first + p] = (if k == i32::MAX { 0 } else { k as u8 }, score);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(rows: usize, cols: usize, seed: u64) -> Matrix {
        let mut stream = Stream::new(seed, Purpose::Initialise, 0, 0);
        Matrix::from_rows(rows, cols, &(0..rows * cols).map(|_| stream.normal() as f32).collect::<Vec<_>>())
    }

    fn naive_codes(points: &Points<'_>, codebook: &Codebook) -> (Vec<u8>, f64) {
        let mut point = vec![0.0; codebook.columns().len()];
        let mut total = 0.0;
        let codes = (0..points.len())
            .map(|i| {
                points.load(i, &mut point);
                let distances = (0..codebook.len()).map(|k| squared_distance(&point, codebook.codeword(k)));
                let (k, distance) = distances.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
                total += distance;
                k as u8
            })
            .collect();
        (codes, total / points.len() as f64)
    }

    #[test]
    fn codes_name_the_nearest_codeword() {
        for (cols, n_codewords) in [(5, 3), (16, 16), (33, 20), (40, 256)] {
            let vectors = random(1003, cols + 2, cols as u64);
            let points = Points::new(vectors.view(), 1..cols + 1);
            let found = cluster(&points, n_codewords, None, 1, 0, 0);
            let (codes, distortion) = naive_codes(&points, &found.codebook);
            let differ = codes.iter().zip(&found.codes).filter(|(a, b)| a != b).count();
            // Only points within rounding of the boundary may differ.
            assert!(differ <= 1, "{differ} codes differ");
            assert!((found.distortion / distortion - 1.0).abs() < 1e-4);
        }
    }

    #[test]
    fn iterations_decrease_the_distortion_and_a_warm_start_goes_on() {
        let vectors = random(5000, 16, 3);
        let points = Points::new(vectors.view(), 0..16);
        let mut stream = Stream::new(0, Purpose::KMeans, 0, 0);
        let sample = Sample::of(5000, SAMPLE, &mut stream);
        let mut codebook = first_codewords(&points, 16, &mut stream);
        let mut codes = vec![0; 5000];
        let mut last = assign(&points, &codebook, &mut codes);
        for _ in 0..5 {
            codebook = moved(&points, &sample, &codebook, &mut stream);
            let distortion = assign(&points, &codebook, &mut codes);
            assert!(distortion <= last * (1.0 + 1e-6), "{distortion} after {last}");
            last = distortion;
        }
        let warm = cluster(&points, 16, Some(&codebook), 0, 1, 0);
        assert!(warm.distortion <= last * (1.0 + 1e-6));
    }

    #[test]
    fn empty_clusters_are_given_far_points() {
        let vectors = random(500, 4, 4);
        let points = Points::new(vectors.view(), 0..4);
        // All points are nearer to the first codeword than to the others, far away.
        let far =
            Codebook::new(0..4, Matrix::from_rows(4, 4, &[[0.0; 4], [1e3; 4], [2e3; 4], [3e3; 4]].concat()));
        let found = cluster(&points, 4, Some(&far), 0, 0, 0);
        for k in 0..4 {
            assert!(found.codes.contains(&k), "codeword {k} owns no point");
        }
    }

    #[test]
    fn the_result_does_not_depend_on_the_number_of_threads() {
        let vectors = random(SAMPLE + 5000, 6, 5);
        let at = |threads| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
                let found = cluster(&Points::new(vectors.view(), 2..6), 19, None, 7, 2, 1);
                (found.codes, found.codebook.codewords().data().to_vec(), found.distortion)
            })
        };
        let one = at(1);
        assert!(one == at(2) && one == at(5));
    }

    #[test]
    fn points_that_are_not_numbers_are_coded_all_the_same() {
        let vectors = Matrix::from_rows(40, 3, &[f32::NAN; 120]);
        let found = cluster(&Points::new(vectors.view(), 0..3), 3, None, 0, 0, 0);
        assert!(found.codes.iter().all(|&code| code < 3));
    }
}
