//! `fastvae bench`: which settings train faster, on this machine and data?

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use fastvae::Config;
use fastvae::config::ModelKind;
use fastvae::data::{Interactions, read};
use fastvae::internals::math::simd;
use fastvae::internals::plan::MemoryPlan;
use fastvae::internals::resources;
use fastvae::internals::train::TrainingInternals;
use fastvae::train::{Control, EpochRecord, Event, TrainOptions, Training};
use serde_json::{Value, json};

use crate::data_flags::TrainDataFlags;
use crate::display::{self, seconds};
use crate::failure::usage;
use crate::interrupt;
use crate::output::{print, print_json};
use crate::scores::positive;
use crate::settings::SettingFlags;

/// Compare how long an epoch takes with several settings
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae bench ratings.csv --against proposal=uniform
  fastvae bench ratings.csv --against threads=1 --against latent=64,hidden=400
  fastvae bench ratings.csv --preset paper --against model=mult-vae --rounds 5 --json

In each round every one of the settings trains for one epoch, in turns and in one process; who begins changes from round \
to round: a slow moment of the machine falls on all. A ratio is the median, over the rounds, of the time to that of the \
first settings in the same round; the quartiles stand beside it. The first round is not counted. Where an index lasts for \
several epochs, each bears its share of a refresh; CPU seconds are those of the epochs as they ran. How many epochs \
settings ask for, and when to validate, is left out. All are in memory at once. Accuracy is not looked at: `fastvae train` \
measures it.")]
pub struct Bench {
    /// File of interactions to train on
    data: PathBuf,

    /// Settings to set beside those of the other flags: what differs; may be repeated
    #[arg(long, value_name = "KEY=VALUE,...")]
    against: Vec<String>,

    /// Rounds that count; more where an index lasts longer, so that each is refreshed once
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = positive)]
    rounds: usize,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    settings: SettingFlags,

    #[command(flatten)]
    reading: TrainDataFlags,
}

/// One of the settings.
struct Contender {
    /// What differs from the first, as it was given; empty for the first.
    change: String,
    training: Training,
}

impl Bench {
    /// Measures; exit code 130 for an interrupted run, which still shows its whole rounds.
    pub fn run(self) -> Result<ExitCode> {
        let configs = self.configs()?;
        let data = Arc::new(read(&self.data, &self.reading.options())?);
        warn_of_memory(&configs, &data);
        let mut contenders = Vec::with_capacity(configs.len());
        for (change, config) in configs {
            let training = Training::new(data.clone(), &config, TrainOptions::default())
                .with_context(|| whose(&change))?;
            contenders.push(Contender { change, training });
        }
        let wanted = contenders.iter().filter_map(Contender::interval).fold(self.rounds, usize::max);
        if wanted > self.rounds {
            tracing::info!("{wanted} rounds instead of {}: as many epochs as an index lasts", self.rounds);
        }
        interrupt::watch()?;
        // The first round touches fresh memory.
        'rounds: for round in 0..=wanted {
            tracing::info!("round {round} of {wanted}");
            for at in turns(round, contenders.len()) {
                if interrupt::requested() {
                    break 'rounds;
                }
                contenders[at].train_an_epoch()?;
            }
        }
        let rounds =
            contenders.iter().map(|c| c.training.records().len()).min().unwrap_or(0).saturating_sub(1);
        if rounds > 0 {
            let times: Vec<Times> = contenders.iter().map(|contender| contender.times(rounds)).collect();
            match self.json {
                true => print_json(&as_json(&times, rounds))?,
                false => print(&as_text(&times, rounds))?,
            }
        }
        if interrupt::requested() {
            eprintln!("interrupted after {rounds} of {wanted} rounds");
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The settings with their names, those of the flags first.
    fn configs(&self) -> Result<Vec<(String, Config)>> {
        let changes = std::iter::once("").chain(self.against.iter().map(String::as_str));
        let all: Vec<(String, Config)> = changes
            .map(|change| {
                let more: Vec<String> =
                    change.split(',').filter(|text| !text.is_empty()).map(String::from).collect();
                let config = self.settings.resolve_with(&more).with_context(|| whose(change))?.settings;
                // No more epochs than rounds are trained, and none is validated.
                Ok((
                    change.to_string(),
                    Config { epochs: u32::MAX as usize, patience: 0, validate_every: 1, ..config },
                ))
            })
            .collect::<Result<_>>()?;
        let (first, others) = all.split_first().expect("the flags' own settings are there");
        match others.iter().find(|(_, config)| *config == first.1) {
            Some((change, _)) => Err(usage(format!(
                "--against {change} changes nothing that bench measures; give what differs, such as --against \
                 proposal=uniform"
            ))),
            None => Ok(all),
        }
    }
}

/// The order in which `n` settings train in round `round`: each begins as often as the others, and each comes before each
/// of its neighbours as often as after it.
fn turns(round: usize, n: usize) -> impl Iterator<Item = usize> {
    let backwards = round / n % 2 == 1;
    (0..n).map(move |k| (round + if backwards { n - k } else { k }) % n)
}

/// Which settings an error is about.
fn whose(change: &str) -> String {
    if change.is_empty() { "the settings as given".into() } else { format!("--against {change}") }
}

/// Says so where all trainings together will not fit.
fn warn_of_memory(configs: &[(String, Config)], data: &Interactions) {
    let of = |config| MemoryPlan::of(config, data.n_users(), data.n_items(), data.n_interactions());
    let wanted: u64 = configs.iter().map(|(_, config)| of(config).peak_bytes()).sum();
    if let Some(available) = resources::available_memory().filter(|&available| wanted > available) {
        eprintln!(
            "warning: what is to be trained needs about {} together and {} are available; give fewer --against, or lower \
             hidden or latent",
            display::bytes(wanted),
            display::bytes(available)
        );
    }
}

impl Contender {
    fn train_an_epoch(&mut self) -> Result<()> {
        let one = self.training.run(|event| {
            let over = matches!(event, Event::Epoch(_)) || interrupt::requested();
            if over { Control::Stop } else { Control::Continue }
        });
        one.with_context(|| whose(&self.change))?;
        Ok(())
    }

