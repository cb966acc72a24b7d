//! [`RecommendationWriter`]: lists for many users in one file, in the layout that its extension names.

#[cfg(feature = "parquet")]
mod parquet;

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use crate::data::{IdMap, TableWriter, UserId};
use crate::error::{Error, Result};
use crate::eval::Scored;
use crate::model::Model;
use crate::write::AtomicFile;

/// How recommendations are laid out in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `user_id,item_id,rank,score`, and `title` where the model has titles; `.csv`, or `.tsv` with tabs, either
    /// followed by `.gz` or `.zst`. One line for each recommendation.
    Table,
    /// One JSON object for each user, with the list under `items`; `.jsonl` or `.ndjson`.
    JsonLines,
    /// The columns of the table; `.parquet`.
    Parquet,
}

impl Layout {
    /// The layout that the extension of `path` names.
    ///
    /// # Errors
    /// [`Error::Input`] for an extension that names none, and for `.parquet` in a build without it.
    pub fn of(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let plain = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(&name);
        let compressed = plain.len() < name.len();
        let refused = |problem: &str| Error::input(path, None, problem, "use .csv, .tsv, .jsonl or .parquet");
        match plain.rsplit_once('.').map(|(_, extension)| extension) {
            Some("csv" | "tsv") => Ok(Self::Table),
            Some("jsonl" | "ndjson") if !compressed => Ok(Self::JsonLines),
            Some("parquet") if !compressed && cfg!(feature = "parquet") => Ok(Self::Parquet),
            Some("parquet") if !compressed => Err(refused("this build does not write Parquet")),
            _ => Err(refused("the extension names no layout of recommendations")),
        }
    }
}

/// A file of recommendations under construction; it appears when [`RecommendationWriter::finish`] is called, and
/// not at all otherwise. Identifiers that are integers are written as integers where the layout has types.
pub struct RecommendationWriter<'a> {
    model: &'a Model,
    users: &'a IdMap,
    output: Output,
}

enum Output {
    Table(TableWriter),
    JsonLines(AtomicFile),
    #[cfg(feature = "parquet")]
    Parquet(parquet::ParquetOutput),
}

impl std::fmt::Debug for RecommendationWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecommendationWriter({:?})", self.model)
    }
}

impl<'a> RecommendationWriter<'a> {
    /// Starts the file that will be `path`, for lists of `model` to users named by `users`.
    ///
    /// # Errors
    /// [`Error::Input`] for an extension that names no layout, [`Error::Io`] if the file cannot be created.
    pub fn create(path: impl AsRef<Path>, model: &'a Model, users: &'a IdMap) -> Result<Self> {
        let path = path.as_ref();
        let output = match Layout::of(path)? {
            Layout::Table => {
                let mut table = TableWriter::create(path)?;
                let title = model.titles().map(|_| "title");
                table.record(["user_id", "item_id", "rank", "score"].into_iter().chain(title))?;
                Output::Table(table)
            }
            Layout::JsonLines => Output::JsonLines(AtomicFile::create(path)?),
            #[cfg(feature = "parquet")]
            Layout::Parquet => Output::Parquet(parquet::ParquetOutput::create(path, model, users)?),
            #[cfg(not(feature = "parquet"))]
            Layout::Parquet => unreachable!("`Layout::of` refuses Parquet in this build"),
        };
        Ok(Self { model, users, output })
    }

    /// Adds the list of `user`, best first.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    ///
    /// # Panics
    /// If `user` is beyond the users that the writer was created for.
    pub fn write(&mut self, user: UserId, best: &[Scored]) -> Result<()> {
        match &mut self.output {
            Output::Table(table) => {
                let name = self.users.name(user);
                for (rank, scored) in (1..).zip(best) {
                    let (rank, score): (u32, _) = (rank, scored.score);
                    let fields = [
                        name.as_ref(),
                        &self.model.item_ids().name(scored.item),
                        &rank.to_string(),
                        &score.to_string(),
                    ];
                    let title = self.model.titles().map(|titles| titles.get(scored.item).unwrap_or_default());
                    table.record(fields.into_iter().chain(title))?;
                }
                Ok(())
            }
            Output::JsonLines(file) => {
                let items = best.iter().map(|scored| JsonItem {
                    item: Name::of(self.model.item_ids(), scored.item),
                    score: scored.score,
                    title: self.model.title(scored.item),
                });
                let line = JsonLine { user: Name::of(self.users, user), items: items.collect() };
                serde_json::to_writer(&mut *file, &line)
                    .map_err(std::io::Error::from)
                    .and_then(|()| file.write_all(b"\n"))
                    .map_err(|source| Error::io(file.path(), source))
            }
            #[cfg(feature = "parquet")]
            Output::Parquet(output) => output.write(self.model, self.users, user, best),
        }
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    pub fn finish(self) -> Result<()> {
        match self.output {
            Output::Table(table) => table.finish(),
            Output::JsonLines(file) => file.commit(),
            #[cfg(feature = "parquet")]
            Output::Parquet(output) => output.finish(self.model, self.users),
        }
    }
}

#[derive(Serialize)]
struct JsonLine<'a> {
    user: Name,
    items: Vec<JsonItem<'a>>,
}

#[derive(Serialize)]
struct JsonItem<'a> {
    item: Name,
    score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
}

/// An identifier with its type.
#[derive(Serialize)]
#[serde(untagged)]
enum Name {
    Integer(i64),
    Text(String),
}

impl Name {
    fn of(ids: &IdMap, position: u32) -> Self {
        let name = ids.name(position);
        match name.parse() {
            Ok(integer) if ids.is_integers() => Self::Integer(integer),
            _ => Self::Text(name.into_owned()),
        }
    }
}
