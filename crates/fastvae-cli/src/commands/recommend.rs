//! `fastvae recommend`: lists for a history, a user, or many users.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use fastvae::baseline::{self, Recommender};
use fastvae::data::{IdMap, Interactions, ItemId, UserId, read_with_items};
use fastvae::eval::{Scored, Viewer, positions_of};
use fastvae::model::History;
use fastvae::recommend::{BatchOptions, Layout, RecommendationWriter, Request, recommend_all};
use serde_json::{Value, json};

use crate::data_flags::DataFlags;
use crate::display::{self, thousands};
use crate::failure::{self, usage};
use crate::output::{check_writable, print, print_json, print_line};
use crate::scores::positive;

/// Recommend items for a history, a user, or many users
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae recommend model.fastvae --history 17,42,1093
  fastvae recommend model.fastvae --user alice --data ratings.csv -n 20
  fastvae recommend model.fastvae --users all -o lists.parquet      a model trained with --store-users
  fastvae recommend model.fastvae --users ids.txt --data ratings.csv -o lists.jsonl
  fastvae recommend model.fastvae --history 17 --only @in-stock.txt --exclude 42

Lists of items are ids with commas between them, or @FILE with one id a line.")]
#[command(group = clap::ArgGroup::new("whom").required(true).args(["history", "user", "users"]))]
pub struct Recommend {
    /// The model
    model: PathBuf,

    /// Items that somebody liked
    #[arg(long, value_name = "ID,ID")]
    history: Option<String>,

    /// One user, whose history comes from --data or from the model
    #[arg(long, value_name = "ID")]
    user: Option<String>,

    /// Many users: a file with one id a line, or all
    #[arg(long, value_name = "FILE|all")]
    users: Option<String>,

    /// File of interactions with the users' histories; the model's stored users otherwise
    #[arg(long, value_name = "DATA", conflicts_with = "history")]
    data: Option<PathBuf>,

    /// How many items to recommend
    #[arg(short, long = "number", value_name = "N", default_value_t = 10, value_parser = positive)]
    n: usize,

    /// Items that must not be recommended
    #[arg(long, value_name = "ID,ID|@FILE")]
    exclude: Option<String>,

    /// The only items that may be recommended
    #[arg(long, value_name = "ID,ID|@FILE")]
    only: Option<String>,

    /// Items of the history may be recommended too
    #[arg(long)]
    keep_seen: bool,

    /// Write the lists to a .csv, .tsv, .jsonl or .parquet file
    #[arg(short, long, value_name = "FILE", conflicts_with = "history")]
    output: Option<PathBuf>,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reading: DataFlags,
}

/// Which items may be in a list.
struct Limits {
    exclude: Vec<ItemId>,
    only: Option<Vec<ItemId>>,
}

impl Recommend {
    /// Recommends and prints or writes.
    pub fn run(self) -> Result<()> {
        if let Some(path) = &self.output {
            Layout::of(path).map_err(|error| usage(error.to_string()))?;
            check_writable(path)?;
        }
        let model = baseline::load(&self.model)?;
        let model = model.as_ref();
        let limits = Limits {
            exclude: self.items(model, self.exclude.as_deref(), "--exclude")?.unwrap_or_default(),
            only: self.items(model, self.only.as_deref(), "--only")?,
        };
        super::with_threads(self.threads, || {
            if let Some(history) = &self.history {
                return self.for_history(model, history, &limits);
            }
            let histories = self.histories(model)?;
            match &self.users {
                Some(users) => self.for_users(model, &histories, users, &limits),
                None => self.for_user(model, &histories, &limits),
            }
        })?
    }

    fn for_history(&self, model: &dyn Recommender, history: &str, limits: &Limits) -> Result<()> {
        let items = self.items(model, Some(history), "--history")?.unwrap_or_default();
        let best = model.recommend(&self.request(History { items: &items, weights: None }.into(), limits))?;
        if self.json {
            return print_json(&json!({
                "history": listed(model, &items),
                "items": scored_json(model, &best),
            }));
        }
        let text = format!("{}\n{}", history_text(model, &items), scored_text(model, &best));
        print(&text)
    }

