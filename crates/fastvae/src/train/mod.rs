//! The training loop: shuffled batches, index refreshes, validation, early stopping, checkpoints, and the model at its end.
//!
//! A run is a pure function of its configuration and data: the number of threads, and where it was interrupted
//! and resumed, change nothing but its time.
//!
//! A run has a phase that chooses its epochs by a validation part, and, where that part is more than a little of the data
//! ([`Refit`]), another that trains the same settings and epochs on everything.

pub(crate) mod blend;
mod checkpoint;
mod diagnostics;
pub(crate) mod finish;
pub(crate) mod inside;
pub(crate) mod parts;
mod record;
mod trial;

pub(crate) use inside::{Phase, TrainingInternals, VALIDATION_METRIC};

pub use finish::{Finish, fit, train};
pub use record::{Event, StepProgress};

pub use crate::control::Control;
pub use crate::model::{EpochRecord, ProposalDiagnostics};

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::backend::{self, Backend, Part, RunState, StepContext, StepReport};
use crate::config::Config;
use crate::data::{Interactions, UserId};
use crate::error::{Error, Result};
use crate::eval::{Estimate, Evaluation, Metric, evaluate, evaluate_lists};
use crate::math::{Purpose, Stream};
use crate::model::Blend;
use crate::model::linear::Blended;
use crate::network::Parameters;
use crate::resources;

use blend::{Chosen, Solved, Trained};
use parts::{active, check_data, check_part, learns_again, n_trials};
use trial::Trial;

/// What is added to the seed for the second network of a pair; that of a trial adds less.
const SECOND_SEED: u64 = 1 << 48;
/// What a run is told beside its settings.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TrainOptions {
    /// Held-out interactions to stop by: row u is of the same user as row u of the data, and the model learns from all of
    /// the data. Without it and with `patience` above 0, a small part of the data is held out.
    pub validation: Option<Arc<Interactions>>,
    /// Whether the model is trained again on everything.
    pub refit: Refit,
    /// What is measured on the validation part when the epochs are chosen, beside [`VALIDATION_METRIC`].
    pub metrics: Vec<Metric>,
}

/// Whether a model is trained again, with the settings and epochs that were chosen.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Refit {
    /// On all of the data, where the validation part that the run held out of them is more than 2 %, or a pair was asked for.
    #[default]
    WhereItMatters,
    /// Not at all.
    Never,
    /// On these data, of the same items.
    On(Arc<Interactions>),
}

/// A training run, from its first step or from a checkpoint.
#[derive(Debug)]
pub struct Training {
    config: Config,
    /// What is learned from first: the data less the validation part.
    train: Arc<Interactions>,
    validation: Option<Arc<Interactions>>,
    /// All that was given: what the linear part learns from, where nothing is learned again.
    data: Arc<Interactions>,
    /// What is learned from again.
    refit: Option<Arc<Interactions>>,
    metrics: Vec<Metric>,
    /// Users with interactions: those that a batch can hold.
    users: Vec<UserId>,
    state: RunState,
    backend: Box<dyn Backend>,
    pool: rayon::ThreadPool,
    progress: Progress,
    /// The parameters of the best validation, where there is one; in the second phase what the first has chosen.
    best: Option<Parameters>,
    /// The networks of both phases as one, where they are kept together and it was asked for.
    pair: Option<Parameters>,
    /// The linear part that was chosen, solved on everything, once it was asked for.
    solved: Option<Solved>,
    /// Whether the backend has begun the epoch under way.
    under_way: bool,
}

/// How [`Training::run`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All epochs ran, or validation stopped improving.
    Finished,
    /// The observer asked to stop; [`Training::run`] continues from there.
    Interrupted,
}

