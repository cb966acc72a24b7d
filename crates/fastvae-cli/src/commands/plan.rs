//! `fastvae plan`: memory and time of a training, before it starts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use fastvae::Config;
use fastvae::config::ModelKind;
use fastvae::data::{Interactions, read};
use fastvae::internals::plan::{EpochCost, MemoryPlan};
use fastvae::internals::resources;
use fastvae::internals::train::{TrainingInternals, estimated_seconds, expected_trainings};
use fastvae::train::{Control, Event, TrainOptions, Training};
use serde::Serialize;
use serde_json::json;

use crate::data_flags::TrainDataFlags;
use crate::display::{self, bytes, seconds, thousands};
use crate::output::{print, print_json};
use crate::settings::{Preset, SettingFlags};

/// Seconds of training that the time estimate is drawn from, at most.
const CALIBRATION: f64 = 2.0;

/// Estimate the memory and time of a training before it starts
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae plan ratings.csv
  fastvae plan ratings.csv --preset paper --set hidden=400
  fastvae plan large.tsv.zst --model mult-vae --json

Nothing is refused; a warning says when the training will not fit. The time comes from a few seconds of the \
training itself; --no-calibration leaves that out.")]
pub struct Plan {
    /// File of interactions to train on
    data: PathBuf,

    /// Do not run a few steps to estimate the time
    #[arg(long)]
    no_calibration: bool,

    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    settings: SettingFlags,

    #[command(flatten)]
    reading: TrainDataFlags,
}

/// What a few seconds of training showed.
struct Calibration {
    seconds_per_epoch: f64,
    index_seconds: f64,
    steps: usize,
    n_steps: usize,
}

impl Plan {
    /// Prints the plan.
    pub fn run(self) -> Result<()> {
        let choice = self.settings.resolve()?;
        let data = Arc::new(read(&self.data, &self.reading.options())?);
        let (n_users, n_items, n_interactions) = (data.n_users(), data.n_items(), data.n_interactions());
        let config = &choice.settings.for_data(n_users, n_items);
        let mut memory = MemoryPlan::of(config, n_users, n_items, n_interactions);
        if data.is_mapped() {
            // Its pages stay the file's: reading holds nothing, and the training's share can be dropped.
            memory.reading_bytes = 0;
        }
        let cost = EpochCost::of(config, n_users, n_items, n_interactions);
        let (peak, available) = (memory.peak_bytes(), resources::available_memory());
        let fits = available.is_none_or(|available| peak <= available);
        if let Some(available) = available.filter(|_| !fits) {
            eprintln!(
                "warning: the training needs about {} and {} are available; lower hidden or latent, raise --k-core, \
                 or use a machine with more memory",
                bytes(peak),
                bytes(available)
            );
        }
        let calibration = match (self.no_calibration, fits) {
            (true, _) => None,
            (_, false) => {
                eprintln!("warning: no time is estimated, since the training would not fit");
                None
            }
            _ => Some(calibrate(config, Arc::clone(&data))?),
        };
        let presets = match config.model {
            ModelKind::FastVae => of_presets(&data, calibration.is_some())?,
            ModelKind::MultVae => Vec::new(),
        };
        if self.json {
            return print_json(&json!({
                "n_users": n_users,
                "n_items": n_items,
                "n_interactions": n_interactions,
                "peak_bytes": peak,
                "available_bytes": available,
                "fits": fits,
                "parts": memory.parts,
                "reading_bytes": memory.reading_bytes,
                "gpu_bytes": memory.gpu_bytes,
                "checkpoint_bytes": memory.checkpoint_bytes,
                "model_bytes": memory.model_bytes,
                "step_operations_per_epoch": cost.step_operations,
                "step_bytes_per_epoch": cost.step_bytes,
                "refresh_operations_per_epoch": cost.refresh_operations,
                "steps_per_epoch": cost.steps,
                "epochs": config.epochs,
                "seconds_per_epoch": calibration.as_ref().map(|c| c.seconds_per_epoch),
                "index_seconds_per_epoch": calibration.as_ref().map(|c| c.index_seconds),
                "calibration_steps": calibration.as_ref().map(|c| c.steps),
                "preset": choice.preset,
                "presets": presets,
                "config": config,
            }));
        }
        let mut text = format!(
            "{} users, {} items, {} interactions; {}-{}, preset {}\n\n",
            thousands(n_users),
            thousands(n_items),
            thousands(n_interactions),
            config.hidden,
            config.latent,
            choice.preset
        );
        text.push_str(&memory_text(&memory, available));
        text.push('\n');
        text.push_str(&cost_text(config, &cost, calibration.as_ref()));
        text.push_str(&presets_text(&presets));
        print(&text)
    }
}

/// What a preset asks for and takes, at most.
#[derive(Serialize)]
struct OfPreset {
    preset: Preset,
    hidden: usize,
    latent: usize,
    /// Whether there are two networks of that size.
    pair: bool,
    epochs: usize,
    peak_bytes: u64,
    /// Of all epochs of all trainings and the linear part, on this machine.
    seconds: Option<f64>,
}

