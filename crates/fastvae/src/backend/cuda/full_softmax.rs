//! The full softmax on the device.

use super::device::{Gpu, Lane, Memory};
use super::state::{Pointer, Run, Tile};
use crate::error::Result;

/// Items whose scores are held at a time: with 256 queries 32 MB, which a large GPU keeps in its cache.
const WIDTH: usize = 32 << 10;
/// Sizes of the kernels' blocks.
const SIDE: u32 = 128;
const QUERY_GROUP: u32 = 32;
const ITEM_CHUNK: u32 = 512;
const ITEM_GROUP: u32 = 64;
const COLUMNS: u32 = 32;

/// Buffers of the full softmax.
#[derive(Debug)]
pub(super) struct FullSoftmax {
    scores: Pointer,
    tops: Pointer,
    sums: Pointer,
    d_queries: Pointer,
    width: u32,
}

impl FullSoftmax {
    pub fn new(gpu: &Gpu, memory: &mut Memory, run: &Run) -> Result<Self> {
        let queries = (run.batch * run.samples) as usize;
        let width = WIDTH.min((run.n_items as usize).next_multiple_of(SIDE as usize));
        Ok(Self {
            scores: memory.zeros::<f32>(gpu, queries * width)?,
            tops: memory.zeros::<f32>(gpu, queries)?,
            sums: memory.zeros::<f32>(gpu, queries)?,
            d_queries: memory.zeros::<i64>(gpu, queries * run.latent_stride as usize)?,
            width: width as u32,
        })
    }

    /// Queues loss, gradients and the items' update.
    pub fn queue(&self, gpu: &Gpu, run: &Run) -> Result<()> {
        let queries = run.batch * run.samples;
        let starts: Vec<u32> = (0..run.n_items).step_by(self.width as usize).collect();
        self.launch(gpu, run, "full_begin", 0, (queries.div_ceil(256), 1, 1), 256)?;
        for &first in &starts {
            let n = self.width.min(run.n_items - first);
            let grid = (n.div_ceil(SIDE), queries.div_ceil(SIDE), 1);
            self.launch(gpu, run, "full_scores", first, grid, 256)?;
            self.launch(gpu, run, "full_sum", first, (queries, 1, 1), 512)?;
        }
        let columns = run.latent_stride.div_ceil(COLUMNS);
        for &first in &starts {
            let n = self.width.min(run.n_items - first);
            if starts.len() > 1 {
                let grid = (n.div_ceil(SIDE), queries.div_ceil(SIDE), 1);
                self.launch(gpu, run, "full_scores", first, grid, 256)?;
            }
            self.launch(gpu, run, "full_gradients", first, (queries, 1, 1), 512)?;
            let grid = (n.div_ceil(ITEM_CHUNK), queries.div_ceil(QUERY_GROUP), columns);
            self.launch(gpu, run, "full_to_queries", first, grid, 256)?;
            self.launch(gpu, run, "full_to_items", first, (n.div_ceil(ITEM_GROUP), columns, 1), 256)?;
        }
        self.launch(gpu, run, "full_end", 0, (64, 1, 1), 256)
    }

    fn launch(
        &self,
        gpu: &Gpu,
        run: &Run,
        kernel: &'static str,
        first: u32,
        grid: (u32, u32, u32),
        block: u32,
    ) -> Result<()> {
        let mut run = *run;
        let mut tile = Tile {
            scores: self.scores,
            first,
            n: self.width.min(run.n_items - first),
            width: self.width,
            padding: 0,
            tops: self.tops,
            sums: self.sums,
            d_queries: self.d_queries,
        };
        let arguments = &mut [(&raw mut run).cast(), (&raw mut tile).cast()];
        // SAFETY: the arguments of these kernels.
        unsafe { gpu.launch_in(Lane::Main, kernel, grid, block, 0, arguments) }
    }
}
