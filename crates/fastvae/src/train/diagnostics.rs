//! How close the proposal is to the softmax it stands in for.

use rayon::prelude::*;

use crate::backend::RunState;
use crate::config::Config;
use crate::data::{Interactions, ItemId, UserId};
use crate::math::{Purpose, Stream, dots, simd};
use crate::network::encode;
use crate::proposal::{Draws, ItemTable, Proposal, Scratch};
use crate::train::ProposalDiagnostics;

/// Users looked at; fewer where the catalogue is so large that each costs a noticeable time.
const USERS: usize = 8;
/// Item scores computed in all, at most.
const MAX_SCORES: usize = 8_000_000;
/// Items whose probabilities are computed at a time.
const ITEMS: usize = 4096;

/// Looks at a sample of users, another one each epoch. None for a model that does not sample.
pub(super) fn diagnose(
    config: &Config,
    state: &RunState,
    train: &Interactions,
    users: &[UserId],
    epoch: usize,
) -> Option<ProposalDiagnostics> {
    let proposal = state.proposal.as_deref()?;
    let n = USERS.min(users.len()).min((MAX_SCORES / train.n_items()).max(1));
    let mut stream = Stream::new(config.seed, Purpose::Diagnostics, epoch as u32, 0);
    let sample: Vec<UserId> = (0..n).map(|_| users[stream.below(users.len() as u64) as usize]).collect();
    let network = state.parameters.network(config.activation);
    let queries = encode(network, n, |row| train.row(sample[row] as usize).into());
    let measured: Vec<(f64, f64)> = (0..n)
        .into_par_iter()
        .map(|row| {
            let query = &queries.row(row)[..config.latent];
            let stream = Stream::new(config.seed, Purpose::Diagnostics, epoch as u32, row as u32 + 1);
            measure(proposal, query, network.item_table(), config.negatives, &stream)
        })
        .collect();
    let mean = |pick: fn(&(f64, f64)) -> f64| measured.iter().map(pick).sum::<f64>() / n as f64;
    let occupancy = proposal.index().map(|index| index.occupancy());
    Some(ProposalDiagnostics {
        kl_to_softmax: mean(|m| m.0),
        effective_sample_share: mean(|m| m.1),
        occupied_cells: occupancy.map(|o| o.cells),
        largest_cell: occupancy.map(|o| o.largest),
    })
}

/// KL(Q || softmax) and the effective share of `n` draws, for one query.
fn measure(
    proposal: &dyn Proposal,
    query: &[f32],
    items: ItemTable<'_>,
    n: usize,
    stream: &Stream,
) -> (f64, f64) {
    let n_items = items.vectors.rows();
    let (mut scratch, mut draws) = (Scratch::default(), Draws::default());
    let mut logits = vec![0.0; n_items];
    dots::row_dots(items.vectors, query, &mut logits);
    if let Some(bias) = items.bias {
        simd::axpy(1.0, bias, &mut logits);
    }
    proposal.prepare(query, items, &mut scratch);
    proposal.draw(n, query, items, stream, &mut scratch, &mut draws);
    let weights: Vec<f32> =
        draws.items.iter().zip(&draws.correction).map(|(&item, c)| logits[item as usize] - c).collect();
    let top = simd::max(&weights);
    let (sum, squares) = weights.iter().fold((0.0, 0.0), |(sum, squares), &w| {
        let e = f64::from(w - top).exp();
        (sum + e, squares + e * e)
    });
    let top = simd::max(&logits);
    let log_sum = f64::from(top) + logits.iter().map(|&l| f64::from(l - top).exp()).sum::<f64>().ln();
    let (mut divergence, mut log_q) = (0.0, Vec::new());
    for (logits, first) in logits.chunks(ITEMS).zip((0..).step_by(ITEMS)) {
        let these: Vec<ItemId> = (first..).take(logits.len()).collect();
        log_q.resize(logits.len(), 0.0);
        proposal.log_q(&these, query, items, &mut scratch, &mut log_q);
        for (&q, &l) in log_q.iter().zip(logits) {
            divergence += f64::from(q).exp() * (f64::from(q) - (f64::from(l) - log_sum));
        }
    }
    (divergence.max(0.0), sum * sum / squares / n as f64)
}
