//! [`Baseline`]: a trained baseline with the names of its items, in memory or in a file.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::baseline::ease::Ease;
use crate::baseline::factors::Factors;
use crate::baseline::item_knn::ItemKnn;
use crate::baseline::method::Method;
use crate::baseline::popularity::Popularity;
use crate::baseline::settings::{Kind, Settings};
use crate::baseline::wrmf::Wrmf;
use crate::data::{IdMap, Interactions, ItemId, Statistics, Titles};
use crate::error::{Error, Result};
use crate::eval::{BlockScores, Evaluation, Scored, Scorer, Viewer};
use crate::model_file::load::{self, check_format, in_file};
use crate::model_file::tensors::{TensorFile, TensorWriter};
use crate::model_file::{self, Model, save};
use crate::proposal::ItemTable;
use crate::recommend::{Recommender, ascending, best};

/// The text `kind` of files of baselines.
const KIND: &str = "baseline";
/// Items have positions of 32 bits.
const MOST_ITEMS: usize = u32::MAX as usize - 1;

/// What is worth knowing about a baseline beside its numbers; JSON in the header of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BaselineDescription {
    /// Version of the library that trained it.
    #[serde(rename = "library_version")]
    pub trained_by: String,
    /// What was trained, and how.
    pub settings: Settings,
    /// The training data: [`Statistics`] as JSON.
    #[serde(default)]
    pub statistics: Option<serde_json::Value>,
    /// How well it did on held-out data, where it was evaluated.
    #[serde(default)]
    pub evaluation: Option<Evaluation>,
}

/// A trained baseline; [`crate::baseline::fit`] makes one.
pub struct Baseline {
    method: Box<dyn Method>,
    item_ids: Arc<IdMap>,
    item_counts: Vec<u32>,
    titles: Option<Titles>,
    users: Option<Arc<Interactions>>,
    description: BaselineDescription,
}

impl fmt::Debug for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Baseline({}, {} items)", self.kind(), self.n_items())
    }
}

impl Baseline {
    pub(super) fn new(method: Box<dyn Method>, data: &Interactions, settings: Settings) -> Self {
        let statistics =
            serde_json::to_value(Statistics::of(data)).expect("plain structs always become JSON");
        Self {
            method,
            item_ids: Arc::clone(data.item_ids()),
            item_counts: data.item_counts(),
            titles: None,
            users: None,
            description: BaselineDescription {
                trained_by: env!("CARGO_PKG_VERSION").to_string(),
                settings,
                statistics: Some(statistics),
                evaluation: None,
            },
        }
    }

    /// Which baseline.
    pub fn kind(&self) -> Kind {
        self.description.settings.kind()
    }

    /// Where it comes from.
    pub fn description(&self) -> &BaselineDescription {
        &self.description
    }

    /// Where it comes from, to complete.
    pub fn description_mut(&mut self) -> &mut BaselineDescription {
        &mut self.description
    }

    /// The same baseline with titles.
    ///
    /// # Errors
    /// [`Error::Data`] if there is not one for each item.
    pub fn with_titles(mut self, titles: Titles) -> Result<Self> {
        if titles.len() != self.n_items() {
            return Err(Error::data(
                format!("{} titles for {} items", titles.len(), self.n_items()),
                "give the titles of this catalogue",
            ));
        }
        self.titles = Some(titles);
        Ok(self)
    }

    /// The same baseline with the histories of users, so that it can recommend to them by name.
    ///
    /// # Errors
    /// [`Error::Data`] if they are over other items.
    pub fn with_users(mut self, users: Arc<Interactions>) -> Result<Self> {
        if users.item_ids() != &self.item_ids {
            return Err(Error::data(
                "the histories and the baseline name their items differently",
                "give the data that it was trained on",
            ));
        }
        self.users = Some(users);
        Ok(self)
    }

