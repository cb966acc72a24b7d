//! [`Control`]: what whoever watches a long work answers.

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    Continue,
    /// Stop here.
    Stop,
}
