//! The training loop: shuffled batches, index refreshes, validation, early stopping, checkpoints.
//!
//! A run is a pure function of its configuration and data: the number of threads, and where it was interrupted
//! and resumed, change nothing but its time.

mod checkpoint;
mod diagnostics;
mod record;

pub use record::{Control, EpochRecord, Event, ProposalDiagnostics, StepProgress};

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::backend::{self, Backend, PhaseTimes, StepContext, StepReport};
use crate::config::Config;
use crate::data::{Interactions, Statistics, UserId, hold_out};
use crate::error::{Error, Result};
use crate::eval::{Estimate, Evaluation, Measure, Metric, evaluate, evaluate_lists};
use crate::index::{IndexSettings, InvertedMultiIndex};
use crate::loss::KlWeight;
use crate::math::{Purpose, Stream};
use crate::model::{Parameters, ParametersView};
use crate::model_file::{Description, Model};
use crate::resources;

/// What early stopping watches.
pub const VALIDATION_METRIC: Metric = Metric { measure: Measure::Ndcg, k: 50 };
/// Share of a validation user's items that is held out.
const VALIDATION_SHARE: f64 = 0.2;

/// A training run, from its first step or from a checkpoint.
#[derive(Debug)]
pub struct Training {
    config: Config,
    train: Arc<Interactions>,
    validation: Option<Interactions>,
    /// Users with interactions: those that a batch can hold.
    users: Vec<UserId>,
    backend: Box<dyn Backend>,
    pool: rayon::ThreadPool,
    progress: Progress,
    /// The parameters of the best validation, where there is one.
    best: Option<Parameters>,
}

/// Trains a model on `data` from start to end; `observer` is told of every step and epoch and may stop the run.
///
/// # Errors
/// What [`Training::new`] and [`Training::run`] report.
pub fn train(
    data: Interactions,
    config: &Config,
    mut observer: impl FnMut(Event<'_>) -> Control,
) -> Result<Model> {
    let mut run = Training::new(config, data)?;
    run.run(|_, event| Ok(observer(event)))?;
    run.into_model()
}

/// How [`Training::run`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All epochs ran, or validation stopped improving.
    Finished,
    /// The observer asked to stop; [`Training::run`] continues from there.
    Interrupted,
}

/// Where a run stands: with the backend's state, all that a checkpoint needs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Progress {
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

/// Refuses data that nothing can be learned from.
fn check_data(data: &Interactions) -> Result<()> {
    let (interactions, items) = (data.n_interactions(), data.n_items());
    if interactions == 0 || items < 2 {
        return Err(Error::data(
            format!("{interactions} interactions with {items} items are nothing to learn from"),
            "give more data, or a lower --k-core or --min-rating",
        ));
    }
    Ok(())
}

impl Training {
    /// A run that has not begun. With `patience` above 0, a small validation part is held out of a copy of `data`; else the
    /// data itself is trained on, and several runs may share one.
    ///
    /// # Errors
    /// [`Error::Config`] for settings that cannot work, [`Error::Data`] if there is nothing to learn from.
    pub fn new(config: &Config, data: impl Into<Arc<Interactions>>) -> Result<Self> {
        let data = data.into();
        config.validate()?;
        check_data(&data)?;
        match config.patience {
            0 => Self::start(config, data, None),
            _ => {
                let n_users = config.validation_users.min(data.n_users().div_ceil(10));
                let (train, validation) = hold_out(&data, n_users, VALIDATION_SHARE, config.seed)?;
                Self::start(config, Arc::new(train), Some(validation))
            }
        }
    }

    /// As [`Training::new`], with a validation part that is given: row u of both belongs to the same user. The
    /// model learns from all of `data`.
    ///
    /// # Errors
    /// As [`Training::new`], and [`Error::Data`] if the two differ in users or items, or nothing is to be validated
    /// on.
    pub fn with_validation(config: &Config, data: Interactions, validation: Interactions) -> Result<Self> {
        config.validate()?;
        check_data(&data)?;
        let (of_data, of_validation) =
            ((data.n_users(), data.n_items()), (validation.n_users(), validation.n_items()));
        if of_data != of_validation || validation.n_interactions() == 0 {
            return Err(Error::data(
                format!(
                    "the validation part has {} interactions of {} x {} users and items, the data is {} x {}",
                    validation.n_interactions(),
                    of_validation.0,
                    of_validation.1,
                    of_data.0,
                    of_data.1
                ),
                "give held-out interactions of the same users and items",
            ));
        }
        Self::start(config, Arc::new(data), Some(validation))
    }

