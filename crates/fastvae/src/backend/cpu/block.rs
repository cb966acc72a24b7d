//! What a step does for a block of users: encode, draw, loss, and the gradients up to the hidden layer.

use std::time::Instant;

use crate::backend::cpu::grouping::{BucketLayout, Buckets, Entry};
use crate::backend::cpu::negatives::{BlockNegatives, ItemRows, StepNegatives};
use crate::backend::{Phase, PhaseTimes, StepContext, StepReport};
use crate::config::{Config, Estimator, ProposalKind};
use crate::data::{Interactions, ItemId, UserId};
use crate::loss::{KlWeight, Positives, SampledSoftmax, kl};
use crate::math::{Matrix, Purpose, Stream, simd};
use crate::network::{Parameters, bag, input_weights};
use crate::proposal::{Proposal, Scratch};

/// Items of a history that are asked for ahead: the rest follows by itself.
const HISTORY_AHEAD: usize = 64;

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
    /// How the proposal's draws enter the loss.
    pub fn estimator(&self, proposal: &dyn Proposal) -> Estimator {
        match proposal.kind() {
            // Its correction is a constant, so nothing can be said of the positives' share.
            ProposalKind::Dns => Estimator::Sampled,
            _ => self.config.estimator,
        }
    }

    /// The linear rise of the KL weight over the first steps.
    fn anneal(&self) -> f32 {
        match self.config.kl.anneal_steps {
            0 => 1.0,
            steps => (self.context.step as f32 / steps as f32).min(1.0),
        }
    }
}

/// A block's rows of the batch-wide matrices: as wide as the encoder's table, twice `latent` wide, or `latent` wide with
/// `latent_samples` rows per user.
pub(super) struct BlockRows<'a> {
    pub users: &'a [UserId],
    /// Position of the first user in the batch.
    pub first: usize,
    /// The hidden layer, or what a factored encoder's map makes it from.
    pub encoded: &'a mut [f32],
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
    /// Gradient entries of the positives' item vectors; sources are queries.
    pub targets: Buckets,
    /// The negatives of each query.
    pub negatives: BlockNegatives,
    pub report: StepReport,
    pub times: PhaseTimes,
    noise: Matrix,
    /// Standard deviations of one user's latent distribution.
    deviation: Vec<f32>,
    /// The items that survived dropout, user after user, and their weights.
    kept_items: Vec<ItemId>,
    kept_weights: Vec<f32>,
    /// Where those of each user end.
    kept_ends: Vec<usize>,
    input_weights: Vec<f32>,
    words: Vec<u32>,
    scratch: Scratch,
    softmax: SampledSoftmax,
    /// What each partition's negatives weigh for one query.
    factors: Vec<f32>,
    weights: Vec<f32>,
}

impl UserBlock {
    pub fn new(config: &Config) -> Self {
        Self {
            inputs: Buckets::default(),
            targets: Buckets::default(),
            negatives: BlockNegatives::default(),
            report: StepReport::default(),
            times: PhaseTimes::default(),
            noise: Matrix::zeros(BLOCK * config.latent_samples, config.latent),
            deviation: Vec::new(),
            kept_items: Vec::new(),
            kept_weights: Vec::new(),
            kept_ends: Vec::new(),
            input_weights: Vec::new(),
            words: Vec::new(),
            scratch: Scratch::default(),
            softmax: SampledSoftmax::default(),
            factors: Vec::new(),
            weights: Vec::new(),
        }
    }

