//! What a step does for a block of users: encode, draw, loss, and the gradients up to the hidden layer.

use std::time::Instant;

use crate::backend::cpu::rows::{BucketLayout, Buckets};
use crate::backend::{Phase, PhaseTimes, StepContext, StepReport};
use crate::config::{Config, Estimator, ProposalKind};
use crate::data::{Interactions, ItemId, UserId};
use crate::loss::{KlWeight, Positives, SampledSoftmax, kl};
use crate::math::{Matrix, Purpose, Stream, simd};
use crate::model::{Parameters, bag, input_weights};
use crate::proposal::{Draws, Proposal, Scratch};

/// Users per block: the unit of parallel work, large enough for the dense products.
pub(super) const BLOCK: usize = 32;

/// Log-variances are cut here: their exponentials stay finite.
const MAX_LOG_VARIANCE: f32 = 60.0;

/// What every block reads.
pub(super) struct Shared<'a> {
    pub config: &'a Config,
    pub train: &'a Interactions,
    pub parameters: &'a Parameters,
    pub kl_weight: KlWeight,
    pub context: StepContext,
    pub encoder_layout: BucketLayout,
    pub item_layout: BucketLayout,
}

impl Shared<'_> {
    /// The linear rise of the KL weight over the first steps.
    fn anneal(&self) -> f32 {
        match self.config.kl.anneal_steps {
            0 => 1.0,
            steps => (self.context.step as f32 / steps as f32).min(1.0),
        }
    }
}

/// A block's rows of the batch-wide matrices: `hidden` wide, twice `latent` wide, or `latent` wide with
/// `latent_samples` rows per user.
pub(super) struct BlockRows<'a> {
    pub users: &'a [UserId],
    /// Position of the first user in the batch.
    pub first: usize,
    pub hidden: &'a mut [f32],
    pub head: &'a mut [f32],
    pub head_gradient: &'a mut [f32],
    pub queries: &'a mut [f32],
    pub query_gradient: &'a mut [f32],
}

/// The buffers of one block, reused from step to step.
#[derive(Debug)]
pub(super) struct UserBlock {
    /// Gradient entries of the encoder's rows; sources are rows of the hidden gradient.
    pub inputs: Buckets,
    /// Gradient entries of the item vectors; sources are queries.
    pub targets: Buckets,
    pub report: StepReport,
    pub times: PhaseTimes,
    noise: Matrix,
    /// Standard deviations of one user's latent distribution.
    deviation: Vec<f32>,
    kept_items: Vec<ItemId>,
    kept_weights: Vec<f32>,
    input_weights: Vec<f32>,
    words: Vec<u32>,
    draws: Draws,
    scratch: Scratch,
    softmax: SampledSoftmax,
    correction: Vec<f32>,
    marks: ItemMarks,
}

impl UserBlock {
    pub fn new(config: &Config) -> Self {
        Self {
            inputs: Buckets::default(),
            targets: Buckets::default(),
            report: StepReport::default(),
            times: PhaseTimes::default(),
            noise: Matrix::zeros(BLOCK * config.latent_samples, config.latent),
            deviation: Vec::new(),
            kept_items: Vec::new(),
            kept_weights: Vec::new(),
            input_weights: Vec::new(),
            words: Vec::new(),
            draws: Draws::default(),
            scratch: Scratch::default(),
            softmax: SampledSoftmax::default(),
            correction: Vec::new(),
            marks: ItemMarks::default(),
        }
    }

    /// From histories to the hidden layer: dropout and the embedding bag.
    pub fn encode(&mut self, shared: &Shared<'_>, rows: &mut BlockRows<'_>) {
        let mut lap = Instant::now();
        let Shared { config, parameters, .. } = shared;
        let stride = parameters.encoder.stride();
        self.report = StepReport::default();
        self.inputs.clear(shared.encoder_layout);
        self.targets.clear(shared.item_layout);
        for (r, &user) in rows.users.iter().enumerate() {
            self.drop_inputs(shared, user);
            let row = (rows.first + r) as u32;
            self.inputs.extend(shared.encoder_layout, &self.kept_items, &self.kept_weights, 1.0, row);
            let state = &mut rows.hidden[r * stride..][..stride];
            state.copy_from_slice(parameters.hidden_bias.row(0));
            bag(parameters.encoder.view(), &self.kept_items, &self.kept_weights, state);
            config.activation.apply(state);
        }
        self.times.lap(Phase::Encode, &mut lap);
    }

