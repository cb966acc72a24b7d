//! Interactions: who touched what, read from files people have, filtered and split.

mod builder;
mod cache;
mod filter;
mod folds;
mod generate;
mod ids;
mod interactions;
mod intern;
mod read;
mod select;
mod split;
mod statistics;
mod storage;
mod titles;
mod vocabulary;
mod write;

pub use builder::InteractionsBuilder;
pub use cache::{Cache, CacheWriter};
pub use filter::{drop_empty, k_core};
pub use folds::fold;
pub use generate::{GenerateOptions, Generator};
pub use ids::IdMap;
pub use interactions::{Interactions, Row};
pub use intern::IdMapBuilder;
pub use read::{
    Column, Format, ReadOptions, ReadReport, read, read_aligned, read_pair, read_with_items, read_with_report,
};
pub use split::{Split, SplitParts, hold_out};
pub use statistics::{Spread, Statistics};
pub use titles::{TitleOptions, TitleReport, Titles};
pub use write::{TableWriter, write_interactions};

/// An item's position in the catalogue: a row of every item table.
pub type ItemId = u32;
/// A user's position: a row of the interactions.
pub type UserId = u32;
