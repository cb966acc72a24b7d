//! The CUDA backend: the whole training step on an NVIDIA GPU.
//!
//! Interactions, parameters, moments and index live on the device; a step is one graph of kernels, launched without
//! waiting, and losses come back when they are asked for. The kernels (`kernels/`) follow the CPU backend verb by verb
//! and draw the same random numbers, so that both can be compared step by step. The run's state on this machine stays as
//! it was sent until somebody looks at it: then parameters, and with everything moments and index, are fetched into it.

mod device;
mod full_softmax;
mod index;
mod rank;
mod softmax;
mod state;
mod tables;
#[cfg(test)]
mod tests;

pub(super) use device::look;

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Zeroable;
use cudarc::driver::{CudaGraph, sys};

use crate::backend::{Backend, Part, RunState, StepContext, StepReport, device_bytes};
use crate::config::{Config, Device, ModelKind, ProposalKind, WeightDecayMode};
use crate::data::{Interactions, ItemId, UserId};
use crate::error::{Error, Result};
use crate::loss::KlWeight;
use crate::math::matrix::LANES;
use crate::network::{Parameters, Tables};

use device::{Gpu, Lane, Memory, failed};
use full_softmax::FullSoftmax;
use index::IndexBuilder;
use rank::Ranking;
use softmax::SoftmaxDraws;
use state::{Clock, Run};
use tables::Place;

/// The kernels, by name.
const KERNELS: &[&str] = &[
    "begin_step",
    "end_step",
    "encode",
    "dense_forward",
    "draw_latent",
    "latent_gradients",
    "hidden_gradients",
    "draw_midx",
    "draw_fixed",
    "draw_softmax",
    "sampled_loss_1",
    "sampled_loss_2",
    "sampled_loss_4",
    "sampled_loss_8",
    "sampled_loss_16",
    "sum_samples",
    "item_gradients",
    "encoder_gradients",
    "update_items",
    "update_encoder",
    "update_dense",
    "update_biases",
    "assign",
    "sum_points",
    "move_codewords",
    "count_codes",
    "scan_counts",
    "place_codes",
    "rank_scores",
    "rank_queries",
    "rank_best",
    "full_begin",
    "full_scores",
    "full_sum",
    "full_gradients",
    "full_to_queries",
    "full_to_items",
    "full_end",
    "clear_spans",
    "find_spans",
    "measure_spans",
    "fill_cells",
];
/// Sizes of the kernels' blocks: threads that encode a user, users that share one of the dense layers, columns and rows of these.
const ENCODE_THREADS: u32 = 512;
const TOGETHER: u32 = 4;
const HEAD_COLUMNS: u32 = 64;
const HIDDEN_ROWS: u32 = 32;
const DENSE_COLUMNS: u32 = 64;
const DENSE_ROWS: u32 = 4;
/// Threads that draw for a query.
const DRAW_THREADS: u32 = 512;
/// Steps after which the queue is waited for: it stays short, and a request to stop is soon heard.
const STEPS_AHEAD: u64 = 64;

// SAFETY: plain numbers without padding, of which zero is one.
unsafe impl Zeroable for Clock {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Clock {}

/// Trains on one GPU.
pub struct CudaBackend {
    // Dropped before the memory and the device that it works on.
    graph: Option<CudaGraph>,
    /// What the kernels of the graph are given.
    captured: Option<Run>,
    run: Run,
    /// None for proposals without an index.
    index: Option<IndexBuilder>,
    /// Only for proposals that draw from the exact softmax.
    softmax: Option<SoftmaxDraws>,
    /// None for a model that samples.
    full_softmax: Option<FullSoftmax>,
    train: Arc<Interactions>,
    config: Config,
    kl_weight: KlWeight,
    /// Where the tables of the state lie.
    places: Tables<Place>,
    /// What of the state on this machine is as new as the device's.
    fetched: Option<Part>,
    /// Steps queued since the queue was last waited for.
    queued: u64,
    /// Keeps the buffers that `run` points into.
    memory: Memory,
    gpu: Gpu,
}

// SAFETY: a graph belongs to no thread; it is used by one at a time, through `&mut self`.
unsafe impl Send for CudaBackend {}

impl std::fmt::Debug for CudaBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaBackend").field("gpu", &self.gpu).finish_non_exhaustive()
    }
}

