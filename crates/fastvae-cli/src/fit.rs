//! Training with everything around it: progress, history file, checkpoints, interruption.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastvae::baseline::Settings;
use fastvae::data::Interactions;
use fastvae::internals::resources;
use fastvae::internals::train::{Phase, TrainingInternals, fit_with};
use fastvae::train::{Control, EpochRecord, Event, Finish, Outcome, Training};
use fastvae::{Error, Model};

use crate::failure;
use crate::interrupt;
use crate::progress::{PassProgress, Progress};

/// Where and when a run is saved so that it can go on later.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    /// The file.
    pub path: PathBuf,
    /// Time between checkpoints.
    pub every: Duration,
    /// Epochs between checkpoints, where asked for.
    pub every_epochs: Option<usize>,
}

/// A file of epoch records, one JSON object a line.
#[derive(Debug)]
pub struct EpochLog {
    path: PathBuf,
    file: File,
}

impl EpochLog {
    /// Starts the file at `path` with the records that a resumed run already has.
    ///
    /// A run that was killed may have logged epochs after its last checkpoint; they will come again, so the file
    /// is written anew rather than appended to.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn start(path: &Path, records: &[EpochRecord]) -> Result<Self> {
        let file = File::create(path).map_err(|source| failure::io(path, source))?;
        let mut log = Self { path: path.to_path_buf(), file };
        for record in records {
            log.add(record)?;
        }
        Ok(log)
    }

    fn add(&mut self, record: &EpochRecord) -> fastvae::Result<()> {
        let mut line = serde_json::to_vec(record).expect("a record is JSON");
        line.push(b'\n');
        self.file.write_all(&line).map_err(|source| Error::io(&self.path, source))
    }
}

/// Trains `training` to its end, or until Ctrl-C; then, with `checkpoints`, its state is saved. `when_chosen` is called once
/// the epochs are chosen, and again where a run goes on from there.
///
/// # Errors
/// What the run, the checkpoints, the log or `when_chosen` report.
pub fn fit(
    training: &mut Training,
    checkpoints: Option<&Checkpoints>,
    mut log: Option<&mut EpochLog>,
    mut when_chosen: impl FnMut(&mut Training) -> Result<()>,
) -> Result<Outcome> {
    let mut progress = Progress::of(training);
    let mut saved = Instant::now();
    if training.phase() != Phase::Choosing {
        when_chosen(training)?;
    }
    while let Some(event) = training.advance()? {
        progress.show(&event);
        let mut due = false;
        match &event {
            Event::Epoch(record) => {
                if let Some(log) = &mut log {
                    log.add(record)?;
                }
                let every = checkpoints.and_then(|checkpoints| checkpoints.every_epochs);
                due = every.is_some_and(|n| record.epoch % n == 0);
            }
            Event::Chosen => {
                if let Some(blend) = training.blend() {
                    tracing::info!("chosen: {blend}");
                }
                when_chosen(training)?;
                progress = Progress::of(training);
            }
            _ => {}
        }
        let stop = interrupt::requested() && !training.is_finished();
        if let Some(checkpoints) = checkpoints
            && (stop || due || saved.elapsed() >= checkpoints.every)
        {
            training.save_checkpoint(&checkpoints.path)?;
            tracing::debug!(path = %checkpoints.path.display(), "saved a checkpoint");
            saved = Instant::now();
        }
        if stop {
            return Ok(Outcome::Interrupted);
        }
    }
    Ok(Outcome::Finished)
}

/// Trains epoch by epoch until Ctrl-C, without a word; `after` each it is looked at.
///
/// # Errors
/// [`Error::Interrupted`] after Ctrl-C; what the run and `after` report.
pub fn fit_quietly(
    training: &mut Training,
    mut after: impl FnMut(&mut Training, &EpochRecord) -> Result<()>,
) -> Result<()> {
    while let Some(event) = training.advance()? {
        if let Event::Epoch(record) = &event {
            after(training, record)?;
        }
        if interrupt::requested() {
            return Err(Error::Interrupted.into());
        }
    }
    Ok(())
}

/// A stopwatch that starts now: seconds since then, and processor seconds over all threads.
pub fn stopwatch() -> impl Fn() -> (f64, f64) {
    let (clock, cpu) = (Instant::now(), resources::cpu_seconds());
    move || (clock.elapsed().as_secs_f64(), resources::cpu_seconds() - cpu)
}

/// A trained model and what it took.
pub struct Fitted {
    /// The model.
    pub model: Model,
    /// Seconds of training.
    pub seconds: f64,
    /// Processor seconds of it, over all threads.
    pub cpu_seconds: f64,
}

/// Trains a baseline with a progress bar, or with a line in the log for each pass, until Ctrl-C.
///
/// # Errors
/// As [`fit_with`].
pub fn fit_baseline(data: &Arc<Interactions>, settings: &Settings, with: Finish) -> fastvae::Result<Fitted> {
    let progress = PassProgress::of(settings.kind());
    let took = stopwatch();
    // The index and what else finishes a model come after the last pass, where there are passes.
    let mut learned = None;
    let model = fit_with(Arc::clone(data), settings, with, |event| {
        if let &Event::Pass { done, total, loss } = event {
            progress.show(done, total, loss);
            learned = (done == total).then(&took);
        }
        if interrupt::requested() { Control::Stop } else { Control::Continue }
    })?;
    let (seconds, cpu_seconds) = learned.unwrap_or_else(took);
    Ok(Fitted { model, seconds, cpu_seconds })
}
