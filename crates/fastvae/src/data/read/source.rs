//! [`Source`]: a file as a stream of plain bytes, decompressed where it is `.gz` or `.zst`.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// How much of the start is looked at to detect the format, the delimiter and the header.
const SAMPLE: usize = 64 << 10;

/// An open file whose first bytes can be seen before they are read.
pub(crate) struct Source {
    path: PathBuf,
    sample: Vec<u8>,
    taken: usize,
    rest: Box<dyn Read>,
    compressed: bool,
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).map_err(|source| missing(path, source))?;
        if file.metadata().map_err(|source| Error::io(path, source))?.is_dir() {
            return Err(Error::input(path, None, "this is a folder", "give one of the files in it"));
        }
        let mut magic = Vec::new();
        (&mut file).take(4).read_to_end(&mut magic).map_err(|source| Error::io(path, source))?;
        let gzip = magic.starts_with(&[0x1f, 0x8b]);
        let zstd = magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
        let whole = io::Cursor::new(magic).chain(file);
        let mut rest: Box<dyn Read> = if gzip {
            Box::new(flate2::read::MultiGzDecoder::new(BufReader::with_capacity(1 << 18, whole)))
        } else if zstd {
            let decoder =
                zstd::stream::read::Decoder::new(whole).map_err(|source| Error::io(path, source))?;
            Box::new(decoder)
        } else {
            Box::new(whole)
        };
        let mut sample = Vec::new();
        (&mut rest)
            .take(SAMPLE as u64)
            .read_to_end(&mut sample)
            .map_err(|source| unreadable(path, gzip || zstd, source))?;
        Ok(Self { path: path.to_path_buf(), sample, taken: 0, rest, compressed: gzip || zstd })
    }

    /// The complete lines of the sample as a source of their own.
    pub(crate) fn preview(&self) -> Self {
        let end = memchr::memrchr(b'\n', &self.sample).filter(|_| self.sample.len() == SAMPLE);
        let sample = self.sample[..end.unwrap_or(self.sample.len())].to_vec();
        Self { path: self.path.clone(), sample, taken: 0, rest: Box::new(io::empty()), compressed: false }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The first bytes, decompressed.
    pub(crate) fn sample(&self) -> &[u8] {
        &self.sample
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// Fills as much of `buffer` as there is; 0 is the end.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.read(buffer).map_err(|source| unreadable(&self.path, self.compressed, source))
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken < self.sample.len() {
            let n = buffer.len().min(self.sample.len() - self.taken);
            buffer[..n].copy_from_slice(&self.sample[self.taken..self.taken + n]);
            self.taken += n;
            return Ok(n);
        }
        loop {
            match self.rest.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

fn missing(path: &Path, source: io::Error) -> Error {
    if source.kind() == io::ErrorKind::NotFound {
        Error::input(path, None, "there is no such file", "check the path")
    } else {
        Error::io(path, source)
    }
}

/// Decompression fails where the file was cut off or changed on its way, so that is what the remedy says.
pub(crate) fn unreadable(path: &Path, compressed: bool, source: io::Error) -> Error {
    if !compressed {
        return Error::io(path, source);
    }
    let problem = match source.kind() {
        io::ErrorKind::UnexpectedEof => "the compressed data end too early".to_string(),
        _ => format!("the compressed data are damaged ({source})"),
    };
    Error::input(path, None, problem, "fetch or compress the file again")
}
