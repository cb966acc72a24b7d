//! The methods that a model must beat, under the same trait: the paper's baselines (section 6.1.2) and the strong
//! simple ones that it leaves out.
//!
//! [`crate::fit`] trains any of them from its [`Settings`] and gives a [`crate::Model`] as a training does.
//!
//! | kind | learns | a history alone |
//! |---|---|---|
//! | `popularity` | counts | yes, and ignores it |
//! | `item-knn` | the nearest items of each | yes |
//! | `ease` | a dense matrix of items x items | yes |
//! | `item-ridge` | a few weights for each item | yes |
//! | `wrmf` | item vectors | yes: a least-squares problem |
//! | `bpr`, `warp`, `aobpr`, `dns`, `pris`, `sa` | item vectors and user vectors | no: training users only |
//!
//! Every method is spread over the current thread pool, is a pure function of the data, the settings and the seed
//! at any number of threads, and never holds users x items.
//!
//! In a model's file each has arrays of its own:
//! `neighbours.offsets`, `.items`, `.values` (item-knn), `ridge.` the same (item-ridge); `coefficients` (ease); `items`
//! (wrmf); `users`, `items` and `factor_user_ids` (the others).

mod by_item;
pub(crate) mod co_counts;
mod ease;
mod factors;
mod inverse;
mod item_knn;
pub(crate) mod item_ridge;
pub(crate) mod item_weights;
mod least_squares;
mod method;
mod pairwise;
mod popularity;
pub(crate) mod progress;
mod settings;
mod wrmf;

pub use ease::EaseSettings;
pub use item_knn::{ItemKnnSettings, Weighting};
pub use item_ridge::ItemRidgeSettings;
pub use pairwise::{PairwiseOptimizer, PairwiseSettings};
pub use settings::{Kind, Settings};
pub use wrmf::WrmfSettings;

use crate::data::Interactions;
use crate::error::{Error, Result};
use crate::model_file::parts::in_file;
use crate::model_file::tensors::TensorFile;

use ease::Ease;
use factors::Factors;
use item_knn::ItemKnn;
use item_ridge::ItemRidge;
pub use method::Fallback;
pub(crate) use method::{Method, Table};
use popularity::Popularity;
use progress::{Observer, tell};
use wrmf::Wrmf;

/// Learns what `settings` name from `data`; `observer` is told of each pass. Gives the settings with what they left to be
/// chosen from the data.
///
/// # Errors
/// [`Error::Config`] for settings that cannot work, [`Error::Data`] if there is nothing to learn from or the
/// catalogue is too large for the method, [`Error::Interrupted`] if the observer asked to stop.
pub(crate) fn learn(
    data: &Interactions,
    settings: &Settings,
    observer: &mut Observer<'_>,
) -> Result<(Box<dyn Method>, Settings)> {
    settings.validate()?;
    let settings = settings.for_data(data);
    if data.n_interactions() == 0 || data.n_items() < 2 {
        return Err(Error::data(
            format!("{} interactions with {} items", data.n_interactions(), data.n_items()),
            "give data to learn from: at least one interaction and two items",
        ));
    }
    let method: Box<dyn Method> = match &settings {
        Settings::Popularity => Box::new(Popularity::new(&data.item_counts())),
        Settings::ItemKnn(settings) => Box::new(ItemKnn::fit(data, settings)),
        Settings::Ease(settings) => Box::new(Ease::fit(data, settings)?),
        Settings::ItemRidge(settings) => Box::new(ItemRidge::fit(data, settings)),
        Settings::Wrmf(settings) => Box::new(Wrmf::fit(data, settings, observer)?),
        Settings::Bpr(pairwise)
        | Settings::Warp(pairwise)
        | Settings::Aobpr(pairwise)
        | Settings::Dns(pairwise)
        | Settings::Pris(pairwise)
        | Settings::Sa(pairwise) => Box::new(pairwise::fit(data, settings.kind(), pairwise, observer)?),
    };
    Ok((method, settings))
}

/// What was learned by a method of `settings`, from a model's file.
pub(crate) fn read(
    file: &TensorFile,
    settings: &Settings,
    n_items: usize,
    item_counts: &[u32],
) -> Result<Box<dyn Method>> {
    in_file(file, || settings.validate())?;
    Ok(match settings {
        Settings::Popularity => Box::new(Popularity::new(item_counts)),
        Settings::ItemKnn(_) => Box::new(ItemKnn::read(file, n_items)?),
        Settings::Ease(_) => Box::new(Ease::read(file, n_items)?),
        Settings::ItemRidge(settings) => Box::new(ItemRidge::read(file, settings, item_counts)?),
        Settings::Wrmf(settings) => Box::new(Wrmf::read(file, n_items, settings)?),
        Settings::Bpr(pairwise)
        | Settings::Warp(pairwise)
        | Settings::Aobpr(pairwise)
        | Settings::Dns(pairwise)
        | Settings::Pris(pairwise)
        | Settings::Sa(pairwise) => {
            in_file(file, || Factors::read(file, n_items, settings.kind(), pairwise.factors)).map(Box::new)?
        }
    })
}

#[cfg(test)]
mod tests;
