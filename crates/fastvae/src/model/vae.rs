//! [`Vae`]: the variational autoencoder as one method of a [`Model`](super::Model).

use crate::baseline::{Fallback, Method, Table};
use crate::config::{Activation, Config};
use crate::data::ItemId;
use crate::error::Result;
use crate::eval::{BlockScores, Scorer, Viewer};
use crate::math::dense::{Operand, product};
use crate::math::{Matrix, simd};
use crate::model::linear::Linear;
use crate::model_file::parts::{read_tables, write_tables};
use crate::model_file::tensors::{TensorFile, TensorWriter};
use crate::network::{History, Network, Parameters, Shape, Tables, bag};
use crate::proposal::ItemTable;

/// Learned values, in memory or in a mapped file.
#[derive(Debug)]
pub(crate) struct Vae {
    activation: Activation,
    tables: Tables<Table>,
    shapes: Tables<Shape>,
    linear: Option<Linear>,
    /// The popularity term beside the learned biases, where there is one.
    bias: Option<Vec<f32>>,
}

impl Vae {
    /// Of settings and what was learned with them; of two networks side by side where it is a pair.
    pub(crate) fn new(config: &Config, parameters: Parameters, pair: bool) -> Self {
        let shapes = shapes(config, parameters.items.rows(), pair);
        Self {
            activation: config.activation,
            tables: parameters.map(|_, table| Table::Memory(table)),
            shapes,
            linear: None,
            bias: None,
        }
    }

    /// The same network with what stands beside it.
    pub(crate) fn with_linear(mut self, linear: Option<Linear>) -> Self {
        self.bias =
            linear.as_ref().and_then(|linear| linear.bias_beside(self.as_network().item_table().bias));
        self.linear = linear;
        self
    }

    pub(crate) fn read(file: &TensorFile, config: &Config, n_items: usize, pair: bool) -> Result<Self> {
        if config.hidden == 0 || config.latent == 0 {
            return Err(file.damaged(format!("the network is of {}-{}", config.hidden, config.latent)));
        }
        let config = &Config { item_bias: file.contains("item_bias"), ..config.clone() };
        let shapes = shapes(config, n_items, pair);
        let tables = read_tables(file, "", shapes)?.map(|_, array| Table::File(array));
        Ok(Self { activation: config.activation, tables, shapes, linear: None, bias: None })
    }

    fn as_network(&self) -> Network<'_> {
        Network { activation: self.activation, tables: self.tables.as_ref().map(|_, table| table.view()) }
    }

    /// The item vectors, with all that is added to their products for everyone.
    fn table(&self) -> ItemTable<'_> {
        let table = self.as_network().item_table();
        ItemTable { bias: self.bias.as_deref().or(table.bias), ..table }
    }

    /// Row j is the query of the history without its item j; the last row that of the whole history.
    ///
    /// Only the sum of encoder rows is kept and each row subtracted from it, so that a history of h items costs h dense
    /// layers and not h^2 row sums.
    fn queries_without_each(&self, History { items, weights }: History<'_>) -> Matrix {
        let network = self.as_network();
        let (tables, latent) = (network.tables, network.latent());
        let columns = tables.encoder.cols();
        let ones = vec![1.0; items.len()];
        let weights = weights.unwrap_or(&ones);
        let mut sum = vec![0.0; columns];
        bag(tables.encoder, items, weights, &mut sum);
        let square: f64 = weights.iter().map(|&w| f64::from(w).powi(2)).sum();
        let mut sums = Matrix::zeros(items.len() + 1, columns);
        for left_out in 0..=items.len() {
            let rest_sum = &mut sums.row_mut(left_out)[..columns];
            let (item, weight) = match items.get(left_out) {
                Some(&item) => (Some(item), weights[left_out]),
                None => (None, 0.0),
            };
            // Nothing is left of a history of one item: no sum, whatever the rounding of its norm.
            let rest =
                if items.len() > 1 || item.is_none() { square - f64::from(weight).powi(2) } else { 0.0 };
            if rest > 0.0 && !items.is_empty() {
                rest_sum.copy_from_slice(&sum);
                if let Some(item) = item {
                    simd::axpy(-weight, tables.encoder.row(item as usize), rest_sum);
                }
                let scale = (1.0 / rest.sqrt()) as f32;
                rest_sum.iter_mut().for_each(|value| *value *= scale);
            }
        }
        let states = network.hidden_states(sums);
        let mut queries = Matrix::zeros(items.len() + 1, latent);
        for row in 0..=items.len() {
            queries.row_mut(row)[..latent].copy_from_slice(&tables.head_bias.row(0)[..latent]);
        }
        let stride = queries.stride();
        let mean = tables.head.columns(0, latent);
        product(queries.data_mut(), stride, true, Operand::Plain(states.view()), Operand::Plain(mean));
        queries
    }
}

fn shapes(config: &Config, n_items: usize, pair: bool) -> Tables<Shape> {
    let shapes = Tables::<Shape>::of(config, n_items);
    if pair { shapes.paired() } else { shapes }
}

impl Scorer for Vae {
    fn n_items(&self) -> usize {
        self.as_network().n_items()
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        let queries = crate::network::encode(self.as_network(), viewers.len(), |row| viewers[row].history);
        let scores = BlockScores::products(queries, self.table());
        Ok(match &self.linear {
            Some(linear) => linear.beside(scores, viewers),
            None => scores,
        })
    }

    fn item_table(&self) -> Option<ItemTable<'_>> {
        Some(self.table())
    }
}

impl Method for Vae {
    fn likeness(&self, _: ItemId, _: &mut [f32]) -> Result<()> {
        unreachable!("its items have vectors")
    }

    fn write<'a>(&'a self, writer: &mut TensorWriter<'a>) {
        write_tables(writer, "", self.as_network().tables, self.shapes);
        if let Some(linear) = &self.linear {
            linear.write(writer);
        }
    }

    fn nobody(&self) -> Option<Fallback> {
        Some(Fallback::Nobody)
    }

    fn contributions(&self, viewer: Viewer<'_>, items: &[ItemId]) -> Result<Matrix> {
        let queries = self.queries_without_each(viewer.history);
        let vectors = self.tables.items.view();
        let n = viewer.history.items.len();
        let mut lost = Matrix::zeros(n, items.len());
        for (column, &item) in items.iter().enumerate() {
            let vector = vectors.row(item as usize);
            let whole = simd::dot(queries.view().row(n), vector);
            for row in 0..n {
                lost.row_mut(row)[column] = whole - simd::dot(queries.view().row(row), vector);
            }
        }
        if let Some(linear) = &self.linear {
            linear.add_contributions(viewer.history, items, &mut lost);
        }
        Ok(lost)
    }

    fn network(&self) -> Option<Network<'_>> {
        Some(self.as_network())
    }

    fn forget_items(&self) {
        self.tables.items.forget();
    }
}
