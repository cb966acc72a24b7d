//! `fastvae demo`: a generated catalogue, a training, and recommendations that a reader can judge.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use fastvae::config::Ridge;
use fastvae::data::{GenerateOptions, Interactions, ItemId, Split, UserId};
use fastvae::eval::{Measure, Metric};
use fastvae::internals::data::Generator;
use fastvae::internals::resources;
use fastvae::recommend::{ListOptions, Question};
use fastvae::train::{Finish, Outcome, Refit, TrainOptions, Training};
use fastvae::{Config, Model};
use fastvae_server::Options;
use serde_json::{Map, Value, json};

use crate::commands::serve;
use crate::display::{seconds, thousands};
use crate::failure;
use crate::fit::fit;
use crate::interrupt;
use crate::output::{check_writable, extend, print, print_json};
use crate::scores::{Held, Scores};

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
        // Who keeps the model wants one of everything; what is shown of it is measured before.
        let kept = self.output.is_some() || self.serve;
        let (data, train) = (Arc::new(data), Arc::new(parts.train));
        let mut options = TrainOptions::default();
        options.refit = if kept { Refit::On(Arc::clone(&data)) } else { Refit::Never };
        let mut training = Training::new(Arc::clone(&train), &config, options)?;
        interrupt::watch()?;
        let counts = train.item_counts();
        let held = Held { histories: &train, test: &parts.test, counts: &counts, cut_offs: &[10, 20, 50] };
        let mut scores = None;
        let outcome = fit(&mut training, None, None, |training| {
            scores = Some(Scores::of_training(training, &held, "the hidden fifth")?);
            Ok(())
        })?;
        let (Outcome::Finished, Some(scores)) = (outcome, scores) else {
            eprintln!("interrupted");
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        };
        let mut with = Finish::default();
        with.data = Some(Arc::clone(&data));
        with.titles = Some(generator.titles());
        with.store_users = true;
        let model = training.finish(with)?;
        if let Some(path) = &self.output {
            model.save(path)?;
        }
        let shown =
            Shown { examples: examples(&generator, &train), model: &model, scores, histories: &train };
        if self.json {
            self.print_json(&shown)?;
        } else {
            self.print_text(&generator, &shown)?;
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
            // What is shown is the network, also where the generated catalogue could do without it.
            ridge: Ridge::none(),
            epochs: self.epochs,
            seed: self.seed,
            threads: self.threads,
            batch: 128,
            ..Config::default()
        }
    }

    fn print_text(&self, generator: &Generator, shown: &Shown<'_>) -> Result<()> {
        let Shown { model, scores, histories, examples } = shown;
        let (n_epochs, total) = shown.training();
        let mean = |metric| scores.model.mean(metric).unwrap_or_default();
        let baseline = |metric| scores.popularity.mean(metric).unwrap_or_default();
        let mut text = format!("{n_epochs} epochs in {}.\n\n{}", seconds(total), scores.table());
        let metric = Metric::new(Measure::Ndcg, 10);
        text.push_str(&format!(
            "\nndcg@10 is {:.1} times that of recommending the most popular items to everyone.\n",
            mean(metric) / baseline(metric).max(1e-9)
        ));
        for &user in examples {
            let row = histories.row(user as usize);
            let best = model.recommend(&shown.question(user, SHOWN))?;
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
                "\nThe model is {0}, trained again on everything. Try: fastvae inspect {0}, fastvae recommend {0} --user {1}\n",
                path.display(),
                examples.first().copied().unwrap_or_default()
            )),
            None => text.push_str(
                "\nWith your own data: fastvae train DATA -o model.fastvae, then fastvae recommend model.fastvae ...\n",
            ),
        }
        print(&text)
    }

    fn print_json(&self, shown: &Shown<'_>) -> Result<()> {
        let mut object = Map::new();
        shown.scores.add_to(&mut object);
        let (n_epochs, seconds) = shown.training();
        let model = shown.model;
        let example = |&user: &UserId| -> Result<Value> {
            let best = model.recommend(&shown.question(user, 10))?;
            let history = shown.histories.row(user as usize).items;
            let titles: Vec<_> = history.iter().map(|&item| model.title(item)).collect();
            Ok(json!({ "user": user, "history": titles, "items": model.named(&best.into()) }))
        };
        let entries = json!({
            "epochs": n_epochs,
            "seconds": seconds,
            "peak_rss_bytes": resources::peak_memory(),
            "n_users": self.users,
            "n_items": self.items,
            "model_path": self.output,
            "examples": shown.examples.iter().map(example).collect::<Result<Vec<_>>>()?,
        });
        extend(&mut object, entries);
        print_json(&object)
    }
}

/// What is shown of a finished training.
struct Shown<'a> {
    model: &'a Model,
    scores: Scores,
    /// What is shown to the model of each user.
    histories: &'a Interactions,
    examples: Vec<UserId>,
}

impl Shown<'_> {
    /// Epochs until they were chosen, and their seconds.
    fn training(&self) -> (usize, f64) {
        let records = self.model.description().epochs.iter().filter(|record| !record.refit);
        (records.clone().count(), records.map(|record| record.seconds).sum())
    }

    fn question(&self, user: UserId, n: usize) -> Question {
        Question::for_viewer(self.histories.row(user as usize)).with(ListOptions::best(n))
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
