//! Reading a model, from files that may be damaged or made to harm.
//!
//! Lengths are taken from arrays that lie within the file, never from numbers alone, so nothing is allocated
//! that the file does not pay for. Whatever indexes something else (offsets, item positions, codes) is checked.
//! Non-finite values are refused in the small arrays; the two item tables are not read at all, for that would
//! cost what mapping saves. A NaN there can only keep its items from being ranked (see
//! [`Model::is_finite`]).

use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::data::{IdMap, Interactions, Titles};
use crate::error::{Error, Result};
use crate::index::{IndexSettings, InvertedMultiIndex};
use crate::model_file::description::Description;
use crate::model_file::model::{Model, Storage};
use crate::model_file::tensors::{Array, TensorFile};
use crate::model_file::{FORMAT, KIND};

/// Columns of a codebook, at most: those of the widest model that a configuration allows.
const MOST_COLUMNS: usize = 1 << 14;

impl Model {
    /// Maps the model at `path`. Parameters stay in the file and are read as they are needed.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened, [`Error::ModelFile`] if it is damaged, something else, or newer
    /// than this library.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let file = TensorFile::open(path)?;
        check_format(&file, KIND)?;
        let description: Description = description(&file)?;
        let (hidden, latent) = (description.config.hidden, description.config.latent);
        let n_items = match file.array::<f32>("items")?.shape() {
            // The vectors are as long as the file says the table is: n_items is paid for by its bytes.
            &[n_items, columns] if columns == latent && latent > 0 && n_items > 0 => n_items,
            shape => {
                return Err(
                    file.damaged(format!("item vectors are {shape:?} for {latent} latent dimensions"))
                );
            }
        };
        let columns = description.config.encoder_columns();
        if hidden == 0 {
            return Err(file.damaged("the hidden layer has width 0"));
        }
        let (item_ids, item_counts) = in_file(&file, || {
            Ok((
                Arc::new(ids(&file, "item_ids", n_items)?),
                file.array_of::<u32>("item_counts", &[n_items])?.to_vec(),
            ))
        })?;
        let item_bias = match file.contains("item_bias") {
            true => Some(finite(&file, "item_bias", &[n_items])?),
            false => None,
        };
        let parameters = Storage::File {
            activation: description.config.activation,
            encoder: file.array_of("encoder", &[n_items, columns])?,
            encoder_map: match description.config.encoder_rank {
                0 => None,
                rank => Some(finite(&file, "encoder_map", &[rank, hidden])?),
            },
            hidden_bias: finite(&file, "hidden_bias", &[hidden])?,
            head: finite(&file, "head", &[hidden, 2 * latent])?,
            head_bias: finite(&file, "head_bias", &[2 * latent])?,
            items: file.array_of("items", &[n_items, latent])?,
            item_bias,
        };
        Ok(Self {
            parameters,
            titles: in_file(&file, || titles(&file, n_items))?,
            index: in_file(&file, || index(&file, &description, n_items))?,
            users: in_file(&file, || users(&file, &item_ids))?,
            item_ids,
            item_counts,
            description,
            inverse_norms: OnceLock::new(),
            log_counts: OnceLock::new(),
            small_items: None,
        })
    }
}

