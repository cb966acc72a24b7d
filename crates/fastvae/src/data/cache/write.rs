//! [`CacheWriter`]: a cache under construction.

use std::io::Write;
use std::path::Path;

use crate::data::cache::Cache;
use crate::data::cache::checksum::Checksum;
use crate::data::cache::layout::{ALIGNMENT, END_MAGIC, Head, Kind, MAGIC, Section, Trailer, VERSION};
use crate::data::{IdMap, Interactions, ItemId, Titles};
use crate::error::{Error, Result};
use crate::write::AtomicFile;

/// Writes a cache row by row; memory follows the users (8 bytes each), not the interactions.
#[derive(Debug)]
pub struct CacheWriter {
    file: AtomicFile,
    at: u64,
    sections: Vec<Section>,
    /// Of the section under way.
    sum: Checksum,
    offsets: Vec<u64>,
    largest: Option<ItemId>,
}

impl Cache {
    /// Writes `interactions`, and the `titles` of their items where there are any, to `path`.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses; [`Error::Data`] if there are not as many titles as items.
    pub fn write(path: impl AsRef<Path>, interactions: &Interactions, titles: Option<&Titles>) -> Result<()> {
        let mut writer = CacheWriter::create(path)?;
        writer.bytes(bytemuck::cast_slice(interactions.items()))?;
        writer.offsets = interactions.offsets().iter().map(|&offset| offset as u64).collect();
        writer.end(Kind::Items)?;
        if let Some(weights) = interactions.weights() {
            writer.section(Kind::Weights, bytemuck::cast_slice(weights))?;
        }
        if let Some(timestamps) = interactions.timestamps() {
            writer.section(Kind::Timestamps, bytemuck::cast_slice(timestamps))?;
        }
        writer.complete(interactions.user_ids(), interactions.item_ids(), titles)
    }
}

impl CacheWriter {
    /// Starts the file that will be `path`.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory does not take it.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let mut writer = Self {
            file: AtomicFile::create(path)?,
            at: 0,
            sections: Vec::new(),
            sum: Checksum::new(),
            offsets: vec![0],
            largest: None,
        };
        writer.bytes(bytemuck::bytes_of(&head()))?;
        writer.sum = Checksum::new();
        Ok(writer)
    }

    /// Adds the row of the next user: `items` ascending and without repetition.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses; [`Error::Data`] if the row is not sorted.
    pub fn push_row(&mut self, items: &[ItemId]) -> Result<()> {
        if items.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::data(
                format!("row {} is unsorted or repeats an item", self.offsets.len() - 1),
                "give rows with strictly ascending items",
            ));
        }
        self.largest = self.largest.max(items.last().copied());
        let end = self.offsets.last().expect("there is always the first offset") + items.len() as u64;
        self.offsets.push(end);
        self.bytes(bytemuck::cast_slice(items))
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses; [`Error::Data`] if the maps or titles are not as long as the rows say.
    pub fn finish(mut self, users: &IdMap, items: &IdMap, titles: Option<&Titles>) -> Result<()> {
        let n_rows = self.offsets.len() - 1;
        if users.len() != n_rows || self.largest.is_some_and(|largest| largest as usize >= items.len()) {
            return Err(Error::data(
                format!(
                    "{n_rows} rows with items up to {} do not fit {} users and {} items",
                    self.largest.unwrap_or(0),
                    users.len(),
                    items.len()
                ),
                "give one identifier for each row and each item",
            ));
        }
        self.end(Kind::Items)?;
        self.complete(users, items, titles)
    }

    fn complete(mut self, users: &IdMap, items: &IdMap, titles: Option<&Titles>) -> Result<()> {
        let offsets = std::mem::take(&mut self.offsets);
        self.section(Kind::Offsets, bytemuck::cast_slice(&offsets))?;
        self.ids(users, [Kind::UserIntegers, Kind::UserBytes, Kind::UserEnds])?;
        self.ids(items, [Kind::ItemIntegers, Kind::ItemBytes, Kind::ItemEnds])?;
        if let Some(titles) = titles {
            if titles.len() != items.len() {
                return Err(Error::data(
                    format!("there are {} titles for {} items", titles.len(), items.len()),
                    "give one title for each item, empty where there is none",
                ));
            }
            let (bytes, ends) = titles.parts();
            self.section(Kind::TitleBytes, bytes)?;
            self.section(Kind::TitleEnds, bytemuck::cast_slice(ends))?;
        }
        let mut trailer = Trailer {
            n_users: users.len() as u64,
            n_items: items.len() as u64,
            n_interactions: offsets.last().copied().unwrap_or(0),
            n_sections: self.sections.len() as u64,
            reserved: [0; 2],
            checksum: 0,
            magic: END_MAGIC,
        };
        trailer.checksum = frame_checksum(&head(), &self.sections, &trailer);
        let sections = std::mem::take(&mut self.sections);
        self.bytes(bytemuck::cast_slice(&sections))?;
        self.bytes(bytemuck::bytes_of(&trailer))?;
        self.file.commit()
    }

    fn ids(&mut self, ids: &IdMap, [integers, bytes, ends]: [Kind; 3]) -> Result<()> {
        if let Some(values) = ids.integers() {
            self.section(integers, bytemuck::cast_slice(values))?;
        }
        if let Some((block, block_ends)) = ids.string_parts() {
            self.section(bytes, block)?;
            self.section(ends, bytemuck::cast_slice(block_ends))?;
        }
        Ok(())
    }

    fn section(&mut self, kind: Kind, bytes: &[u8]) -> Result<()> {
        self.bytes(bytes)?;
        self.end(kind)
    }

    /// Ends the section under way, which began at the end of the one before, and pads it.
    fn end(&mut self, kind: Kind) -> Result<()> {
        let start = self
            .sections
            .last()
            .map_or(size_of::<Head>() as u64, |last| (last.start + last.bytes).next_multiple_of(ALIGNMENT));
        let checksum = std::mem::replace(&mut self.sum, Checksum::new()).finish();
        self.sections.push(Section { kind: kind as u64, start, bytes: self.at - start, checksum });
        let padding = self.at.next_multiple_of(ALIGNMENT) - self.at;
        self.bytes(&[0; ALIGNMENT as usize][..padding as usize])?;
        self.sum = Checksum::new();
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.at += bytes.len() as u64;
        self.sum.update(bytes);
        self.file.write_all(bytes).map_err(|source| Error::io(self.file.path(), source))
    }
}

fn head() -> Head {
    Head { magic: *MAGIC, version: VERSION, reserved: [0; 13] }
}

/// The checksum of everything but the sections themselves, and itself.
pub(super) fn frame_checksum(head: &Head, sections: &[Section], trailer: &Trailer) -> u64 {
    let mut sum = Checksum::new();
    sum.update(bytemuck::bytes_of(head));
    sum.update(bytemuck::cast_slice(sections));
    sum.update(bytemuck::bytes_of(&Trailer { checksum: 0, ..*trailer }));
    sum.finish()
}
