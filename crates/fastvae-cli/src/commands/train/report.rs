//! What a finished training tells, as a table or as JSON.

use std::path::Path;

use fastvae::config::ModelKind;
use fastvae::internals::backend::{Phase, PhaseTimes};
use fastvae::internals::loss::KlWeight;
use fastvae::internals::train::TrainingInternals;
use fastvae::internals::{math, resources};
use fastvae::model::Settings;
use fastvae::train::{BestEpoch, EpochRecord, Training};
use fastvae::{Config, Model};
use serde_json::{Map, Value, json};

use super::Parts;
use crate::described;
use crate::display::{self, bytes, seconds, thousands};
use crate::output::extend;
use crate::scores::Scores;
use crate::settings::Choice;

/// The results of one training.
pub struct Report<'a> {
    pub choice: &'a Choice,
    pub parts: &'a Parts,
    pub model: &'a Model,
    /// How well the model ranks, where something was held out.
    pub scores: Option<Scores>,
    /// Of what was trained in epochs, each with a record in the model's description.
    pub epochs: Option<Epochs>,
    /// Seconds and processor seconds of all that made the model, reading and evaluation apart.
    pub fit: (f64, f64),
    /// Where the model is, where it was saved.
    pub path: Option<&'a Path>,
}

/// What is known of a run in epochs beside its records.
pub struct Epochs {
    best: Option<BestEpoch>,
    threads: usize,
    device: String,
    refresh_interval: usize,
    kl_weight: KlWeight,
    phases: PhaseTimes,
}

impl Epochs {
    /// What the finished run knows.
    pub fn of(training: &Training) -> Self {
        Self {
            best: training.best(),
            threads: training.on_threads(rayon::current_num_threads),
            device: training.device(),
            refresh_interval: training.refresh_interval(),
            kl_weight: training.kl_weight(),
            phases: training.phase_times(),
        }
    }

    /// Mean over the epochs.
    fn mean(records: &[EpochRecord], pick: impl Fn(&EpochRecord) -> f64) -> f64 {
        records.iter().map(pick).sum::<f64>() / records.len().max(1) as f64
    }

    fn add_to(&self, config: &Config, records: &[EpochRecord], object: &mut Map<String, Value>) {
        let mean = |pick: fn(&EpochRecord) -> f64| Self::mean(records, pick);
        let last = records.last();
        let phases = self.phase_rows(records).into_iter();
        let entries = json!({
            "epochs": records.iter().filter(|record| !record.refit).count(),
            "refit_epochs": records.iter().filter(|record| record.refit).count(),
            "best_epoch": self.best.map(|best| best.epoch),
            "validation_ndcg@50": self.best.map(|best| best.value),
            "seconds_per_epoch": mean(|record| record.seconds),
            "refresh_interval": self.refresh_interval,
            "index_seconds_per_epoch": mean(|record| record.index_seconds),
            "cpu_seconds_per_epoch": mean(|record| record.cpu_seconds),
            "users_per_second": mean(|record| record.users_per_second),
            "training_seconds": records.iter().map(|record| record.seconds).sum::<f64>(),
            "training_cpu_seconds": records.iter().map(|record| record.cpu_seconds).sum::<f64>(),
            "loss": last.map(|record| record.loss),
            "kl": last.map(|record| record.kl),
            "proposal": (config.model == ModelKind::FastVae).then_some(config.proposal),
            "kl_weight": match self.kl_weight {
                KlWeight::Constant(beta) => json!({ "beta": beta }),
                KlWeight::PerInteraction(gamma) => json!({ "gamma": gamma }),
            },
            "phases": phases.map(|(name, time)| (name.to_string(), json!(time))).collect::<Map<_, _>>(),
            "threads": self.threads,
            "device": self.device,
        });
        extend(object, entries);
    }

    /// Thread seconds of each phase per epoch of this process, in the order of a step, and of the index.
    fn phase_rows(&self, records: &[EpochRecord]) -> Vec<(&'static str, f64)> {
        let epochs = records.len().max(1) as f64;
        let mut rows: Vec<_> =
            Phase::ALL.map(|phase| (phase.name(), self.phases.seconds(phase) / epochs)).to_vec();
        rows.push(("index refresh", Self::mean(records, |record| record.index_seconds)));
        rows
    }

