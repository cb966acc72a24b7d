//! [`Cells`]: the probability of each cell given a query, P(cell) ~ mass * exp(z . codewords of the cell).

use fearless_simd::{dispatch, f32x16, prelude::*};

use super::{Partitions, Scratch};
use crate::index::InvertedMultiIndex;
use crate::math::matrix::LANES;
use crate::math::simd;

/// Codewords up to which the cells of two codebooks are laid out as a grid with the empty ones: 64 x 64 fit a
/// first-level cache.
const GRID_CODEWORDS: usize = 64;
/// Below this sum the products of exponentials may have underflowed: they are then taken anew, each cell's
/// logit as one.
const SAFE_TOTAL: f64 = 1e-12;

/// The items of a slot: `len` of them from `start` in the inverted lists.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Span {
    /// Those of whole partitions.
    pub(super) fn of(partitions: &Partitions) -> Vec<Self> {
        let spans = partitions.starts().windows(2);
        spans.map(|pair| Self { start: pair[0], len: pair[1] - pair[0] }).collect()
    }
}

/// Cells in slots. With two codebooks of moderate size the slots are the grid of all code pairs, rows padded
/// to whole vectors, so that a query needs no look-up per cell; else they are the cells that hold items.
#[derive(Debug, Clone)]
pub(super) struct Cells {
    layout: Layout,
    /// Sum of the within-cell weights, zero for slots without items; padded to whole vectors.
    mass: Vec<f32>,
    log_mass: Vec<f32>,
    spans: Vec<Span>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Grid { stride: usize },
    List,
}

impl Cells {
    /// The cells of `index` with the given ln of the mass of each.
    pub(super) fn new(index: &InvertedMultiIndex, log_masses: &[f64]) -> Self {
        let lists = index.lists();
        let settings = index.settings();
        let grid = settings.n_codebooks == 2 && settings.n_codewords <= GRID_CODEWORDS;
        let stride = index.score_stride();
        let (layout, n_slots) = if grid {
            (Layout::Grid { stride }, settings.n_codewords * stride)
        } else {
            (Layout::List, lists.n_cells().next_multiple_of(LANES))
        };
        let mut cells = Self {
            layout,
            mass: vec![0.0; n_slots],
            log_mass: vec![f32::NEG_INFINITY; n_slots],
            spans: vec![Span::default(); n_slots],
        };
        for (cell, &log_mass) in log_masses.iter().enumerate() {
            let slot = match layout {
                Layout::Grid { stride } => grid_slot(lists.codes(cell), stride),
                Layout::List => cell,
            };
            cells.mass[slot] = log_mass.exp() as f32;
            cells.log_mass[slot] = log_mass as f32;
            let start = lists.starts()[cell];
            cells.spans[slot] = Span { start, len: lists.starts()[cell + 1] - start };
        }
        cells
    }

    /// The items of each slot.
    pub(super) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The slot of an item.
    #[inline(always)]
    pub(super) fn slot_of(&self, index: &InvertedMultiIndex, item: usize) -> usize {
        let cell = index.lists().cell_of()[item] as usize;
        match self.layout {
            Layout::Grid { stride } => grid_slot(index.lists().codes(cell), stride),
            Layout::List => cell,
        }
    }

    /// Fills, from the scores of the query, `weights` (unnormalised probability of each slot) and `log_base` (ln Q of an
    /// item of weight one in each slot).
    pub(super) fn prepare(&self, index: &InvertedMultiIndex, query: &[f32], scratch: &mut Scratch) {
        index.scores(query, &mut scratch.scores);
        scratch.weights.resize(self.mass.len(), 0.0);
        scratch.log_base.resize(self.mass.len(), 0.0);
        match self.layout {
            Layout::Grid { stride } => self.prepare_grid(index.settings().n_codewords, stride, scratch),
            Layout::List => self.prepare_list(index, scratch),
        }
    }

