//! [`IdMap`]: outside identifiers to positions and back.

use hashbrown::DefaultHashBuilder;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// Outside identifiers (strings or integers) in the order of their positions.
///
/// Three storages behind one interface: `0..n` costs nothing, integers 8 bytes each, strings their bytes in
/// one block; the last two add a hash table for look-ups.
#[derive(Debug, Clone)]
pub struct IdMap {
    ids: Ids,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

#[derive(Debug, Clone)]
enum Ids {
    Range(usize),
    Integers(Vec<i64>),
    Strings { bytes: Vec<u8>, ends: Vec<u64> },
}

impl IdMap {
    /// The identifiers `0..n`.
    pub fn range(n: usize) -> Self {
        Self { ids: Ids::Range(n), table: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }

    /// Number of identifiers.
    pub fn len(&self) -> usize {
        match &self.ids {
            Ids::Range(n) => *n,
            Ids::Integers(ids) => ids.len(),
            Ids::Strings { ends, .. } => ends.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
