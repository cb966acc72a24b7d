//! The inverse of a symmetric positive definite matrix, in place.

use rayon::prelude::*;

use crate::math::dense::{Operand, product};
use crate::math::{Matrix, MatrixView};

/// Rows and columns eliminated at a time: wide enough for the product to run at full speed.
const BLOCK: usize = 128;
/// Rows that one task updates.
const STRIP: usize = 256;

/// Replaces the symmetric positive definite `a` by its inverse, by Gauss and Jordan's elimination in blocks.
///
/// Pivots are the diagonal blocks, which for such a matrix needs no search. All but a small part of the
/// 2 n^3 operations are dense products, spread over the current thread pool. Memory: 2 x [`BLOCK`] rows.
///
/// # Panics
/// If `a` is not square.
pub(crate) fn invert(a: &mut Matrix) {
    let n = a.rows();
    assert_eq!(n, a.cols(), "only square matrices have inverses");
    let stride = a.stride();
    for start in (0..n).step_by(BLOCK) {
        let width = BLOCK.min(n - start);
        let pivot = small_inverse(a.view().rows_from(start, width).columns(start, width));
        // The pivot's rows, times the pivot's inverse; its own columns become that inverse.
        let mut rows = Matrix::zeros(width, n);
        product(
            rows.data_mut(),
            stride,
            false,
            Operand::Plain(pivot.view()),
            Operand::Plain(a.view().rows_from(start, width)),
        );
        for row in 0..width {
            rows.row_mut(row)[start..start + width].copy_from_slice(&pivot.row(row)[..width]);
        }
        let reduced = &rows;
        a.data_mut().par_chunks_mut(STRIP * stride).enumerate().for_each(|(strip, data)| {
            let first = strip * STRIP;
            let n_rows = data.len() / stride;
            // a_ik, negated, for the strip's rows i; none for the pivot's own rows, which are replaced below.
            let mut column = Matrix::zeros(n_rows, width);
            for (row, values) in data.chunks_mut(stride).enumerate() {
                if !(start..start + width).contains(&(first + row)) {
                    for (to, from) in column.row_mut(row).iter_mut().zip(&mut values[start..start + width]) {
                        *to = -std::mem::take(from);
                    }
                }
            }
            product(data, stride, true, Operand::Plain(column.view()), Operand::Plain(reduced.view()));
            for (row, values) in data.chunks_mut(stride).enumerate() {
                if let Some(at) = (first + row).checked_sub(start).filter(|&at| at < width) {
                    values[..n].copy_from_slice(&reduced.row(at)[..n]);
                }
            }
        });
    }
}

/// The inverse of a small symmetric positive definite matrix, in double precision.
fn small_inverse(a: MatrixView<'_>) -> Matrix {
    let n = a.rows();
    let mut work: Vec<f64> = (0..n).flat_map(|row| a.row(row).iter().map(|&v| f64::from(v))).collect();
    for k in 0..n {
        let scale = 1.0 / work[k * n + k];
        let mut pivot: Vec<f64> = work[k * n..][..n].iter().map(|v| v * scale).collect();
        pivot[k] = scale;
        for row in 0..n {
            let values = &mut work[row * n..][..n];
            if row == k {
                values.copy_from_slice(&pivot);
            } else {
                let factor = std::mem::take(&mut values[k]);
                values.iter_mut().zip(&pivot).for_each(|(value, p)| *value -= factor * p);
            }
        }
    }
    Matrix::from_rows(n, n, &work.iter().map(|&v| v as f32).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{Purpose, Stream};

    #[test]
    fn the_inverse_times_the_matrix_is_the_identity() {
        for n in [1, 5, 128, 129, 300, 515] {
            let mut stream = Stream::new(n as u64, Purpose::Initialise, 0, 0);
            let values: Vec<f32> = (0..n * n).map(|_| stream.normal() as f32).collect();
            let x = Matrix::from_rows(n, n, &values);
            let mut a = Matrix::zeros(n, n);
            let stride = a.stride();
            product(a.data_mut(), stride, false, Operand::Transposed(x.view()), Operand::Plain(x.view()));
            (0..n).for_each(|i| a.row_mut(i)[i] += n as f32);
            let mut inverse = a.clone();
            invert(&mut inverse);
            for i in (0..n).step_by(1 + n / 40) {
                for j in 0..n {
                    let sum: f64 =
                        (0..n).map(|k| f64::from(a.row(i)[k]) * f64::from(inverse.row(k)[j])).sum();
                    let expected = f64::from(u8::from(i == j));
                    assert!((sum - expected).abs() < 1e-3, "{n}: ({i}, {j}) is {sum}");
                }
                assert!(inverse.row(i)[n..].iter().all(|&padding| padding == 0.0));
            }
        }
    }
}
