//! Matrix factorisation by pairs: a user's item should score above items the user did not touch.
//!
//! For a user u, an item i of the history and negatives j with weights w_j, the loss is
//! sum of w_j f(s_i - s_j), f(x) = ln(1 + e^-x) or a hinge, s = p_u . q. The methods differ in where negatives
//! come from and in their weights: one file each, a [`Negatives`].
//!
//! | kind | negatives of a pair | weights |
//! |---|---|---|
//! | `bpr` | uniform | 1 / n |
//! | `warp` | the first of at most n uniform draws within a margin of 1 | ln of the rank that the trials suggest |
//! | `aobpr` | geometric over the ranks by one factor | 1 / n |
//! | `dns` | the best scored of n uniform draws | 1 |
//! | `pris` | popularity within clusters near the user | softmax of s_j - ln Q(j), so that they follow the softmax |
//! | `sa` | uniform | softmax of s_j |
//!
//! Steps take a batch of pairs: gradients first, from vectors that stand still, then each touched row moves once, by
//! Adam or as its gradient is. No order of threads shows in the result.

mod aobpr;
mod bpr;
mod pris;
mod step;
mod warp;

use fearless_simd::Simd;
use serde::{Deserialize, Serialize};

use crate::baseline::factors::Factors;
use crate::baseline::settings::Kind;
use crate::baseline::{Observer, tell};
use crate::data::{Interactions, ItemId};
use crate::error::{Error, Result};
use crate::math::simd::{dot_in, prefetch};
use crate::math::{Matrix, Purpose, Stream, simd};

use step::{Mover, Trainer};

/// How a row follows its gradient.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PairwiseOptimizer {
    /// By Adam's moments.
    #[default]
    Adam,
    /// As it is, as the methods were published: rates are ten times Adam's, and batches small.
    Sgd,
}

/// Settings of the pairwise methods. Those that a method does not have are absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairwiseSettings {
    /// Length of the vectors.
    pub factors: usize,
    /// Passes over the interactions.
    pub epochs: usize,
    /// How rows follow their gradients.
    #[serde(default)]
    pub optimizer: PairwiseOptimizer,
    /// Step size at the start; it falls in a straight line to nothing.
    pub learning_rate: f32,
    /// Pull of the vectors of a pair to zero.
    pub regularization: f32,
    /// Pairs per step.
    pub batch: usize,
    /// Draws for each pair: negatives, or the candidates of which one is taken (`warp`, `dns`).
    pub negatives: usize,
    /// Scale of the geometric distribution over ranks (`aobpr`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank_scale: Option<f32>,
    /// Clusters of items (`pris`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<usize>,
    /// What scores are divided by in the softmax of the weights (`pris`, `sa`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl PairwiseSettings {
    /// Sensible settings of `kind`.
    pub(crate) fn of(kind: Kind) -> Self {
        let common = Self {
            factors: 64,
            epochs: 40,
            optimizer: PairwiseOptimizer::Adam,
            learning_rate: 0.005,
            regularization: 0.005,
            batch: 4096,
            negatives: 5,
            rank_scale: None,
            clusters: None,
            temperature: None,
            seed: 0,
        };
        match kind {
            Kind::Warp => Self { negatives: 50, ..common },
            Kind::Aobpr => Self { rank_scale: Some(500.0), negatives: 2, ..common },
            Kind::Dns => Self { negatives: 10, ..common },
            Kind::Pris => Self { negatives: 20, clusters: Some(16), temperature: Some(1.0), ..common },
            Kind::Sa => Self { negatives: 50, temperature: Some(1.0), ..common },
            _ => common,
        }
    }

    /// Section 6.1.2 of the paper, as far as it says: 32 factors, 5 negatives for `bpr`, at most 50 trials for
    /// `warp`, a scale of 500 for `aobpr`, 16 clusters for `pris`.
    ///
    /// It tunes the pull to zero for each dataset, in units of other optimisers. The pulls here, and the fewer epochs
    /// of `aobpr`, were chosen by NDCG@50 on a fifth of Gowalla's training data, for `bpr` and `dns` of
    /// MovieLens-10M's too. `pris` has that of `sa`, and `warp` the default. The one of `aobpr` is for Gowalla:
    /// MovieLens-10M wants 0.02 and 40 epochs.
    pub(crate) fn paper(kind: Kind) -> Self {
        let common = Self { factors: 32, ..Self::of(kind) };
        match kind {
            Kind::Bpr => Self { regularization: 0.01, ..common },
            Kind::Aobpr => Self { regularization: 0.05, epochs: 15, ..common },
            Kind::Dns | Kind::Pris | Kind::Sa => Self { regularization: 0.02, ..common },
            _ => common,
        }
    }

    pub(crate) fn validate(&self, kind: Kind) -> Result<()> {
        for (key, value, most) in [
            ("factors", self.factors, 1 << 12),
            ("epochs", self.epochs, 1 << 20),
            ("batch", self.batch, 1 << 20),
            ("negatives", self.negatives, 1 << 14),
            ("clusters", self.clusters.unwrap_or(1), 256),
        ] {
            if !(1..=most).contains(&value) {
                return Err(Error::config(key, format!("is {value}"), format!("give 1 to {most}")));
            }
        }
        let own = Self::of(kind);
        for (key, value, has) in [
            ("rank_scale", self.rank_scale.map(f64::from), own.rank_scale.is_some()),
            ("clusters", self.clusters.map(|n| n as f64), own.clusters.is_some()),
            ("temperature", self.temperature.map(f64::from), own.temperature.is_some()),
        ] {
            match (value, has) {
                (Some(_), false) => {
                    return Err(Error::config(key, format!("{kind} has no such setting"), "leave it out"));
                }
                (None, true) => return Err(Error::config(key, "is missing", format!("{kind} needs it"))),
                (Some(value), true) if !(value.is_finite() && value > 0.0) => {
                    return Err(Error::config(key, format!("is {value}"), "give a positive number"));
                }
                _ => {}
            }
        }
        if !(self.learning_rate.is_finite() && self.learning_rate > 0.0) {
            return Err(Error::config(
                "learning_rate",
                format!("is {}", self.learning_rate),
                "give a positive number",
            ));
        }
        if !(self.regularization.is_finite() && self.regularization >= 0.0) {
            return Err(Error::config(
                "regularization",
                format!("is {}", self.regularization),
                "give a number that is not negative",
            ));
        }
        Ok(())
    }
}

