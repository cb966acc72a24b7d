//! [`Fields`]: one line cut into fields, with RFC 4180 quotes where the dialect has them.

use crate::data::read::lines::Lines;
use crate::error::{Error, Result};

/// What stands between two fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Separator {
    Byte(u8),
    /// Any run of spaces and tabs.
    Blank,
    /// MovieLens' `::`.
    TwoColons,
}

impl Separator {
    pub(crate) fn of_delimiter(delimiter: u8) -> Self {
        if delimiter == b' ' { Self::Blank } else { Self::Byte(delimiter) }
    }
}

/// A quoted field may run over lines; one that runs over more bytes than this was never closed.
const MAX_QUOTED: usize = 1 << 20;

/// The fields of one record; the buffers are reused from record to record.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    /// The record: the line itself, or the line without its quotes.
    text: Vec<u8>,
    spans: Vec<(u32, u32)>,
}

impl Fields {
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Field `at`, as it is written.
    #[inline]
    pub(crate) fn exact(&self, at: usize) -> &[u8] {
        let (start, end) = self.spans[at];
        &self.text[start as usize..end as usize]
    }

    /// Field `at`, without blanks around it.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> &[u8] {
        self.exact(at).trim_ascii()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Reads the next record that is not blank; false at the end.
    #[inline]
    pub(crate) fn read(&mut self, lines: &mut Lines, separator: Separator, quoting: bool) -> Result<bool> {
        loop {
            let Some(line) = lines.next()? else { return Ok(false) };
            if line.is_empty() || line.trim_ascii().is_empty() {
                continue;
            }
            if quoting && memchr::memchr(b'"', line).is_some() {
                self.text.clear();
                self.text.extend_from_slice(line);
                self.unquote(lines, separator)?;
            } else {
                self.cut(line, separator);
            }
            return Ok(true);
        }
    }

    /// As [`Fields::read`], for a `line` that was already taken from `lines`.
    pub(crate) fn resume(
        &mut self,
        line: &[u8],
        lines: &mut Lines,
        separator: Separator,
        quoting: bool,
    ) -> Result<()> {
        self.cut(line, separator);
        if quoting && line.contains(&b'"') { self.unquote(lines, separator) } else { Ok(()) }
    }

    /// Cuts a line without quotes.
    #[inline]
    pub(crate) fn cut(&mut self, line: &[u8], separator: Separator) {
        self.text.clear();
        self.text.extend_from_slice(line);
        self.spans.clear();
        let mut start = 0;
        match separator {
            Separator::Byte(byte) => {
                // Fields are a few bytes long: a plain loop beats calls to memchr.
                for (at, &b) in line.iter().enumerate() {
                    if b == byte {
                        self.spans.push((start, at as u32));
                        start = at as u32 + 1;
                    }
                }
                self.spans.push((start, line.len() as u32));
            }
            Separator::Blank => {
                for word in line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty()) {
                    let start = (word.as_ptr() as usize - line.as_ptr() as usize) as u32;
                    self.spans.push((start, start + word.len() as u32));
                }
            }
            Separator::TwoColons => {
                for at in memchr::memmem::find_iter(line, b"::") {
                    self.spans.push((start, at as u32));
                    start = at as u32 + 2;
                }
                self.spans.push((start, line.len() as u32));
            }
        }
    }

    /// Cuts `self.text`, which has a quote, taking more lines while a quoted field is open.
    fn unquote(&mut self, lines: &mut Lines, separator: Separator) -> Result<()> {
        let first_line = lines.number();
        let raw = &mut std::mem::take(&mut self.text);
        self.spans.clear();
        let is_separator = |byte: u8| match separator {
            Separator::Byte(separator) => byte == separator,
            Separator::Blank => matches!(byte, b' ' | b'\t'),
            Separator::TwoColons => false,
        };
        let mut at = 0;
        loop {
            let start = self.text.len() as u32;
            if raw.get(at) == Some(&b'"') {
                at += 1;
                loop {
                    match raw.get(at) {
                        Some(b'"') if raw.get(at + 1) == Some(&b'"') => {
                            self.text.push(b'"');
                            at += 2;
                        }
                        Some(b'"') => {
                            at += 1;
                            break;
                        }
                        Some(&byte) => {
                            self.text.push(byte);
                            at += 1;
                        }
                        None => {
                            let more = if raw.len() <= MAX_QUOTED { lines.next()? } else { None };
                            let Some(more) = more else {
                                return Err(Error::input(
                                    lines.source().path(),
                                    first_line,
                                    "a quoted field that starts on this line is never closed",
                                    "close it with \", or write a \" inside of a quoted field twice",
                                ));
                            };
                            raw.push(b'\n');
                            raw.extend_from_slice(more);
                        }
                    }
                }
            }
            while let Some(&byte) = raw.get(at).filter(|&&byte| !is_separator(byte)) {
                self.text.push(byte);
                at += 1;
            }
            let end = self.text.len() as u32;
            if separator != Separator::Blank || end > start {
                self.spans.push((start, end));
            }
            if at >= raw.len() {
                return Ok(());
            }
            at += 1;
        }
    }
}

/// The delimiter that cuts every one of `lines` into the same number of fields, the most of them.
pub(crate) fn detect_delimiter(lines: &[&[u8]]) -> Option<Separator> {
    let mut best = (0, None);
    for delimiter in [b'\t', b',', b';', b'|', b' '] {
        let count = |line: &[u8]| {
            let mut quoted = false;
            let outside = line.iter().filter(|&&byte| {
                quoted ^= byte == b'"';
                !quoted && byte == delimiter
            });
            outside.count()
        };
        let first = count(lines.first()?);
        // A ragged line further down must still be told as such, so the first lines decide.
        let same = lines.iter().take(5).all(|line| count(line) == first);
        if first > best.0 && same {
            best = (first, Some(Separator::of_delimiter(delimiter)));
        }
    }
    if best.1.is_none() {
        // No delimiter agrees with itself: take the first line's, and let the ragged line be reported.
        for delimiter in [b'\t', b',', b';', b'|', b' '] {
            if lines.first().is_some_and(|line| line.contains(&delimiter)) {
                return Some(Separator::of_delimiter(delimiter));
            }
        }
    }
    best.1
}
