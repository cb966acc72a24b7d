//! What the parts of one call share: directories, how much to do, and what is already done.

use std::path::PathBuf;

use anyhow::{Context, Result};
use fastvae::{Config, Error};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::io;
use crate::interrupt;
use crate::plot::write;

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
}

/// What a file of `runs` holds.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered<T> {
    task: Value,
    result: T,
}

impl Session {
    /// The result of `work`, from the file that an earlier run left where there is one; `task` is everything that
    /// the result depends on.
    ///
    /// # Errors
    /// What `work` reports; if the file is of another task; [`Error::Interrupted`] after Ctrl-C, with
    /// nothing remembered of work under way.
    pub fn remembered<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        task: Value,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let path = self.runs.join(format!("{name}.json"));
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let found: Remembered<T> = serde_json::from_str(&text).with_context(|| {
                    format!("{} is not a result of this command; remove it", path.display())
                })?;
                anyhow::ensure!(
                    found.task == task,
                    "{} is of other data or settings; give another directory with -o, or remove it",
                    path.display()
                );
                return Ok(found.result);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(io(&path, error)),
        }
        stop_if_asked()?;
        tracing::info!("{name}");
        let result = work()?;
        stop_if_asked()?;
        let remembered = Remembered { task, result };
        write(&path, &serde_json::to_vec_pretty(&remembered)?)?;
        Ok(remembered.result)
    }
}

/// # Errors
/// [`Error::Interrupted`] after Ctrl-C.
pub fn stop_if_asked() -> Result<()> {
    if interrupt::requested() { Err(Error::Interrupted.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finished_work_is_not_repeated_and_other_work_is_not_mistaken_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let session = Session {
            output: directory.path().into(),
            runs: directory.path().into(),
            data: PathBuf::new(),
            effort: Effort::Quick,
        };
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
