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

    /// Fills, from the scores of the query, `weights` (unnormalised probability of each slot), `total` and
    /// `log_base` (ln Q of an item of weight one in each slot).
    pub(super) fn prepare(&self, index: &InvertedMultiIndex, query: &[f32], scratch: &mut Scratch) {
        index.scores(query, &mut scratch.scores);
        scratch.weights.resize(self.mass.len(), 0.0);
        scratch.log_base.resize(self.mass.len(), 0.0);
        let n_codewords = index.settings().n_codewords;
        let shift = match self.layout {
            Layout::Grid { stride } => self.prepare_grid(n_codewords, stride, scratch),
            Layout::List => self.prepare_list(index, scratch),
        };
        let log_z = (f64::from(shift) + scratch.total.ln()) as f32;
        scratch.log_base.iter_mut().for_each(|base| *base -= log_z);
    }

    /// Weights of the grid and the logits in `log_base`; returns the shift that the weights are taken at.
    fn prepare_grid(&self, n_codewords: usize, stride: usize, scratch: &mut Scratch) -> f32 {
        #[inline(always)]
        fn body<S: Simd>(
            simd: S,
            mass: &[f32],
            (first, second): (&[f32], &[f32]),
            (factors, others): (&[f32], &[f32]),
            weights: &mut [f32],
            log_base: &mut [f32],
        ) -> f64 {
            let stride = second.len();
            let mut total = 0.0;
            for (row, (score, factor)) in first.iter().zip(factors).enumerate() {
                let mut sum = f32x16::splat(simd, 0.0);
                for lane in (0..stride).step_by(LANES) {
                    let slot = row * stride + lane;
                    let weight = f32x16::from_slice(simd, &mass[slot..][..LANES])
                        * f32x16::from_slice(simd, &others[lane..][..LANES])
                        * *factor;
                    weight.store_slice(&mut weights[slot..][..LANES]);
                    sum += weight;
                    (f32x16::from_slice(simd, &second[lane..][..LANES]) + *score)
                        .store_slice(&mut log_base[slot..][..LANES]);
                }
                total += f64::from(sum.reduce_sum());
            }
            total
        }
        let (first, second) = scratch.scores.split_at(stride);
        let shifts = (simd::max(&first[..n_codewords]), simd::max(&second[..n_codewords]));
        scratch.logits.clear();
        scratch.logits.extend_from_slice(&scratch.scores);
        let (factors, others) = scratch.logits.split_at_mut(stride);
        simd::exp_shifted(factors, shifts.0);
        simd::exp_shifted(others, shifts.1);
        scratch.total = dispatch!(simd::level(), simd => body(
            simd,
            &self.mass,
            (&first[..n_codewords], second),
            (factors, others),
            &mut scratch.weights,
            &mut scratch.log_base,
        ));
        if scratch.total > SAFE_TOTAL { shifts.0 + shifts.1 } else { self.exponentials(scratch) }
    }

    /// Weights of the stored cells and the logits in `log_base`; returns the shift.
    fn prepare_list(&self, index: &InvertedMultiIndex, scratch: &mut Scratch) -> f32 {
        let (lists, stride) = (index.lists(), index.score_stride());
        for cell in 0..lists.n_cells() {
            let codes = lists.codes(cell);
            let scores = scratch.scores.chunks_exact(stride).zip(codes);
            scratch.log_base[cell] = scores.map(|(scores, code)| scores[usize::from(code)]).sum();
        }
        self.exponentials(scratch)
    }

    /// Weights from the cells' logits (in `log_base`) and masses, shifted by the largest.
    fn exponentials(&self, scratch: &mut Scratch) -> f32 {
        for ((weight, base), log_mass) in
            scratch.weights.iter_mut().zip(&scratch.log_base).zip(&self.log_mass)
        {
            *weight = base + log_mass;
        }
        let shift = simd::max(&scratch.weights);
        simd::exp_shifted(&mut scratch.weights, shift);
        scratch.total = 0.0;
        for (weight, log_mass) in scratch.weights.iter_mut().zip(&self.log_mass) {
            // The vector exponential stops at e^-87; a slot without items must weigh nothing at all.
            if *log_mass == f32::NEG_INFINITY {
                *weight = 0.0;
            }
            scratch.total += f64::from(*weight);
        }
        shift
    }
}

#[inline(always)]
fn grid_slot(codes: [u8; 4], stride: usize) -> usize {
    usize::from(codes[0]) * stride + usize::from(codes[1])
}
