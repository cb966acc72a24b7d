//! The CPU backend: the specification of a training step.
//!
//! A step runs in two stages. First, in parallel over blocks of users: encode, draw negatives, take the loss,
//! and go back to the hidden layer, leaving gradient entries of touched rows. Then, in parallel over ranges of
//! items: sum each touched row's gradient and update it. Every sum has a fixed order, so parameters are
//! bit-identical at any number of threads.

mod block;
mod dense_layers;
mod full_softmax;
mod rows;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;

use crate::backend::{Backend, Phase, PhaseTimes, StepContext, StepReport};
use crate::config::{Config, ModelKind};
use crate::data::{Interactions, UserId};
use crate::error::Result;
use crate::loss::KlWeight;
use crate::math::Matrix;
use crate::model::Parameters;
use crate::optim::{Moments, Update};
use crate::proposal::{self, Proposal};

use block::{BLOCK, BlockRows, Shared, UserBlock};
use full_softmax::{FullSoftmax, TILE_SHIFT};
use rows::{BiasColumn, BucketLayout, Buckets, RowTable, update_rows};

/// The optimiser's moments of every table.
#[derive(Debug, Clone)]
pub struct MomentTables {
    /// Of the encoder rows.
    pub encoder: Moments,
    /// Of the hidden bias.
    pub hidden_bias: Moments,
    /// Of the dense layer.
    pub head: Moments,
    /// Of the dense layer's bias.
    pub head_bias: Moments,
    /// Of the item vectors.
    pub items: Moments,
    /// Of the item biases: first and second.
    pub item_bias: Option<(Vec<f32>, Vec<f32>)>,
}

impl MomentTables {
    fn new(parameters: &Parameters) -> Self {
        Self {
            encoder: Moments::like(&parameters.encoder),
            hidden_bias: Moments::like(&parameters.hidden_bias),
            head: Moments::like(&parameters.head),
            head_bias: Moments::like(&parameters.head_bias),
            items: Moments::like(&parameters.items),
            item_bias: parameters
                .item_bias
                .as_ref()
                .map(|bias| (vec![0.0; bias.len()], vec![0.0; bias.len()])),
        }
    }
}

/// Batch-wide matrices; blocks of users own consecutive rows.
#[derive(Debug)]
struct BatchBuffers {
    hidden: Matrix,
    hidden_gradient: Matrix,
    /// Mean and log-variance.
    head: Matrix,
    head_gradient: Matrix,
    queries: Matrix,
    query_gradient: Matrix,
}

/// Trains on this machine's cores, in the thread pool that its methods are called from.
#[derive(Debug)]
pub struct CpuBackend {
    config: Config,
    train: Arc<Interactions>,
    kl_weight: KlWeight,
    parameters: Parameters,
    moments: MomentTables,
    /// None for the full softmax, which draws nothing.
    proposal: Option<Box<dyn Proposal>>,
    encoder_layout: BucketLayout,
    item_layout: BucketLayout,
    blocks: Vec<UserBlock>,
    buffers: BatchBuffers,
    /// Of the tasks that are not a block's.
    times: PhaseTimes,
}

impl CpuBackend {
    /// A backend with random parameters for `train`.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if the configuration cannot work.
    pub fn new(config: &Config, train: Arc<Interactions>) -> Result<Self> {
        config.validate()?;
        let n_items = train.n_items();
        let parameters = Parameters::random(config, n_items);
        let moments = MomentTables::new(&parameters);
        let (proposal, item_layout) = match config.model {
            ModelKind::FastVae => {
                (Some(proposal::build(config, &train.item_counts())?), BucketLayout::for_rows(n_items))
            }
            ModelKind::MultVae => (None, BucketLayout::with_shift(n_items, TILE_SHIFT)),
        };
        let (batch, queries) = (config.batch, config.batch * config.latent_samples);
        Ok(Self {
            kl_weight: KlWeight::resolve(&config.kl, train.n_interactions(), n_items),
            parameters,
            moments,
            proposal,
            encoder_layout: BucketLayout::for_rows(n_items),
            item_layout,
            blocks: (0..batch.div_ceil(BLOCK)).map(|_| UserBlock::new(config)).collect(),
            buffers: BatchBuffers {
                hidden: Matrix::zeros(batch, config.hidden),
                hidden_gradient: Matrix::zeros(batch, config.hidden),
                head: Matrix::zeros(batch, 2 * config.latent),
                head_gradient: Matrix::zeros(batch, 2 * config.latent),
                queries: Matrix::zeros(queries, config.latent),
                query_gradient: Matrix::zeros(queries, config.latent),
            },
            times: PhaseTimes::default(),
            config: config.clone(),
            train,
        })
    }

    /// The proposal, where the model samples.
    pub fn proposal(&self) -> Option<&dyn Proposal> {
        self.proposal.as_deref()
    }

