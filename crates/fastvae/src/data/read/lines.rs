//! [`Lines`]: the lines of a stream, without copying them one by one.

use crate::data::read::source::Source;
use crate::error::{Error, Result};

const CHUNK: usize = 1 << 18;
/// A line longer than this is no line: the file is binary or has no line ends.
const MAX_LINE: usize = 1 << 30;

/// Lines of a [`Source`] as bytes, without their ends.
pub(crate) struct Lines {
    source: Source,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    number: u64,
    ended: bool,
}

impl Lines {
    pub(crate) fn new(source: Source) -> Result<Self> {
        if source.sample().starts_with(&[0xff, 0xfe]) || source.sample().starts_with(&[0xfe, 0xff]) {
            return Err(Error::input(
                source.path(),
                1,
                "the text is UTF-16",
                "convert it: iconv -f utf-16 -t utf-8",
            ));
        }
        let mut lines = Self { source, buffer: vec![0; CHUNK], start: 0, end: 0, number: 0, ended: false };
        lines.refill()?;
        if lines.buffer[..lines.end].starts_with(b"\xef\xbb\xbf") {
            lines.start = 3;
        }
        Ok(lines)
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// The number of the line last returned, counted from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The next line, or nothing at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        let Some((start, end)) = self.advance()? else { return Ok(None) };
        let line = &self.buffer[start..end];
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    #[inline]
    fn advance(&mut self) -> Result<Option<(usize, usize)>> {
        let mut searched = self.start;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                let line = (self.start, searched + at);
                self.start = line.1 + 1;
                self.number += 1;
                return Ok(Some(line));
            }
            searched = self.end;
            if self.ended {
                if self.start == self.end {
                    return Ok(None);
                }
                let line = (self.start, self.end);
                self.start = self.end;
                self.number += 1;
                return Ok(Some(line));
            }
            searched -= self.start;
            self.refill()?;
            searched += self.start;
        }
    }

    /// Moves the unread bytes to the front and reads more behind them.
    #[cold]
    fn refill(&mut self) -> Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            if self.end >= MAX_LINE {
                return Err(Error::input(
                    self.source.path(),
                    self.number + 1,
                    format!("the line is longer than {} MiB", MAX_LINE >> 20),
                    "this does not look like text: name its kind with --format",
                ));
            }
            self.buffer.resize(2 * self.end, 0);
        }
        while self.end < self.buffer.len() {
            let n = self.source.fill(&mut self.buffer[self.end..])?;
            if n == 0 {
                self.ended = true;
                break;
            }
            self.end += n;
        }
        Ok(())
    }
}
