//! One step of pairwise training: gradients of a batch of pairs, then every touched row moves once.

use fearless_simd::{dispatch, f32x16, prelude::*};
use rayon::prelude::*;

use super::{Negatives, Pair, PairwiseOptimizer, PairwiseSettings, Pulls};
use crate::data::{Interactions, ItemId, UserId};
use crate::math::matrix::LANES;
use crate::math::simd::{axpy_in, fill_normals, level, prefetch};
use crate::math::{Matrix, Purpose, Stream};

/// Pairs that one task takes; fixed, so that no sum depends on the threads.
const CHUNK: usize = 128;
/// Parts that a table's rows are divided into for the update.
const PARTS: usize = 32;
/// Entries whose vectors are asked for ahead of their use.
const AHEAD: usize = 8;
const BETA1: f32 = 0.9;
const BETA2: f32 = 0.999;

/// What moves a row in one step.
pub(super) enum Mover {
    /// The scalars of Adam.
    Adam { rate: f32, second_scale: f32 },
    /// The gradient alone.
    Plain { rate: f32 },
}

impl Mover {
    /// For step `step`, counted from 0, at this learning rate.
    pub(super) fn at(optimizer: PairwiseOptimizer, learning_rate: f32, step: u64) -> Self {
        let correction = |beta: f32| 1.0 - f64::from(beta).powi((step + 1).min(1 << 30) as i32);
        match optimizer {
            PairwiseOptimizer::Sgd => Self::Plain { rate: learning_rate },
            PairwiseOptimizer::Adam => Self::Adam {
                rate: (f64::from(learning_rate) / correction(BETA1)) as f32,
                second_scale: (1.0 / correction(BETA2).sqrt()) as f32,
            },
        }
    }

    /// Moves one padded row.
    #[inline(always)]
    pub(super) fn row<S: Simd>(
        &self,
        simd: S,
        row: &mut [f32],
        first: &mut [f32],
        second: &mut [f32],
        gradient: &[f32],
    ) {
        let (rate, second_scale) = match *self {
            Self::Adam { rate, second_scale } => (rate, second_scale),
            Self::Plain { rate } => return axpy_in(simd, -rate, gradient, row),
        };
        let lanes = row
            .chunks_exact_mut(LANES)
            .zip(first.chunks_exact_mut(LANES))
            .zip(second.chunks_exact_mut(LANES))
            .zip(gradient.chunks_exact(LANES));
        for (((row, first), second), gradient) in lanes {
            let g = f32x16::from_slice(simd, gradient);
            let m = f32x16::from_slice(simd, first);
            let m = (g - m).mul_add(f32x16::splat(simd, 1.0 - BETA1), m);
            let v = f32x16::from_slice(simd, second) * BETA2;
            let v = (g * g).mul_add(f32x16::splat(simd, 1.0 - BETA2), v);
            let scale = v.sqrt().mul_add(f32x16::splat(simd, second_scale), f32x16::splat(simd, 1e-8));
            (f32x16::from_slice(simd, row) - m * rate / scale).store_slice(row);
            m.store_slice(first);
            v.store_slice(second);
        }
    }
}

/// A share of a row's gradient: `strength` times row `source` of the other table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    row: u32,
    source: u32,
    strength: f32,
    /// How much of the pull to zero this share brings.
    share: f32,
}

/// A table with Adam's moments.
struct Moments {
    first: Matrix,
    second: Matrix,
}

/// The vectors under training.
pub(super) struct Trainer<'a> {
    data: &'a Interactions,
    settings: &'a PairwiseSettings,
    /// The user of each interaction.
    owners: Vec<UserId>,
    pub(super) users: Matrix,
    pub(super) items: Matrix,
    user_moments: Moments,
    item_moments: Moments,
    n_steps: u64,
}

impl<'a> Trainer<'a> {
    pub(super) fn new(data: &'a Interactions, settings: &'a PairwiseSettings) -> Self {
        let table = |rows, part| normal(rows, settings.factors, settings.seed, part);
        let moments = |rows| Moments {
            first: Matrix::zeros(rows, settings.factors),
            second: Matrix::zeros(rows, settings.factors),
        };
        let owner = |(user, span): (usize, &[usize])| std::iter::repeat_n(user as UserId, span[1] - span[0]);
        Self {
            data,
            settings,
            owners: data.offsets().windows(2).enumerate().flat_map(owner).collect(),
            users: table(data.n_users(), 0),
            items: table(data.n_items(), 1),
            user_moments: moments(data.n_users()),
            item_moments: moments(data.n_items()),
            n_steps: 0,
        }
    }

    /// Steps taken.
    pub(super) fn n_steps(&self) -> u64 {
        self.n_steps
    }

    /// Takes a step over the interactions in `batch`, which it sorts; returns the summed loss.
    pub(super) fn step(
        &mut self,
        negatives: &impl Negatives,
        batch: &mut [u32],
        epoch: u32,
        mover: &Mover,
    ) -> f64 {
        // Interactions ascend with their users: a user's pairs follow one another, near in memory.
        batch.sort_unstable();
        let mut gradients = Matrix::zeros(batch.len(), self.settings.factors);
        let stride = gradients.stride();
        let chunks: Vec<(f64, Vec<Vec<Entry>>)> = gradients
            .data_mut()
            .par_chunks_mut(CHUNK * stride)
            .zip(batch.par_chunks(CHUNK))
            .map(|(gradients, pairs)| {
                dispatch!(level(), simd => self.gradients(simd, negatives, pairs, epoch, gradients))
            })
            .collect();
        let users = &self.users;
        let regularization = self.settings.regularization;
        let of_part = |part: usize| -> Vec<Entry> {
            let mut entries: Vec<Entry> =
                chunks.iter().flat_map(|(_, parts)| parts[part].iter().copied()).collect();
            entries.sort_by_key(|entry| entry.row);
            entries
        };
        update(&mut self.items, &mut self.item_moments, users, regularization, mover, of_part);
        let per_part = part_rows(self.users.rows());
        let owners = &self.owners;
        let of_part = |part: usize| -> Vec<Entry> {
            let begin = batch.partition_point(|&at| owners[at as usize] as usize / per_part < part);
            let end = batch.partition_point(|&at| owners[at as usize] as usize / per_part <= part);
            let entry = |k: usize| Entry {
                row: owners[batch[k] as usize],
                source: k as u32,
                strength: 1.0,
                share: 1.0,
            };
            (begin..end).map(entry).collect()
        };
        update(&mut self.users, &mut self.user_moments, &gradients, regularization, mover, of_part);
        self.n_steps += 1;
        chunks.iter().map(|(loss, _)| loss).sum()
    }

