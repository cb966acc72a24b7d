//! Recommending from one history, as a server does: the catalogue is split over the threads, not the users.

use crate::data::{ItemId, UserId};
use crate::error::{Error, Result};
use crate::eval::{BlockScores, Scored, Scorer, Viewer};
use crate::math::simd;
use crate::model::History;
use crate::model_file::Model;
use crate::recommend::filter::{ascending, union};
use crate::recommend::scan::{best, best_of, logits};

/// What is asked of [`Model::recommend`].
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What the user did; may be empty. Items in any order; of repeated ones the first counts.
    pub history: History<'a>,
    /// The user, among [`Scorer::user_ids`], for methods that learn a vector for each.
    pub user: Option<UserId>,
    /// How many items to recommend.
    pub n: usize,
    /// Items that must not be recommended.
    pub exclude: &'a [ItemId],
    /// The only items that may be recommended, where given.
    pub only: Option<&'a [ItemId]>,
    /// Whether items of the history may be recommended.
    pub keep_seen: bool,
}

impl Default for Request<'_> {
    fn default() -> Self {
        Self { history: History::default(), user: None, n: 10, exclude: &[], only: None, keep_seen: false }
    }
}

impl Model {
    /// The best items for a history, best first: exactly `n`, or all that are allowed where these are fewer.
    ///
    /// Scores are logits; ties go to the smaller item. Cost: items x latent, spread over the current thread pool,
    /// or the length of `only` x latent.
    ///
    /// # Errors
    /// [`Error::UnknownId`] if a position is beyond the catalogue, [`Error::Data`] if the weights are not one
    /// finite number for each item.
    pub fn recommend(&self, request: &Request<'_>) -> Result<Vec<Scored>> {
        recommend(self, request)
    }
}

/// The best items for one viewer, by any method.
pub(super) fn recommend<S: Scorer + ?Sized>(scorer: &S, request: &Request<'_>) -> Result<Vec<Scored>> {
    let n_items = scorer.n_items();
    let (items, weights) = clean_history(n_items, request.history)?;
    let mut excluded = ascending(n_items, request.exclude)?;
    if !request.keep_seen {
        excluded = union(&excluded, &items);
    }
    let history = History { items: &items, weights: weights.as_deref() };
    let viewers = [Viewer { history, user: request.user }];
    let allowed = match request.only {
        None => None,
        Some(only) => {
            let mut allowed = ascending(n_items, only)?;
            allowed.retain(|item| excluded.binary_search(item).is_err());
            Some(allowed)
        }
    };
    let block = scorer.block(&viewers)?;
    Ok(match (block, allowed) {
        (BlockScores::Vectors { queries, items }, None) => {
            let query = queries.view().row(0);
            best(n_items, request.n, &excluded, |first, scores| logits(items, query, first, scores))
        }
        (BlockScores::Vectors { queries, items }, Some(allowed)) => best_of(request.n, &allowed, |at| {
            let score = simd::dot(items.vectors.row(at), queries.view().row(0));
            score + items.bias.map_or(0.0, |bias| bias[at])
        }),
        (BlockScores::Rows(rows), allowed) => {
            let mut row = vec![0.0; n_items];
            rows(0, &mut row);
            match allowed {
                Some(allowed) => best_of(request.n, &allowed, |at| row[at]),
                None => best(n_items, request.n, &excluded, |first, scores| {
                    scores.copy_from_slice(&row[first..first + scores.len()]);
                }),
            }
        }
    })
}

/// The history ascending, each item once, with its weights.
pub(super) fn clean_history(n_items: usize, history: History<'_>) -> Result<(Vec<ItemId>, Option<Vec<f32>>)> {
    let Some(weights) = history.weights else { return Ok((ascending(n_items, history.items)?, None)) };
    if weights.len() != history.items.len() || weights.iter().any(|weight| !weight.is_finite()) {
        return Err(Error::data(
            format!("{} weights for {} items of a history", weights.len(), history.items.len()),
            "give one finite weight for each item",
        ));
    }
    let items = ascending(n_items, history.items)?;
    let mut first = vec![None; items.len()];
    for (item, &weight) in history.items.iter().zip(weights) {
        let place = items.binary_search(item).expect("every item of the history is in its sorted copy");
        first[place].get_or_insert(weight);
    }
    Ok((items, Some(first.into_iter().flatten().collect())))
}
