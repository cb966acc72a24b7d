//! `midx-exact`: the softmax drawn through the cells (theorem 4.1); linear in the catalogue.
//!
//! Q(i given z) = P(cell) P(i given cell), with P(i given cell) = exp(z . r_i) / omega the softmax of the cell's
//! residuals and P(cell) ~ omega exp(z . codewords of the cell). It equals [`super::Softmax`] up to rounding:
//! the paper's theorem, and the oracle of its approximations.

use super::logits::logits;
use super::midx::{index_state, restored_index};
use super::state::{Reader, State};
use super::{ItemTable, Partitions, Proposal, Scratch, Spread};
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
    /// Partitions asked for.
    wanted: usize,
    built: Option<(InvertedMultiIndex, Partitions)>,
}

impl MidxExact {
    /// Over `n_items` items with vectors of length `dim`, in about `wanted` partitions.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if the settings do not fit them.
    pub fn new(settings: IndexSettings, n_items: usize, dim: usize, wanted: usize) -> Result<Self> {
        settings.check(n_items, dim)?;
        Ok(Self { settings, n_items, dim, wanted, built: None })
    }

    fn built(&self) -> &(InvertedMultiIndex, Partitions) {
        self.built.as_ref().expect("a refresh comes before the first query")
    }

    fn with_partitions(&self, index: InvertedMultiIndex) -> (InvertedMultiIndex, Partitions) {
        let lists = index.lists();
        let partitions = Partitions::lists(lists.all_items(), lists.starts(), self.wanted);
        (index, partitions)
    }
}

impl Proposal for MidxExact {
    fn kind(&self) -> ProposalKind {
        ProposalKind::MidxExact
    }

    fn refresh(&mut self, items: ItemTable<'_>, seed: u64, epoch: u32) -> Result<()> {
        let warm = self.built.as_ref().map(|(index, _)| index);
        let index = InvertedMultiIndex::build(items.vectors, self.settings, warm, seed, epoch)?;
        self.built = Some(self.with_partitions(index));
        Ok(())
    }

    fn prepare(&self, query: &[f32], items: ItemTable<'_>, scratch: &mut Scratch) {
        let (index, _) = self.built();
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
        for (cell, log_share) in log_base.iter().enumerate() {
            let log_p = log_share - log_z;
            let p = log_p.exp();
            let members = &mut weights[lists.starts()[cell] as usize..lists.starts()[cell + 1] as usize];
            for (weight, &item) in members.iter_mut().zip(lists.items(cell)) {
                *weight *= p;
                ln_q[item as usize] += log_p;
            }
        }
    }

    fn partitions(&self) -> &Partitions {
        &self.built().1
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
        let (index, partitions) = self.built();
        let lists = index.lists().all_items();
        let Scratch { weights, logits, systematic, runs, places, correction, .. } = scratch;
        systematic.draw(weights, None, n, stream, runs);
        runs.unroll(|place| logits[lists[place as usize] as usize], places, correction);
        spread.push_places(places, correction, partitions);
    }

    fn log_q(&self, of: &[ItemId], _: &[f32], _: ItemTable<'_>, scratch: &mut Scratch, log_q: &mut [f32]) {
        for (out, &item) in log_q.iter_mut().zip(of) {
            *out = scratch.logits[item as usize];
        }
    }

    fn index(&self) -> Option<&InvertedMultiIndex> {
        self.built.as_ref().map(|(index, _)| index)
    }

    fn state(&self) -> State {
        self.built.as_ref().map(|(index, _)| index_state(index)).unwrap_or_default()
    }

    fn restore(&mut self, state: State) -> Result<()> {
        let mut reader = Reader::new(state);
        let index = restored_index(&mut reader, self.settings, self.n_items, self.dim)?;
        reader.finish()?;
        self.built = Some(self.with_partitions(index));
        Ok(())
    }
}