    /// From mean and log-variance to queries: the latent draws.
    pub fn draw_latent(&mut self, shared: &Shared<'_>, rows: &mut BlockRows<'_>) {
        let mut lap = Instant::now();
        let Shared { config, parameters, .. } = shared;
        let (latent, query_stride) = (config.latent, parameters.items.stride());
        let head_stride = parameters.head.stride();
        for (r, &user) in rows.users.iter().enumerate() {
            let (mean, log_variance) = rows.head[r * head_stride..][..2 * latent].split_at(latent);
            self.deviation.clear();
            self.deviation.extend(log_variance.iter().map(|lv| 0.5 * lv.min(MAX_LOG_VARIANCE)));
            simd::exp_shifted(&mut self.deviation, 0.0);
            for s in 0..config.latent_samples {
                let at = r * config.latent_samples + s;
                let noise = &mut self.noise.row_mut(at)[..latent];
                let epoch = shared.context.epoch as u32;
                let stream = Stream::with_part(config.seed, Purpose::Latent, s as u16, epoch, user);
                simd::fill_normals(&stream, noise);
                let query = &mut rows.queries[at * query_stride..][..latent];
                for (d, z) in query.iter_mut().enumerate() {
                    *z = mean[d] + noise[d] * self.deviation[d];
                }
            }
        }
        self.times.lap(Phase::Dense, &mut lap);
    }

    /// The user's items that survive dropout, with their input weights scaled up for the dropped ones.
    fn drop_inputs(&mut self, shared: &Shared<'_>, user: UserId) {
        let row = shared.train.row(user as usize);
        input_weights(row.into(), &mut self.input_weights);
        self.kept_items.clear();
        self.kept_weights.clear();
        let dropout = shared.config.dropout;
        if dropout == 0.0 {
            self.kept_items.extend_from_slice(row.items);
            self.kept_weights.extend_from_slice(&self.input_weights);
            return;
        }
        self.words.resize(row.items.len(), 0);
        Stream::new(shared.config.seed, Purpose::Dropout, shared.context.epoch as u32, user)
            .fill(0, &mut self.words);
        let threshold = (f64::from(dropout) * 2f64.powi(32)) as u32;
        let scale = 1.0 / (1.0 - dropout);
        for ((&item, &weight), &word) in row.items.iter().zip(&self.input_weights).zip(&self.words) {
            if word >= threshold {
                self.kept_items.push(item);
                self.kept_weights.push(weight * scale);
            }
        }
    }

    /// Draws negatives for each query and takes the sampled softmax; fills the query gradients and the entries
    /// of the item vectors.
    pub fn sample(&mut self, shared: &Shared<'_>, proposal: &dyn Proposal, rows: &mut BlockRows<'_>) {
        let Shared { config, parameters, .. } = shared;
        let (stride, samples) = (parameters.items.stride(), config.latent_samples);
        let items = parameters.item_table();
        let share = 1.0 / samples as f32;
        let mut lap = Instant::now();
        let estimator = match proposal.kind() {
            ProposalKind::Dns => Estimator::Sampled,
            _ => config.estimator,
        };
        for (r, &user) in rows.users.iter().enumerate() {
            let history = shared.train.row(user as usize);
            self.correction.resize(history.items.len(), 0.0);
            self.marks.set(history.items, items.vectors.rows());
            for s in 0..samples {
                let at = r * samples + s;
                let padded = &rows.queries[at * stride..][..stride];
                let query = &padded[..config.latent];
                let epoch = shared.context.epoch as u32;
                let stream = Stream::with_part(config.seed, Purpose::Negatives, s as u16, epoch, user);
                proposal.prepare(query, items, &mut self.scratch);
                proposal.draw(config.negatives, query, items, &stream, &mut self.scratch, &mut self.draws);
                if estimator == Estimator::Stratified {
                    self.draws.exclude(|item| self.marks.contains(item));
                }
                proposal.correction(history.items, query, items, &mut self.scratch, &mut self.correction);
                self.times.lap(Phase::Draw, &mut lap);
                let positives = Positives {
                    items: history.items,
                    weights: history.weights,
                    correction: &self.correction,
                };
                let gradient = &mut rows.query_gradient[at * stride..][..stride];
                let loss = self.softmax.run(estimator, padded, items, positives, &self.draws, gradient);
                self.report.likelihood_loss += loss * f64::from(share);
                gradient.iter_mut().for_each(|g| *g *= share);
                self.times.lap(Phase::Softmax, &mut lap);
                let row = (rows.first * samples + at) as u32;
                self.targets.extend(shared.item_layout, history.items, &self.softmax.positives, share, row);
                self.targets.extend(
                    shared.item_layout,
                    &self.draws.items,
                    &self.softmax.negatives,
                    share,
                    row,
                );
                self.times.lap(Phase::Group, &mut lap);
            }
            self.marks.clear(history.items);
        }
    }