    fn start(config: &Config, train: Arc<Interactions>, validation: Option<Interactions>) -> Result<Self> {
        let threads = config.n_threads();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|n| format!("fastvae-{n}"))
            .build()
            .map_err(|e| {
                Error::config("threads", format!("{threads} threads cannot be started ({e})"), "give fewer")
            })?;
        let backend = pool.install(|| backend::open(config, train.clone()))?;
        let users = (0..train.n_users() as UserId)
            .filter(|&user| !train.row(user as usize).items.is_empty())
            .collect();
        Ok(Self {
            config: config.clone(),
            train,
            validation,
            users,
            backend,
            pool,
            progress: Progress::default(),
            best: None,
        })
    }

    /// The settings of the run.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What the model learns from: the data less the validation part.
    pub fn train_part(&self) -> &Arc<Interactions> {
        &self.train
    }

    /// What every finished epoch reported.
    pub fn records(&self) -> &[EpochRecord] {
        &self.progress.records
    }

    /// The validation whose parameters are kept, where there is a validation part.
    pub fn best(&self) -> Option<BestEpoch> {
        self.progress.best
    }

    /// Epochs from one refresh of the index to the next.
    pub fn refresh_interval(&self) -> usize {
        self.config.refresh_interval(self.users.len(), self.train_part().n_items())
    }

    /// What the run trains on, in words.
    pub fn device(&self) -> String {
        self.backend.name()
    }

    /// The weight of the KL divergence in use.
    pub fn kl_weight(&self) -> KlWeight {
        self.backend.kl_weight()
    }

    /// Time of each phase since the start, summed over threads.
    pub fn phase_times(&self) -> PhaseTimes {
        self.backend.phase_times()
    }

    /// The threads that the run works on.
    pub fn pool(&self) -> &rayon::ThreadPool {
        &self.pool
    }

    /// The parameters of the best validation, or without one those of now.
    ///
    /// # Errors
    /// What the device reports.
    pub fn parameters(&mut self) -> Result<&Parameters> {
        match &self.best {
            Some(best) => Ok(best),
            None => self.backend.parameters(),
        }
    }

    /// Runs `work` on [`Training::parameters`], on the run's threads.
    ///
    /// # Errors
    /// What the device reports.
    pub fn with_parameters<T: Send>(
        &mut self,
        work: impl FnOnce(ParametersView<'_>) -> T + Send,
    ) -> Result<T> {
        let parameters = match &self.best {
            Some(best) => best,
            None => self.backend.parameters()?,
        };
        Ok(self.pool.install(|| work(parameters.view())))
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
        let Self { backend, best, pool, .. } = self;
        let best = best.as_ref();
        let ranked = pool.install(|| {
            evaluate_lists(histories, test, metrics, |users, k| backend.rank(best, histories, users, k))
        })?;
        match ranked {
            Some(evaluation) => Ok(evaluation),
            None => self.with_parameters(|parameters| evaluate(parameters, histories, test, metrics))?,
        }
    }

    /// The parameters as the last step left them.
    ///
    /// # Errors
    /// What the device reports.
    pub fn latest_parameters(&mut self) -> Result<&Parameters> {
        self.backend.parameters()
    }

    /// Ends the run and makes a model of its [`Training::parameters`], with an index over its item vectors.
    ///
    /// # Errors
    /// What [`Model::new`] and the index report.
    pub fn into_model(self) -> Result<Model> {
        let Self { config, train, mut backend, pool, progress, best, .. } = self;
        let mut description = Description::new(config.clone());
        let json =
            |value: serde_json::Result<serde_json::Value>| value.expect("plain structs always become JSON");
        description.statistics = Some(json(serde_json::to_value(Statistics::of(&train))));
        description.epochs =
            progress.records.iter().map(|record| json(serde_json::to_value(record))).collect();
        let parameters = match best {
            Some(best) => best,
            None => backend.host()?.take_parameters(),
        };
        drop(backend);
        let settings = IndexSettings::from(&config);
        let index = (settings.n_codewords <= train.n_items()).then(|| {
            let vectors = parameters.items.view();
            pool.install(|| {
                InvertedMultiIndex::build(vectors, settings, None, config.seed, config.epochs as u32)
            })
        });
        let model = Model::new(parameters, train.item_ids().clone(), train.item_counts(), description)?;
        match index {
            Some(index) => model.with_index(index?),
            None => Ok(model),
        }
    }

    /// Whether nothing is left to do.
    pub fn is_finished(&self) -> bool {
        let Progress { epoch, waited, .. } = self.progress;
        epoch >= self.config.epochs || (self.config.patience > 0 && waited >= self.config.patience)
    }

    /// Trains to the end, or until `observer` asks to stop; it is told of every step and every epoch.
    ///
    /// # Errors
    /// What the backend or the observer's checkpoints report.
    pub fn run(
        &mut self,
        mut observer: impl FnMut(&mut Self, Event<'_>) -> Result<Control>,
    ) -> Result<Outcome> {
        while !self.is_finished() {
            if self.run_epoch(&mut observer)? == Control::Stop {
                return Ok(Outcome::Interrupted);
            }
        }
        Ok(Outcome::Finished)
    }

    /// Trains the epoch under way to its end.
    fn run_epoch(
        &mut self,
        observer: &mut impl FnMut(&mut Self, Event<'_>) -> Result<Control>,
    ) -> Result<Control> {
        let epoch = self.progress.epoch;
        if self.progress.step_in_epoch == 0 {
            let interval = self.refresh_interval();
            self.timed(|run| match epoch % interval {
                0 => run.pool.install(|| run.backend.refresh(epoch)),
                _ => Ok(()),
            })?;
            self.progress.sums.index_seconds = self.progress.sums.seconds;
        }
        let mut order = self.users.clone();
        Stream::new(self.config.seed, Purpose::Shuffle, epoch as u32, 0).shuffle(&mut order);
        let n_steps = order.len().div_ceil(self.config.batch);
        let context = StepContext { epoch, step: self.progress.step };
        let done = self.progress.step_in_epoch * self.config.batch;
        self.timed(|run| run.backend.begin_epoch(context, &order, done))?;
        for batch in order.chunks(self.config.batch).skip(self.progress.step_in_epoch) {
            let context = StepContext { epoch, step: self.progress.step };
            let report = self.timed(|run| run.backend.step(batch, context))?;
            self.note_step(report, batch.len());
            let sums = &self.progress.sums;
            let progress = StepProgress {
                epoch: epoch + 1,
                step: self.progress.step_in_epoch,
                n_steps,
                loss: (sums.likelihood_loss + sums.weighted_kl) / sums.users as f64,
                kl: sums.kl / sums.users as f64,
                users_per_second: sums.users as f64 / sums.seconds.max(1e-9),
            };
            // The last step is told of with its epoch, so that a stop there resumes after the validation.
            if progress.step < n_steps && observer(self, Event::Step(progress))? == Control::Stop {
                return Ok(Control::Stop);
            }
        }
        let report = self.timed(|run| run.backend.end_epoch())?;
        self.progress.sums.add(report);
        self.finish_epoch()?;
        let record = self.progress.records.last().expect("an epoch has just been recorded").clone();
        observer(self, Event::Epoch(&record))
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
    fn finish_epoch(&mut self) -> Result<()> {
        let epoch = self.progress.epoch;
        let sums = self.progress.sums;
        let last = epoch + 1 == self.config.epochs;
        let validation = match &self.validation {
            Some(part) if (epoch + 1).is_multiple_of(self.config.validate_every) || last => {
                let Self { backend, train, pool, .. } = self;
                let metrics = &[VALIDATION_METRIC];
                let ranked = pool.install(|| {
                    evaluate_lists(train, part, metrics, |users, k| backend.rank(None, train, users, k))
                })?;
                let evaluation = match ranked {
                    Some(evaluation) => evaluation,
                    None => {
                        let parameters = backend.parameters()?.view();
                        pool.install(|| evaluate(parameters, train, part, metrics))?
                    }
                };
                evaluation.metrics.get(&VALIDATION_METRIC).copied()
            }
            _ => None,
        };
        let n = sums.users.max(1) as f64;
        let record = EpochRecord {
            epoch: epoch + 1,
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
        progress.records.push(record);
        progress.sums = Sums::default();
        progress.step_in_epoch = 0;
        progress.epoch += 1;
        Ok(())
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
        match &mut self.best {
            Some(best) => best.copy_from(self.backend.parameters()?),
            best => *best = Some(self.backend.parameters()?.clone()),
        }
        Ok(())
    }

    /// How close the proposal is to the softmax; not where the state would have to be fetched from a device for it.
    fn diagnose(&mut self, epoch: usize) -> Result<Option<ProposalDiagnostics>> {
        if !self.backend.has_host_state() {
            return Ok(None);
        }
        let host = self.backend.host()?;
        let found =
            self.pool.install(|| diagnostics::diagnose(&self.config, host, &self.train, &self.users, epoch));
        Ok(found)
    }
}
