//! The encoder: from a history to a query.

use fearless_simd::{dispatch, prelude::*};
use rayon::prelude::*;

use crate::config::Activation;
use crate::data::{ItemId, Row};
use crate::math::dense::{Operand, product};
use crate::math::simd::{axpy, axpy_in, level, prefetch};
use crate::math::{Matrix, MatrixView};
use crate::network::Network;

/// Histories encoded in one dense product; also the unit of parallel work.
const BLOCK: usize = 64;

/// What a user did: the input of the encoder. Order does not matter.
#[derive(Debug, Clone, Copy, Default)]
pub struct History<'a> {
    /// Items, each once.
    pub items: &'a [ItemId],
    /// Their weights; all alike where absent.
    pub weights: Option<&'a [f32]>,
}

impl<'a> From<Row<'a>> for History<'a> {
    fn from(row: Row<'a>) -> Self {
        Self { items: row.items, weights: row.weights }
    }
}

/// The encoder's input weights of a history: its weights divided by their Euclidean norm (1 / sqrt(n) where
/// all are alike). An empty history has none.
pub fn input_weights(history: History<'_>, out: &mut Vec<f32>) {
    out.clear();
    match history.weights {
        None => out.resize(history.items.len(), 1.0 / (history.items.len().max(1) as f32).sqrt()),
        Some(weights) => {
            let norm = weights.iter().map(|&w| f64::from(w) * f64::from(w)).sum::<f64>().sqrt().max(1e-12);
            out.extend(weights.iter().map(|&w| (f64::from(w) / norm) as f32));
        }
    }
}

/// `sum += weights[k] * rows[items[k]]` over a history, in the order given; `sum` is one row of `rows`, with or
/// without its padding. Where there are more items than weights, the rest are rows that come next, to be asked for
/// meanwhile.
pub fn bag(rows: MatrixView<'_>, items: &[ItemId], weights: &[f32], sum: &mut [f32]) {
    /// Rows asked for ahead of their use: the memory's latency over the time of one row.
    const AHEAD: usize = 3;
    #[inline(always)]
    fn body<S: Simd>(simd: S, rows: MatrixView<'_>, items: &[ItemId], weights: &[f32], sum: &mut [f32]) {
        for (k, (&item, &weight)) in items.iter().zip(weights).enumerate() {
            if let Some(&next) = items.get(k + AHEAD) {
                prefetch(rows.row(next as usize));
            }
            axpy_in(simd, weight, &rows.padded_row(item as usize)[..sum.len()], sum);
        }
    }
    dispatch!(level(), simd => body(simd, rows, items, weights, sum));
}

impl Activation {
    /// Applies the non-linearity in place.
    pub fn apply(self, values: &mut [f32]) {
        match self {
            Self::Relu => values.iter_mut().for_each(|v| *v = v.max(0.0)),
            Self::Tanh => values.iter_mut().for_each(|v| *v = v.tanh()),
        }
    }

    /// Multiplies `gradient` by the derivative, given the values after the non-linearity.
    pub fn backward(self, values: &[f32], gradient: &mut [f32]) {
        match self {
            Self::Relu => {
                for (g, &v) in gradient.iter_mut().zip(values) {
                    *g = if v > 0.0 { *g } else { 0.0 };
                }
            }
            Self::Tanh => {
                for (g, &v) in gradient.iter_mut().zip(values) {
                    *g *= 1.0 - v * v;
                }
            }
        }
    }
}

impl Network<'_> {
    /// From weighted sums of encoder rows to the hidden layer.
    pub(crate) fn hidden_states(&self, sums: Matrix) -> Matrix {
        let mut states = match self.tables.encoder_map {
            None => sums,
            Some(map) => {
                let mut states = Matrix::zeros(sums.rows(), map.cols());
                let stride = states.stride();
                product(states.data_mut(), stride, false, Operand::Plain(sums.view()), Operand::Plain(map));
                states
            }
        };
        let bias = self.tables.hidden_bias.row(0);
        for row in 0..states.rows() {
            let state = &mut states.row_mut(row)[..bias.len()];
            axpy(1.0, bias, state);
            self.activation.apply(state);
        }
        states
    }
}