    /// [`Cells::prepare`] of the grid.
    fn prepare_grid(&self, n_codewords: usize, stride: usize, scratch: &mut Scratch) {
        scratch.logits.clear();
        scratch.logits.extend_from_slice(&scratch.scores);
        let Scratch { scores, logits: factors, weights, log_base, .. } = &mut *scratch;
        let factors = factors.split_at_mut(stride);
        let (shift, total) =
            dispatch!(simd::level(), simd => grid_weights(simd, &self.mass, n_codewords, factors, weights));
        let scores = (&scores[..n_codewords], &scores[stride..]);
        if total > SAFE_TOTAL {
            let log_z = log_z(shift, total);
            dispatch!(simd::level(), simd => grid_logits(simd, scores, log_z, log_base));
        } else {
            dispatch!(simd::level(), simd => grid_logits(simd, scores, 0.0, log_base));
            self.exponentials(scratch);
        }
    }

    /// [`Cells::prepare`] of the stored cells.
    fn prepare_list(&self, index: &InvertedMultiIndex, scratch: &mut Scratch) {
        let (lists, stride) = (index.lists(), index.score_stride());
        for cell in 0..lists.n_cells() {
            let codes = lists.codes(cell);
            let scores = scratch.scores.chunks_exact(stride).zip(codes);
            scratch.log_base[cell] = scores.map(|(scores, code)| scores[usize::from(code)]).sum();
        }
        self.exponentials(scratch);
    }

    /// Weights from the cells' logits (in `log_base`) and masses, shifted by the largest; the logits are normalised.
    fn exponentials(&self, scratch: &mut Scratch) {
        for ((weight, base), log_mass) in
            scratch.weights.iter_mut().zip(&scratch.log_base).zip(&self.log_mass)
        {
            *weight = base + log_mass;
        }
        let shift = simd::max(&scratch.weights);
        simd::exp_shifted(&mut scratch.weights, shift);
        let mut total = 0.0;
        for (weight, log_mass) in scratch.weights.iter_mut().zip(&self.log_mass) {
            // The vector exponential stops at e^-87; a slot without items must weigh nothing at all.
            if *log_mass == f32::NEG_INFINITY {
                *weight = 0.0;
            }
            total += f64::from(*weight);
        }
        let log_z = log_z(shift, total);
        scratch.log_base.iter_mut().for_each(|base| *base -= log_z);
    }
}

/// ln of the sum of the exponentials, which is `total` times e^`shift`.
fn log_z(shift: f32, total: f64) -> f32 {
    (f64::from(shift) + total.ln()) as f32
}

/// The `weights` of the grid's slots by the padded `scores` of both codebooks' `n` codewords, which become exponentials.
/// Returns the shift that they are taken at, and the sum of the weights.
#[inline(always)]
fn grid_weights<S: Simd>(
    simd: S,
    mass: &[f32],
    n: usize,
    scores: (&mut [f32], &mut [f32]),
    weights: &mut [f32],
) -> (f32, f64) {
    let shifts = (simd::max_in(simd, &scores.0[..n]), simd::max_in(simd, &scores.1[..n]));
    simd::exp_in(simd, scores.0, shifts.0);
    simd::exp_in(simd, scores.1, shifts.1);
    let (factors, others) = (&scores.0[..n], scores.1.as_chunks::<LANES>().0);
    let mut sums = f32x16::splat(simd, 0.0);
    let stride = LANES * others.len();
    let rows = mass.chunks_exact(stride).zip(weights.chunks_exact_mut(stride));
    for ((mass, weights), factor) in rows.zip(factors) {
        let lanes = mass.as_chunks::<LANES>().0.iter().zip(others);
        for ((mass, other), weight) in lanes.zip(weights.as_chunks_mut::<LANES>().0) {
            let product = f32x16::load_array_ref(simd, mass) * f32x16::load_array_ref(simd, other) * *factor;
            product.store_slice(weight);
            sums += product;
        }
    }
    (shifts.0 + shifts.1, f64::from(sums.reduce_sum()))
}

/// The logits of the grid's slots, less `log_z`.
#[inline(always)]
fn grid_logits<S: Simd>(simd: S, scores: (&[f32], &[f32]), log_z: f32, out: &mut [f32]) {
    for (score, row) in scores.0.iter().zip(out.chunks_exact_mut(scores.1.len())) {
        for (other, out) in scores.1.as_chunks::<LANES>().0.iter().zip(row.as_chunks_mut::<LANES>().0) {
            (f32x16::load_array_ref(simd, other) + *score - log_z).store_slice(out);
        }
    }
}

#[inline(always)]
fn grid_slot(codes: [u8; 4], stride: usize) -> usize {
    usize::from(codes[0]) * stride + usize::from(codes[1])
}
