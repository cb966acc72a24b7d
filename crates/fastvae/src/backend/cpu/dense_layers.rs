//! The dense layers, from a factored encoder's sums to the hidden state and from there to the latent distribution, for a whole
//! batch.

use fearless_simd::dispatch;
use rayon::prelude::*;

use crate::backend::cpu::rows::RowTable;
use crate::config::Activation;
use crate::math::dense::{Operand, product};
use crate::math::simd::{self, level};
use crate::math::{Matrix, MatrixView};
use crate::optim::{Moments, Row, RowMoments, Update};

/// Users per dense product: enough to pay for packing the layer's weights.
const ROWS: usize = 128;
/// Rows of a layer updated by one task.
const SLAB: usize = 32;

/// `out = input W + b`, row by row, and the activation where there is one.
pub(super) fn forward(
    weights: &Matrix,
    bias: &Matrix,
    activation: Option<Activation>,
    input: MatrixView<'_>,
    out: &mut Matrix,
) {
    let stride = out.stride();
    let n = input.rows();
    out.data_mut()[..n * stride].par_chunks_mut(ROWS * stride).enumerate().for_each(|(chunk, out)| {
        out.chunks_exact_mut(stride).for_each(|row| row.copy_from_slice(bias.row(0)));
        let rows = input.rows_from(chunk * ROWS, out.len() / stride);
        product(out, stride, true, Operand::Plain(rows), Operand::Plain(weights.view()));
        if let Some(activation) = activation {
            activation.apply(out);
        }
    });
}

/// `out = gradient W^T`, times the derivative of the activation that gave `activated`, where there is one.
pub(super) fn backward(
    weights: &Matrix,
    activated: Option<(Activation, &Matrix)>,
    gradient: MatrixView<'_>,
    out: &mut Matrix,
) {
    let stride = out.stride();
    let n = gradient.rows();
    out.data_mut()[..n * stride].par_chunks_mut(ROWS * stride).enumerate().for_each(|(chunk, out)| {
        let rows = gradient.rows_from(chunk * ROWS, out.len() / stride);
        product(out, stride, false, Operand::Plain(rows), Operand::Transposed(weights.view()));
        if let Some((activation, values)) = activated {
            activation.backward(&values.data()[chunk * ROWS * stride..][..out.len()], out);
        }
    });
}

/// W -= Adam(input^T gradient), a slab of rows per task.
pub(super) fn update(
    weights: &mut Matrix,
    moments: &mut Moments,
    input: MatrixView<'_>,
    gradient: MatrixView<'_>,
    update: &Update,
) {
    let (stride, width) = (weights.stride(), input.cols());
    let table = RowTable { rows: weights, moments, bias: None };
    table.chunks(SLAB).into_par_iter().enumerate().for_each(|(slab, chunk)| {
        let start = slab * SLAB;
        let columns = input.columns(start, SLAB.min(width - start));
        let mut sum = vec![0.0; chunk.rows.len()];
        product(&mut sum, stride, false, Operand::Transposed(columns), Operand::Plain(gradient));
        let row = Row { parameter: chunk.rows, moments: RowMoments::Full(chunk.first, chunk.second) };
        dispatch!(level(), simd => update.row(simd, row, &mut sum, 0, |_| ()));
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
    let moments = RowMoments::Full(moments.first.data_mut(), moments.second.data_mut());
    let row = Row { parameter: bias.data_mut(), moments };
    dispatch!(level(), simd => update.row(simd, row, &mut sum, 0, |_| ()));
}
