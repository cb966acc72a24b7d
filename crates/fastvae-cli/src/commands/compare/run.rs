//! One model on one fold: choose settings, train, test, and remember.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use fastvae::Error;
use fastvae::data::{Interactions, UserId};
use fastvae::eval::Metric;
use fastvae::internals::data::hold_out;
use fastvae::internals::eval::{evaluate, evaluate_users};
use fastvae::train::{Control, Finish, train};
use serde::{Deserialize, Serialize};

use super::candidates::{Candidate, candidates};
use crate::fit::{Fitted, fit_baseline, stopwatch};
use crate::interrupt;
use crate::output::write;

/// Users, at most, whose interactions are held out in part to choose settings by.
const VALIDATION_USERS: usize = 2000;
/// Share of their interactions that is held out.
const VALIDATION_SHARE: f64 = 0.2;

/// What is to be done.
pub struct Task<'a> {
    /// The model's name.
    pub model: &'static str,
    /// The fold, from 0.
    pub fold: usize,
    /// Folds in all.
    pub n_folds: usize,
    /// Seed of the folds and of training.
    pub seed: u64,
    /// Epochs of fastvae and mult-vae, where limited.
    pub epochs: Option<usize>,
    /// What is measured; settings are chosen by the first.
    pub metrics: [Metric; 2],
    /// What is learned from.
    pub train: &'a Arc<Interactions>,
    /// What is tested.
    pub test: &'a Interactions,
}

/// What tells whether a remembered run is of the same task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Fingerprint {
    model: String,
    fold: usize,
    n_folds: usize,
    seed: u64,
    epochs: Option<usize>,
    metric: Metric,
    n_users: usize,
    n_items: usize,
    n_train: usize,
    n_test: usize,
    /// A hash of the test pairs.
    pairs: u64,
}

/// What was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    task: Fingerprint,
    /// The means over users.
    pub metrics: BTreeMap<Metric, f64>,
    /// The settings that were chosen.
    pub settings: Candidate,
    /// The first metric of each candidate on the validation part, in the order of the grid.
    validation: Vec<f64>,
    /// Seconds of the last training, with the chosen settings on all of the training part.
    pub seconds: f64,
    /// Processor seconds of it.
    pub cpu_seconds: f64,
    /// The most memory that was held meanwhile, data included; None where the system does not say.
    pub peak_memory: Option<u64>,
    /// Tested users and their values of the first metric.
    pub users: Vec<UserId>,
    /// Beside `users`.
    pub values: Vec<f64>,
}

impl Run {
    /// The model's name.
    pub fn model(&self) -> &str {
        &self.task.model
    }

    /// The run at `path`, where there is one of the same task.
    ///
    /// # Errors
    /// If it is of another task: results of two must not be mixed.
    pub fn read(path: &Path, task: &Task<'_>) -> Result<Option<Self>> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|source| crate::failure::io(path, source))?,
        };
        let run: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a result of compare; remove it", path.display()))?;
        anyhow::ensure!(
            run.task == task.fingerprint(),
            "{} is of other data, folds or settings; give another directory with -o, or remove it",
            path.display()
        );
        Ok(Some(run))
    }

    /// Remembers the run.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn write(&self, path: &Path) -> Result<()> {
        write(path, format!("{}\n", serde_json::to_string(self)?).as_bytes())
    }
}

impl Task<'_> {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint {
            model: self.model.to_string(),
            fold: self.fold,
            n_folds: self.n_folds,
            seed: self.seed,
            epochs: self.epochs,
            metric: self.metrics[0],
            n_users: self.train.n_users(),
            n_items: self.train.n_items(),
            n_train: self.train.n_interactions(),
            n_test: self.test.n_interactions(),
            pairs: pairs_hash(self.test),
        }
    }

    /// Chooses settings on a part of the training data, trains with them on all of it, and tests once.
    ///
    /// # Errors
    /// What training reports.
    pub fn run(&self) -> Result<Run> {
        let mut grid = candidates(self.model, self.seed, self.epochs);
        let mut validation = Vec::new();
        if grid.len() > 1 {
            let seed = self.seed + self.fold as u64;
            match hold_out(self.train, VALIDATION_USERS, VALIDATION_SHARE, seed) {
                Ok((train, held)) => {
                    let train = Arc::new(train);
                    for candidate in &grid {
                        let trained = trained(candidate, &train)?;
                        let evaluation = evaluate(&trained.model, &train, &held, &self.metrics[..1])?;
                        validation.push(evaluation.mean(self.metrics[0]).unwrap_or(0.0));
                    }
                }
                // Users of one item leave nothing to choose by; the defaults are no worse a choice.
                Err(Error::Data { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let best = (0..validation.len()).max_by(|&a, &b| {
            // Of equals the first: it is nearer the defaults.
            validation[a].total_cmp(&validation[b]).then(b.cmp(&a))
        });
        let settings = grid.swap_remove(best.unwrap_or(0));
        reset_peak_memory();
        let Fitted { model, seconds, cpu_seconds } = trained(&settings, self.train)?;
        let peak_memory = peak_memory();
        let evaluation = evaluate(&model, self.train, self.test, &self.metrics)?;
        let values = evaluate_users(&model, self.train, self.test, self.metrics[0])?;
        let (users, values) = values.into_iter().unzip();
        Ok(Run {
            task: self.fingerprint(),
            metrics: evaluation.metrics.iter().map(|(&metric, estimate)| (metric, estimate.mean)).collect(),
            settings,
            validation,
            seconds,
            cpu_seconds,
            peak_memory,
            users,
            values,
        })
    }
}

/// A number that tells the pairs of one file, filter or split from those of another.
pub fn pairs_hash(data: &Interactions) -> u64 {
    // FNV-1a.
    let ends = data.offsets().iter().map(|&offset| offset as u64);
    let words = ends.chain(data.items().iter().map(|&item| u64::from(item)));
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0100_0000_01b3))
}

fn trained(candidate: &Candidate, data: &Arc<Interactions>) -> Result<Fitted> {
    match candidate {
        Candidate::Baseline(settings) => Ok(fit_baseline(data, settings, Finish::default())?),
        Candidate::Model(config) => {
            let took = stopwatch();
            let mut config = config.as_ref().clone();
            config.threads = rayon::current_num_threads();
            let model = train(Arc::clone(data), &config, |_| match interrupt::requested() {
                true => Control::Stop,
                false => Control::Continue,
            })?;
            if interrupt::requested() {
                return Err(Error::Interrupted.into());
            }
            let (seconds, cpu_seconds) = took();
            Ok(Fitted { model, seconds, cpu_seconds })
        }
    }
}

/// Lets the system count the most memory anew, where it can.
fn reset_peak_memory() {
    // Only Linux has this file; elsewhere the peak is not reported.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The most memory held since [`reset_peak_memory`].
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
