//! Opening a cache: everything is checked once, in one pass over the file.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::{Advice, Mmap};

use crate::data::cache::Cache;
use crate::data::cache::checksum::Checksum;
use crate::data::cache::layout::{
    END_MAGIC, HEAD, Head, Kind, MAGIC, SECTION, Section, TRAILER, Trailer, VERSION,
};
use crate::data::cache::write::frame_checksum;
use crate::data::storage::Storage;
use crate::data::{IdMap, Interactions, ItemId, Titles};
use crate::error::{Error, Result};

const REMEDY: &str = "the file is damaged: write it again with `fastvae prepare`";

impl Cache {
    /// Maps `path` and checks it: lengths, checksums, the order and range of every row.
    ///
    /// Costs one pass at the speed of memory, or of the disk, about 0.2 s a gigabyte; nothing is copied.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened; [`Error::Input`] if it is not a cache, is cut off or damaged, or
    /// is of a newer version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        with_sections(path.as_ref(), Sections::cache)
    }

    /// The titles that the file at `path` has for `items`; None where it is no cache, or has none.
    ///
    /// # Errors
    /// As [`Cache::open`].
    pub fn titles_of(path: impl AsRef<Path>, items: &IdMap) -> Result<Option<Titles>> {
        let path = path.as_ref();
        let mut start = [0; MAGIC.len()];
        let mut file = File::open(path).map_err(|source| Error::io(path, source))?;
        // A file too short for the magic is none.
        if file.read_exact(&mut start).is_err() || start != *MAGIC {
            return Ok(None);
        }
        with_sections(path, |sections| {
            let known = sections.item_ids()?;
            Ok(sections.titles()?.map(|titles| {
                if known == *items {
                    return titles;
                }
                let title = |item| known.position(&items.name(item)).and_then(|at| titles.get(at));
                Titles::new((0..items.len() as ItemId).map(|item| title(item).unwrap_or_default()))
            }))
        })
    }
}

/// Maps `path`, checks its directory, and gives the sections to `work`.
fn with_sections<T>(path: &Path, work: impl FnOnce(&Sections) -> Result<T>) -> Result<T> {
    let failed = |source| Error::io(path, source);
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::input(path, None, "this is not a regular file", "give the path of a cache"));
    }
    let file = File::open(path).map_err(failed)?;
    // SAFETY: the bytes must not change while they are mapped. The library replaces caches and never writes
    // into them; that others do not is the contract stated on the type. All access is bounds-checked against
    // the length of the map.
    let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
    // Only a hint: the check reads everything once, from the start to the end.
    let _ = map.advise(Advice::Sequential);
    let opened = Sections::read(Arc::new(map)).and_then(|sections| {
        let result = work(&sections);
        let _ = sections.map.advise(Advice::Normal);
        result
    });
    opened.map_err(|error| match error {
        Error::Data { problem, remedy } => Error::input(path, None, problem, remedy),
        error => error,
    })
}

/// The directory, checked: every section lies within the file, and none has two.
struct Sections {
    map: Arc<Mmap>,
    trailer: Trailer,
    sections: Vec<Section>,
}

impl Sections {
    fn read(map: Arc<Mmap>) -> Result<Self> {
        if map.len() < HEAD || map[..MAGIC.len()] != *MAGIC {
            return Err(Error::data(
                "this is not a cache of interactions",
                "write one with `fastvae prepare`",
            ));
        }
        let head: Head = bytemuck::pod_read_unaligned(&map[..HEAD]);
        if head.version > VERSION {
            return Err(Error::data(
                format!("the cache has version {}, and this program reads up to {VERSION}", head.version),
                "upgrade fastvae, or write the cache again with this one",
            ));
        }
        let trailer: Option<Trailer> = map
            .len()
            .checked_sub(TRAILER)
            .filter(|&at| at >= HEAD)
            .map(|at| bytemuck::pod_read_unaligned(&map[at..]));
        let Some(trailer) = trailer.filter(|trailer| trailer.magic == END_MAGIC) else {
            return Err(damaged(format!("the cache is cut off after {} bytes", map.len())));
        };
        let end = map.len() - TRAILER;
        let start = usize::try_from(trailer.n_sections)
            .ok()
            .filter(|&n| n <= Kind::ALL.len())
            .and_then(|n| end.checked_sub(n * SECTION))
            .filter(|&start| start >= HEAD);
        let Some(start) = start else {
            return Err(damaged(format!("a directory of {} sections does not fit", trailer.n_sections)));
        };
        let sections: Vec<Section> = bytemuck::pod_collect_to_vec(&map[start..end]);
        if frame_checksum(&head, &sections, &trailer) != trailer.checksum {
            return Err(damaged("the checksum of the directory is wrong".to_string()));
        }
        let unknown = |section: &&Section| Kind::ALL.iter().all(|kind| *kind as u64 != section.kind);
        if let Some(section) = sections.iter().find(unknown) {
            return Err(damaged(format!("there is a section of unknown kind {}", section.kind)));
        }
        for kind in Kind::ALL {
            if sections.iter().filter(|section| section.kind == kind as u64).count() > 1 {
                return Err(damaged(format!("there are two sections of {kind:?}")));
            }
        }
        Ok(Self { map, trailer, sections })
    }

