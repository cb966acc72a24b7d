//! [`Search`]: approximate top-k over the inverted multi-index.
//!
//! Cells are visited in [`MultiSequence`] order and their items scored exactly, so a list is the exact one of the
//! visited cells: scores are right, and only items of cells that were not reached can be missing. How many cells
//! to visit is measured on histories, for a recall that is asked for, and stored with the model.

use crate::data::{Interactions, ItemId};
use crate::error::{Error, Result};
use crate::eval::{Scored, TopK};
use crate::index::{IndexSettings, InvertedMultiIndex};
use crate::math::{Purpose, Stream, dots};
use crate::model::{History, encode};
use crate::model_file::{Calibration, Model};
use crate::recommend::multi_sequence::{FirstCells, MultiSequence};
use crate::recommend::scan::{best, logits};

/// What a search should reach, and on which cells.
#[derive(Debug, Clone, Copy, PartialEq)]
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

/// An approximate search over the items of one model.
#[derive(Debug)]
pub struct Search {
    /// An index finer than the model's own, where one was asked for.
    own_index: Option<InvertedMultiIndex>,
    first_cells: FirstCells,
    calibration: Calibration,
}

impl Search {
    /// A search over `model`, calibrated on histories of `users`, or on a few items drawn by their popularity where
    /// there are none.
    ///
    /// # Errors
    /// [`Error::Data`] if the model has no index and none is asked for; [`Error::Config`] if the options cannot
    /// work.
    pub fn calibrate(model: &Model, users: Option<&Interactions>, options: &SearchOptions) -> Result<Self> {
        if !(0.0..1.0).contains(&options.recall) || options.k == 0 || options.n_queries == 0 {
            return Err(Error::config(
                "search",
                format!("recall {} of {} on {} queries", options.recall, options.k, options.n_queries),
                "give a recall from 0 to below 1, and at least one item and query",
            ));
        }
        let mut search = Self::uncalibrated(model, options.codewords)?;
        let ranks = |part: u32| -> Vec<usize> {
            use rayon::prelude::*;
            let of_query =
                |query: u32| search.ranks(model, &sample_query(model, users, part, query), options.k);
            (0..options.n_queries as u32).into_par_iter().flat_map_iter(of_query).collect()
        };
        let mut found = ranks(0);
        found.sort_unstable();
        // Visiting c cells finds the items whose cell comes among the first c: recall is their share. One standard
        // error more is aimed at, taken as if a query found all of its items or none, so that other queries reach
        // the target too.
        let error = (options.recall * (1.0 - options.recall) / options.n_queries as f64).sqrt();
        let at = (((options.recall + error).min(1.0) * found.len() as f64).ceil() as usize)
            .clamp(1, found.len().max(1))
            - 1;
        let cells = found.get(at).map_or(1, |rank| rank + 1);
        let check = ranks(1);
        let reached = check.iter().filter(|&&rank| rank < cells).count();
        search.calibration = Calibration {
            target: options.recall,
            k: options.k,
            cells,
            recall: if check.is_empty() { 1.0 } else { reached as f64 / check.len() as f64 },
            scored_share: search.scored_share(model, users, cells, options.n_queries),
        };
        Ok(search)
    }

    /// A search with the number of cells that was stored with the model.
    ///
    /// # Errors
    /// [`Error::Data`] if the model has no index or was not calibrated.
    pub fn stored(model: &Model) -> Result<Self> {
        let calibration = model.description().search.ok_or_else(|| {
            Error::data("the model was saved without a calibrated search", "calibrate it anew")
        })?;
        Ok(Self { calibration, ..Self::uncalibrated(model, None)? })
    }

    fn uncalibrated(model: &Model, codewords: Option<usize>) -> Result<Self> {
        let own_index = match codewords {
            None => None,
            Some(n_codewords) => {
                let config = &model.description().config;
                let settings = IndexSettings { n_codewords, ..IndexSettings::from(config) };
                let vectors = model.parameters().items.vectors;
                Some(InvertedMultiIndex::build(vectors, settings, None, config.seed, 0)?)
            }
        };
        let index = own_index.as_ref().or(model.index()).ok_or_else(|| {
            Error::data(
                "the model has no index to search",
                "train it with a midx proposal, or give the number of codewords of a new index",
            )
        })?;
        let first_cells = FirstCells::of(index.lists());
        let calibration =
            Calibration { target: 1.0, k: 1, cells: usize::MAX, recall: 1.0, scored_share: 1.0 };
        Ok(Self { first_cells, own_index, calibration })
    }

