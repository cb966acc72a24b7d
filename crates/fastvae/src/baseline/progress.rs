//! [`Progress`]: how far the fit of a baseline has come.

use crate::control::Control;
use crate::error::{Error, Result};

/// How far a fit has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Passes over the data that are done.
    pub done: usize,
    /// Passes in all.
    pub total: usize,
    /// Mean loss of the last pass, for methods that take it along.
    pub loss: Option<f64>,
}

/// Whoever is told of each pass and may stop the work.
pub type Observer<'a> = dyn FnMut(Progress) -> Control + 'a;

/// Tells the observer of a pass.
pub(super) fn tell(observer: &mut Observer<'_>, done: usize, total: usize, loss: Option<f64>) -> Result<()> {
    match observer(Progress { done, total, loss }) {
        Control::Continue => Ok(()),
        Control::Stop => Err(Error::Interrupted),
    }
}
