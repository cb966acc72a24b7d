//! Standard output, and files that are written whole or later.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use fastvae::internals::write::AtomicFile;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::failure;

/// Whoever read standard output closed it; no failure of ours.
#[derive(Debug)]
pub struct ReaderGone;

impl std::fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for ReaderGone {}

/// Writes `text` to standard output.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => ReaderGone.into(),
        _ => failure::io(Path::new("standard output"), error),
    })
}

/// Writes `text` and a line break to standard output.
pub fn print_line(text: impl std::fmt::Display) -> Result<()> {
    print(&format!("{text}\n"))
}

/// Writes `value` to standard output as one JSON object.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    print_line(serde_json::to_string_pretty(value)?)
}

/// Adds the entries of `json`, an object, to `object`.
pub fn extend(object: &mut Map<String, Value>, json: Value) {
    if let Value::Object(entries) = json {
        object.extend(entries);
    }
}

/// Writes a file whole or not at all.
///
/// # Errors
/// What the disk refuses.
pub fn write(path: &Path, contents: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(contents).map_err(|source| failure::io(path, source))?;
    Ok(file.commit()?)
}

/// Fails now if `path` could not be written later: no such directory, no permission, or not a file.
///
/// # Errors
/// The one that writing would meet.
pub fn check_writable(path: &Path) -> Result<()> {
    if path.exists() {
        // Files are replaced, not written into; one that is protected should still not be lost.
        OpenOptions::new().write(true).open(path).map_err(|source| failure::io(path, source))?;
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        fs::metadata(parent).map_err(|source| {
            failure::io(
                path,
                io::Error::new(source.kind(), format!("the directory {} does not exist", parent.display())),
            )
        })?;
    }
    drop(AtomicFile::create(path)?);
    Ok(())
}