    fn for_user(&self, model: &dyn Recommender, histories: &Interactions, limits: &Limits) -> Result<()> {
        let id = self.user.as_deref().unwrap_or_default();
        let user = histories.user_ids().position(id).ok_or_else(|| fastvae::Error::UnknownId {
            what: "user",
            id: id.to_string(),
            remedy: "give a user with a history in --data or in the model, or use --history".to_string(),
        })?;
        let row = histories.row(user as usize);
        let known = model.user_ids().and_then(|ids| ids.position(id));
        let viewer = Viewer { history: row.into(), user: known };
        let best = model.recommend(&self.request(viewer, limits))?;
        if let Some(path) = &self.output {
            let mut writer = RecommendationWriter::create(path, model, histories.user_ids())?;
            writer.write(user, &best)?;
            writer.finish()?;
            return self.say_written(path, 1);
        }
        if self.json {
            return print_json(&json!({
                "user": id,
                "history": listed(model, row.items),
                "items": scored_json(model, &best),
            }));
        }
        print(&format!("{}\n{}", history_text(model, row.items), scored_text(model, &best)))
    }

    fn for_users(
        &self,
        model: &dyn Recommender,
        histories: &Interactions,
        users: &str,
        limits: &Limits,
    ) -> Result<()> {
        let ids = histories.user_ids();
        let chosen = self.chosen(ids, users)?;
        let options = BatchOptions {
            n: self.n,
            exclude: &limits.exclude,
            only: limits.only.as_deref(),
            keep_seen: self.keep_seen,
        };
        let known = positions_of(model, ids);
        let viewer = |at: usize| {
            let user = chosen[at] as usize;
            Viewer { history: histories.row(user).into(), user: known[user] }
        };
        if let Some(path) = &self.output {
            let mut writer = RecommendationWriter::create(path, model, ids)?;
            recommend_all(model, chosen.len(), viewer, &options, |at, best| writer.write(chosen[at], best))?;
            writer.finish()?;
            return self.say_written(path, chosen.len());
        }
        // Lists are printed in blocks: standard output is not worth a lock for every line.
        let mut lists = Vec::new();
        let mut text = String::new();
        let mut failed = None;
        if !self.json {
            text.push_str("user\trank\titem\tscore\ttitle\n");
        }
        recommend_all(model, chosen.len(), viewer, &options, |at, best| {
            let user = ids.name(chosen[at]);
            if self.json {
                lists.push(json!({ "user": user, "items": scored_json(model, best) }));
                return Ok(());
            }
            for (rank, scored) in (1..).zip(best) {
                let rank: u32 = rank;
                let (item, title) = (model.item_ids().name(scored.item), model.title(scored.item));
                text.push_str(&format!(
                    "{user}\t{rank}\t{item}\t{:.4}\t{}\n",
                    scored.score,
                    title.unwrap_or_default()
                ));
            }
            if text.len() > 1 << 16 && failed.is_none() {
                failed = print(&text).err();
                text.clear();
            }
            Ok(())
        })?;
        match failed {
            Some(error) => Err(error),
            None if self.json => print_json(&json!({ "users": lists })),
            None => print(&text),
        }
    }

    fn request<'a>(&self, viewer: Viewer<'a>, limits: &'a Limits) -> Request<'a> {
        Request {
            history: viewer.history,
            user: viewer.user,
            n: self.n,
            exclude: &limits.exclude,
            only: limits.only.as_deref(),
            keep_seen: self.keep_seen,
        }
    }

    fn say_written(&self, path: &std::path::Path, n_users: usize) -> Result<()> {
        if self.json {
            return print_json(&json!({ "path": path, "n_users": n_users }));
        }
        print_line(format_args!("{}: lists for {} users", path.display(), thousands(n_users)))
    }

    fn histories(&self, model: &dyn Recommender) -> Result<Arc<Interactions>> {
        match (&self.data, model.users()) {
            (Some(path), _) => {
                let (rows, _) = read_with_items(path, &self.reading.options(), model.item_ids())?;
                Ok(Arc::new(rows))
            }
            (None, Some(users)) => Ok(users.clone()),
            (None, None) => anyhow::bail!(
                "{} holds no users' histories; give a file of interactions with --data, or train with --store-users",
                self.model.display()
            ),
        }
    }

