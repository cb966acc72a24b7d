//! Figure 4: time of drawing and of training as the catalogue grows.

use anyhow::Result;
use fastvae::Config;
use fastvae::config::{ModelKind, ProposalKind};
use fastvae::data::{GenerateOptions, Interactions, generate};
use fastvae::internals::backend::Phase;
use fastvae::internals::train::TrainingInternals;
use fastvae::train::{TrainOptions, Training};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::curve::mark;
use super::datasets::AMAZON;
use super::page::{Finding, Page, Table, Verdict};
use super::session::Session;
use crate::fit::fit_quietly;
use crate::plot::{Figure, Panel, Scale, Series};

const ITEMS: [usize; 5] = [50_000, 100_000, 200_000, 500_000, 1_500_000];
const NEGATIVES: usize = 200;
const PROPOSALS: [ProposalKind; 4] = [
    ProposalKind::MidxUniform,
    ProposalKind::MidxPopularity,
    ProposalKind::Uniform,
    ProposalKind::Popularity,
];

/// What an epoch over the users of the paper's Amazon dataset takes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Epoch {
    /// Seconds of the steps and of the index.
    seconds: f64,
    /// Of these, of drawing negatives, the index included; 0 for the full softmax.
    sampling_seconds: f64,
}

/// The page.
///
/// # Errors
/// What training reports.
pub fn page(session: &Session) -> Result<Page> {
    let users = session.effort.choose(8192, 1536);
    let threads = rayon::current_num_threads();
    let mut names: Vec<String> = PROPOSALS.iter().map(|&kind| kind.name().to_string()).collect();
    names.push("mult-vae".to_string());
    let mut epochs: Vec<Vec<Epoch>> = vec![Vec::new(); names.len()];
    for items in ITEMS {
        // Made only where something is left to measure: a million items take seconds.
        let mut data: Option<Interactions> = None;
        for (at, name) in names.iter().enumerate() {
            let config = config(at);
            let task = json!({ "config": config, "items": items, "users": users, "threads": threads });
            let epoch = session.remembered(&format!("time-{items}-{name}"), task, || {
                let data = match &data {
                    Some(data) => data,
                    None => data.insert(generated(users, items)?),
                };
                measured(data, &config, threads)
            })?;
            epochs[at].push(epoch);
        }
    }
    let (table, numbers) = tables(&names, &epochs);
    Ok(Page {
        id: "fig-time",
        title: "Figure 4: time as the catalogue grows",
        method: format!(
            "Generated data, {NEGATIVES} negatives, {threads} threads. An epoch over {} users, the paper's number, scaled \
             from one over {users} (the second of two, so that buffers exist); the index is counted whole. Sampling is \
             drawing and the index.",
            AMAZON.published[0]
        ),
        table,
        numbers,
        plot: Some(
            Figure { title: "Time against the number of items".into(), panels: panels(&names, &epochs) }
                .svg()?,
        ),
        findings: findings(&names, &epochs),
    })
}

/// The settings of line `at`: the proposals, then the full softmax.
fn config(at: usize) -> Config {
    let start = Config { negatives: NEGATIVES, epochs: 2, refresh_every: 1, ..Config::paper() };
    match PROPOSALS.get(at) {
        Some(&proposal) => Config { proposal, ..start },
        None => Config { model: ModelKind::MultVae, ..start },
    }
}

fn generated(users: usize, items: usize) -> Result<Interactions> {
    // As many interactions a user as in the paper's Amazon dataset.
    let interactions = users * AMAZON.published[2] / AMAZON.published[0];
    let options = GenerateOptions { users, items, interactions, ..GenerateOptions::default() };
    Ok(generate(options)?)
}

fn measured(data: &Interactions, config: &Config, threads: usize) -> Result<Epoch> {
    let config = &Config { threads, ..config.clone() };
    let mut training = Training::new(data.clone(), config, TrainOptions::default())?;
    let mut drawn_before = 0.0;
    let sampling = |run: &Training| {
        let times = run.phase_times();
        (times.seconds(Phase::Draw) + times.seconds(Phase::Settle)) / threads as f64
    };
    fit_quietly(&mut training, |run, record| {
        if record.epoch == 1 {
            drawn_before = sampling(run);
        }
        Ok(())
    })?;
    let drawn = sampling(&training) - drawn_before;
    let record = training.records().last().expect("two epochs have run");
    let scale = AMAZON.published[0] as f64 / data.n_users() as f64;
    let sampled = config.model == ModelKind::FastVae;
    Ok(Epoch {
        seconds: record.index_seconds + scale * (record.seconds - record.index_seconds),
        sampling_seconds: if sampled { record.index_seconds + scale * drawn } else { 0.0 },
    })
}

