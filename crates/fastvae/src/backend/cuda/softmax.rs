//! Draws from the exact softmax on the device: linear in the catalogue, an oracle.

use super::device::{Gpu, Memory};
use super::rank::queue_scores;
use super::state::{Pointer, Run};
use super::tables::{FAN_OUT, n_levels, tree_len};
use crate::error::Result;

const THREADS: u32 = 512;

/// Buffers of the draws: a score and a tree over all items for each query.
#[derive(Debug)]
pub(super) struct SoftmaxDraws {
    scores: Pointer,
    trees: Pointer,
    tree_len: u64,
    n_levels: u32,
    padded: u32,
}

impl SoftmaxDraws {
    pub fn new(gpu: &Gpu, memory: &mut Memory, run: &Run) -> Result<Self> {
        let queries = (run.batch * run.samples) as usize;
        let leaves = run.n_items.next_multiple_of(FAN_OUT);
        let (tree, padded) = (tree_len(leaves), run.negatives.next_power_of_two());
        gpu.allow_shared(
            "draw_softmax",
            padded * 4,
            ("negatives", "give fewer, or train with --device cpu"),
        )?;
        Ok(Self {
            scores: memory.zeros::<f32>(gpu, queries * run.n_items as usize)?,
            trees: memory.zeros::<f32>(gpu, queries * tree as usize)?,
            tree_len: u64::from(tree),
            n_levels: n_levels(leaves),
            padded,
        })
    }

    /// Queues the draws of all queries.
    pub fn queue(&self, gpu: &Gpu, run: &Run) -> Result<()> {
        let Self { mut scores, mut trees, mut tree_len, mut n_levels, mut padded } = *self;
        let (mut r, queries) = (*run, run.batch * run.samples);
        queue_scores(gpu, run, queries, scores)?;
        let draw = &mut [
            (&raw mut r).cast(),
            (&raw mut scores).cast(),
            (&raw mut trees).cast(),
            (&raw mut tree_len).cast(),
            (&raw mut n_levels).cast(),
            (&raw mut padded).cast(),
        ];
        // SAFETY: the arguments of `draw_softmax`.
        unsafe { gpu.launch("draw_softmax", (queries, 1), THREADS, self.padded * 4, draw) }
    }
}
