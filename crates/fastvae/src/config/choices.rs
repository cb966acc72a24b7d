//! The settings that are one of a few kinds, and those that come in groups.

use serde::{Deserialize, Serialize};

/// The model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelKind {
    /// Sampled softmax with negatives from a proposal.
    #[serde(rename = "fastvae")]
    FastVae,
    /// Full softmax (Liang et al., 2018), in tiles.
    MultVae,
}

impl ModelKind {
    /// The name in flags, files and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::FastVae => "fastvae",
            Self::MultVae => "mult-vae",
        }
    }
}

/// The non-linearity of the hidden layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// max(0, x).
    Relu,
    /// Hyperbolic tangent.
    Tanh,
}

/// A distribution over items given a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProposalKind {
    /// Every item alike.
    Uniform,
    /// By a function of the item's count.
    Popularity,
    /// The exact softmax; linear in the catalogue.
    Softmax,
    /// A quadratic kernel (Blanc & Rendle, 2018).
    Kernel,
    /// The best scored of a few uniform draws (Zhang et al., 2013).
    Dns,
    /// The softmax decomposed over cells (theorem 4.1); linear in the catalogue.
    MidxExact,
    /// Uniform within cells (theorem 5.1).
    MidxUniform,
    /// By popularity within cells (theorem 5.2).
    MidxPopularity,
}

impl ProposalKind {
    /// The name in flags, files and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Popularity => "popularity",
            Self::Softmax => "softmax",
            Self::Kernel => "kernel",
            Self::Dns => "dns",
            Self::MidxExact => "midx-exact",
            Self::MidxUniform => "midx-uniform",
            Self::MidxPopularity => "midx-popularity",
        }
    }

    /// Whether it holds something made from the item vectors, which is made again every few epochs.
    pub fn is_refreshed(self) -> bool {
        match self {
            Self::Uniform | Self::Popularity | Self::Softmax | Self::Dns => false,
            Self::Kernel | Self::MidxExact | Self::MidxUniform | Self::MidxPopularity => true,
        }
    }
}

/// How the softmax is estimated from the negatives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Estimator {
    /// Each positive against itself and the negatives (the paper).
    Sampled,
    /// Each positive against all of the user's positives, summed exactly, and the negatives among the other
    /// items: as accurate with about half the negatives. `dns`, whose `ln Q` is not known, is always `sampled`.
    Stratified,
}

/// How item vectors are coded by the codebooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantizer {
    /// Each codebook codes its share of the dimensions.
    Product,
    /// Each codebook codes what the ones before left over.
    Residual,
}

/// A function of an item's count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Popularity {
    /// ln(1 + count).
    Log,
    /// The count itself.
    Count,
    /// count^0.75.
    Power,
}

impl Popularity {
    /// The weight of an item that `count` users touched; positive even for a count of zero, so that every item
    /// can be drawn.
    pub(crate) fn weight(self, count: u32) -> f32 {
        let count = f64::from(count);
        let weight = match self {
            Self::Log => count.ln_1p(),
            Self::Count => count,
            Self::Power => count.powf(0.75),
        };
        // An item nobody touched still weighs a little: ln Q must be finite for every item.
        weight.max(0.1) as f32
    }
}

/// The weight of the KL divergence in the loss.
///
/// With neither `beta` nor `gamma`, gamma is chosen from the data.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kl {
    /// One weight for every user (the paper).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta: Option<f32>,
    /// Weight per interaction: a user with n items weighs gamma * n (RecVAE).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gamma: Option<f32>,
    /// Steps over which the weight rises linearly from 0; 0 for none.
    pub anneal_steps: u64,
}

/// The sparse linear part beside the network: a ridge regression of every item on its nearest, added to the logits, and a
/// weight on popularity.
///
/// What is absent is chosen on the validation part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ridge {
    /// Nearest items that each item is explained by; 0 for 64, or 30 where the catalogue is large.
    pub neighbours: usize,
    /// Pull of the weights towards zero, in interactions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub penalty: Option<f32>,
    /// How little long histories count: a user with n items counts n^-power.
    pub power: f32,
    /// What the linear part is multiplied by; 0 for the network alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f32>,
    /// What ln(1 + count) of an item adds to its score, times this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub popularity: Option<f32>,
}

/// Neighbours where they are not given, and in catalogues where their weights would be most of the memory.
const NEIGHBOURS: usize = 64;
const NEIGHBOURS_OF_MANY: usize = 30;
/// Items from which on a catalogue is large.
const MANY_ITEMS: usize = 250_000;

impl Default for Ridge {
    fn default() -> Self {
        Self { neighbours: 0, penalty: None, power: 0.5, weight: None, popularity: None }
    }
}

impl Ridge {
    /// None: the network alone.
    pub fn none() -> Self {
        Self { weight: Some(0.0), ..Self::default() }
    }

    /// The neighbours of an item, in a catalogue of `n_items`.
    pub(crate) fn neighbours_for(&self, n_items: usize) -> usize {
        match self.neighbours {
            0 if n_items >= MANY_ITEMS => NEIGHBOURS_OF_MANY,
            0 => NEIGHBOURS,
            given => given,
        }
    }
}

/// How parameters are updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// Adam over every row in every step; linear in the catalogue.
    Adam,
    /// Adam over the rows that the step touched.
    LazyAdam,
}

/// What Adam keeps of the gradients of the encoder rows and the item vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MomentKind {
    /// Two means for each number, as published.
    #[serde(alias = "element")]
    Full,
    /// The mean gradient in sixteen bits, and one mean square for each row: half the memory of the tables, and of the
    /// traffic that a step is made of.
    #[serde(alias = "row")]
    Compact,
}

/// Whether weight decay passes through Adam's moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightDecayMode {
    /// Added to the gradient (L2 regularisation, the paper).
    Coupled,
    /// Applied to the parameter directly (AdamW).
    Decoupled,
}

/// How the step size falls over the run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Decay {
    /// The shape of the fall.
    pub schedule: Schedule,
    /// Factor at each fall of the `step` schedule.
    pub factor: f32,
    /// Epochs between falls of the `step` schedule.
    pub every: usize,
}

/// The shape of the step size's fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// In a straight line from epoch to epoch, to a last epoch at 1/epochs of the start.
    Linear,
    /// Times `factor` after every `every` epochs (the paper).
    Step,
    /// Not at all.
    Constant,
}

impl Default for Decay {
    fn default() -> Self {
        Self { schedule: Schedule::Linear, factor: 0.95, every: 5 }
    }
}

impl Decay {
    /// The factor on the step size in epoch `epoch` of `epochs`, counted from 0.
    pub(crate) fn at(&self, epoch: usize, epochs: usize) -> f32 {
        match self.schedule {
            Schedule::Linear => epochs.saturating_sub(epoch).max(1) as f32 / epochs.max(1) as f32,
            Schedule::Step => self.factor.powi((epoch / self.every.max(1)) as i32),
            Schedule::Constant => 1.0,
        }
    }
}
