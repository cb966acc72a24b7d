//! What should a user see next? Lists from a trained model: for one history, for many, and around one item; exact, or over the
//! inverted multi-index; with reasons.

mod batch;
mod diverse;
mod explain;
mod filter;
mod knobs;
mod multi_sequence;
mod recommender;
mod scan;
mod search;
mod similar;
mod single;
mod together;
mod writer;

pub use batch::{BatchOptions, recommend_all};
pub use explain::Reason;
pub use filter::KnownItems;
pub(crate) use filter::ascending;
pub use knobs::Knobs;
pub use multi_sequence::{FirstCells, MultiSequence};
pub use recommender::Recommender;
pub(crate) use scan::best;
pub use search::{Search, SearchOptions};
pub use single::Request;
pub use together::{Asked, Method};
pub use writer::{Layout, RecommendationWriter};

pub use crate::eval::Scored;
pub use crate::model_file::Calibration;
