//! [`AtomicFile`]: a file that appears whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};

/// A file under construction, beside the place where it will stand.
///
/// Bytes go to a temporary file in the same directory; [`AtomicFile::commit`] brings them to the disk and gives
/// the file its name in one step, replacing what was there. Without `commit` nothing is left behind, and a
/// reader never sees half of it.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    temporary: PathBuf,
    file: Option<BufWriter<File>>,
}

impl AtomicFile {
    /// Starts the file that will be `path`.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory does not take it.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        // Two writers of one path, in one process or in two, must not share a temporary file.
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let path = path.as_ref().to_path_buf();
        let Some(name) = path.file_name() else {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "the path names no file");
            return Err(Error::io(&path, source));
        };
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{}.partial", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
        let temporary = path.with_file_name(hidden);
        let file = File::create(&temporary).map_err(|source| Error::io(&path, source))?;
        Ok(Self { path, temporary, file: Some(BufWriter::with_capacity(1 << 18, file)) })
    }

    /// The path that the file will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Brings everything to the disk and gives the file its name.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses; what stood at the path is then untouched.
    pub fn commit(mut self) -> Result<()> {
        let file = self.file.take().expect("only commit and drop take the file");
        file.into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(&self.temporary, &self.path))
            .map_err(|source| Error::io(&self.path, source))?;
        // The new name is on the disk only once the directory is; file systems that cannot sync one still renamed.
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Ok(directory) = File::open(parent.unwrap_or(Path::new("."))) {
            let _ = directory.sync_all();
        }
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().expect("only commit and drop take the file").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().expect("only commit and drop take the file").flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        drop(self.file.take());
        // After `commit` there is nothing to remove, and nobody to tell either way.
        let _ = fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.txt");
        fs::write(&path, "old").unwrap();
        let mut dropped = AtomicFile::create(&path).unwrap();
        dropped.write_all(b"half").unwrap();
        drop(dropped);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let (mut first, mut second) =
            (AtomicFile::create(&path).unwrap(), AtomicFile::create(&path).unwrap());
        first.write_all(b"first").unwrap();
        second.write_all(b"second").unwrap();
        first.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        second.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(names(directory.path()), ["a.txt"]);
    }

    #[test]
    fn a_missing_directory_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("absent").join("a.txt");
        let error = AtomicFile::create(&path).unwrap_err().to_string();
        assert!(error.contains("absent"), "{error}");
        assert!(AtomicFile::create("/").is_err());
    }
}
