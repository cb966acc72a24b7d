//! Sparse row gradients: each touched row summed and updated by one owner.
//!
//! One task per bucket groups its entries by item, sums each row's gradient and updates it at once. No shared gradient
//! table, no atomics, and the order of summation does not depend on the number of threads.

use fearless_simd::{dispatch, f32x16, prelude::*};

use crate::backend::cpu::grouping::{BucketEntries, BucketLayout, Buckets, Grouping, Run, Source};
use crate::config::Optimizer;
use crate::math::matrix::LANES;
use crate::math::simd::{level, prefetch_at};
use crate::math::{Matrix, MatrixView};
use crate::optim::{self, Moments, Row, RowMoments, RowState, Update};

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
    /// Floats of `first` and of `second` for each row.
    pub strides: [usize; 2],
    pub states: &'a mut [RowState],
    pub bias: Option<BiasColumn<'a>>,
    /// See [`optim::share`].
    share: f32,
}

impl<'a> RowTable<'a> {
    /// The table cut into chunks of `width` rows.
    pub fn chunks(self, width: usize) -> Vec<RowChunk<'a>> {
        let share = optim::share(self.rows.cols());
        let strides = self.moments.strides();
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
        let first = self.moments.first.data_mut().chunks_mut(width * strides[0]);
        let mut seconds = self.moments.second.data_mut();
        let states = self.moments.rows.chunks_mut(width);
        rows.zip(first)
            .zip(states)
            .zip(&mut bias)
            .map(|(((rows, first), states), bias)| {
                let n = (states.len() * strides[1]).min(seconds.len());
                let second = seconds.split_off_mut(..n).expect("no more than there are");
                RowChunk { rows, first, second, strides, states, bias: bias.take(), share }
            })
            .collect()
    }
}

/// Rows from one that is updated to the one that is asked for meanwhile.
const AHEAD: usize = 2;

/// Where a row and its moments are, to ask for them line by line: a row asked for at once would fill the processor's
/// queue of misses, and the update before it would wait.
#[derive(Clone, Copy)]
struct RowLines {
    tables: [*const f32; 3],
    /// Whether the row has one second moment.
    compact: bool,
}

impl RowLines {
    #[inline(always)]
    fn ask(&self, line: usize) {
        let [row, first, second] = self.tables;
        prefetch_at(row.wrapping_add(line * LANES), LANES);
        if self.compact {
            prefetch_at(first.wrapping_add(line / 2 * LANES), LANES);
        } else {
            prefetch_at(first.wrapping_add(line * LANES), LANES);
            prefetch_at(second.wrapping_add(line * LANES), LANES);
        }
    }
}

impl RowChunk<'_> {
    /// The lines of row `row`; what it has one number of is asked for at once.
    #[inline(always)]
    fn lines(&self, row: usize) -> RowLines {
        let stride = self.rows.len() / self.states.len();
        let [first, second] = self.strides;
        let at = |table: &[f32], stride: usize| table.as_ptr().wrapping_add(row * stride);
        let tables = [at(self.rows, stride), at(self.first, first), at(self.second, second)];
        prefetch_at(self.states.as_ptr().wrapping_add(row).cast(), 1);
        RowLines { tables, compact: second == 0 }
    }
}

/// What the rows of a table are updated from.
pub(super) struct RowUpdates<'a> {
    /// Entries of the blocks of users, by bucket.
    pub blocks: &'a [&'a Buckets],
    pub layout: BucketLayout,
    /// What the entries weigh, a row for each user.
    pub source: MatrixView<'a>,
    pub update: &'a Update,
}

/// What one task needs, taken from a pool and given back.
#[derive(Debug, Default)]
pub(super) struct RowBuffers {
    pub grouping: Grouping,
    /// The gradient of one row.
    pub gradient: Vec<f32>,
}

impl RowUpdates<'_> {
    /// Adds up the gradients of the touched rows of a bucket and updates them; with dense Adam the untouched rows too.
    pub fn run(&self, bucket: usize, chunk: &mut RowChunk<'_>, buffers: &mut RowBuffers) {
        let Self { blocks, layout, source, update } = *self;
        let RowBuffers { grouping, gradient } = buffers;
        let grouped = grouping.group(&BucketEntries { blocks, bucket, layout }, layout.width());
        gradient.resize(source.stride(), 0.0);
        dispatch!(level(), simd => update_chunk(simd, chunk, grouped, source, update, gradient));
    }
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
        let next = chunk.lines(runs.get(k + AHEAD).unwrap_or(run).item as usize);
        if update.optimizer == Optimizer::Adam {
            update_untouched(simd, chunk, next_row..row, update, gradient);
            next_row = row + 1;
        }
        let mine = &sources[start..run.end as usize];
        row_gradient(simd, mine, source, gradient);
        let bias_gradient = if chunk.bias.is_some() { weight_sum(mine) } else { 0.0 };
        update_row(simd, chunk, row, update, gradient, bias_gradient, |line| next.ask(line));
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
        update_row(simd, chunk, row, update, gradient, 0.0, |_| ());
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
    ask: impl Fn(usize),
) {
    let stride = gradient.len();
    let state = &mut chunk.states[row];
    let gap = update.gap(state);
    let parameter = &mut chunk.rows[row * stride..][..stride];
    let [first, second] = chunk.strides;
    let (first, second) =
        (&mut chunk.first[row * first..][..first], &mut chunk.second[row * second..][..second]);
    let moments = RowMoments::of(first, second, state, chunk.share);
    update.row(simd, Row { parameter, moments }, gradient, gap, ask);
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
                let (mut rows, mut moments) = (start.clone(), Moments::full(n_items, 20));
                let config = Config { optimizer, weight_decay: 0.1, ..Config::default() };
                let update = Update::at(&config, 0, 0);
                let blocks: Vec<&Buckets> = blocks.iter().collect();
                let table = RowTable { rows: &mut rows, moments: &mut moments, bias: None };
                let updates = RowUpdates { blocks: &blocks, layout, source: source.view(), update: &update };
                let mut buffers = RowBuffers::default();
                for (bucket, mut chunk) in table.chunks(layout.width()).into_iter().enumerate() {
                    updates.run(bucket, &mut chunk, &mut buffers);
                }
                for item in 0..n_items {
                    let mut expected = start.row(item).to_vec();
                    if touched[item] || optimizer == Optimizer::Adam {
                        let mut g: Vec<f32> = gradient[item].iter().map(|&g| g as f32).collect();
                        g.resize(32, 0.0);
                        let (mut m, mut v) = (vec![0.0; 32], vec![0.0; 32]);
                        dispatch!(level(), simd => update.row(simd, Row { parameter: &mut expected, moments: RowMoments::Full(&mut m, &mut v) }, &mut g, 0, |_| ()));
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
}
