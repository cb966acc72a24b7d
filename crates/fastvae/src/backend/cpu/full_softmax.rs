//! The full softmax over the catalogue (Mult-VAE), in tiles: no batch x items matrix in memory.
//!
//! Two passes over tiles of items. The first streams the log-sum-exp of each query; the second recomputes a
//! tile's logits, turns them into probabilities, and from these the queries' gradient and the tile's own, which
//! is applied at once. Tiles are combined in a fixed order, whatever the number of threads.

use fearless_simd::dispatch;

use crate::backend::cpu::grouping::{BucketEntries, BucketLayout, Buckets, Entries};
use crate::backend::cpu::rows::{RowChunk, RowTable, update_row};
use crate::backend::cpu::team::Team;
use crate::math::dense::{Operand, product};
use crate::math::simd::{self, level};
use crate::math::{Matrix, MatrixView};
use crate::optim::Update;

/// Items per tile, as a power of two: the logits of a batch against a tile stay in the second-level cache.
pub(super) const TILE_SHIFT: u32 = 9;
/// Tiles are summed in this many groups, each in its own partial gradient; more bounds the threads that help.
const GROUPS: usize = 16;

/// One batch against the whole catalogue.
pub(super) struct FullSoftmax<'a> {
    /// Queries, one row each.
    pub queries: MatrixView<'a>,
    /// For each query the sum of its positives' weights, over the number of latent draws.
    pub mass: &'a [f32],
    /// The positives of each user block as entries (item, query, weight).
    pub positives: &'a [&'a Buckets],
    pub layout: BucketLayout,
    pub update: &'a Update,
}

impl FullSoftmax<'_> {
    /// Updates the items, fills the queries' gradient (rows padded as the queries), and returns the loss.
    pub fn run(&self, team: &mut Team, table: RowTable<'_>, query_gradient: &mut [f32]) -> f64 {
        let log_sums = self.log_sums(team, &table);
        let (latent, stride, n) = (self.queries.cols(), self.queries.stride(), self.queries.rows());
        let mut tiles: Vec<(usize, RowChunk<'_>)> =
            table.chunks(self.layout.width()).into_iter().enumerate().collect();
        let per_group = tiles.len().div_ceil(GROUPS).max(1);
        let mut groups: Vec<_> =
            tiles.chunks_mut(per_group).map(|tiles| (tiles, 0.0, Matrix::zeros(n, latent))).collect();
        team.for_each_mut(&mut groups, |_, (tiles, loss, gradient)| {
            let mut buffers = TileBuffers::new(n, self.layout.width(), stride);
            for (tile, chunk) in tiles.iter_mut() {
                *loss += self.tile(*tile, chunk, &log_sums, gradient, &mut buffers);
            }
        });
        query_gradient.fill(0.0);
        let mut loss = 0.0;
        for (_, group_loss, gradient) in &groups {
            loss += group_loss;
            simd::axpy(1.0, gradient.data(), query_gradient);
        }
        loss
    }

    /// The log-sum-exp of each query over all items.
    fn log_sums(&self, team: &mut Team, table: &RowTable<'_>) -> Vec<f32> {
        let n = self.queries.rows();
        let width = self.layout.width();
        let rows = table.rows.view();
        let bias = table.bias.as_ref().map(|bias| &*bias.values);
        let n_tiles = rows.rows().div_ceil(width);
        let per_group = n_tiles.div_ceil(GROUPS).max(1);
        let groups = team.map(n_tiles.div_ceil(per_group), |group| {
            let mut logits = vec![0.0; n * width];
            let tiles = group * per_group..n_tiles.min((group + 1) * per_group);
            let sums = tiles.map(|tile| {
                let start = tile * width;
                let used = width.min(rows.rows() - start);
                self.logits(rows.rows_from(start, used), bias.map(|b| &b[start..start + used]), &mut logits);
                let sum = |row: &mut [f32]| {
                    let top = simd::max(&row[..used]);
                    (top, simd::exp_shifted(&mut row[..used], top))
                };
                logits.chunks_exact_mut(width).map(sum).collect::<Vec<_>>()
            });
            sums.collect::<Vec<_>>()
        });
        let partial: Vec<&Vec<(f32, f64)>> = groups.iter().flatten().collect();
        (0..n)
            .map(|q| {
                let top = partial.iter().map(|tile| tile[q].0).fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = partial.iter().map(|tile| tile[q].1 * f64::from(tile[q].0 - top).exp()).sum();
                top + sum.ln() as f32
            })
            .collect()
    }

    /// The logits of all queries against some items, rows one tile width apart.
    fn logits(&self, rows: MatrixView<'_>, bias: Option<&[f32]>, out: &mut [f32]) {
        let width = self.layout.width();
        product(out, width, false, Operand::Plain(self.queries), Operand::Transposed(rows));
        if let Some(bias) = bias {
            for row in out.chunks_exact_mut(width) {
                simd::axpy(1.0, bias, &mut row[..bias.len()]);
            }
        }
    }

    /// One tile of the second pass.
    fn tile(
        &self,
        tile: usize,
        chunk: &mut RowChunk<'_>,
        log_sums: &[f32],
        query_gradient: &mut Matrix,
        buffers: &mut TileBuffers,
    ) -> f64 {
        let (width, stride, latent, n) =
            (self.layout.width(), self.queries.stride(), self.queries.cols(), self.queries.rows());
        let used = chunk.rows.len() / stride;
        let rows = MatrixView::padded(chunk.rows, used, latent, stride);
        self.logits(rows, chunk.bias.as_ref().map(|bias| &*bias.values), &mut buffers.weights);
        let positives = BucketEntries { blocks: self.positives, bucket: tile, layout: self.layout };
        let at = |row: u32, item: u32| row as usize * width + item as usize;
        let mut loss = 0.0;
        positives.entries(|entry| {
            let logit = buffers.weights[at(entry.row, entry.item)];
            loss += f64::from(entry.weight) * f64::from(log_sums[entry.row as usize] - logit);
        });
        for (q, row) in buffers.weights.chunks_exact_mut(width).enumerate() {
            simd::exp_shifted(&mut row[..used], log_sums[q] - self.mass[q].max(f32::MIN_POSITIVE).ln());
        }
        positives.entries(|entry| buffers.weights[at(entry.row, entry.item)] -= entry.weight);
        let weights = MatrixView::padded(&buffers.weights, n, used, width);
        let query_stride = query_gradient.stride();
        product(query_gradient.data_mut(), query_stride, true, Operand::Plain(weights), Operand::Plain(rows));
        product(
            &mut buffers.gradient,
            stride,
            false,
            Operand::Transposed(weights),
            Operand::Plain(self.queries),
        );
        for row in 0..used {
            // Columns of the weights are summed only where there is a bias to move.
            let bias_gradient = if chunk.bias.is_some() {
                (0..n).map(|q| buffers.weights[q * width + row]).sum()
            } else {
                0.0
            };
            let gradient = &mut buffers.gradient[row * stride..][..stride];
            dispatch!(level(), simd => update_row(simd, chunk, row, self.update, gradient, bias_gradient, |_| ()));
        }
        loss
    }
}

struct TileBuffers {
    weights: Vec<f32>,
    gradient: Vec<f32>,
}

impl TileBuffers {
    fn new(n: usize, width: usize, stride: usize) -> Self {
        Self { weights: vec![0.0; n * width], gradient: vec![0.0; width * stride] }
    }
}
