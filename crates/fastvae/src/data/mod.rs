//! Interactions: who touched what, read from files people have, filtered and split.

mod builder;
pub(crate) mod cache;
pub(crate) mod filter;
pub(crate) mod folds;
pub(crate) mod generate;
mod ids;
mod interactions;
pub(crate) mod intern;
pub(crate) mod read;
mod select;
pub(crate) mod split;
mod statistics;
mod storage;
pub(crate) mod titles;
mod vocabulary;
pub(crate) mod write;

pub(crate) use cache::Cache;
pub(crate) use filter::k_core;
pub(crate) use intern::IdMapBuilder;
pub(crate) use write::TableWriter;

pub use builder::InteractionsBuilder;
pub use generate::{GenerateOptions, generate};
pub use ids::IdMap;
pub use interactions::{Interactions, Row};
pub use read::{Column, Format, ReadOptions, read, read_pair};
pub use split::{Split, SplitParts};
pub use statistics::{Spread, Statistics};
pub use titles::{TitleOptions, Titles};

/// An item's position in the catalogue: a row of every item table.
pub type ItemId = u32;
/// A user's position: a row of the interactions.
pub type UserId = u32;