impl CudaBackend {
    /// A backend that goes on from `state` with `train`, on GPU `number`.
    ///
    /// # Errors
    /// [`Error::Device`] if the GPU cannot be used, [`Error::Config`] if the configuration cannot work or asks for
    /// what only the CPU does.
    pub fn new(config: &Config, train: Arc<Interactions>, state: &RunState, number: usize) -> Result<Self> {
        if let Some((key, problem)) = tables::unsupported(config) {
            return Err(Error::config(key, problem, "change it, or train with --device cpu"));
        }
        let gpu = Gpu::open(number, KERNELS)?;
        let needed = device_bytes(config, train.n_users(), train.n_items(), train.n_interactions());
        gpu.check_room(needed)?;
        let mut memory = Memory::default();
        let kl_weight = KlWeight::resolve(&config.kl, train.n_interactions(), train.n_items());
        let (run, places) = tables::lay_out(&gpu, &mut memory, config, &train, kl_weight, state)?;
        let sampled = config.model == ModelKind::FastVae;
        let kind = config.proposal;
        let is_midx = sampled
            && matches!(
                kind,
                ProposalKind::MidxUniform | ProposalKind::MidxPopularity | ProposalKind::MidxExact
            );
        let is_softmax = sampled && matches!(kind, ProposalKind::Softmax | ProposalKind::MidxExact);
        let softmax = if is_softmax { Some(SoftmaxDraws::new(&gpu, &mut memory, &run)?) } else { None };
        let index = if is_midx {
            let (_, bytes) = draw_sizes(&run);
            let remedy = ("codewords", "give fewer codewords, or train with --device cpu");
            gpu.allow_shared("draw_midx", bytes, remedy)?;
            Some(IndexBuilder::new(&gpu, &mut memory, config, &train)?)
        } else {
            None
        };
        let full_softmax = if sampled { None } else { Some(FullSoftmax::new(&gpu, &mut memory, &run)?) };
        let remedy = ("hidden", "give a smaller hidden, or train with --device cpu");
        gpu.allow_shared("dense_forward", TOGETHER * run.hidden_stride * 4, remedy)?;
        gpu.allow_shared("hidden_gradients", TOGETHER * run.head_stride * 4, remedy)?;
        let mut backend = Self {
            graph: None,
            captured: None,
            run,
            index,
            softmax,
            full_softmax,
            train,
            config: config.clone(),
            kl_weight,
            places,
            fetched: Some(Part::Everything),
            queued: 0,
            memory,
            gpu,
        };
        tables::send(&backend.gpu, places, state)?;
        if let (Some(builder), Some(proposal)) = (&mut backend.index, &state.proposal)
            && let Some(index) = proposal.index()
        {
            builder.send(&backend.gpu, &mut backend.run, index)?;
        }
        if sampled && kind == ProposalKind::Popularity {
            backend.fill_popularity()?;
        }
        Ok(backend)
    }

    /// Queues a kernel that is given the run and nothing else.
    fn launch(
        &self,
        lane: Lane,
        kernel: &'static str,
        grid: (u32, u32),
        block: u32,
        shared: u32,
    ) -> Result<()> {
        let mut run = self.run;
        let arguments = &mut [(&raw mut run).cast()];
        // SAFETY: the one argument of these kernels; its buffers live as long as the backend.
        unsafe { self.gpu.launch_in(lane, kernel, (grid.0, grid.1, 1), block, shared, arguments) }
    }

    /// Queues the kernels of one step. After the loss it goes on in three lanes: the items, the encoder, the dense
    /// layers.
    fn queue_step(&self) -> Result<()> {
        let r = &self.run;
        let (batch, queries) = (r.batch, r.batch * r.samples);
        self.launch(Lane::Main, "begin_step", (1, 1), 1, 0)?;
        self.launch(Lane::Main, "encode", (batch, 1), ENCODE_THREADS, ENCODE_THREADS * 16)?;
        let groups = batch.div_ceil(TOGETHER);
        self.launch(Lane::Main, "dense_forward", dense_grid(r, batch), 256, TOGETHER * r.hidden_stride * 4)?;
        self.launch(Lane::Main, "draw_latent", ((queries * r.latent_stride).div_ceil(256), 1), 256, 0)?;
        match &self.full_softmax {
            Some(full) => full.queue(&self.gpu, r)?,
            None => {
                self.queue_draws(queries)?;
                self.launch(Lane::Main, loss_kernel(r), (queries, 1), 512, 0)?;
            }
        }
        self.gpu.fork(Lane::Items)?;
        if self.full_softmax.is_none() {
            let grid = (r.negatives.div_ceil(64).min(16) + 1, queries);
            self.launch(Lane::Items, "item_gradients", grid, 256, 0)?;
            self.launch(Lane::Items, "update_items", (self.gpu.multiprocessors * 8, 1), 256, 0)?;
        }
        if r.samples > 1 {
            self.launch(Lane::Main, "sum_samples", (batch.div_ceil(256), 1), 256, 0)?;
        }
        self.launch(
            Lane::Main,
            "latent_gradients",
            (batch, 1),
            r.latent_stride.next_multiple_of(32).min(256),
            0,
        )?;
        let grid = (groups, r.hidden_width.div_ceil(HIDDEN_ROWS));
        self.launch(Lane::Main, "hidden_gradients", grid, 256, TOGETHER * r.head_stride * 4)?;
        self.gpu.fork(Lane::Dense)?;
        let (columns, width) = (DENSE_COLUMNS, 2 * r.latent_width);
        let grid = (r.hidden_width.div_ceil(DENSE_ROWS), width.div_ceil(columns));
        self.launch(Lane::Dense, "update_dense", grid, 512, 0)?;
        self.launch(Lane::Dense, "update_biases", ((width + r.hidden_width).div_ceil(columns), 1), 512, 0)?;
        self.launch(Lane::Dense, "end_step", (1, 1), 256, 0)?;
        self.launch(Lane::Main, "encoder_gradients", (batch, 2), 256, 0)?;
        self.launch(Lane::Main, "update_encoder", (self.gpu.multiprocessors * 8, 1), 256, 0)?;
        self.gpu.join(Lane::Items)?;
        self.gpu.join(Lane::Dense)
    }

