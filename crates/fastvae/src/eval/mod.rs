//! How well a model ranks: the whole catalogue for every user, and the measures of it.

mod ranking;
mod topk;

pub use ranking::{Rankings, rank, rank_queries};
pub use topk::{Scored, TopK};
