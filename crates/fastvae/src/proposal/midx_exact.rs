//! `midx-exact`: the softmax drawn through the cells (theorem 4.1); linear in the catalogue.
//!
//! Q(i given z) = P(cell) P(i given cell), with P(i given cell) = exp(z . r_i) / omega the softmax of the cell's
//! residuals and P(cell) ~ omega exp(z . codewords of the cell). It equals [`super::Softmax`] up to rounding:
//! the paper's theorem, and the oracle of its approximations.

use super::logits::logits;
use super::midx::{index_state, restored_index};
use super::state::{Reader, State};
use super::walk::{sorted_targets, walk};
use super::{Draws, ItemTable, Proposal, Scratch};
use crate::config::ProposalKind;
use crate::data::ItemId;
use crate::error::Result;
use crate::index::{IndexSettings, InvertedMultiIndex};
use crate::math::matrix::LANES;
use crate::math::{Stream, simd};

/// The softmax, drawn through the cells.
#[derive(Debug, Clone)]
pub struct MidxExact {
    settings: IndexSettings,
    n_items: usize,
    dim: usize,
    index: Option<InvertedMultiIndex>,
}

impl MidxExact {
    /// Over `n_items` items with vectors of length `dim`.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if the settings do not fit them.
    pub fn new(settings: IndexSettings, n_items: usize, dim: usize) -> Result<Self> {
        settings.check(n_items, dim)?;
        Ok(Self { settings, n_items, dim, index: None })
    }

    fn built(&self) -> &InvertedMultiIndex {
        self.index.as_ref().expect("a refresh comes before the first query")
    }
}

impl Proposal for MidxExact {
    fn kind(&self) -> ProposalKind {
        ProposalKind::MidxExact
    }

    fn refresh(&mut self, items: ItemTable<'_>, seed: u64, epoch: u32) -> Result<()> {
        let index =
            InvertedMultiIndex::build(items.vectors, self.settings, self.index.as_ref(), seed, epoch)?;
        self.index = Some(index);
        Ok(())
    }

    fn prepare(&self, query: &[f32], items: ItemTable<'_>, scratch: &mut Scratch) {
        let index = self.built();
        let (lists, stride) = (index.lists(), index.score_stride());
        let Scratch { query: padded, scores, logits: ln_q, weights, log_base, .. } = scratch;
        index.scores(query, scores);
        ln_q.resize(self.n_items, 0.0);
        logits(items, 0, query, padded, ln_q);

        // Residual softmax of each cell, items in the order of the lists; ln of each cell's share so far.
        weights.resize(self.n_items.next_multiple_of(LANES), 0.0);
        weights[self.n_items..].fill(0.0);
        log_base.resize(lists.n_cells(), 0.0);
        for (cell, log_share) in log_base.iter_mut().enumerate() {
            let codes = lists.codes(cell);
            let score: f32 =
                scores.chunks_exact(stride).zip(codes).map(|(s, code)| s[usize::from(code)]).sum();
            let members = &mut weights[lists.starts()[cell] as usize..lists.starts()[cell + 1] as usize];
            for (weight, &item) in members.iter_mut().zip(lists.items(cell)) {
                let residual_logit = ln_q[item as usize] - score;
                *weight = residual_logit;
                ln_q[item as usize] = residual_logit;
            }
            let shift = simd::max(members);
            let log_omega = f64::from(shift) + simd::exp_shifted(members, shift).ln();
            for &item in lists.items(cell) {
                ln_q[item as usize] -= log_omega as f32;
            }
            let scale = (f64::from(shift) - log_omega).exp() as f32;
            members.iter_mut().for_each(|weight| *weight *= scale);
            *log_share = (f64::from(score) + log_omega) as f32;
        }

        // Shares of the cells, and both together.
        let shift = simd::max(log_base);
        let log_z = (f64::from(shift)
            + log_base.iter().map(|&share| f64::from(share - shift).exp()).sum::<f64>().ln())
            as f32;
        let mut total = 0.0;
        for (cell, log_share) in log_base.iter().enumerate() {
            let log_p = log_share - log_z;
            let p = log_p.exp();
            let members = &mut weights[lists.starts()[cell] as usize..lists.starts()[cell + 1] as usize];
            for (weight, &item) in members.iter_mut().zip(lists.items(cell)) {
                *weight *= p;
                total += f64::from(*weight);
                ln_q[item as usize] += log_p;
            }
        }
        scratch.total = total;
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
        draws.resize(n);
        sorted_targets(n, scratch.total, stream, &mut scratch.words, &mut scratch.targets);
        walk(&scratch.weights, &scratch.targets, &mut draws.items);
        let places = self.built().lists().all_items();
        for (item, correction) in draws.items.iter_mut().zip(&mut draws.correction) {
            *item = places[*item as usize];
            *correction = scratch.logits[*item as usize];
        }
    }

    fn log_q(&self, of: &[ItemId], _: &[f32], _: ItemTable<'_>, scratch: &mut Scratch, log_q: &mut [f32]) {
        for (out, &item) in log_q.iter_mut().zip(of) {
            *out = scratch.logits[item as usize];
        }
    }

    fn index(&self) -> Option<&InvertedMultiIndex> {
        self.index.as_ref()
    }

    fn state(&self) -> State {
        self.index.as_ref().map(index_state).unwrap_or_default()
    }

    fn restore(&mut self, state: State) -> Result<()> {
        let mut reader = Reader::new(state);
        let index = restored_index(&mut reader, self.settings, self.n_items, self.dim)?;
        reader.finish()?;
        self.index = Some(index);
        Ok(())
    }
}
