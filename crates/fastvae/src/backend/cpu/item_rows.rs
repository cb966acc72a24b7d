//! Gradients and updates of the item vectors, partition by partition.
//!
//! One task owns a partition: it gathers the entries of its positives and negatives from all queries. Where they are
//! many, it adds each to the gradient of its row and then updates the rows; where they are few, it sorts them by place,
//! sums each row's gradient in registers, and updates the row at once. Both give the same bits.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

use fearless_simd::{dispatch, prelude::*};

use crate::backend::cpu::block::UserBlock;
use crate::backend::cpu::grouping::{Entries, Entry, Run, Source};
use crate::backend::cpu::negatives::{ItemRows, PartNegatives, StepNegatives};
use crate::backend::cpu::part_gradient::{PartGradient, is_zero};
use crate::backend::cpu::rows::{RowBuffers, RowTable, row_gradient, weight_sum};
use crate::config::Optimizer;
use crate::math::matrix::LANES;
use crate::math::simd::{level, prefetch_at};
use crate::math::{Matrix, MatrixView};
use crate::optim::{self, Row, RowMoments, RowState, Update};

/// Rows asked for ahead of their sum, where they come in no order that the processor could guess.
const AHEAD: u32 = 6;

/// What one task needs, taken from a pool and given back: the rows of a partition are too many to make them anew in
/// each step.
#[derive(Debug, Default)]
pub(super) struct PartBuffers {
    pub row: RowBuffers,
    /// The gradients of all rows of a partition.
    gradients: PartGradient,
}

/// What the item vectors are updated from.
pub(super) struct ItemUpdates<'a> {
    table: SharedTable,
    rows: ItemRows<'a>,
    blocks: &'a [UserBlock],
    negatives: &'a StepNegatives,
    /// A row for each query of the batch.
    queries: MatrixView<'a>,
    update: &'a Update,
    /// Which partitions are done.
    done: Vec<AtomicBool>,
    /// The table that all tasks share.
    _table: PhantomData<&'a mut Matrix>,
}

impl<'a> ItemUpdates<'a> {
    /// The update of the item vectors touched by the positives of the blocks and by the negatives.
    pub fn new(
        table: RowTable<'a>,
        rows: ItemRows<'a>,
        (blocks, negatives): (&'a [UserBlock], &'a StepNegatives),
        queries: MatrixView<'a>,
        update: &'a Update,
    ) -> Self {
        let done = (0..rows.partitions.len()).map(|_| AtomicBool::new(false)).collect();
        let table = SharedTable::new(table);
        Self { table, rows, blocks, negatives, queries, update, done, _table: PhantomData }
    }

    /// Updates the touched vectors of one partition; with dense Adam the untouched ones too.
    ///
    /// # Panics
    /// If the partition has been updated before.
    pub fn run(&self, partition: usize, buffers: &mut PartBuffers) {
        let Self { table, rows, blocks, negatives, queries, update, .. } = *self;
        assert!(!self.done[partition].swap(true, Ordering::Relaxed), "each partition has one task");
        let PartBuffers { row: RowBuffers { grouping, gradient }, gradients } = buffers;
        let places = rows.partitions.range(partition);
        let negatives = negatives.part(partition);
        let entries = PartEntries { blocks, negatives, partition, start: places.start };
        if entries.len() >= places.len() {
            gradients.fit(places.len(), queries.cols());
            entries.add_to(gradients, queries, table.bias.is_some());
            // SAFETY: an item has one place, a place is in one partition, and each partition has one task.
            unsafe { update_from(table, rows, places, *update, gradients) };
        } else {
            let (runs, sources) = grouping.group(&entries, places.len());
            let part = Part { rows, places, runs, sources };
            gradient.resize(table.stride, 0.0);
            // SAFETY: as above.
            unsafe {
                dispatch!(level(), simd => update_part(simd, &table, &part, queries, update, gradient))
            };
        }
    }
}

/// The entries of a partition, block by block: positives, then negatives in the order of the queries.
struct PartEntries<'a> {
    blocks: &'a [UserBlock],
    negatives: PartNegatives<'a>,
    partition: usize,
    /// First place of the partition.
    start: u32,
}

impl Entries for PartEntries<'_> {
    fn len(&self) -> usize {
        let positives = self.blocks.iter().map(|block| block.targets.bucket(self.partition).len());
        positives.sum::<usize>() + self.negatives.len()
    }

    fn items(&self, mut visit: impl FnMut(u32)) {
        for block in self.blocks {
            let positives = block.targets.bucket(self.partition).iter();
            positives.for_each(|entry| visit(entry.item - self.start));
        }
        self.negatives.places().flatten().for_each(|place| visit(place - self.start));
    }

    fn entries(&self, mut visit: impl FnMut(Entry)) {
        let mut row = 0;
        for block in self.blocks {
            let positives = block.targets.bucket(self.partition).iter();
            positives.for_each(|entry| visit(Entry { item: entry.item - self.start, ..*entry }));
            for factor in block.negatives.factors(self.partition) {
                let (places, weights) = self.negatives.of_query(row as usize);
                for (place, weight) in places.iter().zip(weights) {
                    visit(Entry { item: place - self.start, row, weight: weight * factor });
                }
                row += 1;
            }
        }
    }
}

