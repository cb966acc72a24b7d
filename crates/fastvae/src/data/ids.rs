//! [`IdMap`]: outside identifiers to positions and back.
//!
//! Catalogues reach tens of millions of items, so an identifier costs what it must: nothing for `0..n`, 8 bytes
//! for an integer, its bytes plus 8 for a string. Ascending integers are found by binary search and need no
//! hash table; [`IdMapBuilder`](crate::data::IdMapBuilder) always leaves integers ascending.

use std::borrow::Cow;
use std::hash::BuildHasher;
use std::sync::OnceLock;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::data::storage::Storage;
use crate::error::{Error, Result};

/// Most identifiers a map can hold: positions are `u32`, and one value is kept free.
pub(crate) const MAX_IDS: usize = u32::MAX as usize - 1;

/// Outside identifiers (strings or integers) in the order of their positions.
#[derive(Debug, Clone)]
pub struct IdMap {
    ids: Ids,
    /// Positions by hash of the identifier, made when it is first asked for; a range and ascending integers need
    /// none, and most runs on mapped data never ask.
    table: OnceLock<HashTable<u32>>,
    hasher: DefaultHashBuilder,
}

#[derive(Debug, Clone)]
enum Ids {
    Range(usize),
    Ascending(Storage<i64>),
    Integers(Storage<i64>),
    Strings { bytes: Storage<u8>, ends: Storage<u64> },
}

impl IdMap {
    /// The identifiers `0..n`.
    pub fn range(n: usize) -> Self {
        Self::without_table(Ids::Range(n))
    }

    /// The integers `ids`, in this order; `0..n` becomes a range.
    ///
    /// # Errors
    /// [`Error::Data`] if one appears twice or there are more than `u32` positions.
    pub fn from_integers(ids: Vec<i64>) -> Result<Self> {
        Self::from_integer_storage(ids.into())
    }

    pub(crate) fn from_integer_storage(ids: Storage<i64>) -> Result<Self> {
        check_len(ids.len())?;
        if ids.iter().enumerate().all(|(position, &id)| id == position as i64) {
            return Ok(Self::range(ids.len()));
        }
        if ids.windows(2).all(|pair| pair[0] < pair[1]) {
            return Ok(Self::without_table(Ids::Ascending(ids)));
        }
        Self::without_table(Ids::Integers(ids)).distinct()
    }

