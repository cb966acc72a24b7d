//! Flags that fill [`Config`], in layers: preset, then file, then `--set`, then the shortcuts; `--against` over all.

use std::marker::PhantomData;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use fastvae::Config;
use fastvae::baseline::Kind;
use fastvae::config::Device;
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::failure::usage;

/// A set of defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Seconds: a small network beside the linear part
    Quick,
    /// A network of moderate width beside the linear part, chosen by its own validation
    Default,
    /// A wide network: one or two per cent more accurate, at three to four times the cost
    Best,
    /// The settings of the FastVAE paper: 200-32, constant beta, all epochs on all training data
    Paper,
}

impl Preset {
    /// Its settings.
    pub fn config(self) -> Config {
        match self {
            Self::Quick => Config::quick(),
            Self::Default => Config::default(),
            Self::Best => Config::best(),
            Self::Paper => Config::paper(),
        }
    }
}

/// As in flags.
impl std::fmt::Display for Preset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_possible_value().expect("no preset is hidden").get_name())
    }
}

/// What to train, and how.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Settings")]
pub struct SettingFlags {
    /// Where settings start from
    #[arg(
        long,
        value_name = "NAME",
        hide_possible_values = true,
        help = "Where settings start from: quick, default, best or paper"
    )]
    preset: Option<Preset>,

    /// TOML file with settings; may name a preset
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// One setting, such as negatives=200 or kl.beta=0.2; may be repeated (keys: `fastvae train --help`)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// fastvae (sampled softmax), mult-vae (full softmax), or a baseline: popularity, item-knn, item-ridge, ease, wrmf, bpr,
    /// warp, aobpr, dns, pris, sa
    #[arg(long, value_name = "MODEL", hide_possible_values = true, value_parser = PossibleValuesParser::new(models()))]
    model: Option<String>,

    /// Where negatives come from: midx-popularity, midx-uniform, midx-exact, softmax, uniform, popularity,
    /// kernel or dns
    #[arg(long, visible_alias = "sampler", value_name = "PROPOSAL", hide_possible_values = true, value_parser = PossibleValuesParser::new(PROPOSALS))]
    proposal: Option<String>,

    /// Passes over the users, at most
    #[arg(long, value_name = "N")]
    epochs: Option<u32>,

    /// Worker threads; the result does not depend on it [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<u32>,

    /// What trains: auto (a GPU where one can be used), cpu, cuda, or cuda:N for GPU number N [default: auto]
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    device: Option<Device>,

    /// Seed of all random numbers, the split's included
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

/// Everything that can be trained.
pub fn models() -> impl Iterator<Item = &'static str> {
    ["fastvae", "mult-vae"].into_iter().chain(Kind::ALL.map(Kind::name))
}

const PROPOSALS: [&str; 8] =
    ["midx-popularity", "midx-uniform", "midx-exact", "softmax", "uniform", "popularity", "kernel", "dns"];

/// What is to be trained.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice<S = fastvae::model::Settings> {
    /// Which method, and how.
    pub settings: S,
    /// Where the settings started from.
    pub preset: Preset,
    /// Seed of the split.
    pub seed: u64,
    /// Worker threads; one per core where not said.
    pub threads: Option<usize>,
}

impl SettingFlags {
    /// Lays the layers over each other and checks the result.
    ///
    /// # Errors
    /// An error of usage for an unknown key or a value that cannot work.
    pub fn resolve(&self) -> Result<Choice<Config>> {
        self.resolve_with(&[])
    }

    /// As [`SettingFlags::resolve`], with `more` settings of `--against` over all.
    ///
    /// # Errors
    /// As [`SettingFlags::resolve`].
    pub fn resolve_with(&self, more: &[String]) -> Result<Choice<Config>> {
        let mut file = self.file()?;
        let preset = self.preset(&mut file)?;
        let mut layers = Layers::<Config>::new(&preset.config(), keys());
        if let Some(path) = &self.config {
            layers.lay(file, |key| format!("{}: `{key}`", path.display()))?;
        }
        layers.lay(assignments("--set", &self.set)?, |key| format!("--set {key}"))?;
        layers.lay(self.shortcuts(), |key| format!("--{key}"))?;
        let over = assignments("--against", more)?;
        let seed = self.seed.filter(|_| !over.contains_key("seed"));
        layers.lay(over, |key| format!("--against {key}"))?;
        let mut config = layers.settings()?;
        if let Some(seed) = seed {
            config.seed = seed;
        }
        config.validate()?;
        let (seed, threads) = (config.seed, Some(config.threads).filter(|&threads| threads > 0));
        Ok(Choice { settings: config, preset, seed, threads })
    }

