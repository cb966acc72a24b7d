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

use std::sync::{Arc, Mutex};
use std::time::Instant;

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
use grouping::{BucketLayout, Buckets};
use item_rows::PartBuffers;
use negatives::{ItemRows, StepNegatives};
use rows::{BiasColumn, RowTable};
use team::Team;

/// The optimiser's moments of every table.
#[derive(Debug, Clone)]
pub struct MomentTables {
    /// Of the encoder rows.
    pub encoder: Moments,
    /// Of the factored encoder's map.
    pub encoder_map: Option<Moments>,
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
    fn new(parameters: &Parameters, config: &Config) -> Self {
        Self {
            encoder: Moments::of(&parameters.encoder, config.moments),
            encoder_map: parameters.encoder_map.as_ref().map(Moments::like),
            hidden_bias: Moments::like(&parameters.hidden_bias),
            head: Moments::like(&parameters.head),
            head_bias: Moments::like(&parameters.head_bias),
            items: Moments::of(&parameters.items, config.item_moments()),
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
    parameters: Parameters,
    moments: MomentTables,
    /// None for the full softmax, which draws nothing.
    proposal: Option<Box<dyn Proposal>>,
    encoder_layout: BucketLayout,
    item_layout: BucketLayout,
    /// Whether the item tables are in the order of the proposal's partitions; else in that of the items.
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
    /// A backend with random parameters for `train`.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if the configuration cannot work.
    pub fn new(config: &Config, train: Arc<Interactions>) -> Result<Self> {
        config.validate()?;
        let n_items = train.n_items();
        let parameters = Parameters::random(config, n_items);
        let moments = MomentTables::new(&parameters, config);
        let (proposal, item_layout) = match config.model {
            ModelKind::FastVae => {
                (Some(proposal::build(config, &train.item_counts())?), BucketLayout::for_rows(n_items))
            }
            ModelKind::MultVae => (None, BucketLayout::with_shift(n_items, TILE_SHIFT)),
        };
        let (batch, queries) = (config.batch, config.batch * config.latent_samples);
        Ok(Self {
            kl_weight: KlWeight::resolve(&config.kl, train.n_interactions(), n_items),
            moments,
            proposal,
            encoder_layout: BucketLayout::for_rows(n_items),
            item_layout,
            by_place: false,
            blocks: (0..batch.div_ceil(BLOCK)).map(|_| UserBlock::new(config)).collect(),
            buffers: BatchBuffers {
                factored: parameters.encoder_map.is_some().then(|| {
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
            parameters,
            negatives: StepNegatives::default(),
            part_buffers: Mutex::default(),
            team: Team::new(1),
            times: PhaseTimes::default(),
            config: config.clone(),
            train,
        })
    }

    /// The proposal, where the model samples.
    pub fn proposal(&self) -> Option<&dyn Proposal> {
        self.proposal.as_deref()
    }

    /// The parameters as they were last in the order of the items.
    #[cfg(feature = "cuda")]
    pub(crate) fn latest_parameters(&self) -> &Parameters {
        debug_assert!(!self.by_place, "a mirror never steps");
        &self.parameters
    }

    /// The parameters as they are now, brought into the order of the items from wherever the steps keep them.
    pub fn latest(&mut self) -> &Parameters {
        self.order_items(false);
        &self.parameters
    }

    /// Takes the parameters out; nothing can be trained after that.
    pub(crate) fn take_parameters(&mut self) -> Parameters {
        self.order_items(false);
        let empty = Parameters::random(&Config { hidden: 1, latent: 1, ..self.config.clone() }, 0);
        std::mem::replace(&mut self.parameters, empty)
    }

    /// Parameters, moments and proposal as they are now.
    pub fn state(&mut self) -> (&Parameters, &MomentTables, Option<&dyn Proposal>) {
        self.order_items(false);
        (&self.parameters, &self.moments, self.proposal.as_deref())
    }

    /// Parameters, moments and proposal, to restore them from a checkpoint.
    pub fn state_mut(
        &mut self,
    ) -> (&mut Parameters, &mut MomentTables, Option<&mut (dyn Proposal + 'static)>) {
        self.order_items(false);
        (&mut self.parameters, &mut self.moments, self.proposal.as_deref_mut())
    }

    /// Whether item tables in the order of the partitions make a step faster: where most rows are touched in every
    /// step, each partition is then one stretch of memory.
    fn prefers_places(&self) -> bool {
        let draws = self.config.batch * self.config.latent_samples * self.config.negatives;
        self.proposal.as_ref().is_some_and(|proposal| {
            !proposal.reads_vectors() && proposal.partitions().is_reordered() && draws >= self.train.n_items()
        })
    }

    /// Puts the item tables into the order of the partitions, or of the items.
    fn order_items(&mut self, by_place: bool) {
        if self.by_place == by_place {
            return;
        }
        let proposal = self.proposal.as_ref().expect("only a proposal has another order");
        let table = item_table(&mut self.parameters, &mut self.moments);
        order::permute(&mut self.team, table, proposal.partitions(), by_place);
        self.by_place = by_place;
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
    fn dense_forward(&mut self, n: usize) {
        let mut lap = Instant::now();
        let BatchBuffers { factored, hidden, head, .. } = &mut self.buffers;
        let p = &self.parameters;
        if let (Some((sums, _)), Some(map)) = (factored, &p.encoder_map) {
            let sums = sums.view().rows_from(0, n);
            dense_layers::forward(&mut self.team, map, &p.hidden_bias, Some(p.activation), sums, hidden);
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
    fn dense_backward(&mut self, n: usize) {
        let mut lap = Instant::now();
        let BatchBuffers { factored, hidden, hidden_gradient, head_gradient, .. } = &mut self.buffers;
        let p = &self.parameters;
        let head_gradient = head_gradient.view().rows_from(0, n);
        dense_layers::backward(
            &mut self.team,
            &p.head,
            Some((p.activation, hidden)),
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
    fn sampled_stage(&mut self, users: &[UserId], context: StepContext) {
        self.for_each_block(users, context, |block, shared, rows| block.encode(shared, rows));
        self.dense_forward(users.len());
        let proposal = self.proposal.take().expect("a sampling model has a proposal");
        let rows = ItemRows { partitions: proposal.partitions(), by_place: self.by_place };
        self.for_each_block(users, context, |block, shared, group| {
            block.draw_latent(shared, group);
            block.spread(shared, proposal.as_ref(), rows, group);
        });
        let mut negatives = std::mem::take(&mut self.negatives);
        let blocks = used_blocks(&self.blocks, users);
        let queries = self.buffers.queries.view().rows_from(0, users.len() * self.config.latent_samples);
        let items = self.parameters.item_table();
        let times = negatives.sum(&mut self.team, blocks, proposal.as_ref(), items, rows, queries);
        self.times.add(&times);
        self.for_each_block(users, context, |block, shared, group| {
            block.loss(shared, proposal.as_ref(), rows, &negatives, group);
            block.head_gradient(shared, group);
        });
        self.negatives = negatives;
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
        let loss =
            softmax.run(&mut self.team, table, &mut self.buffers.query_gradient.data_mut()[..n * stride]);
        self.for_each_block(users, context, |block, shared, rows| block.head_gradient(shared, rows));
        self.dense_backward(users.len());
        loss
    }
}

impl Backend for CpuBackend {
    fn refresh(&mut self, epoch: usize) -> Result<()> {
        self.order_items(false);
        match &mut self.proposal {
            Some(proposal) => proposal.refresh(self.parameters.item_table(), self.config.seed, epoch as u32),
            None => Ok(()),
        }
    }

    fn step(&mut self, users: &[UserId], context: StepContext) -> Result<StepReport> {
        assert!(users.len() <= self.config.batch, "a batch holds at most {} users", self.config.batch);
        // Not before the first step: a mirror of a device makes none.
        if self.team.threads() == 1 && self.config.n_threads() > 1 {
            self.team = Team::new(self.config.n_threads());
        }
        if self.prefers_places() {
            self.order_items(true);
        }
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

    fn host(&mut self) -> Result<&mut CpuBackend> {
        Ok(self)
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
