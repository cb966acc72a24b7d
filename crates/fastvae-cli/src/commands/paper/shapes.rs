//! Time and memory on catalogues of the shape of Amazon and Netflix, which the paper measures and nobody may hand on.
//!
//! Generated data have no tastes worth learning, so accuracy is not compared.

use anyhow::Result;
use fastvae::Config;
use fastvae::config::{ModelKind, ProposalKind};
use fastvae::data::{GenerateOptions, Interactions, generate};
use fastvae::internals::plan::MemoryPlan;
use fastvae::internals::resources;
use fastvae::train::{TrainOptions, Training};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::datasets::{AMAZON, Dataset, NETFLIX};
use super::page::{Finding, Page, Table, Verdict};
use super::session::Session;
use crate::display::Spread;
use crate::display::{bytes, thousands};
use crate::fit::fit_quietly;
use crate::plot::{Bar, Bars, bars};

const PROPOSALS: [ProposalKind; 5] = [
    ProposalKind::MidxUniform,
    ProposalKind::MidxPopularity,
    ProposalKind::Uniform,
    ProposalKind::Popularity,
    ProposalKind::Kernel,
];
/// In a quick run there are so many times fewer users.
const QUICK_SHARE: usize = 20;

/// The second of two epochs, when all buffers exist.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Epoch {
    seconds: f64,
    cpu_seconds: f64,
    /// Memory that the process holds after it, the data included.
    held_bytes: u64,
    /// Memory that was predicted.
    planned_bytes: u64,
}

/// What was measured on one catalogue: a line for each proposal, then the full softmax.
struct Shape {
    dataset: Dataset,
    users: usize,
    interactions: usize,
    epochs: Vec<Epoch>,
}

/// The page.
///
/// # Errors
/// What training reports.
pub fn page(session: &Session) -> Result<Page> {
    let names: Vec<&str> = PROPOSALS.iter().map(|kind| kind.name()).chain(["mult-vae"]).collect();
    let shapes: Vec<Shape> =
        [AMAZON, NETFLIX].map(|of| measured(session, of, &names)).into_iter().collect::<Result<_>>()?;
    let memory = resources::available_memory();
    let (table, numbers) = tables(&shapes, &names);
    Ok(Page {
        id: "shapes",
        title: "Catalogues of the shape of Amazon and Netflix",
        method: format!(
            "Generated data with the users, items and interactions of the paper's table 1 and its number of negatives{}; {} \
             threads, the second of two epochs, with its refresh of the index. Planned is what a training from a text file \
             takes, reading included. Accuracy cannot be compared: the real files are not at hand.",
            session.effort.choose(String::new(), format!(", of {QUICK_SHARE} times fewer users")),
            rayon::current_num_threads()
        ),
        table,
        numbers,
        plot: Some(plot(&shapes, &names)?),
        findings: findings(&shapes, &names, memory),
    })
}

fn measured(session: &Session, dataset: Dataset, names: &[&str]) -> Result<Shape> {
    let threads = rayon::current_num_threads();
    let share = session.effort.choose(1, QUICK_SHARE);
    let [users, items, interactions] = dataset.published;
    let (users, interactions) = (users / share, interactions / share);
    let options = GenerateOptions { users, items, interactions, ..GenerateOptions::default() };
    // Made only where something is left to measure.
    let mut data: Option<std::sync::Arc<Interactions>> = None;
    let mut epochs = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let config = Config { threads, ..config(dataset, at) };
        let task = json!({ "config": config, "users": users, "items": items, "interactions": interactions });
        epochs.push(session.remembered(&format!("shape-{}-{name}", dataset.name), task, || {
            let data = match &data {
                Some(data) => data,
                None => data.insert(generate(options.clone())?.into()),
            };
            let mut training = Training::new(data.clone(), &config, TrainOptions::default())?;
            let mut held_bytes = 0;
            fit_quietly(&mut training, |_, _| {
                held_bytes = held_bytes.max(resources::current_memory().unwrap_or(0));
                Ok(())
            })?;
            let record = training.records().last().expect("two epochs have run");
            let n = data.n_interactions();
            let planned_bytes = MemoryPlan::of(&config, users, items, n).peak_bytes();
            Ok(Epoch { seconds: record.seconds, cpu_seconds: record.cpu_seconds, held_bytes, planned_bytes })
        })?);
    }
    Ok(Shape { dataset, users, interactions, epochs })
}

