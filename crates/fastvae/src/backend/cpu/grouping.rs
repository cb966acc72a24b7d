//! Gradient entries grouped by item.
//!
//! A step touches rows of a table many times: row i gets the sum of weight * source[row] over its entries. The entries of
//! each user block are bucketed by item range, so that one task can own a bucket, and grouped there by item, in an order
//! that does not depend on the number of threads.

use crate::data::ItemId;

/// `weight * source[row]` is to be added to the gradient of `item`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub item: ItemId,
    /// Row of the source.
    pub row: u32,
    pub weight: f32,
}

/// How items are cut into buckets: bucket of an item = item >> shift.
#[derive(Debug, Clone, Copy)]
pub(super) struct BucketLayout {
    shift: u32,
    n_buckets: usize,
}

impl BucketLayout {
    /// Buckets of `2^shift` items.
    pub fn with_shift(n_items: usize, shift: u32) -> Self {
        Self { shift, n_buckets: n_items.div_ceil(1 << shift) }
    }

    /// About 64 buckets: enough to share among threads, few enough for the bucketing pass to stay in cache.
    pub fn for_rows(n_items: usize) -> Self {
        let width = n_items.div_ceil(64).next_power_of_two().max(64);
        Self::with_shift(n_items, width.trailing_zeros())
    }

    /// Number of buckets.
    pub fn n_buckets(&self) -> usize {
        self.n_buckets
    }

    /// Items per bucket; the last one may hold fewer.
    pub fn width(&self) -> usize {
        1 << self.shift
    }
}

/// The entries of one user block, by bucket, in the order they were pushed.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    buckets: Vec<Vec<Entry>>,
}

impl Buckets {
    /// Forgets all entries and keeps their memory.
    pub fn clear(&mut self, n_buckets: usize) {
        self.buckets.resize_with(n_buckets, Vec::new);
        self.buckets.iter_mut().for_each(Vec::clear);
    }

    /// The entries of one bucket.
    pub fn bucket(&self, bucket: usize) -> &[Entry] {
        &self.buckets[bucket]
    }

    /// Adds an entry to one bucket.
    pub fn push(&mut self, bucket: usize, entry: Entry) {
        self.buckets[bucket].push(entry);
    }

    /// Adds `scale * weights[k] * source[row]` to item `items[k]`, for all k.
    pub fn extend(&mut self, layout: BucketLayout, items: &[ItemId], weights: &[f32], scale: f32, row: u32) {
        for (&item, &weight) in items.iter().zip(weights) {
            self.buckets[(item >> layout.shift) as usize].push(Entry { item, row, weight: weight * scale });
        }
    }
}

/// Entries that are to be grouped by item, in a fixed order.
pub(super) trait Entries {
    /// How many there are.
    fn len(&self) -> usize;
    /// Calls `visit` with the item of each, counted from the first item of the range.
    fn items(&self, visit: impl FnMut(u32));
    /// Calls `visit` with each.
    fn entries(&self, visit: impl FnMut(Entry));
}

/// The entries of one bucket of all blocks.
pub(super) struct BucketEntries<'a> {
    pub blocks: &'a [&'a Buckets],
    pub bucket: usize,
    pub layout: BucketLayout,
}

impl Entries for BucketEntries<'_> {
    fn len(&self) -> usize {
        self.blocks.iter().map(|block| block.buckets[self.bucket].len()).sum()
    }

    fn items(&self, mut visit: impl FnMut(u32)) {
        self.entries(|entry| visit(entry.item));
    }

    fn entries(&self, mut visit: impl FnMut(Entry)) {
        let base = (self.bucket << self.layout.shift) as ItemId;
        for block in self.blocks {
            for entry in &block.buckets[self.bucket] {
                visit(Entry { item: entry.item - base, ..*entry });
            }
        }
    }
}

/// `weight * source[row]`, to be added to the gradient of the item whose run this is in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Source {
    pub row: u32,
    pub weight: f32,
}

/// The sources of one item: those from the end of the run before up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub item: u32,
    pub end: u32,
}

/// Groups entries by item, stably; its memory is reused.
#[derive(Debug, Default)]
pub(super) struct Grouping {
    sources: Vec<Source>,
    runs: Vec<Run>,
    counts: Vec<u32>,
    entries: Vec<Entry>,
    other: Vec<Entry>,
}

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: u64 = size_of::<Entry>() as u64;
/// Bytes that sorting takes for each entry: itself twice, its source, its run.
pub(crate) const SORTING_BYTES: u64 = 2 * ENTRY_BYTES + (size_of::<Source>() + size_of::<Run>()) as u64;

/// Widest digit of the sort, in bits: its counts stay in the first-level cache.
const DIGIT: u32 = 12;

