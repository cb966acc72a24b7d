//! `fastvae train`: from a file of interactions to a model that was measured.

mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use fastvae::baseline;
use fastvae::data::{Interactions, Split, read, read_pair};
use fastvae::internals::model::ModelInternals;
use fastvae::model::Settings;
use fastvae::train::{Finish, Outcome, Refit, TrainOptions, Training};
use fastvae::{Config, Model};

use crate::commands::with_threads;
use crate::data_flags::{TitleFlags, TrainDataFlags};
use crate::failure::{Usage, usage};
use crate::fit::{Checkpoints, EpochLog, Fitted, fit, fit_baseline, stopwatch};
use crate::interrupt;
use crate::output::{check_writable, print, print_json};
use crate::scores::{CutOffs, Held, Scores, positive};
use crate::settings::{Choice, SettingFlags};

use report::{Epochs, Report};

/// Train a model, measure it, and save it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae train ratings.csv -o model.fastvae --min-rating 4 --titles movies.csv
  fastvae train ratings.csv -o model.fastvae --split ratio:0.8 --refit    measure on a fifth, then learn from all
  fastvae train train.tsv.zst --test test.tsv.zst --preset paper --set kl.beta=0.2 --json
  fastvae train plays.parquet --user-col listener --item-col track --k-core 5 --epochs 30
  fastvae train ratings.csv -o model.fastvae --resume           after an interruption
  fastvae train ratings.csv -o als.fastvae --model wrmf --set factors=64

The model learns from all of DATA. Only a small validation part chooses the epochs; where that is more than 2 % of the \
interactions, the model is trained again on everything. With --split or --test it is measured on what was held out.

Settings come from the preset, then --config, then --set, then flags such as --epochs; the later wins.
Keys: model hidden latent encoder_rank activation dropout latent_samples item_bias proposal estimator negatives codewords \
codebooks quantizer popularity ridge.neighbours ridge.penalty ridge.power ridge.weight ridge.popularity kl.beta kl.gamma \
kl.anneal_steps optimizer moments learning_rate decay.schedule \
decay.factor decay.every weight_decay weight_decay_mode clip batch epochs patience validate_every \
validation_users pair seed threads refresh_every device; `fastvae inspect MODEL` shows the values of a trained model.
The baselines have keys of their own; a wrong one lists them, and `fastvae compare` tries several.
Ctrl-C saves a checkpoint beside the model (MODEL.checkpoint), from which --resume goes on.")]
pub struct Train {
    /// File of interactions: CSV, TSV, MovieLens, Parquet, .inter, .mtx, .npz, .mat; .gz and .zst too; or a cache (.fvcache)
    data: PathBuf,

    /// Where the model goes; without it the model is measured and dropped
    #[arg(short, long, value_name = "MODEL")]
    output: Option<PathBuf>,

    /// File of interactions to measure on: they are never learned from, nor stored
    #[arg(long, value_name = "FILE", conflicts_with_all = ["split", "k_core"])]
    test: Option<PathBuf>,

    /// What to hold out and measure on: ratio:0.8 (of each user's items, 80 % train), leave-one-out, temporal:0.8, users:0.1
    /// [default: none]
    #[arg(long, value_name = "SPLIT", value_parser = split)]
    split: Option<SplitChoice>,

    /// After measuring, train again on all of DATA with the same settings and epochs, and save that
    #[arg(long, requires = "split")]
    refit: bool,

    #[command(flatten)]
    cut_offs: CutOffs,

    #[command(flatten)]
    titles: TitleFlags,

    /// Keep the users' histories in the model, so that it can recommend to them by id
    #[arg(long)]
    store_users: bool,

    /// Go on from the checkpoint of an interrupted run
    #[arg(long, requires = "output")]
    resume: bool,

    /// Minutes between checkpoints
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = minutes)]
    checkpoint_every_minutes: f64,

    /// Epochs between checkpoints, beside those by time
    #[arg(long, value_name = "N", value_parser = positive, requires = "output")]
    checkpoint_every_epochs: Option<usize>,

    /// Write one JSON object for each epoch to this file
    #[arg(long, value_name = "FILE.jsonl")]
    log: Option<PathBuf>,

    /// Show where the time of an epoch goes, phase by phase, in thread time
    #[arg(long)]
    profile: bool,

    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    settings: SettingFlags,

    #[command(flatten)]
    reading: TrainDataFlags,
}

/// What is held out.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SplitChoice {
    By(Split),
    Nothing,
}

/// Interactions to learn from and to be tested on.
struct Parts {
    /// All of DATA.
    data: Arc<Interactions>,
    /// What is learned from and measured with: DATA less what a split holds out.
    train: Arc<Interactions>,
    test: Option<Interactions>,
    /// What is shown of the test users, where they are not the users of `train`.
    history: Option<Interactions>,
    /// What is tested on, for people; empty where nothing is.
    origin: String,
    /// How many users touched each item of `train`.
    counts: Vec<u32>,
}

