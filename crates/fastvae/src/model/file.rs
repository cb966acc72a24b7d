//! One file that holds everything a model needs to serve: `*.fastvae`.
//!
//! A model file is a file of named arrays ([`crate::model_file`]; safetensors) of format [`FORMAT`]:
//!
//! | array | type and shape | |
//! |---|---|---|
//! | `item_counts` | u32, n_items | users who touched each item in training |
//! | `item_ids.integers`, or `item_ids.bytes` and `.ends` | i64; u8 and u64 | outside identifiers; neither for `0..n_items` |
//! | `titles.bytes`, `titles.ends` | u8, u64 | optional |
//! | `index.codewords.J`, `index.codes` | f32, K x columns; u8, m x n_items | optional |
//! | `users.offsets`, `users.items`, `users.weights` | u64, u32, f32 | optional histories, with `user_ids` as for items |
//!
//! and what the method has learned: the tables of [`crate::network::Tables`] by their names, or the arrays of a baseline
//! ([`crate::baseline`]). What stands beside a network, from format 3 on, has `linear.offsets`, `.items` and `.values` (u64, u32,
//! f32): for each item of a history, those that it speaks for.
//!
//! Its texts are `kind` (`model`), `format`, and `description`: a [`Description`] in JSON. In format 1, which is still
//! read, files of baselines were of kind `baseline`.

use std::path::Path;
use std::sync::Arc;

use crate::baseline::{self, Method};
use crate::error::{Error, Result};
use crate::model::linear::Linear;
use crate::model::{Description, Index, Model, ModelInternals, Settings, Vae};
use crate::model_file::parts::{self, in_file};
use crate::model_file::tensors::{TensorFile, TensorWriter};

/// The version of the layout that this library writes, and the newest that it reads.
pub const FORMAT: u32 = 3;

/// The text `kind` of model files, and what it was for baselines in format 1.
const KINDS: [&str; 2] = ["model", "baseline"];
/// Items have positions of 32 bits.
const MOST_ITEMS: usize = u32::MAX as usize - 1;

impl Model {
    /// Maps the model at `path`. Learned values stay in the file and are read as they are needed.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened, [`Error::ModelFile`] if it is damaged, something else, or newer
    /// than this library.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let file = &TensorFile::open(path)?;
        check_format(file)?;
        let description: Description = description(file)?;
        let item_counts = file.array::<u32>("item_counts")?;
        // The catalogue is as long as the bytes of this array say; nothing is allocated that the file does not pay for.
        let &[n_items @ 1..=MOST_ITEMS] = item_counts.shape() else {
            return Err(file.damaged(format!("the item counts are {:?}", item_counts.shape())));
        };
        let method: Box<dyn Method> = match &description.settings {
            Settings::Vae(config) => {
                let linear = match &description.blend {
                    Some(blend) => Some(Linear::read(file, blend, &item_counts)?),
                    None => None,
                };
                let pair = description.learned.is_some_and(|learned| learned.pair);
                Box::new(Vae::read(file, config, n_items, pair)?.with_linear(linear))
            }
            Settings::Baseline(settings) => baseline::read(file, settings, n_items, &item_counts)?,
        };
        let item_ids = Arc::new(in_file(file, || parts::read_ids(file, "item_ids", n_items))?);
        let index = match method.item_table() {
            Some(table) => in_file(file, || parts::read_index(file, n_items, table.vectors.cols()))?,
            None => None,
        };
        let titles = in_file(file, || parts::read_titles(file, n_items))?;
        let users = in_file(file, || parts::read_users(file, &item_ids))?;
        let mut model = Self::of(method, item_ids, item_counts.to_vec(), description)?;
        model.catalogue.titles = titles;
        model.catalogue.users = users.map(Arc::new);
        model.index = index.map(Index::of);
        Ok(model)
    }

    /// Writes the model to `path`, which appears whole or not at all. Learned values are streamed; nothing is copied.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    ///
    /// # Panics
    /// Never: a description is always JSON.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write(path.as_ref(), true)
    }

    /// As [`Model::save`], without the histories of the training users.
    ///
    /// # Errors
    /// As [`Model::save`].
    pub fn save_without_users(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write(path.as_ref(), false)
    }

    fn write(&self, path: &Path, with_users: bool) -> Result<()> {
        let description = serde_json::to_string(&self.description).expect("a description is JSON");
        let mut writer = TensorWriter::new();
        writer
            .metadata("kind", KINDS[0])
            .metadata("format", FORMAT.to_string())
            .metadata("description", description)
            .array("item_counts", self.item_counts());
        self.method.write(&mut writer);
        parts::write_ids(&mut writer, "item_ids", self.item_ids());
        if let Some(titles) = self.titles() {
            parts::write_titles(&mut writer, titles);
        }
        if let Some(index) = self.index() {
            parts::write_index(&mut writer, index);
        }
        if let Some(users) = self.users().filter(|_| with_users) {
            parts::write_users(&mut writer, users);
        }
        writer.write(path)
    }
}

/// Refuses files that do not hold a model, or are newer than this library.
fn check_format(file: &TensorFile) -> Result<()> {
    let remedy = "give a file that was saved as a model";
    match file.metadata("kind") {
        Some(kind) if KINDS.contains(&kind) => {}
        Some(kind) => {
            let problem = format!("holds a {kind}, not a {}", KINDS[0]);
            return Err(Error::model_file(file.path(), problem, remedy));
        }
        None => {
            let problem = "is a safetensors file, but not a model of this library";
            return Err(Error::model_file(file.path(), problem, remedy));
        }
    }
    match file.metadata("format").and_then(|format| format.parse::<u32>().ok()) {
        Some(1..=FORMAT) => Ok(()),
        Some(newer) if newer > FORMAT => Err(Error::model_file(
            file.path(),
            format!("has format {newer}; this version of fastvae reads formats up to {FORMAT}"),
            "upgrade fastvae",
        )),
        _ => Err(file.damaged("has no valid format number")),
    }
}

fn description(file: &TensorFile) -> Result<Description> {
    let text = file.metadata("description").ok_or_else(|| file.damaged("has no description"))?;
    serde_json::from_str(text)
        .map_err(|problem| file.damaged(format!("the description is not valid: {problem}")))
}