    /// What is asked for: the variational autoencoder, or a baseline.
    ///
    /// # Errors
    /// As [`SettingFlags::resolve`].
    pub fn choose(&self) -> Result<Choice> {
        if let Some(Choice { settings, preset, seed, threads }) = self.resolve_baseline()? {
            return Ok(Choice { settings: settings.into(), preset, seed, threads });
        }
        let Choice { settings, preset, seed, threads } = self.resolve()?;
        Ok(Choice { settings: settings.into(), preset, seed, threads })
    }

    /// The baseline that is asked for with its settings, in the same layers; None for fastvae and mult-vae.
    fn resolve_baseline(&self) -> Result<Option<Choice<fastvae::baseline::Settings>>> {
        let mut file = self.file()?;
        let mut set = assignments("--set", &self.set)?;
        let named = |table: &mut Table| table.remove("model").and_then(|v| v.as_str().map(str::to_string));
        let (in_file, in_set) = (named(&mut file), named(&mut set));
        let Some(kind) = self.model.clone().or(in_set).or(in_file).and_then(|name| name.parse::<Kind>().ok())
        else {
            return Ok(None);
        };
        if self.proposal.is_some() {
            return Err(usage(format!("--proposal is for fastvae; {kind} has its own way to negatives")));
        }
        let preset = self.preset(&mut file)?;
        let start = match preset {
            Preset::Quick | Preset::Default | Preset::Best => kind.settings(),
            Preset::Paper => kind.paper_settings(),
        };
        let valid = leaves(&to_table(&start.complete())).into_iter().map(|(key, _)| key).collect();
        let mut layers = Layers::<fastvae::baseline::Settings>::new(&start, valid);
        if let Some(path) = &self.config {
            layers.lay(file, |key| format!("{}: `{key}` of {kind}", path.display()))?;
        }
        layers.lay(set, |key| format!("--set {key} of {kind}"))?;
        if let Some(epochs) = self.epochs {
            let passes = Table::from_iter([("epochs".to_string(), Value::Integer(epochs.into()))]);
            layers.lay(passes, |key| format!("--{key} of {kind}"))?;
        }
        let mut settings = layers.settings()?;
        if let Some(seed) = self.seed {
            settings.set_seed(seed);
        }
        settings.validate()?;
        let threads = self.threads.map(|n| n as usize);
        Ok(Some(Choice { settings, preset, seed: self.seed.unwrap_or(0), threads }))
    }

    /// The file of settings; empty where none is given.
    fn file(&self) -> Result<Table> {
        let Some(path) = &self.config else { return Ok(Table::new()) };
        let text = std::fs::read_to_string(path).map_err(|e| crate::failure::io(path, e))?;
        text.parse::<Table>()
            .map_err(|error| usage(error.to_string().trim_end().to_string()))
            .with_context(|| format!("{} is not valid TOML", path.display()))
    }

    /// Where settings start from: as the flag says, or else the file, which keeps only settings.
    fn preset(&self, file: &mut Table) -> Result<Preset> {
        let named = file.remove("preset").map(|value| {
            value.as_str().and_then(|name| Preset::from_str(name, false).ok()).ok_or_else(|| {
                usage(format!(
                    "preset = {value} is not a preset; use \"quick\", \"default\", \"best\" or \"paper\""
                ))
            })
        });
        Ok(self.preset.or(named.transpose()?).unwrap_or(Preset::Default))
    }

    fn shortcuts(&self) -> Table {
        let text = |value: &Option<String>| value.clone().map(Value::String);
        let number = |value: Option<u32>| value.map(|n| Value::Integer(n.into()));
        [
            ("model", text(&self.model)),
            ("proposal", text(&self.proposal)),
            ("epochs", number(self.epochs)),
            ("threads", number(self.threads)),
            ("device", self.device.map(|device| Value::String(device.to_string()))),
        ]
        .into_iter()
        .filter_map(|(key, value)| value.map(|value| (key.to_string(), value)))
        .collect()
    }
}

fn device(text: &str) -> Result<Device, String> {
    text.parse().map_err(|error: fastvae::Error| error.to_string())
}

