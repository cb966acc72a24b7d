//! [`ItemWeights`]: what each item says of a few others, as a sparse matrix of items x items.

use std::cell::RefCell;

use crate::data::ItemId;
use crate::error::Result;
use crate::eval::Scored;
use crate::math::simd::prefetch_at;
use crate::model_file::tensors::{TensorFile, TensorWriter};

/// Compressed sparse rows: row j says what item j of a history speaks for, ascending.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ItemWeights {
    offsets: Vec<usize>,
    items: Vec<ItemId>,
    values: Vec<f32>,
}

/// Rows are asked for so many ahead of when they are added up: they lie anywhere in the matrix.
const AHEAD: usize = 3;
/// Weights of a row that are asked for, at most.
const LONG_ROW: usize = 128;

/// What a history says is sorted where it is less than this share of the catalogue, and else added up in a row of the whole of it.
const FEW_SHARE: usize = 256;

thread_local! {
    /// The row, which stays from one history to the next.
    static SUMS: RefCell<Sums> = RefCell::default();
}

/// A sum for each item, and a bit for each that something was added to: their order comes without sorting.
#[derive(Default)]
struct Sums {
    sums: Vec<f32>,
    touched: Vec<u64>,
}

impl Sums {
    fn fit(&mut self, n_items: usize) {
        if self.sums.len() < n_items {
            self.sums.resize(n_items, 0.0);
            self.touched.resize(n_items.div_ceil(64), 0);
        }
    }

    fn add(&mut self, item: ItemId, score: f32) {
        self.sums[item as usize] += score;
        self.touched[item as usize / 64] |= 1 << (item % 64);
    }

    /// All sums in the order of items; nothing is left of them here.
    fn drain(&mut self) -> Vec<Scored> {
        let n = self.touched.iter().map(|bits| bits.count_ones() as usize).sum();
        let mut all = Vec::with_capacity(n);
        for (word, touched) in self.touched.iter_mut().enumerate() {
            let mut bits = std::mem::take(touched);
            while bits != 0 {
                let item = word * 64 + bits.trailing_zeros() as usize;
                all.push(Scored { item: item as ItemId, score: std::mem::take(&mut self.sums[item]) });
                bits &= bits - 1;
            }
        }
        all
    }
}

impl ItemWeights {
    /// From rows of `(item, weight)`, each ascending.
    pub(crate) fn of_rows(rows: &[Vec<(ItemId, f32)>]) -> Self {
        let mut offsets = Vec::with_capacity(rows.len() + 1);
        offsets.push(0);
        rows.iter().for_each(|row| offsets.push(offsets[offsets.len() - 1] + row.len()));
        Self {
            offsets,
            items: rows.iter().flatten().map(|&(item, _)| item).collect(),
            values: rows.iter().flatten().map(|&(_, value)| value).collect(),
        }
    }

    pub(crate) fn n_items(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Bytes of a matrix of `n_items` rows with `n` weights in each.
    pub(crate) fn bytes_of(n_items: usize, n: usize) -> u64 {
        (n_items * (size_of::<usize>() + n * (size_of::<ItemId>() + size_of::<f32>()))) as u64
    }

    /// What `item` speaks for, and how much, ascending.
    pub(crate) fn of(&self, item: ItemId) -> impl Iterator<Item = (ItemId, f32)> {
        let span = self.offsets[item as usize]..self.offsets[item as usize + 1];
        self.items[span.clone()].iter().copied().zip(self.values[span].iter().copied())
    }

    /// How much `item` speaks for `other`: 0 where it does not.
    pub(crate) fn between(&self, item: ItemId, other: ItemId) -> f32 {
        let span = self.offsets[item as usize]..self.offsets[item as usize + 1];
        self.items[span.clone()].binary_search(&other).map_or(0.0, |at| self.values[span.start + at])
    }

    /// Rows and columns exchanged.
    pub(crate) fn transposed(&self) -> Self {
        Self::transpose_of(&self.offsets, &self.items, &self.values)
    }

    /// The rows of a matrix of compressed columns.
    pub(crate) fn transpose_of(columns: &[usize], of: &[ItemId], with: &[f32]) -> Self {
        let n_items = columns.len() - 1;
        let mut offsets = vec![0; n_items + 1];
        of.iter().for_each(|&item| offsets[item as usize + 1] += 1);
        for item in 0..n_items {
            offsets[item + 1] += offsets[item];
        }
        let mut next = offsets.clone();
        let (mut items, mut values) = (vec![0; of.len()], vec![0.0; of.len()]);
        for (column, span) in columns.windows(2).enumerate() {
            for (&item, &value) in of[span[0]..span[1]].iter().zip(&with[span[0]..span[1]]) {
                let place = &mut next[item as usize];
                (items[*place], values[*place]) = (column as ItemId, value);
                *place += 1;
            }
        }
        Self { offsets, items, values }
    }

    /// The items that a history speaks for, ascending, with the sum of what its items say, `scale` times; `value(at)` is
    /// what its item at place `at` counts. The items of the history among them.
    pub(crate) fn spoken_for(
        &self,
        history: &[ItemId],
        value: impl Fn(usize) -> f32,
        scale: f32,
    ) -> Vec<Scored> {
        let n_items = self.n_items();
        let spans = history.iter().map(|&item| self.offsets[item as usize + 1] - self.offsets[item as usize]);
        let words: usize = spans.sum();
        // Each sum is taken in the order of the history, whichever way.
        if words * FEW_SHARE < n_items {
            let mut all = Vec::with_capacity(words);
            for (at, &item) in history.iter().enumerate() {
                let value = value(at) * scale;
                all.extend(self.of(item).map(|(item, weight)| Scored { item, score: value * weight }));
            }
            all.sort_by_key(|scored| scored.item);
            all.dedup_by(|next, sum| {
                let same = next.item == sum.item;
                if same {
                    sum.score += next.score;
                }
                same
            });
            return all;
        }
        SUMS.with_borrow_mut(|sums| {
            sums.fit(n_items);
            history.iter().take(AHEAD).for_each(|&item| self.ask_for(item));
            for (at, &item) in history.iter().enumerate() {
                if let Some(&next) = history.get(at + AHEAD) {
                    self.ask_for(next);
                }
                let value = value(at) * scale;
                self.of(item).for_each(|(other, weight)| sums.add(other, value * weight));
            }
            sums.drain()
        })
    }

    fn ask_for(&self, item: ItemId) {
        let span = self.offsets[item as usize]..self.offsets[item as usize + 1];
        let n = span.len().min(LONG_ROW);
        prefetch_at(self.items.as_ptr().wrapping_add(span.start).cast(), n);
        prefetch_at(self.values.as_ptr().wrapping_add(span.start), n);
    }

    /// Adds the matrix to a file, its arrays named after `name`.
    pub(crate) fn write<'a>(&'a self, writer: &mut TensorWriter<'a>, name: &str) {
        writer
            .positions(format!("{name}.offsets"), &self.offsets)
            .array(format!("{name}.items"), &self.items[..])
            .array(format!("{name}.values"), &self.values[..]);
    }

