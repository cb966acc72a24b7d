//! `fastvae prepare`: interactions parsed once into a binary cache.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use fastvae::data::read_pair;
use fastvae::internals::data::Cache;
use fastvae::internals::data::read_with_report;
use fastvae::internals::resources;
use serde_json::json;

use crate::data_flags::{TitleFlags, TrainDataFlags};
use crate::display::{bytes, seconds, thousands};
use crate::failure;
use crate::output::{check_writable, print_json, print_line};

/// Parse interactions once into a binary cache that every command opens at once
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae prepare ratings.csv -o ratings.fvcache --min-rating 4 --titles movies.csv
  fastvae prepare train.tsv.zst -o train.fvcache --test test.tsv.zst
  fastvae train train.fvcache --test test.tsv.zst --preset paper

Filters and columns are applied here and need not be given again. A cache is mapped into memory, not read: data larger \
than memory trains with `--preset paper`, with --test too, where nothing of it must be copied.")]
pub struct Prepare {
    /// File of interactions
    data: PathBuf,

    /// Where the cache goes
    #[arg(short, long, value_name = "FILE.fvcache")]
    output: PathBuf,

    /// File of interactions that will be tested on: its users and items become known, its interactions stay out
    #[arg(long, value_name = "FILE", conflicts_with = "k_core")]
    test: Option<PathBuf>,

    #[command(flatten)]
    titles: TitleFlags,

    /// Print one JSON object about what was written
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reading: TrainDataFlags,
}

impl Prepare {
    /// Reads, writes and says how large it is.
    pub fn run(self) -> Result<()> {
        check_writable(&self.output)?;
        let clock = Instant::now();
        let data = match &self.test {
            Some(test) => read_pair(&self.data, test, &self.reading.options())?.0,
            None => read_with_report(&self.data, &self.reading.options())?.0,
        };
        let titles = self.titles.read(&self.data, data.item_ids())?;
        let read_seconds = clock.elapsed().as_secs_f64();
        Cache::write(&self.output, &data, titles.as_ref())?;
        let write_seconds = clock.elapsed().as_secs_f64() - read_seconds;
        let size = std::fs::metadata(&self.output).map_err(|e| failure::io(&self.output, e))?.len();
        let (n_users, n_items, n_interactions) = (data.n_users(), data.n_items(), data.n_interactions());
        if self.json {
            return print_json(&json!({
                "path": self.output,
                "bytes": size,
                "n_users": n_users,
                "n_items": n_items,
                "n_interactions": n_interactions,
                "weighted": data.weights().is_some(),
                "timestamps": data.timestamps().is_some(),
                "titles": titles.is_some(),
                "read_seconds": read_seconds,
                "write_seconds": write_seconds,
                "peak_rss_bytes": resources::peak_memory(),
            }));
        }
        print_line(format_args!(
            "{}: {} interactions of {} users with {} items in {}; read in {}, written in {}",
            self.output.display(),
            thousands(n_interactions),
            thousands(n_users),
            thousands(n_items),
            bytes(size),
            seconds(read_seconds),
            seconds(write_seconds)
        ))
    }
}