    /// Epochs from one refresh of the index to the next; none where there is nothing to refresh.
    fn interval(&self) -> Option<usize> {
        let config = self.training.config();
        let refreshed = config.model == ModelKind::FastVae && config.proposal.is_refreshed();
        refreshed.then(|| self.training.refresh_interval())
    }

    /// What the `rounds` after the first took.
    fn times(&self, rounds: usize) -> Times {
        let records = &self.training.records()[1..=rounds];
        let epochs: Vec<Epoch> = records.iter().map(Epoch::of).collect();
        let interval = self.interval();
        let index = interval.map_or(Some(0.0), |interval| index_share(&epochs, interval));
        let seconds = epochs.iter().map(|epoch| match interval {
            Some(2..) => epoch.steps * (1.0 + index.unwrap_or(0.0)),
            // The refresh is its own.
            _ => epoch.steps + epoch.index,
        });
        Times {
            name: if self.change.is_empty() { "as given".into() } else { self.change.clone() },
            seconds: seconds.collect(),
            cpu_seconds: records.iter().map(|record| record.cpu_seconds).collect(),
            index,
        }
    }
}

/// Seconds of an epoch.
#[derive(Debug, Clone, Copy)]
struct Epoch {
    index: f64,
    /// The rest.
    steps: f64,
}

impl Epoch {
    fn of(record: &EpochRecord) -> Self {
        Self { index: record.index_seconds, steps: record.seconds - record.index_seconds }
    }
}

/// What refreshes take of the time of the steps, of which the first of `interval` epochs has one; `epochs` begin with the
/// second of a training. None where no refresh is among them.
///
/// A share, so that a slow moment of the machine falls on it as on the steps beside it.
fn index_share(epochs: &[Epoch], interval: usize) -> Option<f64> {
    let refreshed = epochs.iter().skip(interval - 1).step_by(interval);
    let shares: Vec<f64> = refreshed.map(|epoch| epoch.index / epoch.steps).collect();
    (!shares.is_empty()).then(|| quantile(&shares, 0.5) / interval as f64)
}

/// What the counted epochs of one of the settings took.
struct Times {
    name: String,
    /// With each one's share of a refresh.
    seconds: Vec<f64>,
    cpu_seconds: Vec<f64>,
    /// What the index takes of the time of the steps; none where no refresh was counted.
    index: Option<f64>,
}

impl Times {
    /// Of each round, to `first`.
    fn ratios(&self, first: &Self) -> Vec<f64> {
        self.seconds.iter().zip(&first.seconds).map(|(mine, other)| mine / other).collect()
    }
}

fn as_json(times: &[Times], rounds: usize) -> Value {
    let rows: Vec<Value> = times
        .iter()
        .map(|mine| {
            let ratios = mine.ratios(&times[0]);
            json!({
                "settings": mine.name,
                "ratio": quantile(&ratios, 0.5),
                "ratio_quartiles": [quantile(&ratios, 0.25), quantile(&ratios, 0.75)],
                "median_seconds": quantile(&mine.seconds, 0.5),
                "seconds": mine.seconds,
                "cpu_seconds": mine.cpu_seconds,
                "index_share": mine.index,
            })
        })
        .collect();
    json!({
        "rounds": rounds,
        "rows": rows,
        "simd": simd::level_name(),
        "peak_rss_bytes": resources::peak_memory(),
    })
}

fn as_text(times: &[Times], rounds: usize) -> String {
    let mut table = display::table([
        "settings",
        "an epoch",
        "least",
        "most",
        "mean CPU",
        "index of it",
        "to the first",
        "quartiles",
    ]);
    for mine in times {
        let ratios = mine.ratios(&times[0]);
        let at = |share| seconds(quantile(&mine.seconds, share));
        table.add_row([
            mine.name.clone(),
            at(0.5),
            at(0.0),
            at(1.0),
            seconds(mine.cpu_seconds.iter().sum::<f64>() / rounds as f64),
            mine.index.map_or("not seen".into(), |share| format!("{:.1} %", 100.0 * share / (1.0 + share))),
            format!("{:.2}", quantile(&ratios, 0.5)),
            format!("{:.2} to {:.2}", quantile(&ratios, 0.25), quantile(&ratios, 0.75)),
        ]);
    }
    format!(
        "{}\nmedians of {rounds} rounds, {} instructions\n",
        display::text(table, 1..8),
        simd::level_name()
    )
}

/// The value below which `share` of `values` lie, between the two nearest.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_between_its_neighbours() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(|share| quantile(&values, share)), [1.0, 1.75, 2.5, 4.0]);
        assert_eq!(quantile(&[7.0], 0.75), 7.0);
    }

    #[test]
    fn every_setting_begins_as_often_and_no_pair_keeps_its_order() {
        for n in 1..6 {
            let mut places = vec![vec![0; n]; n];
            let mut follows = vec![vec![0; n]; n];
            for round in 0..2 * n {
                let order: Vec<usize> = turns(round, n).collect();
                order.iter().enumerate().for_each(|(place, &at)| places[at][place] += 1);
                order.windows(2).for_each(|pair| follows[pair[0]][pair[1]] += 1);
            }
            assert!(places.iter().flatten().all(|&count| count == 2), "{n}: {places:?}");
            for (a, b) in (0..n).flat_map(|a| (0..n).map(move |b| (a, b))) {
                assert_eq!(follows[a][b], follows[b][a], "{n}: {a} and {b}");
            }
        }
    }

    #[test]
    fn an_index_that_lasts_is_shared_out_among_its_epochs() {
        // The second epoch of a training and those after it; the fourth, seventh ... begin with a refresh.
        let mut epochs = [Epoch { index: 0.0, steps: 2.0 }; 8];
        for (refreshed, index) in [(2, 0.6), (5, 0.9)] {
            epochs[refreshed].index = index;
        }
        assert_eq!(index_share(&epochs[..2], 3), None);
        assert_eq!(index_share(&epochs[..3], 3), Some(0.3 / 3.0));
        let share = index_share(&epochs, 3).expect("two refreshes");
        assert!((share - 0.375 / 3.0).abs() < 1e-12, "{share}");
        // One that lasts for an epoch is in each.
        assert_eq!(index_share(&[Epoch { index: 0.5, steps: 2.0 }; 4], 1), Some(0.25));
    }

    #[test]
    fn ratios_are_of_one_round() {
        // A machine that is twice as slow in the second round.
        let times = |seconds: &[f64]| Times {
            name: String::new(),
            seconds: seconds.to_vec(),
            cpu_seconds: Vec::new(),
            index: None,
        };
        assert_eq!(times(&[3.0, 6.0]).ratios(&times(&[2.0, 4.0])), [1.5, 1.5]);
    }
}