fn tables(names: &[String], epochs: &[Vec<Epoch>]) -> (Table, Table) {
    let mut table = Table::new(&["", "items", "epoch s", "sampling s", "speed-up"]);
    let mut numbers = Table::new(&["run", "items", "epoch_seconds", "sampling_seconds", "speed_up"]);
    let full = &epochs[names.len() - 1];
    for (name, of_name) in names.iter().zip(epochs) {
        for (at, (items, epoch)) in ITEMS.iter().zip(of_name).enumerate() {
            let speed_up = full[at].seconds / epoch.seconds;
            let row = |decimals: usize| {
                [
                    name.clone(),
                    items.to_string(),
                    format!("{:.*}", decimals, epoch.seconds),
                    format!("{:.*}", decimals, epoch.sampling_seconds),
                    format!("{:.*}", decimals, speed_up),
                ]
            };
            table.push(row(2));
            numbers.push(row(5));
        }
    }
    (table, numbers)
}

fn panels(names: &[String], epochs: &[Vec<Epoch>]) -> Vec<Panel> {
    let full = &epochs[names.len() - 1];
    let panel = |title: &str, y: &str, y_scale: Scale, pick: &dyn Fn(usize, &Epoch) -> f64, n: usize| Panel {
        title: title.to_string(),
        x: "items".into(),
        y: y.to_string(),
        x_scale: Scale::Log,
        y_scale,
        x_ticks: Some(ITEMS.map(|items| items as f64).to_vec()),
        series: (0..n)
            .map(|line| Series {
                name: names[line].clone(),
                colour: line,
                mark: mark(line),
                points: (0..ITEMS.len()).map(|at| (ITEMS[at] as f64, pick(at, &epochs[line][at]))).collect(),
            })
            .collect(),
    };
    vec![
        panel(
            "Sampling",
            "seconds an epoch",
            Scale::Linear,
            &|_, epoch| epoch.sampling_seconds,
            PROPOSALS.len(),
        ),
        panel("Training", "seconds an epoch", Scale::Log, &|_, epoch| epoch.seconds, names.len()),
        panel(
            "Speed-up over the full softmax",
            "times",
            Scale::Log,
            &|at, epoch| full[at].seconds / epoch.seconds,
            PROPOSALS.len(),
        ),
    ]
}

fn findings(names: &[String], epochs: &[Vec<Epoch>]) -> Vec<Finding> {
    let of = |name: &str| {
        let at = names.iter().position(|own| own == name).expect("every line is measured");
        &epochs[at]
    };
    let last = ITEMS.len() - 1;
    let full = of("mult-vae");
    let speed_up = |name: &str, at: usize| full[at].seconds / of(name)[at].seconds;
    let sampling =
        |name: &str| of(name).iter().map(|epoch| epoch.sampling_seconds).sum::<f64>() / ITEMS.len() as f64;
    let midx = ["midx-uniform", "midx-popularity"];
    vec![
        Finding {
            claim: "midx-uniform draws faster than midx-popularity, and slower than the static proposals.",
            verdict: Verdict::of(
                [sampling("midx-uniform") < sampling("midx-popularity")]
                    .into_iter()
                    .chain(["uniform", "popularity"].map(|other| sampling("midx-uniform") > sampling(other))),
            ),
            evidence: format!(
                "Mean seconds an epoch over the sizes: {}.",
                names[..PROPOSALS.len()]
                    .iter()
                    .map(|name| format!("{name} {:.2}", sampling(name)))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        },
        Finding {
            claim: "The more items, the more training is accelerated.",
            verdict: Verdict::of(
                midx.iter().flat_map(|name| (0..last).map(|at| speed_up(name, at + 1) > speed_up(name, at))),
            ),
            evidence: format!(
                "midx-popularity: {}.",
                (0..=last)
                    .map(|at| format!("{:.1} times at {} items", speed_up("midx-popularity", at), ITEMS[at]))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        },
        Finding {
            claim: "At about 1.5 million items, MIDX trains more than six times as fast as the full softmax.",
            verdict: Verdict::of(midx.iter().map(|name| speed_up(name, last) > 6.0)),
            evidence: format!(
                "{:.0} times (midx-uniform) and {:.0} times (midx-popularity).",
                speed_up("midx-uniform", last),
                speed_up("midx-popularity", last)
            ),
        },
    ]
}
