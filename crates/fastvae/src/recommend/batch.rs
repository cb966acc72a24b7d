//! Recommending to many users, block by block: neither the scores nor the lists of all users are ever held.

use std::borrow::Cow;

use crate::data::ItemId;
use crate::error::{Error, Result};
use crate::eval::{BlockScores, Rankings, Scored, Scorer, Viewer, rank};
use crate::math::Matrix;
use crate::model::History;
use crate::model_file::Model;
use crate::proposal::ItemTable;
use crate::recommend::filter::{ascending, places, union};

/// What is asked of [`Model::recommend_all`].
#[derive(Debug, Clone, Copy)]
pub struct BatchOptions<'a> {
    /// How many items to recommend to each user.
    pub n: usize,
    /// Items that must not be recommended to anybody.
    pub exclude: &'a [ItemId],
    /// The only items that may be recommended, where given.
    pub only: Option<&'a [ItemId]>,
    /// Whether items of a user's history may be recommended to that user.
    pub keep_seen: bool,
}

impl Default for BatchOptions<'_> {
    fn default() -> Self {
        Self { n: 10, exclude: &[], only: None, keep_seen: false }
    }
}

impl Model {
    /// Recommends to users `0..n_users` and hands each one's list to `sink`, in the order of users.
    ///
    /// `history(user)` ascends, as the rows of [`crate::data::Interactions`] do. Lists follow the rules of
    /// [`Model::recommend`]. Work is spread over the current thread pool; `sink` is called from this thread.
    ///
    /// # Errors
    /// The first error of `sink`; [`Error::UnknownId`] if an item of `exclude` or `only` is beyond the catalogue;
    /// [`Error::Data`] if a history is not ascending or is beyond it.
    pub fn recommend_all<'h>(
        &self,
        n_users: usize,
        history: impl Fn(usize) -> History<'h> + Sync,
        options: &BatchOptions<'_>,
        sink: impl FnMut(usize, &[Scored]) -> Result<()>,
    ) -> Result<()> {
        recommend_all(self, n_users, history, options, sink)
    }
}

/// As [`Model::recommend_all`], by any method; viewers may also be users of the training data.
///
/// # Errors
/// As [`Model::recommend_all`], and those of the method.
pub fn recommend_all<'h, V: Into<Viewer<'h>>>(
    scorer: &(impl Scorer + ?Sized),
    n_users: usize,
    viewer: impl Fn(usize) -> V + Sync,
    options: &BatchOptions<'_>,
    mut sink: impl FnMut(usize, &[Scored]) -> Result<()>,
) -> Result<()> {
    let n_items = scorer.n_items();
    let viewer = |user: usize| -> Viewer<'h> { viewer(user).into() };
    for user in 0..n_users {
        check_history(n_items, user, viewer(user).history)?;
    }
    let exclude = ascending(n_items, options.exclude)?;
    let selection = options.only.map(|only| Selection::new(scorer, only)).transpose()?;
    let excluded = |user: usize| {
        let seen: &[ItemId] = if options.keep_seen { &[] } else { viewer(user).history.items };
        let all = match (seen.is_empty(), exclude.is_empty()) {
            (_, true) => Cow::Borrowed(seen),
            (true, false) => Cow::Borrowed(&exclude[..]),
            (false, false) => Cow::Owned(union(seen, &exclude)),
        };
        match &selection {
            None => all,
            Some(selection) => Cow::Owned(places(&all, &selection.items)),
        }
    };
    let named = |mut rankings: Rankings| {
        if let Some(selection) = &selection {
            rankings.rename(|place| selection.items[place as usize]);
        }
        rankings
    };
    let list = |rankings: Rankings| rankings.iter().try_for_each(|(user, best)| sink(user, best));
    match &selection {
        None => rank(scorer, n_users, viewer, excluded, options.n, named, list),
        Some(selection) => rank(selection, n_users, viewer, excluded, options.n, named, list),
    }
}

fn check_history(n_items: usize, user: usize, history: History<'_>) -> Result<()> {
    let ascends = history.items.windows(2).all(|pair| pair[0] < pair[1]);
    let within = history.items.last().is_none_or(|&item| (item as usize) < n_items);
    if ascends && within {
        return Ok(());
    }
    Err(Error::data(
        format!("the history of user {user} is unsorted, repeats an item or passes {n_items}"),
        "give histories over the items of the model",
    ))
}

/// Some items as a catalogue of their own; histories are still of the whole one.
struct Selection<'s, S: ?Sized> {
    scorer: &'s S,
    /// The items in the order of their places here.
    items: Vec<ItemId>,
    /// Their vectors and biases, where scores are inner products.
    table: Option<(Matrix, Option<Vec<f32>>)>,
}

impl<'s, S: Scorer + ?Sized> Selection<'s, S> {
    fn new(scorer: &'s S, only: &[ItemId]) -> Result<Self> {
        let items = ascending(scorer.n_items(), only)?;
        let table = scorer.item_table().map(|table| {
            let mut vectors = Matrix::zeros(items.len(), table.vectors.cols());
            for (place, &item) in items.iter().enumerate() {
                let row = table.vectors.row(item as usize);
                vectors.row_mut(place)[..row.len()].copy_from_slice(row);
            }
            (vectors, table.bias.map(|bias| items.iter().map(|&item| bias[item as usize]).collect()))
        });
        Ok(Self { scorer, items, table })
    }
}

impl<S: Scorer + ?Sized> Scorer for Selection<'_, S> {
    fn n_items(&self) -> usize {
        self.items.len()
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        Ok(match (self.scorer.block(viewers)?, &self.table) {
            (BlockScores::Vectors { queries, .. }, Some((vectors, bias))) => BlockScores::Vectors {
                queries,
                items: ItemTable { vectors: vectors.view(), bias: bias.as_deref() },
            },
            (BlockScores::Vectors { .. }, None) => {
                unreachable!("who scores by inner products has a table of items")
            }
            (BlockScores::Rows(rows), _) => BlockScores::Rows(Box::new(move |row, scores| {
                let mut whole = vec![0.0; self.scorer.n_items()];
                rows(row, &mut whole);
                for (score, &item) in scores.iter_mut().zip(&self.items) {
                    *score = whole[item as usize];
                }
            })),
        })
    }
}
