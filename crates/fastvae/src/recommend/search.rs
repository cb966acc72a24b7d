//! Approximate top-k over the inverted multi-index.
//!
//! Cells are visited in [`MultiSequence`] order and their items scored exactly, so a list is the exact one of the
//! visited cells: scores are right, and only items of cells that were not reached can be missing. How many cells
//! to visit is measured on histories, for a recall that is asked for, and stored with the model.

use rayon::prelude::*;

use crate::data::{Interactions, ItemId};
use crate::error::{Error, Result};
use crate::eval::scan::{best as best_by, logits};
use crate::eval::{Scored, Scorer, TopK, Viewer, add_few};
use crate::index::MultiSequence;
use crate::math::{Purpose, Stream, dots};
use crate::model::{Calibration, Index, Model};
use crate::network::History;
use crate::proposal::ItemTable;

/// What a search should reach, and on which cells.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct SearchOptions {
    /// Share of the exact best k that a list should hold, on average over queries.
    pub recall: f64,
    /// The k of that recall.
    pub k: usize,
    /// Codewords of an index built for the search; the model's own index where absent.
    pub codewords: Option<usize>,
    /// Histories that the number of cells is measured on; as many again check it.
    pub n_queries: usize,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self { recall: 0.95, k: 20, codewords: None, n_queries: 200 }
    }
}

impl SearchOptions {
    pub(super) fn validate(&self) -> Result<()> {
        if (0.0..1.0).contains(&self.recall) && self.k > 0 && self.n_queries > 0 {
            return Ok(());
        }
        Err(Error::config(
            "search",
            format!("recall {} of {} on {} queries", self.recall, self.k, self.n_queries),
            "give a recall from 0 to below 1, and at least one item and query",
        ))
    }
}

/// Whether `model` has an index and knows how much of it to visit.
pub(super) fn is_ready(model: &Model) -> bool {
    model.index.is_some() && model.description().search.is_some()
}

/// What is searched.
struct Searched<'m> {
    model: &'m Model,
    index: &'m Index,
    items: ItemTable<'m>,
}

impl<'m> Searched<'m> {
    fn of(model: &'m Model) -> Option<Self> {
        Some(Self { model, index: model.index.as_ref()?, items: model.item_table()? })
    }

    fn cells(&self, query: &[f32]) -> MultiSequence<'m> {
        MultiSequence::new(&self.index.cells, &self.index.first_cells, query)
    }

    /// The products of `query` with `candidates`, and their biases.
    fn logits_of(&self, candidates: &[ItemId], query: &[f32], scores: &mut Vec<f32>) {
        scores.resize(candidates.len(), 0.0);
        dots::gather_dots(self.items.vectors, candidates, query, scores);
        if let Some(bias) = self.items.bias {
            scores.iter_mut().zip(candidates).for_each(|(score, &item)| *score += bias[item as usize]);
        }
    }

    /// In which place, counted over cells in their order for `query`, the cell of each of its exact best k comes; those that
    /// are scored beside the cells come first.
    fn ranks(&self, Query { history, query, few }: &Query, k: usize) -> Vec<usize> {
        let expected = best_by(self.model.n_items(), k, history, |first, scores| {
            logits(self.items, query, first, scores);
            add_few(few, first, scores);
        });
        let cell_of = self.index.cells.lists().cell_of();
        let beside = |item: ItemId| few.binary_search_by_key(&item, |scored| scored.item).is_ok();
        let mut ranks: Vec<usize> = expected.iter().filter(|scored| beside(scored.item)).map(|_| 0).collect();
        let mut wanted: Vec<usize> = expected
            .iter()
            .filter(|scored| !beside(scored.item))
            .map(|scored| cell_of[scored.item as usize] as usize)
            .collect();
        for (rank, cell) in self.cells(query).enumerate() {
            let before = wanted.len();
            wanted.retain(|&other| other != cell);
            ranks.extend(std::iter::repeat_n(rank, before - wanted.len()));
            if wanted.is_empty() {
                break;
            }
        }
        ranks
    }
}

/// The best `n` for `query` among the visited cells, without the ascending `excluded`: exactly `n`, or all that
/// are allowed where these are fewer. More cells are visited where `n` is larger than the calibrated k.
///
/// `few` adds to the scores of a few items, ascending: those are scored beside the cells, wherever they lie.
pub(super) fn best(
    model: &Model,
    query: &[f32],
    few: &[Scored],
    n: usize,
    excluded: &[ItemId],
) -> Result<Vec<Scored>> {
    let (Some(searched), Some(calibration)) = (Searched::of(model), model.description().search) else {
        return Err(Error::data("the model has no calibrated index to search", "ask for an exact list"));
    };
    let cells = calibration.cells.saturating_mul(n.div_ceil(calibration.k.max(1)).max(1));
    let mut top = TopK::default();
    top.reset(n.min(model.n_items()));
    let mut scores = Vec::new();
    let items: Vec<ItemId> = few.iter().map(|scored| scored.item).collect();
    searched.logits_of(&items, query, &mut scores);
    scores.iter_mut().zip(few).for_each(|(score, few)| *score += few.score);
    top.offer_any(&items, &scores, |item| excluded.binary_search(&item).is_err());
    for (visited, cell) in searched.cells(query).enumerate() {
        if visited >= cells && top.is_full() {
            break;
        }
        let candidates = searched.index.cells.lists().items(cell);
        searched.logits_of(candidates, query, &mut scores);
        top.offer_any(candidates, &scores, |item| {
            excluded.binary_search(&item).is_err() && items.binary_search(&item).is_err()
        });
    }
    let mut best = Vec::new();
    top.drain_into(&mut best);
    Ok(best)
}

