//! Where a training step runs. One trait, cut at the step, not at the tensor operation: the CPU backend is the
//! specification, and any other repeats its verbs and passes the same contract tests.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod device_plan;
mod phases;
mod state;

pub(crate) use cpu::{ENTRY_BYTES, SORTING_BYTES};

pub use cpu::CpuBackend;
pub use device_plan::device_bytes;
pub use phases::{Phase, PhaseTimes};
pub use state::RunState;

use std::ops::Range;
use std::sync::Arc;

use crate::config::Config;
#[cfg(not(feature = "cuda"))]
use crate::config::Device;
use crate::data::{Interactions, ItemId, UserId};
#[cfg(not(feature = "cuda"))]
use crate::error::Error;
use crate::error::Result;
use crate::loss::KlWeight;
use crate::network::Parameters;

/// What [`gpus`] found out about the machine's GPUs.
#[derive(Debug, Clone, Default)]
pub struct Gpus {
    /// The version of CUDA that the driver offers, where there is a driver.
    pub driver: Option<String>,
    /// The GPUs, by number.
    pub devices: Vec<FoundGpu>,
    /// Why no GPU can be used, where none can.
    pub obstacle: Option<String>,
}

/// One GPU.
#[derive(Debug, Clone)]
pub struct FoundGpu {
    /// What the driver calls it.
    pub name: String,
    /// Its memory in bytes: free, and in all.
    pub memory: (usize, usize),
    /// Its compute capability.
    pub capability: (i32, i32),
    /// Number of multiprocessors.
    pub multiprocessors: i32,
}

/// Looks for GPUs that can train; never fails.
pub fn gpus() -> Gpus {
    #[cfg(feature = "cuda")]
    return cuda::look();
    #[cfg(not(feature = "cuda"))]
    Gpus { obstacle: Some("this build of fastvae has no CUDA backend".into()), ..Gpus::default() }
}

/// Where in a run a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepContext {
    /// Epoch, counted from 0.
    pub epoch: usize,
    /// Steps since the start of the run, counted from 0.
    pub step: u64,
}

/// What a step saw, summed over its users.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepReport {
    /// Negative log-likelihood.
    pub likelihood_loss: f64,
    /// KL divergence, unweighted.
    pub kl: f64,
    /// KL divergence as it enters the loss.
    pub weighted_kl: f64,
}

impl std::ops::AddAssign for StepReport {
    fn add_assign(&mut self, other: Self) {
        self.likelihood_loss += other.likelihood_loss;
        self.kl += other.kl;
        self.weighted_kl += other.weighted_kl;
    }
}

/// What of a run's state is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The parameters.
    Parameters,
    /// Parameters, moments and proposal.
    Everything,
}

/// A machine that trains: it runs the steps of one run, whose [`RunState`] it is given each time. Between steps it may
/// keep what is newer than that state, until [`Backend::download`] asks for it; nobody else changes it meanwhile.
pub trait Backend: Send + std::fmt::Debug {
    /// Rebuilds what the proposal derives from the item vectors.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if the proposal's settings do not fit the catalogue, or what the device reports.
    fn refresh(&mut self, state: &mut RunState, epoch: usize) -> Result<()>;

    /// Comes before the steps of an epoch, whose order of users is the state's; `context` is that of the next step, and
    /// `done` users were trained on before.
    ///
    /// # Errors
    /// What the device reports.
    fn begin_epoch(&mut self, _state: &RunState, _context: StepContext, _done: usize) -> Result<()> {
        Ok(())
    }

    /// Runs one step on the users at `batch` in the epoch's order and returns what it saw, or lets it run on and reports
    /// it later.
    ///
    /// # Errors
    /// What the device reports; the CPU reports none.
    fn step(&mut self, state: &mut RunState, batch: Range<usize>, context: StepContext)
    -> Result<StepReport>;

    /// Waits for the steps under way; returns what they saw that no step has reported.
    ///
    /// # Errors
    /// What the device reports.
    fn end_epoch(&mut self) -> Result<StepReport> {
        Ok(StepReport::default())
    }

    /// Brings `part` of the state to where the last step left it, in this machine's memory and the order of the items.
    ///
    /// # Errors
    /// What the device reports.
    fn download(&mut self, state: &mut RunState, part: Part) -> Result<()>;

    /// Whether the state is somewhere else, so that a look costs time.
    fn is_remote(&self) -> bool {
        false
    }

    /// The `k` best items of each of `users`, best first, without those of their rows of `histories`; `ItemId::MAX`
    /// after the last. By the parameters `by`, or those of now. None where this machine's cores rank as well.
    ///
    /// # Errors
    /// What the device reports.
    fn rank(
        &mut self,
        _by: Option<&Parameters>,
        _histories: &Interactions,
        _users: &[UserId],
        _k: usize,
    ) -> Result<Option<Vec<ItemId>>> {
        Ok(None)
    }

    /// Goes on from another `state`, with other data over the same items. What is held of the last one is given back first.
    ///
    /// # Errors
    /// What the device reports.
    fn restart(&mut self, config: &Config, train: Arc<Interactions>, state: &RunState) -> Result<()>;

    /// The weight of the KL divergence in use.
    fn kl_weight(&self) -> KlWeight;

    /// Time of each phase since the start, summed over threads.
    fn phase_times(&self) -> PhaseTimes {
        PhaseTimes::default()
    }

    /// What trains, in words.
    fn name(&self) -> String;
}

/// The backend that `config` asks for, to go on from `state` with `train`.
///
/// # Errors
/// [`crate::Error::Config`] if the configuration cannot work, [`crate::Error::Device`] if it asks for a GPU that cannot be used.
#[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "the CPU keeps nothing of a state"))]
pub fn open(config: &Config, train: Arc<Interactions>, state: &RunState) -> Result<Box<dyn Backend>> {
    #[cfg(feature = "cuda")]
    if let Some(backend) = cuda::choose(config, &train, state)? {
        return Ok(Box::new(backend));
    }
    #[cfg(not(feature = "cuda"))]
    if let Device::Cuda(_) = config.device {
        return Err(Error::device(
            "this build of fastvae has no CUDA backend",
            "build it with the feature `cuda`, or train with --device cpu",
        ));
    }
    Ok(Box::new(CpuBackend::new(config, train)))
}
