//! What should a user see next? Lists from a trained model: for one history, for many, and around one item.

mod batch;
mod filter;
mod single;
mod similar;
mod writer;

pub use batch::BatchOptions;
pub use filter::KnownItems;
pub use single::Request;
pub use writer::{Layout, RecommendationWriter};

pub use crate::eval::Scored;
