//! `midx-uniform` and `midx-popularity`: cells by the codewords, items of a cell by a fixed weight
//! (theorems 5.1 and 5.2).
//!
//! Q(i given z) ~ w_i exp(z . c(i)), c(i) the sum of the item's codewords and w_i = 1 or pop(i), times
//! exp(b_i) where items have a bias (as it was at the last refresh). Since w_i does not depend on the query,
//! a query costs O(K D + K^2) and a draw O(1).

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use super::cells::Cells;
use super::members::Members;
use super::settle::{Settling, settle};
use super::state::{Reader, State, StateTensor};
use super::{ItemTable, Partitions, Proposal, Scratch, Spread};
use crate::config::ProposalKind;
use crate::data::ItemId;
use crate::error::Result;
use crate::index::{IndexSettings, InvertedMultiIndex};
use crate::math::{List, Matrix, Stream, simd};

/// The weights of the items of a cell among themselves.
#[derive(Debug, Clone)]
pub enum Within {
    /// All alike.
    Uniform,
    /// By popularity: ln pop(i) of each item.
    Popularity(Vec<f32>),
}

/// Cells by the codewords, items of a cell by a fixed weight.
#[derive(Debug, Clone)]
pub struct Midx {
    settings: IndexSettings,
    within: Within,
    n_items: usize,
    dim: usize,
    /// Partitions asked for.
    wanted: usize,
    built: Option<Built>,
}

/// What a refresh leaves.
#[derive(Debug, Clone)]
struct Built {
    index: InvertedMultiIndex,
    cells: Cells,
    /// What a positive takes: histories name items in no order, and each costs one look.
    items: List<ItemEntry>,
    /// The bias that the weights hold, for the state.
    bias: Option<Vec<f32>>,
    /// Draws within the cells; none where all items of a cell are alike.
    members: Option<Members>,
    partitions: Partitions,
    /// The slot of the cells where each partition ends.
    slot_ends: Vec<u32>,
}

/// The place of an item, the slot of its cell, and ln of its weight in it.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ItemEntry {
    place: u32,
    slot: u32,
    log_weight: f32,
}

impl ItemEntry {
    /// By the `log_base` of each slot.
    #[inline(always)]
    fn log_q(self, log_base: &[f32]) -> f32 {
        log_base[self.slot as usize] + self.log_weight
    }
}

impl Midx {
    /// Over `n_items` items with vectors of length `dim`, in about `wanted` partitions.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if the settings do not fit them.
    pub fn new(
        settings: IndexSettings,
        within: Within,
        n_items: usize,
        dim: usize,
        wanted: usize,
    ) -> Result<Self> {
        settings.check(n_items, dim)?;
        Ok(Self { settings, within, n_items, dim, wanted, built: None })
    }

    fn built(&self) -> &Built {
        self.built.as_ref().expect("a refresh comes before the first query")
    }

    /// ln of each item's weight within its cell, shifted to a largest of 0 so that no sum overflows; None where all are
    /// alike.
    fn log_weights(&self, bias: Option<&[f32]>) -> Option<impl Fn(ItemId) -> f32 + Sync> {
        let log_pop = match &self.within {
            Within::Uniform => None,
            Within::Popularity(log_pop) => Some(log_pop.as_slice()),
        };
        if log_pop.is_none() && bias.is_none() {
            return None;
        }
        let value = |list: Option<&[f32]>, item: ItemId| list.map_or(0.0, |list| list[item as usize]);
        let weight = move |item| value(log_pop, item) + value(bias, item);
        let largest = (0..self.n_items as ItemId).map(weight).fold(f32::NEG_INFINITY, f32::max);
        Some(move |item| weight(item) - largest)
    }

    fn build(&self, index: InvertedMultiIndex, bias: Option<Vec<f32>>) -> Built {
        let lists = index.lists();
        let log_weights = self.log_weights(bias.as_deref());
        let (log_masses, members) = match &log_weights {
            None => {
                let sizes = lists.starts().windows(2).map(|pair| f64::from(pair[1] - pair[0]));
                (sizes.map(f64::ln).collect(), None)
            }
            Some(log_weight) => {
                let by_place: Vec<f32> = lists.all_items().par_iter().map(|&item| log_weight(item)).collect();
                let (members, log_masses) = Members::new(&by_place, lists.starts());
                (log_masses, Some(members))
            }
        };
        let cells = Cells::new(&index, &log_masses);
        let partitions = Partitions::lists(lists.all_items(), lists.starts(), self.wanted);
        let slot_ends = partitions.starts()[1..]
            .iter()
            .map(|&end| 1 + cells.slot_of(&index, partitions.item(end - 1) as usize) as u32)
            .collect();
        let mut items = List::zeros(self.n_items);
        items.par_iter_mut().enumerate().for_each(|(item, entry)| {
            *entry = ItemEntry {
                place: partitions.place(item as ItemId),
                slot: cells.slot_of(&index, item) as u32,
                log_weight: log_weights.as_ref().map_or(0.0, |log_weight| log_weight(item as ItemId)),
            };
        });
        drop(log_weights);
        Built { index, cells, items, bias, members, partitions, slot_ends }
    }
}

