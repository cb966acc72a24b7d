//! [`Description`]: where a model comes from.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::baseline;
use crate::config::Config;
use crate::data::Statistics;
use crate::eval::Evaluation;

/// What is worth knowing about a model beside its numbers; JSON in the header of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Description {
    /// Version of the library that trained it.
    pub library_version: String,
    /// The method and its settings.
    #[serde(alias = "config")]
    pub settings: Settings,
    /// The data that the model was trained for: all that was given, held-out parts included.
    #[serde(default)]
    pub statistics: Option<Statistics>,
    /// What of these data it has learned from.
    #[serde(default)]
    pub learned: Option<Learned>,
    /// What stands beside the network, where something does.
    #[serde(default)]
    pub blend: Option<Blend>,
    /// How well it did on the part that its epochs were chosen by.
    #[serde(default)]
    pub validation: Option<Evaluation>,
    /// How well it did on held-out data, where it was evaluated.
    #[serde(default)]
    pub evaluation: Option<Evaluation>,
    /// Which data those were.
    #[serde(default)]
    pub measured_on: Option<String>,
    /// One record for each epoch of the training that chose the epochs, where it has epochs.
    #[serde(default)]
    pub epochs: Vec<EpochRecord>,
    /// How many cells of the index an approximate search visits, where that was measured.
    #[serde(default)]
    pub search: Option<Calibration>,
}

impl Description {
    /// A description of a model trained by this version of the library.
    pub fn new(settings: Settings) -> Self {
        Self {
            library_version: env!("CARGO_PKG_VERSION").to_string(),
            settings,
            statistics: None,
            learned: None,
            blend: None,
            validation: None,
            evaluation: None,
            measured_on: None,
            epochs: Vec::new(),
            search: None,
        }
    }
}

/// What stands beside a network or in its place, and how it was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Blend {
    /// What the linear part is multiplied by.
    pub weight: f32,
    /// What ln(1 + count) is multiplied by.
    pub popularity: f32,
    /// Nearest items that each item is explained by.
    pub neighbours: usize,
    /// Pull of the linear part's weights to zero.
    pub penalty: f32,
    /// How little long histories count in it.
    pub power: f32,
    /// Whether the network was left out: it gained less than noise.
    #[serde(default)]
    pub without_network: bool,
    /// Trainings that have chosen together, each by a validation part of its own; 0 where nothing was chosen.
    #[serde(default)]
    pub trainings: usize,
    /// NDCG@50 of both on the validation part, where they were chosen on one.
    #[serde(default)]
    pub together: Option<f64>,
    /// That of the network alone.
    #[serde(default)]
    pub network_alone: Option<f64>,
    /// That of the linear part and popularity alone.
    #[serde(default)]
    pub linear_alone: Option<f64>,
}

impl Blend {
    pub(crate) fn new(weight: f32, popularity: f32, neighbours: usize, penalty: f32, power: f32) -> Self {
        Self {
            weight,
            popularity,
            neighbours,
            penalty,
            power,
            without_network: false,
            trainings: 0,
            together: None,
            network_alone: None,
            linear_alone: None,
        }
    }
}

impl fmt::Display for Blend {
    /// One line: what stands there, and by which measurements.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let linear = format!("a ridge on {} nearest items, penalty {}", self.neighbours, self.penalty);
        match (self.without_network, self.weight != 0.0) {
            (true, true) => write!(f, "{linear}, without the network")?,
            (true, false) => write!(f, "popularity, without the network")?,
            (false, true) => write!(f, "the network and {} x {linear}", self.weight)?,
            (false, false) => write!(f, "the network")?,
        }
        if self.popularity != 0.0 && (self.weight != 0.0 || !self.without_network) {
            write!(f, ", {:+} x ln(1 + count)", self.popularity)?;
        }
        let measured = [
            ("both", self.together),
            ("the network alone", self.network_alone),
            ("without it", self.linear_alone),
        ];
        let measured: Vec<String> =
            measured.iter().filter_map(|(name, value)| Some(format!("{name} {:.4}", (*value)?))).collect();
        if !measured.is_empty() {
            write!(f, "; ndcg@50 on the validation part: {}", measured.join(", "))?;
        }
        if self.trainings > 1 {
            write!(f, ", in {} trainings", self.trainings)?;
        }
        Ok(())
    }
}

