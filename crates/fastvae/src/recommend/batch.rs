//! Recommending to many users, block by block: neither the scores nor the lists of all users are ever held.

use std::borrow::Cow;

use crate::data::ItemId;
use crate::error::{Error, Result};
use crate::eval::{Rankings, rank};
use crate::math::Matrix;
use crate::model::{History, ParametersView};
use crate::model_file::Model;
use crate::proposal::ItemTable;
use crate::recommend::Scored;
use crate::recommend::filter::{places, union};

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
        mut sink: impl FnMut(usize, &[Scored]) -> Result<()>,
    ) -> Result<()> {
        for user in 0..n_users {
            self.check_history(user, history(user))?;
        }
        let exclude = self.ascending(options.exclude)?;
        let selection = options.only.map(|only| self.selection(only)).transpose()?;
        let parameters = match &selection {
            None => self.parameters(),
            Some(selection) => selection.of(self.parameters()),
        };
        let excluded = |user: usize| {
            let seen: &[ItemId] = if options.keep_seen { &[] } else { history(user).items };
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
        rank(parameters, n_users, &history, excluded, options.n, named, |rankings| {
            rankings.iter().try_for_each(|(user, best)| sink(user, best))
        })
    }

    fn check_history(&self, user: usize, history: History<'_>) -> Result<()> {
        let ascends = history.items.windows(2).all(|pair| pair[0] < pair[1]);
        let within = history.items.last().is_none_or(|&item| (item as usize) < self.n_items());
        if ascends && within {
            return Ok(());
        }
        Err(Error::data(
            format!("the history of user {user} is unsorted, repeats an item or passes {}", self.n_items()),
            "give histories over the items of the model",
        ))
    }

    fn selection(&self, only: &[ItemId]) -> Result<Selection> {
        let items = self.ascending(only)?;
        let table = self.parameters().items;
        let mut vectors = Matrix::zeros(items.len(), table.vectors.cols());
        for (place, &item) in items.iter().enumerate() {
            let row = table.vectors.row(item as usize);
            vectors.row_mut(place)[..row.len()].copy_from_slice(row);
        }
        let bias = table.bias.map(|bias| items.iter().map(|&item| bias[item as usize]).collect());
        Ok(Selection { items, vectors, bias })
    }
}

/// Some items as a catalogue of their own.
struct Selection {
    /// The items in the order of their places here.
    items: Vec<ItemId>,
    vectors: Matrix,
    bias: Option<Vec<f32>>,
}

impl Selection {
    /// The model with this catalogue to rank; histories are still of the whole one.
    fn of<'a>(&'a self, parameters: ParametersView<'a>) -> ParametersView<'a> {
        let items = ItemTable { vectors: self.vectors.view(), bias: self.bias.as_deref() };
        ParametersView { items, ..parameters }
    }
}
