//! `fastvae compare`: which model is worth it on this data?

mod candidates;
mod chart;
mod run;
mod summary;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use fastvae::data::{Split, read};
use fastvae::eval::{Measure, Metric};
use fastvae::internals::data::fold;

use self::candidates::comparable;
use crate::commands::with_threads;
use crate::data_flags::TrainDataFlags;
use crate::display::thousands;
use crate::failure::usage;
use crate::interrupt;
use crate::output::{print, print_json};
use crate::scores::positive;

pub use run::pairs_hash;

use run::{Run, Task};
use summary::Summary;

/// Train several models on the same splits and compare them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae compare ratings.csv
  fastvae compare ratings.csv --models wrmf,ease,fastvae --folds 3 -o comparison
  fastvae compare ratings.dat --min-rating 4 --k-core 5 --models all --json

Each model's settings are chosen from a small grid on a part of the training data; the test part is seen once, at \
the end. Results stand in DIR: comparison.md, .csv, .json, .svg, .png, and one file for each model and fold in DIR/runs.
Started again with the same DIR, it goes on where it stopped.")]
pub struct Compare {
    /// File of interactions
    data: PathBuf,

    /// Models to compare, or all: fastvae, fastvae-quick and fastvae-best (its presets), mult-vae, popularity, item-knn,
    /// item-ridge, ease, wrmf, bpr, warp, aobpr, dns, pris, sa
    #[arg(
        long,
        value_name = "NAME,NAME",
        value_delimiter = ',',
        default_value = "popularity,item-knn,item-ridge,ease,wrmf,warp,fastvae-quick,fastvae,fastvae-best"
    )]
    models: Vec<String>,

    /// Parts that the interactions are divided into; each is tested once. 1 for a single split of 80/20
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = positive)]
    folds: usize,

    /// Where results go
    #[arg(short, long, value_name = "DIR", default_value = "comparison")]
    output: PathBuf,

    /// Length of the ranked lists to measure; settings are chosen by ndcg at it
    #[arg(long, value_name = "K", default_value_t = 50, value_parser = positive)]
    at: usize,

    /// Epochs of fastvae and mult-vae, at most
    #[arg(long, value_name = "N", value_parser = positive)]
    epochs: Option<usize>,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Seed of the folds and of training
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reading: TrainDataFlags,
}

impl Compare {
    /// Compares; exit code 130 for an interrupted run.
    pub fn run(self) -> Result<ExitCode> {
        let models = chosen(&self.models)?;
        let data = read(&self.data, &self.reading.options())?;
        let runs = self.output.join("runs");
        std::fs::create_dir_all(&runs)
            .map_err(|source| crate::failure::io(&runs, source))
            .context("the results cannot be written")?;
        let metrics = [Metric::new(Measure::Ndcg, self.at), Metric::new(Measure::Recall, self.at)];
        let mut all: Vec<Run> = Vec::new();
        interrupt::watch()?;
        for at in 0..self.folds {
            // Every fold's split is made even where its runs are done: it says whether the data is the same.
            let (train, test) = match self.folds {
                1 => {
                    let parts = Split::Ratio(0.8).apply(&data, self.seed)?;
                    (parts.train, parts.test)
                }
                n => fold(&data, n, at, self.seed)?,
            };
            let train = Arc::new(train);
            for (place, &model) in models.iter().enumerate() {
                let task = Task {
                    model,
                    fold: at,
                    n_folds: self.folds,
                    seed: self.seed,
                    epochs: self.epochs,
                    metrics,
                    train: &train,
                    test: &test,
                };
                let path = runs.join(format!("{model}-{at}.json"));
                if let Some(done) = Run::read(&path, &task)? {
                    all.push(done);
                    continue;
                }
                let n_done = at * models.len() + place + 1;
                tracing::info!(
                    "{model}, fold {} of {} ({n_done}/{})",
                    at + 1,
                    self.folds,
                    models.len() * self.folds
                );
                match with_threads(self.threads, || task.run())? {
                    Ok(run) => {
                        run.write(&path)?;
                        all.push(run);
                    }
                    Err(error) if interrupt::ended(&error) => {
                        eprintln!(
                            "interrupted; the same command goes on from the {} runs that are done",
                            all.len()
                        );
                        return Ok(ExitCode::from(interrupt::EXIT_CODE));
                    }
                    Err(error) if is_refusal(&error) => {
                        // One model that does not fit the data must not cost the others their results.
                        tracing::warn!("{model} is left out: {error}");
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let summary = Summary::of(&models, &all, metrics, self.folds);
        let title = format!(
            "{}: {} users, {} items, {} interactions",
            self.data.file_name().unwrap_or_default().to_string_lossy(),
            thousands(data.n_users()),
            thousands(data.n_items()),
            thousands(data.n_interactions())
        );
        summary.write(&self.output, &title)?;
        chart::write(&summary, &title, &self.output.join("comparison"))?;
        match self.json {
            true => print_json(&summary)?,
            false => print(&format!("{}\nresults in {}\n", summary.text(&title), self.output.display()))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The models by name, each once, in the order given.
fn chosen(names: &[String]) -> Result<Vec<&'static str>> {
    if names.iter().any(|name| name == "all") {
        return Ok(comparable().collect());
    }
    let mut models = Vec::new();
    for name in names {
        let Some(model) = comparable().find(|model| model == name) else {
            return Err(usage(format!(
                "there is no model `{name}`; use all, or some of {}",
                comparable().collect::<Vec<_>>().join(", ")
            )));
        };
        if !models.contains(&model) {
            models.push(model);
        }
    }
    Ok(models)
}

/// Whether the model cannot work with this data, rather than something being broken.
fn is_refusal(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<fastvae::Error>(), Some(fastvae::Error::Data { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_named_once_and_wrong_names_list_the_right_ones() {
        let names = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(chosen(&names(&["wrmf", "ease", "wrmf"])).unwrap(), ["wrmf", "ease"]);
        assert_eq!(chosen(&names(&["all"])).unwrap().len(), comparable().count());
        let error = chosen(&names(&["als"])).unwrap_err().to_string();
        assert!(error.contains("`als`") && error.contains("item-knn"), "{error}");
    }
}
