//! What the command line, the service, the Python package and the benchmarks are built of, beside the public face. It changes
//! whenever that is better for them: nothing here is kept from one version to the next.

/// Binary caches, reading over known names and with a report, and what builds identifiers, tables and folds.
pub mod data {
    pub use crate::data::cache::{Cache, CacheWriter};
    pub use crate::data::filter::{drop_empty, k_core};
    pub use crate::data::folds::fold;
    pub use crate::data::generate::Generator;
    pub use crate::data::intern::IdMapBuilder;
    pub use crate::data::read::{ReadReport, read_aligned, read_with_items, read_with_report};
    pub use crate::data::split::hold_out;
    pub use crate::data::titles::TitleReport;
    pub use crate::data::write::{TableWriter, write_interactions};
}

/// How far a baseline's fit has come, and who is told.
pub mod baseline {
    pub use crate::baseline::progress::{Observer, Progress};
}

/// Whatever scores a catalogue, and the ranking and measuring of it.
pub mod eval {
    pub use crate::eval::evaluate::{evaluate, evaluate_lists, evaluate_popularity, evaluate_users};
    pub use crate::eval::metrics::Yardstick;
    pub use crate::eval::paired::PairedDifference;
    pub use crate::eval::ranking::{Rankings, rank};
    pub use crate::eval::scorer::{AddScores, BlockScores, FewScores, Scorer, positions_of};
    pub use crate::eval::topk::TopK;
}

/// Where a step runs.
pub mod backend {
    pub use crate::backend::*;
}

/// The inverted multi-index.
pub mod index {
    pub use crate::index::*;
}

/// What is minimised.
pub mod loss {
    pub use crate::loss::*;
}

/// Matrices, vector kernels, random numbers by address.
pub mod math {
    pub use crate::math::*;
}

/// Named arrays on disk.
pub mod model_file {
    pub use crate::model_file::*;
}

/// What is learned, and the encoder.
pub mod network {
    pub use crate::network::*;
}

/// How a row moves.
pub mod optim {
    pub use crate::optim::*;
}

/// What a run will hold and cost.
pub mod plan {
    pub use crate::plan::*;
}

/// Where negatives come from.
pub mod proposal {
    pub use crate::proposal::*;
}

/// What the process has used.
pub mod resources {
    pub use crate::resources::*;
}

/// Files that appear whole or not at all.
pub mod write {
    pub use crate::write::*;
}

/// A look into a trained model, and the version of its files.
pub mod model {
    pub use crate::model::file::FORMAT;
    pub use crate::model::inside::ModelInternals;
}

/// Items by their titles, and files of lists.
pub mod recommend {
    pub use crate::recommend::find::{Finder, find};
    pub use crate::recommend::writer::{Layout, RecommendationWriter};
}

/// A look into a run, and what every end of one goes through.
pub mod train {
    pub use crate::train::blend::estimated_seconds;
    pub use crate::train::finish::fit_with;
    pub use crate::train::inside::{Phase, TrainingInternals, VALIDATION_METRIC};
    pub use crate::train::parts::expected_trainings;
}
