//! The library's errors as Python exceptions of the type that a caller would look for.

use fastvae::Error;
use pyo3::PyErr;
use pyo3::exceptions::{
    PyFileNotFoundError, PyFloatingPointError, PyKeyError, PyKeyboardInterrupt, PyOSError, PyRuntimeError,
    PyValueError,
};

/// ENOENT on every system that Python runs on.
const NO_SUCH_FILE: i32 = 2;

/// The exception for `error`, with its message.
pub fn raised(error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        // Called with a number and a path, OSError becomes FileNotFoundError, PermissionError and so on.
        Error::Io { path, source } => match source.raw_os_error() {
            Some(number) => {
                let text = source.to_string();
                let text = text.split(" (os error").next().unwrap_or_default().to_string();
                PyOSError::new_err((number, text, path.into_os_string()))
            }
            None => PyOSError::new_err(message),
        },
        // The readers say so as an error of input; Python has its own word for it.
        Error::Input { path, problem, .. } if !path.exists() => {
            PyFileNotFoundError::new_err((NO_SUCH_FILE, problem, path.into_os_string()))
        }
        Error::Input { .. } | Error::Data { .. } | Error::Config { .. } | Error::ModelFile { .. } => {
            PyValueError::new_err(message)
        }
        Error::Diverged { .. } => PyFloatingPointError::new_err(message),
        Error::Interrupted => PyKeyboardInterrupt::new_err(message),
        Error::UnknownId { .. } => PyKeyError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

/// A ValueError for a setting of the Python side that does not fit the library's struct.
pub fn bad_settings(key: Option<&str>, error: serde_json::Error) -> PyErr {
    // The place within the JSON means nothing to who gave keyword arguments.
    let text = error.to_string();
    let problem = text.split(" at line ").next().unwrap_or_default();
    PyValueError::new_err(match key {
        Some(key) => format!("`{key}`: {problem}"),
        None => problem.to_string(),
    })
}
