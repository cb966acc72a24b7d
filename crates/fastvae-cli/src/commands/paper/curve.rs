//! One training of the model, tested after some of its epochs.

use anyhow::Result;
use fastvae::Config;
use fastvae::config::ModelKind;
use fastvae::eval::{Measure, Metric};
use fastvae::train::{TrainOptions, Training};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::datasets::Trial;
use super::page::Table;
use super::session::{Job, Session};
use crate::fit::fit_quietly;
use crate::plot::{Mark, Panel, Scale, Series};

/// What the paper measures.
pub const NDCG: Metric = Metric { measure: Measure::Ndcg, k: 50 };
/// And beside it.
pub const RECALL: Metric = Metric { measure: Measure::Recall, k: 50 };

/// Quality by epoch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Curve {
    /// After each tested epoch, ascending.
    pub points: Vec<Point>,
    /// Seconds of training, tests not counted.
    pub seconds: f64,
    /// Processor seconds of it.
    pub cpu_seconds: f64,
    /// What trained it, in words.
    pub device: String,
}

/// Quality after an epoch.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Point {
    /// The epoch, from 1.
    pub epoch: usize,
    /// NDCG@50.
    pub ndcg: f64,
    /// Recall@50.
    pub recall: f64,
}

impl Curve {
    /// The point after `epoch`.
    pub fn at(&self, epoch: usize) -> Point {
        *self.points.iter().find(|point| point.epoch == epoch).expect("curves are tested at the same epochs")
    }

    /// The last point.
    pub fn last(&self) -> Point {
        *self.points.last().expect("the last epoch is always tested")
    }
}

/// A line of a figure: its name and its curve.
pub type Named = (String, Curve);

/// Trains on `trial` with each of the settings and tests, unless an earlier run did.
///
/// # Errors
/// What training reports.
pub fn curves(session: &Session, trial: &Trial, named: Vec<(String, Config)>) -> Result<Vec<Named>> {
    let jobs: Vec<_> = named.iter().map(|(_, config)| job(session, trial, config)).collect();
    let curves = session.results(&jobs)?;
    Ok(named.into_iter().map(|(name, _)| name).zip(curves).collect())
}

/// The job of training on `trial` with `config`.
pub fn job<'a>(session: &Session, trial: &'a Trial, config: &Config) -> Job<'a, Curve> {
    let config = Config { seed: trial.seed, threads: 0, ..config.clone() };
    let kind = match config.model {
        ModelKind::MultVae => "mult-vae".to_string(),
        ModelKind::FastVae => {
            format!("{}-k{}-t{}", config.proposal.name(), config.codewords, config.negatives)
        }
    };
    let mut epochs = session.effort.tested_epochs();
    epochs.retain(|&epoch| epoch <= config.epochs);
    Job {
        name: format!("{}-{kind}", trial.name),
        task: json!({ "data": trial.fingerprint(), "config": config, "epochs": epochs }),
        work: Box::new(move || trained(trial, &config, &epochs)),
    }
}

fn trained(trial: &Trial, config: &Config, epochs: &[usize]) -> Result<Curve> {
    let threads = rayon::current_num_threads();
    let config = Config { threads, ..config.clone() };
    let mut training = Training::new(trial.train.clone(), &config, TrainOptions::default())?;
    let mut points = Vec::new();
    fit_quietly(&mut training, |run, record| {
        if epochs.contains(&record.epoch) {
            let evaluation = run.evaluate(&trial.train, &trial.test, &[NDCG, RECALL])?;
            let mean = |metric| evaluation.mean(metric).unwrap_or(0.0);
            points.push(Point { epoch: record.epoch, ndcg: mean(NDCG), recall: mean(RECALL) });
        }
        Ok(())
    })?;
    let device = match training.device().as_str() {
        "cpu" => on_threads(threads),
        gpu => gpu.to_string(),
    };
    let records = training.records();
    Ok(Curve {
        device,
        points,
        seconds: records.iter().map(|record| record.seconds).sum(),
        cpu_seconds: records.iter().map(|record| record.cpu_seconds).sum(),
    })
}

/// A CPU in words.
pub fn on_threads(threads: usize) -> String {
    match threads {
        1 => "1 thread".to_string(),
        n => format!("{n} threads"),
    }
}

/// The panels of NDCG and recall by epoch.
pub fn panels(curves: &[Named]) -> Vec<Panel> {
    let panel = |title: &str, pick: fn(&Point) -> f64| Panel {
        title: title.to_string(),
        x: "epoch".into(),
        y: title.to_string(),
        x_scale: Scale::Log,
        y_scale: Scale::Linear,
        x_ticks: Some(epoch_ticks(curves)),
        series: curves
            .iter()
            .enumerate()
            .map(|(at, (name, curve))| Series {
                name: name.clone(),
                colour: at,
                mark: mark(at),
                points: curve.points.iter().map(|point| (point.epoch as f64, pick(point))).collect(),
            })
            .collect(),
    };
    vec![panel("NDCG@50", |point| point.ndcg), panel("Recall@50", |point| point.recall)]
}

/// A mark for the line at place `at`.
pub fn mark(at: usize) -> Mark {
    [Mark::Discs, Mark::Triangles, Mark::Squares, Mark::Crosses][at % 4]
}

/// 1, 2, 5, 10 and so on, up to the last epoch.
fn epoch_ticks(curves: &[Named]) -> Vec<f64> {
    let last = curves.iter().map(|(_, curve)| curve.last().epoch).max().unwrap_or(1) as f64;
    let ticks = (0..6).flat_map(|power| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(power)));
    ticks.take_while(|tick| *tick <= last).collect()
}

/// Every point of every curve.
pub fn numbers(curves: &[Named]) -> Table {
    let mut table = Table::new(&["run", "epoch", "ndcg@50", "recall@50"]);
    for (name, curve) in curves {
        for point in &curve.points {
            let fields =
                [point.epoch.to_string(), format!("{:.6}", point.ndcg), format!("{:.6}", point.recall)];
            table.push(std::iter::once(name.clone()).chain(fields));
        }
    }
    table
}

/// The last point of every curve, and what it cost.
pub fn table(curves: &[Named]) -> Table {
    let mut table = Table::new(&["", "NDCG@50", "Recall@50", "epochs", "training s", "CPU s", "on"]);
    for (name, curve) in curves {
        let Point { epoch, ndcg, recall } = curve.last();
        table.push([
            name.clone(),
            format!("{ndcg:.4}"),
            format!("{recall:.4}"),
            epoch.to_string(),
            format!("{:.1}", curve.seconds),
            format!("{:.1}", curve.cpu_seconds),
            curve.device.clone(),
        ]);
    }
    table
}

/// The NDCG of `curves[at]` at its tested epochs in a line: for evidence.
pub fn course(curve: &Curve) -> String {
    let texts: Vec<String> = curve.points.iter().map(|point| format!("{:.4}", point.ndcg)).collect();
    texts.join(", ")
}
