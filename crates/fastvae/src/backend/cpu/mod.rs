//! The CPU backend: the specification of a training step.
//!
//! A step runs in stages, each shared out among a team of threads. Over blocks of users: encode, and find where the
//! negatives fall. Over partitions of the items: choose them and sum them up. Over the blocks again: take the loss and go
//! back to the hidden layer, leaving gradient entries of touched rows. Over ranges of items: sum each touched row's
//! gradient and update it. Every sum has a fixed order, so parameters are bit-identical at any number of threads.

mod block;
mod dense_layers;
mod full_softmax;
mod grouping;
mod item_rows;
mod negatives;
mod order;
mod part_gradient;
mod rows;
mod team;
mod updates;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::backend::{Backend, Part, Phase, PhaseTimes, RunState, StepContext, StepReport};
use crate::config::{Config, ModelKind};
use crate::data::{Interactions, UserId};
use crate::error::Result;
use crate::loss::KlWeight;
use crate::math::Matrix;
use crate::network::{Parameters, Tables};
use crate::optim::{Moments, Update};
use crate::proposal::Proposal;

pub(crate) use grouping::{ENTRY_BYTES, SORTING_BYTES};

use block::{BLOCK, BlockRows, Shared, UserBlock};
use full_softmax::{FullSoftmax, TILE_SHIFT};
use grouping::{BucketLayout, Buckets};
use item_rows::PartBuffers;
use negatives::{ItemRows, StepNegatives};
use rows::{BiasColumn, RowTable};
use team::Team;

/// Batch-wide matrices; blocks of users own consecutive rows.
#[derive(Debug)]
struct BatchBuffers {
    /// Sums of encoder rows and their gradient, where a map leads from them to the hidden layer.
    factored: Option<(Matrix, Matrix)>,
    hidden: Matrix,
    hidden_gradient: Matrix,
    /// Mean and log-variance.
    head: Matrix,
    head_gradient: Matrix,
    queries: Matrix,
    query_gradient: Matrix,
}

/// Trains on this machine's cores: steps in a team of its own, refreshes in the thread pool that they are called from.
#[derive(Debug)]
pub struct CpuBackend {
    config: Config,
    train: Arc<Interactions>,
    kl_weight: KlWeight,
    encoder_layout: BucketLayout,
    item_layout: BucketLayout,
    /// Whether the item tables of the state are in the order of the proposal's partitions; else in that of the items.
    by_place: bool,
    blocks: Vec<UserBlock>,
    negatives: StepNegatives,
    buffers: BatchBuffers,
    part_buffers: Mutex<Vec<PartBuffers>>,
    team: Team,
    /// Of the tasks that are not a block's.
    times: PhaseTimes,
}

impl CpuBackend {
    /// What steps of a run of `config` on `train` need beside its state. The configuration is a valid one.
    pub fn new(config: &Config, train: Arc<Interactions>) -> Self {
        let n_items = train.n_items();
        let item_layout = match config.model {
            ModelKind::FastVae => BucketLayout::for_rows(n_items),
            ModelKind::MultVae => BucketLayout::with_shift(n_items, TILE_SHIFT),
        };
        let (batch, queries) = (config.batch, config.batch * config.latent_samples);
        Self {
            kl_weight: KlWeight::resolve(&config.kl, train.n_interactions(), n_items),
            encoder_layout: BucketLayout::for_rows(n_items),
            item_layout,
            by_place: false,
            blocks: (0..batch.div_ceil(BLOCK)).map(|_| UserBlock::new(config)).collect(),
            buffers: BatchBuffers {
                factored: (config.encoder_rank > 0).then(|| {
                    let sums = || Matrix::zeros(batch, config.encoder_rank);
                    (sums(), sums())
                }),
                hidden: Matrix::zeros(batch, config.hidden),
                hidden_gradient: Matrix::zeros(batch, config.hidden),
                head: Matrix::zeros(batch, 2 * config.latent),
                head_gradient: Matrix::zeros(batch, 2 * config.latent),
                queries: Matrix::zeros(queries, config.latent),
                query_gradient: Matrix::zeros(queries, config.latent),
            },
            negatives: StepNegatives::default(),
            part_buffers: Mutex::default(),
            team: Team::new(config.n_threads()),
            times: PhaseTimes::default(),
            config: config.clone(),
            train,
        }
    }

    /// Whether item tables in the order of the partitions make a step faster: where most rows are touched in every
    /// step, each partition is then one stretch of memory.
    fn prefers_places(&self, state: &RunState) -> bool {
        let draws = self.config.batch * self.config.latent_samples * self.config.negatives;
        state.proposal.as_ref().is_some_and(|proposal| {
            !proposal.reads_vectors() && proposal.partitions().is_reordered() && draws >= self.train.n_items()
        })
    }

