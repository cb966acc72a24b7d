//! The one error type of the library.
//!
//! Every message names what is wrong, where, and what to do about it: `path:line: problem; remedy`.

use std::path::{Path, PathBuf};

/// The result of every fallible function of the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, with the numbers needed to act on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to open, read or write a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason the operating system gave.
        source: std::io::Error,
    },

    /// A data file holds something that cannot be read as interactions or titles.
    #[error("{}{}: {problem}; {remedy}", path.display(), line.map(|n| format!(":{n}")).unwrap_or_default())]
    Input {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1, where the format has lines.
        line: Option<u64>,
        /// What is wrong, with the offending value.
        problem: String,
        /// What to change.
        remedy: String,
    },

    /// The interactions are readable but cannot be used as asked.
    #[error("{problem}; {remedy}")]
    Data {
        /// What is wrong, with the numbers.
        problem: String,
        /// What to change.
        remedy: String,
    },

    /// A configuration key has a value that cannot work.
    #[error("configuration key `{key}`: {problem}; {remedy}")]
    Config {
        /// The key, in dotted form (`kl.beta`).
        key: String,
        /// What is wrong, with the value.
        problem: String,
        /// What to change.
        remedy: String,
    },

    /// A model file or checkpoint is damaged, hostile, or of another version.
    #[error("{}: {problem}; {remedy}", path.display())]
    ModelFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
        /// What to do.
        remedy: String,
    },

    /// Training left the numbers that can be computed with.
    #[error("the loss became {loss} in epoch {epoch}; lower `learning_rate`, or set `clip`")]
    Diverged {
        /// Epoch, counted from 1.
        epoch: usize,
        /// Loss per user.
        loss: f64,
    },

    /// A GPU is missing, too small, or reported a failure.
    #[error("{problem}; {remedy}")]
    Device {
        /// What is wrong, with what the driver said.
        problem: String,
        /// What to do.
        remedy: String,
    },

    /// Whoever watched the work asked to stop it.
    #[error("interrupted; nothing is kept")]
    Interrupted,

    /// An identifier that the model or the data does not know.
    #[error("unknown {what} `{id}`; {remedy}")]
    UnknownId {
        /// `item` or `user`.
        what: &'static str,
        /// The identifier as it was given.
        id: String,
        /// What to do.
        remedy: String,
    },
}

impl Error {
    /// An [`Error::Io`] for `path`.
    pub fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Self::Io { path: path.as_ref().to_path_buf(), source }
    }

    /// An [`Error::Input`] for a line of `path`.
    pub(crate) fn input(
        path: impl AsRef<Path>,
        line: impl Into<Option<u64>>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::Input {
            path: path.as_ref().to_path_buf(),
            line: line.into(),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }

    /// An [`Error::Data`].
    pub fn data(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Data { problem: problem.into(), remedy: remedy.into() }
    }

    /// An [`Error::Config`] for the dotted `key`.
    pub fn config(key: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Config { key: key.into(), problem: problem.into(), remedy: remedy.into() }
    }

    /// An [`Error::Device`].
    pub(crate) fn device(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Device { problem: problem.into(), remedy: remedy.into() }
    }

    /// An [`Error::ModelFile`] for `path`.
    pub fn model_file(path: impl AsRef<Path>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::ModelFile { path: path.as_ref().to_path_buf(), problem: problem.into(), remedy: remedy.into() }
    }
}