    /// Maps the baseline at `path`.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened, [`Error::ModelFile`] if it is damaged, something else, or newer
    /// than this library.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(&TensorFile::open(path)?)
    }

    fn read(file: &TensorFile) -> Result<Self> {
        check_format(file, KIND)?;
        let description: BaselineDescription = load::description(file)?;
        in_file(file, || description.settings.validate())?;
        let item_counts = file.array::<u32>("item_counts")?;
        // The catalogue is as long as the bytes of this array say; nothing is allocated that the file does not pay for.
        let &[n_items @ 1..=MOST_ITEMS] = item_counts.shape() else {
            return Err(file.damaged(format!("the item counts are {:?}", item_counts.shape())));
        };
        let method: Box<dyn Method> = match &description.settings {
            Settings::Popularity => Box::new(Popularity::new(&item_counts)),
            Settings::ItemKnn(_) => Box::new(ItemKnn::read(file, n_items)?),
            Settings::Ease(_) => Box::new(Ease::read(file, n_items)?),
            Settings::Wrmf(settings) => Box::new(Wrmf::read(file, n_items, settings)?),
            Settings::Bpr(settings)
            | Settings::Warp(settings)
            | Settings::Aobpr(settings)
            | Settings::Dns(settings)
            | Settings::Pris(settings)
            | Settings::Sa(settings) => {
                let kind = description.settings.kind();
                in_file(file, || Factors::read(file, n_items, kind, settings.factors)).map(Box::new)?
            }
        };
        let item_ids = Arc::new(in_file(file, || load::ids(file, "item_ids", n_items))?);
        Ok(Self {
            method,
            titles: in_file(file, || load::titles(file, n_items))?,
            users: in_file(file, || load::users(file, &item_ids))?,
            item_ids,
            item_counts: item_counts.to_vec(),
            description,
        })
    }

    fn write(&self, path: &Path, users: Option<&Interactions>) -> Result<()> {
        let description = serde_json::to_string(&self.description).expect("a description is JSON");
        let mut writer = TensorWriter::new();
        writer
            .metadata("kind", KIND)
            .metadata("format", model_file::FORMAT.to_string())
            .metadata("description", description)
            .array("item_counts", &self.item_counts);
        self.method.write(&mut writer);
        save::add_ids(&mut writer, "item_ids", &self.item_ids);
        if let Some(titles) = &self.titles {
            save::add_titles(&mut writer, titles);
        }
        if let Some(users) = users {
            save::add_users(&mut writer, users);
        }
        writer.write(path)
    }
}

impl Scorer for Baseline {
    fn n_items(&self) -> usize {
        self.item_counts.len()
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        self.method.block(viewers)
    }

    fn user_ids(&self) -> Option<&Arc<IdMap>> {
        self.method.user_ids()
    }

    fn item_table(&self) -> Option<ItemTable<'_>> {
        self.method.item_table()
    }
}

impl Recommender for Baseline {
    fn item_ids(&self) -> &Arc<IdMap> {
        &self.item_ids
    }

    fn item_counts(&self) -> &[u32] {
        &self.item_counts
    }

    fn titles(&self) -> Option<&Titles> {
        self.titles.as_ref()
    }

    fn users(&self) -> Option<&Arc<Interactions>> {
        self.users.as_ref()
    }

    fn similar(&self, item: ItemId, n: usize) -> Result<Vec<Scored>> {
        let itself = ascending(self.n_items(), &[item])?;
        let mut scores = vec![0.0; self.n_items()];
        self.method.likeness(item, &mut scores)?;
        Ok(best(self.n_items(), n, &itself, |first, part| {
            part.copy_from_slice(&scores[first..first + part.len()]);
        }))
    }

    fn save(&self, path: &Path) -> Result<()> {
        self.write(path, self.users.as_deref())
    }

    fn save_without_users(&self, path: &Path) -> Result<()> {
        self.write(path, None)
    }
}

/// Opens a model or a baseline, whichever is at `path`.
///
/// # Errors
/// As [`Model::load`].
pub fn load(path: impl AsRef<Path>) -> Result<Box<dyn Recommender>> {
    let file = TensorFile::open(path.as_ref())?;
    match file.metadata("kind") {
        Some(KIND) => Ok(Box::new(Baseline::read(&file)?)),
        // Whatever else it is, the model's reader says what is wrong with it.
        _ => Ok(Box::new(Model::load(path)?)),
    }
}

/// Whether the file at `path` holds a baseline rather than a model.
///
/// # Errors
/// [`Error::Io`] if it cannot be opened, [`Error::ModelFile`] if it is neither.
pub fn is_baseline(path: impl AsRef<Path>) -> Result<bool> {
    Ok(TensorFile::open(path)?.metadata("kind") == Some(KIND))
}
