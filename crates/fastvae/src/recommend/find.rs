//! [`Finder`]: items by their titles and identifiers.

use memchr::memmem;
use rayon::prelude::*;

use crate::data::ItemId;
use crate::error::{Error, Result};
use crate::model::Model;

/// Titles in lower case, in one block, beside the model that they are of.
#[derive(Debug)]
pub struct Finder {
    text: Vec<u8>,
    ends: Vec<usize>,
}

/// How well an item matches, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    Identifier,
    Title,
    TitlePrefix,
    WordPrefix,
    IdentifierPrefix,
    Inside,
}

/// Items that one thread looks at a time.
const PART: usize = 1 << 14;

impl Finder {
    /// The titles of `model`; items without one are found by their identifiers.
    pub fn of(model: &Model) -> Self {
        let mut finder = Self { text: Vec::new(), ends: Vec::with_capacity(model.n_items()) };
        for item in 0..model.n_items() as ItemId {
            finder.text.extend(model.title(item).unwrap_or_default().to_lowercase().bytes());
            finder.ends.push(finder.text.len());
        }
        finder
    }

    fn title(&self, item: usize) -> &[u8] {
        let start = if item == 0 { 0 } else { self.ends[item - 1] };
        &self.text[start..self.ends[item]]
    }

    /// The `n` items that match `query` best: by identifier, by title, by the start of it or of one of its words, or
    /// anywhere inside; among equals the more popular first. Every word of the query must be there. An empty query
    /// gives the most popular items. Cost: the length of all titles, spread over the current thread pool.
    pub fn search(&self, model: &Model, query: &str, n: usize) -> Vec<ItemId> {
        let query = query.trim().to_lowercase();
        let words: Vec<memmem::Finder<'_>> = query.split_whitespace().map(memmem::Finder::new).collect();
        let counts = model.item_counts();
        let of_part = |part: usize| {
            let items = part * PART..model.n_items().min((part + 1) * PART);
            let mut found: Vec<_> = items
                .filter_map(|item| {
                    let matched = self.matched(model, item, &query, &words)?;
                    Some((matched, std::cmp::Reverse(counts[item]), item as ItemId))
                })
                .collect();
            found.sort_unstable();
            found.truncate(n);
            found
        };
        let mut found: Vec<_> =
            (0..model.n_items().div_ceil(PART)).into_par_iter().flat_map_iter(of_part).collect();
        found.sort_unstable();
        found.into_iter().take(n).map(|(_, _, item)| item).collect()
    }

    fn matched(
        &self,
        model: &Model,
        item: usize,
        query: &str,
        words: &[memmem::Finder<'_>],
    ) -> Option<Match> {
        if query.is_empty() {
            return Some(Match::Inside);
        }
        let title = self.title(item);
        let id = model.item_ids().name(item as ItemId);
        if id.eq_ignore_ascii_case(query) {
            return Some(Match::Identifier);
        }
        if !title.is_empty() && words.iter().all(|word| word.find(title).is_some()) {
            let query = query.as_bytes();
            return Some(if title == query {
                Match::Title
            } else if title.starts_with(query) {
                Match::TitlePrefix
            } else if starts_a_word(title, words[0].needle()) {
                Match::WordPrefix
            } else {
                Match::Inside
            });
        }
        let prefix = id.as_bytes().get(..query.len());
        prefix
            .is_some_and(|prefix| prefix.eq_ignore_ascii_case(query.as_bytes()))
            .then_some(Match::IdentifierPrefix)
    }
}

fn starts_a_word(title: &[u8], word: &[u8]) -> bool {
    title.split(|byte| !byte.is_ascii_alphanumeric() && byte.is_ascii()).any(|start| start.starts_with(word))
}

/// The item with this id, or else the only one whose title has this part; the exact title wins.
///
/// # Errors
/// [`Error::UnknownId`] if there is none, [`Error::Data`] with the first few if there are several.
pub fn find(model: &Model, text: &str) -> Result<ItemId> {
    const SHOWN: usize = 10;
    let unknown = match model.item(text) {
        Ok(item) => return Ok(item),
        Err(error) => error,
    };
    let wanted = text.to_lowercase();
    let mut found = Vec::new();
    for item in 0..model.n_items() as ItemId {
        let Some(title) = model.title(item).map(str::to_lowercase) else { continue };
        if title == wanted {
            return Ok(item);
        }
        if title.contains(&wanted) {
            found.push(item);
        }
    }
    match found[..] {
        [] => Err(unknown),
        [item] => Ok(item),
        _ => {
            let listed = found.iter().take(SHOWN).map(|&item| {
                format!("\n  {}  {}", model.item_ids().name(item), model.title(item).unwrap_or_default())
            });
            let more = if found.len() > SHOWN { "\n  ..." } else { "" };
            Err(Error::data(
                format!("{} items have `{text}` in their title", found.len()),
                format!("give the id of one:{}{more}", listed.collect::<String>()),
            ))
        }
    }
}
