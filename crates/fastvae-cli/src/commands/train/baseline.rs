//! Training one of the baselines: the same data, splits and results as for a model.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use fastvae::baseline::{Baseline, Progress, Recommender, Settings, fit};
use fastvae::data::Interactions;
use fastvae::train::Control;
use fastvae::{Error, math, resources};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};

use super::Train;
use crate::commands::with_threads;
use crate::display::{self, bytes, seconds, thousands};
use crate::failure::usage;
use crate::interrupt;
use crate::logging;
use crate::output::{print, print_json};
use crate::scores::Scores;
use crate::settings::BaselineChoice;

/// A trained baseline and what it took.
pub struct Fitted {
    /// The baseline.
    pub baseline: Baseline,
    /// Seconds of training.
    pub seconds: f64,
    /// Processor seconds of it, over all threads.
    pub cpu_seconds: f64,
}

/// Trains with a progress bar, or with a line in the log for each pass, until Ctrl-C.
///
/// # Errors
/// As [`fit`].
pub fn fit_watched(data: &Interactions, settings: &Settings) -> fastvae::Result<Fitted> {
    let kind = settings.kind();
    let bar = logging::shows_bars().then(|| {
        let bar = ProgressBar::new(1);
        let style = ProgressStyle::with_template("{bar:20} {msg} {pos}/{len}, {eta} left")
            .expect("the template is a constant");
        bar.set_style(style.progress_chars("=> "));
        logging::bars().add(bar)
    });
    let (clock, cpu) = (Instant::now(), resources::cpu_seconds());
    let result = fit(data, settings, &mut |progress: Progress| {
        if let Some(bar) = &bar {
            bar.set_length(progress.total as u64);
            bar.set_position(progress.done as u64);
            let loss = progress.loss.map(|loss| format!("  loss {loss:.4}")).unwrap_or_default();
            bar.set_message(format!("{kind}{loss}"));
        } else if progress.done > 0 {
            let loss = progress.loss.map(|loss| format!(" loss={loss:.4}")).unwrap_or_default();
            tracing::debug!("{kind} pass={}/{}{loss}", progress.done, progress.total);
        }
        if interrupt::requested() { Control::Stop } else { Control::Continue }
    });
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let (seconds, cpu_seconds) = (clock.elapsed().as_secs_f64(), resources::cpu_seconds() - cpu);
    result.map(|baseline| Fitted { baseline, seconds, cpu_seconds })
}

impl Train {
    /// Trains a baseline; exit code 130 for an interrupted run.
    pub(super) fn run_baseline(&self, choice: &BaselineChoice) -> Result<ExitCode> {
        if self.resume || self.log.is_some() || self.checkpoint_every_epochs.is_some() {
            let kind = choice.settings.kind();
            return Err(usage(format!(
                "{kind} trains without checkpoints and epoch records; leave --resume, --log and \
                 --checkpoint-every-epochs out"
            )));
        }
        self.check_outputs()?;
        let parts = self.parts(choice.seed)?;
        let titles = self.titles(&parts.train)?;
        interrupt::watch()?;
        let fitted = with_threads(choice.threads, || fit_watched(&parts.train, &choice.settings))?;
        let Fitted { mut baseline, seconds, cpu_seconds } = match fitted {
            Err(Error::Interrupted) => {
                eprintln!("interrupted; nothing is kept");
                return Ok(ExitCode::from(interrupt::EXIT_CODE));
            }
            fitted => fitted?,
        };
        let scores = match &parts.test {
            None => None,
            Some(test) => {
                let histories = parts.history.as_ref().unwrap_or(&parts.train);
                let counts = baseline.item_counts();
                Some(with_threads(choice.threads, || {
                    Scores::of(&baseline, counts, histories, test, &self.cut_offs.at)
                })??)
            }
        };
        baseline.description_mut().evaluation = scores.as_ref().map(|scores| scores.model.clone());
        let report = BaselineReport { choice, train: &self.data, scores, seconds, cpu_seconds };
        let (summary, object) = (report.text(&parts), report.json(&parts, self.output.as_deref()));
        if let Some(path) = &self.output {
            if let Some(titles) = titles {
                baseline = baseline.with_titles(titles)?;
            }
            if self.store_users {
                baseline = baseline.with_users(Arc::new(parts.train))?;
            }
            baseline.save(path).context("the model cannot be saved")?;
        }
        match self.json {
            true => print_json(&object)?,
            false => print(&summary)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What a finished training tells.
struct BaselineReport<'a> {
    choice: &'a BaselineChoice,
    train: &'a std::path::Path,
    scores: Option<Scores>,
    seconds: f64,
    cpu_seconds: f64,
}

impl BaselineReport<'_> {
    fn json(&self, parts: &super::Parts, model_path: Option<&std::path::Path>) -> Value {
        let mut object = Map::new();
        if let Some(scores) = &self.scores {
            scores.add_to(&mut object);
        }
        let n_test = parts.test.as_ref().map_or(0, Interactions::n_interactions);
        let entries = json!({
            "training_seconds": self.seconds,
            "training_cpu_seconds": self.cpu_seconds,
            "peak_rss_bytes": resources::peak_memory(),
            "data": self.train,
            "n_users": parts.train.n_users(),
            "n_items": parts.train.n_items(),
            "n_interactions": parts.train.n_interactions() + n_test,
            "n_train_interactions": parts.train.n_interactions(),
            "n_test_interactions": n_test,
            "split": parts.origin,
            "model": self.choice.settings.kind(),
            "preset": self.choice.preset,
            "config": self.choice.settings,
            "model_path": model_path,
            "version": env!("CARGO_PKG_VERSION"),
            "simd": math::simd::level_name(),
        });
        if let Value::Object(entries) = entries {
            object.extend(entries);
        }
        object.into()
    }

    fn text(&self, parts: &super::Parts) -> String {
        let mut summary = display::plain();
        let n_test = parts.test.as_ref().map_or(0, Interactions::n_interactions);
        summary.add_row([
            "data",
            &format!(
                "{} users, {} items; {}: {} train, {} test",
                thousands(parts.train.n_users()),
                thousands(parts.train.n_items()),
                parts.origin,
                thousands(parts.train.n_interactions()),
                thousands(n_test)
            ),
        ]);
        let kind = self.choice.settings.kind();
        summary.add_row(["model", &format!("{kind}, preset {}", self.choice.preset.name())]);
        summary
            .add_row(["training", &format!("{} ({} CPU)", seconds(self.seconds), seconds(self.cpu_seconds))]);
        if let Some(peak) = resources::peak_memory() {
            summary.add_row(["memory", &format!("{} at the peak", bytes(peak))]);
        }
        let mut text = display::text(summary, []);
        if let Some(scores) = &self.scores {
            text.push('\n');
            text.push_str(&scores.table());
        }
        text
    }
}
