//! Draws from the exact softmax on the device: linear in the catalogue, an oracle.

use super::device::{Gpu, Memory};
use super::rank::queue_scores;
use super::state::{Pointer, Run};
use crate::error::Result;
use crate::math::matrix::LANES;

const THREADS: u32 = 512;

/// Buffers of the draws: for each query a score and a sum of each item, and a node of each sixteen.
#[derive(Debug)]
pub(super) struct SoftmaxDraws {
    scores: Pointer,
    sums: Pointer,
    nodes: Pointer,
}

impl SoftmaxDraws {
    pub fn new(gpu: &Gpu, memory: &mut Memory, run: &Run) -> Result<Self> {
        let queries = (run.batch * run.samples) as usize;
        let n_nodes = (run.n_items as usize).div_ceil(LANES);
        Ok(Self {
            scores: memory.zeros::<f32>(gpu, queries * run.n_items as usize)?,
            sums: memory.zeros::<f32>(gpu, queries * n_nodes * LANES)?,
            nodes: memory.zeros::<f64>(gpu, queries * (n_nodes + 1))?,
        })
    }

    /// Queues the draws of all queries.
    pub fn queue(&self, gpu: &Gpu, run: &Run) -> Result<()> {
        let Self { mut scores, mut sums, mut nodes } = *self;
        let (mut r, queries) = (*run, run.batch * run.samples);
        queue_scores(gpu, run, queries, scores)?;
        let draw = &mut [
            (&raw mut r).cast(),
            (&raw mut scores).cast(),
            (&raw mut sums).cast(),
            (&raw mut nodes).cast(),
        ];
        // SAFETY: the arguments of `draw_softmax`.
        unsafe { gpu.launch("draw_softmax", (queries, 1), THREADS, 0, draw) }
    }
}