    fn profile(&self, records: &[EpochRecord]) -> String {
        let rows = self.phase_rows(records);
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

    fn text(&self, records: &[EpochRecord]) -> String {
        let best = self.best.map_or_else(String::new, |best| {
            format!("; best epoch {} with ndcg@50 {:.4} on its validation part", best.epoch, best.value)
        });
        let every = match self.refresh_interval {
            1 => String::new(),
            epochs => format!(", refreshed every {epochs} epochs"),
        };
        let again = match records.iter().filter(|record| record.refit).count() {
            0 => String::new(),
            n => format!("; then {n} epochs on everything"),
        };
        format!(
            "{} epochs of {} (index {}{every}, {} CPU){best}{again}",
            records.iter().filter(|record| !record.refit).count(),
            seconds(Self::mean(records, |record| record.seconds)),
            seconds(Self::mean(records, |record| record.index_seconds)),
            seconds(Self::mean(records, |record| record.cpu_seconds)),
        )
    }
}

impl Report<'_> {
    /// One object with everything.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        if let Some(scores) = &self.scores {
            scores.add_to(&mut object);
        }
        let description = self.model.description();
        if let (Some(run), Settings::Vae(config)) = (&self.epochs, &self.choice.settings) {
            run.add_to(config, &description.epochs, &mut object);
        } else {
            object.insert("training_seconds".into(), self.fit.0.into());
            object.insert("training_cpu_seconds".into(), self.fit.1.into());
        }
        let (parts, n_test) = (self.parts, self.n_test());
        let entries = json!({
            "fit_seconds": self.fit.0,
            "fit_cpu_seconds": self.fit.1,
            "peak_rss_bytes": resources::peak_memory(),
            "n_users": parts.train.n_users(),
            "n_items": parts.train.n_items(),
            "n_interactions": parts.train.n_interactions() + n_test,
            "n_train_interactions": parts.train.n_interactions(),
            "n_test_interactions": n_test,
            "model": self.choice.settings.name(),
            "preset": self.choice.preset,
            "config": description.settings,
            "model_path": self.path,
            "version": env!("CARGO_PKG_VERSION"),
            "simd": math::simd::level_name(),
        });
        extend(&mut object, entries);
        described::add_to(description, &mut object);
        object.into()
    }

    fn n_test(&self) -> usize {
        self.parts.test.as_ref().map_or(0, |test| test.n_interactions())
    }

    /// A summary and the table of scores, with the phases of an epoch where they are asked for.
    pub fn text(&self, with_profile: bool) -> String {
        let mut summary = display::plain();
        for (name, text) in self.summary() {
            summary.add_row([name, &text]);
        }
        let description = self.model.description();
        let mut text = display::text(summary, []);
        if let (Some(run), true) = (&self.epochs, with_profile) {
            text.push('\n');
            text.push_str(&run.profile(&description.epochs));
        }
        match (&self.scores, &description.validation) {
            (Some(scores), _) => text.push_str(&format!("\n{}", scores.table())),
            (None, Some(validation)) => text.push_str(&described::validation_table(validation)),
            (None, None) => text.push_str(
                "\nnothing was held out, so nothing is measured: --split ratio:0.8 measures on a fifth, --refit with it \
                 then learns from all\n",
            ),
        }
        text
    }

    fn summary(&self) -> Vec<(&'static str, String)> {
        let (data, description) = (&self.parts.data, self.model.description());
        let held_out = match &self.parts.test {
            None => String::new(),
            Some(test) => {
                let (train, test) = (self.parts.train.n_interactions(), test.n_interactions());
                format!("; {}: {} train, {} test", self.parts.origin, thousands(train), thousands(test))
            }
        };
        let epochs = self.epochs.as_ref().map(|run| format!(": {}", run.text(&description.epochs)));
        let took =
            format!("{} ({} CPU){}", seconds(self.fit.0), seconds(self.fit.1), epochs.unwrap_or_default());
        let mut rows = vec![
            (
                "data",
                format!(
                    "{} users, {} items, {} interactions{held_out}",
                    thousands(data.n_users()),
                    thousands(data.n_items()),
                    thousands(data.n_interactions())
                ),
            ),
            ("model", self.method()),
            ("training", took),
        ];
        if let Some(blend) = &description.blend {
            rows.push(("chosen", blend.to_string()));
        }
        if let Some(learned) = &description.learned {
            let more = match self.parts.test {
                Some(_)
                    if learned.interactions < learned.of
                        && self.parts.data.n_interactions() == learned.of =>
                {
                    "; --refit learns from all once it is measured"
                }
                None if learned.interactions < learned.of => "; the rest chose the epochs",
                _ => "",
            };
            rows.push(("learned from", described::learned(learned) + more));
        }
        if let Some(scores) = &self.scores {
            rows.push((
                "evaluation",
                format!(
                    "{} users in {} ({} CPU)",
                    thousands(scores.model.n_users),
                    seconds(scores.seconds),
                    seconds(scores.cpu_seconds)
                ),
            ));
        }
        if let Some(peak) = resources::peak_memory() {
            rows.push(("memory", format!("{} at the peak", bytes(peak))));
        }
        rows.push((
            "saved",
            match self.path {
                Some(path) => path.display().to_string(),
                None => "nowhere: -o MODEL keeps the model".to_string(),
            },
        ));
        rows
    }

    fn method(&self) -> String {
        let preset = self.choice.preset;
        let Settings::Vae(Config { hidden, latent, model, negatives, proposal, .. }) = &self.choice.settings
        else {
            return format!("{}, preset {preset}", self.model.name());
        };
        let kind = match model {
            ModelKind::MultVae => "mult-vae (full softmax)".to_string(),
            ModelKind::FastVae => format!("fastvae, {negatives} negatives from {}", proposal.name()),
        };
        format!("{kind}; {hidden}-{latent}, preset {preset}")
    }
}