/// What a model has learned from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Learned {
    /// Interactions that it has seen.
    pub interactions: usize,
    /// Interactions that there were.
    pub of: usize,
    /// The epochs that it learned for, where it has epochs.
    #[serde(default)]
    pub epochs: Option<usize>,
    /// Whether it was trained again on everything with the settings and epochs that a part had chosen.
    #[serde(default)]
    pub refit: bool,
    /// Whether that network stands beside the one that has chosen: the model is both as one, twice as wide.
    #[serde(default)]
    pub pair: bool,
}

impl Learned {
    /// All of `n` interactions.
    pub(crate) fn all(n: usize) -> Self {
        Self { interactions: n, of: n, epochs: None, refit: false, pair: false }
    }

    /// The share that it has seen, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.interactions as f64 / self.of.max(1) as f64
    }
}

/// A method with its settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Settings {
    /// The variational autoencoder.
    Vae(Config),
    /// One of [`crate::baseline`].
    Baseline(baseline::Settings),
}

impl Settings {
    /// The method's name in flags, files and output.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Vae(config) => config.model.name(),
            Self::Baseline(settings) => settings.kind().name(),
        }
    }

    /// Those of the variational autoencoder, where it is one.
    pub fn config(&self) -> Option<&Config> {
        match self {
            Self::Vae(config) => Some(config),
            Self::Baseline(_) => None,
        }
    }
}

impl From<Config> for Settings {
    fn from(config: Config) -> Self {
        Self::Vae(config)
    }
}

impl From<baseline::Settings> for Settings {
    fn from(settings: baseline::Settings) -> Self {
        Self::Baseline(settings)
    }
}

impl<'de> Deserialize<'de> for Settings {
    /// By the key `model`, so that what is wrong with settings is said of the method that they are for.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let value = serde_json::Value::deserialize(from)?;
        let of_baseline = value
            .get("model")
            .and_then(|name| name.as_str())
            .is_some_and(|name| baseline::Kind::ALL.iter().any(|kind| kind.name() == name));
        match of_baseline {
            true => serde_json::from_value(value).map(Self::Baseline),
            false => serde_json::from_value(value).map(Self::Vae),
        }
        .map_err(D::Error::custom)
    }
}

/// How many cells a search visits, and what that was measured to give.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Calibration {
    /// The recall that was asked for.
    pub target: f64,
    /// The k of the recall.
    pub k: usize,
    /// Cells to visit.
    pub cells: usize,
    /// Recall measured on queries that the number of cells was not chosen on.
    pub recall: f64,
    /// Share of the catalogue that was scored, on average over those queries.
    pub scored_share: f64,
}

/// What one epoch saw and cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct EpochRecord {
    /// Epoch, counted from 1.
    pub epoch: usize,
    /// Whether it is of the training on everything, once the epochs were chosen.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refit: bool,
    /// Loss per user, the weighted KL divergence included.
    pub loss: f64,
    /// Negative log-likelihood per user.
    pub likelihood_loss: f64,
    /// KL divergence per user, unweighted.
    pub kl: f64,
    /// Step size.
    pub learning_rate: f32,
    /// NDCG@50 on the validation part, where the epoch was validated.
    pub validation: Option<f64>,
    /// Wall-clock seconds of the refresh and the steps; validation and diagnostics are not counted.
    pub seconds: f64,
    /// Of these, seconds of the refresh.
    pub index_seconds: f64,
    /// Processor seconds of the refresh and the steps, over all threads.
    pub cpu_seconds: f64,
    /// Users trained on per second.
    pub users_per_second: f64,
    /// How close the proposal is to the softmax, where the model samples.
    pub proposal: Option<ProposalDiagnostics>,
}

/// How close a proposal is to the softmax, on a sample of users.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProposalDiagnostics {
    /// Mean KL(Q || softmax).
    pub kl_to_softmax: f64,
    /// Mean effective sample size of the negatives, as a share of their number: 1 for draws from the softmax.
    pub effective_sample_share: f64,
    /// Cells of the index that hold items, where there is an index.
    pub occupied_cells: Option<usize>,
    /// Items in the largest cell.
    pub largest_cell: Option<usize>,
}
