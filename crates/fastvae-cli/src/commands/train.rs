//! `fastvae train`: from a file of interactions to an evaluated model.

mod baseline;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use fastvae::Config;
use fastvae::data::{Cache, Column, Interactions, Split, Statistics, TitleOptions, Titles, read, read_pair};
use fastvae::recommend::{Search, SearchOptions};
use fastvae::train::{Outcome, Training};

use crate::data_flags::{CoreFlag, DataFlags};
use crate::failure::{Usage, usage};
use crate::fit::{Checkpoints, EpochLog, fit};
use crate::interrupt;
use crate::output::{check_writable, print, print_json};
use crate::scores::{CutOffs, Scores, positive};
use crate::settings::SettingFlags;

pub use baseline::fit_watched;
use report::Report;

/// Train a model, evaluate it on held-out interactions, and save it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae train ratings.csv -o model.fastvae --min-rating 4 --titles movies.csv
  fastvae train train.tsv.zst --test test.tsv.zst --preset paper --set kl.beta=0.2 --json
  fastvae train plays.parquet --user-col listener --item-col track --k-core 5 --epochs 30
  fastvae train ratings.csv -o model.fastvae --split none       all interactions, nothing held out
  fastvae train ratings.csv -o model.fastvae --resume           after an interruption
  fastvae train ratings.csv -o als.fastvae --model wrmf --set factors=64

Settings come from the preset, then --config, then --set, then flags such as --epochs; the later wins.
Keys: model hidden latent encoder_rank activation dropout latent_samples item_bias proposal estimator negatives codewords \
codebooks quantizer popularity kl.beta kl.gamma kl.anneal_steps optimizer moments learning_rate decay.schedule \
decay.factor decay.every weight_decay weight_decay_mode clip batch epochs patience validate_every \
validation_users seed threads refresh_every device; `fastvae inspect MODEL` shows the values of a trained model.
The baselines have keys of their own; a wrong one lists them, and `fastvae compare` tries several.
Ctrl-C saves a checkpoint beside the model (MODEL.checkpoint), from which --resume goes on.")]
pub struct Train {
    /// File of interactions: CSV, TSV, MovieLens, Parquet, .inter, .mtx, .npz, .mat; .gz and .zst too; or a cache (.fvcache)
    data: PathBuf,

    /// Where the model goes
    #[arg(short, long, value_name = "MODEL")]
    output: Option<PathBuf>,

    /// File of held-out interactions, instead of --split
    #[arg(long, value_name = "FILE", conflicts_with_all = ["split", "k_core"])]
    test: Option<PathBuf>,

    /// What is held out: ratio:0.8 (of each user's items, 80 % train), leave-one-out, temporal:0.8, users:0.1, or none
    #[arg(long, value_name = "SPLIT", default_value = "ratio:0.8", value_parser = split)]
    split: SplitChoice,

    #[command(flatten)]
    cut_offs: CutOffs,

    /// File with item titles: CSV or TSV with a header, or MovieLens
    #[arg(long, value_name = "FILE")]
    titles: Option<PathBuf>,

    /// Column of titles in that file
    #[arg(long, value_name = "COLUMN", requires = "titles")]
    title_col: Option<Column>,

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
    reading: DataFlags,

    #[command(flatten)]
    core: CoreFlag,
}

/// What is held out.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SplitChoice {
    By(Split),
    Nothing,
}

/// Interactions to learn from and to be tested on.
struct Parts {
    train: Interactions,
    test: Option<Interactions>,
    /// What is shown of the test users, where they are not the users of `train`.
    history: Option<Interactions>,
    /// How the parts came about, for people.
    origin: String,
}

