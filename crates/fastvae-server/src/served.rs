//! [`Store`]: the model that is served now, and how another takes its place.
//!
//! A request takes a reference to the model once and keeps it to its end, so that a reload fails none. The old model
//! goes when its last request is done.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use fastvae::Model;
use fastvae::internals::recommend::Finder;
use fastvae::recommend::SearchOptions;
use serde::Serialize;
use utoipa::ToSchema;

/// A model with what serving adds to it.
#[derive(Debug)]
pub struct Served {
    /// The model.
    pub model: Model,
    /// Its items by title.
    pub finder: Finder,
    /// A name for this model in answers: the file's, and a mark that changes with it.
    pub name: String,
    /// Seconds since 1970 at which it was loaded.
    pub loaded_at: u64,
    /// How many models this service had loaded, this one included.
    pub generation: u64,
}

/// What lists are found with, where every item is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Vectors {
    /// The vectors of the model file.
    #[default]
    F32,
    /// A copy a quarter as large, to find candidates that are scored again with the vectors of the file.
    Int8,
}

/// What tells one version of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
    file: u64,
}

impl Stamp {
    /// Of the file at `path` as it is now.
    ///
    /// # Errors
    /// Where it cannot be looked at.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        let about = fs::metadata(path)?;
        Ok(Self { bytes: about.len(), modified: about.modified().ok(), file: about.ino() })
    }
}

/// The model that is served, and the file that it comes from.
#[derive(Debug)]
pub struct Store {
    current: ArcSwap<Served>,
    path: PathBuf,
    search: SearchOptions,
    vectors: Vectors,
    generation: AtomicU64,
    /// The file as it was when it was last loaded, or last refused; held while a model is loaded.
    stamp: Mutex<Option<Stamp>>,
}

impl Store {
    /// Loads the model at `path`.
    ///
    /// # Errors
    /// What loading it meets.
    pub fn open(path: &Path, search: SearchOptions, vectors: Vectors) -> fastvae::Result<Self> {
        let stamp = Stamp::of(path).ok();
        let served = load(path, &search, vectors, 1)?;
        Ok(Self {
            current: ArcSwap::from_pointee(served),
            path: path.to_path_buf(),
            search,
            vectors,
            generation: AtomicU64::new(1),
            stamp: Mutex::new(stamp),
        })
    }

    /// The model that is served now.
    pub fn current(&self) -> Arc<Served> {
        self.current.load_full()
    }

    /// The file that models come from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What lists are found with.
    pub fn vectors(&self) -> Vectors {
        self.vectors
    }

    /// Loads the file again and serves what it holds from now on. Where that fails the old model stays.
    ///
    /// # Errors
    /// What loading it meets.
    pub fn reload(&self) -> fastvae::Result<Arc<Served>> {
        // One at a time: two models beside the old one would be one too many in memory.
        let mut stamp = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        *stamp = Stamp::of(&self.path).ok();
        let generation = self.generation.load(Ordering::Relaxed) + 1;
        let served = Arc::new(load(&self.path, &self.search, self.vectors, generation)?);
        self.generation.store(generation, Ordering::Relaxed);
        self.current.store(Arc::clone(&served));
        Ok(served)
    }

    /// Whether the file is another than the one that was last loaded or refused.
    pub fn has_changed(&self, now: Stamp) -> bool {
        let stamp = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        *stamp != Some(now)
    }
}

fn load(path: &Path, options: &SearchOptions, vectors: Vectors, generation: u64) -> fastvae::Result<Served> {
    let mut model = Model::load(path)?;
    let is_calibrated = model.description().search.is_some_and(|search| search.target == options.recall);
    if options.codewords.is_some() || !is_calibrated {
        let users = model.users().cloned();
        model.calibrate(users.as_deref(), options)?;
    }
    // After the search was calibrated, which reads every vector in full: the pages go with the copy.
    let model = match vectors {
        Vectors::F32 => model,
        Vectors::Int8 => model.with_small_items(),
    };
    Ok(Served {
        finder: Finder::of(&model),
        name: name(path),
        loaded_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        generation,
        model,
    })
}

/// The file's name and eight digits that change when the file does.
fn name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mark = Stamp::of(path).ok().map_or(0, |stamp| {
        let modified =
            stamp.modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        // Fowler, Noll and Vo's hash: any change shows, and nobody relies on more.
        [stamp.bytes, modified.as_nanos() as u64]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    });
    format!("{stem}-{mark:08x}")
}