/// Where a run stands: with its state, all that a checkpoint needs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Progress {
    phase: Phase,
    epoch: usize,
    step_in_epoch: usize,
    step: u64,
    /// Of the epoch under way.
    sums: Sums,
    best: Option<BestEpoch>,
    /// The largest validation metric so far.
    highest: f64,
    /// Validations since one that was as good as the best.
    waited: usize,
    records: Vec<EpochRecord>,
    /// What was measured on the validation part once the epochs were chosen.
    validation: Option<Evaluation>,
    /// What stands beside the network, once that was chosen.
    blend: Option<Chosen>,
    /// What was measured on other held-out data, and on which.
    evaluation: Option<(Evaluation, String)>,
}

/// What the epoch under way has added up.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Sums {
    likelihood_loss: f64,
    kl: f64,
    weighted_kl: f64,
    users: usize,
    seconds: f64,
    cpu_seconds: f64,
    index_seconds: f64,
}

impl Sums {
    fn add(&mut self, report: StepReport) {
        self.likelihood_loss += report.likelihood_loss;
        self.kl += report.kl;
        self.weighted_kl += report.weighted_kl;
    }
}

/// The validation whose parameters are kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BestEpoch {
    /// Epoch, counted from 1.
    pub epoch: usize,
    /// Its [`VALIDATION_METRIC`].
    pub value: f64,
}

