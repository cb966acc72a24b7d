//! `fastvae similar`: items like an item.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use fastvae::baseline::{self, Recommender};
use fastvae::data::ItemId;
use serde_json::json;

use crate::commands::recommend::{scored_json, scored_text};
use crate::output::{print, print_json};
use crate::scores::positive;

/// Show the items most like an item
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae similar model.fastvae 42
  fastvae similar model.fastvae \"the hobbit\" -n 20       by a part of its title, where only one has it
  fastvae similar model.fastvae 0439139597 --json")]
pub struct Similar {
    /// The model
    model: PathBuf,

    /// The item, by id or by a part of its title
    item: String,

    /// How many items to show
    #[arg(short, long = "number", value_name = "N", default_value_t = 10, value_parser = positive)]
    n: usize,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl Similar {
    /// Prints the nearest items.
    pub fn run(self) -> Result<()> {
        let model = baseline::load(&self.model)?;
        let model = model.as_ref();
        let item = find(model, &self.item)?;
        let best = model.similar(item, self.n)?;
        let id = model.item_ids().name(item);
        if self.json {
            return print_json(&json!({
                "item": id,
                "title": model.title(item),
                "items": scored_json(model, &best),
            }));
        }
        let name = model.title(item).map_or_else(|| id.to_string(), |title| format!("{title} [{id}]"));
        print(&format!("like {name}\n\n{}", scored_text(model, &best)))
    }
}

/// The item with this id, or else the only one whose title has this part; the exact title wins.
fn find(model: &dyn Recommender, text: &str) -> Result<ItemId> {
    const SHOWN: usize = 10;
    let unknown = match model.item(text) {
        Ok(item) => return Ok(item),
        Err(error) => error,
    };
    let Some(titles) = model.titles() else { return Err(unknown.into()) };
    let wanted = text.to_lowercase();
    let mut found = Vec::new();
    for item in 0..model.n_items() as ItemId {
        let Some(title) = titles.get(item).map(str::to_lowercase) else { continue };
        if title == wanted {
            return Ok(item);
        }
        if title.contains(&wanted) {
            found.push(item);
        }
    }
    match found[..] {
        [] => Err(unknown.into()),
        [item] => Ok(item),
        _ => {
            let listed = found.iter().take(SHOWN).map(|&item| {
                format!("\n  {}  {}", model.item_ids().name(item), titles.get(item).unwrap_or_default())
            });
            let more = if found.len() > SHOWN { "\n  ..." } else { "" };
            anyhow::bail!(
                "{} items have `{text}` in their title; give the id of one:{}{more}",
                found.len(),
                listed.collect::<String>()
            )
        }
    }
}
