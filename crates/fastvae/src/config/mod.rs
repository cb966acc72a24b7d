//! Every setting of a training run: one struct that the command line, TOML files and bindings fill.

mod choices;
mod device;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::resources;

pub use choices::{
    Activation, Decay, Estimator, Kl, ModelKind, MomentKind, Optimizer, Popularity, ProposalKind, Quantizer,
    Ridge, Schedule, WeightDecayMode,
};
pub use device::Device;

/// Steps of an epoch, at least, where batches are chosen: 2,000 in the 80 epochs of the default.
const ENOUGH_STEPS: usize = 25;
/// Users of a step, at most, where that is chosen: more lose accuracy.
const LARGEST_BATCH: usize = 512;

/// Draws per item, on average, after which the automatic `refresh_every` has the index refreshed.
const DRAWS_PER_REFRESH: usize = 4;

/// The settings of a training run.
///
/// [`Config::default`] is a network of moderate width beside a sparse linear part; [`Config::quick`] and [`Config::best`] are
/// the same with less and more of the network, [`Config::paper`] are the paper's own settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How the softmax over the catalogue is trained.
    pub model: ModelKind,
    /// Width of the hidden layer (H).
    pub hidden: usize,
    /// Size of the latent vector and of the item vectors (D).
    pub latent: usize,
    /// Columns of the encoder's table, which a dense layer then maps to the hidden layer's width: memory for a wide hidden
    /// layer over a large catalogue; 0 for a table as wide as the hidden layer.
    pub encoder_rank: usize,
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
    /// The sparse linear part beside the network.
    pub ridge: Ridge,
    /// How parameters are updated.
    pub optimizer: Optimizer,
    /// What is kept of the gradients of the tables.
    #[serde(alias = "second_moments")]
    pub moments: MomentKind,
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
    /// Users per step; 0 for as many as leave enough steps, 512 at most.
    pub batch: usize,
    /// Passes over the users, at most.
    pub epochs: usize,
    /// Validations in a row that are worse than the best by more than their noise before training stops; 0 means
    /// never, and no validation part is taken.
    pub patience: usize,
    /// Epochs between validations.
    pub validate_every: usize,
    /// Users, at most, whose interactions are held out in part for validation; 0 for 1,000, or 2,000 in data of fewer than
    /// 20,000 users.
    pub validation_users: usize,
    /// Whether a network that is trained again on everything stands beside the one that has chosen its epochs, and the model is
    /// the mean of both: twice as wide, at no other training.
    pub pair: bool,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Worker threads; 0 means one per core. The result does not depend on it.
    pub threads: usize,
    /// Epochs between refreshes of the index; 0 for as many as it takes to draw every item a few times.
    pub refresh_every: usize,
    /// What trains: this machine's cores or a GPU.
    pub device: Device,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            model: ModelKind::FastVae,
            hidden: 300,
            latent: 64,
            encoder_rank: 0,
            activation: Activation::Relu,
            dropout: 0.5,
            latent_samples: 1,
            item_bias: false,
            proposal: ProposalKind::MidxPopularity,
            estimator: Estimator::Stratified,
            negatives: 300,
            codewords: 32,
            codebooks: 2,
            quantizer: Quantizer::Product,
            popularity: Popularity::Log,
            kl: Kl::default(),
            ridge: Ridge::default(),
            optimizer: Optimizer::LazyAdam,
            moments: MomentKind::Compact,
            learning_rate: 2e-3,
            decay: Decay::default(),
            weight_decay: 0.01,
            weight_decay_mode: WeightDecayMode::Coupled,
            clip: None,
            batch: 0,
            epochs: 80,
            patience: 4,
            validate_every: 5,
            validation_users: 0,
            pair: false,
            seed: 0,
            threads: 0,
            refresh_every: 0,
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
            ridge: Ridge::none(),
            learning_rate: 1e-3,
            decay: Decay { schedule: Schedule::Step, ..Decay::default() },
            batch: 256,
            epochs: 200,
            patience: 0,
            ..Self::default()
        }
    }

    /// In seconds where the default takes a minute: a small network beside the linear part.
    pub fn quick() -> Self {
        Self { hidden: 200, latent: 48, negatives: 200, learning_rate: 1e-2, epochs: 15, ..Self::default() }
    }

    /// A wider network, with more users to choose by, and beside it another one, trained on everything where these are more than
    /// a few: one or two per cent more accurate than the default, at three to four times its cost.
    pub fn best() -> Self {
        Self {
            hidden: 400,
            latent: 96,
            negatives: 500,
            validation_users: 2500,
            pair: true,
            ..Self::default()
        }
    }

    /// The same settings with what they leave to the data, and with no more codewords than the catalogue can fill.
    ///
    /// An epoch has at least 25 steps of at most 512 users, where there are so many users.
    pub fn for_data(&self, n_users: usize, n_items: usize) -> Self {
        let mut config = self.clone();
        if config.batch == 0 {
            config.batch = (n_users / ENOUGH_STEPS).clamp(1, LARGEST_BATCH);
        }
        config.codewords = config.codewords.min(n_items.max(1));
        config
    }

    /// The number of threads: those asked for, or one per core.
    pub(crate) fn n_threads(&self) -> usize {
        if self.threads == 0 { resources::available_threads() } else { self.threads }
    }

    /// Columns of the encoder's table.
    pub(crate) fn encoder_columns(&self) -> usize {
        if self.encoder_rank > 0 { self.encoder_rank } else { self.hidden }
    }

    /// What is kept of the gradients of the item vectors: all of it for the full softmax, whose steps touch every one of
    /// them and take far longer for other reasons.
    pub(crate) fn item_moments(&self) -> MomentKind {
        if self.model == ModelKind::MultVae { MomentKind::Full } else { self.moments }
    }

    /// Epochs between refreshes of the index, for data of these sizes.
    ///
    /// Item vectors move when they are drawn, so a catalogue that an epoch hardly touches needs no new index after it:
    /// however large it is, refreshes cost a small share of the steps.
    pub(crate) fn refresh_interval(&self, n_users: usize, n_items: usize) -> usize {
        let draws = n_users.saturating_mul(self.latent_samples).saturating_mul(self.negatives).max(1);
        match self.refresh_every {
            0 => n_items.saturating_mul(DRAWS_PER_REFRESH).div_ceil(draws).max(1),
            epochs => epochs,
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
            ("epochs", self.epochs),
            ("validate_every", self.validate_every),
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
            ("encoder_rank", self.encoder_rank, 1 << 16),
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
        let Ridge { neighbours, penalty, power, weight, popularity } = self.ridge;
        if neighbours > 1024 {
            return Err(Error::config("ridge.neighbours", format!("is {neighbours}"), "give at most 1024"));
        }
        if !(0.0..=2.0).contains(&power) {
            return Err(Error::config("ridge.power", format!("is {power}"), "give a number from 0 to 2"));
        }
        non_negative("ridge.weight", weight.unwrap_or(0.0))?;
        if popularity.is_some_and(|popularity| !popularity.is_finite()) {
            return Err(Error::config("ridge.popularity", "is not finite", "give a number such as 0.1"));
        }
        let rates = [
            ("ridge.penalty", penalty),
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_lasts_until_every_item_was_drawn_a_few_times() {
        let config = Config { negatives: 200, ..Config::paper() };
        assert_eq!(config.refresh_interval(20_000, 40_000), 1);
        assert_eq!(config.refresh_interval(20_000, 1_000_000), 1);
        assert_eq!(config.refresh_interval(20_000, 10_000_000), 10);
        assert_eq!(config.refresh_interval(0, 10), 40);
        let asked = Config { refresh_every: 3, ..config };
        assert_eq!(asked.refresh_interval(20_000, 10_000_000), 3);
    }
}
