//! `item-knn`: what is like the items of the history (Sarwar et al., 2001).
//!
//! An item is a vector over users, weighted; two items are alike by the inner product of their vectors. Each item
//! keeps its nearest ones, and an item's score is the sum of its likeness to those of them that are in the history. (The other
//! way round, where each item of the history speaks for its own nearest ones, popular items have more speakers, and lists are
//! worse.) The weightings are those of `implicit`: users with long histories say little about likeness.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::baseline::by_item::ByItem;
use crate::baseline::co_counts::{CoCountRow, Nearest};
use crate::baseline::item_weights::ItemWeights;
use crate::baseline::method::{Method, by_weight};
use crate::data::{Interactions, ItemId};
use crate::error::{Error, Result};
use crate::eval::{BlockScores, Scorer, Viewer};
use crate::math::Matrix;
use crate::model_file::tensors::{TensorFile, TensorWriter};

/// Settings of `item-knn`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ItemKnnSettings {
    /// How an interaction counts in its item's vector.
    pub weighting: Weighting,
    /// Nearest items that each item keeps.
    pub neighbours: usize,
    /// Saturation of repeated interactions (`bm25`).
    pub k1: f32,
    /// How much long vectors are discounted, 0 to 1 (`bm25`).
    pub b: f32,
}

/// How an interaction counts in its item's vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weighting {
    /// Its weight; vectors have length 1.
    Cosine,
    /// The root of its weight times ln(items / (1 + length of the user's history)); vectors have length 1.
    TfIdf,
    /// Saturated by `k1`, discounted by `b`, times the same logarithm.
    Bm25,
}

impl Default for ItemKnnSettings {
    fn default() -> Self {
        Self { weighting: Weighting::TfIdf, neighbours: 200, k1: 1.2, b: 0.75 }
    }
}

impl ItemKnnSettings {
    pub(crate) fn validate(&self) -> Result<()> {
        if self.neighbours == 0 {
            return Err(Error::config("neighbours", "is 0", "give at least 1"));
        }
        if !(self.k1.is_finite() && self.k1 >= 0.0) {
            return Err(Error::config("k1", format!("is {}", self.k1), "give a number that is not negative"));
        }
        if !(0.0..=1.0).contains(&self.b) {
            return Err(Error::config("b", format!("is {}", self.b), "give a number from 0 to 1"));
        }
        Ok(())
    }
}

/// The nearest items of each item.
#[derive(Debug)]
pub(crate) struct ItemKnn {
    nearest: ItemWeights,
    /// For each item, those that it is near to: who gains from it in a history.
    near_to: ItemWeights,
}

/// Name of the arrays in files.
const ARRAYS: &str = "neighbours";

impl ItemKnn {
    /// Cost: the sum over users of the squared length of their histories.
    pub(crate) fn fit(data: &Interactions, settings: &ItemKnnSettings) -> Self {
        let by_item = ByItem::of(data);
        let values = weighted(data, &by_item, settings);
        let n_items = data.n_items();
        let neighbours = |(row, nearest): &mut (CoCountRow, Nearest), item: usize| -> Vec<(ItemId, f32)> {
            row.clear(n_items);
            for at in by_item.offsets[item]..by_item.offsets[item + 1] {
                let value = values[by_item.places[at]];
                let user = by_item.users[at] as usize;
                for other in data.offsets()[user]..data.offsets()[user + 1] {
                    row.add(data.items()[other], value * values[other]);
                }
            }
            // An item is always its own nearest; it would say nothing about others. Items that share no user are
            // not neighbours.
            let others = row.touched.iter().filter(|&&other| other as usize != item);
            let likeness = others.map(|&other| (other, row.sums[other as usize]));
            nearest.of(likeness, settings.neighbours).collect()
        };
        let rows: Vec<Vec<(ItemId, f32)>> =
            (0..n_items).into_par_iter().map_init(Default::default, neighbours).collect();
        Self::with(ItemWeights::of_rows(&rows))
    }

    fn with(nearest: ItemWeights) -> Self {
        Self { near_to: nearest.transposed(), nearest }
    }

    pub(crate) fn read(file: &TensorFile, n_items: usize) -> Result<Self> {
        Ok(Self::with(ItemWeights::read(file, ARRAYS, n_items)?))
    }
}

/// The weighted value of every interaction, beside [`Interactions::items`].
fn weighted(data: &Interactions, by_item: &ByItem, settings: &ItemKnnSettings) -> Vec<f32> {
    let raw = |place: usize| data.weights().map_or(1.0, |weights| weights[place]);
    let mut values = vec![0.0; data.n_interactions()];
    let log_items = (data.n_items() as f32).ln();
    let mean_length = (0..values.len()).map(raw).sum::<f32>() / data.n_items().max(1) as f32;
    let lengths: Vec<f32> = by_item
        .offsets
        .windows(2)
        .map(|span| by_item.places[span[0]..span[1]].iter().map(|&place| raw(place)).sum())
        .collect();
    for span in data.offsets().windows(2) {
        // Nobody's history is so long that it speaks against likeness.
        let rarity = (log_items - ((span[1] - span[0]) as f32).ln_1p()).max(0.0);
        for place in span[0]..span[1] {
            values[place] = match settings.weighting {
                Weighting::Cosine => raw(place),
                Weighting::TfIdf => raw(place).sqrt() * rarity,
                Weighting::Bm25 => {
                    let length = lengths[data.items()[place] as usize] / mean_length;
                    let norm = (1.0 - settings.b) + settings.b * length;
                    raw(place) * (settings.k1 + 1.0) / (settings.k1 * norm + raw(place)) * rarity
                }
            };
        }
    }
    if settings.weighting != Weighting::Bm25 {
        for span in by_item.offsets.windows(2) {
            let places = &by_item.places[span[0]..span[1]];
            let norm = places.iter().map(|&place| values[place] * values[place]).sum::<f32>().sqrt();
            if norm > 0.0 {
                places.iter().for_each(|&place| values[place] /= norm);
            }
        }
    }
    values
}

