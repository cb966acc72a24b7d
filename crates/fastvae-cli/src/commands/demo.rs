//! `fastvae demo`: a generated catalogue, a training, and recommendations that a reader can judge.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use fastvae::Config;
use fastvae::data::{GenerateOptions, Generator, Interactions, ItemId, Split, Statistics, UserId};
use fastvae::eval::{Measure, Metric};
use fastvae::model_file::Model;
use fastvae::recommend::{Request, Search, SearchOptions};
use fastvae::resources;
use fastvae::train::{EpochRecord, Outcome, Training};
use fastvae_server::Options;
use serde_json::{Map, Value, json};

use crate::commands::recommend::scored_json;
use crate::commands::serve;
use crate::display::{seconds, thousands};
use crate::failure;
use crate::fit::fit;
use crate::interrupt;
use crate::output::{check_writable, print, print_json};
use crate::scores::Scores;

/// Titles shown of a history, and of a list of recommendations.
const SHOWN: usize = 8;

/// Try it without data: generate a catalogue, train, evaluate, recommend
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae demo
  fastvae demo --serve                             then open http://127.0.0.1:8080
  fastvae demo -o demo.fastvae                     then: fastvae similar demo.fastvae 42
  fastvae demo --users 50000 --items 20000 --interactions 2000000")]
pub struct Demo {
    /// Number of users
    #[arg(long, value_name = "N", default_value_t = 6_000)]
    users: usize,

    /// Number of items
    #[arg(long, value_name = "N", default_value_t = 3_000)]
    items: usize,

    /// Number of interactions
    #[arg(long, value_name = "N", default_value_t = 240_000)]
    interactions: usize,

    /// Number of genres
    #[arg(long, value_name = "N", default_value_t = 20)]
    genres: usize,

    /// Passes over the users, at most
    #[arg(long, value_name = "N", default_value_t = 30)]
    epochs: usize,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,

    /// Seed of the catalogue and of the training
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,

    /// Keep the model, with its users
    #[arg(short, long, value_name = "MODEL")]
    output: Option<PathBuf>,

    /// Serve the model afterwards, with a page to try it on
    #[arg(long, conflicts_with = "json")]
    serve: bool,

