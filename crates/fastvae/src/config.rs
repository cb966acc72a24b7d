//! Every setting of a training run: one struct that the command line, TOML files and bindings fill.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The settings of a training run.
///
/// [`Config::default`] is the wide model that beats the paper; [`Config::paper`] its own settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How the softmax over the catalogue is trained.
    pub model: ModelKind,
    /// Width of the hidden layer (H).
    pub hidden: usize,
    /// Size of the latent vector and of the item vectors (D).
    pub latent: usize,
    /// Non-linearity of the hidden layer.
    pub activation: Activation,
    /// Probability that an input item is left out in a training step.
    pub dropout: f32,
    /// Latent draws per user and step (S).
    pub latent_samples: usize,
    /// Whether each item has a bias beside its vector.
    pub item_bias: bool,
    /// Where negatives come from.
    pub proposal: ProposalKind,
    /// How the softmax is estimated from the negatives.
    pub estimator: Estimator,
    /// Negatives per user and latent draw (T).
    pub negatives: usize,
    /// Codewords per codebook (K).
    pub codewords: usize,
    /// Codebooks of the inverted multi-index (m), 1 to 4.
    pub codebooks: usize,
    /// How item vectors are coded.
    pub quantizer: Quantizer,
    /// The function of an item's count that `popularity` and `midx-popularity` weigh by.
    pub popularity: Popularity,
    /// Weight of the KL divergence.
    pub kl: Kl,
    /// How parameters are updated.
    pub optimizer: Optimizer,
    /// Step size at the start.
    pub learning_rate: f32,
    /// How the step size falls.
    pub decay: Decay,
    /// Pull of the parameters towards zero.
    pub weight_decay: f32,
    /// Whether weight decay passes through the moments.
    pub weight_decay_mode: WeightDecayMode,
    /// Largest norm of one row's gradient (an item's, or a dense layer's slab of rows); none by default.
    pub clip: Option<f32>,
    /// Users per step.
    pub batch: usize,
    /// Passes over the users, at most.
    pub epochs: usize,
    /// Validations in a row that are worse than the best by more than their noise before training stops; 0 means
    /// never, and no validation part is taken.
    pub patience: usize,
    /// Epochs between validations.
    pub validate_every: usize,
    /// Users, at most, whose interactions are held out in part for validation.
    pub validation_users: usize,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Worker threads; 0 means one per core. The result does not depend on it.
    pub threads: usize,
    /// Epochs between refreshes of the index.
    pub refresh_every: usize,
    /// What trains: this machine's cores or a GPU.
    pub device: Device,
}

/// What a run trains on; written `auto`, `cpu`, `cuda` or `cuda:1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Device {
    /// The first GPU that can, else the cores.
    #[default]
    Auto,
    /// The cores.
    Cpu,
    /// The GPU of this number.
    Cuda(usize),
}

impl std::str::FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::config(
                "device",
                format!("is `{text}`"),
                "give auto, cpu, cuda, or cuda:N for GPU number N",
            )
        };
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|number| number.parse().ok())
                .map(Self::Cuda)
                .ok_or_else(wrong),
        }
    }
}

impl TryFrom<String> for Device {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

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
    pub fn weight(self, count: u32) -> f32 {
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

/// How parameters are updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// Adam over every row in every step; linear in the catalogue.
    Adam,
    /// Adam over the rows that the step touched.
    LazyAdam,
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
    pub fn at(&self, epoch: usize, epochs: usize) -> f32 {
        match self.schedule {
            Schedule::Linear => epochs.saturating_sub(epoch).max(1) as f32 / epochs.max(1) as f32,
            Schedule::Step => self.factor.powi((epoch / self.every.max(1)) as i32),
            Schedule::Constant => 1.0,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            model: ModelKind::FastVae,
            hidden: 1000,
            latent: 256,
            activation: Activation::Relu,
            dropout: 0.5,
            latent_samples: 1,
            item_bias: false,
            proposal: ProposalKind::MidxPopularity,
            estimator: Estimator::Stratified,
            negatives: 500,
            codewords: 32,
            codebooks: 2,
            quantizer: Quantizer::Product,
            popularity: Popularity::Log,
            kl: Kl::default(),
            optimizer: Optimizer::LazyAdam,
            learning_rate: 2e-3,
            decay: Decay::default(),
            weight_decay: 0.01,
            weight_decay_mode: WeightDecayMode::Coupled,
            clip: None,
            batch: 512,
            epochs: 100,
            patience: 4,
            validate_every: 5,
            validation_users: 1000,
            seed: 0,
            threads: 0,
            refresh_every: 1,
            device: Device::Auto,
        }
    }
}

impl Config {
    /// The paper's settings: 200-32, constant beta, all epochs on all training data.
    ///
    /// Two deviations that its section 6.1.4 does not settle: `lazy-adam` (set `optimizer` to `adam` for the
    /// dense one) and beta = 1.
    pub fn paper() -> Self {
        Self {
            hidden: 200,
            latent: 32,
            estimator: Estimator::Sampled,
            negatives: 1000,
            codewords: 16,
            kl: Kl { beta: Some(1.0), gamma: None, anneal_steps: 0 },
            learning_rate: 1e-3,
            decay: Decay { schedule: Schedule::Step, ..Decay::default() },
            batch: 256,
            epochs: 200,
            patience: 0,
            ..Self::default()
        }
    }

