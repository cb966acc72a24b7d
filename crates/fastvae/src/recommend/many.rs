//! Lists for many users, in blocks that share a product with the whole catalogue.

use std::borrow::Cow;
use std::sync::Arc;

use crate::data::{IdMap, ItemId};
use crate::error::{Error, Result};
use crate::eval::{BlockScores, Rankings, Scored, Scorer, Viewer, rank};
use crate::math::Matrix;
use crate::model::Model;
use crate::network::History;
use crate::proposal::ItemTable;
use crate::recommend::answer::Answer;
use crate::recommend::question::{ListOptions, Question, ascending, check_weights, places, union};

/// Questions answered together, where lists are more than the plain best.
const CHUNK: usize = 256;

/// See [`Model::recommend_all`].
pub(super) fn recommend_all<'h>(
    model: &Model,
    n: usize,
    viewer: impl Fn(usize) -> Viewer<'h> + Sync,
    list: &ListOptions,
    mut sink: impl FnMut(usize, Answer) -> Result<()>,
) -> Result<()> {
    list.knobs.validate()?;
    // Who is among the users of a method that has none is still nobody to it.
    let has_users = model.user_ids().is_some();
    let viewer = |at: usize| {
        let Viewer { history, user } = viewer(at);
        Viewer { history, user: user.filter(|_| has_users) }
    };
    for user in 0..n {
        check_history(model.n_items(), user, viewer(user).history)?;
    }
    if !list.is_plain() {
        for first in (0..n).step_by(CHUNK) {
            let users = first..n.min(first + CHUNK);
            let question = |user: usize| Question::for_viewer(viewer(user)).with(list.clone());
            let questions: Vec<Question> = users.clone().map(question).collect();
            for (user, answer) in users.zip(model.answer(&questions)) {
                sink(user, answer?)?;
            }
        }
        return Ok(());
    }
    let exclude = ascending(model.n_items(), &list.exclude)?;
    let selection = list.only.as_deref().map(|only| Selection::new(model, only)).transpose()?;
    let excluded = |user: usize| {
        let seen: &[ItemId] = if list.keep_seen { &[] } else { viewer(user).history.items };
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
    let give = |rankings: Rankings| {
        rankings.iter().try_for_each(|(user, best)| {
            let fallback = model.fallback(&viewer(user));
            sink(user, Answer { items: best.to_vec(), fallback, ..Answer::default() })
        })
    };
    match &selection {
        None => rank(model, n, viewer, excluded, list.n, named, give),
        Some(selection) => rank(selection, n, viewer, excluded, list.n, named, give),
    }
}

fn check_history(n_items: usize, user: usize, history: History<'_>) -> Result<()> {
    let ascends = history.items.windows(2).all(|pair| pair[0] < pair[1]);
    let within = history.items.last().is_none_or(|&item| (item as usize) < n_items);
    check_weights(history)?;
    if ascends && within {
        return Ok(());
    }
    Err(Error::data(
        format!("the history of user {user} is unsorted, repeats an item or passes {n_items}"),
        "give histories over the items of the model",
    ))
}

/// Some items as a catalogue of their own; histories are still of the whole one.
struct Selection<'s> {
    model: &'s Model,
    /// The items in the order of their places here.
    items: Vec<ItemId>,
    /// Their vectors and biases, where scores are inner products.
    table: Option<(Matrix, Option<Vec<f32>>)>,
}

impl<'s> Selection<'s> {
    fn new(model: &'s Model, only: &[ItemId]) -> Result<Self> {
        let items = ascending(model.n_items(), only)?;
        let table = model.item_table().map(|table| {
            let mut vectors = Matrix::zeros(items.len(), table.vectors.cols());
            for (place, &item) in items.iter().enumerate() {
                let row = table.vectors.row(item as usize);
                vectors.row_mut(place)[..row.len()].copy_from_slice(row);
            }
            (vectors, table.bias.map(|bias| items.iter().map(|&item| bias[item as usize]).collect()))
        });
        Ok(Self { model, items, table })
    }
}

impl Scorer for Selection<'_> {
    fn n_items(&self) -> usize {
        self.items.len()
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        let BlockScores { products, rows, few } = self.model.block(viewers)?;
        let products = products.zip(self.table.as_ref()).map(|((queries, _), (vectors, bias))| {
            (queries, ItemTable { vectors: vectors.view(), bias: bias.as_deref() })
        });
        let mut selected = BlockScores { products, ..BlockScores::default() };
        if let Some(few) = few {
            selected = selected.plus_few(move |at| {
                // Both ascend, so places do too.
                let place = |scored: Scored| {
                    let place = self.items.binary_search(&scored.item).ok()?;
                    Some(Scored { item: place as ItemId, ..scored })
                };
                few(at).into_iter().filter_map(place).collect()
            });
        }
        Ok(match rows {
            None => selected,
            Some(rows) => selected.plus(move |at, first, scores| {
                let mut whole = vec![0.0; self.model.n_items()];
                rows(at, 0, &mut whole);
                for (score, &item) in scores.iter_mut().zip(&self.items[first..]) {
                    *score += whole[item as usize];
                }
            }),
        })
    }

    fn user_ids(&self) -> Option<&Arc<IdMap>> {
        self.model.user_ids()
    }
}
