//! How well does a model rank? The whole catalogue for every user, and the measures of it.

pub(crate) mod evaluate;
mod evaluation;
pub(crate) mod metrics;
pub(crate) mod paired;
pub(crate) mod ranking;
pub(crate) mod scan;
pub(crate) mod scorer;
pub(crate) mod topk;

pub(crate) use evaluate::{evaluate, evaluate_lists};
pub(crate) use ranking::{Rankings, rank};
pub(crate) use scorer::{BlockScores, Scorer, add_few};
pub(crate) use topk::TopK;

pub use crate::network::History;
pub use evaluation::{Estimate, Evaluation};
pub use metrics::{Measure, Metric};
pub use scorer::Viewer;
pub use topk::Scored;
