//! Lists as a service asks for them: with knobs, exact or over the index, several in one pass over the items.

use crate::data::ItemId;
use crate::error::Result;
use crate::eval::Scored;
use crate::math::{dots, simd};
use crate::model::{History, encode};
use crate::model_file::Model;
use crate::recommend::filter::{ascending, union};
use crate::recommend::knobs::{Knobs, gumbel};
use crate::recommend::scan::{Wanted, add_bias, best_each, best_of, logits};
use crate::recommend::search::Search;
use crate::recommend::single::{Request, clean_history};

/// Candidates for each item of a diverse list, and at least this many in all.
const CANDIDATES_EACH: usize = 8;
const CANDIDATES: usize = 100;

/// Candidates of the small copy of the items for each item of a list, and how many more.
const SMALL_EACH: usize = 4;
const SMALL_MORE: usize = 64;

/// How a list was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Every allowed item was scored.
    Exact,
    /// Some cells of the index were.
    Approximate,
}

/// A request with all that its answer depends on.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Whom the list is for, and what may be in it.
    pub request: Request<'a>,
    /// How it differs from the plain best n.
    pub knobs: Knobs,
    /// The index to find it over, where it may be approximate.
    pub search: Option<&'a Search>,
}

/// A request with its query and its filters in order.
struct Ready<'a> {
    query: Vec<f32>,
    /// Items of the list before it is made diverse.
    n: usize,
    excluded: Vec<ItemId>,
    knobs: Knobs,
    way: Way<'a>,
}

/// Where a list is looked for.
enum Way<'a> {
    Everywhere,
    Among(Vec<ItemId>),
    Cells(&'a Search),
}

impl Model {
    /// As [`Model::recommend`], with `knobs`, and over the index where a `search` is given.
    ///
    /// Scores are logits less the popularity penalty. The list is ordered by score, with two exceptions: a diverse one
    /// is in the order in which items were picked, a drawn one in the order of the draw.
    ///
    /// A search is not used where it would be wrong or slow: with `only`, with knobs that change scores, and where
    /// half of the catalogue is excluded. Then every allowed item is scored, and the answer says so.
    ///
    /// # Errors
    /// As [`Model::recommend`], and [`crate::Error::Config`] if a knob is out of its range.
    pub fn recommend_with(
        &self,
        request: &Request<'_>,
        knobs: &Knobs,
        search: Option<&Search>,
    ) -> Result<(Vec<Scored>, Method)> {
        let asked = Asked { request: *request, knobs: *knobs, search };
        self.recommend_together(&[asked]).pop().expect("one answer to one request")
    }