    /// Puts the item tables into the order of the partitions, or of the items.
    fn order_items(&mut self, state: &mut RunState, by_place: bool) {
        if self.by_place == by_place {
            return;
        }
        let proposal = state.proposal.as_ref().expect("only a proposal has another order");
        let table = item_table(&mut state.parameters, &mut state.moments);
        order::permute(&mut self.team, table, proposal.partitions(), by_place);
        self.by_place = by_place;
    }

    /// Runs `work` on every block of users with its rows of the batch-wide matrices.
    fn for_each_block(
        &mut self,
        parameters: &Parameters,
        users: &[UserId],
        context: StepContext,
        work: impl Fn(&mut UserBlock, &Shared<'_>, &mut BlockRows<'_>) + Sync,
    ) {
        let shared = Shared {
            config: &self.config,
            train: &self.train,
            parameters,
            kl_weight: self.kl_weight,
            context,
            encoder_layout: self.encoder_layout,
            item_layout: self.item_layout,
        };
        let n_blocks = users.len().div_ceil(BLOCK);
        let BatchBuffers { factored, hidden, head, head_gradient, queries, query_gradient, .. } =
            &mut self.buffers;
        let encoded = factored.as_mut().map_or(hidden, |(sums, _)| sums);
        let encoded_rows = BLOCK * encoded.stride();
        let head_rows = BLOCK * head_gradient.stride();
        let query_rows = BLOCK * self.config.latent_samples * queries.stride();
        let mut tasks: Vec<_> = self.blocks[..n_blocks]
            .iter_mut()
            .zip(users.chunks(BLOCK))
            .zip(encoded.data_mut().chunks_mut(encoded_rows))
            .zip(head.data_mut().chunks_mut(head_rows))
            .zip(head_gradient.data_mut().chunks_mut(head_rows))
            .zip(queries.data_mut().chunks_mut(query_rows))
            .zip(query_gradient.data_mut().chunks_mut(query_rows))
            .enumerate()
            .map(|(b, ((((((block, users), encoded), head), head_gradient), queries), query_gradient))| {
                let first = b * BLOCK;
                (block, BlockRows { users, first, encoded, head, head_gradient, queries, query_gradient })
            })
            .collect();
        self.team.for_each_mut(&mut tasks, |_, (block, rows)| work(block, &shared, rows));
    }

    /// From what was encoded to mean and log-variance, for the first `n` users of the batch.
    fn dense_forward(&mut self, p: &Parameters, n: usize) {
        let mut lap = Instant::now();
        let BatchBuffers { factored, hidden, head, .. } = &mut self.buffers;
        if let (Some((sums, _)), Some(map)) = (factored, &p.encoder_map) {
            let (sums, activation) = (sums.view().rows_from(0, n), Some(self.config.activation));
            dense_layers::forward(&mut self.team, map, &p.hidden_bias, activation, sums, hidden);
        }
        dense_layers::forward(
            &mut self.team,
            &p.head,
            &p.head_bias,
            None,
            hidden.view().rows_from(0, n),
            head,
        );
        self.times.lap(Phase::Dense, &mut lap);
    }

    /// From the gradient of mean and log-variance to that of what was encoded.
    fn dense_backward(&mut self, p: &Parameters, n: usize) {
        let mut lap = Instant::now();
        let BatchBuffers { factored, hidden, hidden_gradient, head_gradient, .. } = &mut self.buffers;
        let head_gradient = head_gradient.view().rows_from(0, n);
        dense_layers::backward(
            &mut self.team,
            &p.head,
            Some((self.config.activation, hidden)),
            head_gradient,
            hidden_gradient,
        );
        if let (Some((_, gradient)), Some(map)) = (factored, &p.encoder_map) {
            dense_layers::backward(
                &mut self.team,
                map,
                None,
                hidden_gradient.view().rows_from(0, n),
                gradient,
            );
        }
        self.times.lap(Phase::Backward, &mut lap);
    }

    /// Draws, loss and gradients with the sampled softmax.
    fn sampled_stage(
        &mut self,
        p: &Parameters,
        proposal: &dyn Proposal,
        users: &[UserId],
        context: StepContext,
    ) {
        self.for_each_block(p, users, context, |block, shared, rows| block.encode(shared, rows));
        self.dense_forward(p, users.len());
        let rows = ItemRows { partitions: proposal.partitions(), by_place: self.by_place };
        self.for_each_block(p, users, context, |block, shared, group| {
            block.draw_latent(shared, group);
            block.spread(shared, proposal, rows, group);
        });
        let mut negatives = std::mem::take(&mut self.negatives);
        let blocks = used_blocks(&self.blocks, users);
        let queries = self.buffers.queries.view().rows_from(0, users.len() * self.config.latent_samples);
        let times = negatives.sum(&mut self.team, blocks, proposal, p.item_table(), rows, queries);
        self.times.add(&times);
        self.for_each_block(p, users, context, |block, shared, group| {
            block.loss(shared, proposal, rows, &negatives, group);
            block.head_gradient(shared, group);
        });
        self.negatives = negatives;
        self.dense_backward(p, users.len());
    }

