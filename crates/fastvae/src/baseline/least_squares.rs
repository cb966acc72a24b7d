//! Many small weighted least-squares problems over one table, by conjugate gradient.
//!
//! Vector x with interactions S solves (G + alpha sum w y y^T + pull I) x = sum (1 + alpha w) y over the rows y of
//! S, where G = Y^T Y is shared. Blocks of vectors take their steps together: G times all of them is one dense
//! product, and the rest follows the interactions.

use fearless_simd::{dispatch, prelude::*};
use rayon::prelude::*;

use crate::math::dense::{Operand, product};
use crate::math::simd::{axpy_in, dot_in, level, prefetch};
use crate::math::{Matrix, MatrixView};

/// Vectors solved for together; fixed, so that results do not depend on the threads.
const BLOCK: usize = 64;
/// Rows whose outer products are summed in one product.
const GRAM_ROWS: usize = 4096;
/// Squared residual, over that of the start, at which a vector is left alone.
const CONVERGED: f32 = 1e-10;

/// What the vectors of one side have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Problem<'a> {
    /// The vectors of the other side, Y.
    pub(crate) others: MatrixView<'a>,
    /// Y^T Y.
    pub(crate) gram: MatrixView<'a>,
    /// How much more an interaction of weight 1 counts than none.
    pub(crate) alpha: f32,
}

/// One vector's interactions, their weights, and its pull to zero.
pub(crate) type Observations<'a> = (&'a [u32], Option<&'a [f32]>, f32);

/// Y^T Y, summed in an order that does not depend on the threads.
pub(crate) fn gram(rows: MatrixView<'_>) -> Matrix {
    let dim = rows.cols();
    let parts: Vec<Matrix> = (0..rows.rows().div_ceil(GRAM_ROWS))
        .into_par_iter()
        .map(|part| {
            let first = part * GRAM_ROWS;
            let view = rows.rows_from(first, GRAM_ROWS.min(rows.rows() - first));
            let mut sum = Matrix::zeros(dim, dim);
            let stride = sum.stride();
            product(sum.data_mut(), stride, false, Operand::Transposed(view), Operand::Plain(view));
            sum
        })
        .collect();
    let mut total = Matrix::zeros(dim, dim);
    for part in &parts {
        total.data_mut().iter_mut().zip(part.data()).for_each(|(sum, value)| *sum += value);
    }
    total
}

/// Takes `steps` steps of conjugate gradient towards the solution for every row of `vectors`, from where it is.
pub(crate) fn solve_all<'a>(
    problem: &Problem<'_>,
    vectors: &mut Matrix,
    steps: usize,
    observations: impl Fn(usize) -> Observations<'a> + Sync,
) {
    let stride = vectors.stride();
    vectors.data_mut().par_chunks_mut(BLOCK * stride).enumerate().for_each(|(block, rows)| {
        solve_block(problem, rows, steps, |row| observations(block * BLOCK + row));
    });
}

/// As [`solve_all`], for the padded rows of one block, on this thread.
pub(crate) fn solve_block<'a>(
    problem: &Problem<'_>,
    vectors: &mut [f32],
    steps: usize,
    observations: impl Fn(usize) -> Observations<'a>,
) {
    let dim = problem.gram.cols();
    let stride = dim.next_multiple_of(crate::math::matrix::LANES);
    let n = vectors.len() / stride;
    let observed: Vec<Observations<'a>> = (0..n).map(observations).collect();
    let (mut residual, mut image) = (Matrix::zeros(n, dim), Matrix::zeros(n, dim));
    apply(problem, &observed, vectors, &mut image);
    for (row, &(items, weights, _)) in observed.iter().enumerate() {
        right_hand_side(problem, items, weights, residual.row_mut(row));
        residual.row_mut(row).iter_mut().zip(image.row(row)).for_each(|(r, a)| *r -= a);
    }
    let mut direction = residual.clone();
    let square = |matrix: &Matrix, row: usize| crate::math::simd::dot(matrix.row(row), matrix.row(row));
    let start: Vec<f32> = (0..n).map(|row| square(&residual, row)).collect();
    let mut squares = start.clone();
    for _ in 0..steps {
        if squares.iter().zip(&start).all(|(now, start)| *now <= CONVERGED * start) {
            break;
        }
        apply(problem, &observed, direction.data(), &mut image);
        for row in 0..n {
            if squares[row] <= CONVERGED * start[row] {
                continue;
            }
            let curvature = crate::math::simd::dot(direction.row(row), image.row(row));
            // The matrix is positive definite; rounding can still spoil a residual that is nothing but rounding.
            if curvature <= 0.0 {
                squares[row] = 0.0;
                continue;
            }
            let rate = squares[row] / curvature;
            crate::math::simd::axpy(rate, direction.row(row), &mut vectors[row * stride..][..stride]);
            crate::math::simd::axpy(-rate, image.row(row), residual.row_mut(row));
            let after = square(&residual, row);
            let turn = after / squares[row];
            direction.row_mut(row).iter_mut().zip(residual.row(row)).for_each(|(d, r)| *d = r + turn * *d);
            squares[row] = after;
        }
    }
}