/// The table that `key=value` texts describe; dots in keys go down into tables.
fn assignments(flag: &str, texts: &[String]) -> Result<Table> {
    let mut table = Table::new();
    for text in texts {
        let Some((key, value)) = text.split_once('=') else {
            return Err(usage(format!("{flag} {text}: give KEY=VALUE, such as {flag} negatives=200")));
        };
        let (key, value) = (key.trim(), value.trim());
        // What is not TOML is a bare word: `--set activation=tanh`.
        let number = value.parse::<f64>().ok().filter(|_| value.starts_with(['.', '-', '+']));
        let value = match (value.parse(), number) {
            (Ok(value), _) => value,
            // `.01` is a number for everybody but TOML.
            (Err(_), Some(number)) => Value::Float(number),
            (Err(_), None) => Value::String(value.to_string()),
        };
        insert(&mut table, key, value)?;
    }
    Ok(table)
}

/// Sets a dotted key.
fn insert(table: &mut Table, key: &str, value: Value) -> Result<()> {
    match key.split_once('.') {
        None => {
            table.insert(key.to_string(), value);
            Ok(())
        }
        Some((first, rest)) => {
            let inner = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
            match inner {
                Value::Table(inner) => insert(inner, rest, value),
                other => Err(usage(format!("`{key}` cannot be set: `{first}` is {other}"))),
            }
        }
    }
}

/// Settings as a table that layers are laid over.
struct Layers<T> {
    table: Table,
    valid: Vec<String>,
    settings: PhantomData<T>,
}

/// Every key that can be set.
pub fn keys() -> Vec<String> {
    let complete = Config {
        clip: Some(1.0),
        kl: fastvae::config::Kl { beta: Some(0.0), gamma: Some(0.0), anneal_steps: 0 },
        ridge: fastvae::config::Ridge {
            penalty: Some(1.0),
            weight: Some(1.0),
            popularity: Some(1.0),
            ..Default::default()
        },
        ..Config::default()
    };
    leaves(&to_table(&complete)).into_iter().map(|(key, _)| key).collect()
}

impl<T: Serialize + DeserializeOwned> Layers<T> {
    fn new(start: &T, valid: Vec<String>) -> Self {
        Self { table: to_table(start), valid, settings: PhantomData }
    }

    /// Lays `layer` over what is there; `name` says where a key comes from.
    fn lay(&mut self, layer: Table, name: impl Fn(&str) -> String) -> Result<()> {
        let entries = leaves(&layer);
        for (key, _) in &entries {
            if !self.valid.contains(key) {
                return Err(usage(format!(
                    "{}: there is no such setting; valid keys, the nearest first: {}",
                    name(key),
                    nearest(&self.valid, key).join(", ")
                )));
            }
        }
        // Two ways to say one thing: what a higher layer says replaces what a lower one said.
        for (given, other) in [("beta", "gamma"), ("gamma", "beta")] {
            let sets = |key: &str| entries.iter().any(|(found, _)| found == &format!("kl.{key}"));
            if let (true, Some(Value::Table(kl))) = (sets(given), self.table.get_mut("kl")) {
                kl.remove(other);
            }
        }
        for (key, value) in entries {
            let shown = value.to_string();
            insert(&mut self.table, &key, value)?;
            // One key at a time, so that the message can name it.
            self.table.clone().try_into::<T>().map_err(|error| {
                usage(format!("{}: {shown} cannot be used: {}", name(&key), error.message()))
            })?;
        }
        Ok(())
    }

    fn settings(self) -> Result<T> {
        self.table.try_into().map_err(|error| usage(error.to_string()))
    }
}

fn to_table(settings: &impl Serialize) -> Table {
    match Value::try_from(settings) {
        Ok(Value::Table(table)) => table,
        _ => unreachable!("settings are a struct of TOML values"),
    }
}

/// The values of `table` with their dotted keys.
fn leaves(table: &Table) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => {
                found.extend(leaves(inner).into_iter().map(|(rest, value)| (format!("{key}.{rest}"), value)));
            }
            value => found.push((key.clone(), value.clone())),
        }
    }
    found
}

/// `valid` keys, those that look most like `key` first.
fn nearest(valid: &[String], key: &str) -> Vec<String> {
    let distance = |candidate: &String| -strsim::jaro_winkler(candidate, key);
    let mut sorted = valid.to_vec();
    sorted.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    sorted
}

#[cfg(test)]
mod tests {
    use fastvae::config::{Activation, ModelKind, ProposalKind};

    use super::*;

    fn resolve(flags: SettingFlags) -> Result<Config> {
        flags.resolve().map(|choice| choice.settings)
    }