/// Refuses files that do not hold what `expected` names, or are newer than this library.
pub(crate) fn check_format(file: &TensorFile, expected: &str) -> Result<()> {
    match file.metadata("kind") {
        Some(kind) if kind == expected => {}
        Some(kind) => {
            let problem = format!("holds a {kind}, not a {expected}");
            return Err(Error::model_file(file.path(), problem, "give a file that was saved as a model"));
        }
        None => {
            return Err(Error::model_file(
                file.path(),
                "is a safetensors file, but not a model of this library",
                "give a file that was saved as a model",
            ));
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

/// The description in JSON.
pub(crate) fn description<T: serde::de::DeserializeOwned>(file: &TensorFile) -> Result<T> {
    let text = file.metadata("description").ok_or_else(|| file.damaged("has no description"))?;
    serde_json::from_str(text)
        .map_err(|problem| file.damaged(format!("the description is not valid: {problem}")))
}

/// An array of this shape whose values are all finite.
fn finite(file: &TensorFile, name: &str, shape: &[usize]) -> Result<Array<f32>> {
    let array = file.array_of::<f32>(name, shape)?;
    if !array.is_finite() {
        return Err(file.damaged(format!("array `{name}` has values that are not finite")));
    }
    Ok(array)
}

pub(crate) fn ids(file: &TensorFile, name: &str, n: usize) -> Result<IdMap> {
    let (integers, bytes) = (format!("{name}.integers"), format!("{name}.bytes"));
    if file.contains(&integers) {
        IdMap::from_integers(file.array_of::<i64>(&integers, &[n])?.to_vec())
    } else if file.contains(&bytes) {
        let ends = file.array_of::<u64>(&format!("{name}.ends"), &[n])?;
        IdMap::from_string_parts(file.array::<u8>(&bytes)?.to_vec(), ends.to_vec())
    } else if n > u32::MAX as usize - 1 {
        Err(file.damaged(format!("{n} identifiers are more than positions")))
    } else {
        Ok(IdMap::range(n))
    }
}

pub(crate) fn titles(file: &TensorFile, n_items: usize) -> Result<Option<Titles>> {
    if !file.contains("titles.bytes") {
        return Ok(None);
    }
    let ends = file.array_of::<u64>("titles.ends", &[n_items])?;
    Titles::from_parts(file.array::<u8>("titles.bytes")?.to_vec(), ends.to_vec()).map(Some)
}

fn index(file: &TensorFile, description: &Description, n_items: usize) -> Result<Option<InvertedMultiIndex>> {
    if !file.contains("index.codes") {
        return Ok(None);
    }
    let codes = file.array::<u8>("index.codes")?;
    let &[n_codebooks @ 1..=4, _] = codes.shape() else {
        return Err(file.damaged(format!("the codes are {:?}", codes.shape())));
    };
    let mut codewords = Vec::with_capacity(n_codebooks);
    for j in 0..n_codebooks {
        let name = format!("index.codewords.{j}");
        let codebook = file.array::<f32>(&name)?;
        let &[1..=256, 1..=MOST_COLUMNS] = codebook.shape() else {
            return Err(file.damaged(format!("array `{name}` is {:?}", codebook.shape())));
        };
        codewords.push(codebook.to_matrix());
    }
    let settings = IndexSettings {
        quantizer: description.config.quantizer,
        n_codebooks,
        n_codewords: codewords[0].rows(),
    };
    let dim = description.config.latent;
    InvertedMultiIndex::from_parts(settings, n_items, dim, codewords, codes.to_vec()).map(Some)
}

pub(crate) fn users(file: &TensorFile, item_ids: &Arc<IdMap>) -> Result<Option<Arc<Interactions>>> {
    if !file.contains("users.offsets") {
        return Ok(None);
    }
    let offsets = file.array::<u64>("users.offsets")?;
    let Some(n_users) = offsets.len().checked_sub(1) else {
        return Err(file.damaged("the histories have no offsets"));
    };
    let items = file.array::<u32>("users.items")?;
    let weights = match file.contains("users.weights") {
        true => Some(finite(file, "users.weights", &[items.len()])?.to_vec()),
        false => None,
    };
    let user_ids = Arc::new(ids(file, "user_ids", n_users)?);
    // An offset that does not fit the machine becomes one past every row, which `from_parts` refuses.
    let offsets = offsets.iter().map(|&offset| usize::try_from(offset).unwrap_or(usize::MAX)).collect();
    let histories =
        Interactions::from_parts(offsets, items.to_vec(), weights, None, user_ids, Arc::clone(item_ids))?;
    Ok(Some(Arc::new(histories)))
}

/// Errors of the parts, as errors of this file.
pub(crate) fn in_file<T>(file: &TensorFile, read: impl FnOnce() -> Result<T>) -> Result<T> {
    read().map_err(|error| match error {
        Error::Data { problem, .. } => file.damaged(problem),
        Error::Config { .. } => file.damaged(error.to_string()),
        error => error,
    })
}
