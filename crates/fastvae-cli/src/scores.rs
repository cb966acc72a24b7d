//! How well a model ranks, beside the popularity baseline.

use anyhow::Result;
use clap::Args;
use fastvae::Training;
use fastvae::data::Interactions;
use fastvae::eval::{Evaluation, Measure, Metric};
use fastvae::internals::eval::{Scorer, evaluate, evaluate_popularity};
use serde_json::{Map, Value, json};

use crate::display::{self, thousands};
use crate::fit::stopwatch;

/// Which cut-offs are measured.
#[derive(Debug, Clone, Args)]
pub struct CutOffs {
    /// Lengths of the ranked lists to measure
    #[arg(long, value_name = "K,K", value_delimiter = ',', default_value = "10,20,50", value_parser = positive)]
    pub at: Vec<usize>,
}

/// A number of at least 1.
pub fn positive(text: &str) -> Result<usize, String> {
    text.trim().parse().ok().filter(|&n| n > 0).ok_or_else(|| "give a whole number of at least 1".to_string())
}

/// What is to be found, and what its users are known for.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// What each user did before: shown to the model, and left out of the ranking.
    pub histories: &'a Interactions,
    /// What is to be found.
    pub test: &'a Interactions,
    /// How many users touched each item, for the baseline.
    pub counts: &'a [u32],
    /// Lengths of the lists.
    pub cut_offs: &'a [usize],
}

/// A model's scores on held-out interactions, with the baseline's and what they cost.
#[derive(Debug, Clone)]
pub struct Scores {
    /// Of the model.
    pub model: Evaluation,
    /// Of the items by popularity, alike for everyone.
    pub popularity: Evaluation,
    /// Seconds that the model's evaluation took.
    pub seconds: f64,
    /// Processor seconds of it, over all threads.
    pub cpu_seconds: f64,
}

impl Held<'_> {
    /// What is measured.
    pub fn metrics(&self) -> Vec<Metric> {
        Metric::grid(&Measure::ALL, self.cut_offs)
    }

    /// Refuses tests that nothing can be found of, and tells of what cannot: histories are never ranked.
    fn check(&self) -> Result<()> {
        let seen = |user: usize| {
            let history = self.histories.row(user).items;
            let test = self.test.row(user).items;
            test.iter().filter(|item| history.binary_search(item).is_ok()).count()
        };
        let (of, n) = ((0..self.test.n_users()).map(seen).sum::<usize>(), self.test.n_interactions());
        anyhow::ensure!(
            of < n || n == 0,
            "all {} test interactions are in the users' histories too, which are never ranked: nothing can be found; give \
             --test interactions that the histories do not hold, or the --history that came before them",
            thousands(n)
        );
        if of > 0 {
            tracing::warn!(
                "{} of {} test interactions are in the users' histories too, which are never ranked: they count as not found",
                thousands(of),
                thousands(n)
            );
        }
        Ok(())
    }
}

impl Scores {
    /// Ranks the whole catalogue for every user of the test.
    ///
    /// # Errors
    /// As [`evaluate`]; where nothing can be found.
    pub fn of(scorer: impl Scorer, held: &Held<'_>) -> Result<Self> {
        Self::measured(held, |metrics| evaluate(scorer, held.histories, held.test, metrics))
    }

    /// As [`Scores::of`], for a training's parameters; on its device where that ranks. The run keeps what was measured, and
    /// what it has kept is not measured again.
    ///
    /// # Errors
    /// As [`Training::evaluate`]; where nothing can be found.
    pub fn of_training(training: &mut Training, held: &Held<'_>, measured_on: &str) -> Result<Self> {
        if let Some(known) = training.evaluation().cloned() {
            return Self::measured(held, |_| Ok(known));
        }
        let scores = Self::measured(held, |metrics| training.evaluate(held.histories, held.test, metrics))?;
        training.note_evaluation(scores.model.clone(), measured_on);
        Ok(scores)
    }

    fn measured(
        held: &Held<'_>,
        measure: impl FnOnce(&[Metric]) -> fastvae::Result<Evaluation>,
    ) -> Result<Self> {
        held.check()?;
        let metrics = held.metrics();
        let took = stopwatch();
        let model = measure(&metrics)?;
        let (seconds, cpu_seconds) = took();
        let popularity = evaluate_popularity(held.counts, held.histories, held.test, &metrics)?;
        Ok(Self { model, popularity, seconds, cpu_seconds })
    }

    /// A table: one line for each measure, columns for the model and for the baseline.
    pub fn table(&self) -> String {
        scores_table(&self.model, Some(&self.popularity))
    }

    /// The metrics flat, then what belongs to them.
    pub fn add_to(&self, object: &mut Map<String, Value>) {
        add_metrics(&self.model, object);
        object.insert("popularity".into(), means(&self.popularity).into());
        object.insert("recall_denominator".into(), recall_denominator().into());
        object.insert("n_test_users".into(), self.model.n_users.into());
        object.insert("evaluation_seconds".into(), self.seconds.into());
        object.insert("evaluation_cpu_seconds".into(), self.cpu_seconds.into());
    }
}

/// What `recall` is divided by.
pub fn recall_denominator() -> &'static str {
    "test items of the user"
}

/// Means flat in `object`, standard errors in one object inside.
pub fn add_metrics(evaluation: &Evaluation, object: &mut Map<String, Value>) {
    object.extend(means(evaluation));
    let errors: Map<String, Value> = evaluation
        .metrics
        .iter()
        .filter_map(|(metric, estimate)| Some((metric.to_string(), json!(estimate.standard_error?))))
        .collect();
    object.insert("standard_errors".into(), errors.into());
}

fn means(evaluation: &Evaluation) -> Map<String, Value> {
    evaluation.metrics.iter().map(|(metric, estimate)| (metric.to_string(), json!(estimate.mean))).collect()
}

/// Where two definitions are in use, which one the table means.
const FOOTNOTE: &str = "\
recall = hits / test items of the user; recall-min = hits / min(k, test items)
";

/// A table of `model`, with `popularity` beside it where it was measured.
pub fn scores_table(model: &Evaluation, popularity: Option<&Evaluation>) -> String {
    let mut cut_offs: Vec<usize> = model.metrics.keys().map(|metric| metric.k).collect();
    cut_offs.sort_unstable();
    cut_offs.dedup();
    let mut table = display::plain();
    let mut header = vec![String::new()];
    header.extend(cut_offs.iter().map(|k| format!("@{k}")));
    if popularity.is_some() {
        header.extend(cut_offs.iter().map(|k| format!("popular@{k}")));
    }
    let n_columns = header.len();
    table.set_header(header);
    for measure in Measure::ALL {
        let metric = |k: &usize| Metric::new(measure, *k);
        if !cut_offs.iter().any(|k| model.metrics.contains_key(&metric(k))) {
            continue;
        }
        let mut row = vec![measure.name().to_string()];
        row.extend(cut_offs.iter().map(|k| match model.metrics.get(&metric(k)) {
            None => String::new(),
            Some(estimate) => match estimate.standard_error {
                Some(error) => format!("{:.4} ± {error:.4}", estimate.mean),
                None => format!("{:.4}         ", estimate.mean),
            },
        }));
        if let Some(popularity) = popularity {
            row.extend(
                cut_offs
                    .iter()
                    .map(|k| popularity.mean(metric(k)).map(|mean| format!("{mean:.4}")).unwrap_or_default()),
            );
        }
        table.add_row(row);
    }
    let mut text = display::text(table, 1..n_columns);
    text.push_str(FOOTNOTE);
    text
}
