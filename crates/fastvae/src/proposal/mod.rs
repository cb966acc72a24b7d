//! Where negatives come from: distributions Q over items given a query (sections 4 and 5 of the paper).
//!
//! A proposal is asked in three steps. [`Proposal::refresh`] rebuilds what follows the item vectors, once per
//! refresh. [`Proposal::prepare`] does the work of one query, [`Proposal::draw`] and [`Proposal::log_q`] then
//! answer for it from the [`Scratch`] that it filled. One contract holds for every kind: Q sums to one, draws
//! follow Q, and the `ln Q` of a draw is the `ln Q` asked for that item.

use crate::config::ProposalKind;
use crate::data::ItemId;
use crate::error::Result;
use crate::math::{MatrixView, Stream};

/// The item side of the decoder: logit_i = query . vectors_i + bias_i.
#[derive(Debug, Clone, Copy)]
pub struct ItemTable<'a> {
    /// Item vectors, `n_items x latent`.
    pub vectors: MatrixView<'a>,
    /// Item biases, where the model has them.
    pub bias: Option<&'a [f32]>,
}

/// The negatives of one query; buffers are reused from query to query.
#[derive(Debug, Clone, Default)]
pub struct Draws {
    /// Drawn items, with repetition, in no particular order.
    pub items: Vec<ItemId>,
    /// What the loss subtracts from each drawn item's logit: its `ln Q` (see [`Proposal::correction`]).
    pub correction: Vec<f32>,
}

/// A distribution over items given a query.
pub trait Proposal: Send + Sync + std::fmt::Debug {
    /// Which one this is.
    fn kind(&self) -> ProposalKind;

    /// Rebuilds what depends on the item vectors. Work is spread over the current thread pool; the result
    /// does not depend on the number of threads.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if the settings do not fit the table (more codewords than items).
    fn refresh(&mut self, items: ItemTable<'_>, seed: u64, epoch: u32) -> Result<()>;

    /// Does the work of one query; `items` is the table as it is now, which may be newer than the last refresh.
    fn prepare(&self, query: &[f32], items: ItemTable<'_>, scratch: &mut Scratch);

    /// Fills `draws` with `n` independent draws for the query of the last [`Proposal::prepare`] on `scratch`.
    /// Cost: O(n) for MIDX, no allocation once the buffers have grown.
    fn draw(
        &self,
        n: usize,
        query: &[f32],
        items: ItemTable<'_>,
        stream: &Stream,
        scratch: &mut Scratch,
        draws: &mut Draws,
    );

    /// `log_q[i] = ln Q(of[i] | query)`, normalised, for the query of the last [`Proposal::prepare`].
    fn log_q(
        &self,
        of: &[ItemId],
        query: &[f32],
        items: ItemTable<'_>,
        scratch: &mut Scratch,
        log_q: &mut [f32],
    );

    /// What the loss subtracts from the logits of `of`: `ln Q`, except where that is too dear and a constant
    /// stands in (`dns`).
    fn correction(
        &self,
        of: &[ItemId],
        query: &[f32],
        items: ItemTable<'_>,
        scratch: &mut Scratch,
        correction: &mut [f32],
    ) {
        self.log_q(of, query, items, scratch, correction);
    }
}

/// What [`Proposal::prepare`] leaves for draws; one per thread, reused.
#[derive(Debug, Default)]
pub struct Scratch {}
