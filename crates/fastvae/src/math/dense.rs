//! Dense matrix products, single-threaded: callers split the work over threads themselves.

use crate::math::MatrixView;

/// An operand of [`product`]: a view as it is or transposed.
#[derive(Debug, Clone, Copy)]
pub enum Operand<'a> {
    /// The matrix as it is.
    Plain(MatrixView<'a>),
    /// Its transpose.
    Transposed(MatrixView<'a>),
}

impl Operand<'_> {
    /// Rows and columns after any transposition.
    fn shape(&self) -> (usize, usize) {
        match self {
            Self::Plain(view) => (view.rows(), view.cols()),
            Self::Transposed(view) => (view.cols(), view.rows()),
        }
    }

    /// Pointer, column stride, row stride.
    fn layout(&self) -> (*const f32, isize, isize) {
        match self {
            Self::Plain(view) => (view.data().as_ptr(), 1, view.stride() as isize),
            Self::Transposed(view) => (view.data().as_ptr(), view.stride() as isize, 1),
        }
    }
}

/// `out = keep * out + left * right`, with `out` row-major of the given stride; `keep` is 0 or 1.
///
/// # Panics
/// If the shapes do not match or `out` is too short.
pub fn product(out: &mut [f32], out_stride: usize, keep: bool, left: Operand<'_>, right: Operand<'_>) {
    let (m, k) = left.shape();
    let (k2, n) = right.shape();
    assert_eq!(k, k2, "inner sizes of a product");
    if m == 0 || n == 0 {
        return;
    }
    assert!(out_stride >= n && out.len() >= (m - 1) * out_stride + n, "room for a {m} x {n} product");
    let (left, left_cs, left_rs) = left.layout();
    let (right, right_cs, right_rs) = right.layout();
    // The kernel writes columns, and `out` has rows: it is given out^T = right^T left^T.
    // SAFETY: a view holds at least (rows - 1) * stride + cols readable floats, all that a product reads; the
    // assertion above says the same of `out`, which cannot alias them since it is borrowed exclusively.
    unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            n,
            m,
            k,
            out.as_mut_ptr(),
            out_stride as isize,
            1,
            keep,
            right,
            right_rs,
            right_cs,
            left,
            left_rs,
            left_cs,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm_common::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{Matrix, Purpose, Stream};

    fn random(rows: usize, cols: usize, seed: u64) -> Matrix {
        let mut stream = Stream::new(seed, Purpose::Initialise, 0, 0);
        Matrix::from_rows(rows, cols, &(0..rows * cols).map(|_| stream.normal() as f32).collect::<Vec<_>>())
    }

    #[test]
    fn products_equal_the_triple_loop() {
        let (a, b, bt) = (random(7, 33, 1), random(33, 21, 2), random(21, 33, 3));
        let mut plain = vec![1.0; 7 * 24];
        product(&mut plain, 24, true, Operand::Plain(a.view()), Operand::Plain(b.view()));
        let mut transposed = vec![9.0; 7 * 24];
        product(&mut transposed, 24, false, Operand::Plain(a.view()), Operand::Transposed(bt.view()));
        for i in 0..7 {
            for j in 0..21 {
                let sum: f32 = (0..33).map(|k| a.row(i)[k] * b.row(k)[j]).sum();
                assert!((plain[i * 24 + j] - 1.0 - sum).abs() < 1e-4);
                let sum: f32 = (0..33).map(|k| a.row(i)[k] * bt.row(j)[k]).sum();
                assert!((transposed[i * 24 + j] - sum).abs() < 1e-4);
            }
        }
    }
}
