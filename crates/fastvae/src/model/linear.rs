//! [`Linear`]: what stands beside the network's inner products: the sparse linear part and a weight on popularity.
//!
//! logit_i = z . q_i + s sum_j x_j w_ji + p ln(1 + count_i) over the items j of the history. What a latent vector cannot hold
//! is which few items go with which; a linear model over items does.

use crate::baseline::co_counts::{CoCounts, item_value};
use crate::baseline::item_ridge::solve;
use crate::baseline::item_weights::ItemWeights;
use crate::data::{Interactions, ItemId};
use crate::error::Result;
use crate::eval::{BlockScores, Scored, Scorer, Viewer};
use crate::math::Matrix;
use crate::model::Blend;
use crate::model_file::tensors::{TensorFile, TensorWriter};
use crate::network::{History, Network, encode};
use crate::proposal::ItemTable;

/// Name of the arrays in files.
const ARRAYS: &str = "linear";

/// A sparse linear part with its weight s, and p ln(1 + count) of every item.
#[derive(Debug)]
pub(crate) struct Linear {
    weights: Option<ItemWeights>,
    scale: f32,
    bias: Option<Vec<f32>>,
}

impl Linear {
    /// What `blend` asks for, solved on `data`.
    pub(crate) fn solved(blend: &Blend, data: &Interactions) -> Self {
        let weights = (blend.weight != 0.0).then(|| {
            let counts = CoCounts::of(data, blend.power);
            solve(&counts, blend.neighbours, &[blend.penalty]).pop().expect("weights for one penalty")
        });
        Self::of(blend, weights, &data.item_counts())
    }

    /// With the linear part that was solved, where there is one.
    pub(crate) fn of(blend: &Blend, weights: Option<ItemWeights>, item_counts: &[u32]) -> Self {
        let bias = (blend.popularity != 0.0)
            .then(|| item_counts.iter().map(|&count| blend.popularity * (count as f32).ln_1p()).collect());
        Self { weights, scale: blend.weight, bias }
    }

    pub(crate) fn read(file: &TensorFile, blend: &Blend, item_counts: &[u32]) -> Result<Self> {
        let weights = match blend.weight != 0.0 {
            true => Some(ItemWeights::read(file, ARRAYS, item_counts.len())?),
            false => None,
        };
        Ok(Self::of(blend, weights, item_counts))
    }

    pub(crate) fn write<'a>(&'a self, writer: &mut TensorWriter<'a>) {
        if let Some(weights) = &self.weights {
            weights.write(writer, ARRAYS);
        }
    }

    /// The popularity term beside the item biases that a network has learned.
    pub(crate) fn bias_beside(&self, learned: Option<&[f32]>) -> Option<Vec<f32>> {
        let bias = self.bias.as_ref()?;
        Some(match learned {
            Some(learned) => bias.iter().zip(learned).map(|(bias, learned)| bias + learned).collect(),
            None => bias.clone(),
        })
    }

    /// What the history speaks for, ascending.
    fn few(&self, history: History<'_>) -> Vec<Scored> {
        let of = |weights: &ItemWeights| weights.spoken_for(history.items, item_value(history), self.scale);
        self.weights.as_ref().map(of).unwrap_or_default()
    }

    /// `scores` of `viewers` with the linear part's.
    pub(crate) fn beside<'a>(
        &'a self,
        scores: BlockScores<'a>,
        viewers: &'a [Viewer<'a>],
    ) -> BlockScores<'a> {
        match self.weights {
            None => scores,
            Some(_) => scores.plus_few(|at| self.few(viewers[at].history)),
        }
    }

    /// Adds what the score of each of `items` loses without each item of the history.
    pub(crate) fn add_contributions(&self, history: History<'_>, items: &[ItemId], lost: &mut Matrix) {
        let Some(weights) = &self.weights else { return };
        let of = |all: &[Scored], item: ItemId| {
            all.binary_search_by_key(&item, |scored| scored.item).map_or(0.0, |at| all[at].score)
        };
        let whole = self.few(history);
        for (row, &left_out) in history.items.iter().enumerate() {
            let Some(given) = history.weights else {
                for (lost, &item) in lost.row_mut(row).iter_mut().zip(items) {
                    *lost += self.scale * weights.between(left_out, item);
                }
                continue;
            };
            // What one item counts depends on the weights of the others.
            let without = |at: &usize| *at != row;
            let others: Vec<ItemId> =
                (0..history.items.len()).filter(without).map(|at| history.items[at]).collect();
            let given: Vec<f32> = (0..given.len()).filter(without).map(|at| given[at]).collect();
            let rest = self.few(History { items: &others, weights: Some(&given) });
            for (lost, &item) in lost.row_mut(row).iter_mut().zip(items) {
                *lost += of(&whole, item) - of(&rest, item);
            }
        }
    }
}

/// A network with what stands beside it, while neither is a model yet.
pub(crate) struct Blended<'a> {
    network: Network<'a>,
    linear: &'a Linear,
    bias: Option<Vec<f32>>,
}

impl<'a> Blended<'a> {
    pub(crate) fn of(network: Network<'a>, linear: &'a Linear) -> Self {
        Self { network, linear, bias: linear.bias_beside(network.item_table().bias) }
    }
}

impl Scorer for Blended<'_> {
    fn n_items(&self) -> usize {
        self.network.n_items()
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        let queries = encode(self.network, viewers.len(), |row| viewers[row].history);
        let table = self.network.item_table();
        let table = ItemTable { bias: self.bias.as_deref().or(table.bias), ..table };
        Ok(self.linear.beside(BlockScores::products(queries, table), viewers))
    }
}
