//! Why an item is recommended: what its score would lose without each item of the history.
//!
//! Exact, by leaving each one out: the model reads the shorter history and scores the item again. No gradient and no
//! approximation stands between; only the sum of encoder rows is kept and each row subtracted from it, so that a
//! history of h items costs h dense layers and not h^2 row sums.

use crate::data::ItemId;
use crate::error::Result;
use crate::math::dense::{Operand, product};
use crate::math::{Matrix, simd};
use crate::model::{History, bag};
use crate::model_file::Model;
use crate::recommend::filter::ascending;
use crate::recommend::single::clean_history;

/// An item of the history and its part in a recommendation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reason {
    /// The item of the history.
    pub item: ItemId,
    /// What the recommended item's score loses when this item is left out; negative where it gains.
    pub contribution: f32,
    /// Its share of all that speaks for the recommendation, from 0 to 1: its contribution over the sum of the
    /// positive ones.
    pub share: f32,
}

impl Model {
    /// The reasons for each of `items`, strongest first, at most `n` of them and only those that speak for it.
    ///
    /// Cost: length of the history x (hidden x latent + items x latent).
    ///
    /// # Errors
    /// As [`Model::recommend`]; also if an item of `items` is beyond the catalogue.
    pub fn explain(&self, history: History<'_>, items: &[ItemId], n: usize) -> Result<Vec<Vec<Reason>>> {
        ascending(self.n_items(), items)?;
        let (history, weights) = clean_history(self.n_items(), history)?;
        let queries = self.queries_without_each(&history, weights.as_deref());
        let table = self.parameters().items;
        let (rows, all) = (queries.view(), history.len());
        let reasons = |&item: &ItemId| {
            let vector = table.vectors.row(item as usize);
            let whole = simd::dot(rows.row(all), vector);
            let mut reasons: Vec<Reason> = (0..all)
                .map(|left_out| {
                    let contribution = whole - simd::dot(rows.row(left_out), vector);
                    Reason { item: history[left_out], contribution, share: 0.0 }
                })
                .filter(|reason| reason.contribution > 0.0)
                .collect();
            let total: f64 = reasons.iter().map(|reason| f64::from(reason.contribution)).sum();
            reasons.iter_mut().for_each(|r| r.share = (f64::from(r.contribution) / total) as f32);
            reasons.sort_by(|a, b| b.contribution.total_cmp(&a.contribution).then(a.item.cmp(&b.item)));
            reasons.truncate(n);
            reasons
        };
        Ok(items.iter().map(reasons).collect())
    }

    /// Row j is the query of the history without its item j; the last row that of the whole history.
    fn queries_without_each(&self, items: &[ItemId], weights: Option<&[f32]>) -> Matrix {
        let parameters = self.parameters();
        let (columns, latent) = (parameters.encoder.cols(), parameters.latent());
        let ones = vec![1.0; items.len()];
        let weights = weights.unwrap_or(&ones);
        let mut sum = vec![0.0; columns];
        bag(parameters.encoder, items, weights, &mut sum);
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
                    simd::axpy(-weight, parameters.encoder.row(item as usize), rest_sum);
                }
                let scale = (1.0 / rest.sqrt()) as f32;
                rest_sum.iter_mut().for_each(|value| *value *= scale);
            }
        }
        let states = parameters.hidden_states(sums);
        let mut queries = Matrix::zeros(items.len() + 1, latent);
        for row in 0..=items.len() {
            queries.row_mut(row)[..latent].copy_from_slice(&parameters.head_bias[..latent]);
        }
        let stride = queries.stride();
        let mean = parameters.head.columns(0, latent);
        product(queries.data_mut(), stride, true, Operand::Plain(states.view()), Operand::Plain(mean));
        queries
    }
}
