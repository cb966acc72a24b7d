//! Ranking the catalogue on the device.

use bytemuck::Zeroable;

use super::device::{Gpu, Memory};
use super::state::{Clock, Pointer, Run, Table};
use super::tables::{Place, input_scales};
use super::{ENCODE_THREADS, TOGETHER, dense_grid};
use crate::data::{Interactions, ItemId, UserId};
use crate::error::{Error, Result};
use crate::math::Matrix;
use crate::network::{Parameters, Tables};

/// Longest lists: the kernel bounds the k-th best by the best of each of 1024 threads.
pub(super) const LONGEST: usize = 512;
/// Bytes of scores held at a time.
const SCORE_BYTES: usize = 512 << 20;
/// Users and items of a block of scores, as in the kernels.
const SIDE: u32 = 128;

/// What is ranked by whom.
pub(super) struct Ranking<'a> {
    /// The parameters to rank by, where they are not the newest on the device.
    pub by: Option<&'a Parameters>,
    pub histories: &'a Interactions,
    /// Whether the histories are the interactions that the device holds.
    pub resident: bool,
    pub users: &'a [UserId],
    pub k: usize,
}

/// The best items of each user, `k` for each, best first; `ItemId::MAX` where there are no more.
pub(super) fn rank(
    gpu: &Gpu,
    run: &Run,
    places: Tables<Place>,
    ranking: &Ranking<'_>,
) -> Result<Vec<ItemId>> {
    let Ranking { by, histories, resident, users, k } = *ranking;
    let mut memory = Memory::default();
    let n_items = run.n_items as usize;
    let tile = (SCORE_BYTES / (4 * n_items)).clamp(16, 8192).min(users.len().max(1));
    let mut r = *run;
    if let Some(parameters) = by {
        let copied = |_: &str, (place, matrix): (Place, &Matrix)| {
            Ok::<_, Error>(Table { values: memory.copy(gpu, matrix.data())?, ..place.table })
        };
        r.take(places.zip(parameters.as_ref()).try_map(copied)?);
    }
    if !resident {
        let offsets: Vec<u64> = histories.offsets().iter().map(|&offset| offset as u64).collect();
        r.offsets = memory.copy(gpu, &offsets)?;
        r.positives = memory.copy(gpu, histories.items())?;
        r.weights = histories.weights().map_or(Ok(0), |weights| memory.copy(gpu, weights))?;
        r.input_scale = memory.copy(gpu, &input_scales(histories))?;
    }
    r.order = memory.copy(gpu, users)?;
    r.clock = memory.zeros::<Clock>(gpu, 1)?;
    r.hidden = memory.zeros::<f32>(gpu, tile * r.hidden_stride as usize)?;
    r.latent = memory.zeros::<f32>(gpu, tile * r.head_stride as usize)?;
    r.queries = memory.zeros::<f32>(gpu, tile * r.latent_stride as usize)?;
    (r.dropout_threshold, r.dropout_scale) = (0, 1.0);
    r.touched_encoder.stamp = 0;
    let buffers = Buffers {
        scores: memory.zeros::<f32>(gpu, tile * n_items)?,
        best: memory.zeros::<u32>(gpu, tile * k)?,
        best_scores: memory.zeros::<f32>(gpu, tile * k)?,
    };
    let mut lists = vec![ItemId::MAX; users.len() * k];
    for (number, lists) in lists.chunks_mut(tile * k).enumerate() {
        let n = lists.len() / k;
        let clock = Clock { first: (number * tile) as u32, n_users: n as u32, ..Clock::zeroed() };
        gpu.write(r.clock, &[clock])?;
        rank_tile(gpu, &r, &buffers, n as u32, k as u32)?;
        gpu.read(buffers.best, lists)?;
    }
    Ok(lists)
}

struct Buffers {
    scores: Pointer,
    best: Pointer,
    best_scores: Pointer,
}

fn rank_tile(gpu: &Gpu, r: &Run, buffers: &Buffers, n: u32, mut k: u32) -> Result<()> {
    let mut r = *r;
    let Buffers { mut scores, mut best, mut best_scores } = *buffers;
    let hidden_bytes = TOGETHER * r.hidden_stride * 4;
    let values = n * r.latent_stride;
    let own = &mut [(&raw mut r).cast()];
    let select = &mut [
        (&raw mut r).cast(),
        (&raw mut scores).cast(),
        (&raw mut k).cast(),
        (&raw mut best).cast(),
        (&raw mut best_scores).cast(),
    ];
    let dense = dense_grid(&r, n);
    // SAFETY: the arguments of each kernel; the buffers hold a tile of users.
    unsafe {
        gpu.launch("encode", (n, 1), ENCODE_THREADS, ENCODE_THREADS * 16, own)?;
        gpu.launch("dense_forward", dense, 256, hidden_bytes, own)?;
        gpu.launch("rank_queries", (values.div_ceil(256), 1), 256, 0, own)?;
        queue_scores(gpu, &r, n, scores)?;
        gpu.launch("rank_best", (n, 1), 1024, 0, select)
    }
}

/// Queues the scores of the first `n` queries against all items, `n_items` apart in `scores`.
pub(super) fn queue_scores(gpu: &Gpu, run: &Run, mut n: u32, mut scores: Pointer) -> Result<()> {
    let (mut queries, mut items, mut n_items) = (run.queries, run.items.values, run.n_items);
    let (mut stride, mut width) = (run.latent_stride, run.latent_width);
    let arguments = &mut [
        (&raw mut queries).cast(),
        (&raw mut n).cast(),
        (&raw mut items).cast(),
        (&raw mut n_items).cast(),
        (&raw mut stride).cast(),
        (&raw mut width).cast(),
        (&raw mut scores).cast(),
    ];
    let grid = (run.n_items.div_ceil(SIDE), n.div_ceil(SIDE));
    // SAFETY: the arguments of `rank_scores`.
    unsafe { gpu.launch("rank_scores", grid, 256, 0, arguments) }
}
