//! The table of a comparison: for people, for papers, for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use fastvae::eval::Metric;
use fastvae::internals::eval::PairedDifference;
use serde::Serialize;

use super::candidates::Candidate;
use super::run::Run;
use crate::display::{self, Spread, bytes, seconds};
use crate::output::write;

/// A comparison, best model first.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// What the models are ordered by.
    pub metric: Metric,
    /// Folds that were asked for.
    pub folds: usize,
    /// One line for each model.
    pub models: Vec<Line>,
}

/// One model over its folds.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// Its name.
    pub model: String,
    /// Folds that are done.
    pub folds: usize,
    /// Each metric over the folds.
    pub metrics: BTreeMap<Metric, Spread>,
    /// Mean seconds of one training.
    pub seconds: f64,
    /// Mean processor seconds of one training.
    pub cpu_seconds: f64,
    /// The most memory held in training, data included.
    pub peak_memory: Option<u64>,
    /// Against the best model, user by user; None for the best itself.
    pub difference_to_best: Option<PairedDifference>,
    /// The settings chosen in the first fold.
    pub settings: Candidate,
}

impl Summary {
    /// Sums `runs` of `models` up.
    pub fn of(models: &[&str], runs: &[Run], metrics: [Metric; 2], folds: usize) -> Self {
        let mut lines: Vec<(Line, BTreeMap<u32, f64>)> = Vec::new();
        for model in models {
            let of_model: Vec<&Run> = runs.iter().filter(|run| run.model() == *model).collect();
            let Some(first) = of_model.first() else { continue };
            let spread = |pick: &dyn Fn(&Run) -> Option<f64>| {
                Spread::of(&of_model.iter().filter_map(|run| pick(run)).collect::<Vec<_>>())
            };
            let of_metric = |metric| (metric, spread(&|run| run.metrics.get(&metric).copied()));
            let line = Line {
                model: model.to_string(),
                folds: of_model.len(),
                metrics: metrics.into_iter().map(of_metric).collect(),
                seconds: spread(&|run| Some(run.seconds)).mean,
                cpu_seconds: spread(&|run| Some(run.cpu_seconds)).mean,
                peak_memory: of_model.iter().filter_map(|run| run.peak_memory).max(),
                difference_to_best: None,
                settings: first.settings.clone(),
            };
            lines.push((line, user_means(&of_model)));
        }
        let value = |line: &Line| line.metrics.get(&metrics[0]).map_or(0.0, |spread| spread.mean);
        lines.sort_by(|(a, _), (b, _)| value(b).total_cmp(&value(a)));
        let best = lines.first().map(|(_, users)| users.clone()).unwrap_or_default();
        for (line, users) in lines.iter_mut().skip(1) {
            let pairs = users.iter().filter_map(|(user, own)| best.get(user).map(|best| (*own, *best)));
            let (own, best): (Vec<f64>, Vec<f64>) = pairs.unzip();
            line.difference_to_best = Some(PairedDifference::of(&own, &best));
        }
        Self { metric: metrics[0], folds, models: lines.into_iter().map(|(line, _)| line).collect() }
    }

    fn rows(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let mut header = vec!["model".to_string()];
        if let Some(first) = self.models.first() {
            header.extend(first.metrics.keys().map(ToString::to_string));
        }
        header.extend(["to best", "p", "train", "CPU", "memory"].map(str::to_string));
        let row = |line: &Line| {
            let mut row = vec![line.model.clone()];
            row.extend(line.metrics.values().map(ToString::to_string));
            match &line.difference_to_best {
                None => row.extend(["best".to_string(), String::new()]),
                Some(difference) => {
                    row.push(format!("{:+.4}", difference.mean));
                    row.push(p_text(difference.p_value));
                }
            }
            row.extend([seconds(line.seconds), seconds(line.cpu_seconds)]);
            row.push(line.peak_memory.map(bytes).unwrap_or_default());
            row
        };
        (header, self.models.iter().map(row).collect())
    }

    /// A table for the terminal.
    pub fn text(&self, title: &str) -> String {
        let (header, rows) = self.rows();
        let n_columns = header.len();
        let mut table = display::plain();
        table.set_header(header);
        for row in rows {
            table.add_row(row);
        }
        format!(
            "{title}; {}\n\n{}\n{}\n",
            self.protocol(),
            display::text(table, 1..n_columns),
            self.footnote()
        )
    }

    fn protocol(&self) -> String {
        match self.folds {
            1 => "one split of 80/20".to_string(),
            n => format!("{n} folds"),
        }
    }

    fn footnote(&self) -> String {
        format!(
            "± deviation over folds; `to best` and p: paired test over users by {}; train, CPU and memory of one \
             training with the chosen settings",
            self.metric
        )
    }

    /// Writes comparison.md, .csv and .json into `directory`.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn write(&self, directory: &Path, title: &str) -> Result<()> {
        let (header, rows) = self.rows();
        let mut markdown = format!("# Comparison\n\n{title}; {}.\n\n", self.protocol());
        let _ = writeln!(markdown, "| {} |", header.join(" | "));
        let _ = writeln!(markdown, "|---{}|", "|---:".repeat(header.len() - 1));
        for row in &rows {
            let _ = writeln!(markdown, "| {} |", row.join(" | "));
        }
        let _ = writeln!(
            markdown,
            "\n{}.\n\nSettings, chosen on a part of the training data:\n",
            self.footnote()
        );
        for line in &self.models {
            let _ = writeln!(markdown, "- {}: `{}`", line.model, serde_json::to_string(&line.settings)?);
        }
        markdown.push_str("\n![comparison](comparison.svg)\n");
        write(&directory.join("comparison.md"), markdown.as_bytes())?;
        write(&directory.join("comparison.csv"), self.csv().as_bytes())?;
        write(&directory.join("comparison.json"), &serde_json::to_vec_pretty(self)?)
    }

    fn csv(&self) -> String {
        let mut text = String::from("model,folds");
        for metric in self.models.iter().take(1).flat_map(|line| line.metrics.keys()) {
            let _ = write!(text, ",{metric},{metric}_deviation");
        }
        text.push_str(",difference_to_best,p_value,seconds,cpu_seconds,peak_memory_bytes\n");
        for line in &self.models {
            let _ = write!(text, "{},{}", line.model, line.folds);
            for spread in line.metrics.values() {
                let deviation = spread.deviation.map(|d| d.to_string()).unwrap_or_default();
                let _ = write!(text, ",{},{deviation}", spread.mean);
            }
            let (mean, p) = match &line.difference_to_best {
                Some(difference) => (difference.mean.to_string(), difference.p_value.to_string()),
                None => Default::default(),
            };
            let memory = line.peak_memory.map(|m| m.to_string()).unwrap_or_default();
            let _ = writeln!(text, ",{mean},{p},{},{},{memory}", line.seconds, line.cpu_seconds);
        }
        text
    }
}

/// Each user's mean over the folds that tested the user.
fn user_means(runs: &[&Run]) -> BTreeMap<u32, f64> {
    let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for run in runs {
        for (&user, &value) in run.users.iter().zip(&run.values) {
            let sum = sums.entry(user).or_default();
            sum.0 += value;
            sum.1 += 1.0;
        }
    }
    sums.into_iter().map(|(user, (sum, n))| (user, sum / n)).collect()
}

fn p_text(p: f64) -> String {
    if p < 0.0001 { "<0.0001".to_string() } else { format!("{p:.4}") }
}