impl Train {
    /// Trains; exit code 130 for an interrupted run.
    pub fn run(self) -> Result<ExitCode> {
        if let Some(choice) = self.settings.resolve_baseline()? {
            return self.run_baseline(&choice);
        }
        let settings = self.settings.resolve()?;
        let checkpoints = self.check_outputs()?;
        let parts = self.parts(settings.config.seed)?;
        let titles = self.titles(&parts.train)?;
        let statistics = Statistics::of(&parts.train);
        let mut report = Report::new(&settings, &parts.train, parts.test.as_ref(), parts.origin);
        // The run holds a validation part out; evaluation shows the model all of the training part.
        let whole = (settings.config.patience > 0).then(|| Arc::new(parts.train.clone()));
        let mut training = self.start(&settings.config, parts.train, checkpoints.as_ref())?;
        let mut log = match &self.log {
            Some(path) => Some(EpochLog::start(path, training.records())?),
            None => None,
        };
        interrupt::watch()?;
        if fit(&mut training, checkpoints.as_ref(), log.as_mut())? == Outcome::Interrupted {
            tell_how_to_resume(checkpoints.as_ref());
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        }
        let whole = whole.unwrap_or_else(|| training.train_part().clone());
        let counts = whole.item_counts();
        if let Some(test) = &parts.test {
            let histories = parts.history.as_ref().unwrap_or(&whole);
            let scores = Scores::of_training(&mut training, &counts, histories, test, &self.cut_offs.at)?;
            report.scores = Some(scores);
        }
        report.note_training(&training);
        report.with_profile = self.profile;
        if let (Some(path), Some(checkpoints)) = (&self.output, &checkpoints) {
            let mut model = training.into_model()?;
            let description = model.description_mut();
            description.statistics = Some(serde_json::to_value(&statistics)?);
            description.evaluation = report.scores.as_ref().map(|scores| scores.model.clone());
            if model.index().is_some() {
                let search = Search::calibrate(&model, Some(&whole), &SearchOptions::default())?;
                model.description_mut().search = Some(search.calibration());
            }
            if let Some(titles) = titles {
                model = model.with_titles(titles)?;
            }
            if self.store_users {
                model = model.with_users(whole)?;
            }
            model.save(path).context("the model cannot be saved")?;
            // A finished run has nothing to resume.
            let _ = std::fs::remove_file(&checkpoints.path);
            report.model_path = Some(path.clone());
        }
        report.note_memory();
        if self.json {
            print_json(&report.json())?
        } else {
            print(&report.text())?
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Fails before any work where the results could not be written.
    fn check_outputs(&self) -> Result<Option<Checkpoints>> {
        for path in self.output.iter().chain(&self.log) {
            check_writable(path)?;
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
        if let Some(test) = &self.test {
            let (train, test_part) = read_pair(&self.data, test, &self.reading.options())?;
            let origin = format!("tested on {}", test.display());
            return Ok(Parts { train, test: Some(test_part), history: None, origin });
        }
        let data = read(&self.data, &self.reading.options_with(self.core))?;
        Ok(match self.split {
            SplitChoice::Nothing => {
                Parts { train: data, test: None, history: None, origin: "nothing held out".to_string() }
            }
            SplitChoice::By(split) => {
                let parts = split.apply(&data, seed)?;
                let origin = format!("split {split}");
                Parts { train: parts.train, test: Some(parts.test), history: parts.history, origin }
            }
        })
    }

    fn titles(&self, data: &Interactions) -> Result<Option<Titles>> {
        let Some(path) = &self.titles else { return Ok(Cache::titles_of(&self.data, data.item_ids())?) };
        let options = TitleOptions { title: self.title_col.clone(), ..TitleOptions::default() };
        let (titles, report) = Titles::read(path, &options, data.item_ids())?;
        if report.titled == 0 {
            tracing::warn!(path = %path.display(), "no line is about an item of the data: check the identifiers");
        }
        Ok(Some(titles))
    }

    fn start(
        &self,
        config: &Config,
        data: Interactions,
        checkpoints: Option<&Checkpoints>,
    ) -> Result<Training> {
        match checkpoints {
            Some(checkpoints) if self.resume => {
                let training = Training::resume(config, data, &checkpoints.path)?;
                tracing::info!(epochs = training.records().len(), "resumed");
                Ok(training)
            }
            Some(checkpoints) if checkpoints.path.exists() => {
                tracing::warn!(
                    path = %checkpoints.path.display(),
                    "a checkpoint of an interrupted run is there and will be replaced; --resume would go on from it"
                );
                Ok(Training::new(config, data)?)
            }
            _ => Ok(Training::new(config, data)?),
        }
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
