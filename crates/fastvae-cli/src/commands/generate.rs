//! `fastvae generate`: interactions with clustered tastes and Zipf popularity, at any size.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use fastvae::data::{GenerateOptions, IdMap, ItemId};
use fastvae::internals::data::Generator;
use fastvae::internals::data::{CacheWriter, TableWriter};
use serde_json::json;

use crate::display::thousands;
use crate::output::{check_writable, print_json, print_line};

/// Generate interactions with tastes that a model can find
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae generate -o data.tsv.zst --users 100000 --items 50000 --interactions 5000000
  fastvae generate -o data.csv --titles titles.csv --seed 7
  fastvae generate -o large.tsv.zst --users 1000000 --items 10000000 --interactions 100000000
  fastvae generate -o large.mtx.zst --users 50000 --items 1000000 --interactions 1000000
  fastvae generate -o large.fvcache --users 1000000 --items 10000000 --interactions 100000000

Memory does not grow with the sizes. Extensions choose commas (.csv), tabs, MatrixMarket (.mtx) or a binary cache \
(.fvcache), and compression (.gz, .zst). MatrixMarket and caches declare the size of the catalogue: items that nobody \
touched stay in it. A cache holds the titles too, where --titles asks for them.")]
pub struct Generate {
    /// Where the interactions go: user and item, one pair a line
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Number of users
    #[arg(long, value_name = "N", default_value_t = GenerateOptions::default().users)]
    users: usize,

    /// Number of items
    #[arg(long, value_name = "N", default_value_t = GenerateOptions::default().items)]
    items: usize,

    /// Number of interactions, met within a few percent
    #[arg(long, value_name = "N", default_value_t = GenerateOptions::default().interactions)]
    interactions: usize,

    /// Number of genres
    #[arg(long, value_name = "N", default_value_t = GenerateOptions::default().genres)]
    genres: usize,

    /// Seed of everything
    #[arg(long, value_name = "SEED", default_value_t = GenerateOptions::default().seed)]
    seed: u64,

    /// Also write a title for each item to this file
    #[arg(long, value_name = "FILE")]
    titles: Option<PathBuf>,

    /// Print one JSON object about what was written
    #[arg(long)]
    json: bool,
}

impl Generate {
    /// Streams the files.
    pub fn run(self) -> Result<()> {
        let Self { users, items, interactions, genres, seed, .. } = self;
        let generator = Generator::new(GenerateOptions {
            users,
            items,
            interactions,
            genres: genres.min(items),
            seed,
            ..GenerateOptions::default()
        })?;
        for path in std::iter::once(&self.output).chain(&self.titles) {
            check_writable(path)?;
        }
        let written = self.write_interactions(&generator)?;
        if let Some(path) = &self.titles {
            let mut table = TableWriter::create(path)?;
            table.record(["item_id", "title"])?;
            for item in 0..items as ItemId {
                table.record([item.to_string(), generator.title(item)])?;
            }
            table.finish()?;
        }
        if self.json {
            return print_json(&json!({
                "path": self.output,
                "titles_path": self.titles,
                "n_users": users,
                "n_items": items,
                "n_interactions": written,
                "seed": seed,
            }));
        }
        print_line(format_args!(
            "{}: {} interactions of {} users with {} items",
            self.output.display(),
            thousands(written),
            thousands(users),
            thousands(items)
        ))
    }

    /// Streams the interactions to their file; returns how many there are.
    fn write_interactions(&self, generator: &Generator) -> Result<usize> {
        if self.output.extension().is_some_and(|extension| extension == "fvcache") {
            return self.write_cache(generator);
        }
        let mut table = TableWriter::create(&self.output)?;
        // MatrixMarket counts from 1, and announces its sizes: the rows are generated twice instead of held.
        let first = u64::from(self.is_matrix_market());
        if self.is_matrix_market() {
            let mut announced = 0;
            generator.for_each_user(|_, items| {
                announced += items.len();
                Ok(())
            })?;
            table.line("%%MatrixMarket matrix coordinate pattern general")?;
            table.line(&format!("{} {} {announced}", self.users, self.items))?;
        }
        let mut written = 0;
        generator.for_each_user(|user, items| {
            written += items.len();
            items.iter().try_for_each(|&item| table.pair(u64::from(user) + first, u64::from(item) + first))
        })?;
        table.finish()?;
        Ok(written)
    }

    fn write_cache(&self, generator: &Generator) -> Result<usize> {
        let mut cache = CacheWriter::create(&self.output)?;
        let mut written = 0;
        generator.for_each_user(|_, items| {
            written += items.len();
            cache.push_row(items)
        })?;
        let titles = self.titles.is_some().then(|| generator.titles());
        cache.finish(&IdMap::range(self.users), &IdMap::range(self.items), titles.as_ref())?;
        Ok(written)
    }

    /// Whether the output's name ends in `.mtx`, compressed or not.
    fn is_matrix_market(&self) -> bool {
        let name = self.output.to_string_lossy().to_ascii_lowercase();
        name.trim_end_matches(".gz").trim_end_matches(".zst").ends_with(".mtx")
    }
}
