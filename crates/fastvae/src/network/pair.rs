//! Two networks side by side, as one that is twice as wide: its logits are the mean of theirs.
//!
//! Each keeps its own columns of every layer, so what scores, writes or indexes a network needs to know nothing of it.

use std::ops::Range;

use crate::math::Matrix;
use crate::network::{Parameters, Shape, Tables};

impl Tables<Shape> {
    /// The tables of [`Parameters::pair`] of two such networks.
    pub fn paired(self) -> Self {
        let wide = |shape: Shape| Shape { cols: 2 * shape.cols, ..shape };
        let block = |shape: Shape| Shape { rows: 2 * shape.rows, ..wide(shape) };
        Self {
            encoder: wide(self.encoder),
            encoder_map: self.encoder_map.map(block),
            hidden_bias: wide(self.hidden_bias),
            head: block(self.head),
            head_bias: wide(self.head_bias),
            items: wide(self.items),
            item_bias: self.item_bias,
        }
    }
}

impl Parameters {
    /// Both as one network, whose logits are the mean of those of the two.
    ///
    /// # Panics
    /// If they differ in shape.
    pub fn pair(&self, other: &Self) -> Self {
        let latent = self.items.cols();
        // Means first, then log-variances, each of both.
        let halves = |table: &Matrix, other: &Matrix, below: usize| {
            let mut both = Matrix::zeros(table.rows() + below, 2 * table.cols());
            for (at, table) in [table, other].into_iter().enumerate() {
                for half in 0..2 {
                    let to = (at * below, (2 * half + at) * latent);
                    copy(table, half * latent..(half + 1) * latent, &mut both, to);
                }
            }
            both
        };
        let mean = |table: Matrix| scaled(table, 0.5);
        Self {
            encoder: beside(&self.encoder, &other.encoder, 0),
            encoder_map: self
                .encoder_map
                .as_ref()
                .zip(other.encoder_map.as_ref())
                .map(|(map, other)| beside(map, other, map.rows())),
            hidden_bias: beside(&self.hidden_bias, &other.hidden_bias, 0),
            head: halves(&self.head, &other.head, self.head.rows()),
            head_bias: halves(&self.head_bias, &other.head_bias, 0),
            items: mean(beside(&self.items, &other.items, 0)),
            item_bias: self.item_bias.as_ref().zip(other.item_bias.as_ref()).map(|(bias, other)| {
                let mut sum = bias.clone();
                sum.data_mut().iter_mut().zip(other.data()).for_each(|(sum, other)| *sum += other);
                mean(sum)
            }),
        }
    }
}

/// `other` to the right of `table`, and so many rows below its first.
fn beside(table: &Matrix, other: &Matrix, below: usize) -> Matrix {
    let mut both = Matrix::zeros(table.rows() + below, table.cols() + other.cols());
    copy(table, 0..table.cols(), &mut both, (0, 0));
    copy(other, 0..other.cols(), &mut both, (below, table.cols()));
    both
}

/// Copies some columns of all rows of `from` to where they begin in `to`, a row and a column.
fn copy(from: &Matrix, columns: Range<usize>, to: &mut Matrix, (row, column): (usize, usize)) {
    for at in 0..from.rows() {
        to.row_mut(row + at)[column..][..columns.len()].copy_from_slice(&from.row(at)[columns.clone()]);
    }
}

fn scaled(mut table: Matrix, by: f32) -> Matrix {
    table.data_mut().iter_mut().for_each(|value| *value *= by);
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Activation, Config};
    use crate::data::ItemId;
    use crate::math::simd::dot;
    use crate::network::{History, encode};

    #[test]
    fn the_logits_of_a_pair_are_the_mean_of_both() {
        for encoder_rank in [0, 5] {
            let config = Config { hidden: 18, latent: 7, encoder_rank, item_bias: true, ..Config::default() };
            let random = |seed: u64| {
                let mut parameters = Parameters::random(&Config { seed, ..config.clone() }, 40);
                for (name, table) in parameters.as_mut() {
                    if name.contains("bias") {
                        (0..table.cols())
                            .for_each(|at| table.row_mut(0)[at] = (at as f32 + seed as f32).sin());
                    }
                }
                parameters
            };
            let (first, second) = (random(1), random(2));
            let pair = first.pair(&second);
            for (name, (table, shape)) in pair.as_ref().zip(Tables::<Shape>::of(&config, 40).paired()) {
                assert_eq!((table.rows(), table.cols()), (shape.rows, shape.cols), "{name}");
            }
            let history: [ItemId; 3] = [2, 17, 39];
            let logit = |parameters: &Parameters, item: usize| {
                let network = parameters.network(Activation::Relu);
                let query = encode(network, 1, |_| History { items: &history, weights: None });
                let table = network.item_table();
                dot(query.view().row(0), table.vectors.row(item)) + table.bias.map_or(0.0, |bias| bias[item])
            };
            for item in 0..40 {
                let mean = 0.5 * (logit(&first, item) + logit(&second, item));
                assert!((logit(&pair, item) - mean).abs() < 1e-5, "{item}: {mean}");
            }
        }
    }
}
