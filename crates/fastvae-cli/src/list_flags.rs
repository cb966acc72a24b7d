//! Flags that say what may be in a list, and how it is made.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use fastvae::Model;
use fastvae::data::ItemId;
use fastvae::recommend::{Knobs, ListOptions};

use crate::commands::tell_unknown;
use crate::failure;
use crate::scores::positive;

/// Reasons given for an item, at most.
const REASONS: usize = 3;

/// What may be in a list, and how it is made.
#[derive(Debug, Clone, Args)]
pub struct ListFlags {
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

    /// What popularity costs an item, from 0 to 2: at 1 one that is ten times as popular must be ten times as likely
    #[arg(long, value_name = "P", default_value_t = 0.0, hide_default_value = true)]
    popularity_penalty: f32,

    /// From 0, the best scores, to 1, items as unlike each other as possible
    #[arg(long, value_name = "D", default_value_t = 0.0, hide_default_value = true)]
    diversity: f32,

    /// Above 0 the list is drawn, from the softmax of score / T
    #[arg(long, value_name = "T", default_value_t = 0.0, hide_default_value = true)]
    temperature: f32,

    /// Seed of that draw
    #[arg(long, value_name = "SEED", default_value_t = 0, hide_default_value = true)]
    seed: u64,

    /// Look only at the most promising cells of the model's index, where it has one
    #[arg(long)]
    approximate: bool,

    /// Say which items of the history speak for each
    #[arg(long)]
    explain: bool,
}

impl ListFlags {
    /// The library's options for a list of `model`. Ids that it does not know are told.
    ///
    /// # Errors
    /// What reading a file of ids meets; where `--only` leaves nothing; for a knob out of its range.
    pub fn options(&self, model: &Model) -> Result<ListOptions> {
        let mut list = ListOptions::best(self.n);
        list.exclude = known(model, self.exclude.as_deref(), "--exclude")?.unwrap_or_default();
        list.only = known(model, self.only.as_deref(), "--only")?;
        if let (Some([]), Some(text)) = (list.only.as_deref(), &self.only) {
            anyhow::bail!(
                "the model knows no item of --only {text}; give ids as they are in the training data"
            );
        }
        list.keep_seen = self.keep_seen;
        list.knobs = Knobs {
            popularity_penalty: self.popularity_penalty,
            diversity: self.diversity,
            temperature: self.temperature,
            seed: self.seed,
        };
        list.knobs.validate()?;
        list.approximate = self.approximate;
        list.reasons = if self.explain { REASONS } else { 0 };
        Ok(list)
    }
}

/// The ids of `text`: with commas between them, or in `@FILE`, one a line.
pub fn ids_of(text: &str) -> Result<Vec<String>> {
    let (names, separator) = match text.strip_prefix('@') {
        None => (text.to_string(), ','),
        Some(path) => {
            let path = Path::new(path);
            (std::fs::read_to_string(path).map_err(|source| failure::io(path, source))?, '\n')
        }
    };
    let ids = names.split(separator).map(str::trim).filter(|id| !id.is_empty());
    Ok(ids.map(str::to_string).collect())
}

/// The items of `text` that the model knows; the others are told.
fn known(model: &Model, text: Option<&str>, flag: &str) -> Result<Option<Vec<ItemId>>> {
    let Some(text) = text else { return Ok(None) };
    let (items, unknown) = model.known_items(ids_of(text)?);
    tell_unknown("items", &unknown, &format!("of {flag}"));
    Ok(Some(items))
}
