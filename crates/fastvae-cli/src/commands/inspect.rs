//! `fastvae inspect`: what a file of interactions or a model holds.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use fastvae::Model;
use fastvae::data::Statistics;
use fastvae::internals::data::read_with_report;
use fastvae::internals::model::ModelInternals;
use serde_json::{Map, Value, json};

use crate::data_flags::TrainDataFlags;
use crate::described;
use crate::display::{self, bytes, thousands};
use crate::failure;
use crate::output::{extend, print, print_json};
use crate::scores::add_metrics;

/// Show what a file of interactions or a model holds
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae inspect ratings.csv
  fastvae inspect ml10m.mat --k-core 10
  fastvae inspect ratings.dat --min-rating 4 --json
  fastvae inspect model.fastvae")]
pub struct Inspect {
    /// File of interactions, or a model
    file: PathBuf,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reading: TrainDataFlags,
}

impl Inspect {
    /// Prints what is there.
    pub fn run(self) -> Result<()> {
        if is_model(&self.file)? { self.model() } else { self.data() }
    }

    fn data(&self) -> Result<()> {
        let (data, report) = read_with_report(&self.file, &self.reading.options())?;
        let statistics = Statistics::of(&data);
        if self.json {
            let mut object = serde_json::to_value(&statistics)?;
            object["weighted"] = data.weights().is_some().into();
            object["reading"] = serde_json::to_value(&report)?;
            return print_json(&object);
        }
        let mut table = display::plain();
        table.add_row(["users", "items", "interactions", "sparsity"]);
        table.add_row([
            thousands(statistics.users),
            thousands(statistics.items),
            thousands(statistics.interactions),
            format!("{:.4}%", statistics.sparsity * 100.0),
        ]);
        let mut text = display::text(table, 0..4);
        text.push('\n');
        // The four figures above are the first lines of the full statistics.
        for line in statistics.to_string().lines().skip(4) {
            text.push_str(line);
            text.push('\n');
        }
        text.push_str(&format!(
            "weights       {}\n",
            if data.weights().is_some() { "yes" } else { "none: every interaction counts the same" }
        ));
        let dropped = [
            (report.below_min_rating, "below the least rating"),
            (report.non_positive_weights, "without a positive weight"),
            (report.duplicates, "merged into another of the same user and item"),
        ];
        let dropped: Vec<String> = dropped
            .into_iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("{} {what}", thousands(n)))
            .collect();
        let dropped = if dropped.is_empty() { String::new() } else { format!("; {}", dropped.join(", ")) };
        text.push_str(&format!("rows read     {}{dropped}\n", thousands(report.rows)));
        print(&text)
    }

    fn model(&self) -> Result<()> {
        let size = std::fs::metadata(&self.file).map_err(|e| failure::io(&self.file, e))?.len();
        let model = Model::load(&self.file)?;
        if self.json { print_json(&model_json(&model, size)) } else { print(&model_text(&model, size)?) }
    }
}

fn model_json(model: &Model, size: u64) -> Map<String, Value> {
    let description = model.description();
    let mut object = Map::new();
    if let Some(evaluation) = &description.evaluation {
        add_metrics(evaluation, &mut object);
    }
    let network = model.network();
    let entries = json!({
        "model": model.name(),
        "n_items": model.n_items(),
        "n_parameters": network.map(|network| network.n_parameters()),
        "hidden": network.map(|network| network.hidden()),
        "latent": network.map(|network| network.latent()),
        "titles": model.titles().is_some(),
        "stored_users": model.users().map(|users| users.n_users()),
        "index": model.index().is_some(),
        "search": description.search,
        "bytes": size,
        "epochs": description.epochs.iter().filter(|record| !record.refit).count(),
        "version": description.library_version,
        "statistics": description.statistics,
        "config": description.settings,
    });
    extend(&mut object, entries);
    described::add_to(description, &mut object);
    object
}

fn model_text(model: &Model, size: u64) -> Result<String> {
    let description = model.description();
    let mut table = display::plain();
    let titled = (0..model.n_items() as u32).filter(|&item| model.title(item).is_some()).count();
    table.add_row(["model", model.name()]);
    table.add_row(["items", &thousands(model.n_items())]);
    table.add_row(["titles", &thousands(titled)]);
    if let Some(network) = model.network() {
        let sizes = format!("{}-{}", network.hidden(), network.latent());
        table.add_row(["parameters", &format!("{} ({sizes})", thousands(network.n_parameters()))]);
    }
    let search = match (model.index(), &description.search) {
        (None, _) => "no".to_string(),
        (Some(_), None) => "yes".to_string(),
        (Some(_), Some(search)) => {
            format!("yes; lists of {} find {:.1} % of the exact ones", search.k, 100.0 * search.recall)
        }
    };
    table.add_row(["index", &search]);
    let stored = model.users().map_or_else(|| "none".to_string(), |users| thousands(users.n_users()));
    table.add_row(["stored users", &stored]);
    table.add_row(["file", &bytes(size)]);
    table.add_row(["trained by", &format!("fastvae {}", description.library_version)]);
    if let Some(statistics) = &description.statistics {
        let (users, interactions) = (thousands(statistics.users), thousands(statistics.interactions));
        table.add_row(["data", &format!("{users} users, {interactions} interactions")]);
    }
    if let Some(blend) = &description.blend {
        table.add_row(["chosen", &blend.to_string()]);
    }
    if let Some(learned) = &description.learned {
        table.add_row(["learned from", &described::learned(learned)]);
    }
    let mut text = display::text(table, []);
    text.push_str("\nsettings\n");
    for line in toml::to_string(&description.settings)?.lines().filter(|line| !line.is_empty()) {
        text.push_str(&format!("  {line}\n"));
    }
    text.push_str(&described::tables(description));
    Ok(text)
}

/// Whether `path` is a model: by extension, or because it starts as safetensors files do, with the length of a
/// JSON header.
fn is_model(path: &Path) -> Result<bool> {
    if path.extension().is_some_and(|extension| extension == "fastvae") {
        return Ok(true);
    }
    let mut start = [0; 9];
    let mut file = File::open(path).map_err(|source| failure::io(path, source))?;
    match file.read_exact(&mut start) {
        Ok(()) => {
            let length = u64::from_le_bytes(start[..8].try_into().expect("eight bytes"));
            Ok(start[8] == b'{' && length < 1 << 32)
        }
        // Too short to be one, or a directory: the reader of interactions says so.
        Err(_) => Ok(false),
    }
}
