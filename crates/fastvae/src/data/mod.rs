//! Interactions: who touched what, read from files people have, filtered and split.

mod ids;
mod interactions;

pub use ids::IdMap;
pub use interactions::{Interactions, Row};

/// An item's position in the catalogue: a row of every item table.
pub type ItemId = u32;
/// A user's position: a row of the interactions.
pub type UserId = u32;