impl Grouping {
    /// The entries as runs, ascending by item, and their sources. Items are below `n_items`; the cost follows the
    /// entries, not the items.
    pub fn group(&mut self, entries: &impl Entries, n_items: usize) -> (&[Run], &[Source]) {
        let n = entries.len();
        self.sources.resize(n, Source { row: 0, weight: 0.0 });
        self.runs.clear();
        if n_items <= 1 << DIGIT && n * 8 >= n_items {
            self.group_by_counts(entries, n_items);
        } else {
            self.group_by_sorting(entries, n_items);
        }
        (&self.runs, &self.sources)
    }

    /// One counting pass and one that puts each source into its place.
    fn group_by_counts(&mut self, entries: &impl Entries, n_items: usize) {
        let Self { sources, runs, counts, .. } = self;
        counts.clear();
        counts.resize(n_items, 0);
        entries.items(|item| counts[item as usize] += 1);
        let mut start = 0;
        for (item, count) in counts.iter_mut().enumerate() {
            let end = start + *count;
            if *count > 0 {
                runs.push(Run { item: item as u32, end });
            }
            *count = start;
            start = end;
        }
        entries.entries(|Entry { item, row, weight }| {
            let place = &mut counts[item as usize];
            sources[*place as usize] = Source { row, weight };
            *place += 1;
        });
    }

    /// A sort by digits, or by comparisons where even one digit has more values than there are entries.
    fn group_by_sorting(&mut self, source: &impl Entries, n_items: usize) {
        let bits = n_items.next_power_of_two().trailing_zeros();
        let n_digits = bits.div_ceil(DIGIT).max(1);
        let digit = bits.div_ceil(n_digits);
        let Self { sources, runs, counts, entries, other } = self;
        entries.clear();
        source.entries(|entry| entries.push(entry));
        let n = entries.len();
        if n * 8 < 1 << digit {
            entries.sort_by_key(|entry| entry.item);
        } else {
            for pass in 0..n_digits {
                let mask = (1u32 << digit) - 1;
                let key = |entry: &Entry| ((entry.item >> (pass * digit)) & mask) as usize;
                counts.clear();
                counts.resize(1 << digit, 0);
                entries.iter().for_each(|entry| counts[key(entry)] += 1);
                let mut start = 0;
                for place in &mut *counts {
                    start += std::mem::replace(place, start);
                }
                other.resize(n, Entry { item: 0, row: 0, weight: 0.0 });
                for entry in &*entries {
                    let place = &mut counts[key(entry)];
                    other[*place as usize] = *entry;
                    *place += 1;
                }
                std::mem::swap(entries, other);
            }
        }
        for (k, (entry, source)) in entries.iter().zip(sources).enumerate() {
            *source = Source { row: entry.row, weight: entry.weight };
            match runs.last_mut() {
                Some(run) if run.item == entry.item => run.end += 1,
                _ => runs.push(Run { item: entry.item, end: k as u32 + 1 }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_by_item_in_the_order_pushed() {
        for (n_items, n) in [(1_000_000, 20_000), (1_000_000, 300), (60_000, 20_000), (5000, 10)] {
            let layout = BucketLayout::for_rows(n_items);
            let mut buckets = Buckets::default();
            buckets.clear(layout.n_buckets());
            let items: Vec<u32> =
                (0..n as u32).map(|k| k.wrapping_mul(2_654_435_761) % n_items as u32).collect();
            for (k, &item) in items.iter().enumerate() {
                buckets.extend(layout, &[item], &[k as f32], 1.0, k as u32);
            }
            for bucket in 0..layout.n_buckets() {
                let base = (bucket * layout.width()) as u32;
                let mut expected: Vec<(u32, u32)> = (0..n as u32)
                    .map(|k| (items[k as usize], k))
                    .filter(|(item, _)| (*item >> layout.shift) as usize == bucket)
                    .map(|(item, k)| (item - base, k))
                    .collect();
                expected.sort_unstable();
                let mut grouping = Grouping::default();
                let entries = BucketEntries { blocks: &[&buckets], bucket, layout };
                let (runs, sources) = grouping.group(&entries, layout.width());
                let mut start = 0;
                let got: Vec<(u32, u32)> = runs
                    .iter()
                    .flat_map(|run| {
                        let mine =
                            start..std::mem::replace(&mut start, run.end as usize).max(run.end as usize);
                        sources[mine].iter().map(|source| (run.item, source.row)).collect::<Vec<_>>()
                    })
                    .collect();
                assert_eq!(got, expected, "{n} entries of {n_items}");
                assert!(sources.iter().all(|source| source.weight == source.row as f32));
            }
        }
    }
}
