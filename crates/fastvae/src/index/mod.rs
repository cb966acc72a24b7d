//! The inverted multi-index: codebooks over the item vectors, and the items of each cell (section 4).
//!
//! [`kmeans`] finds the codewords of one codebook, [`Codebook`] holds them, [`InvertedLists`] holds the items
//! of each cell, and [`InvertedMultiIndex`] is all of it for m codebooks, by product or by residual
//! quantisation behind one interface. [`MultiSequence`] gives the cells from the most promising on, for searches.

mod codebook;
pub mod kmeans;
mod lists;
mod multi_index;
mod multi_sequence;

pub use codebook::Codebook;
pub use lists::{InvertedLists, Occupancy};
pub use multi_index::{IndexSettings, InvertedMultiIndex};
pub use multi_sequence::{FirstCells, MultiSequence};