    /// The positives alone as entries, with weight y / S: what the full softmax needs.
    pub fn positives(&mut self, shared: &Shared<'_>, rows: &BlockRows<'_>) {
        let samples = shared.config.latent_samples;
        let share = 1.0 / samples as f32;
        for (r, &user) in rows.users.iter().enumerate() {
            let history = shared.train.row(user as usize);
            self.correction.clear();
            self.correction.resize(history.items.len(), 1.0);
            let weights = history.weights.unwrap_or(&self.correction);
            for s in 0..samples {
                let row = ((rows.first + r) * samples + s) as u32;
                self.targets.extend(shared.item_layout, history.items, weights, share, row);
            }
        }
    }

    /// From query gradients back to mean and log-variance, with the KL divergence added.
    pub fn head_gradient(&mut self, shared: &Shared<'_>, rows: &mut BlockRows<'_>) {
        let mut lap = Instant::now();
        let Shared { config, parameters, .. } = shared;
        let (latent, samples) = (config.latent, config.latent_samples);
        let (query_stride, head_stride) = (parameters.items.stride(), parameters.head.stride());
        let anneal = shared.anneal();
        for (r, &user) in rows.users.iter().enumerate() {
            let (mean, log_variance) = rows.head[r * head_stride..][..2 * latent].split_at(latent);
            self.deviation.clear();
            self.deviation.extend(log_variance.iter().map(|lv| 0.5 * lv.min(MAX_LOG_VARIANCE)));
            simd::exp_shifted(&mut self.deviation, 0.0);
            let gradient = &mut rows.head_gradient[r * head_stride..][..2 * latent];
            gradient.fill(0.0);
            let (d_mean, d_log_variance) = gradient.split_at_mut(latent);
            for s in 0..samples {
                let at = r * samples + s;
                let query_gradient = &rows.query_gradient[at * query_stride..][..latent];
                let noise = self.noise.row(at);
                for d in 0..latent {
                    d_mean[d] += query_gradient[d];
                    d_log_variance[d] += query_gradient[d] * noise[d] * 0.5 * self.deviation[d];
                }
            }
            let weight = shared.kl_weight.of(shared.train.row(user as usize).items.len()) * anneal;
            let divergence = kl(mean, log_variance, &self.deviation, weight, d_mean, d_log_variance);
            self.report.kl += divergence;
            self.report.weighted_kl += divergence * f64::from(weight);
        }
        self.times.lap(Phase::Backward, &mut lap);
    }
}

/// A set of items as one bit each; cleared item by item, so that a use costs what it holds.
#[derive(Debug, Default)]
struct ItemMarks {
    words: Vec<u64>,
}

impl ItemMarks {
    fn set(&mut self, items: &[ItemId], n_items: usize) {
        self.words.resize(n_items.div_ceil(64), 0);
        for &item in items {
            self.words[item as usize / 64] |= 1 << (item % 64);
        }
    }

    fn clear(&mut self, items: &[ItemId]) {
        for &item in items {
            self.words[item as usize / 64] = 0;
        }
    }

    #[inline(always)]
    fn contains(&self, item: ItemId) -> bool {
        self.words[item as usize / 64] >> (item % 64) & 1 == 1
    }
}