    /// Port to serve on; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080, requires = "serve")]
    port: u16,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

impl Demo {
    /// Runs the whole of it.
    pub fn run(self) -> Result<ExitCode> {
        if let Some(path) = &self.output {
            check_writable(path)?;
        }
        let generator = Generator::new(GenerateOptions {
            users: self.users,
            items: self.items,
            interactions: self.interactions,
            genres: self.genres,
            seed: self.seed,
            ..GenerateOptions::default()
        })?;
        let data = generator.interactions()?;
        let config = self.config();
        config.validate()?;
        let parts = Split::Ratio(0.8).apply(&data, self.seed)?;
        if !self.json {
            print(&format!(
                "A made-up catalogue: {} users, {} items in {} genres, {} interactions; 20 % of each user's are \
                 hidden.\nTraining to find them ...\n",
                thousands(data.n_users()),
                thousands(data.n_items()),
                self.genres,
                thousands(data.n_interactions())
            ))?;
        }
        let mut training = Training::new(&config, parts.train.clone())?;
        interrupt::watch()?;
        if fit(&mut training, None, None)? == Outcome::Interrupted {
            eprintln!("interrupted");
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        }
        let counts = parts.train.item_counts();
        let scores = Scores::of_training(&mut training, &counts, &parts.train, &parts.test, &[10, 20, 50])?;
        let records = training.records().to_vec();
        let mut model = training.into_model()?;
        let description = model.description_mut();
        description.evaluation = Some(scores.model.clone());
        description.statistics = Some(serde_json::to_value(Statistics::of(&parts.train))?);
        if model.index().is_some() {
            let search = Search::calibrate(&model, Some(&parts.train), &SearchOptions::default())?;
            model.description_mut().search = Some(search.calibration());
        }
        let model = model.with_titles(generator.titles())?.with_users(Arc::new(parts.train.clone()))?;
        if let Some(path) = &self.output {
            model.save(path)?;
        }
        let examples = examples(&generator, &parts.train);
        if self.json {
            self.print_json(&model, &records, &scores, &parts.train, &examples)?;
        } else {
            self.print_text(&generator, &model, &records, &scores, &parts.train, &examples)?;
        }
        if self.serve {
            self.serve(&model)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Serves the model from its file, or from one that goes with the service.
    fn serve(&self, model: &Model) -> Result<()> {
        let at = SocketAddr::from(([127, 0, 0, 1], self.port));
        match &self.output {
            Some(path) => serve::serve(path, Options::default(), at, false),
            None => {
                let directory = std::env::temp_dir().join(format!("fastvae-demo-{}", std::process::id()));
                std::fs::create_dir_all(&directory).map_err(|source| failure::io(&directory, source))?;
                let path = directory.join("demo.fastvae");
                let served = model
                    .save(&path)
                    .map_err(Into::into)
                    .and_then(|()| serve::serve(&path, Options::default(), at, false));
                // Whether or not the service ran, its file has had its use.
                let _ = std::fs::remove_dir_all(&directory);
                served
            }
        }
    }

    /// The default settings at a size that suits a small catalogue.
    fn config(&self) -> Config {
        Config {
            hidden: 200,
            latent: 64,
            epochs: self.epochs,
            seed: self.seed,
            threads: self.threads,
            batch: 128,
            ..Config::default()
        }
    }

    fn print_text(
        &self,
        generator: &Generator,
        model: &Model,
        records: &[EpochRecord],
        scores: &Scores,
        train: &Interactions,
        examples: &[UserId],
    ) -> Result<()> {
        let total: f64 = records.iter().map(|record| record.seconds).sum();
        let mean = |metric| scores.model.mean(metric).unwrap_or_default();
        let baseline = |metric| scores.popularity.mean(metric).unwrap_or_default();
        let mut text = format!("{} epochs in {}.\n\n{}", records.len(), seconds(total), scores.table());
        let metric = Metric::new(Measure::Ndcg, 10);
        text.push_str(&format!(
            "\nndcg@10 is {:.1} times that of recommending the most popular items to everyone.\n",
            mean(metric) / baseline(metric).max(1e-9)
        ));
        for &user in examples {
            let row = train.row(user as usize);
            let best = model.recommend(&Request { history: row.into(), n: SHOWN, ..Request::default() })?;
            text.push_str(&format!(
                "\nUser {user} knows {} items, mostly {}:\n",
                row.items.len(),
                tastes(generator, row.items)
            ));
            for &item in row.items.iter().take(SHOWN) {
                text.push_str(&format!("    {}\n", generator.title(item)));
            }
            text.push_str("  and is recommended:\n");
            for scored in &best {
                text.push_str(&format!("    {}\n", generator.title(scored.item)));
            }
        }
        match &self.output {
            Some(path) => text.push_str(&format!(
                "\nThe model is {0}. Try: fastvae inspect {0}, fastvae recommend {0} --user {1}\n",
                path.display(),
                examples.first().copied().unwrap_or_default()
            )),
            None => text.push_str(
                "\nWith your own data: fastvae train DATA -o model.fastvae, then fastvae recommend model.fastvae ...\n",
            ),
        }
        print(&text)
    }

    fn print_json(
        &self,
        model: &Model,
        records: &[EpochRecord],
        scores: &Scores,
        train: &Interactions,
        examples: &[UserId],
    ) -> Result<()> {
        let mut object = Map::new();
        scores.add_to(&mut object);
        let seconds: f64 = records.iter().map(|record| record.seconds).sum();
        let mut shown = Vec::new();
        for &user in examples {
            let history = train.row(user as usize);
            let best = model.recommend(&Request { history: history.into(), ..Request::default() })?;
            let titles: Vec<_> = history.items.iter().map(|&item| model.title(item)).collect();
            shown.push(json!({ "user": user, "history": titles, "items": scored_json(model, &best) }));
        }
        let entries = json!({
            "epochs": records.len(),
            "seconds": seconds,
            "peak_rss_bytes": resources::peak_memory(),
            "n_users": self.users,
            "n_items": self.items,
            "model_path": self.output,
            "examples": shown,
        });
        if let Value::Object(entries) = entries {
            object.extend(entries);
        }
        print_json(&object)
    }
}

/// Three users whose tastes are easy to see: one who likes a single genre, and two who like a pair of them.
fn examples(generator: &Generator, train: &Interactions) -> Vec<UserId> {
    const CANDIDATES: usize = 2_000;
    let mut chosen: Vec<UserId> = Vec::new();
    let mut shown: Vec<usize> = Vec::new();
    for n_genres in [1, 2, 2] {
        let clear = (0..train.n_users().min(CANDIDATES)).filter_map(|user| {
            let items = train.row(user).items;
            let genres = genres(generator, items);
            let liked = genres.get(..n_genres).filter(|_| items.len() >= 2 * SHOWN)?;
            // The least share among the liked genres: high where they are liked alike and little else is.
            let share = liked.last()?.1 as f64 / items.len() as f64;
            let fresh = liked.iter().all(|(genre, _)| !shown.contains(genre));
            fresh.then(|| (share, user as UserId, liked.iter().map(|(genre, _)| *genre).collect::<Vec<_>>()))
        });
        if let Some((_, user, genres)) = clear.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))) {
            chosen.push(user);
            shown.extend(genres);
        }
    }
    chosen
}

/// The genres of some items with their numbers, the most frequent first.
fn genres(generator: &Generator, items: &[ItemId]) -> Vec<(usize, usize)> {
    let mut counts = vec![0; generator.options().genres];
    items.iter().for_each(|&item| counts[generator.genre(item)] += 1);
    let mut genres: Vec<(usize, usize)> = counts.into_iter().enumerate().filter(|(_, n)| *n > 0).collect();
    genres.sort_by_key(|&(genre, n)| (std::cmp::Reverse(n), genre));
    genres
}

/// The genres that make up a quarter of the items each, as their titles name them.
fn tastes(generator: &Generator, items: &[ItemId]) -> String {
    let names = genres(generator, items).into_iter().filter(|(_, n)| 4 * n >= items.len()).filter_map(
        |(genre, _)| {
            let title = generator.title(*items.iter().find(|&&item| generator.genre(item) == genre)?);
            Some(title.rsplit_once('(')?.1.trim_end_matches(')').to_string())
        },
    );
    names.collect::<Vec<_>>().join(" and ")
}