    /// Queues the draws of all queries.
    fn queue_draws(&self, queries: u32) -> Result<()> {
        if let Some(softmax) = &self.softmax {
            return softmax.queue(&self.gpu, &self.run);
        }
        match self.config.proposal {
            ProposalKind::Uniform | ProposalKind::Popularity => {
                let bytes = spread_bytes(self.run.n_slots);
                self.launch(Lane::Main, "draw_fixed", (queries, 1), DRAW_THREADS, bytes)
            }
            _ => {
                let (mut partial, bytes) = draw_sizes(&self.run);
                let mut run = self.run;
                let arguments = &mut [(&raw mut run).cast(), (&raw mut partial).cast()];
                // SAFETY: the arguments of `draw_midx`.
                unsafe { self.gpu.launch("draw_midx", (queries, 1), DRAW_THREADS, bytes, arguments) }
            }
        }
    }

    /// Makes a graph of the kernels of one step; it holds until they are given something else.
    fn capture(&mut self) -> Result<()> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.gpu.stream.begin_capture(mode).map_err(failed)?;
        let queued = self.queue_step();
        let graph = self.gpu.stream.end_capture(sys::CUgraphInstantiate_flags(0)).map_err(failed)?;
        queued?;
        self.graph = graph;
        self.captured = Some(self.run);
        Ok(())
    }

    fn clock(&self) -> Result<Clock> {
        let mut clock = [Clock::zeroed()];
        self.gpu.read(self.run.clock, &mut clock)?;
        Ok(clock[0])
    }

    /// Waits for the steps under way and takes what they saw.
    fn take_report(&mut self) -> Result<StepReport> {
        let mut clock = self.clock()?;
        self.queued = 0;
        let report = StepReport {
            likelihood_loss: clock.likelihood_loss,
            kl: clock.kl,
            weighted_kl: clock.weighted_kl,
        };
        (clock.likelihood_loss, clock.kl, clock.weighted_kl) = (0.0, 0.0, 0.0);
        self.gpu.write(self.run.clock, &[clock])?;
        Ok(report)
    }
}

/// Blocks of the dense layer for `users` users.
fn dense_grid(run: &Run, users: u32) -> (u32, u32) {
    (users.div_ceil(TOGETHER), (2 * run.latent_width).div_ceil(HEAD_COLUMNS))
}

/// The kernel of the loss for the length of the item vectors.
fn loss_kernel(run: &Run) -> &'static str {
    match run.latent_stride.div_ceil(32) {
        1 => "sampled_loss_1",
        2 => "sampled_loss_2",
        3..=4 => "sampled_loss_4",
        5..=8 => "sampled_loss_8",
        _ => "sampled_loss_16",
    }
}

/// Values of `draw_midx`'s partial sums, and bytes of its shared memory.
fn draw_sizes(run: &Run) -> (u32, u32) {
    let partial = DRAW_THREADS.max(2 * run.score_stride);
    (partial, (4 * run.score_stride + partial) * 4 + spread_bytes(run.n_slots))
}

/// Bytes of shared memory that draws are spread over `n_slots` with: the nodes, and of each slot the sum and the start.
fn spread_bytes(n_slots: u32) -> u32 {
    (n_slots / LANES as u32 + 1) * 8 + (2 * n_slots + 1) * 4
}

impl Backend for CudaBackend {
    fn refresh(&mut self, state: &mut RunState, epoch: usize) -> Result<()> {
        if self.index.as_ref().is_some_and(|index| !index.is_built()) {
            self.download(state, Part::Parameters)?;
        }
        if let Some(index) = &mut self.index {
            index.refresh(&self.gpu, &mut self.run, state.parameters.items.view(), epoch as u32)?;
            self.fetched = self.fetched.min(Some(Part::Parameters));
        }
        self.gpu.wait()
    }

