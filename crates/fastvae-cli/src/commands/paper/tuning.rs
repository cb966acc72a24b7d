//! Tuning as the paper tunes: by NDCG@50 on held-out data, over a small grid for each model and dataset.
//!
//! What is held out is a fifth of the training data of the first trial, so no test part has a say. What is chosen serves all
//! trials.

use anyhow::Result;
use fastvae::Config;
use fastvae::baseline::{Kind, PairwiseOptimizer, PairwiseSettings, Settings};
use fastvae::config::{Kl, ModelKind};
use fastvae::data::Split;
use std::sync::Arc;

use super::datasets::{Dataset, Trial};
use super::session::{Effort, Session};

/// Weights of the KL divergence, each with the steps over which it rises from nothing.
const BETAS: [(f32, u64); 5] = [(1.0, 0), (0.5, 0), (0.2, 0), (0.5, 20_000), (0.2, 20_000)];
/// Pulls to zero of the pairwise methods.
const PULLS: [f32; 4] = [0.005, 0.01, 0.02, 0.05];
/// Those of `wrmf`, with one pull for all vectors; the paper's is the first.
const WRMF_PULLS: [f32; 4] = [0.01, 15.0, 60.0, 240.0];
/// `aobpr` gets worse the longer it trains on some data: its passes are tried too.
const AOBPR_EPOCHS: [usize; 2] = [15, 40];
/// And plain steps at the paper's rate, with its batches as near to single pairs as pays on several threads.
const PLAIN_RATE: f32 = 0.05;
const PLAIN_BATCH: usize = 256;
/// Passes of the pairwise methods in a quick run.
const QUICK_EPOCHS: usize = 8;

/// Settings of one model.
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    /// Of an autoencoder.
    Vae(Config),
    /// Of a baseline.
    Baseline(Settings),
}

/// Settings that are tried, and what sets them apart from the others, in words.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// In words, and in the name of a file.
    pub label: String,
    /// The settings.
    pub setting: Setting,
}

/// What is tried for `model`, a name of table 2: in a quick run one setting.
pub fn grid(session: &Session, dataset: Dataset, model: &str) -> Vec<Candidate> {
    let mut all = match model.parse::<Kind>() {
        Ok(kind) => of_baseline(kind),
        Err(_) => of_autoencoder(&session.effort.config(), dataset, model),
    };
    if session.effort == Effort::Quick {
        all.truncate(1);
        if let Setting::Baseline(settings) = &mut all[0].setting
            && let Some(pairwise) = settings.pairwise_mut()
        {
            pairwise.epochs = pairwise.epochs.min(QUICK_EPOCHS);
        }
    }
    all
}

/// A fifth of what the first trial of a dataset learns from is held out.
pub fn trial(dataset: Dataset, first: &Trial) -> Result<Trial> {
    let parts = Split::Ratio(0.8).apply(&first.train, first.seed)?;
    let name = format!("{}-tuning", dataset.name);
    Ok(Trial { name, seed: first.seed, train: Arc::new(parts.train), test: parts.test })
}

fn of_autoencoder(start: &Config, dataset: Dataset, model: &str) -> Vec<Candidate> {
    let full = ModelKind::MultVae;
    let model = if model == full.name() { full } else { start.model };
    let of = |(beta, anneal_steps): (f32, u64)| {
        let kl = Kl { beta: Some(beta), gamma: None, anneal_steps };
        let config = Config { model, kl, negatives: dataset.negatives, ..start.clone() };
        let label = match anneal_steps {
            0 => format!("beta {beta}"),
            _ => format!("beta {beta} annealed"),
        };
        Candidate { label, setting: Setting::Vae(config) }
    };
    BETAS.map(of).into()
}

fn of_baseline(kind: Kind) -> Vec<Candidate> {
    let baseline = |label: String, settings| Candidate { label, setting: Setting::Baseline(settings) };
    let paper = kind.paper_settings();
    if let Settings::Wrmf(wrmf) = &paper {
        let with = |pull: f32| {
            let mut wrmf = wrmf.clone();
            wrmf.regularization = Some(pull);
            baseline(format!("pull {pull}"), Settings::Wrmf(wrmf))
        };
        return WRMF_PULLS.map(with).into();
    }
    let with = |label: String, change: &dyn Fn(&mut PairwiseSettings)| {
        let mut settings = paper.clone();
        change(settings.pairwise_mut().expect("the other baselines of the table are pairwise"));
        baseline(label, settings)
    };
    if kind != Kind::Aobpr {
        let by_pull = |pull: f32| with(format!("pull {pull}"), &|of| of.regularization = pull);
        return PULLS.map(by_pull).into();
    }
    let each = AOBPR_EPOCHS.into_iter().flat_map(|epochs| PULLS.map(|pull| (epochs, pull)));
    let by_adam = each.clone().map(|(epochs, pull)| {
        with(format!("pull {pull}, {epochs} epochs"), &|of| {
            (of.regularization, of.epochs) = (pull, epochs);
        })
    });
    let plain = each.map(|(epochs, pull)| {
        with(format!("plain, pull {pull}, {epochs} epochs"), &|of| {
            (of.regularization, of.epochs) = (pull, epochs);
            (of.optimizer, of.learning_rate, of.batch) = (PairwiseOptimizer::Sgd, PLAIN_RATE, PLAIN_BATCH);
        })
    });
    by_adam.chain(plain).collect()
}
