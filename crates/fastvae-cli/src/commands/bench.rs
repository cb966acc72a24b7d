//! `fastvae bench`: which settings train faster, on this machine and data?

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use fastvae::Config;
use fastvae::data::read;
use fastvae::math::simd;
use fastvae::resources;
use fastvae::train::{Control, Event, Training};
use serde_json::{Value, json};

use crate::data_flags::{CoreFlag, DataFlags};
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

In each round every one of the settings trains for one epoch, in turns and in one process, and the next round goes
through them backwards: a slow moment of the machine falls on all. A ratio is the median, over the rounds, of the time
to that of the first settings in the same round; the quartiles stand beside it. The first round is not counted, and
refreshes of the index count as often as a long training has them. How many epochs settings ask for, and when to
validate, is left out; accuracy is not looked at: `fastvae train` measures it.")]
pub struct Bench {
    /// File of interactions to train on
    data: PathBuf,

    /// Settings to set beside those of the other flags: what differs; may be repeated
    #[arg(long, value_name = "KEY=VALUE,...")]
    against: Vec<String>,

    /// Rounds that count
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = positive)]
    rounds: usize,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    settings: SettingFlags,

    #[command(flatten)]
    reading: DataFlags,

    #[command(flatten)]
    core: CoreFlag,
}

/// One of the settings.
struct Contender {
    name: String,
    training: Training,
}

impl Bench {
    /// Measures; exit code 130 for an interrupted run, which still shows its whole rounds.
    pub fn run(self) -> Result<ExitCode> {
        let configs = self.configs()?;
        let data = Arc::new(read(&self.data, &self.reading.options_with(self.core))?);
        let mut contenders = Vec::with_capacity(configs.len());
        for (name, config) in configs {
            contenders.push(Contender { name, training: Training::new(&config, data.clone())? });
        }
        // Each has at least one refresh that starts from the one before.
        let most = contenders.iter().map(|contender| contender.training.refresh_interval()).max();
        let wanted = self.rounds.max(most.unwrap_or(1));
        interrupt::watch()?;
        // The first round touches fresh memory.
        'rounds: for round in 0..=wanted {
            tracing::info!("round {round} of {wanted}");
            let mut order: Vec<usize> = (0..contenders.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for at in order {
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
                let config = self.settings.resolve_with(&more)?.config;
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
                "--against {change} changes nothing; give what differs, such as --against proposal=uniform"
            ))),
            None => Ok(all),
        }
    }
}

impl Contender {
    fn train_an_epoch(&mut self) -> Result<()> {
        self.training.run(|_, event| {
            let over = matches!(event, Event::Epoch(_)) || interrupt::requested();
            Ok(if over { Control::Stop } else { Control::Continue })
        })?;
        Ok(())
    }

    /// What the `rounds` after the first took.
    fn times(&self, rounds: usize) -> Times {
        let (records, interval) = (&self.training.records()[1..=rounds], self.training.refresh_interval());
        // The epochs that begin with a refresh; an interrupted run may have none.
        let refreshes: Vec<f64> =
            records.iter().skip(interval - 1).step_by(interval).map(|record| record.index_seconds).collect();
        let index = refreshes.iter().sum::<f64>() / (refreshes.len().max(1) * interval) as f64;
        Times {
            name: if self.name.is_empty() { "as given".into() } else { self.name.clone() },
            seconds: records.iter().map(|record| record.seconds - record.index_seconds + index).collect(),
            cpu_seconds: records.iter().map(|record| record.cpu_seconds).collect(),
            index_seconds: index,
        }
    }
}

/// What the counted epochs of one of the settings took.
struct Times {
    name: String,
    seconds: Vec<f64>,
    cpu_seconds: Vec<f64>,
    index_seconds: f64,
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
                "index_seconds": mine.index_seconds,
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
        "index",
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
            seconds(mine.index_seconds),
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
    fn ratios_are_of_one_round() {
        // A machine that is twice as slow in the second round.
        let times = |seconds: &[f64]| Times {
            name: String::new(),
            seconds: seconds.to_vec(),
            cpu_seconds: Vec::new(),
            index_seconds: 0.0,
        };
        assert_eq!(times(&[3.0, 6.0]).ratios(&times(&[2.0, 4.0])), [1.5, 1.5]);
    }
}
