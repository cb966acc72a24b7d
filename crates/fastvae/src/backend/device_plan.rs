//! What a run holds on a GPU: arithmetic on sizes, before anything is sent there.

use crate::config::{Config, ModelKind, ProposalKind};
use crate::math::Matrix;
use crate::math::matrix::LANES;
use crate::network::{Shape, Tables};
use crate::optim::Moments;

/// Bytes of one number.
const FLOAT: u64 = 4;
/// What the driver keeps for itself.
const CONTEXT: u64 = 600 << 20;
/// Scores that a ranking holds, at most.
const SCORES: u64 = 512 << 20;
/// Users of a batch, at most times as many interactions as the mean: the longest histories come together.
const LONG: u64 = 8;

/// The bytes that a run of `config` needs on a GPU.
pub fn device_bytes(config: &Config, n_users: usize, n_items: usize, n_interactions: usize) -> u64 {
    let stride = |n: usize| n.next_multiple_of(LANES) as u64;
    let (users, items, interactions) = (n_users as u64, n_items as u64, n_interactions as u64);
    let (hidden, latent, head) = (stride(config.hidden), stride(config.latent), stride(2 * config.latent));
    let (batch, samples) = (config.batch as u64, config.latent_samples as u64);
    let queries = batch * samples;
    let sampled = if config.model == ModelKind::FastVae { queries * config.negatives as u64 } else { 0 };
    // A table, its first moments, and its second ones: one for each row where all columns share it.
    let floats = |shape: Shape| {
        let [first, second] = Moments::sizes(shape).map(|(rows, cols)| Matrix::floats_of(rows, cols));
        let second = if second == 0 { shape.rows as u64 } else { second };
        Matrix::floats_of(shape.rows, shape.cols) + first + second
    };
    let tables =
        FLOAT * Tables::<Shape>::of(config, n_items).into_iter().map(|(_, shape)| floats(shape)).sum::<u64>();
    let data = 16 * users + 4 * interactions + FLOAT * interactions * samples;
    let buffers = FLOAT * (2 * batch * (hidden + head) + 3 * queries * latent) + 8 * sampled;
    let longest = interactions.min(batch * LONG * interactions.div_ceil(users.max(1)));
    let touched = |rows: u64, stride: u64| 8 * items + rows.min(items) * (4 + 8 * stride);
    let gradients = touched(sampled + longest * samples, latent) + touched(longest, hidden);
    let proposal = match (config.model, config.proposal) {
        (ModelKind::MultVae, _) => queries * (FLOAT * items.min(32 << 10) + 8 * latent),
        (_, ProposalKind::Softmax) => queries * items * 9,
        (_, ProposalKind::MidxExact) => queries * items * 9 + items * 50,
        (_, ProposalKind::MidxUniform | ProposalKind::MidxPopularity) => items * 50,
        _ => items * 12,
    };
    let ranking = SCORES.max(16 * items * FLOAT).min(users * items * FLOAT);
    CONTEXT + tables + data + buffers + gradients + proposal + ranking
}