    fn set(values: &[&str]) -> SettingFlags {
        SettingFlags { set: values.iter().map(ToString::to_string).collect(), ..SettingFlags::default() }
    }

    #[test]
    fn without_flags_the_default_preset_stands() {
        assert_eq!(resolve(SettingFlags::default()).unwrap(), Config::default());
        let paper = SettingFlags { preset: Some(Preset::Paper), ..SettingFlags::default() };
        assert_eq!(resolve(paper).unwrap(), Config::paper());
    }

    #[test]
    fn higher_layers_win() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.toml");
        std::fs::write(
            &path,
            "preset = \"paper\"\nnegatives = 300\nepochs = 7\nlatent = 48\n[kl]\nbeta = 0.3\n",
        )
        .unwrap();
        let flags = SettingFlags {
            config: Some(path),
            epochs: Some(9),
            seed: Some(u64::MAX),
            proposal: Some("uniform".to_string()),
            ..set(&["epochs=8", "latent = 64"])
        };
        let Choice { settings: config, preset, .. } = flags.resolve().unwrap();
        assert_eq!(preset, Preset::Paper);
        assert_eq!((config.hidden, config.latent, config.negatives, config.epochs), (200, 64, 300, 9));
        assert_eq!((config.kl.beta, config.seed), (Some(0.3), u64::MAX));
        assert_eq!(config.proposal, ProposalKind::Uniform);
    }

    #[test]
    fn values_are_toml_or_bare_words() {
        let config =
            resolve(set(&["activation=tanh", "model=\"mult-vae\"", "item_bias=true", "dropout=0"])).unwrap();
        assert_eq!((config.activation, config.model), (Activation::Tanh, ModelKind::MultVae));
        assert!(config.item_bias && config.dropout == 0.0);
    }

    #[test]
    fn beta_and_gamma_replace_each_other_between_layers_only() {
        let paper = |values: &[&str]| SettingFlags { preset: Some(Preset::Paper), ..set(values) };
        let config = resolve(paper(&["kl.gamma=0.005"])).unwrap();
        assert_eq!((config.kl.beta, config.kl.gamma), (None, Some(0.005)));
        assert!(resolve(paper(&["kl.gamma=0.005", "kl.beta=1"])).is_err());
    }

    #[test]
    fn a_baseline_has_settings_of_its_own() {
        let flags =
            |model: &str, values: &[&str]| SettingFlags { model: Some(model.to_string()), ..set(values) };
        let choice = flags("wrmf", &["factors=32", "alpha=5"]).resolve_baseline().unwrap().unwrap();
        let fastvae::baseline::Settings::Wrmf(wrmf) = &choice.settings else { panic!("{choice:?}") };
        assert_eq!((wrmf.factors, wrmf.alpha), (32, Some(5.0)));
        assert!(flags("fastvae", &[]).resolve_baseline().unwrap().is_none());
        assert!(set(&[]).resolve_baseline().unwrap().is_none());
        assert!(set(&["model=ease"]).resolve_baseline().unwrap().is_some());
        let message = |f: SettingFlags| f.resolve_baseline().unwrap_err().to_string();
        let unknown = message(flags("wrmf", &["factor=5"]));
        assert!(unknown.contains("--set factor of wrmf") && unknown.contains("first: factors,"), "{unknown}");
        assert!(message(flags("ease", &["regularization=-1"])).contains("`regularization`"));
        let epochs = SettingFlags { epochs: Some(3), ..flags("ease", &[]) };
        assert!(message(epochs).contains("--epochs of ease"));
    }

    #[test]
    fn mistakes_name_the_key_and_the_way_out() {
        let message = |values: &[&str]| resolve(set(values)).unwrap_err().to_string();
        let unknown = message(&["negative=5"]);
        assert!(
            unknown.contains("--set negative") && unknown.contains("the nearest first: negatives,"),
            "{unknown}"
        );
        assert!(unknown.contains("kl.anneal_steps"), "{unknown}");
        let variant = message(&["proposal=midx"]);
        assert!(variant.contains("--set proposal") && variant.contains("midx-popularity"), "{variant}");
        assert!(message(&["negatives=many"]).contains("--set negatives"));
        assert!(message(&["negatives=0"]).contains("`negatives`"));
        assert!(message(&["negatives"]).contains("KEY=VALUE"));
        assert!(message(&["kl=3"]).contains("kl.beta"));
    }
}
