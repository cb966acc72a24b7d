//! [`Parameters`]: what training learns, and [`Network`], what scores with it.

use crate::config::{Activation, Config};
use crate::math::{Matrix, MatrixView, Purpose, Stream};
use crate::network::tables::{Shape, Tables};
use crate::proposal::ItemTable;

/// The learned values, in memory.
pub type Parameters = Tables<Matrix>;

impl Parameters {
    /// Random values: normal with standard deviation sqrt(2 / (fan in + fan out)), biases zero.
    pub fn random(config: &Config, n_items: usize) -> Self {
        Tables::<Shape>::of(config, n_items).map(|_, shape| match shape.stream {
            Some(stream) => normal(shape.rows, shape.cols, config.seed, stream),
            None => Matrix::zeros(shape.rows, shape.cols),
        })
    }

    /// Takes over the values of `other`, which has the same shape.
    pub fn copy_from(&mut self, other: &Self) {
        for (_, (to, from)) in self.as_mut().zip(other.as_ref()) {
            to.data_mut().copy_from_slice(from.data());
        }
    }

    /// What scores with these values.
    pub fn network(&self, activation: Activation) -> Network<'_> {
        Network { activation, tables: self.as_ref().map(|_, table| table.view()) }
    }

    /// The decoder side.
    pub fn item_table(&self) -> ItemTable<'_> {
        self.as_ref().map(|_, table| table.view()).item_table()
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

impl<'a> Tables<MatrixView<'a>> {
    /// The decoder side.
    pub fn item_table(&self) -> ItemTable<'a> {
        let bias = self.item_bias.map(|bias| bias.row(0));
        ItemTable { vectors: self.items, bias }
    }
}

/// A network that scores: learned values, borrowed from memory or from a mapped file.
#[derive(Debug, Clone, Copy)]
pub struct Network<'a> {
    /// Non-linearity of the hidden layer.
    pub activation: Activation,
    /// The learned values.
    pub tables: Tables<MatrixView<'a>>,
}

impl<'a> Network<'a> {
    /// Number of items in the catalogue.
    pub fn n_items(&self) -> usize {
        self.tables.items.rows()
    }

    /// Width of the hidden layer.
    pub fn hidden(&self) -> usize {
        self.tables.head.rows()
    }

    /// Size of the latent vector.
    pub fn latent(&self) -> usize {
        self.tables.items.cols()
    }

    /// Number of learned values.
    pub fn n_parameters(&self) -> usize {
        self.tables.into_iter().map(|(_, table)| table.rows() * table.cols()).sum()
    }

    /// The decoder side.
    pub fn item_table(&self) -> ItemTable<'a> {
        self.tables.item_table()
    }
}