    /// The loss of some pairs, the gradients of their users' vectors, and the entries of their items by part.
    #[inline(always)]
    fn gradients<S: Simd>(
        &self,
        simd: S,
        negatives: &impl Negatives,
        pairs: &[u32],
        epoch: u32,
        gradients: &mut [f32],
    ) -> (f64, Vec<Vec<Entry>>) {
        let stride = self.users.stride();
        let per_part = part_rows(self.items.rows());
        let mut parts: Vec<Vec<Entry>> = (0..PARTS).map(|_| Vec::new()).collect();
        let mut pulls = Pulls::default();
        let mut total = 0.0;
        for (&at, gradient) in pairs.iter().zip(gradients.chunks_exact_mut(stride)) {
            let user = self.owners[at as usize];
            let pair = Pair {
                query: self.users.row(user as usize),
                item: self.data.items()[at as usize],
                seen: self.data.row(user as usize).items,
                items: &self.items,
            };
            pulls.entries.clear();
            pulls.scores.clear();
            let mut stream = Stream::new(self.settings.seed, Purpose::Negatives, epoch, at);
            total += f64::from(negatives.pull(simd, &pair, &mut stream, &mut pulls));
            let mut strength = 0.0;
            let share = 1.0 / pulls.entries.len().max(1) as f32;
            let mut push = |row: ItemId, strength: f32, share: f32| {
                parts[row as usize / per_part].push(Entry { row, source: user, strength, share });
            };
            for &(item, pull) in &pulls.entries {
                axpy_in(simd, pull, self.items.row(item as usize), gradient);
                strength += pull;
                push(item, pull, share);
            }
            axpy_in(simd, -strength, self.items.row(pair.item as usize), gradient);
            push(pair.item, -strength, 1.0);
        }
        (total, parts)
    }
}

/// Rows of a table that one part has.
fn part_rows(n_rows: usize) -> usize {
    n_rows.div_ceil(PARTS).max(1)
}

/// Moves the rows of `table` that `of_part(part)` names, in the order of rows.
fn update(
    table: &mut Matrix,
    moments: &mut Moments,
    source: &Matrix,
    regularization: f32,
    mover: &Mover,
    of_part: impl Fn(usize) -> Vec<Entry> + Sync,
) {
    let (per_part, stride) = (part_rows(table.rows()), table.stride());
    table
        .data_mut()
        .par_chunks_mut(per_part * stride)
        .zip(moments.first.data_mut().par_chunks_mut(per_part * stride))
        .zip(moments.second.data_mut().par_chunks_mut(per_part * stride))
        .enumerate()
        .for_each(|(part, ((rows, first), second))| {
            let entries = of_part(part);
            let rows = Rows { table: rows, first, second, start: part * per_part, stride };
            dispatch!(level(), simd => rows.update(simd, &entries, source, regularization, mover));
        });
}

/// Some rows of a table with their moments.
struct Rows<'a> {
    table: &'a mut [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
    /// The first of them.
    start: usize,
    stride: usize,
}

impl Rows<'_> {
    #[inline(always)]
    fn update<S: Simd>(
        self,
        simd: S,
        entries: &[Entry],
        source: &Matrix,
        regularization: f32,
        mover: &Mover,
    ) {
        let stride = self.stride;
        let mut gradient = vec![0.0; stride];
        let mut done = 0;
        for group in entries.chunk_by(|a, b| a.row == b.row) {
            let place = (group[0].row as usize - self.start) * stride;
            for rows in [&*self.first, &*self.second] {
                prefetch(&rows[place..place + stride]);
            }
            let row = &mut self.table[place..place + stride];
            gradient.fill(0.0);
            let mut share = 0.0;
            for entry in group {
                done += 1;
                if let Some(next) = entries.get(done + AHEAD) {
                    prefetch(source.row(next.source as usize));
                }
                axpy_in(simd, entry.strength, source.row(entry.source as usize), &mut gradient);
                share += entry.share;
            }
            axpy_in(simd, regularization * share, row, &mut gradient);
            let (first, second) = (&mut self.first[place..][..stride], &mut self.second[place..][..stride]);
            mover.row(simd, row, first, second, &gradient);
        }
    }
}

/// A table of small normal values, each row a function of the seed, `part` and the row.
fn normal(rows: usize, cols: usize, seed: u64, part: u16) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    let (stride, deviation) = (matrix.stride(), 0.1);
    matrix.data_mut().par_chunks_mut(stride).enumerate().for_each(|(row, values)| {
        let stream = Stream::with_part(seed, Purpose::Initialise, part, 0, row as u32);
        fill_normals(&stream, &mut values[..cols]);
        values.iter_mut().for_each(|value| *value *= deviation);
    });
    matrix
}
