//! The state of a run on the device: laid out, sent there, and brought back.

use bytemuck::{Pod, Zeroable};

use super::device::{Gpu, Memory};
use super::state::{Clock, Pointer, Run, Table, Touched};
use crate::backend::{Part, RunState};
use crate::config::{
    Activation, Config, Estimator, ModelKind, MomentKind, Optimizer, ProposalKind, Quantizer, WeightDecayMode,
};
use crate::data::{Interactions, Row};
use crate::error::Result;
use crate::index::IndexSettings;
use crate::loss::KlWeight;
use crate::math::Matrix;
use crate::math::matrix::LANES;
use crate::network::{Shape, Tables};
use crate::optim::Moments;
use crate::proposal::Partitions;

/// Cells up to which one random word chooses among the items of each: as on the CPU.
const ONE_WORD: usize = 1 << 16;

/// Eight bytes of an alias table.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(super) struct Pair([u32; 2]);

/// Where a learned table lies on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub table: Table,
    /// The step that touched each of its rows last; 0 for tables of which every row is touched in every step.
    stamp: Pointer,
}

/// Everything a run needs on the device, but the values of its state.
pub(super) fn lay_out(
    gpu: &Gpu,
    memory: &mut Memory,
    config: &Config,
    train: &Interactions,
    kl_weight: KlWeight,
    state: &RunState,
) -> Result<(Run, Tables<Place>)> {
    let stride = |n: usize| n.next_multiple_of(LANES);
    let n_items = train.n_items();
    let (batch, queries) = (config.batch, config.batch * config.latent_samples);
    let (hidden, latent, head) = (stride(config.hidden), stride(config.latent), stride(2 * config.latent));
    let offsets: Vec<u64> = train.offsets().iter().map(|&offset| offset as u64).collect();
    let longest = longest_batch(&offsets, batch);
    let sampled = if config.model == ModelKind::FastVae { queries * config.negatives } else { 0 };
    let (kl, per_interaction) = match kl_weight {
        KlWeight::Constant(beta) => (beta, 0),
        KlWeight::PerInteraction(gamma) => (gamma, 1),
    };
    let coupled = config.weight_decay_mode == WeightDecayMode::Coupled;
    let mut run = Run {
        offsets: memory.copy(gpu, &offsets)?,
        positives: memory.copy(gpu, train.items())?,
        weights: train.weights().map_or(Ok(0), |weights| memory.copy(gpu, weights))?,
        input_scale: memory.copy(gpu, &input_scales(train))?,
        order: memory.zeros::<u32>(gpu, train.n_users())?,
        hidden: memory.zeros::<f32>(gpu, batch * hidden)?,
        d_hidden: memory.zeros::<f32>(gpu, batch * hidden)?,
        latent: memory.zeros::<f32>(gpu, batch * head)?,
        d_latent: memory.zeros::<f32>(gpu, batch * head)?,
        noise: memory.zeros::<f32>(gpu, queries * latent)?,
        queries: memory.zeros::<f32>(gpu, queries * latent)?,
        d_queries: memory.zeros::<f32>(gpu, queries * latent)?,
        drawn: memory.zeros::<u32>(gpu, sampled)?,
        logits: memory.zeros::<f32>(gpu, sampled)?,
        positive_gradient: memory.zeros::<f32>(gpu, train.n_interactions() * config.latent_samples)?,
        log_sum: memory.zeros::<f32>(gpu, queries)?,
        pull: memory.zeros::<f32>(gpu, queries)?,
        losses: memory.zeros::<f64>(gpu, 3 * batch + queries)?,
        touched_items: touched(gpu, memory, n_items, sampled + longest * config.latent_samples, latent)?,
        touched_encoder: touched(gpu, memory, n_items, longest, hidden)?,
        clock: memory.zeros::<u8>(gpu, size_of::<Clock>())?,
        seed: config.seed,
        n_interactions: train.n_interactions() as u64,
        anneal_steps: config.kl.anneal_steps,
        n_items: n_items as u32,
        batch: batch as u32,
        samples: config.latent_samples as u32,
        negatives: config.negatives as u32,
        hidden_width: config.hidden as u32,
        hidden_stride: hidden as u32,
        latent_width: config.latent as u32,
        latent_stride: latent as u32,
        head_stride: head as u32,
        dropout_threshold: (f64::from(config.dropout) * 2f64.powi(32)) as u32,
        dropout_scale: 1.0 / (1.0 - config.dropout),
        tanh: u32::from(config.activation == Activation::Tanh),
        stratified: u32::from(config.estimator == Estimator::Stratified),
        dense_adam: u32::from(config.optimizer == Optimizer::Adam),
        compact: u32::from(config.moments == MomentKind::Compact),
        kl_weight: kl,
        kl_per_interaction: per_interaction,
        coupled_decay: if coupled { config.weight_decay } else { 0.0 },
        ..Run::default()
    };
    if config.model == ModelKind::FastVae {
        lay_out_proposal(gpu, memory, config, train, &mut run)?;
    }
    let both = state.parameters.as_ref().zip(state.moments.as_ref());
    let tables = both.try_map(|_, (values, moments)| table(gpu, memory, values, moments))?;
    run.take(tables);
    let mut places = tables.map(|_, table| Place { table, stamp: 0 });
    places.encoder.stamp = run.touched_encoder.stamp;
    places.items.stamp = run.touched_items.stamp;
    Ok((run, places))
}