impl PartEntries<'_> {
    /// Adds the entries to the gradients of their rows, in order: the same sums bit for bit as by grouping.
    fn add_to(&self, gradients: &mut PartGradient, queries: MatrixView<'_>, with_bias: bool) {
        // The number of vectors in a row is a constant for the usual sizes, so that a query stays in registers.
        match queries.stride() / LANES {
            1 => dispatch!(level(), simd => self.add_rows_to::<_, 1>(simd, gradients, queries, with_bias)),
            2 => dispatch!(level(), simd => self.add_rows_to::<_, 2>(simd, gradients, queries, with_bias)),
            4 => dispatch!(level(), simd => self.add_rows_to::<_, 4>(simd, gradients, queries, with_bias)),
            8 => dispatch!(level(), simd => self.add_rows_to::<_, 8>(simd, gradients, queries, with_bias)),
            _ => dispatch!(level(), simd => self.add_rows_to::<_, 0>(simd, gradients, queries, with_bias)),
        }
    }

    #[inline(always)]
    fn add_rows_to<S: Simd, const L: usize>(
        &self,
        simd: S,
        gradients: &mut PartGradient,
        queries: MatrixView<'_>,
        with_bias: bool,
    ) {
        let start = self.start;
        let mut row = 0;
        for block in self.blocks {
            for entry in block.targets.bucket(self.partition) {
                let query = queries.padded_row(entry.row as usize);
                let (place, weight) = ([entry.item], [entry.weight]);
                gradients.add::<_, L>(simd, query, start, &place, (&weight, 1.0), with_bias);
            }
            for &factor in block.negatives.factors(self.partition) {
                let (places, weights) = self.negatives.of_query(row);
                let query = queries.padded_row(row);
                gradients.add::<_, L>(simd, query, start, places, (weights, factor), with_bias);
                row += 1;
            }
        }
    }
}

/// Updates the rows of one partition from their gradients, and sets these to zero.
///
/// # Safety
/// No other thread may use the rows of the partition meanwhile.
unsafe fn update_from(
    table: SharedTable,
    rows: ItemRows<'_>,
    places: std::ops::Range<u32>,
    update: Update,
    gradients: &mut PartGradient,
) {
    /// For rows of `stride` floats: a constant for the usual ones, so that a row's loop is unrolled.
    #[inline(always)]
    unsafe fn body<S: Simd>(
        simd: S,
        table: SharedTable,
        rows: ItemRows<'_>,
        places: std::ops::Range<u32>,
        update: Update,
        gradients: &mut PartGradient,
        stride: usize,
    ) {
        let table = SharedTable { stride, ..table };
        let dense = update.optimizer == Optimizer::Adam;
        let PartGradient { rows: gradients, bias } = gradients;
        let gradients = gradients.data_mut().chunks_exact_mut(stride);
        for ((place, gradient), bias) in places.clone().zip(gradients).zip(bias) {
            // Rows that lie in order are loaded without being asked for.
            if !rows.by_place && place + AHEAD < places.end {
                table.ask(rows.of_place(place + AHEAD) as usize);
            }
            if dense || !is_zero(simd, gradient) || *bias != 0.0 {
                let row = rows.of_place(place) as usize;
                // SAFETY: passed on to the caller.
                unsafe { table.update(simd, row, &update, gradient, std::mem::take(bias)) };
                gradient.fill(0.0);
            }
        }
    }
    // SAFETY: passed on to the caller.
    unsafe {
        match table.stride {
            16 => dispatch!(level(), simd => body(simd, table, rows, places, update, gradients, 16)),
            32 => dispatch!(level(), simd => body(simd, table, rows, places, update, gradients, 32)),
            64 => dispatch!(level(), simd => body(simd, table, rows, places, update, gradients, 64)),
            any => dispatch!(level(), simd => body(simd, table, rows, places, update, gradients, any)),
        }
    }
}

/// The grouped entries of one partition.
struct Part<'a> {
    rows: ItemRows<'a>,
    places: std::ops::Range<u32>,
    runs: &'a [Run],
    sources: &'a [Source],
}

