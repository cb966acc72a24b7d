//! The dense layer between the hidden state and the latent distribution, for a whole batch.

use fearless_simd::dispatch;
use rayon::prelude::*;

use crate::backend::cpu::rows::RowTable;
use crate::math::dense::{Operand, product};
use crate::math::simd::{self, level};
use crate::math::{Matrix, MatrixView};
use crate::model::Parameters;
use crate::optim::{Moments, Second, Update};

/// Users per dense product: enough to pay for packing the layer's weights.
const ROWS: usize = 128;
/// Rows of the layer updated by one task.
const HEAD_ROWS: usize = 32;

/// `head = hidden W + b1`, row by row.
pub(super) fn forward(parameters: &Parameters, hidden: MatrixView<'_>, head: &mut Matrix) {
    let stride = head.stride();
    let n = hidden.rows();
    head.data_mut()[..n * stride].par_chunks_mut(ROWS * stride).enumerate().for_each(|(chunk, out)| {
        out.chunks_exact_mut(stride).for_each(|row| row.copy_from_slice(parameters.head_bias.row(0)));
        let rows = hidden.rows_from(chunk * ROWS, out.len() / stride);
        product(out, stride, true, Operand::Plain(rows), Operand::Plain(parameters.head.view()));
    });
}

/// The gradient at the hidden layer, before its activation.
pub(super) fn backward(
    parameters: &Parameters,
    hidden: &Matrix,
    head_gradient: MatrixView<'_>,
    hidden_gradient: &mut Matrix,
) {
    let stride = hidden_gradient.stride();
    let n = head_gradient.rows();
    let chunks = hidden_gradient.data_mut()[..n * stride].par_chunks_mut(ROWS * stride);
    chunks.zip(hidden.data().par_chunks(ROWS * stride)).enumerate().for_each(|(chunk, (out, hidden))| {
        let rows = head_gradient.rows_from(chunk * ROWS, out.len() / stride);
        product(out, stride, false, Operand::Plain(rows), Operand::Transposed(parameters.head.view()));
        parameters.activation.backward(&hidden[..out.len()], out);
    });
}

/// W -= Adam(hidden^T head_gradient), a slab of rows per task.
pub(super) fn update_head(
    head: &mut Matrix,
    moments: &mut Moments,
    hidden: MatrixView<'_>,
    head_gradient: MatrixView<'_>,
    update: &Update,
) {
    let (stride, width) = (head.stride(), hidden.cols());
    let table = RowTable { rows: head, moments, bias: None };
    table.chunks(HEAD_ROWS).into_par_iter().enumerate().for_each(|(slab, chunk)| {
        let start = slab * HEAD_ROWS;
        let columns = hidden.columns(start, HEAD_ROWS.min(width - start));
        let mut gradient = vec![0.0; chunk.rows.len()];
        product(&mut gradient, stride, false, Operand::Transposed(columns), Operand::Plain(head_gradient));
        let second = Second::Elements(chunk.second);
        dispatch!(level(), simd => update.row(simd, chunk.rows, chunk.first, second, &mut gradient, 0));
    });
}

/// b -= Adam(column sums of the gradient).
pub(super) fn update_bias(
    bias: &mut Matrix,
    moments: &mut Moments,
    gradient: MatrixView<'_>,
    update: &Update,
) {
    let mut sum = vec![0.0; bias.stride()];
    for row in 0..gradient.rows() {
        simd::axpy(1.0, gradient.padded_row(row), &mut sum);
    }
    let (first, second) = (moments.first.data_mut(), Second::Elements(moments.second.data_mut()));
    dispatch!(level(), simd => update.row(simd, bias.data_mut(), first, second, &mut sum, 0));
}
