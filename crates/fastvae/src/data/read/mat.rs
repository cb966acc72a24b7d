//! MATLAB version 5 files with a sparse matrix ("MAT-File Format", MathWorks; level 5).
//!
//! A file is a header of 128 bytes and a list of elements: a tag (type, size), the data, padding to 8 bytes.
//! A variable is an element of elements, usually inside a zlib stream. A sparse one holds flags, sizes, a name,
//! row numbers, column starts and values, column by column.

use std::io::{self, Read};
use std::path::Path;

use crate::data::read::collect::Collector;
use crate::data::read::source::{Source, unreadable};
use crate::error::{Error, Result};

const COMPRESSED: u32 = 15;
const MATRIX: u32 = 14;
const SPARSE_CLASS: u32 = 5;
const COMPLEX: u32 = 0x0800;

/// The variable that is taken where there are several.
const NAME: &str = "data";

/// Reads the variable `data`, or the only sparse one, as users x items.
pub(crate) fn read(mut source: Source, rows: &mut Collector<'_>) -> Result<()> {
    let path = rows.path;
    check_header(&mut source, path)?;
    let mut found: Option<Sparse> = None;
    let mut sparse_names = Vec::new();
    let mut other_names = Vec::new();
    while let Some(tag) = Tag::read_or_end(&mut source, path)? {
        let mut body = source.by_ref().take(u64::from(tag.size));
        let variable = match tag.kind {
            COMPRESSED => {
                let mut inner = flate2::read::ZlibDecoder::new(&mut body);
                let inner_tag = Tag::read(&mut inner, path)?;
                let found = if inner_tag.kind == MATRIX { Some(variable(&mut inner, path)?) } else { None };
                // The checksum stands at the end.
                io::copy(&mut inner, &mut io::sink()).map_err(|error| damaged(path, error))?;
                found
            }
            MATRIX => Some(variable(&mut body, path)?),
            _ => None,
        };
        io::copy(&mut body, &mut io::sink()).map_err(|error| damaged(path, error))?;
        match variable {
            Some(Variable::Sparse(sparse)) => {
                sparse_names.push(sparse.name.clone());
                let is_wanted = sparse.name == NAME;
                if is_wanted || found.is_none() {
                    found = Some(sparse);
                }
                if is_wanted {
                    sparse_names = vec![NAME.to_string()];
                    break;
                }
            }
            Some(Variable::Other(name)) => other_names.push(name),
            None => {}
        }
    }
    match (found, &sparse_names[..]) {
        (Some(sparse), [_]) => sparse.push_into(rows),
        (None, _) => Err(Error::input(
            path,
            None,
            format!("there is no sparse matrix, only [{}]", other_names.join(", ")),
            "save users x items as a sparse matrix named `data`",
        )),
        (Some(_), names) => Err(Error::input(
            path,
            None,
            format!("there are {} sparse matrices: {}", names.len(), names.join(", ")),
            "name the one with users x items `data`, or save it alone",
        )),
    }
}

fn check_header(source: &mut Source, path: &Path) -> Result<()> {
    let unusable = |problem: &str, remedy: &str| Err(Error::input(path, None, problem, remedy));
    let mut header = [0; 128];
    if source.sample().starts_with(b"\x89HDF") {
        return unusable("this is a version 7.3 file (HDF5)", "save it with save(..., '-v7')");
    }
    source.read_exact(&mut header).map_err(|error| damaged(path, error))?;
    // Version 7.3 puts the HDF5 data behind a header that looks like version 5.
    if header.starts_with(b"MATLAB 7.3") {
        return unusable("this is a version 7.3 file (HDF5)", "save it with save(..., '-v7')");
    }
    match &header[126..] {
        b"IM" => Ok(()),
        b"MI" => unusable("this file is big endian", "save it again on a common computer"),
        _ => {
            unusable("this is not a MATLAB version 5 file", "save it with save(..., '-v7'), or give --format")
        }
    }
}

enum Variable {
    Sparse(Sparse),
    Other(String),
}

/// A sparse matrix in compressed columns.
struct Sparse {
    name: String,
    n_rows: u64,
    rows: Vec<u32>,
    starts: Vec<u32>,
    /// Absent where all are 1.
    values: Option<Vec<f64>>,
}

fn variable(input: &mut impl Read, path: &Path) -> Result<Variable> {
    let flags = Element::read(input, path)?.integers(path)?;
    let sizes = Element::read(input, path)?.integers(path)?;
    let name = String::from_utf8_lossy(&Element::read(input, path)?.data).into_owned();
    let flag = flags.first().copied().unwrap_or(0);
    if flag & 0xff != SPARSE_CLASS {
        return Ok(Variable::Other(name));
    }
    if flag & COMPLEX != 0 {
        return Err(Error::input(
            path,
            None,
            format!("the matrix `{name}` is complex"),
            "save its real part",
        ));
    }
    let rows = Element::read(input, path)?.integers(path)?;
    let starts = Element::read(input, path)?.integers(path)?;
    let values = Element::read(input, path)?.numbers(path)?;
    let n_entries = starts.last().copied().unwrap_or(0) as usize;
    let [n_rows, n_columns] = sizes[..] else { return Err(inconsistent(path, &name)) };
    // The arrays may be longer than the entries: MATLAB allocates ahead.
    if starts.len() != n_columns as usize + 1
        || starts[0] != 0
        || starts.windows(2).any(|pair| pair[0] > pair[1])
        || rows.len() < n_entries
        || values.len() < n_entries
        || rows[..n_entries].iter().any(|&row| row >= n_rows)
    {
        return Err(inconsistent(path, &name));
    }
    let values = values[..n_entries].iter().any(|&value| value != 1.0).then_some(values);
    Ok(Variable::Sparse(Sparse { name, n_rows: u64::from(n_rows), rows, starts, values }))
}

