//! Sparse row gradients: grouped by item, each row summed and updated by one owner.
//!
//! A step touches rows of a table many times: row i gets the sum of weight * source[row] over its entries. The
//! entries of each user block are bucketed by item range; then one task per bucket sorts its entries by item,
//! sums each row's gradient and updates it at once. No shared gradient table, no atomics, and the order of
//! summation does not depend on the number of threads.

use fearless_simd::{dispatch, f32x16, prelude::*};
use rayon::prelude::*;

use crate::config::Optimizer;
use crate::data::ItemId;
use crate::math::matrix::LANES;
use crate::math::simd::{level, prefetch};
use crate::math::{Matrix, MatrixView};
use crate::optim::{Moments, Update};

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

/// A table with its moments and, for the decoder, its bias column with its own.
pub(super) struct RowTable<'a> {
    pub rows: &'a mut Matrix,
    pub moments: &'a mut Moments,
    pub bias: Option<BiasColumn<'a>>,
}

/// One number per row, with its moments.
pub(super) struct BiasColumn<'a> {
    pub values: &'a mut [f32],
    pub first: &'a mut [f32],
    pub second: &'a mut [f32],
}

/// A bucket's share of a [`RowTable`].
pub(super) struct RowChunk<'a> {
    pub rows: &'a mut [f32],
    pub first: &'a mut [f32],
    pub second: &'a mut [f32],
    pub touched: &'a mut [u32],
    pub bias: Option<BiasColumn<'a>>,
}

impl<'a> RowTable<'a> {
    /// The table cut into chunks of `width` rows.
    pub fn chunks(self, width: usize) -> Vec<RowChunk<'a>> {
        let floats = width * self.rows.stride();
        let mut bias: Vec<Option<BiasColumn<'a>>> = match self.bias {
            None => (0..self.rows.rows().div_ceil(width)).map(|_| None).collect(),
            Some(bias) => bias
                .values
                .chunks_mut(width)
                .zip(bias.first.chunks_mut(width))
                .zip(bias.second.chunks_mut(width))
                .map(|((values, first), second)| Some(BiasColumn { values, first, second }))
                .collect(),
        };
        let rows = self.rows.data_mut().chunks_mut(floats);
        let first = self.moments.first.data_mut().chunks_mut(floats);
        let second = self.moments.second.data_mut().chunks_mut(floats);
        let touched = self.moments.touched.chunks_mut(width);
        rows.zip(first)
            .zip(second)
            .zip(touched)
            .zip(&mut bias)
            .map(|((((rows, first), second), touched), bias)| {
                let bias = bias.take();
                RowChunk { rows, first, second, touched, bias }
            })
            .collect()
    }
}

/// Adds up the gradients of all touched rows and updates them; with dense Adam the untouched rows too.
pub(super) fn update_rows(
    table: RowTable<'_>,
    blocks: &[&Buckets],
    layout: BucketLayout,
    source: MatrixView<'_>,
    update: &Update,
) {
    let stride = table.rows.stride();
    table.chunks(layout.width()).into_par_iter().enumerate().for_each_init(
        || (Grouping::default(), vec![0.0; stride]),
        |(grouping, gradient), (bucket, mut chunk)| {
            let entries = BucketEntries { blocks, bucket, layout };
            let grouped = grouping.group(&entries, layout.width());
            dispatch!(level(), simd => update_chunk(simd, &mut chunk, grouped, source, update, gradient));
        },
    );
}

#[inline(always)]
fn update_chunk<S: Simd>(
    simd: S,
    chunk: &mut RowChunk<'_>,
    (runs, sources): (&[Run], &[Source]),
    source: MatrixView<'_>,
    update: &Update,
    gradient: &mut [f32],
) {
    let stride = gradient.len();
    let (mut next_row, mut start) = (0, 0);
    for (k, run) in runs.iter().enumerate() {
        let row = run.item as usize;
        if let Some(next) = runs.get(k + 1) {
            let at = next.item as usize * stride;
            prefetch(&chunk.rows[at..at + stride]);
            prefetch(&chunk.first[at..at + stride]);
            prefetch(&chunk.second[at..at + stride]);
        }
        if update.optimizer == Optimizer::Adam {
            update_untouched(simd, chunk, next_row..row, update, gradient);
            next_row = row + 1;
        }
        let mine = &sources[start..run.end as usize];
        row_gradient(simd, mine, source, gradient);
        let bias_gradient = if chunk.bias.is_some() { weight_sum(mine) } else { 0.0 };
        update_row(simd, chunk, row, update, gradient, bias_gradient);
        start = run.end as usize;
    }
    if update.optimizer == Optimizer::Adam {
        update_untouched(simd, chunk, next_row..chunk.rows.len() / stride, update, gradient);
    }
}

/// The gradient of a row's bias.
#[inline(always)]
pub(super) fn weight_sum(sources: &[Source]) -> f32 {
    sources.iter().map(|source| source.weight).sum()
}

/// The gradient of one row: the sum of weight * source[row] over its entries.
#[inline(always)]
pub(super) fn row_gradient<S: Simd>(simd: S, run: &[Source], source: MatrixView<'_>, gradient: &mut [f32]) {
    let mut column = 0;
    while column < gradient.len() {
        column += match gradient.len() - column {
            128.. => column_sums::<S, 8>(simd, run, source, column, gradient),
            64..128 => column_sums::<S, 4>(simd, run, source, column, gradient),
            32..64 => column_sums::<S, 2>(simd, run, source, column, gradient),
            _ => column_sums::<S, 1>(simd, run, source, column, gradient),
        };
    }
}

