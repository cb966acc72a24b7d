//! What a finished training tells, as a table or as JSON.

use std::path::PathBuf;

use fastvae::Config;
use fastvae::backend::{Phase, PhaseTimes};
use fastvae::config::{ModelKind, ProposalKind};
use fastvae::data::Interactions;
use fastvae::loss::KlWeight;
use fastvae::train::{BestEpoch, EpochRecord, Training};
use fastvae::{math, resources};
use serde_json::{Map, Value, json};

use crate::display::{self, bytes, seconds, thousands};
use crate::scores::Scores;
use crate::settings::{Preset, Settings};

/// The results of one training.
pub struct Report {
    config: Config,
    preset: Preset,
    n_users: usize,
    n_items: usize,
    n_train: usize,
    n_test: usize,
    origin: String,
    /// How well the model ranks, where something was held out.
    pub scores: Option<Scores>,
    /// Where the model is, where it was saved.
    pub model_path: Option<PathBuf>,
    records: Vec<EpochRecord>,
    best: Option<BestEpoch>,
    threads: usize,
    device: String,
    refresh_interval: usize,
    kl_weight: Option<KlWeight>,
    phases: PhaseTimes,
    /// Whether the table of phases is shown.
    pub with_profile: bool,
    peak_memory: Option<u64>,
}

impl Report {
    /// A report on what is about to be trained.
    pub fn new(
        settings: &Settings,
        train: &Interactions,
        test: Option<&Interactions>,
        origin: String,
    ) -> Self {
        Self {
            config: settings.config.clone(),
            preset: settings.preset,
            n_users: train.n_users(),
            n_items: train.n_items(),
            n_train: train.n_interactions(),
            n_test: test.map_or(0, Interactions::n_interactions),
            origin,
            scores: None,
            model_path: None,
            records: Vec::new(),
            best: None,
            threads: 0,
            device: String::new(),
            refresh_interval: 1,
            kl_weight: None,
            phases: PhaseTimes::default(),
            with_profile: false,
            peak_memory: None,
        }
    }

    /// Takes what the finished run knows.
    pub fn note_training(&mut self, training: &Training) {
        self.records = training.records().to_vec();
        self.best = training.best();
        self.threads = training.pool().current_num_threads();
        self.device = training.device();
        self.refresh_interval = training.refresh_interval();
        self.kl_weight = Some(training.kl_weight());
        self.phases = training.phase_times();
    }

    /// Looks up the most memory that was held.
    pub fn note_memory(&mut self) {
        self.peak_memory = resources::peak_memory();
    }

    /// Mean over the epochs.
    fn mean(&self, pick: impl Fn(&EpochRecord) -> f64) -> f64 {
        self.records.iter().map(pick).sum::<f64>() / self.records.len().max(1) as f64
    }