impl Parts {
    /// What is to be found, where something was held out.
    fn held<'a>(&'a self, cut_offs: &'a [usize]) -> Option<Held<'a>> {
        let histories = self.history.as_ref().unwrap_or(&self.train);
        self.test.as_ref().map(|test| Held { histories, test, counts: &self.counts, cut_offs })
    }
}

/// A training that ended, with what is told of it.
struct Trained {
    model: Model,
    scores: Option<Scores>,
    /// Of what is trained in epochs.
    epochs: Option<Epochs>,
    /// Seconds and processor seconds of all that made the model, reading and evaluation apart.
    fit: (f64, f64),
}

impl Train {
    /// Trains; exit code 130 for an interrupted run.
    pub fn run(self) -> Result<ExitCode> {
        let choice = self.settings.choose()?;
        let checkpoints = self.check_outputs(&choice)?;
        let parts = self.parts(choice.seed)?;
        let titles = self.titles.read(&self.data, parts.data.item_ids())?;
        if self.output.is_none() {
            tracing::warn!("the model will be measured and dropped: give -o MODEL to keep it");
        }
        interrupt::watch()?;
        let with = || {
            let mut with = Finish::default();
            with.data = Some(Arc::clone(&parts.data));
            with.titles = titles.clone();
            with.store_users = self.store_users;
            with
        };
        let trained = match &choice.settings {
            Settings::Vae(config) => self.train(config, &parts, checkpoints.as_ref(), with())?,
            Settings::Baseline(settings) => {
                with_threads(choice.threads, || self.train_baseline(settings, &parts, with))??
            }
        };
        let Some(Trained { model, scores, epochs, fit }) = trained else {
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        };
        if let Some(path) = &self.output {
            model.save(path).context("the model cannot be saved")?;
        }
        if let Some(checkpoints) = &checkpoints {
            // A finished run has nothing to resume.
            let _ = std::fs::remove_file(&checkpoints.path);
        }
        let report = Report {
            choice: &choice,
            parts: &parts,
            model: &model,
            scores,
            epochs,
            fit,
            path: self.output.as_deref(),
        };
        match self.json {
            true => print_json(&report.json())?,
            false => print(&report.text(self.profile))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Trains the variational autoencoder; None where it was interrupted.
    fn train(
        &self,
        config: &Config,
        parts: &Parts,
        checkpoints: Option<&Checkpoints>,
        with: Finish,
    ) -> Result<Option<Trained>> {
        let took = stopwatch();
        let held = parts.held(&self.cut_offs.at);
        let mut training = self.start(config, parts, checkpoints)?;
        let mut log = match &self.log {
            Some(path) => Some(EpochLog::start(path, training.records())?),
            None => None,
        };
        let (mut scores, mut measuring) = (None, (0.0, 0.0));
        let mut measure = |training: &mut Training| -> Result<()> {
            if let Some(held) = held.as_ref().filter(|_| scores.is_none()) {
                let took = stopwatch();
                scores = Some(Scores::of_training(training, held, &parts.origin)?);
                measuring = took();
            }
            Ok(())
        };
        // What is trained again on all of DATA will have seen what it would be measured on.
        let when_chosen = |training: &mut Training| if self.refit { measure(training) } else { Ok(()) };
        if fit(&mut training, checkpoints, log.as_mut(), when_chosen)? == Outcome::Interrupted {
            tell_how_to_resume(checkpoints);
            return Ok(None);
        }
        measure(&mut training)?;
        let epochs = Some(Epochs::of(&training));
        let model = training.finish(with)?;
        let (wall, cpu) = took();
        let fit = (wall - measuring.0, cpu - measuring.1);
        Ok(Some(Trained { model, scores, epochs, fit }))
    }

    /// Trains a baseline; None where it was interrupted.
    fn train_baseline(
        &self,
        settings: &baseline::Settings,
        parts: &Parts,
        with: impl Fn() -> Finish,
    ) -> Result<Option<Trained>> {
        let fitted = |data: &Arc<Interactions>| match fit_baseline(data, settings, with()) {
            Err(fastvae::Error::Interrupted) => {
                eprintln!("interrupted; nothing is kept");
                Ok(None)
            }
            fitted => fitted.map(Some),
        };
        let Some(Fitted { mut model, seconds, cpu_seconds }) = fitted(&parts.train)? else { return Ok(None) };
        let held = parts.held(&self.cut_offs.at);
        let scores = held.map(|held| Scores::of(&model, &held)).transpose()?;
        if self.refit {
            let Some(again) = fitted(&parts.data)? else { return Ok(None) };
            model = again.model;
            if let Some(learned) = &mut model.description_mut().learned {
                learned.refit = true;
            }
        }
        if let Some(scores) = &scores {
            model.note_evaluation(scores.model.clone(), &parts.origin);
        }
        Ok(Some(Trained { model, scores, epochs: None, fit: (seconds, cpu_seconds) }))
    }

    /// Fails before any work where the results could not be written.
    fn check_outputs(&self, choice: &Choice) -> Result<Option<Checkpoints>> {
        if self.refit && self.split == Some(SplitChoice::Nothing) {
            return Err(usage("--refit has nothing to learn again: --split none holds nothing out"));
        }
        for path in self.output.iter().chain(&self.log) {
            check_writable(path)?;
        }
        if let Settings::Baseline(settings) = &choice.settings {
            if self.resume || self.log.is_some() || self.checkpoint_every_epochs.is_some() {
                return Err(usage(format!(
                    "{} trains without checkpoints and epoch records; leave --resume, --log and \
                     --checkpoint-every-epochs out",
                    settings.kind()
                )));
            }
            return Ok(None);
        }
        let Some(output) = &self.output else { return Ok(None) };
        let path = checkpoint_path(output);
        if self.resume && !path.exists() {
            anyhow::bail!("there is no checkpoint {} to resume from; train without --resume", path.display());
        }
        let every = Duration::from_secs_f64(self.checkpoint_every_minutes * 60.0);
        Ok(Some(Checkpoints { path, every, every_epochs: self.checkpoint_every_epochs }))
    }

    fn parts(&self, seed: u64) -> Result<Parts> {
        let whole = |data: Interactions, test: Option<Interactions>, origin: String| {
            let data = Arc::new(data);
            Parts { counts: data.item_counts(), train: Arc::clone(&data), data, test, history: None, origin }
        };
        if let Some(test) = &self.test {
            let (data, test_part) = read_pair(&self.data, test, &self.reading.options())?;
            return Ok(whole(data, Some(test_part), test.display().to_string()));
        }
        let data = read(&self.data, &self.reading.options())?;
        let Some(SplitChoice::By(split)) = self.split else { return Ok(whole(data, None, String::new())) };
        let parts = split.apply(&data, seed)?;
        Ok(Parts {
            counts: parts.train.item_counts(),
            train: Arc::new(parts.train),
            test: Some(parts.test),
            history: parts.history,
            origin: format!("split {split}"),
            data: Arc::new(data),
        })
    }

    fn start(&self, config: &Config, parts: &Parts, checkpoints: Option<&Checkpoints>) -> Result<Training> {
        let mut options = TrainOptions::default();
        options.metrics = fastvae::eval::Metric::grid(&fastvae::eval::Measure::ALL, &self.cut_offs.at);
        if self.refit {
            options.refit = Refit::On(Arc::clone(&parts.data));
        }
        let data = Arc::clone(&parts.train);
        match checkpoints {
            Some(checkpoints) if self.resume => {
                let training = Training::resume(data, config, options, &checkpoints.path)?;
                tracing::info!(epochs = training.records().len(), "resumed");
                return Ok(training);
            }
            Some(checkpoints) if checkpoints.path.exists() => tracing::warn!(
                path = %checkpoints.path.display(),
                "a checkpoint of an interrupted run is there and will be replaced; --resume would go on from it"
            ),
            _ => {}
        }
        Ok(Training::new(data, config, options)?)
    }
}

/// The checkpoint that belongs to the model at `output`.
fn checkpoint_path(output: &Path) -> PathBuf {
    let mut path = output.as_os_str().to_owned();
    path.push(".checkpoint");
    path.into()
}

fn tell_how_to_resume(checkpoints: Option<&Checkpoints>) {
    match checkpoints {
        None => eprintln!("interrupted; nothing is kept, since no model was asked for with -o"),
        Some(checkpoints) => {
            let mut words: Vec<String> = std::env::args().map(|word| quoted(&word)).collect();
            if !words.iter().any(|word| word == "--resume") {
                words.push("--resume".to_string());
            }
            eprintln!(
                "interrupted; saved {}. Go on with:\n  {}",
                checkpoints.path.display(),
                words.join(" ")
            );
        }
    }
}

/// `word` as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn split(text: &str) -> Result<SplitChoice, Usage> {
    match text {
        "none" => Ok(SplitChoice::Nothing),
        _ => text.parse().map(SplitChoice::By).map_err(|error: fastvae::Error| match error {
            fastvae::Error::Config { problem, remedy, .. } => Usage(format!("{problem}; {remedy}, none")),
            error => Usage(error.to_string()),
        }),
    }
}

fn minutes(text: &str) -> Result<f64> {
    let value = text.parse().ok().filter(|v: &f64| v.is_finite() && (0.0..1e9).contains(v));
    value.ok_or_else(|| usage("give a number of minutes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resume_command_survives_the_shell() {
        assert_eq!(quoted("kl.beta=0.2"), "kl.beta=0.2");
        assert_eq!(quoted("my data.csv"), "'my data.csv'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }

    #[test]
    fn the_checkpoint_stands_beside_the_model() {
        assert_eq!(checkpoint_path(Path::new("a/m.fastvae")), Path::new("a/m.fastvae.checkpoint"));
    }
}
