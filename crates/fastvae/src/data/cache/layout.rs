//! The structures of a cache file.

use bytemuck::{Pod, Zeroable};

#[cfg(target_endian = "big")]
compile_error!("cache files are little-endian and are used where they lie");

/// The first bytes of a cache.
pub(crate) const MAGIC: &[u8; 8] = b"FVCACHE\0";
/// The last bytes of a cache.
pub(crate) const END_MAGIC: [u8; 8] = *b"\0EHCACVF";
/// What is written, and the newest that is read.
pub(crate) const VERSION: u32 = 1;
/// Sections start at a multiple of this.
pub(crate) const ALIGNMENT: u64 = 64;

/// The start of the file.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Head {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    pub(crate) reserved: [u32; 13],
}

/// The end of the file.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Trailer {
    pub(crate) n_users: u64,
    pub(crate) n_items: u64,
    pub(crate) n_interactions: u64,
    pub(crate) n_sections: u64,
    pub(crate) reserved: [u64; 2],
    /// Of the head, the directory and what stands above.
    pub(crate) checksum: u64,
    pub(crate) magic: [u8; 8],
}

/// An entry of the directory.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Section {
    pub(crate) kind: u64,
    /// Where it starts in the file.
    pub(crate) start: u64,
    /// How long it is.
    pub(crate) bytes: u64,
    pub(crate) checksum: u64,
}

pub(crate) const HEAD: usize = size_of::<Head>();
pub(crate) const TRAILER: usize = size_of::<Trailer>();
pub(crate) const SECTION: usize = size_of::<Section>();

/// What a section holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Kind {
    /// `u64`: row boundaries, one more than users.
    Offsets = 1,
    /// `u32`.
    Items = 2,
    /// `f32`.
    Weights = 3,
    /// `i64`.
    Timestamps = 4,
    /// `i64`; a side without integers and strings is named `0..n`.
    UserIntegers = 5,
    /// UTF-8.
    UserBytes = 6,
    /// `u64`: where each name ends in the bytes.
    UserEnds = 7,
    /// As [`Kind::UserIntegers`].
    ItemIntegers = 8,
    /// UTF-8.
    ItemBytes = 9,
    /// As [`Kind::UserEnds`].
    ItemEnds = 10,
    /// UTF-8.
    TitleBytes = 11,
    /// As [`Kind::UserEnds`].
    TitleEnds = 12,
}

impl Kind {
    pub(crate) const ALL: [Self; 12] = [
        Self::Offsets,
        Self::Items,
        Self::Weights,
        Self::Timestamps,
        Self::UserIntegers,
        Self::UserBytes,
        Self::UserEnds,
        Self::ItemIntegers,
        Self::ItemBytes,
        Self::ItemEnds,
        Self::TitleBytes,
        Self::TitleEnds,
    ];
}