    /// Loss and gradients with the full softmax; the item vectors are updated on the way.
    fn full_stage(
        &mut self,
        state: &mut RunState,
        users: &[UserId],
        context: StepContext,
        update: &Update,
    ) -> f64 {
        self.for_each_block(&state.parameters, users, context, |block, shared, rows| {
            block.encode(shared, rows);
            block.positives(shared, rows);
        });
        self.dense_forward(&state.parameters, users.len());
        self.for_each_block(&state.parameters, users, context, |block, shared, rows| {
            block.draw_latent(shared, rows);
        });
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
        let table = item_table(&mut state.parameters, &mut state.moments);
        let stride = self.buffers.query_gradient.stride();
        let loss =
            softmax.run(&mut self.team, table, &mut self.buffers.query_gradient.data_mut()[..n * stride]);
        self.for_each_block(&state.parameters, users, context, |block, shared, rows| {
            block.head_gradient(shared, rows);
        });
        self.dense_backward(&state.parameters, users.len());
        loss
    }
}

impl Backend for CpuBackend {
    fn refresh(&mut self, state: &mut RunState, epoch: usize) -> Result<()> {
        self.order_items(state, false);
        match &mut state.proposal {
            Some(proposal) => proposal.refresh(state.parameters.item_table(), self.config.seed, epoch as u32),
            None => Ok(()),
        }
    }

    fn step(
        &mut self,
        state: &mut RunState,
        batch: Range<usize>,
        context: StepContext,
    ) -> Result<StepReport> {
        assert!(batch.len() <= self.config.batch, "a batch holds at most {} users", self.config.batch);
        if self.prefers_places(state) {
            self.order_items(state, true);
        }
        let order = std::mem::take(&mut state.order);
        let users = &order[batch];
        let update = Update::at(&self.config, context.epoch, context.step);
        let mut report = StepReport::default();
        match &state.proposal {
            Some(proposal) => {
                self.sampled_stage(&state.parameters, proposal.as_ref(), users, context);
            }
            None => report.likelihood_loss = self.full_stage(state, users, context, &update),
        }
        self.update_stage(state, users, &update);
        for block in used_blocks(&self.blocks, users) {
            report += block.report;
        }
        state.order = order;
        Ok(report)
    }

    fn download(&mut self, state: &mut RunState, _: Part) -> Result<()> {
        self.order_items(state, false);
        Ok(())
    }

    fn restart(&mut self, config: &Config, train: Arc<Interactions>, _: &RunState) -> Result<()> {
        self.config = config.clone();
        self.kl_weight = KlWeight::resolve(&self.config.kl, train.n_interactions(), train.n_items());
        self.train = train;
        self.by_place = false;
        Ok(())
    }

    fn kl_weight(&self) -> KlWeight {
        self.kl_weight
    }

    /// With several threads, the dense layers count from their start to their end, waiting included.
    fn phase_times(&self) -> PhaseTimes {
        let mut sum = self.times;
        self.blocks.iter().for_each(|block| sum.add(&block.times));
        sum
    }

    fn name(&self) -> String {
        "cpu".into()
    }
}

/// The blocks that hold a batch of this size.
fn used_blocks<'b>(blocks: &'b [UserBlock], users: &[UserId]) -> &'b [UserBlock] {
    &blocks[..users.len().div_ceil(BLOCK)]
}

fn bias_column<'a>(bias: &'a mut Option<Matrix>, moments: &'a mut Option<Moments>) -> Option<BiasColumn<'a>> {
    bias.as_mut().zip(moments.as_mut()).map(|(values, moments)| {
        let n = values.cols();
        let (first, second) = (&mut moments.first, &mut moments.second);
        let [values, first, second] = [values, first, second].map(|row| &mut row.data_mut()[..n]);
        BiasColumn { values, first, second }
    })
}

fn item_table<'a>(parameters: &'a mut Parameters, moments: &'a mut Tables<Moments>) -> RowTable<'a> {
    let bias = bias_column(&mut parameters.item_bias, &mut moments.item_bias);
    RowTable { rows: &mut parameters.items, moments: &mut moments.items, bias }
}