impl Sparse {
    fn push_into(self, rows: &mut Collector<'_>) -> Result<()> {
        rows.declare(self.n_rows, self.starts.len() as u64 - 1)?;
        for (column, span) in self.starts.windows(2).enumerate() {
            for at in span[0] as usize..span[1] as usize {
                let value = self.values.as_ref().map(|values| values[at]);
                rows.push_entry(u64::from(self.rows[at]), column as u64, value, None)?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Tag {
    kind: u32,
    size: u32,
    /// The data of a small element, which stand inside the tag.
    small: Option<[u8; 4]>,
}

impl Tag {
    fn read(input: &mut impl Read, path: &Path) -> Result<Self> {
        let mut bytes = [0; 8];
        input.read_exact(&mut bytes).map_err(|error| damaged(path, error))?;
        Ok(Self::parse(bytes))
    }

    fn read_or_end(source: &mut Source, path: &Path) -> Result<Option<Self>> {
        let mut bytes = Vec::new();
        source.by_ref().take(8).read_to_end(&mut bytes).map_err(|error| damaged(path, error))?;
        match <[u8; 8]>::try_from(bytes) {
            Ok(bytes) => Ok(Some(Self::parse(bytes))),
            Err(bytes) if bytes.is_empty() => Ok(None),
            Err(_) => Err(damaged(path, io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn parse(bytes: [u8; 8]) -> Self {
        let [a, b, c, d, data @ ..] = bytes;
        let first = u32::from_le_bytes([a, b, c, d]);
        match first >> 16 {
            0 => Self { kind: first, size: u32::from_le_bytes(data), small: None },
            size => Self { kind: first & 0xffff, size, small: Some(data) },
        }
    }
}

struct Element {
    kind: u32,
    data: Vec<u8>,
}

impl Element {
    fn read(input: &mut impl Read, path: &Path) -> Result<Self> {
        let tag = Tag::read(input, path)?;
        if let Some(small) = tag.small {
            let data = small.get(..tag.size as usize).ok_or_else(|| inconsistent(path, "?"))?;
            return Ok(Self { kind: tag.kind, data: data.to_vec() });
        }
        // `take` and not a buffer of the announced size: a damaged size must not allocate gigabytes.
        let mut data = Vec::new();
        let padded = u64::from(tag.size).next_multiple_of(8);
        input.take(padded).read_to_end(&mut data).map_err(|error| damaged(path, error))?;
        if data.len() < tag.size as usize {
            return Err(damaged(path, io::ErrorKind::UnexpectedEof.into()));
        }
        data.truncate(tag.size as usize);
        Ok(Self { kind: tag.kind, data })
    }

    fn integers(&self, path: &Path) -> Result<Vec<u32>> {
        match self.kind {
            1..=6 => self.values(path, |value| value as u32),
            _ => Err(inconsistent(path, "?")),
        }
    }

    fn numbers(&self, path: &Path) -> Result<Vec<f64>> {
        self.values(path, |value| value)
    }

    /// MATLAB stores numbers in the smallest type that holds them, whatever the type of the matrix.
    fn values<T>(&self, path: &Path, from: impl Fn(f64) -> T) -> Result<Vec<T>> {
        macro_rules! read_as {
            ($type:ty) => {{
                let (values, rest) = self.data.as_chunks::<{ size_of::<$type>() }>();
                if !rest.is_empty() {
                    return Err(inconsistent(path, "?"));
                }
                values.iter().map(|bytes| from(<$type>::from_le_bytes(*bytes) as f64)).collect()
            }};
        }
        Ok(match self.kind {
            1 => read_as!(i8),
            2 => read_as!(u8),
            3 => read_as!(i16),
            4 => read_as!(u16),
            5 => read_as!(i32),
            6 => read_as!(u32),
            7 => read_as!(f32),
            9 => read_as!(f64),
            12 => read_as!(i64),
            13 => read_as!(u64),
            kind => {
                return Err(Error::input(
                    path,
                    None,
                    format!("numbers of type {kind} are not known"),
                    "save the matrix as double",
                ));
            }
        })
    }
}

fn damaged(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            Error::input(path, None, "the file ends too early", "fetch or save the file again")
        }
        _ => unreadable(path, true, error),
    }
}

fn inconsistent(path: &Path, name: &str) -> Error {
    Error::input(path, None, format!("the matrix `{name}` contradicts its own sizes"), "save the file again")
}
