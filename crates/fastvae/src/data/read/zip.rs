//! Just enough of ZIP to read what NumPy writes: stored or deflated members, sizes beyond 4 GiB included.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

/// A member of an archive.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    method: u16,
    size: u64,
    offset: u64,
}

const END: &[u8] = b"PK\x05\x06";
const END_SIZE: usize = 22;
const ZIP64_LOCATOR: &[u8] = b"PK\x06\x07";
const ZIP64_END: &[u8] = b"PK\x06\x06";
const ENTRY: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";

/// The members listed in the central directory.
pub(crate) fn members(file: &mut File) -> io::Result<Vec<Member>> {
    let length = file.seek(SeekFrom::End(0))?;
    // The end record may be followed by a comment of up to 64 KiB.
    let tail_start = length.saturating_sub(END_SIZE as u64 + (1 << 16));
    let tail = bytes_at(file, tail_start, length - tail_start)?;
    let at = memchr::memmem::rfind(&tail, END).ok_or_else(|| invalid("the list of members is missing"))?;
    let end = Record(&tail[at..]);
    let (mut size, mut start) = (u64::from(end.u32(12)?), u64::from(end.u32(16)?));
    if start == u64::from(u32::MAX) || size == u64::from(u32::MAX) {
        let locator = at
            .checked_sub(20)
            .map(|at| Record(&tail[at..]))
            .filter(|record| record.0.starts_with(ZIP64_LOCATOR))
            .ok_or_else(|| invalid("the 64-bit list of members is missing"))?;
        let bytes = bytes_at(file, locator.u64(8)?, 56)?;
        let end = Record(&bytes);
        if !end.0.starts_with(ZIP64_END) {
            return Err(invalid("the 64-bit list of members is damaged"));
        }
        (size, start) = (end.u64(40)?, end.u64(48)?);
    }
    let directory = bytes_at(file, start, size)?;
    let mut rest = &directory[..];
    let mut members = Vec::new();
    while rest.starts_with(ENTRY) {
        let entry = Record(rest);
        let (name, extra, comment) = (entry.u16(28)?, entry.u16(30)?, entry.u16(32)?);
        let name_end = 46 + usize::from(name);
        let extra_end = name_end + usize::from(extra);
        let (mut size, mut offset) = (u64::from(entry.u32(20)?), u64::from(entry.u32(42)?));
        let uncompressed = u64::from(entry.u32(24)?);
        wide_sizes(rest.get(name_end..extra_end).unwrap_or_default(), uncompressed, &mut size, &mut offset)?;
        let name = rest.get(46..name_end).ok_or_else(short)?;
        let name = String::from_utf8_lossy(name).into_owned();
        members.push(Member { name, method: entry.u16(10)?, size, offset });
        rest = rest.get(extra_end + usize::from(comment)..).ok_or_else(short)?;
    }
    Ok(members)
}

/// The bytes of `member`, decompressed as they are read.
pub(crate) fn open<'a>(file: &'a mut File, member: &Member) -> io::Result<Box<dyn Read + 'a>> {
    let local = bytes_at(file, member.offset, 30)?;
    if !local.starts_with(LOCAL) {
        return Err(invalid("a member is not where the list says"));
    }
    let local = Record(&local);
    let skipped = 30 + u64::from(local.u16(26)?) + u64::from(local.u16(28)?);
    file.seek(SeekFrom::Start(member.offset.checked_add(skipped).ok_or_else(short)?))?;
    let stored = BufReader::with_capacity(1 << 18, file.take(member.size));
    match member.method {
        0 => Ok(Box::new(stored)),
        8 => Ok(Box::new(flate2::bufread::DeflateDecoder::new(stored))),
        method => Err(invalid(&format!("compression method {method} is not read"))),
    }
}

/// Replaces sizes that did not fit 32 bits by those of the ZIP64 field.
fn wide_sizes(mut extra: &[u8], uncompressed: u64, size: &mut u64, offset: &mut u64) -> io::Result<()> {
    while extra.len() >= 4 {
        let field = Record(extra);
        let (kind, length) = (field.u16(0)?, usize::from(field.u16(2)?));
        let body = extra.get(4..4 + length).ok_or_else(short)?;
        if kind == 1 {
            let mut at = 0;
            let full = u64::from(u32::MAX);
            let mut unused = uncompressed;
            for value in [&mut unused, size, offset] {
                if *value == full {
                    *value = Record(body).u64(at)?;
                    at += 8;
                }
            }
        }
        extra = &extra[4 + length..];
    }
    Ok(())
}

fn bytes_at(file: &mut File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < length { Err(short()) } else { Ok(bytes) }
}

/// Little-endian numbers at offsets of a record.
struct Record<'a>(&'a [u8]);

impl Record<'_> {
    fn u16(&self, at: usize) -> io::Result<u16> {
        self.0.get(at..).and_then(|b| b.first_chunk()).map(|b| u16::from_le_bytes(*b)).ok_or_else(short)
    }

    fn u32(&self, at: usize) -> io::Result<u32> {
        self.0.get(at..).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b)).ok_or_else(short)
    }

    fn u64(&self, at: usize) -> io::Result<u64> {
        self.0.get(at..).and_then(|b| b.first_chunk()).map(|b| u64::from_le_bytes(*b)).ok_or_else(short)
    }
}

fn short() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.to_string())
}