    /// One object with everything.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        if let Some(scores) = &self.scores {
            scores.add_to(&mut object);
        }
        let entries = json!({
            "epochs": self.records.len(),
            "best_epoch": self.best.map(|best| best.epoch),
            "validation_ndcg@50": self.best.map(|best| best.value),
            "seconds_per_epoch": self.mean(|r| r.seconds),
            "refresh_interval": self.refresh_interval,
            "index_seconds_per_epoch": self.mean(|r| r.index_seconds),
            "cpu_seconds_per_epoch": self.mean(|r| r.cpu_seconds),
            "users_per_second": self.mean(|r| r.users_per_second),
            "loss": self.records.last().map(|r| r.loss),
            "kl": self.records.last().map(|r| r.kl),
            "peak_rss_bytes": self.peak_memory,
            "n_users": self.n_users,
            "n_items": self.n_items,
            "n_interactions": self.n_train + self.n_test,
            "n_train_interactions": self.n_train,
            "n_test_interactions": self.n_test,
            "split": self.origin,
            "model": self.config.model,
            "proposal": (self.config.model == ModelKind::FastVae).then_some(self.config.proposal),
            "preset": self.preset,
            "kl_weight": match self.kl_weight {
                Some(KlWeight::Constant(beta)) => json!({ "beta": beta }),
                Some(KlWeight::PerInteraction(gamma)) => json!({ "gamma": gamma }),
                None => Value::Null,
            },
            "phases": self.phase_rows().into_iter().map(|(name, time)| (name.to_string(), json!(time))).collect::<Map<_, _>>(),
            "config": self.config,
            "model_path": self.model_path,
            "version": env!("CARGO_PKG_VERSION"),
            "threads": self.threads,
            "device": self.device,
            "simd": math::simd::level_name(),
        });
        if let Value::Object(entries) = entries {
            object.extend(entries);
        }
        object.into()
    }

    /// Thread seconds of each phase per epoch of this process, in the order of a step, and of the index.
    fn phase_rows(&self) -> Vec<(&'static str, f64)> {
        let epochs = self.records.len().max(1) as f64;
        let mut rows: Vec<_> =
            Phase::ALL.map(|phase| (phase.name(), self.phases.seconds(phase) / epochs)).to_vec();
        rows.push(("index refresh", self.mean(|r| r.index_seconds)));
        rows
    }

    fn profile(&self) -> String {
        let rows = self.phase_rows();
        let total: f64 = rows.iter().map(|(_, time)| time).sum();
        let mut table = display::table(["phase", "ms an epoch", "share"]);
        for (name, time) in &rows {
            table.add_row([
                (*name).to_string(),
                format!("{:.1}", time * 1e3),
                format!("{:.0}%", 100.0 * time / total.max(1e-12)),
            ]);
        }
        table.add_row(["all".to_string(), format!("{:.1}", total * 1e3), String::new()]);
        display::text(table, [1, 2])
    }

    /// A summary and the table of scores.
    pub fn text(&self) -> String {
        let mut summary = display::plain();
        let held_out = match self.n_test {
            0 => self.origin.clone(),
            n => format!("{}: {} train, {} test", self.origin, thousands(self.n_train), thousands(n)),
        };
        summary.add_row([
            "data",
            &format!(
                "{} users, {} items, {} interactions; {held_out}",
                thousands(self.n_users),
                thousands(self.n_items),
                thousands(self.n_train + self.n_test)
            ),
        ]);
        summary.add_row(["model", &self.model()]);
        let best = self.best.map_or_else(String::new, |best| {
            format!("; best epoch {} with ndcg@50 {:.4} on its validation part", best.epoch, best.value)
        });
        let every = match self.refresh_interval {
            1 => String::new(),
            epochs => format!(", refreshed every {epochs} epochs"),
        };
        summary.add_row([
            "training",
            &format!(
                "{} epochs of {} (index {}{every}, {} CPU){best}",
                self.records.len(),
                seconds(self.mean(|r| r.seconds)),
                seconds(self.mean(|r| r.index_seconds)),
                seconds(self.mean(|r| r.cpu_seconds)),
            ),
        ]);
        if let Some(scores) = &self.scores {
            summary.add_row([
                "evaluation",
                &format!(
                    "{} users in {} ({} CPU)",
                    thousands(scores.model.n_users),
                    seconds(scores.seconds),
                    seconds(scores.cpu_seconds)
                ),
            ]);
        }
        if let Some(peak) = self.peak_memory {
            summary.add_row(["memory", &format!("{} at the peak", bytes(peak))]);
        }
        if let Some(path) = &self.model_path {
            summary.add_row(["saved", &path.display().to_string()]);
        }
        let mut text = display::text(summary, []);
        if self.with_profile {
            text.push('\n');
            text.push_str(&self.profile());
        }
        if let Some(scores) = &self.scores {
            text.push('\n');
            text.push_str(&scores.table());
        }
        text
    }

    fn model(&self) -> String {
        let Config { hidden, latent, .. } = self.config;
        let kind = match self.config.model {
            ModelKind::MultVae => "mult-vae (full softmax)".to_string(),
            ModelKind::FastVae => {
                format!(
                    "fastvae, {} negatives from {}",
                    self.config.negatives,
                    proposal_name(self.config.proposal)
                )
            }
        };
        format!("{kind}; {hidden}-{latent}, preset {}", self.preset.name())
    }
}

/// The name of a proposal in flags and output.
pub fn proposal_name(kind: ProposalKind) -> String {
    match serde_json::to_value(kind) {
        Ok(Value::String(name)) => name,
        _ => unreachable!("a proposal's name is a string"),
    }
}
