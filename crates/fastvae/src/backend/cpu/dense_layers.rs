//! The dense layers, from a factored encoder's sums to the hidden state and from there to the latent distribution, for a whole
//! batch.

use fearless_simd::dispatch;

use crate::backend::cpu::rows::{RowChunk, RowTable};
use crate::backend::cpu::team::Team;
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
    team: &mut Team,
    weights: &Matrix,
    bias: &Matrix,
    activation: Option<Activation>,
    input: MatrixView<'_>,
    out: &mut Matrix,
) {
    let stride = out.stride();
    let n = input.rows();
    let mut chunks: Vec<&mut [f32]> = out.data_mut()[..n * stride].chunks_mut(ROWS * stride).collect();
    team.for_each_mut(&mut chunks, |chunk, out| {
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
    team: &mut Team,
    weights: &Matrix,
    activated: Option<(Activation, &Matrix)>,
    gradient: MatrixView<'_>,
    out: &mut Matrix,
) {
    let stride = out.stride();
    let n = gradient.rows();
    let mut chunks: Vec<&mut [f32]> = out.data_mut()[..n * stride].chunks_mut(ROWS * stride).collect();
    team.for_each_mut(&mut chunks, |chunk, out| {
        let rows = gradient.rows_from(chunk * ROWS, out.len() / stride);
        product(out, stride, false, Operand::Plain(rows), Operand::Transposed(weights.view()));
        if let Some((activation, values)) = activated {
            activation.backward(&values.data()[chunk * ROWS * stride..][..out.len()], out);
        }
    });
}

/// Some rows of a layer, whose weights move by Adam(input^T gradient).
pub(super) struct Slab<'a> {
    chunk: RowChunk<'a>,
    /// The columns of the input that belong to these rows.
    input: MatrixView<'a>,
    gradient: MatrixView<'a>,
}

/// The rows of a layer in slabs.
pub(super) fn slabs<'a>(
    weights: &'a mut Matrix,
    moments: &'a mut Moments,
    input: MatrixView<'a>,
    gradient: MatrixView<'a>,
) -> impl Iterator<Item = Slab<'a>> {
    let width = input.cols();
    let table = RowTable { rows: weights, moments, bias: None };
    table.chunks(SLAB).into_iter().enumerate().map(move |(slab, chunk)| {
        let start = slab * SLAB;
        Slab { chunk, input: input.columns(start, SLAB.min(width - start)), gradient }
    })
}

impl Slab<'_> {
    pub fn update(&mut self, update: &Update) {
        let Self { chunk, input, gradient } = self;
        let mut sum = vec![0.0; chunk.rows.len()];
        product(&mut sum, gradient.stride(), false, Operand::Transposed(*input), Operand::Plain(*gradient));
        let row = Row { parameter: chunk.rows, moments: RowMoments::Full(chunk.first, chunk.second) };
        dispatch!(level(), simd => update.row(simd, row, &mut sum, 0, |_| ()));
    }
}

/// A layer's bias, which moves by Adam(column sums of the gradient).
pub(super) struct Bias<'a> {
    pub values: &'a mut Matrix,
    pub moments: &'a mut Moments,
    pub gradient: MatrixView<'a>,
}

impl Bias<'_> {
    pub fn update(&mut self, update: &Update) {
        let Self { values, moments, gradient } = self;
        let mut sum = vec![0.0; values.stride()];
        for row in 0..gradient.rows() {
            simd::axpy(1.0, gradient.padded_row(row), &mut sum);
        }
        let moments = RowMoments::Full(moments.first.data_mut(), moments.second.data_mut());
        let row = Row { parameter: values.data_mut(), moments };
        dispatch!(level(), simd => update.row(simd, row, &mut sum, 0, |_| ()));
    }
}
