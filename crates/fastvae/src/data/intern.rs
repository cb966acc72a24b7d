//! [`IdMapBuilder`]: gives positions to identifiers as they stream by.

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::data::IdMap;
use crate::data::ids::{Key, MAX_IDS, canonical_integer, hash, slice};
use crate::error::{Error, Result};

/// Interns identifiers in order of first appearance.
///
/// It starts with integers and turns to strings at the first identifier that is not one in canonical spelling.
/// [`IdMapBuilder::finish`] sorts integers, so that their positions do not depend on the order of the rows.
#[derive(Debug)]
pub struct IdMapBuilder {
    ids: Interned,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Position by value for small integers, `NONE` where not seen: most files count from 0 or 1, and an
    /// array look-up is several times faster than a hash table.
    dense: Vec<u32>,
    limit: usize,
}

#[derive(Debug)]
enum Interned {
    Integers(Vec<i64>),
    Strings { bytes: Vec<u8>, ends: Vec<u64> },
}

/// Why an identifier could not be interned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InternError {
    NotUtf8,
    Full,
}

const NONE: u32 = u32::MAX;
/// The dense table may be this much larger than the identifiers seen, plus `DENSE_START`.
const DENSE_SLACK: usize = 4;
const DENSE_START: usize = 1 << 16;

impl Default for IdMapBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl IdMapBuilder {
    /// A builder without identifiers.
    pub fn new() -> Self {
        Self {
            ids: Interned::Integers(Vec::new()),
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            dense: Vec::new(),
            limit: MAX_IDS,
        }
    }

    /// Number of distinct identifiers so far.
    pub fn len(&self) -> usize {
        match &self.ids {
            Interned::Integers(ids) => ids.len(),
            Interned::Strings { ends, .. } => ends.len(),
        }
    }

    /// Whether there are none yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The position of `id`, new or known.
    ///
    /// # Errors
    /// [`Error::Data`] if there are more identifiers than `u32` positions.
    pub fn intern(&mut self, id: &str) -> Result<u32> {
        self.intern_bytes(id.as_bytes()).map_err(|_| self.full())
    }

    /// As [`IdMapBuilder::intern`], for an integer.
    ///
    /// # Errors
    /// As [`IdMapBuilder::intern`].
    pub fn intern_integer(&mut self, id: i64) -> Result<u32> {
        self.integer(id).map_err(|_| self.full())
    }

    fn full(&self) -> Error {
        Error::data(
            format!("more than {} distinct identifiers", self.limit),
            "check that the user and item columns are the right ones (--user-col, --item-col)",
        )
    }

    #[inline]
    pub(crate) fn intern_bytes(&mut self, id: &[u8]) -> Result<u32, InternError> {
        if let Interned::Integers(_) = self.ids {
            match canonical_integer(id) {
                Some(integer) => return self.integer(integer),
                None => self.turn_to_strings(),
            }
        }
        self.string(id)
    }

    #[inline]
    pub(crate) fn integer(&mut self, id: i64) -> Result<u32, InternError> {
        let Interned::Integers(ids) = &mut self.ids else {
            return self.string(id.to_string().as_bytes());
        };
        if let Some(&position) = usize::try_from(id).ok().and_then(|index| self.dense.get(index)) {
            if position != NONE {
                return Ok(position);
            }
        } else {
            let code = hash(&self.hasher, Key::Integer(id));
            if let Some(&position) = self.table.find(code, |&position| ids[position as usize] == id) {
                return Ok(position);
            }
        }
        self.insert_integer(id)
    }

    #[cold]
    #[inline(never)]
    fn insert_integer(&mut self, id: i64) -> Result<u32, InternError> {
        let Interned::Integers(ids) = &mut self.ids else {
            unreachable!("only called while the identifiers are integers")
        };
        if ids.len() >= self.limit {
            return Err(InternError::Full);
        }
        let position = ids.len() as u32;
        ids.push(id);
        let index = usize::try_from(id).unwrap_or(usize::MAX);
        if index >= self.dense.len() && index < DENSE_SLACK * ids.len() + DENSE_START {
            self.dense.resize((index + 1).next_power_of_two().max(DENSE_START), NONE);
            for (position, &id) in ids.iter().enumerate() {
                if let Some(slot) = usize::try_from(id).ok().and_then(|index| self.dense.get_mut(index)) {
                    *slot = position as u32;
                }
            }
        } else if let Some(slot) = self.dense.get_mut(index) {
            *slot = position;
        } else {
            let hasher = &self.hasher;
            self.table.insert_unique(hash(hasher, Key::Integer(id)), position, |&other| {
                hash(hasher, Key::Integer(ids[other as usize]))
            });
        }
        Ok(position)
    }

