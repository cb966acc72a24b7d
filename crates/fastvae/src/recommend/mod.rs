//! What should a user see next? Lists from a trained model: for one history, for many, and around one item.

mod batch;
mod filter;
mod recommender;
mod single;
mod similar;
mod writer;

pub use batch::{BatchOptions, recommend_all};
pub use filter::KnownItems;
pub(crate) use filter::ascending;
pub use recommender::Recommender;
pub use single::Request;
pub(crate) use single::best;
pub use writer::{Layout, RecommendationWriter};

pub use crate::eval::Scored;