    /// The weight of the KL divergence in use.
    pub fn kl_weight(&self) -> KlWeight {
        self.kl_weight
    }

    /// Time of each phase since the start, summed over threads. With several threads, the dense layers and the
    /// updates count from their start to their end, waiting included.
    pub fn phase_times(&self) -> PhaseTimes {
        let mut sum = self.times;
        self.blocks.iter().for_each(|block| sum.add(&block.times));
        sum
    }

    /// The parameters, without the rest.
    pub fn into_parameters(self) -> Parameters {
        self.parameters
    }

    /// The optimiser's moments.
    pub fn moments(&self) -> &MomentTables {
        &self.moments
    }

    /// Parameters, moments and proposal, to restore them from a checkpoint.
    pub fn state_mut(
        &mut self,
    ) -> (&mut Parameters, &mut MomentTables, Option<&mut (dyn Proposal + 'static)>) {
        (&mut self.parameters, &mut self.moments, self.proposal.as_deref_mut())
    }

    /// Runs `work` on every block of users with its rows of the batch-wide matrices.
    fn for_each_block(
        &mut self,
        users: &[UserId],
        context: StepContext,
        work: impl Fn(&mut UserBlock, &Shared<'_>, &mut BlockRows<'_>) + Sync,
    ) {
        let shared = Shared {
            config: &self.config,
            train: &self.train,
            parameters: &self.parameters,
            kl_weight: self.kl_weight,
            context,
            encoder_layout: self.encoder_layout,
            item_layout: self.item_layout,
        };
        let BatchBuffers { hidden, head, head_gradient, queries, query_gradient, .. } = &mut self.buffers;
        let hidden_rows = BLOCK * hidden.stride();
        let head_rows = BLOCK * head_gradient.stride();
        let query_rows = BLOCK * self.config.latent_samples * queries.stride();
        self.blocks
            .par_iter_mut()
            .zip(users.par_chunks(BLOCK))
            .zip(hidden.data_mut().par_chunks_mut(hidden_rows))
            .zip(head.data_mut().par_chunks_mut(head_rows))
            .zip(head_gradient.data_mut().par_chunks_mut(head_rows))
            .zip(queries.data_mut().par_chunks_mut(query_rows))
            .zip(query_gradient.data_mut().par_chunks_mut(query_rows))
            .enumerate()
            .for_each(
                |(b, ((((((block, users), hidden), head), head_gradient), queries), query_gradient))| {
                    let first = b * BLOCK;
                    let mut rows =
                        BlockRows { users, first, hidden, head, head_gradient, queries, query_gradient };
                    work(block, &shared, &mut rows);
                },
            );
    }

    /// From the hidden layer to mean and log-variance, for the first `n` users of the batch.
    fn dense_forward(&mut self, n: usize) {
        let mut lap = Instant::now();
        let BatchBuffers { hidden, head, .. } = &mut self.buffers;
        dense_layers::forward(&self.parameters, hidden.view().rows_from(0, n), head);
        self.times.lap(Phase::Dense, &mut lap);
    }

    /// From the gradient of mean and log-variance to that of the hidden layer.
    fn dense_backward(&mut self, n: usize) {
        let mut lap = Instant::now();
        let BatchBuffers { hidden, hidden_gradient, head_gradient, .. } = &mut self.buffers;
        let head_gradient = head_gradient.view().rows_from(0, n);
        dense_layers::backward(&self.parameters, hidden, head_gradient, hidden_gradient);
        self.times.lap(Phase::Backward, &mut lap);
    }

    /// Draws, loss and gradients with the sampled softmax.
    fn sampled_stage(&mut self, users: &[UserId], context: StepContext) {
        self.for_each_block(users, context, |block, shared, rows| block.encode(shared, rows));
        self.dense_forward(users.len());
        let proposal = self.proposal.take().expect("a sampling model has a proposal");
        self.for_each_block(users, context, |block, shared, rows| {
            block.draw_latent(shared, rows);
            block.sample(shared, proposal.as_ref(), rows);
            block.head_gradient(shared, rows);
        });
        self.proposal = Some(proposal);
        self.dense_backward(users.len());
    }

    /// Loss and gradients with the full softmax; the item vectors are updated on the way.
    fn full_stage(&mut self, users: &[UserId], context: StepContext, update: &Update) -> f64 {
        self.for_each_block(users, context, |block, shared, rows| {
            block.encode(shared, rows);
            block.positives(shared, rows);
        });
        self.dense_forward(users.len());
        self.for_each_block(users, context, |block, shared, rows| block.draw_latent(shared, rows));
        let samples = self.config.latent_samples;
        let mass: Vec<f32> = users
            .iter()
            .flat_map(|&user| {
                let row = self.train.row(user as usize);
                let sum = row.weights.map_or(row.items.len() as f32, |w| w.iter().sum());
                std::iter::repeat_n(sum / samples as f32, samples)
            })
            .collect();
        let positives: Vec<&Buckets> =
            used_blocks(&self.blocks, users).iter().map(|block| &block.targets).collect();
        let n = mass.len();
        let softmax = FullSoftmax {
            queries: self.buffers.queries.view().rows_from(0, n),
            mass: &mass,
            positives: &positives,
            layout: self.item_layout,
            update,
        };
        let table = item_table(&mut self.parameters, &mut self.moments);
        let stride = self.buffers.query_gradient.stride();
        let loss = softmax.run(table, &mut self.buffers.query_gradient.data_mut()[..n * stride]);
        self.for_each_block(users, context, |block, shared, rows| block.head_gradient(shared, rows));
        self.dense_backward(users.len());
        loss
    }

    /// Updates the encoder's rows and the dense layers, and for a sampling model the item vectors.
    fn update_stage(&mut self, users: &[UserId], update: &Update) {
        let blocks = used_blocks(&self.blocks, users);
        let inputs: Vec<&Buckets> = blocks.iter().map(|block| &block.inputs).collect();
        let targets: Vec<&Buckets> = blocks.iter().map(|block| &block.targets).collect();
        let samples = self.proposal.is_some();
        let n = users.len();
        let hidden = self.buffers.hidden.view().rows_from(0, n);
        let hidden_gradient = self.buffers.hidden_gradient.view().rows_from(0, n);
        let head_gradient = self.buffers.head_gradient.view().rows_from(0, n);
        let queries = self.buffers.queries.view();
        let Parameters { encoder, hidden_bias, head, head_bias, items, item_bias, .. } = &mut self.parameters;
        let moments = &mut self.moments;
        let (item_layout, encoder_layout) = (self.item_layout, self.encoder_layout);
        let timed = |phase: Phase, work: &mut dyn FnMut()| {
            let (mut times, mut lap) = (PhaseTimes::default(), Instant::now());
            work();
            times.lap(phase, &mut lap);
            times
        };
        let mut update_items = || {
            if samples {
                let bias = bias_column(item_bias, &mut moments.item_bias);
                let table = RowTable { rows: items, moments: &mut moments.items, bias };
                update_rows(table, &targets, item_layout, queries, update);
            }
        };
        let mut update_encoder = || {
            let table = RowTable { rows: encoder, moments: &mut moments.encoder, bias: None };
            update_rows(table, &inputs, encoder_layout, hidden_gradient, update);
        };
        let mut update_dense = || {
            dense_layers::update_head(head, &mut moments.head, hidden, head_gradient, update);
            dense_layers::update_bias(hidden_bias, &mut moments.hidden_bias, hidden_gradient, update);
            dense_layers::update_bias(head_bias, &mut moments.head_bias, head_gradient, update);
        };
        let (items, (encoder, dense)) = rayon::join(
            || timed(Phase::Items, &mut update_items),
            || {
                rayon::join(
                    || timed(Phase::Encoder, &mut update_encoder),
                    || timed(Phase::Head, &mut update_dense),
                )
            },
        );
        [items, encoder, dense].iter().for_each(|times| self.times.add(times));
    }
}

impl Backend for CpuBackend {
    fn refresh(&mut self, epoch: usize) -> Result<()> {
        match &mut self.proposal {
            Some(proposal) => proposal.refresh(self.parameters.item_table(), self.config.seed, epoch as u32),
            None => Ok(()),
        }
    }

