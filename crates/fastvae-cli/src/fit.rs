//! Training with everything around it: progress, history file, checkpoints, interruption.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use fastvae::train::{Control, EpochRecord, Event, Outcome, Training};

use crate::failure;
use crate::interrupt;
use crate::progress::Progress;

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
        self.file.write_all(&line).map_err(|source| fastvae::Error::io(&self.path, source))
    }
}

/// Runs `training` to its end, or until Ctrl-C; then, with `checkpoints`, its state is saved.
///
/// # Errors
/// What the run, the checkpoints or the log report.
pub fn fit(
    training: &mut Training,
    checkpoints: Option<&Checkpoints>,
    mut log: Option<&mut EpochLog>,
) -> Result<Outcome> {
    let mut progress = Progress::of(training);
    let mut saved = Instant::now();
    let outcome = training.run(|run, event| {
        progress.show(&event);
        let mut due = false;
        if let Event::Epoch(record) = event {
            if let Some(log) = &mut log {
                log.add(record)?;
            }
            let every = checkpoints.and_then(|checkpoints| checkpoints.every_epochs);
            due = every.is_some_and(|n| record.epoch % n == 0);
        }
        if interrupt::requested() {
            return Ok(Control::Stop);
        }
        if let Some(checkpoints) = checkpoints
            && (due || saved.elapsed() >= checkpoints.every)
        {
            run.save_checkpoint(&checkpoints.path)?;
            tracing::debug!(path = %checkpoints.path.display(), "saved a checkpoint");
            saved = Instant::now();
        }
        Ok(Control::Continue)
    });
    drop(progress);
    let outcome = outcome?;
    if let (Outcome::Interrupted, Some(checkpoints)) = (outcome, checkpoints) {
        training.save_checkpoint(&checkpoints.path)?;
    }
    Ok(outcome)
}
