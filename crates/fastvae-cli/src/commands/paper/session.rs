//! What the parts of one call share: directories, how much to do, and what is already done.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use fastvae::{Config, Error};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::io;
use crate::interrupt;
use crate::output::write;

/// How much is trained and measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// As much as the paper.
    Full,
    /// Enough to see the shape, in minutes.
    Quick,
}

impl Effort {
    /// Where results go unless told otherwise: never one kind among the other.
    pub fn directory(self) -> &'static str {
        match self {
            Self::Full => "paper",
            Self::Quick => "paper-quick",
        }
    }

    /// The value for this effort.
    pub fn choose<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }

    /// The paper's settings of a model; a short run takes larger steps, to get somewhere.
    pub fn config(self) -> Config {
        match self {
            Self::Full => Config::paper(),
            Self::Quick => Config { epochs: 12, learning_rate: 3e-3, ..Config::paper() },
        }
    }

    /// The epochs after which a model is tested, ascending; the last one is the last of all.
    pub fn tested_epochs(self) -> Vec<usize> {
        let epochs = match self {
            Self::Full => vec![1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 60, 80, 100, 120, 140, 160, 180, 200],
            Self::Quick => vec![1, 2, 4, 8, 12],
        };
        debug_assert_eq!(epochs.last(), Some(&self.config().epochs));
        epochs
    }
}

/// One call of `fastvae paper`.
#[derive(Debug)]
pub struct Session {
    /// Where pages go.
    pub output: PathBuf,
    /// Where results of single runs go.
    pub runs: PathBuf,
    /// Where the datasets are.
    pub data: PathBuf,
    /// How much to do.
    pub effort: Effort,
    /// Trials of the comparison with baselines.
    pub trials: usize,
}

/// Something to measure.
pub struct Job<'a, T> {
    /// The name of its file.
    pub name: String,
    /// Everything that the result depends on.
    pub task: Value,
    /// Measures it.
    pub work: Box<dyn Fn() -> Result<T> + 'a>,
}

/// What a file of `runs` holds.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered<T> {
    task: Value,
    result: T,
}

impl Session {
    /// The result of one job; as [`Session::results`].
    pub fn remembered<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        task: Value,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut work = Some(work);
        loop {
            if let Some(result) = self.found_or_made(name, &task, &mut work)? {
                return Ok(result);
            }
            wait_for_others()?;
        }
    }

    /// The results of all jobs in their order, from the files that earlier runs left where there are some.
    ///
    /// Several processes may share one directory: each takes up what no other works on, and then waits for them.
    ///
    /// # Errors
    /// What a job reports; if a file is of another task; [`Error::Interrupted`] after Ctrl-C, with nothing
    /// remembered of work under way.
    pub fn results<T: Serialize + DeserializeOwned>(&self, jobs: &[Job<'_, T>]) -> Result<Vec<T>> {
        let mut results: Vec<Option<T>> = self.take_up(jobs)?;
        while results.iter().any(Option::is_none) {
            wait_for_others()?;
            for (job, result) in jobs.iter().zip(&mut results).filter(|(_, result)| result.is_none()) {
                *result = self.found_or_made(&job.name, &job.task, &mut Some(&job.work))?;
            }
        }
        Ok(results.into_iter().flatten().collect())
    }

    /// As [`Session::results`], but without waiting: None for what another process works on.
    ///
    /// # Errors
    /// As [`Session::results`].
    pub fn take_up<T: Serialize + DeserializeOwned>(&self, jobs: &[Job<'_, T>]) -> Result<Vec<Option<T>>> {
        jobs.iter().map(|job| self.found_or_made(&job.name, &job.task, &mut Some(&job.work))).collect()
    }

    /// The result from its file, or of `work`, which is then taken; None where another process makes it.
    fn found_or_made<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        task: &Value,
        work: &mut Option<impl FnOnce() -> Result<T>>,
    ) -> Result<Option<T>> {
        let path = self.runs.join(format!("{name}.json"));
        if let Some(result) = found(&path, task)? {
            return Ok(Some(result));
        }
        stop_if_asked()?;
        let lock_path = self.runs.join(format!("{name}.lock"));
        let lock = File::create(&lock_path).map_err(|source| io(&lock_path, source))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => return Err(io(&lock_path, source)),
        }
        // Who had the lock before may just have finished.
        if let Some(result) = found(&path, task)? {
            return Ok(Some(result));
        }
        let work = work.take().expect("work that was done has left a result");
        tracing::info!("{name}");
        let result = work()?;
        stop_if_asked()?;
        let remembered = Remembered { task: task.clone(), result };
        write(&path, &serde_json::to_vec_pretty(&remembered)?)?;
        // Not before there is a result: whoever waits for this lock must find one.
        std::fs::remove_file(&lock_path).map_err(|source| io(&lock_path, source))?;
        Ok(Some(remembered.result))
    }
}

