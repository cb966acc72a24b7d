//! What training learns.

use crate::config::{Activation, Config};
use crate::math::{Matrix, MatrixView, Purpose, Stream};
use crate::proposal::ItemTable;

/// The learned values of a model, in memory.
#[derive(Debug, Clone)]
pub struct Parameters {
    /// Non-linearity of the hidden layer.
    pub activation: Activation,
    /// Encoder rows E, `n_items x hidden`, or `n_items x encoder_rank` where a map follows.
    pub encoder: Matrix,
    /// From a sum of encoder rows to the hidden layer, `encoder_rank x hidden`, where the encoder is factored.
    pub encoder_map: Option<Matrix>,
    /// Bias of the hidden layer b0, `1 x hidden`.
    pub hidden_bias: Matrix,
    /// Dense layer W to mean and log-variance, `hidden x (2 latent)`: columns `0..latent` give the mean.
    pub head: Matrix,
    /// Bias of the dense layer b1, `1 x (2 latent)`.
    pub head_bias: Matrix,
    /// Item vectors q, `n_items x latent`.
    pub items: Matrix,
    /// Item biases, where the model has them.
    pub item_bias: Option<Vec<f32>>,
}

impl Parameters {
    /// Random values: normal with standard deviation sqrt(2 / (fan in + fan out)), biases zero.
    pub fn random(config: &Config, n_items: usize) -> Self {
        let (hidden, latent) = (config.hidden, config.latent);
        Self {
            activation: config.activation,
            encoder: normal(n_items, config.encoder_columns(), config.seed, 0),
            encoder_map: (config.encoder_rank > 0)
                .then(|| normal(config.encoder_rank, hidden, config.seed, 3)),
            hidden_bias: Matrix::zeros(1, hidden),
            head: normal(hidden, 2 * latent, config.seed, 1),
            head_bias: Matrix::zeros(1, 2 * latent),
            items: normal(n_items, latent, config.seed, 2),
            item_bias: config.item_bias.then(|| vec![0.0; n_items]),
        }
    }

    /// Takes over the values of `other`, which has the same shape.
    pub fn copy_from(&mut self, other: &Self) {
        for (to, from) in [
            (&mut self.encoder, &other.encoder),
            (&mut self.hidden_bias, &other.hidden_bias),
            (&mut self.head, &other.head),
            (&mut self.head_bias, &other.head_bias),
            (&mut self.items, &other.items),
        ] {
            to.data_mut().copy_from_slice(from.data());
        }
        if let (Some(to), Some(from)) = (&mut self.encoder_map, &other.encoder_map) {
            to.data_mut().copy_from_slice(from.data());
        }
        if let (Some(to), Some(from)) = (&mut self.item_bias, &other.item_bias) {
            to.copy_from_slice(from);
        }
    }

    /// All of it, borrowed.
    pub fn view(&self) -> ParametersView<'_> {
        ParametersView {
            activation: self.activation,
            encoder: self.encoder.view(),
            encoder_map: self.encoder_map.as_ref().map(Matrix::view),
            hidden_bias: self.hidden_bias.view().row(0),
            head: self.head.view(),
            head_bias: self.head_bias.view().row(0),
            items: self.item_table(),
        }
    }

    /// The decoder side.
    pub fn item_table(&self) -> ItemTable<'_> {
        ItemTable { vectors: self.items.view(), bias: self.item_bias.as_deref() }
    }
}

/// A `rows x cols` matrix of normal values, a pure function of the seed, `table` and the row.
fn normal(rows: usize, cols: usize, seed: u64, table: u16) -> Matrix {
    use rayon::prelude::*;
    let deviation = (2.0 / (rows + cols) as f64).sqrt() as f32;
    let mut matrix = Matrix::zeros(rows, cols);
    let stride = matrix.stride();
    matrix.data_mut().par_chunks_mut(stride).enumerate().for_each(|(row, values)| {
        let stream = Stream::with_part(seed, Purpose::Initialise, table, 0, row as u32);
        crate::math::simd::fill_normals(&stream, &mut values[..cols]);
        for value in &mut values[..cols] {
            *value *= deviation;
        }
    });
    matrix
}

/// The learned values of a model, borrowed from memory or from a mapped file.
#[derive(Debug, Clone, Copy)]
pub struct ParametersView<'a> {
    /// Non-linearity of the hidden layer.
    pub activation: Activation,
    /// Encoder rows E, `n_items x hidden`, or `n_items x encoder_rank` where a map follows.
    pub encoder: MatrixView<'a>,
    /// From a sum of encoder rows to the hidden layer, where the encoder is factored.
    pub encoder_map: Option<MatrixView<'a>>,
    /// Bias of the hidden layer b0.
    pub hidden_bias: &'a [f32],
    /// Dense layer W to mean and log-variance, `hidden x (2 latent)`.
    pub head: MatrixView<'a>,
    /// Bias of the dense layer b1, `2 latent` long.
    pub head_bias: &'a [f32],
    /// Item vectors and biases.
    pub items: ItemTable<'a>,
}

impl ParametersView<'_> {
    /// Number of items in the catalogue.
    pub fn n_items(&self) -> usize {
        self.items.vectors.rows()
    }

    /// Width of the hidden layer.
    pub fn hidden(&self) -> usize {
        self.head.rows()
    }

    /// Size of the latent vector.
    pub fn latent(&self) -> usize {
        self.items.vectors.cols()
    }

    /// Number of learned values.
    pub fn n_parameters(&self) -> usize {
        let (items, hidden, latent) = (self.n_items(), self.hidden(), self.latent());
        items * (self.encoder.cols() + latent)
            + self.encoder_map.map_or(0, |map| map.rows() * map.cols())
            + (hidden + 1) * 2 * latent
            + hidden
            + self.items.bias.map_or(0, <[f32]>::len)
    }
}