    /// The strings `ids`, in this order. They stay strings, even where all are integers.
    ///
    /// # Errors
    /// [`Error::Data`] if one appears twice or there are more than `u32` positions.
    pub fn from_strings<S: AsRef<str>>(ids: impl IntoIterator<Item = S>) -> Result<Self> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for id in ids {
            bytes.extend_from_slice(id.as_ref().as_bytes());
            ends.push(bytes.len() as u64);
        }
        Self::from_string_parts(bytes, ends)
    }

    /// Strings as stored by [`IdMap::string_parts`]: identifier `i` is `bytes[ends[i - 1]..ends[i]]`.
    ///
    /// # Errors
    /// [`Error::Data`] if the ends do not ascend to the length of `bytes`, an identifier is not UTF-8 or
    /// appears twice.
    pub(crate) fn from_string_parts(bytes: Vec<u8>, ends: Vec<u64>) -> Result<Self> {
        Self::from_string_storage(bytes.into(), ends.into())?.distinct()
    }

    /// As [`IdMap::from_string_parts`], without looking for repetitions: of equal identifiers the first is found.
    pub(crate) fn from_string_storage(bytes: Storage<u8>, ends: Storage<u64>) -> Result<Self> {
        check_len(ends.len())?;
        check_block(&bytes, &ends, "identifiers")?;
        Ok(Self::without_table(Ids::Strings { bytes, ends }))
    }

    /// As [`IdMap::range`], for a number that may be too large.
    pub(crate) fn checked_range(n: usize) -> Result<Self> {
        check_len(n)?;
        Ok(Self::range(n))
    }

    /// The strings of a builder, with the table it has already filled.
    pub(crate) fn from_interned(
        bytes: Vec<u8>,
        ends: Vec<u64>,
        table: HashTable<u32>,
        hasher: DefaultHashBuilder,
    ) -> Self {
        Self { ids: Ids::Strings { bytes: bytes.into(), ends: ends.into() }, table: table.into(), hasher }
    }

    fn without_table(ids: Ids) -> Self {
        Self { ids, table: OnceLock::new(), hasher: DefaultHashBuilder::default() }
    }

    /// This map with its table, if no identifier appears twice.
    fn distinct(self) -> Result<Self> {
        let (table, repeated) = self.filled_table();
        if let Some(position) = repeated {
            let id = self.name(position);
            return Err(Error::data(format!("identifier `{id}` appears twice"), "give each one once"));
        }
        Ok(Self { table: table.into(), ..self })
    }

    fn table(&self) -> &HashTable<u32> {
        self.table.get_or_init(|| self.filled_table().0)
    }

    /// The positions by hash, and one whose identifier stood before, if there is any.
    fn filled_table(&self) -> (HashTable<u32>, Option<u32>) {
        match &self.ids {
            Ids::Range(_) | Ids::Ascending(_) => (HashTable::new(), None),
            Ids::Integers(ids) => {
                let ids = &ids[..];
                table_of(ids.len(), &self.hasher, |position| Key::Integer(ids[position]))
            }
            Ids::Strings { bytes, ends } => {
                let (bytes, ends) = (&bytes[..], &ends[..]);
                table_of(ends.len(), &self.hasher, |position| Key::Bytes(slice(bytes, ends, position)))
            }
        }
    }

    /// Number of identifiers.
    pub fn len(&self) -> usize {
        match &self.ids {
            Ids::Range(n) => *n,
            Ids::Ascending(ids) | Ids::Integers(ids) => ids.len(),
            Ids::Strings { ends, .. } => ends.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the identifiers are `0..n`.
    pub fn is_range(&self) -> bool {
        matches!(self.ids, Ids::Range(_))
    }

    /// Whether every identifier is an integer (a range included).
    pub fn is_integers(&self) -> bool {
        !matches!(self.ids, Ids::Strings { .. })
    }

    /// The identifier at `position`, as text.
    ///
    /// # Panics
    /// If `position` is not below [`IdMap::len`].
    pub fn name(&self, position: u32) -> Cow<'_, str> {
        match &self.ids {
            Ids::Strings { bytes, ends } => String::from_utf8_lossy(slice(bytes, ends, position as usize)),
            _ => Cow::Owned(self.integer(position).to_string()),
        }
    }

    /// The position of the identifier written `id`; a map of integers knows only their canonical spelling.
    pub fn position(&self, id: &str) -> Option<u32> {
        self.position_of_bytes(id.as_bytes())
    }

    /// As [`IdMap::position`], for an integer identifier.
    pub fn position_of_integer(&self, id: i64) -> Option<u32> {
        match &self.ids {
            Ids::Range(n) => (0..*n as i64).contains(&id).then_some(id as u32),
            Ids::Ascending(ids) => ids.binary_search(&id).ok().map(|position| position as u32),
            Ids::Integers(ids) => self
                .table()
                .find(hash(&self.hasher, Key::Integer(id)), |&position| ids[position as usize] == id)
                .copied(),
            Ids::Strings { .. } => self.position_of_bytes(id.to_string().as_bytes()),
        }
    }

    pub(crate) fn position_of_bytes(&self, id: &[u8]) -> Option<u32> {
        match &self.ids {
            Ids::Strings { bytes, ends } => self
                .table()
                .find(hash(&self.hasher, Key::Bytes(id)), |&position| {
                    slice(bytes, ends, position as usize) == id
                })
                .copied(),
            _ => self.position_of_integer(canonical_integer(id)?),
        }
    }

    /// The integers in order of position, where they are integers that are not a range.
    pub fn integers(&self) -> Option<&[i64]> {
        match &self.ids {
            Ids::Ascending(ids) | Ids::Integers(ids) => Some(ids),
            _ => None,
        }
    }

    /// The block of bytes and the end of each identifier in it, where they are strings.
    pub(crate) fn string_parts(&self) -> Option<(&[u8], &[u64])> {
        match &self.ids {
            Ids::Strings { bytes, ends } => Some((bytes, ends)),
            _ => None,
        }
    }

    /// The identifiers at `positions`, in that order.
    ///
    /// # Errors
    /// [`Error::Data`] if a position appears twice.
    ///
    /// # Panics
    /// If a position is not below [`IdMap::len`].
    pub(crate) fn select(&self, positions: &[u32]) -> Result<Self> {
        match &self.ids {
            Ids::Strings { bytes, ends } => {
                let (mut picked, mut picked_ends) = (Vec::new(), Vec::with_capacity(positions.len()));
                for &position in positions {
                    picked.extend_from_slice(slice(bytes, ends, position as usize));
                    picked_ends.push(picked.len() as u64);
                }
                Self::from_string_parts(picked, picked_ends)
            }
            _ => Self::from_integers(positions.iter().map(|&position| self.integer(position)).collect()),
        }
    }

    fn integer(&self, position: u32) -> i64 {
        match &self.ids {
            Ids::Range(n) => {
                assert!((position as usize) < *n, "position {position} of {n} identifiers");
                i64::from(position)
            }
            Ids::Ascending(ids) | Ids::Integers(ids) => ids[position as usize],
            Ids::Strings { .. } => unreachable!("callers match strings first"),
        }
    }
}

