//! What files of models and of runs are made of, written and read back: learned tables, identifiers, titles, histories, an
//! index.
//!
//! Files may be damaged or made to harm. Lengths are taken from arrays that lie within the file, never from numbers alone,
//! so nothing is allocated that the file does not pay for; whatever indexes something else (offsets, item positions,
//! codes) is checked. Non-finite values are refused, except in the tables with a row for each item: these are not read at
//! all, for that would cost what mapping saves.

use std::sync::Arc;

use crate::config::Quantizer;
use crate::data::{IdMap, Interactions, Titles};
use crate::error::{Error, Result};
use crate::index::{IndexSettings, InvertedMultiIndex};
use crate::math::MatrixView;
use crate::model_file::tensors::{Array, TensorFile, TensorWriter};
use crate::network::{Shape, Tables};

/// Columns of a codebook, at most: those of the widest model that a configuration allows.
const MOST_COLUMNS: usize = 1 << 14;

/// Adds learned tables, each under its name after `prefix`.
pub(crate) fn write_tables<'a>(
    writer: &mut TensorWriter<'a>,
    prefix: &str,
    tables: Tables<MatrixView<'a>>,
    shapes: Tables<Shape>,
) {
    for (name, (table, shape)) in tables.zip(shapes) {
        writer.rows(format!("{prefix}{name}"), &shape.axes(), table);
    }
}

/// The learned tables under their names after `prefix`, where they lie in the file.
pub(crate) fn read_tables(
    file: &TensorFile,
    prefix: &str,
    shapes: Tables<Shape>,
) -> Result<Tables<Array<f32>>> {
    shapes.try_map(|name, shape| {
        let name = format!("{prefix}{name}");
        match shape.of_items {
            true => file.array_of(&name, &shape.axes()),
            false => finite(file, &name, &shape.axes()),
        }
    })
}

/// An array of this shape whose values are all finite.
pub(crate) fn finite(file: &TensorFile, name: &str, shape: &[usize]) -> Result<Array<f32>> {
    let array = file.array_of::<f32>(name, shape)?;
    if !array.is_finite() {
        return Err(file.damaged(format!("array `{name}` has values that are not finite")));
    }
    Ok(array)
}

/// Adds identifiers under `name`; nothing for `0..n`.
pub(crate) fn write_ids<'a>(writer: &mut TensorWriter<'a>, name: &str, ids: &'a IdMap) {
    if let Some(integers) = ids.integers() {
        writer.array(format!("{name}.integers"), integers);
    } else if let Some((bytes, ends)) = ids.string_parts() {
        writer.array(format!("{name}.bytes"), bytes).array(format!("{name}.ends"), ends);
    }
}

/// The `n` identifiers under `name`.
pub(crate) fn read_ids(file: &TensorFile, name: &str, n: usize) -> Result<IdMap> {
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

/// Adds titles under `titles`.
pub(crate) fn write_titles<'a>(writer: &mut TensorWriter<'a>, titles: &'a Titles) {
    let (bytes, ends) = titles.parts();
    writer.array("titles.bytes", bytes).array("titles.ends", ends);
}

/// The titles of `n_items` items, where there are any.
pub(crate) fn read_titles(file: &TensorFile, n_items: usize) -> Result<Option<Titles>> {
    if !file.contains("titles.bytes") {
        return Ok(None);
    }
    let ends = file.array_of::<u64>("titles.ends", &[n_items])?;
    Titles::from_parts(file.array::<u8>("titles.bytes")?.to_vec(), ends.to_vec()).map(Some)
}

/// Adds histories under `users`, with their names under `user_ids`. Timestamps are not kept.
pub(crate) fn write_users<'a>(writer: &mut TensorWriter<'a>, users: &'a Interactions) {
    writer.positions("users.offsets", users.offsets()).array("users.items", users.items());
    if let Some(weights) = users.weights() {
        writer.array("users.weights", weights);
    }
    write_ids(writer, "user_ids", users.user_ids());
}

/// The histories over the items of `item_ids`, where there are any.
pub(crate) fn read_users(file: &TensorFile, item_ids: &Arc<IdMap>) -> Result<Option<Interactions>> {
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
    let user_ids = Arc::new(read_ids(file, "user_ids", n_users)?);
    // An offset that does not fit the machine becomes one past every row, which `from_parts` refuses.
    let offsets = offsets.iter().map(|&offset| usize::try_from(offset).unwrap_or(usize::MAX)).collect();
    Interactions::from_parts(offsets, items.to_vec(), weights, None, user_ids, Arc::clone(item_ids)).map(Some)
}

/// Adds an index under `index`.
pub(crate) fn write_index<'a>(writer: &mut TensorWriter<'a>, index: &'a InvertedMultiIndex) {
    for (j, codebook) in index.codebooks().iter().enumerate() {
        writer.matrix(format!("index.codewords.{j}"), codebook.codewords().view());
    }
    writer.shaped("index.codes", &[index.codebooks().len(), index.n_items()], index.codes());
}

/// The index over `n_items` vectors of `dim` dimensions, where there is one.
pub(crate) fn read_index(
    file: &TensorFile,
    n_items: usize,
    dim: usize,
) -> Result<Option<InvertedMultiIndex>> {
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
    // Codewords as long as the vectors are what residuals are coded by; one codebook is the same by either name.
    let quantizer = match codewords[0].cols() {
        columns if columns == dim && n_codebooks > 1 => Quantizer::Residual,
        _ => Quantizer::Product,
    };
    let settings = IndexSettings { quantizer, n_codebooks, n_codewords: codewords[0].rows() };
    InvertedMultiIndex::from_parts(settings, n_items, dim, codewords, codes.to_vec()).map(Some)
}

/// Errors of the parts, as errors of this file.
pub(crate) fn in_file<T>(file: &TensorFile, read: impl FnOnce() -> Result<T>) -> Result<T> {
    read().map_err(|error| match error {
        Error::Data { problem, .. } => file.damaged(problem),
        Error::Config { .. } => file.damaged(error.to_string()),
        error => error,
    })
}