    /// The users of `text`: a file of ids, or all.
    fn chosen(&self, ids: &IdMap, text: &str) -> Result<Vec<UserId>> {
        if text == "all" {
            return Ok((0..ids.len() as UserId).collect());
        }
        let path = std::path::Path::new(text);
        let names = std::fs::read_to_string(path)
            .map_err(|source| failure::io(path, source))
            .context("--users takes a file with one id a line, or the word all")?;
        let mut unknown = Vec::new();
        let mut chosen = Vec::new();
        for name in
            names.lines().map(|line| line.trim_end_matches('\r')).filter(|line| !line.trim().is_empty())
        {
            match ids.position(name).or_else(|| ids.position(name.trim())) {
                Some(user) => chosen.push(user),
                None => unknown.push(name.to_string()),
            }
        }
        tell_unknown("users", &unknown, &format!("of {text}"));
        anyhow::ensure!(!chosen.is_empty(), "none of the users in {text} has a history");
        Ok(chosen)
    }

    /// The items of `text`: ids with commas between them, or `@FILE`. Unknown ones are told, and fatal where no
    /// other is there.
    fn items(&self, model: &dyn Recommender, text: Option<&str>, flag: &str) -> Result<Option<Vec<ItemId>>> {
        let Some(text) = text else { return Ok(None) };
        let names = match text.strip_prefix('@') {
            None => text.to_string(),
            Some(path) => std::fs::read_to_string(path)
                .map_err(|source| failure::io(std::path::Path::new(path), source))?,
        };
        let separator = if text.starts_with('@') { '\n' } else { ',' };
        let ids: Vec<&str> = names.split(separator).map(str::trim).filter(|id| !id.is_empty()).collect();
        let known = model.known_items(&ids);
        tell_unknown("items", &known.unknown, &format!("of {flag}"));
        anyhow::ensure!(
            !known.items.is_empty() || (ids.is_empty() && flag == "--exclude"),
            "the model knows none of the {} items of {flag}; give ids as they are in the training data",
            ids.len()
        );
        Ok(Some(known.items))
    }
}

/// Says which ids are not known; the first few of them.
fn tell_unknown(what: &str, unknown: &[String], place: &str) {
    const SHOWN: usize = 10;
    if unknown.is_empty() {
        return;
    }
    let more = if unknown.len() > SHOWN { ", ..." } else { "" };
    let shown = unknown[..unknown.len().min(SHOWN)].join(", ");
    eprintln!("warning: {} {what} {place} are not known: {shown}{more}", thousands(unknown.len()));
}

/// Items with their ids and titles, as JSON.
fn listed(model: &dyn Recommender, items: &[ItemId]) -> Value {
    items
        .iter()
        .map(|&item| {
            let mut value = json!({ "item": model.item_ids().name(item) });
            if let Some(title) = model.title(item) {
                value["title"] = title.into();
            }
            value
        })
        .collect()
}

/// Scored items with their ids and titles, as JSON.
pub fn scored_json(model: &dyn Recommender, best: &[Scored]) -> Value {
    best.iter()
        .map(|scored| {
            let mut value = json!({ "item": model.item_ids().name(scored.item), "score": scored.score });
            if let Some(title) = model.title(scored.item) {
                value["title"] = title.into();
            }
            value
        })
        .collect()
}

/// A ranked list as a table.
pub fn scored_text(model: &dyn Recommender, best: &[Scored]) -> String {
    let titled = model.titles().is_some();
    let mut table = display::plain();
    table.set_header(["", "item", "score"].into_iter().chain(titled.then_some("title")));
    for (rank, scored) in (1..).zip(best) {
        let rank: u32 = rank;
        let mut row = vec![
            rank.to_string(),
            model.item_ids().name(scored.item).into_owned(),
            format!("{:.3}", scored.score),
        ];
        row.extend(titled.then(|| model.title(scored.item).unwrap_or_default().to_string()));
        table.add_row(row);
    }
    display::text(table, [0, 2])
}

/// The first items of a history, by title where there is one.
fn history_text(model: &dyn Recommender, items: &[ItemId]) -> String {
    const SHOWN: usize = 12;
    let mut text = format!("history of {} items\n", thousands(items.len()));
    for &item in items.iter().take(SHOWN) {
        let id = model.item_ids().name(item);
        match model.title(item) {
            Some(title) => text.push_str(&format!("   {title} [{id}]\n")),
            None => text.push_str(&format!("   {id}\n")),
        }
    }
    if items.len() > SHOWN {
        text.push_str(&format!("   and {} more\n", thousands(items.len() - SHOWN)));
    }
    text
}