/// How many cells of the index of `model` to visit; None where it has no index, or no query can be made.
pub(super) fn calibrate(
    model: &Model,
    users: Option<&Interactions>,
    options: &SearchOptions,
) -> Result<Option<Calibration>> {
    let Some(searched) = Searched::of(model) else { return Ok(None) };
    let queries = |part: u32| -> Result<Vec<Query>> {
        let each = (0..options.n_queries as u32).into_par_iter();
        let made: Result<Vec<Option<Query>>> = each.map(|at| sample(model, users, part, at)).collect();
        Ok(made?.into_iter().flatten().collect())
    };
    let ranks = |queries: &[Query]| -> Vec<usize> {
        queries.par_iter().flat_map_iter(|query| searched.ranks(query, options.k)).collect()
    };
    let mut found = ranks(&queries(0)?);
    found.sort_unstable();
    // Visiting c cells finds the items whose cell comes among the first c: recall is their share. One standard
    // error more is aimed at, taken as if a query found all of its items or none, so that other queries reach
    // the target too.
    let error = (options.recall * (1.0 - options.recall) / options.n_queries as f64).sqrt();
    let at = (((options.recall + error).min(1.0) * found.len() as f64).ceil() as usize)
        .clamp(1, found.len().max(1))
        - 1;
    let cells = found.get(at).map_or(1, |rank| rank + 1);
    let others = queries(1)?;
    let check = ranks(&others);
    let reached = check.iter().filter(|&&rank| rank < cells).count();
    let lists = searched.index.cells.lists();
    let scored = others.iter().map(|Query { query, .. }| {
        searched.cells(query).take(cells).map(|cell| lists.items(cell).len()).sum::<usize>() as f64
    });
    Ok(Some(Calibration {
        target: options.recall,
        k: options.k,
        cells,
        recall: if check.is_empty() { 1.0 } else { reached as f64 / check.len() as f64 },
        scored_share: scored.sum::<f64>() / (others.len().max(1) * model.n_items()) as f64,
    }))
}

/// A query, and the history that it is left out of the list of.
struct Query {
    history: Vec<ItemId>,
    query: Vec<f32>,
    /// What is added to the scores of a few items, ascending.
    few: Vec<Scored>,
}

/// The query of some user; where there is none, of two to twelve items drawn by their counts. None for somebody whom the
/// method has no query for.
fn sample(model: &Model, users: Option<&Interactions>, part: u32, query: u32) -> Result<Option<Query>> {
    let seed = model.config().map_or(0, |config| config.seed);
    let mut stream = Stream::new(seed, Purpose::Recommend, part, query);
    let (drawn, viewer) = match (users.filter(|users| users.n_users() > 0), model.user_ids()) {
        (Some(users), own) => {
            let user = stream.below(users.n_users() as u64) as u32;
            let name = users.user_ids().name(user);
            let known = own.and_then(|own| own.position(&name));
            if own.is_some() && known.is_none() {
                return Ok(None);
            }
            (Vec::new(), Viewer { user: known, ..users.row(user as usize).into() })
        }
        (None, Some(own)) if !own.is_empty() => {
            let user = stream.below(own.len() as u64) as u32;
            (Vec::new(), Viewer { user: Some(user), ..Viewer::default() })
        }
        (None, _) => (draw(model, &mut stream), Viewer::default()),
    };
    let viewer = match drawn.is_empty() {
        true => viewer,
        false => Viewer { history: History { items: &drawn, weights: None }, user: None },
    };
    if viewer.is_nobody() {
        return Ok(None);
    }
    let viewers = [viewer];
    let scores = model.block(&viewers)?;
    let query = scores.products.as_ref().map(|(queries, _)| queries.view().row(0).to_vec());
    let few = scores.few.as_ref().map(|few| few(0)).unwrap_or_default();
    Ok(query.map(|query| Query { history: viewer.history.items.to_vec(), query, few }))
}

/// Two to twelve items drawn by their counts, ascending.
fn draw(model: &Model, stream: &mut Stream) -> Vec<ItemId> {
    // A count above a uniform share of the largest: drawn by rejection, so that no table is needed.
    let largest = f64::from(model.item_counts().iter().copied().max().unwrap_or(0).max(1));
    let length = 2 + stream.below(11) as usize;
    let mut items = Vec::new();
    for _ in 0..length * 1000 {
        let item = stream.below(model.n_items() as u64) as ItemId;
        if f64::from(model.item_counts()[item as usize]) >= stream.uniform() * largest {
            items.push(item);
            if items.len() == length {
                break;
            }
        }
    }
    items.sort_unstable();
    items.dedup();
    items
}