/// The queries of some users, `n x latent`: the mean of the latent distribution, as used for scoring.
///
/// Work is spread over the current thread pool; each query depends on its own history alone.
pub fn encode<'h>(network: Network<'_>, n: usize, history: impl Fn(usize) -> History<'h> + Sync) -> Matrix {
    let (latent, tables) = (network.latent(), network.tables);
    let mut queries = Matrix::zeros(n, latent);
    let stride = queries.stride();
    queries.data_mut().par_chunks_mut(BLOCK * stride).enumerate().for_each(|(block, queries)| {
        let rows = queries.len() / stride;
        let columns = tables.encoder.cols();
        let mut sums = Matrix::zeros(rows, columns);
        let mut weights = Vec::new();
        for row in 0..rows {
            let history = history(block * BLOCK + row);
            input_weights(history, &mut weights);
            bag(tables.encoder, history.items, &weights, &mut sums.row_mut(row)[..columns]);
        }
        let states = network.hidden_states(sums);
        for row in queries.chunks_mut(stride) {
            row[..latent].copy_from_slice(&tables.head_bias.row(0)[..latent]);
        }
        let mean = tables.head.columns(0, latent);
        product(queries, stride, true, Operand::Plain(states.view()), Operand::Plain(mean));
    });
    queries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::network::Parameters;

    /// The formula of the module doc, one scalar at a time.
    fn naive_query(p: &Parameters, items: &[ItemId], weights: &[f32]) -> Vec<f32> {
        let (hidden, latent) = (p.head.rows(), p.items.cols());
        let norm = weights.iter().map(|w| w * w).sum::<f32>().sqrt();
        let row = |item: ItemId, h: usize| match &p.encoder_map {
            None => p.encoder.row(item as usize)[h],
            Some(map) => (0..map.rows()).map(|r| p.encoder.row(item as usize)[r] * map.row(r)[h]).sum(),
        };
        let state: Vec<f32> = (0..hidden)
            .map(|h| {
                let sum: f32 = items.iter().zip(weights).map(|(&i, w)| w / norm * row(i, h)).sum();
                (sum + p.hidden_bias.row(0)[h]).max(0.0)
            })
            .collect();
        (0..latent)
            .map(|d| p.head_bias.row(0)[d] + (0..hidden).map(|h| state[h] * p.head.row(h)[d]).sum::<f32>())
            .collect()
    }

    #[test]
    fn queries_follow_the_formula() {
        for encoder_rank in [0, 5] {
            let config = Config { hidden: 21, latent: 7, encoder_rank, ..Config::default() };
            let mut p = Parameters::random(&config, 50);
            for (i, v) in p.hidden_bias.row_mut(0)[..21].iter_mut().enumerate() {
                *v = i as f32 * 0.01;
            }
            p.head_bias.row_mut(0)[..14].fill(0.3);
            let histories: Vec<Vec<ItemId>> =
                (0..70).map(|u| (0..u % 9).map(|k| (u * 7 + k * 5) as u32 % 50).collect()).collect();
            let weights: Vec<Vec<f32>> =
                histories.iter().map(|h| (0..h.len()).map(|k| 1.0 + k as f32).collect()).collect();
            let history = |u: usize| History { items: &histories[u], weights: Some(&weights[u]) };
            let queries = encode(p.network(Activation::Relu), 70, history);
            for u in (1..70).filter(|&u| !histories[u].is_empty()) {
                let expected = naive_query(&p, &histories[u], &weights[u]);
                for (got, want) in queries.row(u).iter().zip(&expected) {
                    assert!((got - want).abs() < 1e-5, "rank {encoder_rank}, user {u}: {got} {want}");
                }
            }
        }
    }

    #[test]
    fn an_empty_history_is_encoded_from_the_biases() {
        let p = Parameters::random(&Config { hidden: 8, latent: 4, ..Config::default() }, 5);
        let queries = encode(p.network(Activation::Relu), 1, |_| History::default());
        assert_eq!(queries.row(0)[..4], [0.0; 4]);
    }
}