impl PartialEq for IdMap {
    fn eq(&self, other: &Self) -> bool {
        match (&self.ids, &other.ids) {
            (Ids::Range(a), Ids::Range(b)) => a == b,
            (Ids::Strings { bytes: a, ends: b }, Ids::Strings { bytes: c, ends: d }) => a == c && b == d,
            _ => self.integers().is_some() && self.integers() == other.integers(),
        }
    }
}

impl Eq for IdMap {}

#[derive(Clone, Copy, Hash, PartialEq)]
pub(crate) enum Key<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
}

pub(crate) fn hash(hasher: &DefaultHashBuilder, key: Key<'_>) -> u64 {
    match key {
        Key::Integer(id) => hasher.hash_one(id),
        Key::Bytes(id) => hasher.hash_one(id),
    }
}

/// Entry `position` of a block whose entries end at `ends`.
pub(crate) fn slice<'a>(bytes: &'a [u8], ends: &[u64], position: usize) -> &'a [u8] {
    let start = if position == 0 { 0 } else { ends[position - 1] as usize };
    &bytes[start..ends[position] as usize]
}

/// The value of `text` if it is how that `i64` is printed: no leading zero, no plus, no `-0`.
///
/// Anything else must stay a string to survive the way back: `0054890` is not `54890`.
#[inline]
pub(crate) fn canonical_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [] => return None,
        [b'0'] => return (!negative).then_some(0),
        [b'0', ..] => return None,
        _ => {}
    }
    if digits.len() > 19 {
        return None;
    }
    let mut value = 0u64;
    for &digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // 19 digits stay below 2^64, so this cannot wrap.
        value = value * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// Checks a block of texts against its ends: ascending, within `bytes`, each one UTF-8.
pub(crate) fn check_block(bytes: &[u8], ends: &[u64], what: &str) -> Result<()> {
    let broken = |problem: String| Error::data(problem, "the file is damaged: write it again");
    if ends.windows(2).any(|pair| pair[0] > pair[1])
        || ends.last().copied().unwrap_or(0) != bytes.len() as u64
    {
        return Err(broken(format!("{} ends do not describe {} bytes of {what}", ends.len(), bytes.len())));
    }
    // As one text with ends between its characters: several times faster than one by one.
    let whole = match std::str::from_utf8(bytes) {
        Ok(text) => ends.iter().position(|&end| !text.is_char_boundary(end as usize)),
        Err(problem) => Some(ends.partition_point(|&end| end <= problem.valid_up_to() as u64)),
    };
    match whole {
        Some(position) => Err(broken(format!("entry {position} of the {what} is not UTF-8"))),
        None => Ok(()),
    }
}

