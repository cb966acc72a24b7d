//! `fastvae similar`: items like an item.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use fastvae::Model;
use fastvae::internals::recommend::find;
use serde_json::json;

use crate::commands::recommend::table;
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
        let model = Model::load(&self.model)?;
        let item = find(&model, &self.item)?;
        let best = model.named(&model.similar(item, self.n)?.into());
        let id = model.item_ids().name(item);
        if self.json {
            return print_json(&json!({
                "item": id,
                "title": model.title(item),
                "items": best,
            }));
        }
        let name = model.title(item).map_or_else(|| id.to_string(), |title| format!("{title} [{id}]"));
        print(&format!("like {name}\n\n{}", table(&best)))
    }
}
