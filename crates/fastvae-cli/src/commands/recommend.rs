//! `fastvae recommend`: lists for a history, a user, or many users.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use fastvae::Model;
use fastvae::data::{IdMap, Interactions, ItemId, UserId};
use fastvae::eval::Viewer;
use fastvae::internals::data::read_with_items;
use fastvae::internals::eval::{Scorer, positions_of};
use fastvae::internals::recommend::{Layout, RecommendationWriter};
use fastvae::recommend::{Because, Fallback, Question, Recommendation, Request, Response, Seen};
use serde_json::{Value, json};

use crate::data_flags::DataFlags;
use crate::display::{self, thousands};
use crate::failure::{self, usage};
use crate::list_flags::{ListFlags, ids_of};
use crate::output::{check_writable, print, print_json, print_line};

/// Recommend items for a history, a user, or many users
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae recommend model.fastvae --history 17,42,1093
  fastvae recommend model.fastvae --history 17,42 --weights 1,12 --explain
  fastvae recommend model.fastvae --user alice --data ratings.csv -n 20
  fastvae recommend model.fastvae --users all -o lists.parquet      a model trained with --store-users
  fastvae recommend model.fastvae --users ids.txt --data ratings.csv -o lists.jsonl
  fastvae recommend model.fastvae --history 17 --only @in-stock.txt --exclude 42 --diversity 0.3

Lists of items are ids with commas between them, or @FILE with one id a line. Who is not known at all gets what the model \
says of nobody, or the popular items; the answer says so.")]
#[command(group = clap::ArgGroup::new("whom").required(true).args(["history", "user", "users"]))]
pub struct Recommend {
    /// The model
    model: PathBuf,

    /// Items that somebody liked
    #[arg(long, value_name = "ID,ID|@FILE")]
    history: Option<String>,

    /// A weight for each item of the history, such as how often it was played
    #[arg(long, value_name = "W,W", value_delimiter = ',', requires = "history")]
    weights: Option<Vec<f32>>,

    /// One user, whose history comes from --data or from the model
    #[arg(long, value_name = "ID")]
    user: Option<String>,

    /// Many users: a file with one id a line, or all
    #[arg(long, value_name = "FILE|all")]
    users: Option<String>,

    /// File of interactions with the users' histories; the model's stored users otherwise
    #[arg(long, value_name = "DATA", conflicts_with = "history")]
    data: Option<PathBuf>,

    #[command(flatten)]
    list: ListFlags,

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

impl Recommend {
    /// Recommends and prints or writes.
    pub fn run(self) -> Result<()> {
        if let Some(path) = &self.output {
            Layout::of(path).map_err(|error| usage(error.to_string()))?;
            check_writable(path)?;
        }
        let model = &Model::load(&self.model)?;
        super::with_threads(self.threads, || match (&self.history, &self.user, &self.users) {
            (Some(history), ..) => self.for_history(model, history),
            (_, Some(user), _) => self.for_user(model, user),
            (.., users) => self.for_users(model, users.as_deref().unwrap_or("all")),
        })?
    }

    fn for_history(&self, model: &Model, history: &str) -> Result<()> {
        let ids = ids_of(history)?;
        let weights = match &self.weights {
            Some(weights) if weights.len() != ids.len() => {
                let (n, m) = (weights.len(), ids.len());
                return Err(usage(format!("--weights has {n} numbers for {m} items; give one for each")));
            }
            Some(weights) => weights.iter().copied().map(Some).collect(),
            None => vec![None; ids.len()],
        };
        let seen = ids.into_iter().zip(weights).map(|(item, weight)| Seen { item, weight });
        let request = Request::of(seen).with(self.list.options(model)?);
        let response = ask(model, &request)?;
        tell_unknown("items", &response.unknown, "of --history");
        self.show(model, json!({}), &response)
    }

    fn for_user(&self, model: &Model, id: &str) -> Result<()> {
        let list = self.list.options(model)?;
        if self.data.is_none() && self.output.is_none() {
            let response = ask(model, &Request::of_user(id).with(list))?;
            return self.show(model, json!({ "user": id }), &response);
        }
        let histories = self.histories(model)?;
        let user = histories.user_ids().position(id).ok_or_else(|| fastvae::Error::UnknownId {
            what: "user",
            id: id.to_string(),
            remedy: "give a user with a history in --data or in the model, or use --history".to_string(),
        })?;
        let viewer = Viewer {
            history: histories.row(user as usize).into(),
            user: model.user_ids().and_then(|ids| ids.position(id)),
        };
        let question = Question::for_viewer(viewer).with(list);
        let answer = model.answer(&[question]).pop().context("no answer to one question")??;
        if let Some(path) = &self.output {
            let mut writer = RecommendationWriter::create(path, model, histories.user_ids())?;
            writer.write(user, &answer.items)?;
            writer.finish()?;
            return self.say_written(path, 1);
        }
        self.show(model, json!({ "user": id }), &model.response(answer, viewer.history.items))
    }

    /// Prints one list.
    fn show(&self, model: &Model, mut object: Value, response: &Response) -> Result<()> {
        if self.json {
            object["history"] = listed(model, &response.history);
            object["items"] = json!(response.items);
            object["unknown"] = json!(response.unknown);
            object["is_approximate"] = json!(response.is_approximate);
            object["fallback"] = json!(response.fallback);
            return print_json(&object);
        }
        let told = response.fallback.map_or("", told);
        print(&format!("{}{told}\n{}", history_text(model, &response.history), table(&response.items)))
    }