fn check_len(n: usize) -> Result<()> {
    if n > MAX_IDS {
        return Err(Error::data(
            format!("{n} identifiers are more than {MAX_IDS}"),
            "keep fewer users and items, for example with --k-core",
        ));
    }
    Ok(())
}

fn table_of<'a>(
    n: usize,
    hasher: &DefaultHashBuilder,
    key: impl Fn(usize) -> Key<'a>,
) -> (HashTable<u32>, Option<u32>) {
    let mut table = HashTable::with_capacity(n);
    let mut repeated = None;
    for position in 0..n {
        let id = key(position);
        let code = hash(hasher, id);
        if table.find(code, |&other: &u32| key(other as usize) == id).is_some() {
            repeated = Some(position as u32);
            continue;
        }
        table.insert_unique(code, position as u32, |&other| hash(hasher, key(other as usize)));
    }
    (table, repeated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_costs_nothing_and_knows_its_bounds() {
        let map = IdMap::range(3);
        assert_eq!(map.name(2), "2");
        assert_eq!(map.position("2"), Some(2));
        assert_eq!(map.position("3"), None);
        assert_eq!(map.position("-1"), None);
        assert_eq!(map.position("02"), None);
    }

    #[test]
    fn integers_are_found_in_any_order() {
        for ids in [vec![5, 7, 100], vec![100, -5, 7]] {
            let map = IdMap::from_integers(ids.clone()).unwrap();
            for (position, id) in ids.iter().enumerate() {
                assert_eq!(map.position(&id.to_string()), Some(position as u32));
                assert_eq!(map.name(position as u32), id.to_string());
            }
            assert_eq!(map.position("6"), None);
            assert_eq!(map.integers(), Some(&ids[..]));
        }
    }

    #[test]
    fn strings_keep_their_leading_zeros() {
        let map = IdMap::from_strings(["0054890", "54890", "ß"]).unwrap();
        assert_eq!(map.position("0054890"), Some(0));
        assert_eq!(map.position("54890"), Some(1));
        assert_eq!(map.position_of_integer(54890), Some(1));
        assert_eq!(map.name(2), "ß");
        let (bytes, ends) = map.string_parts().unwrap();
        assert_eq!(IdMap::from_string_parts(bytes.to_vec(), ends.to_vec()).unwrap(), map);
    }

    #[test]
    fn damaged_parts_are_refused() {
        let refused = |bytes: &[u8], ends: &[u64]| {
            IdMap::from_string_parts(bytes.to_vec(), ends.to_vec()).unwrap_err().to_string()
        };
        assert!(refused(b"ab", &[1, 3]).contains("do not describe 2 bytes"));
        assert!(refused(b"ab", &[2, 1, 2]).contains("do not describe"));
        assert!(refused(b"ab", &[]).contains("do not describe"));
        assert!(refused("ß".as_bytes(), &[1, 2]).contains("not UTF-8"));
        assert!(refused(b"aa", &[1, 2]).contains("`a` appears twice"));
        assert!(IdMap::from_integers(vec![3, 1, 3]).unwrap_err().to_string().contains("`3` appears twice"));
    }

    #[test]
    fn only_canonical_integers_are_integers() {
        assert_eq!(canonical_integer(b"-12"), Some(-12));
        assert_eq!(canonical_integer(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(canonical_integer(b"-9223372036854775808"), Some(i64::MIN));
        for text in ["", "-", "-0", "+1", "01", "1.0", " 1", "9223372036854775808", "99999999999999999999"] {
            assert_eq!(canonical_integer(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn a_selection_keeps_names_in_the_new_order() {
        let map = IdMap::from_strings(["a", "b", "c"]).unwrap().select(&[2, 0]).unwrap();
        assert_eq!((map.name(0), map.name(1)), ("c".into(), "a".into()));
        assert!(IdMap::range(5).select(&[0, 1]).unwrap().is_range());
        assert_eq!(IdMap::range(5).select(&[1, 4]).unwrap().integers(), Some(&[1, 4][..]));
    }
}