/// The settings of line `at`: the proposals, then the full softmax.
fn config(dataset: Dataset, at: usize) -> Config {
    let start = Config { negatives: dataset.negatives, epochs: 2, refresh_every: 1, ..Config::paper() };
    match PROPOSALS.get(at) {
        Some(&proposal) => Config { proposal, ..start },
        None => Config { model: ModelKind::MultVae, ..start },
    }
}

fn tables(shapes: &[Shape], names: &[&str]) -> (Table, Table) {
    let mut table = Table::new(&["shape of", "", "epoch s", "CPU s", "memory held", "planned"]);
    let mut numbers = Table::new(&[
        "shape_of",
        "users",
        "items",
        "interactions",
        "run",
        "epoch_seconds",
        "cpu_seconds",
        "held_bytes",
        "planned_bytes",
    ]);
    for Shape { dataset, users, interactions, epochs } in shapes {
        let items = dataset.published[1];
        for (name, epoch) in names.iter().zip(epochs) {
            table.push([
                format!(
                    "{} ({} x {}, {})",
                    dataset.title,
                    thousands(*users),
                    thousands(items),
                    thousands(*interactions)
                ),
                name.to_string(),
                format!("{:.2}", epoch.seconds),
                format!("{:.2}", epoch.cpu_seconds),
                bytes(epoch.held_bytes),
                bytes(epoch.planned_bytes),
            ]);
            numbers.push([
                dataset.name.to_string(),
                users.to_string(),
                items.to_string(),
                interactions.to_string(),
                name.to_string(),
                format!("{:.4}", epoch.seconds),
                format!("{:.4}", epoch.cpu_seconds),
                epoch.held_bytes.to_string(),
                epoch.planned_bytes.to_string(),
            ]);
        }
    }
    (table, numbers)
}

fn plot(shapes: &[Shape], names: &[&str]) -> Result<String> {
    let panel = |shape: &Shape| Bars {
        title: format!("The shape of {}", shape.dataset.title),
        heading: "seconds an epoch".into(),
        bars: names
            .iter()
            .zip(&shape.epochs)
            .map(|(name, epoch)| Bar {
                name: name.to_string(),
                value: Spread { mean: epoch.seconds, deviation: None },
                reference: None,
            })
            .collect(),
    };
    bars(&shapes.iter().map(panel).collect::<Vec<_>>())
}

fn findings(shapes: &[Shape], names: &[&str], memory: Option<u64>) -> Vec<Finding> {
    let last = names.len() - 1;
    let of = |shape: &Shape, name: &str| {
        shape.epochs[names.iter().position(|own| *own == name).expect("every line is measured")]
    };
    let faster = |shape: &Shape| {
        let times = |name: &str| shape.epochs[last].seconds / of(shape, name).seconds;
        (times("midx-uniform"), times("midx-popularity"))
    };
    let held = |shape: &Shape| shape.epochs.iter().map(|epoch| epoch.held_bytes).max().unwrap_or(0);
    let memory = memory.unwrap_or(0);
    vec![
        Finding {
            claim: "MIDX trains faster than the full softmax.",
            verdict: Verdict::of(shapes.iter().map(|shape| faster(shape).0.min(faster(shape).1) > 1.0)),
            evidence: shapes
                .iter()
                .map(|shape| {
                    let (uniform, popularity) = faster(shape);
                    format!(
                        "{}: {uniform:.1} times (midx-uniform), {popularity:.1} times (midx-popularity).",
                        shape.dataset.title
                    )
                })
                .collect::<Vec<_>>()
                .join(" "),
        },
        Finding {
            claim: "Training on these shapes fits in this machine's memory.",
            verdict: Verdict::of(shapes.iter().map(|shape| held(shape) < memory)),
            evidence: format!(
                "{}; {} can be taken.",
                shapes
                    .iter()
                    .map(|shape| format!("{}: {} held at most", shape.dataset.title, bytes(held(shape))))
                    .collect::<Vec<_>>()
                    .join("; "),
                bytes(memory)
            ),
        },
    ]
}