    /// The answer of [`Model::recommend_with`] to each request. Those that score every item share one pass over the
    /// item vectors, so that many cost less together than one after the other; no answer depends on the others.
    pub fn recommend_together(&self, asked: &[Asked<'_>]) -> Vec<Result<(Vec<Scored>, Method)>> {
        let ready: Vec<Result<Ready<'_>>> = asked.iter().map(|asked| self.ready(asked)).collect();
        let scanning: Vec<&Ready<'_>> =
            ready.iter().flatten().filter(|ready| matches!(ready.way, Way::Everywhere)).collect();
        let mut scanned = self.best_everywhere(&scanning).into_iter();
        let mut answer = |(ready, asked): (Result<Ready<'_>>, &Asked<'_>)| {
            let ready = ready?;
            let (list, method) = match &ready.way {
                Way::Everywhere => {
                    (scanned.next().expect("a list for each that is looked for everywhere"), Method::Exact)
                }
                Way::Among(allowed) => (self.best_among(&ready, allowed), Method::Exact),
                Way::Cells(search) => {
                    (search.best(self, &ready.query, ready.n, &ready.excluded), Method::Approximate)
                }
            };
            Ok(match ready.knobs.diversity > 0.0 {
                true => (self.diversified(&list, asked.request.n, ready.knobs.diversity), method),
                false => (list, method),
            })
        };
        ready.into_iter().zip(asked).map(&mut answer).collect()
    }

    fn ready<'a>(&self, asked: &Asked<'a>) -> Result<Ready<'a>> {
        let Asked { request, knobs, search } = *asked;
        knobs.validate()?;
        let (items, weights) = clean_history(self.n_items(), request.history)?;
        let mut excluded = ascending(self.n_items(), request.exclude)?;
        if !request.keep_seen {
            excluded = union(&excluded, &items);
        }
        let loose = 2 * excluded.len() < self.n_items();
        let way = match (request.only, search.filter(|_| loose && knobs.keeps_scores())) {
            (Some(only), _) => {
                let mut allowed = ascending(self.n_items(), only)?;
                allowed.retain(|item| excluded.binary_search(item).is_err());
                Way::Among(allowed)
            }
            (None, Some(search)) => Way::Cells(search),
            (None, None) => Way::Everywhere,
        };
        let history = History { items: &items, weights: weights.as_deref() };
        let query = encode(self.parameters(), 1, |_| history).view().row(0).to_vec();
        let n = match knobs.diversity > 0.0 {
            true => request.n.saturating_mul(CANDIDATES_EACH).max(CANDIDATES),
            false => request.n,
        };
        Ok(Ready { query, n, excluded, knobs, way })
    }

    /// Where the model has a small copy of the item vectors, candidates come from that and are scored again in full
    /// precision: scores are exact, and only an item that rounding throws far back can be missing.
    fn best_everywhere(&self, asked: &[&Ready<'_>]) -> Vec<Vec<Scored>> {
        let small = self.small_items.as_ref();
        let n = |ready: &Ready<'_>| match small {
            Some(_) => ready.n.saturating_mul(SMALL_EACH).saturating_add(SMALL_MORE),
            None => ready.n,
        };
        let wanted: Vec<Wanted<'_>> =
            asked.iter().map(|ready| Wanted { n: n(ready), excluded: &ready.excluded }).collect();
        let items = self.parameters().items;
        let lists = best_each(self.n_items(), &wanted, |which, first, scores| {
            let query = &asked[which].query;
            match small {
                Some(small) => small.dots(first, query, scores),
                None => dots::block_dots(items.vectors.rows_from(first, scores.len()), query, scores),
            }
            add_bias(items, first, scores);
            self.adjust(&asked[which].knobs, first, scores);
        });
        let finished = |(list, ready): (Vec<Scored>, &&Ready<'_>)| match small {
            None => self.without_noise(ready, list),
            Some(_) => {
                let mut candidates: Vec<ItemId> = list.iter().map(|scored| scored.item).collect();
                candidates.sort_unstable();
                self.best_among(ready, &candidates)
            }
        };
        lists.into_iter().zip(asked).map(finished).collect()
    }

    fn best_among(&self, ready: &Ready<'_>, allowed: &[ItemId]) -> Vec<Scored> {
        let list = best_of(ready.n, allowed, |item| {
            let mut score = [self.logit(ready, item)];
            self.adjust(&ready.knobs, item, &mut score);
            score[0]
        });
        self.without_noise(ready, list)
    }

    fn logit(&self, ready: &Ready<'_>, item: usize) -> f32 {
        let mut score = [0.0];
        logits(self.parameters().items, &ready.query, item, &mut score);
        score[0]
    }

    /// What `knobs` make of the logits of the items from `first` on.
    fn adjust(&self, knobs: &Knobs, first: usize, scores: &mut [f32]) {
        if knobs.popularity_penalty > 0.0 {
            let popularity = &self.log_counts()[first..first + scores.len()];
            simd::axpy(-knobs.popularity_penalty, popularity, scores);
        }
        // Gumbel noise of scale one added to score / temperature: the largest n are a draw without replacement
        // from the softmax (Efraimidis & Spirakis; Kool et al., 2019).
        if knobs.temperature > 0.0 {
            for (item, score) in (first as ItemId..).zip(scores) {
                *score = *score / knobs.temperature + gumbel(knobs.seed, item);
            }
        }
    }

    /// The list with the scores of its items in place of what was drawn.
    fn without_noise(&self, ready: &Ready<'_>, mut list: Vec<Scored>) -> Vec<Scored> {
        if ready.knobs.temperature > 0.0 {
            let penalty = Knobs { temperature: 0.0, ..ready.knobs };
            for scored in &mut list {
                let mut score = [self.logit(ready, scored.item as usize)];
                self.adjust(&penalty, scored.item as usize, &mut score);
                scored.score = score[0];
            }
        }
        list
    }
}