/// `image = A x` for the padded rows x of `vectors`, each with its own A.
fn apply(problem: &Problem<'_>, observed: &[Observations<'_>], vectors: &[f32], image: &mut Matrix) {
    let (dim, stride) = (problem.gram.cols(), image.stride());
    let view = MatrixView::padded(vectors, observed.len(), dim, stride);
    product(image.data_mut(), stride, false, Operand::Plain(view), Operand::Plain(problem.gram));
    for (row, &(items, weights, pull)) in observed.iter().enumerate() {
        let (x, out) = (view.row(row), &mut image.row_mut(row)[..dim]);
        dispatch!(level(), simd => add_observed(simd, problem, items, weights, pull, x, out));
    }
}

/// `out += pull x + alpha sum w (y . x) y` over the rows y of `items`.
#[inline(always)]
fn add_observed<S: Simd>(
    simd: S,
    problem: &Problem<'_>,
    items: &[u32],
    weights: Option<&[f32]>,
    pull: f32,
    x: &[f32],
    out: &mut [f32],
) {
    /// Rows asked for ahead of their use.
    const AHEAD: usize = 4;
    axpy_in(simd, pull, x, out);
    for (at, &item) in items.iter().enumerate() {
        if let Some(&next) = items.get(at + AHEAD) {
            prefetch(problem.others.row(next as usize));
        }
        let y = problem.others.row(item as usize);
        let weight = weights.map_or(1.0, |weights| weights[at]);
        axpy_in(simd, problem.alpha * weight * dot_in(simd, y, x), y, out);
    }
}

/// `out = sum (1 + alpha w) y` over the rows y of `items`.
fn right_hand_side(problem: &Problem<'_>, items: &[u32], weights: Option<&[f32]>, out: &mut [f32]) {
    let dim = problem.gram.cols();
    for (at, &item) in items.iter().enumerate() {
        let weight = weights.map_or(1.0, |weights| weights[at]);
        let row = problem.others.row(item as usize);
        crate::math::simd::axpy(1.0 + problem.alpha * weight, row, &mut out[..dim]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{Purpose, Stream};

    /// Solves the normal equations by elimination, in double precision.
    fn normal_equations(others: &Matrix, alpha: f64, (items, weights, pull): Observations<'_>) -> Vec<f64> {
        let dim = others.cols();
        let row = |item: usize, d: usize| f64::from(others.row(item)[d]);
        let mut a = vec![vec![0.0; dim + 1]; dim];
        for i in 0..dim {
            for j in 0..dim {
                a[i][j] = (0..others.rows()).map(|item| row(item, i) * row(item, j)).sum();
            }
            a[i][i] += f64::from(pull);
        }
        for (at, &item) in items.iter().enumerate() {
            let weight = weights.map_or(1.0, |w| f64::from(w[at]));
            for i in 0..dim {
                for j in 0..dim {
                    a[i][j] += alpha * weight * row(item as usize, i) * row(item as usize, j);
                }
                a[i][dim] += (1.0 + alpha * weight) * row(item as usize, i);
            }
        }
        for k in 0..dim {
            let pivot = a[k].clone();
            for (i, row) in a.iter_mut().enumerate() {
                if i != k {
                    let factor = row[k] / pivot[k];
                    row.iter_mut().zip(&pivot).for_each(|(v, p)| *v -= factor * p);
                }
            }
        }
        (0..dim).map(|i| a[i][dim] / a[i][i]).collect()
    }

    #[test]
    fn conjugate_gradient_reaches_the_normal_equations() {
        for dim in [7, 16, 33] {
            let mut stream = Stream::new(dim as u64, Purpose::Initialise, 0, 0);
            let values: Vec<f32> = (0..150 * dim).map(|_| stream.normal() as f32 * 0.3).collect();
            let others = Matrix::from_rows(150, dim, &values);
            let histories: Vec<(Vec<u32>, Vec<f32>)> = (0..130u32)
                .map(|user| {
                    let items: Vec<u32> = (0..150).filter(|i| (i * 7 + user * 13) % 31 < user % 9).collect();
                    let weights = items.iter().map(|&i| 0.5 + (i % 3) as f32).collect();
                    (items, weights)
                })
                .collect();
            let observe = |user: usize| {
                let (items, weights) = &histories[user];
                (&items[..], user.is_multiple_of(2).then_some(&weights[..]), 0.5 + user as f32 * 0.01)
            };
            let grams = gram(others.view());
            let problem = Problem { others: others.view(), gram: grams.view(), alpha: 4.0 };
            let mut solved = Matrix::zeros(130, dim);
            solve_all(&problem, &mut solved, 3 * dim, observe);
            for user in 0..130 {
                let expected = normal_equations(&others, 4.0, observe(user));
                for (got, want) in solved.view().row(user).iter().zip(&expected) {
                    assert!((f64::from(*got) - want).abs() < 2e-3, "{dim}, {user}: {got} {want}");
                }
                assert!(solved.row(user)[dim..].iter().all(|&padding| padding == 0.0));
            }
        }
    }
}