    /// What the search was calibrated to.
    pub fn calibration(&self) -> Calibration {
        self.calibration
    }

    /// The index that is searched: its own, or that of the model it was made for.
    fn index<'a>(&'a self, model: &'a Model) -> &'a InvertedMultiIndex {
        self.own_index.as_ref().or(model.index()).expect("a search is used with the model it was made for")
    }

    /// The best `n` for `query` among the visited cells, without the ascending `excluded`: exactly `n`, or all that
    /// are allowed where these are fewer. More cells are visited where `n` is larger than the calibrated k.
    pub(super) fn best(&self, model: &Model, query: &[f32], n: usize, excluded: &[ItemId]) -> Vec<Scored> {
        let index = self.index(model);
        let items = model.parameters().items;
        let cells = self.calibration.cells.saturating_mul(n.div_ceil(self.calibration.k).max(1));
        let mut top = TopK::default();
        top.reset(n.min(model.n_items()));
        let mut scores = Vec::new();
        for (visited, cell) in MultiSequence::new(index, &self.first_cells, query).enumerate() {
            if visited >= cells && top.is_full() {
                break;
            }
            let candidates = index.lists().items(cell);
            scores.resize(candidates.len(), 0.0);
            dots::gather_dots(items.vectors, candidates, query, &mut scores);
            if let Some(bias) = items.bias {
                scores.iter_mut().zip(candidates).for_each(|(score, &item)| *score += bias[item as usize]);
            }
            top.offer_any(candidates, &scores, |item| excluded.binary_search(&item).is_err());
        }
        let mut best = Vec::new();
        top.drain_into(&mut best);
        best
    }

    /// In which place, counted over cells in their order for `history`, the cell of each of its exact best k comes.
    fn ranks(&self, model: &Model, history: &[ItemId], k: usize) -> Vec<usize> {
        let query = query_of(model, history);
        let expected = best(model.n_items(), k, history, |first, scores| {
            logits(model.parameters().items, &query, first, scores);
        });
        let index = self.index(model);
        let mut wanted: Vec<usize> =
            expected.iter().map(|scored| index.lists().cell_of()[scored.item as usize] as usize).collect();
        let mut ranks = Vec::with_capacity(wanted.len());
        for (rank, cell) in MultiSequence::new(index, &self.first_cells, &query).enumerate() {
            let before = wanted.len();
            wanted.retain(|&other| other != cell);
            ranks.extend(std::iter::repeat_n(rank, before - wanted.len()));
            if wanted.is_empty() {
                break;
            }
        }
        ranks
    }

    fn scored_share(
        &self,
        model: &Model,
        users: Option<&Interactions>,
        cells: usize,
        n_queries: usize,
    ) -> f64 {
        let index = self.index(model);
        let scored = (0..n_queries as u32).map(|query| {
            let query = query_of(model, &sample_query(model, users, 1, query));
            let visited = MultiSequence::new(index, &self.first_cells, &query).take(cells);
            visited.map(|cell| index.lists().items(cell).len()).sum::<usize>() as f64
        });
        scored.sum::<f64>() / (n_queries * model.n_items()) as f64
    }
}

fn query_of(model: &Model, history: &[ItemId]) -> Vec<f32> {
    let query = encode(model.parameters(), 1, |_| History { items: history, weights: None });
    query.view().row(0).to_vec()
}

/// The history of some user; where there is none, two to twelve items drawn by their counts.
fn sample_query(model: &Model, users: Option<&Interactions>, part: u32, query: u32) -> Vec<ItemId> {
    let mut stream = Stream::new(model.description().config.seed, Purpose::Recommend, part, query);
    if let Some(users) = users.filter(|users| users.n_users() > 0) {
        return users.row(stream.below(users.n_users() as u64) as usize).items.to_vec();
    }
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
