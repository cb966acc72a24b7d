//! `midx-uniform` and `midx-popularity`: cells by the codewords, items of a cell by a fixed weight
//! (theorems 5.1 and 5.2).
//!
//! Q(i given z) ~ w_i exp(z . c(i)), c(i) the sum of the item's codewords and w_i = 1 or pop(i), times
//! exp(b_i) where items have a bias (as it was at the last refresh). Since w_i does not depend on the query,
//! a query costs O(K D + K^2) and a draw O(1).

use rayon::prelude::*;

use super::alias::{self, Slot};
use super::cells::{Cells, Span};
use super::state::{Reader, State, StateTensor};
use super::uniform::below;
use super::walk::{CHOICES, sorted_targets, walk};
use super::{Draws, ItemTable, Proposal, Scratch};
use crate::config::ProposalKind;
use crate::data::ItemId;
use crate::error::Result;
use crate::index::{IndexSettings, InvertedMultiIndex};
use crate::math::{Matrix, Stream};

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
    built: Option<Built>,
}

/// What a refresh leaves.
#[derive(Debug, Clone)]
struct Built {
    index: InvertedMultiIndex,
    cells: Cells,
    /// ln of each item's weight, the largest 0; none where all weigh the same.
    log_weights: Option<Vec<f32>>,
    /// The bias that the weights hold, for the state.
    bias: Option<Vec<f32>>,
    members: Members,
}

/// The items in the order of the inverted lists, with what a draw needs of them.
#[derive(Debug, Clone)]
enum Members {
    Alike,
    Weighted {
        /// One alias table for each cell, end to end.
        table: Vec<Choice>,
        /// Whether the cells are small enough that one random word makes a draw.
        one_word: bool,
    },
}

/// A slot of an alias table with both its items, so that a draw misses the cache once.
#[derive(Debug, Clone, Copy)]
struct Choice {
    slot: Slot,
    /// Where a draw goes that does not stay, and where it stays.
    members: [Member; 2],
}

/// An item and the ln of its weight.
#[derive(Debug, Clone, Copy)]
struct Member {
    item: ItemId,
    log_weight: f32,
}

impl Choice {
    #[inline(always)]
    fn member(&self, coin: u32) -> Member {
        // The coin is a surprise each time: an index costs less than a branch guessed wrong.
        self.members[usize::from(self.slot.keeps(coin))]
    }
}

impl Midx {
    /// Over `n_items` items with vectors of length `dim`.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if the settings do not fit them.
    pub fn new(settings: IndexSettings, within: Within, n_items: usize, dim: usize) -> Result<Self> {
        settings.check(n_items, dim)?;
        Ok(Self { settings, within, n_items, dim, built: None })
    }

    fn built(&self) -> &Built {
        self.built.as_ref().expect("a refresh comes before the first query")
    }

    /// ln of each item's weight with `bias`, shifted to a largest of 0 so that no sum overflows.
    fn log_weights(&self, bias: Option<&[f32]>) -> Option<Vec<f32>> {
        let mut weights: Vec<f32> = match (&self.within, bias) {
            (Within::Uniform, None) => return None,
            (Within::Uniform, Some(bias)) => bias.to_vec(),
            (Within::Popularity(log_pop), None) => log_pop.clone(),
            (Within::Popularity(log_pop), Some(bias)) => {
                log_pop.iter().zip(bias).map(|(log_pop, b)| log_pop + b).collect()
            }
        };
        let largest = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        weights.iter_mut().for_each(|weight| *weight -= largest);
        Some(weights)
    }

    fn build(&self, index: InvertedMultiIndex, bias: Option<Vec<f32>>) -> Built {
        let log_weights = self.log_weights(bias.as_deref());
        let lists = index.lists();
        let (log_masses, members) = match &log_weights {
            None => {
                let sizes = lists.starts().windows(2).map(|pair| f64::from(pair[1] - pair[0]));
                (sizes.map(f64::ln).collect(), Members::Alike)
            }
            Some(log_weights) => weighted_members(&index, log_weights),
        };
        let cells = Cells::new(&index, &log_masses);
        Built { index, cells, log_weights, bias, members }
    }
}

