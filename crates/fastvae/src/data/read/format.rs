//! [`Format`]: which files can be read, and how one is told from another.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::data::cache::MAGIC;
use crate::data::read::fields::{Separator, detect_delimiter};
use crate::error::{Error, Result};

/// A file format with interactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Lines of delimited fields, quoted where needed; the delimiter is detected.
    Csv,
    /// As [`Format::Csv`], delimited by tabs.
    Tsv,
    /// MovieLens `user::item::rating::timestamp`.
    MovieLens,
    /// RecBole `.inter`: tabs and a header with types (`user_id:token`).
    RecBole,
    /// LightGCN adjacency lists: `user item item ...`.
    LightGcn,
    /// MatrixMarket coordinates, users x items.
    MatrixMarket,
    /// SciPy sparse matrix (`.npz`), users x items.
    Npz,
    /// MATLAB version 5 file with a sparse matrix, users x items.
    Mat,
    /// Parquet.
    Parquet,
    /// A binary cache, as written by [`Cache`](crate::data::Cache).
    Cache,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 10] = [
        Self::Csv,
        Self::Tsv,
        Self::MovieLens,
        Self::RecBole,
        Self::LightGcn,
        Self::MatrixMarket,
        Self::Npz,
        Self::Mat,
        Self::Parquet,
        Self::Cache,
    ];

    /// The name used by `--format`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::MovieLens => "movielens",
            Self::RecBole => "recbole",
            Self::LightGcn => "lightgcn",
            Self::MatrixMarket => "mtx",
            Self::Npz => "npz",
            Self::Mat => "mat",
            Self::Parquet => "parquet",
            Self::Cache => "cache",
        }
    }

    /// Guesses from the first bytes, then from the file name; `sample` is decompressed.
    pub(crate) fn detect(path: &Path, sample: &[u8]) -> Self {
        for (magic, format) in [
            (&MAGIC[..], Self::Cache),
            (b"PAR1", Self::Parquet),
            (b"PK\x03\x04", Self::Npz),
            (b"MATLAB 5.0", Self::Mat),
            // A version 7.3 file: the reader of .mat files explains what to do.
            (b"\x89HDF\r\n\x1a\n", Self::Mat),
            (b"%%MatrixMarket", Self::MatrixMarket),
        ] {
            if sample.starts_with(magic) {
                return format;
            }
        }
        match inner_extension(path).as_str() {
            "fvcache" => return Self::Cache,
            "parquet" => return Self::Parquet,
            "npz" => return Self::Npz,
            "mat" => return Self::Mat,
            "mtx" => return Self::MatrixMarket,
            "inter" => return Self::RecBole,
            "csv" => return Self::Csv,
            "tsv" => return Self::Tsv,
            _ => {}
        }
        let lines: Vec<&[u8]> = complete_lines(sample).take(50).collect();
        let all = |test: &dyn Fn(&[u8]) -> bool| !lines.is_empty() && lines.iter().all(|line| test(line));
        if all(&|line| memchr::memmem::find(line, b"::").is_some()) {
            Self::MovieLens
        } else if all(&|line| line.iter().all(|byte| byte.is_ascii_digit() || *byte == b' '))
            && detect_delimiter(&lines).is_none_or(|separator| separator == Separator::Blank)
            && lines.iter().any(|line| words(line) != words(lines[0]))
        {
            Self::LightGcn
        } else {
            Self::Csv
        }
    }
}

fn words(line: &[u8]) -> usize {
    line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).count()
}

/// The lines of `sample`; a last one that may be cut off counts only if it is the only one.
pub(crate) fn complete_lines(sample: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = memchr::memrchr(b'\n', sample).unwrap_or(sample.len());
    let sample = sample.strip_prefix(b"\xef\xbb\xbf").unwrap_or(sample);
    let end = end.min(sample.len());
    sample[..end].split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end).filter(|line| !line.is_empty())
}

/// The lower-case extension under `.gz` or `.zst`.
fn inner_extension(path: &Path) -> String {
    let extension = |path: &Path| path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    match extension(path).as_deref() {
        Some("gz" | "zst") => path.file_stem().and_then(|stem| extension(Path::new(stem))),
        _ => extension(path),
    }
    .unwrap_or_default()
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::config("format", format!("`{text}` is not a format"), format!("use one of {names}"))
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_they_print() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        }
        let error = "xls".parse::<Format>().unwrap_err().to_string();
        assert!(error.contains("`xls`") && error.contains("lightgcn, mtx, npz"), "{error}");
    }

    #[test]
    fn formats_are_told_apart() {
        for (name, sample, format) in [
            ("a.csv.gz", "1,2\n", Format::Csv),
            ("a.TSV", "1\t2\n", Format::Tsv),
            ("ratings.dat", "1::2::3\n", Format::MovieLens),
            ("a.inter", "user_id:token\titem_id:token\n", Format::RecBole),
            ("train.txt", "0 1 2 3\n1 5\n", Format::LightGcn),
            ("pairs.txt", "0 1\n1 5\n", Format::Csv),
            ("u.data", "196\t242\t3\t881250949\n", Format::Csv),
            ("x", "%%MatrixMarket matrix\n", Format::MatrixMarket),
            ("x", "PK\u{3}\u{4}", Format::Npz),
            ("x", "MATLAB 5.0 MAT-file", Format::Mat),
            ("x", "PAR1", Format::Parquet),
            ("x", "FVCACHE\0", Format::Cache),
            ("empty.fvcache", "", Format::Cache),
        ] {
            assert_eq!(Format::detect(Path::new(name), sample.as_bytes()), format, "{name}");
        }
    }
}