/// Where negatives come from, and what they weigh.
trait Negatives: Sync {
    /// Adapts to the vectors as they are at the start of an epoch.
    fn refresh(&mut self, _users: &Matrix, _items: &Matrix, _epoch: u32) {}

    /// Fills `pulls` with the negatives of `pair`, each with how strongly it is pushed down (and the pair's own
    /// item up): -dloss/d(s_i - s_j). Returns the loss.
    fn pull<S: Simd>(&self, simd: S, pair: &Pair<'_>, stream: &mut Stream, pulls: &mut Pulls) -> f32;
}

/// A user and an item of the user's history.
struct Pair<'a> {
    /// The user's vector.
    query: &'a [f32],
    item: ItemId,
    /// All items of the user, ascending.
    seen: &'a [ItemId],
    items: &'a Matrix,
}

impl Pair<'_> {
    /// The score of `item`.
    #[inline(always)]
    fn score<S: Simd>(&self, simd: S, item: ItemId) -> f32 {
        dot_in(simd, self.query, self.items.row(item as usize))
    }

    /// Whether the user touched `item`.
    #[inline(always)]
    fn has(&self, item: ItemId) -> bool {
        self.seen.binary_search(&item).is_ok()
    }

    /// An item alike for all; one of the user's own has one more chance not to be.
    #[inline(always)]
    fn uniform(&self, stream: &mut Stream) -> Option<ItemId> {
        for _ in 0..4 {
            // One word: the bias is below n_items / 2^32.
            let item = ((u64::from(stream.next_word()) * self.items.rows() as u64) >> 32) as ItemId;
            if !self.has(item) {
                return Some(item);
            }
        }
        None
    }

    /// Fills `entries` with n uniform negatives; their vectors are on the way from memory when they are scored.
    #[inline(always)]
    fn draw_uniform(&self, n: usize, stream: &mut Stream, entries: &mut Vec<(ItemId, f32)>) {
        for _ in 0..n {
            let Some(item) = self.uniform(stream) else { continue };
            prefetch(self.items.row(item as usize));
            entries.push((item, 0.0));
        }
    }
}