    fn begin_epoch(&mut self, state: &RunState, context: StepContext, done: usize) -> Result<()> {
        let order = &state.order;
        self.run.n_order = order.len() as u32;
        self.gpu.write(self.run.order, order)?;
        let learning_rate =
            self.config.learning_rate * self.config.decay.at(context.epoch, self.config.epochs);
        let decoupled = match self.config.weight_decay_mode {
            WeightDecayMode::Coupled => 0.0,
            WeightDecayMode::Decoupled => self.config.weight_decay * learning_rate,
        };
        let clock = Clock {
            step: context.step,
            epoch: context.epoch as u32,
            next: done as u32,
            learning_rate,
            decoupled_decay: decoupled,
            ..Clock::zeroed()
        };
        self.gpu.write(self.run.clock, &[clock])?;
        if self.captured != Some(self.run) { self.capture() } else { Ok(()) }
    }

    fn step(&mut self, _: &mut RunState, _: Range<usize>, _: StepContext) -> Result<StepReport> {
        let graph = self.graph.as_ref().expect("an epoch is begun before its first step");
        graph.launch().map_err(failed)?;
        self.fetched = None;
        self.queued += 1;
        if self.queued < STEPS_AHEAD { Ok(StepReport::default()) } else { self.take_report() }
    }

    fn end_epoch(&mut self) -> Result<StepReport> {
        self.take_report()
    }

    fn download(&mut self, state: &mut RunState, part: Part) -> Result<()> {
        if self.fetched >= Some(part) {
            return Ok(());
        }
        tables::fetch(&self.gpu, self.places, state, part)?;
        if part == Part::Everything
            && let (Some(builder), Some(proposal)) = (&self.index, &mut state.proposal)
            && builder.is_built()
        {
            proposal.restore(builder.fetch(&self.gpu, &self.run)?)?;
        }
        self.fetched = Some(part);
        Ok(())
    }

    fn is_remote(&self) -> bool {
        self.fetched != Some(Part::Everything)
    }

    fn rank(
        &mut self,
        by: Option<&Parameters>,
        histories: &Interactions,
        users: &[UserId],
        k: usize,
    ) -> Result<Option<Vec<ItemId>>> {
        if k > rank::LONGEST.min(histories.n_items()) || histories.n_items() != self.train.n_items() {
            return Ok(None);
        }
        let resident = std::ptr::eq(histories.items(), self.train.items());
        let ranking = Ranking { by, histories, resident, users, k };
        rank::rank(&self.gpu, &self.run, self.places, &ranking).map(Some)
    }

    fn restart(&mut self, config: &Config, train: Arc<Interactions>, state: &RunState) -> Result<()> {
        (self.graph, self.captured) = (None, None);
        self.gpu.wait()?;
        self.memory = Memory::default();
        *self = Self::new(config, train, state, self.gpu.context.ordinal())?;
        Ok(())
    }

    fn kl_weight(&self) -> KlWeight {
        self.kl_weight
    }

    fn name(&self) -> String {
        format!("cuda:{} ({})", self.gpu.context.ordinal(), self.gpu.context.name().unwrap_or_default())
    }
}

impl CudaBackend {
    /// The alias tables of the popularity proposal, which never change.
    fn fill_popularity(&self) -> Result<()> {
        let mut memory = Memory::default();
        let n = self.run.n_items as usize;
        let mut missing = memory.zeros::<f64>(&self.gpu, n)?;
        let mut spare = memory.zeros::<f64>(&self.gpu, n)?;
        let mut run = self.run;
        let arguments = &mut [(&raw mut run).cast(), (&raw mut missing).cast(), (&raw mut spare).cast()];
        // SAFETY: the arguments of `fill_cells`, waited for before the buffers go.
        unsafe { self.gpu.launch("fill_cells", (run.n_slots, 1), 256, 0, arguments) }?;
        self.gpu.wait()
    }
}

/// The GPU that a configuration asks for, or for `auto` the first one, where the machine has one that can do all
/// that is asked; a line says why not.
///
/// # Errors
/// Where a GPU is asked for by number: what stands against it.
pub(super) fn choose(
    config: &Config,
    train: &Arc<Interactions>,
    state: &RunState,
) -> Result<Option<CudaBackend>> {
    match config.device {
        Device::Cpu => Ok(None),
        Device::Cuda(number) => CudaBackend::new(config, train.clone(), state, number).map(Some),
        Device::Auto if look().obstacle.is_some() => Ok(None),
        Device::Auto => match CudaBackend::new(config, train.clone(), state, 0) {
            Ok(backend) => Ok(Some(backend)),
            Err(error) => {
                tracing::warn!("trains on the CPU: {error}");
                Ok(None)
            }
        },
    }
}