    /// The matrix that [`ItemWeights::write`] wrote for a catalogue of `n_items`.
    pub(crate) fn read(file: &TensorFile, name: &str, n_items: usize) -> Result<Self> {
        let offsets = file.array_of::<u64>(&format!("{name}.offsets"), &[n_items + 1])?;
        let items = file.array::<u32>(&format!("{name}.items"))?;
        let values = file.array_of::<f32>(&format!("{name}.values"), &[items.len()])?;
        let ascends = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
        if !ascends || offsets[0] != 0 || offsets[n_items] != items.len() as u64 {
            return Err(file.damaged(format!("the offsets of `{name}` do not describe its items")));
        }
        let rows_ascend = |pair: &[u64]| {
            items[pair[0] as usize..pair[1] as usize].windows(2).all(|items| items[0] < items[1])
        };
        if !offsets.windows(2).all(rows_ascend)
            || items.iter().any(|&item| item as usize >= n_items)
            || !values.is_finite()
        {
            return Err(file.damaged(format!(
                "an item of `{name}` is out of order or beyond the catalogue, or has no finite weight"
            )));
        }
        Ok(Self {
            offsets: offsets.iter().map(|&offset| offset as usize).collect(),
            items: items.to_vec(),
            values: values.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_history_speaks_for_is_the_sum_of_its_rows() {
        // Of a few words of a large catalogue, sorted; of more, added up in a row.
        for n_items in [20_000, 200] {
            check_sums(n_items);
        }
    }

    fn check_sums(n_items: usize) {
        let rows: Vec<Vec<(ItemId, f32)>> = (0..n_items)
            .map(|j: usize| {
                (0..j % 5).map(|a| ((j * 7 + a * 40) % n_items, 0.5 + a as f32)).collect::<Vec<_>>()
            })
            .map(|mut row: Vec<(usize, f32)>| {
                row.sort_by_key(|&(item, _)| item);
                row.dedup_by_key(|&mut (item, _)| item);
                row.into_iter().map(|(item, value)| (item as ItemId, value)).collect()
            })
            .collect();
        let weights = ItemWeights::of_rows(&rows);
        for length in [0, 1, 6, 60] {
            let history: Vec<ItemId> = (0..length).map(|at| (at * 3) as ItemId).collect();
            let value = |at: usize| 1.0 + (at % 3) as f32;
            let mut expected = vec![0.0; n_items];
            for (at, &item) in history.iter().enumerate() {
                rows[item as usize]
                    .iter()
                    .for_each(|&(other, w)| expected[other as usize] += 2.0 * value(at) * w);
            }
            let got = weights.spoken_for(&history, value, 2.0);
            assert!(got.windows(2).all(|pair| pair[0].item < pair[1].item));
            for (item, expected) in expected.into_iter().enumerate() {
                let sum = got.iter().find(|scored| scored.item == item as ItemId).map_or(0.0, |s| s.score);
                assert!((sum - expected).abs() < 1e-5, "{length}: {item} is {sum}, not {expected}");
            }
        }
        let back = weights.transposed();
        assert_eq!(back.transposed(), weights);
        for (item, row) in rows.iter().enumerate() {
            for &(other, value) in row {
                assert_eq!(weights.between(item as ItemId, other), value);
                assert_eq!(back.between(other, item as ItemId), value);
            }
        }
    }
}