    fn string(&mut self, id: &[u8]) -> Result<u32, InternError> {
        let Interned::Strings { bytes, ends } = &mut self.ids else {
            unreachable!("only called once the identifiers are strings")
        };
        let code = hash(&self.hasher, Key::Bytes(id));
        if let Some(&position) =
            self.table.find(code, |&position| slice(bytes, ends, position as usize) == id)
        {
            return Ok(position);
        }
        // What equals a known identifier is valid, so only new ones need the check.
        if std::str::from_utf8(id).is_err() {
            return Err(InternError::NotUtf8);
        }
        if ends.len() >= self.limit {
            return Err(InternError::Full);
        }
        let position = ends.len() as u32;
        bytes.extend_from_slice(id);
        ends.push(bytes.len() as u64);
        let hasher = &self.hasher;
        self.table.insert_unique(code, position, |&other| {
            hash(hasher, Key::Bytes(slice(bytes, ends, other as usize)))
        });
        Ok(position)
    }

    #[cold]
    fn turn_to_strings(&mut self) {
        let Interned::Integers(ids) = &self.ids else { return };
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(ids.len()));
        for id in ids {
            bytes.extend_from_slice(id.to_string().as_bytes());
            ends.push(bytes.len() as u64);
        }
        let hasher = &self.hasher;
        let code = |&position: &u32| hash(hasher, Key::Bytes(slice(&bytes, &ends, position as usize)));
        let mut table = HashTable::with_capacity(ids.len());
        for position in 0..ends.len() as u32 {
            table.insert_unique(code(&position), position, code);
        }
        self.table = table;
        self.dense = Vec::new();
        self.ids = Interned::Strings { bytes, ends };
    }

    /// The map, and for each position handed out its final one where sorting moved them.
    pub fn finish(self) -> (IdMap, Option<Vec<u32>>) {
        match self.ids {
            Interned::Strings { bytes, ends } => {
                (IdMap::from_interned(bytes, ends, self.table, self.hasher), None)
            }
            Interned::Integers(ids) => {
                drop((self.table, self.dense));
                if ids.windows(2).all(|pair| pair[0] < pair[1]) {
                    return (ascending(ids), None);
                }
                let mut order: Vec<u32> = (0..ids.len() as u32).collect();
                order.sort_unstable_by_key(|&position| ids[position as usize]);
                let mut moved = vec![0; ids.len()];
                for (to, &from) in order.iter().enumerate() {
                    moved[from as usize] = to as u32;
                }
                let sorted = order.iter().map(|&position| ids[position as usize]).collect();
                (ascending(sorted), Some(moved))
            }
        }
    }
}

fn ascending(ids: Vec<i64>) -> IdMap {
    IdMap::from_integers(ids).expect("interned identifiers are distinct and fit u32 positions")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interned(ids: &[&str]) -> (Vec<u32>, IdMap) {
        let mut builder = IdMapBuilder::new();
        let given: Vec<u32> = ids.iter().map(|id| builder.intern(id).unwrap()).collect();
        let (map, moved) = builder.finish();
        (given.into_iter().map(|p| moved.as_ref().map_or(p, |m| m[p as usize])).collect(), map)
    }

    #[test]
    fn integers_end_up_ascending_whatever_their_order() {
        let (positions, map) = interned(&["7", "-3", "7", "4000000000", "0"]);
        assert_eq!(positions, [2, 0, 2, 3, 1]);
        assert_eq!(map.integers(), Some(&[-3, 0, 7, 4_000_000_000][..]));
        assert!(interned(&["2", "0", "1"]).1.is_range());
    }

    #[test]
    fn one_string_turns_all_into_strings_in_order_of_appearance() {
        let (positions, map) = interned(&["7", "3", "0054890", "7", "3"]);
        assert_eq!(positions, [0, 1, 2, 0, 1]);
        assert!(!map.is_integers());
        assert_eq!(map.position("0054890"), Some(2));
        assert_eq!(map.name(1), "3");
    }

    #[test]
    fn sparse_and_dense_integers_meet_when_the_dense_table_grows() {
        let mut builder = IdMapBuilder::new();
        // 100,000 starts in the hash table and is overtaken by the dense one.
        let first = builder.intern_integer(100_000).unwrap();
        for id in 0..50_000 {
            builder.intern_integer(id).unwrap();
        }
        for id in 90_000..110_000 {
            builder.intern_integer(id).unwrap();
        }
        assert_eq!(builder.intern_integer(100_000).unwrap(), first);
        assert_eq!(builder.len(), 70_000);
    }

    #[test]
    fn too_many_identifiers_are_an_error() {
        for ids in [["1", "2", "3"], ["a", "b", "c"]] {
            let mut builder = IdMapBuilder { limit: 2, ..IdMapBuilder::new() };
            builder.intern(ids[0]).unwrap();
            builder.intern(ids[1]).unwrap();
            builder.intern(ids[0]).unwrap();
            let error = builder.intern(ids[2]).unwrap_err().to_string();
            assert!(error.contains("more than 2 distinct identifiers") && error.contains("--user-col"));
        }
    }
}