    /// Checks every value once.
    ///
    /// # Errors
    /// [`Error::Config`] with the first key whose value cannot work.
    pub fn validate(&self) -> Result<()> {
        let positive = [
            ("hidden", self.hidden),
            ("latent", self.latent),
            ("latent_samples", self.latent_samples),
            ("negatives", self.negatives),
            ("codewords", self.codewords),
            ("batch", self.batch),
            ("epochs", self.epochs),
            ("validate_every", self.validate_every),
            ("refresh_every", self.refresh_every),
            ("decay.every", self.decay.every),
        ];
        for (key, value) in positive {
            if value == 0 {
                return Err(Error::config(key, "is 0", "give at least 1"));
            }
        }
        let limits = [
            ("hidden", self.hidden, 1 << 16),
            ("latent", self.latent, 1 << 14),
            ("latent_samples", self.latent_samples, 1 << 10),
            ("negatives", self.negatives, 1 << 20),
            ("codewords", self.codewords, 256),
            ("codebooks", self.codebooks, 4),
            ("batch", self.batch, 1 << 16),
        ];
        for (key, value, most) in limits {
            if value > most {
                return Err(Error::config(key, format!("is {value}"), format!("give at most {most}")));
            }
        }
        if self.codebooks == 0 {
            return Err(Error::config("codebooks", "is 0", "give 1 to 4"));
        }
        if self.codebooks > self.latent {
            return Err(Error::config(
                "codebooks",
                format!("is {} for {} latent dimensions", self.codebooks, self.latent),
                "give each codebook at least one dimension",
            ));
        }
        let unit = |key: &str, value: f32, allow_one: bool| {
            if (0.0..1.0).contains(&value) || (allow_one && value == 1.0) {
                Ok(())
            } else {
                Err(Error::config(key, format!("is {value}"), "give a value from 0 to below 1"))
            }
        };
        unit("dropout", self.dropout, false)?;
        let non_negative = |key: &str, value: f32| {
            if value.is_finite() && value >= 0.0 {
                Ok(())
            } else {
                Err(Error::config(key, format!("is {value}"), "give a finite value that is not negative"))
            }
        };
        non_negative("weight_decay", self.weight_decay)?;
        non_negative("kl.beta", self.kl.beta.unwrap_or(0.0))?;
        non_negative("kl.gamma", self.kl.gamma.unwrap_or(0.0))?;
        if self.kl.beta.is_some() && self.kl.gamma.is_some() {
            return Err(Error::config("kl", "has both beta and gamma", "give one of them"));
        }
        let rates = [
            ("learning_rate", Some(self.learning_rate)),
            ("decay.factor", Some(self.decay.factor)),
            ("clip", self.clip),
        ];
        for (key, value) in rates {
            if value.is_some_and(|v| !(v.is_finite() && v > 0.0)) {
                return Err(Error::config(
                    key,
                    format!("is {}", value.unwrap_or_default()),
                    "give a positive number",
                ));
            }
        }
        if self.patience > 0 && self.validation_users == 0 {
            return Err(Error::config("validation_users", "is 0", "give some users, or set patience to 0"));
        }
        Ok(())
    }
}
