//! [`Cache`]: interactions in a binary file that is mapped, not read.
//!
//! Text is parsed once (`fastvae prepare`); every later run opens the cache at the speed of memory, and data
//! larger than memory trains, since its pages are the file's and the system drops and rereads them as it needs.
//!
//! Layout, little-endian: a head of 64 bytes (magic, version), the sections, each an array aligned to 64 bytes,
//! a directory with the kind, place and checksum of each section, and a trailer of 64 bytes with the sizes.
//! The directory stands at the end so that a file is written in one pass, whatever its length.

mod checksum;
mod layout;
mod open;
mod write;

use crate::data::{Interactions, Titles};

pub use write::CacheWriter;

pub(crate) use layout::MAGIC;

/// A cache file, open: the large arrays of its parts lie in the map.
///
/// The file must not be changed in place while it is open; [`CacheWriter`] never does, it replaces files.
#[derive(Debug, Clone)]
pub struct Cache {
    /// Who touched what, by whichever names.
    pub interactions: Interactions,
    /// What to call the items, where it was known when the cache was written.
    pub titles: Option<Titles>,
}