/// The presets from quick to best, with times where they are asked for.
fn of_presets(data: &Arc<Interactions>, timed: bool) -> Result<Vec<OfPreset>> {
    let (n_users, n_items) = (data.n_users(), data.n_items());
    let of = |preset: Preset| {
        let config = preset.config().for_data(n_users, n_items);
        let seconds = match timed {
            true => {
                let epoch = calibrate(&config, Arc::clone(data))?.seconds_per_epoch;
                let epochs = expected_trainings(&config, data) * config.epochs;
                Some(epoch * epochs as f64 + estimated_seconds(&config, data))
            }
            false => None,
        };
        let peak_bytes = MemoryPlan::of(&config, n_users, n_items, data.n_interactions()).peak_bytes();
        let Config { hidden, latent, pair, epochs, .. } = config;
        Ok(OfPreset { preset, hidden, latent, pair, epochs, peak_bytes, seconds })
    };
    [Preset::Quick, Preset::Default, Preset::Best].into_iter().map(of).collect()
}

fn presets_text(presets: &[OfPreset]) -> String {
    if presets.is_empty() {
        return String::new();
    }
    let mut table =
        display::table(["--preset", "network", "epochs, at most", "predicted peak", "time, at most"]);
    for of in presets {
        table.add_row([
            &of.preset.to_string(),
            &match of.pair {
                true => format!("2 x {}-{}", of.hidden, of.latent),
                false => format!("{}-{}", of.hidden, of.latent),
            },
            &of.epochs.to_string(),
            &bytes(of.peak_bytes),
            &of.seconds.map(seconds).unwrap_or_default(),
        ]);
    }
    format!("\n{}", display::text(table, 1..5))
}

fn memory_text(memory: &MemoryPlan, available: Option<u64>) -> String {
    let mut table = display::table(["held while training", "size", ""]);
    for part in &memory.parts {
        table.add_row([part.name, &bytes(part.bytes), &part.formula]);
    }
    let available = available.map(|n| format!("of {} available", bytes(n))).unwrap_or_default();
    table.add_row([
        "reading the data",
        &bytes(memory.reading_bytes),
        "before the training; not at the same time",
    ]);
    table.add_row(["predicted peak", &bytes(memory.peak_bytes()), &available]);
    table.add_row(["on a GPU", &bytes(memory.gpu_bytes), "where --device puts the training there"]);
    table.add_row(["checkpoint", &bytes(memory.checkpoint_bytes), "on disk"]);
    table.add_row(["model", &bytes(memory.model_bytes), "on disk, without titles and users"]);
    display::text(table, [1])
}

fn cost_text(config: &Config, cost: &EpochCost, calibration: Option<&Calibration>) -> String {
    let billions = |n: f64| format!("{:.1} billion", n / 1e9);
    let mut table = display::plain();
    table.add_row(["steps of an epoch", &thousands(cost.steps), &format!("{} users each", config.batch)]);
    table.add_row(["operations", &billions(cost.step_operations), "in the steps"]);
    table.add_row(["", &billions(cost.refresh_operations), "in the refresh of the index"]);
    table.add_row(["memory traffic", &bytes(cost.step_bytes as u64), "in the steps"]);
    if let Some(calibration) = calibration {
        let epochs = config.epochs;
        let whole = calibration.seconds_per_epoch * epochs as f64;
        let most =
            if config.patience > 0 { "at most; validation may stop earlier" } else { "without evaluation" };
        table.add_row([
            "time of an epoch",
            &seconds(calibration.seconds_per_epoch),
            &format!(
                "index {}; from {} of {} steps of this training",
                seconds(calibration.index_seconds),
                calibration.steps,
                calibration.n_steps
            ),
        ]);
        table.add_row([&format!("time of {epochs} epochs"), &seconds(whole), most]);
    }
    display::text(table, [1])
}

/// Trains for a moment and extrapolates to an epoch.
fn calibrate(config: &Config, data: Arc<Interactions>) -> Result<Calibration> {
    // Nothing is validated in a moment.
    let config = Config { patience: 0, ..config.clone() };
    let mut training = Training::new(data, &config, TrainOptions::default())?;
    let interval = training.refresh_interval() as f64;
    let start = Instant::now();
    let mut first: Option<Instant> = None;
    let mut found = None;
    training.run(|event| {
        match event {
            // The first step also touches fresh memory, so the clock for steps starts after it.
            Event::Step(step) => {
                let begun = *first.get_or_insert_with(Instant::now);
                let done = step.step - 1;
                if done > 0 && (start.elapsed().as_secs_f64() > CALIBRATION) {
                    let per_step = begun.elapsed().as_secs_f64() / done as f64;
                    let index_seconds = ((begun - start).as_secs_f64() - per_step).max(0.0) / interval;
                    found = Some(Calibration {
                        seconds_per_epoch: index_seconds + per_step * step.n_steps as f64,
                        index_seconds,
                        steps: step.step,
                        n_steps: step.n_steps,
                    });
                    return Control::Stop;
                }
            }
            Event::Epoch(record) => {
                let n_steps = EpochCost::of(&config, training_users(record), 1, 1).steps;
                let index_seconds = record.index_seconds / interval;
                found = Some(Calibration {
                    seconds_per_epoch: record.seconds - record.index_seconds + index_seconds,
                    index_seconds,
                    steps: n_steps,
                    n_steps,
                });
                return Control::Stop;
            }
            _ => {}
        }
        Control::Continue
    })?;
    found.ok_or_else(|| anyhow::anyhow!("the training ended before its first step"))
}

/// Users that an epoch went through.
fn training_users(record: &fastvae::train::EpochRecord) -> usize {
    (record.users_per_second * record.seconds).round() as usize
}
