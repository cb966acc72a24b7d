//! The methods that a model must beat, under the same trait: the paper's baselines (section 6.1.2) and the strong
//! simple ones that it leaves out.
//!
//! [`fit`] trains any of them from its [`Settings`]; a [`Baseline`] ranks, recommends, compares items, saves and
//! loads as a [`crate::Model`] does, through [`Recommender`]. [`load`] opens either.
//!
//! | kind | learns | a history alone |
//! |---|---|---|
//! | `popularity` | counts | yes, and ignores it |
//! | `item-knn` | the nearest items of each | yes |
//! | `ease` | a dense matrix of items x items | yes |
//! | `wrmf` | item vectors | yes: a least-squares problem |
//! | `bpr`, `warp`, `aobpr`, `dns`, `pris`, `sa` | item vectors and user vectors | no: training users only |
//!
//! Every method is spread over the current thread pool, is a pure function of the data, the settings and the seed
//! at any number of threads, and never holds users x items.
//!
//! Files are those of [`crate::model_file`] with the text `kind` = `baseline`, and per method the arrays
//! `neighbours.offsets`, `.items`, `.values` (item-knn); `coefficients` (ease); `items` (wrmf); `users`, `items`
//! and `factor_user_ids` (the others).

mod by_item;
mod ease;
mod factors;
mod fitted;
mod inverse;
mod item_knn;
mod least_squares;
mod method;
mod pairwise;
mod popularity;
mod settings;
mod wrmf;

pub use ease::EaseSettings;
pub use fitted::{Baseline, BaselineDescription, is_baseline, load};
pub use item_knn::{ItemKnnSettings, Weighting};
pub use pairwise::PairwiseSettings;
pub use settings::{Kind, Settings};
pub use wrmf::WrmfSettings;

pub use crate::recommend::Recommender;

use crate::data::Interactions;
use crate::error::{Error, Result};
use crate::train::Control;

use ease::Ease;
use item_knn::ItemKnn;
use method::Method;
use popularity::Popularity;
use wrmf::Wrmf;

/// How far a fit has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Passes over the data that are done.
    pub done: usize,
    /// Passes in all.
    pub total: usize,
    /// Mean loss of the last pass, for methods that take it along.
    pub loss: Option<f64>,
}

/// Whoever is told of each pass and may stop the work.
pub type Observer<'a> = dyn FnMut(Progress) -> Control + 'a;

/// Trains the baseline that `settings` name on `data`; `observer` is told of each pass.
///
/// # Errors
/// [`Error::Config`] for settings that cannot work, [`Error::Data`] if there is nothing to learn from or the
/// catalogue is too large for the method, [`Error::Interrupted`] if the observer asked to stop.
pub fn fit(data: &Interactions, settings: &Settings, observer: &mut Observer<'_>) -> Result<Baseline> {
    settings.validate()?;
    let settings = &settings.for_data(data);
    if data.n_interactions() == 0 || data.n_items() < 2 {
        return Err(Error::data(
            format!("{} interactions with {} items", data.n_interactions(), data.n_items()),
            "give data to learn from: at least one interaction and two items",
        ));
    }
    let method: Box<dyn Method> = match settings {
        Settings::Popularity => Box::new(Popularity::new(&data.item_counts())),
        Settings::ItemKnn(settings) => Box::new(ItemKnn::fit(data, settings)),
        Settings::Ease(settings) => Box::new(Ease::fit(data, settings)?),
        Settings::Wrmf(settings) => Box::new(Wrmf::fit(data, settings, observer)?),
        Settings::Bpr(pairwise)
        | Settings::Warp(pairwise)
        | Settings::Aobpr(pairwise)
        | Settings::Dns(pairwise)
        | Settings::Pris(pairwise)
        | Settings::Sa(pairwise) => Box::new(pairwise::fit(data, settings.kind(), pairwise, observer)?),
    };
    Ok(Baseline::new(method, data, settings.clone()))
}

/// Tells the observer of a pass.
fn tell(observer: &mut Observer<'_>, done: usize, total: usize, loss: Option<f64>) -> Result<()> {
    match observer(Progress { done, total, loss }) {
        Control::Continue => Ok(()),
        Control::Stop => Err(Error::Interrupted),
    }
}

#[cfg(test)]
mod tests;