    fn cache(&self) -> Result<Cache> {
        let (n_users, n_interactions) = (size(self.trailer.n_users), size(self.trailer.n_interactions));
        let users = self.ids(n_users, [Kind::UserIntegers, Kind::UserBytes, Kind::UserEnds])?;
        let items = self.item_ids()?;
        let titles = self.titles()?;
        let Some(offsets) = self.optional::<u64>(Kind::Offsets, n_users.saturating_add(1))? else {
            return Err(damaged("there are no row offsets".to_string()));
        };
        let Some((items_of_rows, expected)) = self.unchecked(Kind::Items, n_interactions)? else {
            return Err(damaged("there are no items".to_string()));
        };
        let weights = self.optional::<f32>(Kind::Weights, n_interactions)?;
        if let Some(weights) = &weights
            && !weights.iter().fold(true, |good, &weight| good & (weight > 0.0) & (weight < f32::INFINITY))
        {
            return Err(damaged("a weight is not a positive number".to_string()));
        }
        let mut sum = Checksum::new();
        let interactions = Interactions::from_storage(
            positions(offsets)?,
            items_of_rows,
            weights,
            self.optional::<i64>(Kind::Timestamps, n_interactions)?,
            Arc::new(users),
            Arc::new(items),
            |row| sum.update(bytemuck::cast_slice(row)),
        )
        .map_err(|error| match error {
            Error::Data { problem, .. } => damaged(problem),
            error => error,
        })?;
        if sum.finish() != expected {
            return Err(damaged("the checksum of the items is wrong".to_string()));
        }
        Ok(Cache { interactions, titles })
    }

    fn item_ids(&self) -> Result<IdMap> {
        let n_items = size(self.trailer.n_items);
        self.ids(n_items, [Kind::ItemIntegers, Kind::ItemBytes, Kind::ItemEnds])
    }

    fn titles(&self) -> Result<Option<Titles>> {
        match self.optional::<u64>(Kind::TitleEnds, size(self.trailer.n_items))? {
            Some(ends) => Titles::from_storage(self.bytes(Kind::TitleBytes)?, ends).map(Some),
            None => Ok(None),
        }
    }

    fn ids(&self, n: usize, [integers, bytes, ends]: [Kind; 3]) -> Result<IdMap> {
        if let Some(integers) = self.optional::<i64>(integers, n)? {
            return IdMap::from_integer_storage(integers);
        }
        if let Some(ends) = self.optional::<u64>(ends, n)? {
            return IdMap::from_string_storage(self.bytes(bytes)?, ends);
        }
        IdMap::checked_range(n)
    }

    /// The section of `kind` with `n` values, its checksum checked.
    fn optional<T: Pod>(&self, kind: Kind, n: usize) -> Result<Option<Storage<T>>> {
        let Some((values, expected)) = self.unchecked::<T>(kind, n)? else { return Ok(None) };
        check_sum(kind, bytemuck::cast_slice(&values), expected)?;
        Ok(Some(values))
    }

    /// The section of `kind`, of any length, its checksum checked.
    fn bytes(&self, kind: Kind) -> Result<Storage<u8>> {
        let Some(section) = self.find(kind) else {
            return Err(damaged(format!("there is no section of {kind:?}")));
        };
        let bytes = self.place(section)?;
        check_sum(kind, &bytes, section.checksum)?;
        Ok(bytes)
    }

    /// The section of `kind` with `n` values, and the checksum that it should have.
    fn unchecked<T: Pod>(&self, kind: Kind, n: usize) -> Result<Option<(Storage<T>, u64)>> {
        let Some(section) = self.find(kind) else { return Ok(None) };
        let values = self.place::<T>(section)?;
        if values.len() != n {
            return Err(damaged(format!("there are {} values of {kind:?} instead of {n}", values.len())));
        }
        Ok(Some((values, section.checksum)))
    }

    fn find(&self, kind: Kind) -> Option<&Section> {
        self.sections.iter().find(|section| section.kind == kind as u64)
    }

    fn place<T: Pod>(&self, section: &Section) -> Result<Storage<T>> {
        let range = usize::try_from(section.start)
            .ok()
            .zip(section.start.checked_add(section.bytes).and_then(|end| usize::try_from(end).ok()));
        let Some((start, end)) = range else {
            return Err(damaged(format!("a section of {} bytes does not fit", section.bytes)));
        };
        Storage::mapped(&self.map, start..end)
    }
}

/// A size of the trailer; one that does not fit the machine fits no section either.
fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

fn check_sum(kind: Kind, bytes: &[u8], expected: u64) -> Result<()> {
    if Checksum::of(bytes) != expected {
        return Err(damaged(format!("the checksum of {kind:?} is wrong")));
    }
    Ok(())
}

/// Offsets as positions of this machine: the same bytes where it has 64 bits.
#[cfg(target_pointer_width = "64")]
fn positions(offsets: Storage<u64>) -> Result<Storage<usize>> {
    match offsets {
        Storage::Mapped { map, range } => Storage::mapped(&map, range),
        Storage::Owned(values) => Ok(values.iter().map(|&offset| offset as usize).collect::<Vec<_>>().into()),
    }
}

#[cfg(not(target_pointer_width = "64"))]
fn positions(offsets: Storage<u64>) -> Result<Storage<usize>> {
    // What does not fit becomes one past every row, which is refused with the rows.
    let narrow = |&offset: &u64| usize::try_from(offset).unwrap_or(usize::MAX);
    Ok(offsets.iter().map(narrow).collect::<Vec<_>>().into())
}

fn damaged(problem: String) -> Error {
    Error::data(problem, REMEDY)
}