fn lay_out_proposal(
    gpu: &Gpu,
    memory: &mut Memory,
    config: &Config,
    train: &Interactions,
    run: &mut Run,
) -> Result<()> {
    let n_items = train.n_items();
    let by_popularity =
        || train.item_counts().iter().map(|&n| config.popularity.weight(n).ln()).collect::<Vec<f32>>();
    match config.proposal {
        ProposalKind::Uniform => {
            let parts = Partitions::ranges(n_items, Partitions::wanted(config, n_items));
            let widths = (0..parts.len()).map(|p| parts.range(p).len() as f32).collect();
            run.log_probability = -(n_items as f32).ln();
            lay_out_parts(gpu, memory, &parts, widths, run)?;
        }
        ProposalKind::Popularity => {
            let log_weights = by_popularity();
            let parts = Partitions::ranges(n_items, Partitions::wanted(config, n_items));
            let masses: Vec<f64> = (0..parts.len())
                .map(|p| {
                    let range = parts.range(p);
                    let weights = &log_weights[range.start as usize..range.end as usize];
                    weights.iter().map(|&weight| f64::from(weight).exp()).sum()
                })
                .collect();
            let sum: f64 = masses.iter().sum();
            let shares = masses.iter().map(|mass| (mass / sum) as f32).collect();
            run.log_probability = -(sum.ln() as f32);
            lay_out_parts(gpu, memory, &parts, shares, run)?;
            run.one_word = u32::from((0..parts.len()).all(|p| one_word(parts.range(p).len())));
            run.item_log_weights = memory.copy(gpu, &log_weights)?;
            run.log_weights = run.item_log_weights;
            run.mass = memory.zeros::<f32>(gpu, run.n_slots as usize)?;
            run.log_mass = memory.zeros::<f32>(gpu, run.n_slots as usize)?;
            run.alias = memory.zeros::<Pair>(gpu, n_items)?;
        }
        ProposalKind::MidxUniform | ProposalKind::MidxPopularity | ProposalKind::MidxExact => {
            let settings = IndexSettings::from(config);
            let score_stride = config.codewords.next_multiple_of(LANES);
            for book in 0..2 {
                let columns = settings.columns(book, config.latent);
                run.columns_start[book] = columns.start as u32;
                run.columns_end[book] = columns.end as u32;
                run.codebooks[book] = memory.zeros::<f32>(gpu, columns.len() * score_stride)?;
            }
            let n_slots = config.codewords * score_stride;
            run.n_codewords = config.codewords as u32;
            run.score_stride = score_stride as u32;
            run.n_slots = n_slots as u32;
            run.one_word = 1;
            run.codes = memory.zeros::<u8>(gpu, 2 * n_items)?;
            run.list = memory.zeros::<u32>(gpu, n_items)?;
            run.mass = memory.zeros::<f32>(gpu, n_slots)?;
            run.log_mass = memory.zeros::<f32>(gpu, n_slots)?;
            run.spans = memory.zeros::<Pair>(gpu, n_slots)?;
            if config.proposal == ProposalKind::MidxPopularity {
                let mut log_weights = by_popularity();
                let largest = log_weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                log_weights.iter_mut().for_each(|weight| *weight -= largest);
                run.item_log_weights = memory.copy(gpu, &log_weights)?;
                run.log_weights = memory.zeros::<f32>(gpu, n_items)?;
                run.alias = memory.zeros::<Pair>(gpu, n_items)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The parts of the catalogue that draws come from by fixed shares.
fn lay_out_parts(
    gpu: &Gpu,
    memory: &mut Memory,
    parts: &Partitions,
    mut shares: Vec<f32>,
    run: &mut Run,
) -> Result<()> {
    let n_slots = parts.len().next_multiple_of(LANES);
    let mut spans: Vec<Pair> =
        (0..parts.len()).map(|p| Pair([parts.range(p).start, parts.range(p).len() as u32])).collect();
    shares.resize(n_slots, 0.0);
    spans.resize(n_slots, Pair([0; 2]));
    run.n_slots = n_slots as u32;
    run.shares = memory.copy(gpu, &shares)?;
    run.spans = memory.copy(gpu, &spans)?;
    Ok(())
}

/// Whether one random word makes a draw within a cell of this size.
pub(super) fn one_word(largest_cell: usize) -> bool {
    largest_cell <= ONE_WORD
}

/// The most interactions that `batch` users can have together.
fn longest_batch(offsets: &[u64], batch: usize) -> usize {
    let mut lengths: Vec<u64> = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    lengths.iter().take(batch).sum::<u64>() as usize
}

/// One over the norm of each user's weights.
pub(super) fn input_scales(train: &Interactions) -> Vec<f32> {
    let norm = |row: Row<'_>| match row.weights {
        None => (row.items.len().max(1) as f64).sqrt(),
        Some(weights) => weights.iter().map(|&w| f64::from(w) * f64::from(w)).sum::<f64>().sqrt().max(1e-12),
    };
    (0..train.n_users()).map(|user| (1.0 / norm(train.row(user))) as f32).collect()
}

/// Zeros for a table and its moments, as large as these.
fn table(gpu: &Gpu, memory: &mut Memory, like: &Matrix, moments: &Moments) -> Result<Table> {
    let mut zeros = |n: usize| memory.zeros::<f32>(gpu, n);
    let second = if moments.is_compact() { moments.rows.len() } else { moments.second.data().len() };
    Ok(Table {
        values: zeros(like.data().len())?,
        first: zeros(moments.first.data().len())?,
        second: zeros(second)?,
    })
}

fn touched(gpu: &Gpu, memory: &mut Memory, n_rows: usize, most: usize, stride: usize) -> Result<Touched> {
    let slots = most.min(n_rows).max(1);
    Ok(Touched {
        stamp: memory.zeros::<u32>(gpu, n_rows)?,
        slot: memory.zeros::<u32>(gpu, n_rows)?,
        before: memory.zeros::<u32>(gpu, slots)?,
        rows: memory.zeros::<u32>(gpu, slots)?,
        gradient: memory.zeros::<i64>(gpu, slots * stride)?,
        count: memory.zeros::<u32>(gpu, 1)?,
    })
}

/// Sends parameters and moments to the device.
pub(super) fn send(gpu: &Gpu, places: Tables<Place>, state: &RunState) -> Result<()> {
    let both = state.parameters.as_ref().zip(state.moments.as_ref());
    for (_, (Place { table, stamp }, (values, moments))) in places.zip(both) {
        gpu.write(table.values, values.data())?;
        gpu.write(table.first, moments.first.data())?;
        if moments.is_compact() {
            gpu.write(table.second, &moments.rows.iter().map(|row| row.second).collect::<Vec<_>>())?;
        } else {
            gpu.write(table.second, moments.second.data())?;
        }
        if stamp != 0 {
            gpu.write(stamp, &moments.rows.iter().map(|row| row.touched).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

/// Brings the parameters back, or everything.
pub(super) fn fetch(gpu: &Gpu, places: Tables<Place>, state: &mut RunState, part: Part) -> Result<()> {
    let both = state.parameters.as_mut().zip(state.moments.as_mut());
    for (_, (Place { table, stamp }, (values, moments))) in places.zip(both) {
        gpu.read(table.values, values.data_mut())?;
        if part == Part::Parameters {
            continue;
        }
        gpu.read(table.first, moments.first.data_mut())?;
        if moments.is_compact() {
            let mut seconds = vec![0.0; moments.rows.len()];
            gpu.read(table.second, &mut seconds)?;
            moments.rows.iter_mut().zip(seconds).for_each(|(row, second)| row.second = second);
        } else {
            gpu.read(table.second, moments.second.data_mut())?;
        }
        if stamp != 0 {
            let mut stamps = vec![0; moments.rows.len()];
            gpu.read(stamp, &mut stamps)?;
            moments.rows.iter_mut().zip(stamps).for_each(|(row, stamp)| row.touched = stamp);
        }
    }
    Ok(())
}

/// Whether the device backend can do what a configuration asks for; else what it cannot.
pub(super) fn unsupported(config: &Config) -> Option<(&'static str, String)> {
    let grid = 64;
    if config.latent > 512 {
        return Some(("latent", format!("is {}, and the GPU takes up to 512", config.latent)));
    }
    if config.encoder_rank > 0 {
        return Some(("encoder_rank", format!("is {}, which only the CPU trains", config.encoder_rank)));
    }
    let other = |(name, _): &(&'static str, Shape)| !Run::TABLES.contains(name);
    if let Some((name, _)) = Tables::<Shape>::of(config, 1).into_iter().find(other) {
        return Some((name, "is a table that only the CPU trains".into()));
    }
    if config.clip.is_some() {
        return Some(("clip", "is set, which only the CPU does".into()));
    }
    if config.model == ModelKind::FastVae {
        match config.proposal {
            ProposalKind::Kernel | ProposalKind::Dns => {
                return Some(("proposal", "is one that only the CPU draws from".into()));
            }
            ProposalKind::MidxUniform | ProposalKind::MidxPopularity | ProposalKind::MidxExact
                if config.codebooks != 2 || config.codewords > grid =>
            {
                let problem = format!("the GPU takes two codebooks of up to {grid} codewords");
                return Some(("codewords", problem));
            }
            _ => {}
        }
    }
    None
}

/// Whether the second codebook codes what the first leaves over.
pub(super) fn is_residual(config: &Config, book: usize) -> u32 {
    u32::from(config.quantizer == Quantizer::Residual && book > 0)
}

/// The address `n` values of type `T` further on.
pub(super) fn after<T>(pointer: Pointer, n: usize) -> Pointer {
    pointer + (n * size_of::<T>()) as u64
}
