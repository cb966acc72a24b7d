//! Flags that say how a file of interactions is read.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use fastvae::data::{Column, Format, IdMap, ReadOptions, TitleOptions, Titles};
use fastvae::internals::data::Cache;

/// How to read interactions; everything is detected where nothing is said.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Reading data")]
pub struct DataFlags {
    /// csv, tsv, movielens, recbole, lightgcn, mtx, npz, mat, parquet or cache; by extension and content otherwise
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub format: Option<Format>,

    /// Character between fields, or one of tab, comma, semicolon, space
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    pub delimiter: Option<u8>,

    /// The first line is data, not a header
    #[arg(long)]
    pub no_header: bool,

    /// Column of users, by name or by number from 0
    #[arg(long, value_name = "COLUMN")]
    pub user_col: Option<Column>,

    /// Column of items
    #[arg(long, value_name = "COLUMN")]
    pub item_col: Option<Column>,

    /// Column of ratings, read only for --min-rating
    #[arg(long, value_name = "COLUMN")]
    pub rating_col: Option<Column>,

    /// Column of weights
    #[arg(long, value_name = "COLUMN")]
    pub weight_col: Option<Column>,

    /// Column of timestamps
    #[arg(long, value_name = "COLUMN")]
    pub time_col: Option<Column>,

    /// Drop interactions with a lower rating
    #[arg(long, value_name = "RATING", allow_negative_numbers = true)]
    pub min_rating: Option<f32>,

    /// Forget the weights: every interaction counts the same
    #[arg(long)]
    pub binarize: bool,
}

/// How to read what is learned from, with the filter that applies to it alone.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Reading data")]
pub struct TrainDataFlags {
    #[command(flatten)]
    reading: DataFlags,

    /// Keep only users and items with at least N interactions among those kept
    #[arg(long, value_name = "N")]
    k_core: Option<usize>,
}

/// What to call the items.
#[derive(Debug, Clone, Default, Args)]
pub struct TitleFlags {
    /// File with item titles: CSV or TSV with a header, or MovieLens
    #[arg(long, value_name = "FILE")]
    titles: Option<PathBuf>,

    /// Column of titles in that file
    #[arg(long, value_name = "COLUMN", requires = "titles")]
    title_col: Option<Column>,
}

impl TitleFlags {
    /// The titles of `items`: from the file, or from the cache at `data` where that has some.
    ///
    /// # Errors
    /// What reading the file meets.
    pub fn read(&self, data: &Path, items: &IdMap) -> Result<Option<Titles>> {
        let Some(path) = &self.titles else { return Ok(Cache::titles_of(data, items)?) };
        let mut options = TitleOptions::default();
        options.title.clone_from(&self.title_col);
        let (titles, report) = Titles::read(path, &options, items)?;
        if report.titled == 0 {
            tracing::warn!(path = %path.display(), "no line is about an item of the data: check the identifiers");
        }
        Ok(Some(titles))
    }
}

impl TrainDataFlags {
    /// The library's options.
    pub fn options(&self) -> ReadOptions {
        ReadOptions { k_core: self.k_core, ..self.reading.options() }
    }
}

impl DataFlags {
    /// The library's options for files that stand beside training data.
    pub fn options(&self) -> ReadOptions {
        ReadOptions {
            format: self.format,
            delimiter: self.delimiter,
            has_header: self.no_header.then_some(false),
            user: self.user_col.clone(),
            item: self.item_col.clone(),
            rating: self.rating_col.clone(),
            weight: self.weight_col.clone(),
            timestamp: self.time_col.clone(),
            min_rating: self.min_rating,
            binarize: self.binarize,
            k_core: None,
        }
    }
}

fn format(text: &str) -> Result<Format, String> {
    text.parse().map_err(|_| {
        let names = Format::ALL.map(Format::name).join(", ");
        format!("use one of {names}")
    })
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text {
        "tab" | "\\t" => Ok(b'\t'),
        "comma" => Ok(b','),
        "semicolon" => Ok(b';'),
        "space" => Ok(b' '),
        _ => match text.as_bytes() {
            [byte] if byte.is_ascii() => Ok(*byte),
            _ => Err("give one ASCII character, or tab, comma, semicolon or space".to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_have_names() {
        assert_eq!(delimiter("tab"), Ok(b'\t'));
        assert_eq!(delimiter("|"), Ok(b'|'));
        assert!(delimiter("::").is_err() && delimiter("é").is_err() && delimiter("").is_err());
    }
}