/// What the file at `path` holds of `task`, where there is such a file.
fn found<T: DeserializeOwned>(path: &Path, task: &Value) -> Result<Option<T>> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|source| io(path, source))?,
    };
    let found: Remembered<T> = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a result of this command; remove it", path.display()))?;
    anyhow::ensure!(
        found.task == *task,
        "{} is of other data or settings; give another directory with -o, or remove it",
        path.display()
    );
    Ok(Some(found.result))
}

fn wait_for_others() -> Result<()> {
    stop_if_asked()?;
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

/// # Errors
/// [`Error::Interrupted`] after Ctrl-C.
pub fn stop_if_asked() -> Result<()> {
    if interrupt::requested() { Err(Error::Interrupted.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;

    fn session(directory: &Path) -> Session {
        Session {
            output: directory.into(),
            runs: directory.into(),
            data: PathBuf::new(),
            effort: Effort::Quick,
            trials: 1,
        }
    }

    #[test]
    fn finished_work_is_not_repeated_and_other_work_is_not_mistaken_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(directory.path());
        let mut calls = 0;
        for _ in 0..2 {
            let result = session.remembered("a", json!({ "n": 1 }), || {
                calls += 1;
                Ok(0.1 + 0.2)
            });
            assert_eq!(result.unwrap(), 0.1 + 0.2);
        }
        assert_eq!(calls, 1);
        let error = session.remembered("a", json!({ "n": 2 }), || Ok(1.0)).unwrap_err().to_string();
        assert!(error.contains("a.json") && error.contains("-o"), "{error}");
        let failed = session.remembered::<f64>("b", json!({}), || anyhow::bail!("no"));
        assert!(failed.is_err() && !directory.path().join("b.json").exists());
        assert_eq!(session.remembered("b", json!({}), || Ok(2.0)).unwrap(), 2.0);
        assert!(!directory.path().join("b.lock").exists());
    }

    #[test]
    fn what_another_process_works_on_is_left_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(directory.path());
        let made = Cell::new(0);
        let job = |name: &str| Job {
            name: name.to_string(),
            task: json!(name),
            work: Box::new(|| {
                made.set(made.get() + 1);
                Ok(made.get())
            }),
        };
        let jobs = [job("a"), job("b")];
        let theirs = File::create(directory.path().join("a.lock")).unwrap();
        theirs.lock().unwrap();
        assert_eq!(session.take_up(&jobs).unwrap(), [None, Some(1)]);
        // They end without a result, as if killed.
        drop(theirs);
        assert_eq!(session.results(&jobs).unwrap(), [2, 1]);
        assert_eq!(made.get(), 2);
    }

    #[test]
    fn models_are_tested_after_their_last_epoch() {
        for effort in [Effort::Full, Effort::Quick] {
            assert_eq!(effort.tested_epochs().last(), Some(&effort.config().epochs));
            assert!(effort.tested_epochs().is_sorted());
            effort.config().validate().unwrap();
        }
    }
}