    /// From histories to the hidden layer, or to what a factored encoder maps to it: dropout and the embedding bag.
    pub fn encode(&mut self, shared: &Shared<'_>, rows: &mut BlockRows<'_>) {
        let mut lap = Instant::now();
        let Shared { config, parameters, .. } = shared;
        let stride = parameters.encoder.stride();
        self.report = StepReport::default();
        self.inputs.clear(shared.encoder_layout.n_buckets());
        // Histories lie anywhere. Asked for together, their beginnings are waited for once.
        for &user in rows.users {
            let items = shared.train.row(user as usize).items;
            simd::prefetch_at(items.as_ptr().cast(), items.len().min(HISTORY_AHEAD));
        }
        self.kept_items.clear();
        self.kept_weights.clear();
        self.kept_ends.clear();
        for &user in rows.users {
            self.drop_inputs(shared, user);
        }
        let mut start = 0;
        for (r, &end) in self.kept_ends.iter().enumerate() {
            let row = (rows.first + r) as u32;
            let (kept, weights) = (&self.kept_items[start..], &self.kept_weights[start..end]);
            self.inputs.extend(shared.encoder_layout, &kept[..weights.len()], weights, 1.0, row);
            let state = &mut rows.encoded[r * stride..][..stride];
            let factored = parameters.encoder_map.is_some();
            if factored {
                state.fill(0.0);
            } else {
                state.copy_from_slice(parameters.hidden_bias.row(0));
            }
            bag(parameters.encoder.view(), kept, weights, state);
            if !factored {
                config.activation.apply(state);
            }
            start = end;
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

    /// Adds the user's items that survive dropout, with their input weights scaled up for the dropped ones.
    fn drop_inputs(&mut self, shared: &Shared<'_>, user: UserId) {
        let row = shared.train.row(user as usize);
        input_weights(row.into(), &mut self.input_weights);
        let dropout = shared.config.dropout;
        if dropout == 0.0 {
            self.kept_items.extend_from_slice(row.items);
            self.kept_weights.extend_from_slice(&self.input_weights);
            self.kept_ends.push(self.kept_items.len());
            return;
        }
        self.words.resize(row.items.len(), 0);
        Stream::new(shared.config.seed, Purpose::Dropout, shared.context.epoch as u32, user)
            .fill(0, &mut self.words);
        let threshold = (f64::from(dropout) * 2f64.powi(32)) as u32;
        let scale = 1.0 / (1.0 - dropout);
        let mut end = self.kept_items.len();
        self.kept_items.resize(end + row.items.len() + 1, 0);
        self.kept_weights.resize(end + row.items.len() + 1, 0.0);
        let (kept_items, kept_weights) = (self.kept_items.as_mut_slice(), self.kept_weights.as_mut_slice());
        // Each item is written and the end moves only past those that stay: which these are is a surprise, and a branch
        // would be guessed wrong.
        for ((&item, &weight), &word) in row.items.iter().zip(&self.input_weights).zip(&self.words) {
            (kept_items[end], kept_weights[end]) = (item, weight * scale);
            end += usize::from(word >= threshold);
        }
        self.kept_items.truncate(end);
        self.kept_weights.truncate(end);
        self.kept_ends.push(end);
    }

    /// The first half of the draws of each query: which partition each falls in.
    pub fn spread(
        &mut self,
        shared: &Shared<'_>,
        proposal: &dyn Proposal,
        item_rows: ItemRows<'_>,
        rows: &mut BlockRows<'_>,
    ) {
        let mut lap = Instant::now();
        let Shared { config, parameters, .. } = shared;
        let (stride, samples) = (parameters.items.stride(), config.latent_samples);
        let items = parameters.item_table();
        let estimator = shared.estimator(proposal);
        let (n_queries, negatives) = (rows.users.len() * samples, &mut self.negatives);
        negatives.begin(n_queries, item_rows.partitions);
        for at in 0..n_queries {
            let user = rows.users[at / samples];
            let history = shared.train.row(user as usize).items;
            let query = &rows.queries[at * stride..][..config.latent];
            let part = (at % samples) as u16;
            let epoch = shared.context.epoch as u32;
            let stream = Stream::with_part(config.seed, Purpose::Negatives, part, epoch, user);
            let scratch = &mut self.scratch;
            if estimator == Estimator::Sampled {
                // The draws take long enough for it to come.
                proposal.ask(history);
            }
            proposal.prepare(query, items, scratch);
            proposal.spread(config.negatives, query, items, &stream, scratch, &mut negatives.spread);
            match estimator {
                Estimator::Stratified => {
                    negatives.push_positives(history.iter().map(|&item| item_rows.partitions.place(item)));
                    negatives.exclude_positives();
                }
                Estimator::Sampled => {
                    let (places, correction) = negatives.room_for_corrected(history.len());
                    proposal.locate(history, query, items, scratch, places, correction);
                }
            }
        }
        self.times.lap(Phase::Draw, &mut lap);
    }

    /// The loss of each query whose negatives are summed up, the query gradients, and the entries of the
    /// positives.
    pub fn loss(
        &mut self,
        shared: &Shared<'_>,
        proposal: &dyn Proposal,
        item_rows: ItemRows<'_>,
        negatives: &StepNegatives,
        rows: &mut BlockRows<'_>,
    ) {
        let mut lap = Instant::now();
        let Shared { config, parameters, .. } = shared;
        let (stride, samples) = (parameters.items.stride(), config.latent_samples);
        let items = parameters.item_table();
        let estimator = shared.estimator(proposal);
        let partitions = item_rows.partitions;
        let share = 1.0 / samples as f32;
        self.targets.clear(partitions.len());
        for at in 0..self.negatives.n_queries() {
            let history = shared.train.row(rows.users[at / samples] as usize);
            let row = rows.first * samples + at;
            if at + 1 < self.negatives.n_queries() {
                negatives.ask(row + 1);
            }
            let gradient = &mut rows.query_gradient[at * stride..][..stride];
            let sum = negatives.gather(row, &mut self.factors, gradient);
            let (places, correction) = self.negatives.positives(at);
            let positive_rows = if item_rows.by_place { places } else { history.items };
            let positives = Positives { items: positive_rows, weights: history.weights, correction };
            let query = &rows.queries[at * stride..][..stride];
            let sum = (&sum, config.negatives);
            let (loss, scale) = self.softmax.finish(estimator, query, items, positives, sum, gradient);
            self.report.likelihood_loss += loss * f64::from(share);
            gradient.iter_mut().for_each(|g| *g *= share);
            let row = row as u32;
            for (&place, &weight) in places.iter().zip(&self.softmax.positives) {
                let entry = Entry { item: place, row, weight: weight * share };
                self.targets.push(partitions.of_place(place), entry);
            }
            self.negatives.keep_factors(at, &self.factors, scale * share);
        }
        self.times.lap(Phase::Positives, &mut lap);
    }

    /// The positives alone as entries, with weight y / S: what the full softmax needs.
    pub fn positives(&mut self, shared: &Shared<'_>, rows: &BlockRows<'_>) {
        let samples = shared.config.latent_samples;
        let share = 1.0 / samples as f32;
        self.targets.clear(shared.item_layout.n_buckets());
        for (r, &user) in rows.users.iter().enumerate() {
            let history = shared.train.row(user as usize);
            self.weights.clear();
            self.weights.resize(history.items.len(), 1.0);
            let weights = history.weights.unwrap_or(&self.weights);
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