/// Buffers of the negatives of one pair.
#[derive(Debug, Default)]
struct Pulls {
    /// Negatives and how strongly they are pushed down.
    entries: Vec<(ItemId, f32)>,
    /// Their scores, less ln Q where it is known.
    scores: Vec<f32>,
    /// Scores of clusters or factors.
    scratch: Vec<f32>,
}

/// ln(1 + e^-x), the loss of a difference x, and 1 / (1 + e^x), how strongly it is pulled.
#[inline(always)]
fn logistic(x: f32) -> (f32, f32) {
    let e = (-x.abs()).exp();
    let loss = e.ln_1p() + (-x).max(0.0);
    (loss, if x >= 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) })
}

/// Weights the negatives in `pulls.entries` by the softmax of `pulls.scores` and takes the logistic loss of
/// each; `score` of entry k is in its second place until then.
fn softmax_weighted(pulls: &mut Pulls, positive: f32) -> f32 {
    let Pulls { entries, scores, .. } = pulls;
    let shift = simd::max(scores);
    let sum = simd::exp_shifted(scores, shift) as f32;
    let mut total = 0.0;
    for ((_, strength), weight) in entries.iter_mut().zip(scores) {
        let (loss, pull) = logistic(positive - *strength);
        let weight = *weight / sum;
        *strength = weight * pull;
        total += weight * loss;
    }
    total
}

/// Trains `kind` on `data`.
pub(crate) fn fit(
    data: &Interactions,
    kind: Kind,
    settings: &PairwiseSettings,
    observer: &mut Observer<'_>,
) -> Result<Factors> {
    let n = settings.negatives;
    let temperature = settings.temperature.unwrap_or(1.0);
    let (users, items) = match kind {
        Kind::Bpr => run(data, settings, bpr::Uniform { n }, observer),
        Kind::Dns => run(data, settings, bpr::BestOf { n }, observer),
        Kind::Sa => run(data, settings, bpr::SelfAdversarial { n, temperature }, observer),
        Kind::Warp => run(data, settings, warp::Warp::new(n, data.n_items()), observer),
        Kind::Aobpr => {
            let scale = settings.rank_scale.unwrap_or(500.0);
            run(data, settings, aobpr::ByFactorRank::new(n, scale), observer)
        }
        Kind::Pris => {
            let clusters = settings.clusters.unwrap_or(16).min(data.n_items());
            let negatives =
                pris::Clustered::new(n, clusters, temperature, &data.item_counts(), settings.seed);
            run(data, settings, negatives, observer)
        }
        other => unreachable!("{other} is not a pairwise method"),
    }?;
    Ok(Factors::new(kind, users, items, data.user_ids().clone()))
}

fn run(
    data: &Interactions,
    settings: &PairwiseSettings,
    mut negatives: impl Negatives,
    observer: &mut Observer<'_>,
) -> Result<(Matrix, Matrix)> {
    let mut trainer = Trainer::new(data, settings);
    let mut order: Vec<u32> = (0..data.n_interactions() as u32).collect();
    let n_steps = (order.len().div_ceil(settings.batch) * settings.epochs) as f32;
    let mut loss = None;
    for epoch in 0..settings.epochs {
        tell(observer, epoch, settings.epochs, loss)?;
        negatives.refresh(&trainer.users, &trainer.items, epoch as u32);
        Stream::new(settings.seed, Purpose::Shuffle, epoch as u32, 0).shuffle(&mut order);
        let mut total = 0.0;
        for batch in order.chunks_mut(settings.batch) {
            let left = 1.0 - trainer.n_steps() as f32 / n_steps;
            let mover = Mover::at(settings.optimizer, settings.learning_rate * left, trainer.n_steps());
            total += trainer.step(&negatives, batch, epoch as u32, &mover);
        }
        let mean = total / order.len() as f64;
        if !mean.is_finite() {
            return Err(Error::Diverged { epoch: epoch + 1, loss: mean });
        }
        loss = Some(mean);
    }
    tell(observer, settings.epochs, settings.epochs, loss)?;
    Ok((trainer.users, trainer.items))
}

#[cfg(test)]
mod tests;