    fn step(&mut self, users: &[UserId], context: StepContext) -> Result<StepReport> {
        assert!(users.len() <= self.config.batch, "a batch holds at most {} users", self.config.batch);
        let update = Update::at(&self.config, context.epoch, context.step);
        let mut report = StepReport::default();
        match self.config.model {
            ModelKind::FastVae => self.sampled_stage(users, context),
            ModelKind::MultVae => report.likelihood_loss = self.full_stage(users, context, &update),
        }
        self.update_stage(users, &update);
        for block in used_blocks(&self.blocks, users) {
            report += block.report;
        }
        Ok(report)
    }

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }
}

/// The blocks that hold a batch of this size.
fn used_blocks<'b>(blocks: &'b [UserBlock], users: &[UserId]) -> &'b [UserBlock] {
    &blocks[..users.len().div_ceil(BLOCK)]
}

fn bias_column<'a>(
    bias: &'a mut Option<Vec<f32>>,
    moments: &'a mut Option<(Vec<f32>, Vec<f32>)>,
) -> Option<BiasColumn<'a>> {
    bias.as_mut().zip(moments.as_mut()).map(|(values, (first, second))| BiasColumn { values, first, second })
}

fn item_table<'a>(parameters: &'a mut Parameters, moments: &'a mut MomentTables) -> RowTable<'a> {
    let bias = bias_column(&mut parameters.item_bias, &mut moments.item_bias);
    RowTable { rows: &mut parameters.items, moments: &mut moments.items, bias }
}
