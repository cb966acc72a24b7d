//! Sparse matrices saved by `scipy.sparse.save_npz`: compressed rows, compressed columns or coordinates.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::data::read::collect::Collector;
use crate::data::read::npy::{self, Number};
use crate::data::read::source::Source;
use crate::data::read::zip::{self, Member};
use crate::error::{Error, Result};

const REMEDY: &str = "write it with scipy.sparse.save_npz as a CSR matrix of users x items";

/// Reads the file behind `source` from its own end, where the list of arrays is.
pub(crate) fn read(source: &Source, rows: &mut Collector<'_>) -> Result<()> {
    let path = rows.path;
    if source.is_compressed() {
        return Err(Error::input(path, None, "the archive is compressed again", "decompress it first"));
    }
    let mut archive = Archive::open(path)?;
    let layout = archive.array("format", |input| npy::text(input))?;
    let shape = archive.array("shape", |input| npy::numbers(input, wide))?;
    let [n_rows, n_columns] = shape[..] else {
        return Err(Error::input(path, None, format!("the shape has {} sizes, not 2", shape.len()), REMEDY));
    };
    rows.declare(n_rows, n_columns)?;
    let values = archive.array("data", |input| npy::numbers(input, |value| Some(float(value))))?;
    // Ones, the usual case, need not be looked at again.
    let values = values.iter().any(|&value| value != 1.0).then_some(values);
    match layout.as_str() {
        "csr" | "csc" => {
            let starts = archive.array("indptr", |input| npy::numbers(input, wide))?;
            let indices = archive.array("indices", |input| npy::numbers(input, narrow))?;
            let by_rows = layout == "csr";
            let (n_major, n_minor) = if by_rows { (n_rows, n_columns) } else { (n_columns, n_rows) };
            let n_entries = indices.len() as u64;
            if starts.len() as u64 != n_major + 1
                || starts[0] != 0
                || starts.last() != Some(&n_entries)
                || starts.windows(2).any(|pair| pair[0] > pair[1])
            {
                return Err(contradiction(path, "indptr"));
            }
            check_lengths(path, values.as_deref(), indices.len())?;
            for (major, span) in starts.windows(2).enumerate() {
                for at in span[0] as usize..span[1] as usize {
                    let minor = u64::from(indices[at]);
                    if minor >= n_minor {
                        return Err(contradiction(path, "indices"));
                    }
                    let value = values.as_ref().map(|values| f64::from(values[at]));
                    let major = major as u64;
                    let (row, column) = if by_rows { (major, minor) } else { (minor, major) };
                    rows.push_entry(row, column, value, None)?;
                }
            }
        }
        "coo" => {
            let row_numbers = archive.array("row", |input| npy::numbers(input, narrow))?;
            let column_numbers = archive.array("col", |input| npy::numbers(input, narrow))?;
            check_lengths(path, values.as_deref(), row_numbers.len())?;
            if row_numbers.len() != column_numbers.len() {
                return Err(contradiction(path, "col"));
            }
            for (at, (&row, &column)) in row_numbers.iter().zip(&column_numbers).enumerate() {
                let (row, column) = (u64::from(row), u64::from(column));
                if row >= n_rows || column >= n_columns {
                    return Err(contradiction(path, "row"));
                }
                rows.push_entry(row, column, values.as_ref().map(|values| f64::from(values[at])), None)?;
            }
        }
        other => {
            return Err(Error::input(path, None, format!("the sparse layout `{other}` is not read"), REMEDY));
        }
    }
    Ok(())
}

struct Archive<'a> {
    path: &'a Path,
    file: File,
    members: Vec<Member>,
}

impl<'a> Archive<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let mut file = File::open(path).map_err(|source| Error::io(path, source))?;
        let members = zip::members(&mut file).map_err(|error| damaged(path, "the archive", &error))?;
        Ok(Self { path, file, members })
    }

    fn array<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&mut Box<dyn io::Read + '_>) -> io::Result<T>,
    ) -> Result<T> {
        let file_name = format!("{name}.npy");
        let Some(member) = self.members.iter().find(|member| member.name == file_name) else {
            let names: Vec<&str> = self.members.iter().map(|member| member.name.as_str()).collect();
            let problem = format!("there is no array `{name}` among {}", names.join(", "));
            return Err(Error::input(self.path, None, problem, REMEDY));
        };
        zip::open(&mut self.file, member)
            .and_then(|mut input| parse(&mut input))
            .map_err(|error| damaged(self.path, &format!("the array `{name}`"), &error))
    }
}

fn wide(value: Number) -> Option<u64> {
    match value {
        Number::Integer(value) => u64::try_from(value).ok(),
        Number::Float(_) => None,
    }
}

fn narrow(value: Number) -> Option<u32> {
    wide(value).and_then(|value| u32::try_from(value).ok())
}

fn float(value: Number) -> f32 {
    match value {
        Number::Integer(value) => value as f32,
        Number::Float(value) => value as f32,
    }
}

fn check_lengths(path: &Path, values: Option<&[f32]>, n_entries: usize) -> Result<()> {
    if values.is_some_and(|values| values.len() != n_entries) {
        return Err(contradiction(path, "data"));
    }
    Ok(())
}

fn contradiction(path: &Path, name: &str) -> Error {
    Error::input(path, None, format!("the array `{name}` contradicts the shape"), REMEDY)
}

fn damaged(path: &Path, what: &str, error: &io::Error) -> Error {
    let problem = match error.kind() {
        io::ErrorKind::UnexpectedEof => format!("{what} ends too early"),
        _ => format!("{what} cannot be read: {error}"),
    };
    Error::input(path, None, problem, REMEDY)
}
