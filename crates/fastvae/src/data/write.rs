//! Writing interactions as CSV or TSV, compressed by extension; a file appears whole or not at all.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::data::Interactions;
use crate::error::{Error, Result};

/// A text file under construction: `.gz` and `.zst` compress, and under them `.csv` means commas, else tabs.
///
/// The text goes to `PATH.partial`, which [`TableWriter::finish`] renames; without `finish` it is removed.
pub struct TableWriter {
    path: PathBuf,
    partial: PathBuf,
    output: Option<Output>,
    delimiter: u8,
}

enum Output {
    Plain(BufWriter<File>),
    Gzip(BufWriter<flate2::write::GzEncoder<File>>),
    Zstd(BufWriter<zstd::stream::write::Encoder<'static, File>>),
}

impl TableWriter {
    /// Starts the file that will be `path`.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be created.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let mut partial: OsString = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let failed = |source| Error::io(&path, source);
        let file = File::create(&partial).map_err(failed)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let (inner, output) = if let Some(inner) = name.strip_suffix(".gz") {
            let encoder = flate2::write::GzEncoder::new(file, flate2::Compression::default());
            (inner, Output::Gzip(BufWriter::with_capacity(1 << 16, encoder)))
        } else if let Some(inner) = name.strip_suffix(".zst") {
            let encoder = zstd::stream::write::Encoder::new(file, 3).map_err(failed)?;
            (inner, Output::Zstd(BufWriter::with_capacity(1 << 16, encoder)))
        } else {
            (name.as_str(), Output::Plain(BufWriter::with_capacity(1 << 18, file)))
        };
        let delimiter = if inner.ends_with(".csv") { b',' } else { b'\t' };
        Ok(Self { path, partial, output: Some(output), delimiter })
    }

    /// Writes one record, quoting fields that need it.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    pub fn record<F: AsRef<str>>(&mut self, fields: impl IntoIterator<Item = F>) -> Result<()> {
        let delimiter = self.delimiter;
        self.write(|output| {
            for (at, field) in fields.into_iter().enumerate() {
                if at > 0 {
                    output.write_all(&[delimiter])?;
                }
                output.write_all(quoted(field.as_ref(), delimiter).as_bytes())?;
            }
            output.write_all(b"\n")
        })
    }

    /// Writes one pair of numbers, without the cost of text fields.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    pub fn pair(&mut self, user: u64, item: u64) -> Result<()> {
        // Digits from the end of one buffer: formatting would take most of the time of generating a catalogue.
        let mut line = [0; 42];
        let end = line.len() - 1;
        line[end] = b'\n';
        let middle = digits_before(&mut line, end, item) - 1;
        line[middle] = self.delimiter;
        let start = digits_before(&mut line, middle, user);
        self.write(|output| output.write_all(&line[start..]))
    }

    /// Writes one line as it is.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    pub fn line(&mut self, text: &str) -> Result<()> {
        self.write(|output| writeln!(output, "{text}"))
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    pub fn finish(mut self) -> Result<()> {
        let output = self.output.take().expect("only finish and drop take the output");
        let result = match output {
            Output::Plain(output) => output.into_inner().map_err(io::IntoInnerError::into_error),
            Output::Gzip(output) => output
                .into_inner()
                .map_err(io::IntoInnerError::into_error)
                .and_then(|encoder| encoder.finish()),
            Output::Zstd(output) => output
                .into_inner()
                .map_err(io::IntoInnerError::into_error)
                .and_then(|encoder| encoder.finish()),
        };
        result
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(&self.partial, &self.path))
            .map_err(|source| Error::io(&self.path, source))
    }

    fn write(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        match self.output.as_mut().expect("only finish and drop take the output") {
            Output::Plain(output) => write(output),
            Output::Gzip(output) => write(output),
            Output::Zstd(output) => write(output),
        }
        .map_err(|source| Error::io(&self.path, source))
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        drop(self.output.take());
        // After `finish` there is nothing to remove, and nobody to tell either way.
        let _ = fs::remove_file(&self.partial);
    }
}

/// Writes `data` to `path` with a header: `user_id`, `item_id`, and `weight` and `timestamp` where it has them.
///
/// # Errors
/// [`Error::Io`] if the file cannot be written.
pub fn write_interactions(path: impl AsRef<Path>, data: &Interactions) -> Result<()> {
    let mut table = TableWriter::create(path)?;
    let mut header = vec!["user_id", "item_id"];
    header.extend(data.weights().map(|_| "weight"));
    header.extend(data.timestamps().map(|_| "timestamp"));
    table.record(header)?;
    for user in 0..data.n_users() {
        let name = data.user_ids().name(user as u32);
        let row = data.row(user);
        for (at, &item) in row.items.iter().enumerate() {
            let mut fields = vec![name.clone(), data.item_ids().name(item)];
            fields.extend(row.weights.map(|weights| Cow::Owned(weights[at].to_string())));
            fields.extend(row.timestamps.map(|times| Cow::Owned(times[at].to_string())));
            table.record(fields)?;
        }
    }
    table.finish()
}

fn quoted(field: &str, delimiter: u8) -> Cow<'_, str> {
    let special = |byte: u8| byte == delimiter || matches!(byte, b'"' | b'\n' | b'\r');
    // An empty line would be skipped, so a field of nothing but blanks is quoted too.
    if field.bytes().any(special) || field.trim().is_empty() {
        Cow::Owned(format!("\"{}\"", field.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(field)
    }
}

/// Writes `value` in decimals so that it ends before `end`; returns where it starts.
fn digits_before(line: &mut [u8], end: usize, mut value: u64) -> usize {
    let mut at = end;
    loop {
        at -= 1;
        line[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_only_when_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let mut table = TableWriter::create(&path).unwrap();
        table.record(["a,b", "c\"d"]).unwrap();
        table.pair(1, 2).unwrap();
        assert!(!path.exists());
        table.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "\"a,b\",\"c\"\"d\"\n1,2\n");
        drop(TableWriter::create(folder.path().join("b.tsv.zst")).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn pairs_are_written_as_numbers_print() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pairs.csv");
        let mut table = TableWriter::create(&path).unwrap();
        let pairs = [(0, u64::MAX), (u64::MAX, u64::MAX), (10, 9), (1_000_000, 0)];
        pairs.iter().for_each(|&(user, item)| table.pair(user, item).unwrap());
        table.finish().unwrap();
        let expected: String = pairs.iter().map(|(user, item)| format!("{user},{item}\n")).collect();
        assert_eq!(fs::read_to_string(path).unwrap(), expected);
    }
}