impl Proposal for Midx {
    fn kind(&self) -> ProposalKind {
        match self.within {
            Within::Uniform => ProposalKind::MidxUniform,
            Within::Popularity(_) => ProposalKind::MidxPopularity,
        }
    }

    fn refresh(&mut self, items: ItemTable<'_>, seed: u64, epoch: u32) -> Result<()> {
        // All but the index is given back first, so that the new takes its place in memory.
        let warm = self.built.take().map(|built| built.index);
        let index = InvertedMultiIndex::build(items.vectors, self.settings, warm.as_ref(), seed, epoch)?;
        drop(warm);
        self.built = Some(self.build(index, items.bias.map(<[f32]>::to_vec)));
        Ok(())
    }

    fn prepare(&self, query: &[f32], _: ItemTable<'_>, scratch: &mut Scratch) {
        let built = self.built();
        built.cells.prepare(&built.index, query, scratch);
    }

    fn partitions(&self) -> &Partitions {
        &self.built().partitions
    }

    fn spread(
        &self,
        n: usize,
        _: &[f32],
        _: ItemTable<'_>,
        stream: &Stream,
        scratch: &mut Scratch,
        spread: &mut Spread,
    ) {
        let Scratch { weights, systematic, log_base, .. } = scratch;
        spread.draw(systematic, (weights, Some(log_base)), n, stream, &self.built().slot_ends);
    }

    fn settle(&self, spread: &Spread, partition: usize, out: Settling<'_>) {
        let built = self.built();
        settle(spread, partition, built.cells.spans(), built.members.as_ref(), None, out);
    }

    fn reads_vectors(&self) -> bool {
        false
    }

    fn log_q(&self, of: &[ItemId], _: &[f32], _: ItemTable<'_>, scratch: &mut Scratch, log_q: &mut [f32]) {
        let built = self.built();
        for (out, &item) in log_q.iter_mut().zip(of) {
            *out = built.items[item as usize].log_q(&scratch.log_base);
        }
    }

    fn ask(&self, of: &[ItemId]) {
        let items: *const ItemEntry = self.built().items.as_ptr();
        for &item in of {
            simd::prefetch_at(items.wrapping_add(item as usize).cast(), 1);
        }
    }

    fn locate(
        &self,
        of: &[ItemId],
        _: &[f32],
        _: ItemTable<'_>,
        scratch: &mut Scratch,
        places: &mut [u32],
        correction: &mut [f32],
    ) {
        let built = self.built();
        for ((&item, place), out) in of.iter().zip(places).zip(correction) {
            let entry = built.items[item as usize];
            *place = entry.place;
            *out = entry.log_q(&scratch.log_base);
        }
    }

    fn index(&self) -> Option<&InvertedMultiIndex> {
        self.built.as_ref().map(|built| &built.index)
    }

    fn state(&self) -> State {
        let Some(built) = &self.built else { return Vec::new() };
        let mut state = index_state(&built.index);
        if let Some(bias) = &built.bias {
            state.push(("bias".into(), StateTensor::f32([self.n_items], bias.clone())));
        }
        state
    }

    fn restore(&mut self, state: State) -> Result<()> {
        let mut reader = Reader::new(state);
        let index = restored_index(&mut reader, self.settings, self.n_items, self.dim)?;
        let bias = if reader.has("bias") { Some(reader.numbers("bias", &[self.n_items])?) } else { None };
        reader.finish()?;
        self.built = Some(self.build(index, bias));
        Ok(())
    }
}

/// The tensors that an index is restored from.
pub(super) fn index_state(index: &InvertedMultiIndex) -> State {
    let codebooks = index.codebooks().iter().enumerate();
    let mut state: Vec<_> = codebooks
        .map(|(j, codebook)| (format!("codebook.{j}"), StateTensor::matrix(codebook.codewords())))
        .collect();
    let shape = [index.codebooks().len(), index.n_items()];
    state.push(("codes".into(), StateTensor::u8(shape, index.codes().to_vec())));
    state
}

/// The index of these tensors, checked.
pub(super) fn restored_index(
    reader: &mut Reader,
    settings: IndexSettings,
    n_items: usize,
    dim: usize,
) -> Result<InvertedMultiIndex> {
    let mut codebooks = Vec::with_capacity(settings.n_codebooks);
    for j in 0..settings.n_codebooks {
        let (rows, cols) = (settings.n_codewords, settings.columns(j, dim).len());
        let values = reader.numbers(&format!("codebook.{j}"), &[rows, cols])?;
        codebooks.push(Matrix::from_rows(rows, cols, &values));
    }
    let codes = reader.bytes("codes", &[settings.n_codebooks, n_items])?;
    InvertedMultiIndex::from_parts(settings, n_items, dim, codebooks, codes)
}
