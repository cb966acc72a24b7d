//! How well does a model rank? The whole catalogue for every user, and the measures of it.

mod evaluate;
mod evaluation;
mod metrics;
mod paired;
mod ranking;
mod scorer;
mod topk;

pub use evaluate::{evaluate, evaluate_lists, evaluate_popularity, evaluate_users};
pub use evaluation::{Estimate, Evaluation};
pub use metrics::{Measure, Metric, Yardstick};
pub use paired::PairedDifference;
pub use ranking::{Rankings, rank};
pub use scorer::{BlockScores, RowScores, Scorer, Viewer, positions_of};
pub use topk::{Scored, TopK};