/// The ln mass of each cell, and the alias tables.
fn weighted_members(index: &InvertedMultiIndex, log_weights: &[f32]) -> (Vec<f64>, Members) {
    let lists = index.lists();
    let items: Vec<Member> = lists
        .all_items()
        .iter()
        .map(|&item| Member { item, log_weight: log_weights[item as usize] })
        .collect();
    let mut slots = vec![Slot::default(); items.len()];
    let mut rest = slots.as_mut_slice();
    let mut cells = Vec::with_capacity(lists.n_cells());
    for pair in lists.starts().windows(2) {
        let (cell, after) = rest.split_at_mut((pair[1] - pair[0]) as usize);
        cells.push((pair[0], cell));
        rest = after;
    }
    let log_masses = cells
        .into_par_iter()
        .map(|(start, slots)| {
            let weights: Vec<f64> = items[start as usize..][..slots.len()]
                .iter()
                .map(|member| f64::from(member.log_weight).exp())
                .collect();
            alias::fill(&weights, start, slots);
            weights.iter().sum::<f64>().ln()
        })
        .collect();
    let largest = lists.starts().windows(2).map(|pair| pair[1] - pair[0]).max();
    let one_word = largest <= Some(alias::ONE_WORD);
    let table = slots
        .into_iter()
        .zip(&items)
        .map(|(slot, &own)| Choice { slot, members: [items[slot.other() as usize], own] })
        .collect();
    (log_masses, Members::Weighted { table, one_word })
}

impl Proposal for Midx {
    fn kind(&self) -> ProposalKind {
        match self.within {
            Within::Uniform => ProposalKind::MidxUniform,
            Within::Popularity(_) => ProposalKind::MidxPopularity,
        }
    }

    fn refresh(&mut self, items: ItemTable<'_>, seed: u64, epoch: u32) -> Result<()> {
        let warm = self.built.as_ref().map(|built| &built.index);
        let index = InvertedMultiIndex::build(items.vectors, self.settings, warm, seed, epoch)?;
        self.built = Some(self.build(index, items.bias.map(<[f32]>::to_vec)));
        Ok(())
    }

    fn prepare(&self, query: &[f32], _: ItemTable<'_>, scratch: &mut Scratch) {
        let built = self.built();
        built.cells.prepare(&built.index, query, scratch);
    }

    fn draw(
        &self,
        n: usize,
        _: &[f32],
        _: ItemTable<'_>,
        stream: &Stream,
        scratch: &mut Scratch,
        draws: &mut Draws,
    ) {
        let built = self.built();
        let Scratch { weights, total, targets, picks, words, log_base, .. } = scratch;
        draws.resize(n);
        picks.resize(n, 0);
        sorted_targets(n, *total, stream, words, targets);
        walk(weights, targets, picks);
        let spans = built.cells.spans();
        let draws = draws.items.iter_mut().zip(&mut draws.correction).zip(picks.iter());
        match &built.members {
            Members::Alike => {
                words.resize(n, 0);
                stream.fill(CHOICES, words);
                let items = built.index.lists().all_items();
                for (((item, correction), &slot), &word) in draws.zip(words.iter()) {
                    let Span { start, len } = spans[slot as usize];
                    *item = items[(start + below(word, len)) as usize];
                    *correction = log_base[slot as usize];
                }
            }
            Members::Weighted { table, one_word: true } => {
                words.resize(n, 0);
                stream.fill(CHOICES, words);
                for (((item, correction), &slot), &word) in draws.zip(words.iter()) {
                    let Span { start, len } = spans[slot as usize];
                    let (place, coin) = alias::place_and_coin(word, start, len);
                    let member = table[place as usize].member(coin);
                    *item = member.item;
                    *correction = log_base[slot as usize] + member.log_weight;
                }
            }
            Members::Weighted { table, one_word: false } => {
                words.resize(2 * n, 0);
                stream.fill(CHOICES, words);
                for (((item, correction), &slot), words) in draws.zip(words.chunks_exact(2)) {
                    let Span { start, len } = spans[slot as usize];
                    let place = start + below(words[0], len);
                    let member = table[place as usize].member(words[1]);
                    *item = member.item;
                    *correction = log_base[slot as usize] + member.log_weight;
                }
            }
        }
    }

    fn log_q(&self, of: &[ItemId], _: &[f32], _: ItemTable<'_>, scratch: &mut Scratch, log_q: &mut [f32]) {
        let built = self.built();
        for (out, &item) in log_q.iter_mut().zip(of) {
            let slot = built.cells.slot_of(&built.index, item as usize);
            let log_weight = built.log_weights.as_ref().map_or(0.0, |weights| weights[item as usize]);
            *out = scratch.log_base[slot] + log_weight;
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