impl Training {
    /// A run that has not begun. With `patience` above 0 and no validation part given, a small one is held out of a copy of
    /// `data`; else the data itself is trained on, and several runs may share one.
    ///
    /// # Errors
    /// [`Error::Config`] for settings that cannot work, [`Error::Data`] if there is nothing to learn from, or the parts
    /// differ in users or items.
    pub fn new(data: impl Into<Arc<Interactions>>, config: &Config, options: TrainOptions) -> Result<Self> {
        let data = data.into();
        config.validate()?;
        check_data(&data)?;
        let config = &config.for_data(data.n_users(), data.n_items());
        let TrainOptions { validation, refit, metrics } = options;
        let (train, validation, held_out) = match validation {
            Some(part) => {
                check_part(&data, &part)?;
                (Arc::clone(&data), Some(part), 0)
            }
            None if config.patience == 0 => (Arc::clone(&data), None, 0),
            None => {
                match parts::held_out(config, &data) {
                    Ok((train, part)) => {
                        let held_out = part.n_interactions();
                        (Arc::new(train), Some(Arc::new(part)), held_out)
                    }
                    // Nobody has two items: there is nothing to choose by, and the defaults stand.
                    Err(Error::Data { .. }) => (Arc::clone(&data), None, 0),
                    Err(error) => return Err(error),
                }
            }
        };
        let refit = match refit {
            Refit::On(all) if all.n_items() != data.n_items() => {
                return Err(Error::data(
                    format!(
                        "the data to train on again have {} items, not {}",
                        all.n_items(),
                        data.n_items()
                    ),
                    "give data over the same items",
                ));
            }
            Refit::On(all) => Some(all),
            Refit::WhereItMatters if learns_again(config, held_out, &data) => Some(Arc::clone(&data)),
            Refit::WhereItMatters | Refit::Never => None,
        };
        let threads = config.n_threads();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|n| format!("fastvae-{n}"))
            .build()
            .map_err(|e| {
                Error::config("threads", format!("{threads} threads cannot be started ({e})"), "give fewer")
            })?;
        let (state, backend) = pool.install(|| {
            let state = RunState::new(config, &train)?;
            let backend = backend::open(config, Arc::clone(&train), &state)?;
            Ok((state, backend))
        })?;
        Ok(Self {
            config: config.clone(),
            users: active(&train),
            train,
            validation,
            data,
            refit,
            metrics,
            state,
            backend,
            pool,
            progress: Progress::default(),
            best: None,
            pair: None,
            solved: None,
            under_way: false,
        })
    }

    /// The settings of the run.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What every finished epoch reported.
    pub fn records(&self) -> &[EpochRecord] {
        &self.progress.records
    }

    /// The validation whose parameters are kept, where there is a validation part.
    pub fn best(&self) -> Option<BestEpoch> {
        self.progress.best
    }

    /// How well the chosen epoch does on the validation part, once it is chosen.
    pub fn validation(&self) -> Option<&Evaluation> {
        self.progress.validation.as_ref()
    }

    /// What [`Training::note_evaluation`] was told last.
    pub fn evaluation(&self) -> Option<&Evaluation> {
        self.progress.evaluation.as_ref().map(|(evaluation, _)| evaluation)
    }

    /// Keeps what was measured, and the name of the data that it was measured on, for the model's description.
    pub fn note_evaluation(&mut self, evaluation: Evaluation, measured_on: impl Into<String>) {
        self.progress.evaluation = Some((evaluation, measured_on.into()));
    }

    /// What the run trains on, in words.
    pub fn device(&self) -> String {
        self.backend.name()
    }

    /// Measures [`Training::parameters`] on held-out interactions, as [`evaluate`] does; on the device where it ranks.
    ///
    /// # Errors
    /// As [`evaluate`], and what the device reports.
    pub fn evaluate(
        &mut self,
        histories: &Interactions,
        test: &Interactions,
        metrics: &[Metric],
    ) -> Result<Evaluation> {
        if self.blend().is_some() {
            self.solve()?;
            let solved = self.solved.take();
            let measured = match solved.as_ref().expect("it was just solved") {
                Solved::Beside(linear) => self.with_parameters(|network| {
                    evaluate(Blended::of(network, linear), histories, test, metrics)
                })?,
                Solved::Alone(method, _) => {
                    self.pool.install(|| evaluate(&**method, histories, test, metrics))
                }
            };
            self.solved = solved;
            return measured;
        }
        let is_pair = self.is_pair();
        let Self { backend, best, pool, .. } = self;
        let best = best.as_ref();
        let ranked = pool.install(|| {
            evaluate_lists(histories, test, metrics, |users, k| match is_pair {
                // The device has room for one of them.
                true => Ok(None),
                false => backend.rank(best, histories, users, k),
            })
        })?;
        match ranked {
            Some(evaluation) => Ok(evaluation),
            None => self.with_parameters(|network| evaluate(network, histories, test, metrics))?,
        }
    }

    /// Whether the phase under way needs no other epoch.
    fn has_all_epochs(&self) -> bool {
        let Progress { phase, epoch, waited, .. } = self.progress;
        match phase {
            Phase::Choosing => {
                epoch >= self.config.epochs || (self.config.patience > 0 && waited >= self.config.patience)
            }
            Phase::Chosen => true,
            Phase::Refit => epoch >= self.chosen_epochs(),
        }
    }

    /// Trains to the end, or until `observer` asks to stop; it is told of every step and every epoch.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn run(&mut self, mut observer: impl FnMut(&Event) -> Control) -> Result<Outcome> {
        while let Some(event) = self.advance()? {
            if observer(&event) == Control::Stop && !self.is_finished() {
                return Ok(Outcome::Interrupted);
            }
        }
        Ok(Outcome::Finished)
    }

    /// Does the next step, with whatever comes before and after it, and tells of it; None where nothing is left to do.
    /// Between two calls the run may be looked at, saved, or dropped.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn advance(&mut self) -> Result<Option<Event>> {
        if self.progress.phase == Phase::Choosing && self.has_all_epochs() {
            self.choose()?;
            return Ok(Some(Event::Chosen));
        }
        if self.progress.phase == Phase::Chosen && self.refit.is_some() {
            self.begin_refit()?;
        }
        if self.has_all_epochs() {
            self.solve()?;
            return Ok(None);
        }
        let epoch = self.progress.epoch;
        if !self.under_way {
            self.begin_epoch(epoch)?;
        }
        let first = self.progress.step_in_epoch * self.config.batch;
        let batch = first..self.users.len().min(first + self.config.batch);
        let context = StepContext { epoch, step: self.progress.step };
        let n_users = batch.len();
        let report = self.timed(|run| run.backend.step(&mut run.state, batch, context))?;
        self.note_step(report, n_users);
        let n_steps = self.users.len().div_ceil(self.config.batch);
        // The last step is told of with its epoch, so that a stop there resumes after the validation.
        if self.progress.step_in_epoch >= n_steps {
            let report = self.timed(|run| run.backend.end_epoch())?;
            self.progress.sums.add(report);
            return self.finish_epoch().map(|record| Some(Event::Epoch(record)));
        }
        let sums = &self.progress.sums;
        Ok(Some(Event::Step(StepProgress {
            epoch: epoch + 1,
            step: self.progress.step_in_epoch,
            n_steps,
            loss: (sums.likelihood_loss + sums.weighted_kl) / sums.users as f64,
            kl: sums.kl / sums.users as f64,
            users_per_second: sums.users as f64 / sums.seconds.max(1e-9),
            refit: self.progress.phase == Phase::Refit,
        })))
    }

    /// Refreshes where it is due, and shuffles the users.
    fn begin_epoch(&mut self, epoch: usize) -> Result<()> {
        if self.progress.step_in_epoch == 0 {
            let users = self.users.len();
            let interval = self.config.refresh_interval(users, self.train.n_items());
            self.timed(|run| match epoch % interval {
                0 => run.pool.install(|| run.backend.refresh(&mut run.state, epoch)),
                _ => Ok(()),
            })?;
            self.progress.sums.index_seconds = self.progress.sums.seconds;
        }
        self.state.order.clone_from(&self.users);
        Stream::new(self.phase_config().seed, Purpose::Shuffle, epoch as u32, 0)
            .shuffle(&mut self.state.order);
        let context = StepContext { epoch, step: self.progress.step };
        let done = self.progress.step_in_epoch * self.config.batch;
        self.timed(|run| run.backend.begin_epoch(&run.state, context, done))?;
        self.under_way = true;
        Ok(())
    }

    /// Ends the phase that chooses: measures what it has chosen.
    fn choose(&mut self) -> Result<()> {
        if let Some(part) = self.validation.clone() {
            let train = Arc::clone(&self.train);
            let mut metrics = self.metrics.clone();
            if !metrics.contains(&VALIDATION_METRIC) {
                metrics.push(VALIDATION_METRIC);
            }
            let config = self.config.clone();
            let trials = self.trials(&part)?;
            let (mut chosen, weights) = self.with_parameters(|network| {
                let own = Trained { network, train: &train, part: &part };
                let others = trials.iter().map(|trial| trial.trained(config.activation));
                blend::choose(&std::iter::once(own).chain(others).collect::<Vec<_>>(), &config)
            })??;
            if let (Some(own), false) = (self.progress.best, trials.is_empty()) {
                let epochs = trials.iter().map(|trial| trial.epoch).sum::<usize>() + own.epoch;
                chosen.epochs = Some((epochs as f64 / (trials.len() + 1) as f64).round() as usize);
            }
            // Measured as it was chosen, without the validation part; what is kept learns from that too.
            self.solved = self.pool.install(|| chosen.solved_already(&train, weights))?;
            self.progress.blend = Some(chosen);
            self.progress.validation = Some(self.evaluate(&train, &part, &metrics)?);
            self.solved = None;
        } else {
            let blend = blend::unchosen(&self.config, self.data.n_items());
            self.progress.blend = Some(Chosen { blend, ..Chosen::default() });
        }
        self.progress.phase = Phase::Chosen;
        Ok(())
    }

    /// More trainings like this one, each with another part held out, where one part is too few users to choose by.
    ///
    /// Data of so few users are learned from in seconds, so nobody is told of their steps, and a run that is interrupted
    /// meanwhile does them again.
    fn trials(&self, part: &Interactions) -> Result<Vec<Trial>> {
        let again = matches!(&self.refit, Some(all) if Arc::ptr_eq(all, &self.data));
        let n = match again && !Arc::ptr_eq(&self.train, &self.data) {
            true => n_trials(&self.config, part, &self.data),
            false => 1,
        };
        let seeds = (1..n as u64).map(|trial| self.config.seed.wrapping_add(trial << 32));
        seeds.map(|seed| Trial::run(&self.data, &Config { seed, ..self.config.clone() })).collect()
    }

    /// Epochs of a training on everything; none where the network is left out.
    fn chosen_epochs(&self) -> usize {
        if self.is_without_network() {
            return 0;
        }
        let together = self.progress.blend.as_ref().and_then(|chosen| chosen.epochs);
        together.or(self.progress.best.map(|best| best.epoch)).unwrap_or(self.config.epochs)
    }

    /// What stands beside the network or in its place, once that was chosen; None where the network stands alone.
    pub fn blend(&self) -> Option<&Blend> {
        self.progress.blend.as_ref()?.blend.as_ref()
    }

    /// What scores in the end, as far as it is here: of both phases, of the best validation, or of now.
    fn kept(&self) -> &Parameters {
        self.pair.as_ref().or(self.best.as_ref()).unwrap_or(&self.state.parameters)
    }

    /// Whether the networks of both phases are there, and stay.
    fn is_pair(&self) -> bool {
        let refit = self.progress.phase == Phase::Refit && self.has_all_epochs();
        self.config.pair && refit && !self.is_without_network()
    }

    /// Whether the network was left out.
    fn is_without_network(&self) -> bool {
        self.blend().is_some_and(|blend| blend.without_network)
    }

    /// Solves the linear part on all that may be learned from.
    fn solve(&mut self) -> Result<()> {
        let Some(chosen) = self.progress.blend.as_ref().filter(|_| self.solved.is_none()) else {
            return Ok(());
        };
        let data = match (self.progress.phase, &self.refit) {
            (Phase::Refit, Some(data)) => data,
            _ => &self.data,
        };
        self.solved = self.pool.install(|| chosen.solved(data))?;
        Ok(())
    }

    /// Starts anew, on everything. What the first phase has chosen is kept until this one is through.
    fn begin_refit(&mut self) -> Result<()> {
        let data = self.refit.clone().expect("this phase is entered with data alone");
        self.solved = None;
        if self.is_without_network() {
            self.progress.phase = Phase::Refit;
            return Ok(());
        }
        self.parameters()?;
        if self.best.is_none() {
            self.best = Some(std::mem::take(&mut self.state.parameters));
        }
        // The tables of one run at a time: what was learned was kept above.
        drop(std::mem::take(&mut self.state));
        self.users = active(&data);
        self.under_way = false;
        let progress = &mut self.progress;
        *progress = Progress {
            phase: Phase::Refit,
            best: progress.best,
            records: std::mem::take(&mut progress.records),
            validation: progress.validation.take(),
            blend: progress.blend.take(),
            evaluation: progress.evaluation.take(),
            ..Progress::default()
        };
        let config = self.phase_config();
        self.state = self.pool.install(|| RunState::new(&config, &data))?;
        self.backend.restart(&config, data, &self.state)
    }

    /// The settings of the phase under way: the second network of a pair has random numbers of its own, or the two would differ
    /// less than a pair should.
    fn phase_config(&self) -> Config {
        let second = self.config.pair && self.progress.phase == Phase::Refit;
        let seed = self.config.seed.wrapping_add(if second { SECOND_SEED } else { 0 });
        Config { seed, ..self.config.clone() }
    }

    /// Runs `work` and adds its time to the epoch's.
    fn timed<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let (clock, cpu) = (Instant::now(), resources::cpu_seconds());
        let result = work(self);
        self.progress.sums.seconds += clock.elapsed().as_secs_f64();
        self.progress.sums.cpu_seconds += resources::cpu_seconds() - cpu;
        result
    }

    fn note_step(&mut self, report: StepReport, n_users: usize) {
        let Progress { sums, step_in_epoch, step, .. } = &mut self.progress;
        sums.add(report);
        sums.users += n_users;
        *step_in_epoch += 1;
        *step += 1;
    }

    /// Validates where it is due, records the epoch, and moves on to the next.
    fn finish_epoch(&mut self) -> Result<EpochRecord> {
        let epoch = self.progress.epoch;
        let sums = self.progress.sums;
        let refit = self.progress.phase == Phase::Refit;
        let last = epoch + 1 == self.config.epochs;
        let due = (epoch + 1).is_multiple_of(self.config.validate_every) || last;
        let validation = if due && !refit { self.validate()? } else { None };
        let n = sums.users.max(1) as f64;
        let record = EpochRecord {
            epoch: epoch + 1,
            refit,
            loss: (sums.likelihood_loss + sums.weighted_kl) / n,
            likelihood_loss: sums.likelihood_loss / n,
            kl: sums.kl / n,
            learning_rate: self.config.learning_rate * self.config.decay.at(epoch, self.config.epochs),
            validation: validation.map(|estimate| estimate.mean),
            seconds: sums.seconds,
            index_seconds: sums.index_seconds,
            cpu_seconds: sums.cpu_seconds,
            users_per_second: n / sums.seconds.max(1e-9),
            proposal: self.diagnose(epoch)?,
        };
        if !record.loss.is_finite() {
            return Err(Error::Diverged { epoch: record.epoch, loss: record.loss });
        }
        if let Some(estimate) = validation {
            self.note_validation(epoch + 1, estimate)?;
        }
        let progress = &mut self.progress;
        progress.records.push(record.clone());
        progress.sums = Sums::default();
        progress.step_in_epoch = 0;
        progress.epoch += 1;
        self.under_way = false;
        if refit && self.has_all_epochs() && !self.config.pair {
            self.best = None;
        }
        Ok(record)
    }

    /// How well the parameters of now do on the validation part, where there is one.
    fn validate(&mut self) -> Result<Option<Estimate>> {
        let Self { backend, state, train, validation, pool, config, .. } = self;
        let Some(part) = validation else { return Ok(None) };
        let metrics = &[VALIDATION_METRIC];
        let ranked = pool.install(|| {
            evaluate_lists(train, part, metrics, |users, k| backend.rank(None, train, users, k))
        })?;
        let evaluation = match ranked {
            Some(evaluation) => evaluation,
            None => {
                backend.download(state, Part::Parameters)?;
                let network = state.parameters.network(config.activation);
                pool.install(|| evaluate(network, train, part, metrics))?
            }
        };
        Ok(evaluation.metrics.get(&VALIDATION_METRIC).copied())
    }

    /// Keeps the parameters unless this validation is worse than the best by more than its noise.
    ///
    /// The noise is half a standard error over the validation users. Within it the later epoch is kept: as the
    /// step size falls, later is better on average, and the largest of many noisy values is not.
    fn note_validation(&mut self, epoch: usize, estimate: Estimate) -> Result<()> {
        let Progress { best, highest, waited, .. } = &mut self.progress;
        let value = estimate.mean;
        *highest = highest.max(value);
        if value < *highest - 0.5 * estimate.standard_error.unwrap_or(0.0) {
            *waited += 1;
            return Ok(());
        }
        *waited = 0;
        *best = Some(BestEpoch { epoch, value });
        self.backend.download(&mut self.state, Part::Parameters)?;
        match &mut self.best {
            Some(best) => best.copy_from(&self.state.parameters),
            best => *best = Some(self.state.parameters.clone()),
        }
        Ok(())
    }

    /// How close the proposal is to the softmax; not where the state would have to be fetched from a device for it.
    fn diagnose(&mut self, epoch: usize) -> Result<Option<ProposalDiagnostics>> {
        if self.backend.is_remote() {
            return Ok(None);
        }
        self.backend.download(&mut self.state, Part::Everything)?;
        let Self { config, state, users, pool, .. } = self;
        let data = if self.progress.phase == Phase::Refit { self.refit.as_ref() } else { None };
        let data = data.unwrap_or(&self.train);
        Ok(pool.install(|| diagnostics::diagnose(config, state, data, users, epoch)))
    }
}
