//! Two networks side by side, as one that is twice as wide: its logits are the mean of theirs.
//!
//! Each keeps its own columns of every layer, so what scores, writes or indexes a network needs to know nothing of it.

use std::ops::Range;

use crate::math::Matrix;
use crate::network::{Joint, Parameters, Shape, Tables};

impl Shape {
    /// Of this table of both.
    fn paired(self) -> Self {
        let cols = if self.joint == Joint::Mean { self.cols } else { 2 * self.cols };
        Self { rows: self.rows + self.below(), cols, ..self }
    }

    /// How many rows below the first's those of the second network are.
    fn below(self) -> usize {
        match self.joint {
            Joint::Diagonal | Joint::Halves if self.stream.is_some() => self.rows,
            _ => 0,
        }
    }

    /// The table of both.
    fn join(self, first: &Matrix, second: &Matrix) -> Matrix {
        let Self { rows, cols, .. } = self.paired();
        let mut both = Matrix::zeros(rows, cols);
        let parts = if self.joint == Joint::Halves { 2 } else { 1 };
        let width = self.cols / parts;
        for (at, table) in [first, second].into_iter().enumerate() {
            for part in 0..parts {
                let column = if self.joint == Joint::Mean { 0 } else { (2 * part + at) * width };
                add(table, part * width..(part + 1) * width, &mut both, (at * self.below(), column));
            }
        }
        if matches!(self.joint, Joint::Halved | Joint::Mean) {
            both.data_mut().iter_mut().for_each(|value| *value *= 0.5);
        }
        both
    }
}

impl Tables<Shape> {
    /// The tables of [`Parameters::pair`] of two such networks.
    pub fn paired(self) -> Self {
        self.map(|_, shape| shape.paired())
    }
}

impl Parameters {
    /// Both, of these shapes, as one network, whose logits are the mean of those of the two.
    ///
    /// # Panics
    /// If they differ in shape.
    pub fn pair(&self, other: &Self, shapes: Tables<Shape>) -> Self {
        let both = self.as_ref().zip(other.as_ref()).zip(shapes);
        both.map(|_, ((first, second), shape)| shape.join(first, second))
    }
}

/// Adds some columns of all rows of `from` to where they begin in `to`, a row and a column.
fn add(from: &Matrix, columns: Range<usize>, to: &mut Matrix, (row, column): (usize, usize)) {
    for at in 0..from.rows() {
        let to = &mut to.row_mut(row + at)[column..][..columns.len()];
        to.iter_mut().zip(&from.row(at)[columns.clone()]).for_each(|(to, from)| *to += from);
    }
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
            let shapes = Tables::<Shape>::of(&config, 40);
            let pair = first.pair(&second, shapes);
            for (name, (table, shape)) in pair.as_ref().zip(shapes.paired()) {
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