    fn for_users(&self, model: &Model, users: &str) -> Result<()> {
        let list = self.list.options(model)?;
        let histories = self.histories(model)?;
        let ids = histories.user_ids();
        let chosen = chosen(ids, users)?;
        let known = positions_of(model, ids);
        let viewer = |at: usize| {
            let user = chosen[at] as usize;
            Viewer { history: histories.row(user).into(), user: known[user] }
        };
        if let Some(path) = &self.output {
            let mut writer = RecommendationWriter::create(path, model, ids)?;
            model.recommend_all(chosen.len(), viewer, &list, |at, answer| {
                writer.write(chosen[at], &answer.items)
            })?;
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
        model.recommend_all(chosen.len(), viewer, &list, |at, answer| {
            let (user, items) = (ids.name(chosen[at]), model.named(&answer));
            if self.json {
                lists.push(json!({ "user": user, "items": items, "fallback": answer.fallback }));
                return Ok(());
            }
            for (rank, Recommendation { item, title, score, .. }) in items.iter().enumerate() {
                let (rank, title) = (rank + 1, title.as_deref().unwrap_or_default());
                text.push_str(&format!("{user}\t{rank}\t{item}\t{score:.4}\t{title}\n"));
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

    fn say_written(&self, path: &Path, n_users: usize) -> Result<()> {
        if self.json {
            return print_json(&json!({ "path": path, "n_users": n_users }));
        }
        print_line(format_args!("{}: lists for {} users", path.display(), thousands(n_users)))
    }

    fn histories(&self, model: &Model) -> Result<Arc<Interactions>> {
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
}

fn ask(model: &Model, request: &Request) -> Result<Response> {
    Ok(model.ask(std::slice::from_ref(request)).pop().context("no answer to one request")??)
}

/// The users of `text`: a file of ids, or all.
fn chosen(ids: &IdMap, text: &str) -> Result<Vec<UserId>> {
    if text == "all" {
        return Ok((0..ids.len() as UserId).collect());
    }
    let path = Path::new(text);
    let names = std::fs::read_to_string(path)
        .map_err(|source| failure::io(path, source))
        .context("--users takes a file with one id a line, or the word all")?;
    let mut unknown = Vec::new();
    let mut chosen = Vec::new();
    for name in names.lines().map(|line| line.trim_end_matches('\r')).filter(|line| !line.trim().is_empty()) {
        match ids.position(name).or_else(|| ids.position(name.trim())) {
            Some(user) => chosen.push(user),
            None => unknown.push(name.to_string()),
        }
    }
    tell_unknown("users", &unknown, &format!("of {text}"));
    anyhow::ensure!(!chosen.is_empty(), "none of the users in {text} has a history");
    Ok(chosen)
}

/// Says which ids are not known; the first few of them.
pub fn tell_unknown(what: &str, unknown: &[String], place: &str) {
    const SHOWN: usize = 10;
    if unknown.is_empty() {
        return;
    }
    let more = if unknown.len() > SHOWN { ", ..." } else { "" };
    let shown = unknown[..unknown.len().min(SHOWN)].join(", ");
    eprintln!("warning: {} {what} {place} are not known: {shown}{more}", thousands(unknown.len()));
}

/// What stands in for a taste, in a line.
fn told(fallback: Fallback) -> &'static str {
    match fallback {
        Fallback::Nobody => "nothing is known of who asks: this is what the model says of nobody\n",
        _ => "nothing is known of who asks: these are the most popular items\n",
    }
}

/// Items with their ids and titles, as JSON.
fn listed(model: &Model, items: &[ItemId]) -> Value {
    let value = |&item: &ItemId| {
        let mut value = json!({ "item": model.item_ids().name(item) });
        if let Some(title) = model.title(item) {
            value["title"] = title.into();
        }
        value
    };
    items.iter().map(value).collect()
}

/// A ranked list as a table, with titles and reasons where there are some.
pub fn table(items: &[Recommendation]) -> String {
    let titled = items.iter().any(|item| item.title.is_some());
    let reasoned = items.iter().any(|item| item.because.is_some());
    let mut table = display::plain();
    let header = ["", "item", "score"].into_iter().chain(titled.then_some("title"));
    table.set_header(header.chain(reasoned.then_some("because of")));
    for (rank, Recommendation { item, title, score, because, .. }) in items.iter().enumerate() {
        let mut row = vec![(rank + 1).to_string(), item.clone(), format!("{score:.3}")];
        row.extend(titled.then(|| title.clone().unwrap_or_default()));
        let reason = |Because { item, title, share, .. }: &Because| {
            format!("{} ({:.0} %)", title.as_ref().unwrap_or(item), 100.0 * share)
        };
        let because = || because.iter().flatten().map(reason).collect::<Vec<_>>().join(", ");
        row.extend(reasoned.then(because));
        table.add_row(row);
    }
    display::text(table, [0, 2])
}

/// The first items of a history, by title where there is one.
fn history_text(model: &Model, items: &[ItemId]) -> String {
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
