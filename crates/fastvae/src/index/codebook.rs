//! [`Codebook`]: the K codewords of one subspace, and their inner products with a query.

use std::ops::Range;

use fearless_simd::{dispatch, f32x16, prelude::*};

use crate::math::matrix::LANES;
use crate::math::{Matrix, simd};

/// The codewords of one subspace, kept twice: as rows, and transposed so that the lanes of a vector are
/// codewords and a query meets sixteen of them at a time.
#[derive(Debug, Clone)]
pub struct Codebook {
    columns: Range<usize>,
    codewords: Matrix,
    transposed: Matrix,
}

impl Codebook {
    /// A codebook over the item vectors' `columns`, with one codeword per row of `codewords`.
    ///
    /// # Panics
    /// If a codeword is not as long as the range.
    pub fn new(columns: Range<usize>, codewords: Matrix) -> Self {
        assert_eq!(codewords.cols(), columns.len(), "a codeword spans its columns");
        let mut transposed = Matrix::zeros(columns.len(), codewords.rows());
        for k in 0..codewords.rows() {
            for d in 0..columns.len() {
                transposed.row_mut(d)[k] = codewords.row(k)[d];
            }
        }
        Self { columns, codewords, transposed }
    }

    /// Number of codewords (K).
    pub fn len(&self) -> usize {
        self.codewords.rows()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The columns of the item vectors that this codebook codes.
    pub fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// The codewords, `n_codewords x columns`.
    pub fn codewords(&self) -> &Matrix {
        &self.codewords
    }

    /// Codeword `k`, without padding.
    pub fn codeword(&self, k: usize) -> &[f32] {
        &self.codewords.row(k)[..self.columns.len()]
    }

    /// Codeword numbers as the lanes: `columns x n_codewords`, padded with zeros.
    pub(crate) fn transposed(&self) -> &Matrix {
        &self.transposed
    }

    /// Length of a row of [`Codebook::scores`]: the number of codewords rounded up to whole vectors.
    pub fn score_len(&self) -> usize {
        self.transposed.stride()
    }

    /// `out[k] = query[columns] . codeword k` for the first [`Codebook::len`] entries of `out`; the padding up
    /// to [`Codebook::score_len`] becomes zero.
    ///
    /// # Panics
    /// If `query` is shorter than the columns or `out` than [`Codebook::score_len`].
    pub fn scores(&self, query: &[f32], out: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(simd: S, query: &[f32], transposed: &Matrix, out: &mut [f32]) {
            let (lines, _) = transposed.data().as_chunks::<LANES>();
            let (out, _) = out.as_chunks_mut::<LANES>();
            let n_lines = transposed.stride() / LANES;
            let (fours, rest) = query.as_chunks::<4>();
            for (line, out) in out.iter_mut().enumerate().take(n_lines) {
                // Four sums hide the latency of the multiply-add; an array of them would go through memory.
                let zero = f32x16::splat(simd, 0.0);
                let (mut a, mut b, mut c, mut d) = (zero, zero, zero, zero);
                for (rows, z) in lines.chunks_exact(4 * n_lines).zip(fours) {
                    a = f32x16::load_array_ref(simd, &rows[line]).mul_add(f32x16::splat(simd, z[0]), a);
                    b = f32x16::load_array_ref(simd, &rows[n_lines + line])
                        .mul_add(f32x16::splat(simd, z[1]), b);
                    c = f32x16::load_array_ref(simd, &rows[2 * n_lines + line])
                        .mul_add(f32x16::splat(simd, z[2]), c);
                    d = f32x16::load_array_ref(simd, &rows[3 * n_lines + line])
                        .mul_add(f32x16::splat(simd, z[3]), d);
                }
                for (rows, z) in lines[4 * n_lines * fours.len()..].chunks_exact(n_lines).zip(rest) {
                    a = f32x16::load_array_ref(simd, &rows[line]).mul_add(f32x16::splat(simd, *z), a);
                }
                ((a + b) + (c + d)).store_array(out);
            }
        }
        let query = &query[self.columns.clone()];
        dispatch!(simd::level(), simd => body(simd, query, &self.transposed, out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_inner_products_with_the_columns_of_the_query() {
        let codewords = Matrix::from_rows(3, 2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let codebook = Codebook::new(1..3, codewords);
        let mut scores = vec![9.0; codebook.score_len()];
        codebook.scores(&[7.0, 1.0, 10.0, 7.0], &mut scores);
        assert_eq!(scores[..3], [21.0, 43.0, 65.0]);
        assert!(scores[3..].iter().all(|&padding| padding == 0.0));
    }
}