/// `L` vectors of columns of the sum, in registers; returns how many columns that is.
#[inline(always)]
fn column_sums<S: Simd, const L: usize>(
    simd: S,
    run: &[Source],
    source: MatrixView<'_>,
    column: usize,
    gradient: &mut [f32],
) -> usize {
    let mut sums = [f32x16::splat(simd, 0.0); L];
    for entry in run {
        let row = &source.padded_row(entry.row as usize)[column..column + L * LANES];
        let weight = f32x16::splat(simd, entry.weight);
        for (l, sum) in sums.iter_mut().enumerate() {
            *sum = f32x16::from_slice(simd, &row[l * LANES..][..LANES]).mul_add(weight, *sum);
        }
    }
    for (l, sum) in sums.iter().enumerate() {
        sum.store_slice(&mut gradient[column + l * LANES..][..LANES]);
    }
    L * LANES
}

#[inline(always)]
fn update_untouched<S: Simd>(
    simd: S,
    chunk: &mut RowChunk<'_>,
    rows: std::ops::Range<usize>,
    update: &Update,
    gradient: &mut [f32],
) {
    for row in rows {
        gradient.fill(0.0);
        update_row(simd, chunk, row, update, gradient, 0.0);
    }
}

/// Updates one row of a chunk, and its bias where there is one.
#[inline(always)]
pub(super) fn update_row<S: Simd>(
    simd: S,
    chunk: &mut RowChunk<'_>,
    row: usize,
    update: &Update,
    gradient: &mut [f32],
    bias_gradient: f32,
) {
    let stride = gradient.len();
    let span = row * stride..(row + 1) * stride;
    let gap = update.gap(&mut chunk.touched[row]);
    update.row(
        simd,
        &mut chunk.rows[span.clone()],
        &mut chunk.first[span.clone()],
        &mut chunk.second[span],
        gradient,
        gap,
    );
    if let Some(bias) = &mut chunk.bias {
        let (value, first, second) = (&mut bias.values[row], &mut bias.first[row], &mut bias.second[row]);
        update.scalar(value, first, second, bias_gradient, gap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::math::{Purpose, Stream};

    fn random(rows: usize, cols: usize, seed: u64) -> Matrix {
        let mut stream = Stream::new(seed, Purpose::Initialise, 0, 0);
        Matrix::from_rows(rows, cols, &(0..rows * cols).map(|_| stream.normal() as f32).collect::<Vec<_>>())
    }

    #[test]
    fn grouped_updates_equal_a_gradient_table() {
        for (n_items, per_block, shift) in
            [(100, 300, 6), (3000, 200, 12), (40_000, 50, 15), (5000, 4000, 13)]
        {
            for optimizer in [Optimizer::LazyAdam, Optimizer::Adam] {
                let layout = BucketLayout::with_shift(n_items, shift);
                let source = random(8, 20, 1);
                let mut stream = Stream::new(4, Purpose::Negatives, 0, shift);
                let mut gradient = vec![vec![0.0f64; 20]; n_items];
                let mut touched = vec![false; n_items];
                let blocks: Vec<Buckets> = (0..3)
                    .map(|_| {
                        let mut buckets = Buckets::default();
                        buckets.clear(layout.n_buckets());
                        for _ in 0..per_block {
                            let item = stream.below(n_items as u64) as u32;
                            let (row, weight) = (stream.below(8) as u32, stream.normal() as f32);
                            buckets.extend(layout, &[item], &[weight], 0.5, row);
                            touched[item as usize] = true;
                            for (g, s) in gradient[item as usize].iter_mut().zip(source.row(row as usize)) {
                                *g += f64::from(0.5 * weight * s);
                            }
                        }
                        buckets
                    })
                    .collect();
                let start = random(n_items, 20, 2);
                let (mut rows, mut moments) = (start.clone(), Moments::like(&start));
                let config = Config { optimizer, weight_decay: 0.1, ..Config::default() };
                let update = Update::at(&config, 0, 0);
                let blocks: Vec<&Buckets> = blocks.iter().collect();
                let table = RowTable { rows: &mut rows, moments: &mut moments, bias: None };
                update_rows(table, &blocks, layout, source.view(), &update);
                for item in 0..n_items {
                    let mut expected = start.row(item).to_vec();
                    if touched[item] || optimizer == Optimizer::Adam {
                        let mut g: Vec<f32> = gradient[item].iter().map(|&g| g as f32).collect();
                        g.resize(32, 0.0);
                        let (mut m, mut v) = (vec![0.0; 32], vec![0.0; 32]);
                        dispatch!(level(), simd => update.row(simd, &mut expected, &mut m, &mut v, &mut g, 0));
                    }
                    // A gradient near zero may change sign by rounding, which Adam's first step magnifies.
                    let close = |(d, (a, b)): (usize, (&f32, &f32))| {
                        (a - b).abs() < 1e-5 || gradient[item].get(d).is_some_and(|g| g.abs() < 1e-5)
                    };
                    assert!(
                        rows.row(item).iter().zip(&expected).enumerate().all(close),
                        "item {item} of {n_items}"
                    );
                }
            }
        }
    }

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