impl Scorer for ItemKnn {
    fn n_items(&self) -> usize {
        self.nearest.n_items()
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        Ok(BlockScores::few(|at| {
            let history = viewers[at].history;
            let weight = |at: usize| history.weights.map_or(1.0, |weights| weights[at]);
            self.near_to.spoken_for(history.items, weight, 1.0)
        }))
    }
}

impl Method for ItemKnn {
    fn likeness(&self, item: ItemId, scores: &mut [f32]) -> Result<()> {
        scores.fill(f32::NEG_INFINITY);
        self.nearest.of(item).for_each(|(other, value)| scores[other as usize] = value);
        Ok(())
    }

    fn contributions(&self, viewer: Viewer<'_>, items: &[ItemId]) -> Result<Matrix> {
        Ok(by_weight(viewer.history, items, |item, of| self.nearest.between(of, item)))
    }

    fn write<'a>(&'a self, writer: &mut TensorWriter<'a>) {
        self.nearest.write(writer, ARRAYS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::tests::random_interactions;
    use crate::network::History;

    /// Every pair of items, by the definition.
    fn naive(data: &Interactions, settings: &ItemKnnSettings) -> Vec<Vec<f32>> {
        let (n_users, n_items) = (data.n_users(), data.n_items());
        let mut x = vec![vec![0.0f64; n_users]; n_items];
        for user in 0..n_users {
            let row = data.row(user);
            for (at, &item) in row.items.iter().enumerate() {
                x[item as usize][user] = row.weights.map_or(1.0, |weights| f64::from(weights[at]));
            }
        }
        let lengths: Vec<f64> = x.iter().map(|row| row.iter().sum()).collect();
        let mean = lengths.iter().sum::<f64>() / n_items as f64;
        for (item, row) in x.iter_mut().enumerate() {
            for (user, value) in row.iter_mut().enumerate() {
                let rarity = (n_items as f64 / (1.0 + data.row(user).items.len() as f64)).ln().max(0.0);
                *value = match settings.weighting {
                    Weighting::Cosine => *value,
                    Weighting::TfIdf => value.sqrt() * rarity,
                    Weighting::Bm25 => {
                        let (k1, b) = (f64::from(settings.k1), f64::from(settings.b));
                        *value * (k1 + 1.0) / (k1 * (1.0 - b + b * lengths[item] / mean) + *value) * rarity
                    }
                };
            }
            let norm = row.iter().map(|v| v * v).sum::<f64>().sqrt();
            if settings.weighting != Weighting::Bm25 && norm > 0.0 {
                row.iter_mut().for_each(|v| *v /= norm);
            }
        }
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() as f32;
        x.iter().map(|a| x.iter().map(|b| dot(a, b)).collect()).collect()
    }

    #[test]
    fn neighbours_are_the_nearest_by_the_definition() {
        let data = random_interactions(80, 40, true);
        for weighting in [Weighting::Cosine, Weighting::TfIdf, Weighting::Bm25] {
            let settings = ItemKnnSettings { weighting, neighbours: 7, ..ItemKnnSettings::default() };
            let knn = ItemKnn::fit(&data, &settings);
            for (item, likeness) in naive(&data, &settings).into_iter().enumerate() {
                let mut expected: Vec<f32> =
                    (0..40).filter(|&other| other != item).map(|other| likeness[other]).collect();
                expected.retain(|&value| value > 0.0);
                expected.sort_by(|a, b| b.total_cmp(a));
                expected.truncate(7);
                let mut got: Vec<f32> = knn
                    .nearest
                    .of(item as ItemId)
                    .map(|(other, value)| {
                        assert!((value - likeness[other as usize]).abs() < 1e-4, "{weighting:?}");
                        value
                    })
                    .collect();
                got.sort_by(|a, b| b.total_cmp(a));
                assert_eq!(got.len(), expected.len());
                assert!(got.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4));
            }
        }
    }

    #[test]
    fn an_item_scores_its_likeness_to_those_of_its_nearest_that_are_in_the_history() {
        let data = random_interactions(80, 40, false);
        let knn = ItemKnn::fit(&data, &ItemKnnSettings { neighbours: 5, ..ItemKnnSettings::default() });
        let history = [3, 8, 21, 30];
        let viewers = [Viewer::from(History { items: &history, weights: None })];
        let all: Vec<ItemId> = (0..40).collect();
        let scores = knn.block(&viewers).unwrap().of_items(0, &all, 40);
        for (item, &score) in scores.iter().enumerate() {
            let near = knn.nearest.of(item as ItemId).filter(|(other, _)| history.contains(other));
            let expected: f32 = near.map(|(_, value)| value).sum();
            assert!((score - expected).abs() < 1e-5, "{item}: {score} {expected}");
        }
    }
}
