//! `fastvae evaluate`: how well a model ranks interactions it has not seen.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use fastvae::Model;
use fastvae::data::Interactions;
use fastvae::internals::data::{ReadReport, read_aligned, read_with_items};
use serde_json::{Map, Value};

use crate::data_flags::DataFlags;
use crate::described;
use crate::display::{seconds, thousands};
use crate::output::{print, print_json};
use crate::scores::{CutOffs, Held, Scores};

/// Measure how well a model ranks interactions that it has not seen
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae evaluate model.fastvae --test test.tsv --history train.tsv
  fastvae evaluate model.fastvae --test test.tsv                    a model trained with --store-users
  fastvae evaluate model.fastvae --test test.tsv --history train.tsv --at 5,100 --json

What a user did before (--history) is shown to the model and left out of the ranking. The users may be new.")]
pub struct Evaluate {
    /// The model
    model: PathBuf,

    /// File of interactions to be found
    #[arg(long, value_name = "FILE")]
    test: PathBuf,

    /// File with what the same users did before; the model's stored users otherwise
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,

    #[command(flatten)]
    cut_offs: CutOffs,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reading: DataFlags,
}

impl Evaluate {
    /// Evaluates and prints.
    pub fn run(self) -> Result<()> {
        let model = &Model::load(&self.model)?;
        if let Some(learned) = model.description().learned.filter(|_| self.history.is_none()) {
            tracing::info!(
                "histories are the stored ones; the model learned from {}",
                described::learned(&learned)
            );
        }
        let histories = self.histories(model)?;
        let (test, report) =
            read_aligned(&self.test, &self.reading.options(), histories.user_ids(), model.item_ids())?;
        warn_of_unknown(&report);
        let scores = super::with_threads(self.threads, || {
            let counts = model.item_counts();
            Scores::of(
                model,
                &Held { histories: &histories, test: &test, counts, cut_offs: &self.cut_offs.at },
            )
        })??;
        if self.json {
            let mut object = Map::new();
            scores.add_to(&mut object);
            object.insert("n_items".into(), model.n_items().into());
            object.insert("n_test_interactions".into(), test.n_interactions().into());
            object.insert("skipped_unknown_users".into(), report.unknown_users.into());
            object.insert("skipped_unknown_items".into(), report.unknown_items.into());
            return print_json(&Value::Object(object));
        }
        print(&format!(
            "{} users, {} test interactions, {} items; {} ({} CPU)\n\n{}",
            thousands(scores.model.n_users),
            thousands(test.n_interactions()),
            thousands(model.n_items()),
            seconds(scores.seconds),
            seconds(scores.cpu_seconds),
            scores.table()
        ))
    }

    fn histories(&self, model: &Model) -> Result<Arc<Interactions>> {
        match (&self.history, model.users()) {
            (Some(path), _) => {
                let (rows, report) = read_with_items(path, &self.reading.options(), model.item_ids())?;
                warn_of_unknown(&report);
                Ok(Arc::new(rows))
            }
            (None, Some(users)) => Ok(users.clone()),
            (None, None) => anyhow::bail!(
                "{} holds no users' histories; give what they did before with --history FILE, or train with --store-users",
                self.model.display()
            ),
        }
    }
}

fn warn_of_unknown(report: &ReadReport) {
    if report.unknown_users + report.unknown_items > 0 {
        tracing::warn!(
            unknown_users = report.unknown_users,
            unknown_items = report.unknown_items,
            rows = report.rows,
            "rows were skipped"
        );
    }
}