/// Sums and updates the rows of one partition.
///
/// # Safety
/// No other thread may use the rows of the partition meanwhile.
#[inline(always)]
unsafe fn update_part<S: Simd>(
    simd: S,
    table: &SharedTable,
    part: &Part<'_>,
    queries: MatrixView<'_>,
    update: &Update,
    gradient: &mut [f32],
) {
    let Part { rows, places, runs, sources } = part;
    let row_of = |item: u32| rows.of_place(places.start + item) as usize;
    let dense = update.optimizer == Optimizer::Adam;
    let (mut next_item, mut start) = (0, 0);
    for (k, run) in runs.iter().enumerate() {
        if !rows.by_place
            && let Some(next) = runs.get(k + AHEAD as usize)
        {
            table.ask(row_of(next.item));
        }
        if dense {
            gradient.fill(0.0);
            for untouched in next_item..run.item {
                // SAFETY: passed on to the caller.
                unsafe { table.update(simd, row_of(untouched), update, gradient, 0.0) };
            }
            next_item = run.item + 1;
        }
        let mine = &sources[start..run.end as usize];
        row_gradient(simd, mine, queries, gradient);
        let bias_gradient = if table.bias.is_some() { weight_sum(mine) } else { 0.0 };
        if dense || !is_zero(simd, gradient) || bias_gradient != 0.0 {
            // SAFETY: passed on to the caller.
            unsafe { table.update(simd, row_of(run.item), update, gradient, bias_gradient) };
        }
        start = run.end as usize;
    }
    if dense {
        gradient.fill(0.0);
        for untouched in next_item..places.len() as u32 {
            // SAFETY: passed on to the caller.
            unsafe { table.update(simd, row_of(untouched), update, gradient, 0.0) };
        }
    }
}

/// A table whose rows are shared out among tasks in no simple ranges.
#[derive(Clone, Copy)]
struct SharedTable {
    rows: *mut f32,
    first: *mut f32,
    second: *mut f32,
    /// Floats of `first` and of `second` for each row.
    moment_strides: [usize; 2],
    states: *mut RowState,
    /// Values, first and second moments of the bias.
    bias: Option<[*mut f32; 3]>,
    /// See [`optim::share`].
    share: f32,
    stride: usize,
    n_rows: usize,
}

// SAFETY: the pointers are used only through `update`, whose callers share out the rows, and `ask`, which reads and
// writes nothing.
unsafe impl Sync for SharedTable {}

impl SharedTable {
    fn new(table: RowTable<'_>) -> Self {
        let bias = table.bias.map(|bias| {
            assert!(bias.values.len() == table.rows.rows());
            [bias.values.as_mut_ptr(), bias.first.as_mut_ptr(), bias.second.as_mut_ptr()]
        });
        Self {
            share: optim::share(table.rows.cols()),
            stride: table.rows.stride(),
            n_rows: table.rows.rows(),
            rows: table.rows.data_mut().as_mut_ptr(),
            first: table.moments.first.data_mut().as_mut_ptr(),
            second: table.moments.second.data_mut().as_mut_ptr(),
            moment_strides: table.moments.strides(),
            states: table.moments.rows.as_mut_ptr(),
            bias,
        }
    }

    /// Rows, first and second moments, and the floats that a row has in each.
    #[inline(always)]
    fn tables(&self) -> [(*mut f32, usize); 3] {
        let [first, second] = self.moment_strides;
        [(self.rows, self.stride), (self.first, first), (self.second, second)]
    }

    /// Asks the processor to load a row and its moments soon.
    #[inline(always)]
    fn ask(&self, row: usize) {
        assert!(row < self.n_rows, "a row of the table");
        for (table, stride) in self.tables() {
            prefetch_at(table.wrapping_add(row * stride), stride);
        }
        prefetch_at(self.states.wrapping_add(row).cast(), 1);
    }

    /// Updates one row, and its bias where there is one.
    ///
    /// # Safety
    /// No other thread may use the row meanwhile, and the table that this was made from must still be borrowed.
    #[inline(always)]
    unsafe fn update<S: Simd>(
        &self,
        simd: S,
        row: usize,
        update: &Update,
        gradient: &mut [f32],
        bias_gradient: f32,
    ) {
        assert!(row < self.n_rows, "a row of the table");
        // SAFETY: the row lies within each table, which have as many, and nobody else uses it.
        let [parameter, first, second] = unsafe {
            self.tables()
                .map(|(table, stride)| std::slice::from_raw_parts_mut(table.add(row * stride), stride))
        };
        // SAFETY: as above, for the row's entry.
        let state = unsafe { &mut *self.states.add(row) };
        let gap = update.gap(state);
        let moments = RowMoments::of(first, second, state, self.share);
        update.row(simd, Row { parameter, moments }, gradient, gap, |_| ());
        if let Some(bias) = self.bias {
            // SAFETY: as above, for the row's entry of each column.
            let [value, first, second] = unsafe { bias.map(|column| &mut *column.add(row)) };
            update.scalar(value, first, second, bias_gradient, gap);
        }
    }
}
