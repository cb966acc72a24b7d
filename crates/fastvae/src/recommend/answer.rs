//! Answers: the best items for each question, with knobs and reasons; exact or over the index, several in one pass.

use crate::baseline::Fallback;
use crate::data::ItemId;
use crate::error::Result;
use crate::eval::scan::{Wanted, add_bias, best, best_each, best_of};
use crate::eval::{Scored, Scorer, Viewer, add_few};
use crate::math::{dots, simd};
use crate::model::{Model, ModelInternals};
use crate::network::History;
use crate::proposal::ItemTable;
use crate::recommend::knobs::{Knobs, gumbel};
use crate::recommend::many;
use crate::recommend::question::{Allowed, ListOptions, Question, ascending};
use crate::recommend::search::{self, SearchOptions};

/// Candidates for each item of a diverse list, and at least this many in all.
const CANDIDATES_EACH: usize = 8;
const CANDIDATES: usize = 100;

/// Candidates of the small copy of the items for each item of a list, and how many more.
const SMALL_EACH: usize = 4;
const SMALL_MORE: usize = 64;

/// A list, and how it came about.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Answer {
    /// The items with their scores, less the popularity penalty: best first (as drawn or picked, with a temperature or
    /// diversity); as many as were asked for, or all that are allowed.
    pub items: Vec<Scored>,
    /// Whether only some cells of the index were looked at.
    pub is_approximate: bool,
    /// What stands in for a taste, where nothing is known of who asks.
    pub fallback: Option<Fallback>,
    /// For each item the reasons for it, strongest first, only those that speak for it; empty where none were asked for.
    pub reasons: Vec<Vec<Reason>>,
}

impl From<Vec<Scored>> for Answer {
    /// A list that is nothing more.
    fn from(items: Vec<Scored>) -> Self {
        Self { items, ..Self::default() }
    }
}

/// An item of the history and its part in a recommendation.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Reason {
    /// The item of the history.
    pub item: ItemId,
    /// What the recommended item's score loses when this item is left out.
    pub contribution: f32,
    /// Its share of all that speaks for the recommendation, from 0 to 1: its contribution over the sum of the
    /// positive ones.
    pub share: f32,
}

/// A question with its scores and its filters in order.
struct Ready<'q> {
    allowed: Allowed,
    viewer: Option<u32>,
    list: &'q ListOptions,
    /// The query of the item vectors, where scores are inner products with them.
    query: Option<Vec<f32>>,
    /// What is added to that, for every item.
    row: Option<Vec<f32>>,
    /// What is added to that, for a few items, ascending.
    few: Vec<Scored>,
    fallback: Option<Fallback>,
    /// Items of the list before it is made diverse.
    n: usize,
    way: Way,
}

/// Where a list is looked for.
enum Way {
    Everywhere,
    Among,
    Cells,
}

impl Model {
    /// The answer to each question. Those that score every item share one pass over the item vectors, so that many cost
    /// less together than one after the other; no answer depends on the others.
    ///
    /// Ties go to the smaller item. Cost of one: items x latent, spread over the current thread pool; or the length of
    /// `only` x latent, or the cells that are visited. Reasons cost the length of the history times a scoring of the list.
    ///
    /// # Errors
    /// [`crate::Error::UnknownId`] if a position is beyond the catalogue, [`crate::Error::Data`] if weights are not one
    /// finite number for each item or the method cannot score this user, [`crate::Error::Config`] if a knob is out of its
    /// range.
    pub fn answer(&self, questions: &[Question]) -> Vec<Result<Answer>> {
        let ready: Vec<Result<Ready<'_>>> = questions.iter().map(|question| self.ready(question)).collect();
        let scanning: Vec<&Ready<'_>> =
            ready.iter().flatten().filter(|ready| matches!(ready.way, Way::Everywhere)).collect();
        let mut scanned = self.best_everywhere(&scanning).into_iter();
        let answer = |ready: Result<Ready<'_>>| {
            let ready = ready?;
            let list = match &ready.way {
                Way::Everywhere => scanned.next().expect("a list for each that is looked for everywhere"),
                Way::Among => self.best_among(&ready, ready.allowed.only.as_deref().unwrap_or_default()),
                Way::Cells => {
                    search::best(self, ready.query(), &ready.few, ready.n, &ready.allowed.excluded)?
                }
            };
            let items = match ready.list.knobs.diversity > 0.0 {
                true => self.diversified(&list, ready.list.n, ready.list.knobs.diversity)?,
                false => list,
            };
            let is_approximate = matches!(ready.way, Way::Cells);
            let reasons = self.reasons(&ready, &items)?;
            Ok(Answer { items, is_approximate, fallback: ready.fallback, reasons })
        };
        ready.into_iter().map(answer).collect()
    }

    /// The best items for one question; as [`Model::answer`].
    ///
    /// # Errors
    /// As [`Model::answer`].
    pub fn recommend(&self, question: &Question) -> Result<Vec<Scored>> {
        let mut answers = self.answer(std::slice::from_ref(question));
        answers.pop().expect("one answer to one question").map(|answer| answer.items)
    }

    /// Hands the answer to viewers `0..n` to `sink`, in their order: to many users, block by block, so that neither the
    /// scores nor the lists of all are ever held.
    ///
    /// `viewer(at)` is a row of [`crate::data::Interactions`], a history, or a training user; histories ascend. Work is
    /// spread over the current thread pool; `sink` is called from this thread.
    ///
    /// # Errors
    /// As [`Model::answer`], the first of any viewer; [`crate::Error::Data`] if a history is not ascending; the first error
    /// of `sink`.
    pub fn recommend_all<'h, V: Into<Viewer<'h>>>(
        &self,
        n: usize,
        viewer: impl Fn(usize) -> V + Sync,
        list: &ListOptions,
        sink: impl FnMut(usize, Answer) -> Result<()>,
    ) -> Result<()> {
        many::recommend_all(self, n, |at| viewer(at).into(), list, sink)
    }

    /// The `n` items most like `item`, nearest first, without the item itself: by the cosine of their vectors where the
    /// method has vectors. Cost: items x latent, and once per model the same again for the lengths of the vectors.
    ///
    /// # Errors
    /// [`crate::Error::UnknownId`] if `item` is beyond the catalogue, [`crate::Error::Data`] if the method compares no items.
    pub fn similar(&self, item: ItemId, n: usize) -> Result<Vec<Scored>> {
        let itself = ascending(self.n_items(), &[item])?;
        let Some(table) = self.item_table() else {
            let mut scores = vec![0.0; self.n_items()];
            self.method.likeness(item, &mut scores)?;
            return Ok(best(self.n_items(), n, &itself, |first, part| {
                part.copy_from_slice(&scores[first..][..part.len()]);
            }));
        };
        let (vectors, lengths) = (table.vectors, self.inverse_norms(table));
        let mut query = vectors.row(item as usize).to_vec();
        query.iter_mut().for_each(|value| *value *= lengths[item as usize]);
        Ok(best(self.n_items(), n, &itself, |first, scores| {
            dots::block_dots(vectors.rows_from(first, scores.len()), &query, scores);
            for (score, length) in scores.iter_mut().zip(&lengths[first..]) {
                *score *= length;
            }
        }))
    }

    /// Measures how many cells an approximate search visits, on the histories of `users`, with their weights; on a few
    /// items drawn by their popularity where there are none. What was measured before, and an index that
    /// [`SearchOptions::codewords`] asks for anew, are replaced. Nothing happens without an index.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if the options cannot work.
    pub fn calibrate(
        &mut self,
        users: Option<&crate::data::Interactions>,
        options: &SearchOptions,
    ) -> Result<()> {
        options.validate()?;
        if options.codewords.is_some() {
            self.build_index(options.codewords)?;
        }
        let calibration = search::calibrate(self, users, options)?;
        self.description_mut().search = calibration;
        Ok(())
    }

    fn ready<'q>(&self, question: &'q Question) -> Result<Ready<'q>> {
        let (n_items, list) = (self.n_items(), &question.list);
        let history = History { items: &question.history, weights: question.weights.as_deref() };
        let allowed = Allowed::of(n_items, history, list)?;
        // Who is among the users of a method that has none is still nobody to it.
        let user = question.user.filter(|_| self.user_ids().is_some());
        let viewers = [Viewer { history: allowed.history(), user }];
        let scores = self.block(&viewers)?;
        let query = scores.products.as_ref().map(|(queries, _)| queries.view().row(0).to_vec());
        let row = scores.row(0, n_items);
        let few = scores.few.as_ref().map(|few| few(0)).unwrap_or_default();
        drop(scores);
        let fallback = self.fallback(&viewers[0]);
        let loose = 2 * allowed.excluded.len() < n_items;
        let searched = list.approximate && loose && list.knobs.keeps_scores();
        let way = match (&allowed.only, searched && row.is_none() && search::is_ready(self)) {
            (Some(_), _) => Way::Among,
            (None, true) => Way::Cells,
            (None, false) => Way::Everywhere,
        };
        let n = match list.knobs.diversity > 0.0 {
            true => list.n.saturating_mul(CANDIDATES_EACH).max(CANDIDATES),
            false => list.n,
        };
        Ok(Ready { allowed, viewer: user, list, query, row, few, fallback, n, way })
    }

    /// Where the model has a small copy of the item vectors, candidates come from that and are scored again in full
    /// precision: scores are exact, and only an item that rounding throws far back can be missing.
    fn best_everywhere(&self, asked: &[&Ready<'_>]) -> Vec<Vec<Scored>> {
        let (small, table) = (self.small_items(), self.item_table());
        let n = |ready: &Ready<'_>| match small {
            Some(_) => ready.n.saturating_mul(SMALL_EACH).saturating_add(SMALL_MORE),
            None => ready.n,
        };
        let wanted: Vec<Wanted<'_>> =
            asked.iter().map(|ready| Wanted { n: n(ready), excluded: &ready.allowed.excluded }).collect();
        let lists = best_each(self.n_items(), &wanted, |which, first, scores| {
            let ready = asked[which];
            match (table, &ready.query, small) {
                (Some(items), Some(query), Some(small)) => {
                    small.dots(first, query, scores);
                    add_bias(items, first, scores);
                }
                _ => products(table, ready, first, scores),
            }
            ready.add_row(first, scores);
            self.adjust(&ready.list.knobs, first, scores);
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
        let list = best_of(ready.n, allowed, |item| self.score(ready, item, &ready.list.knobs));
        self.without_noise(ready, list)
    }

    fn score(&self, ready: &Ready<'_>, item: usize, knobs: &Knobs) -> f32 {
        let mut score = [0.0];
        products(self.item_table(), ready, item, &mut score);
        ready.add_row(item, &mut score);
        self.adjust(knobs, item, &mut score);
        score[0]
    }

    /// What `knobs` make of the scores of the items from `first` on.
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
        if ready.list.knobs.temperature > 0.0 {
            let penalty = Knobs { temperature: 0.0, ..ready.list.knobs };
            for scored in &mut list {
                scored.score = self.score(ready, scored.item as usize, &penalty);
            }
        }
        list
    }

    /// Picks `n` of `candidates` (best first), each time the one with the largest (1 - `diversity`) x relevance -
    /// `diversity` x likeness (maximal marginal relevance; Carbonell & Goldstein, 1998). Relevance is the score mapped to
    /// 0..1 over the candidates, likeness the largest to what is already picked: the cosine of the vectors, or what the
    /// method takes for likeness, from 0 to 1. Cost: `n` x candidates x latent.
    fn diversified(&self, candidates: &[Scored], n: usize, diversity: f32) -> Result<Vec<Scored>> {
        let table = self.item_table().map(|table| (table.vectors, self.inverse_norms(table)));
        let best = candidates.first().map_or(0.0, |scored| scored.score);
        let span = best - candidates.last().map_or(0.0, |scored| scored.score);
        let relevance = |scored: Scored| if span > 0.0 { 1.0 - (best - scored.score) / span } else { 1.0 };
        // Each candidate with its largest likeness so far; updated by one product per pick.
        let mut left: Vec<(Scored, f32)> = candidates.iter().map(|&scored| (scored, -1.0)).collect();
        let mut picked: Vec<Scored> = Vec::with_capacity(n.min(left.len()));
        let mut like = vec![0.0; if table.is_some() { 0 } else { self.n_items() }];
        while picked.len() < n && !left.is_empty() {
            if let Some(&Scored { item: last, .. }) = picked.last() {
                let last = last as usize;
                if table.is_none() {
                    self.method.likeness(last as ItemId, &mut like)?;
                    let most = simd::max(&like).max(f32::MIN_POSITIVE);
                    like.iter_mut().for_each(|value| *value = (*value / most).clamp(0.0, 1.0));
                }
                for (scored, nearest) in &mut left {
                    let item = scored.item as usize;
                    *nearest = nearest.max(match table {
                        Some((vectors, lengths)) => {
                            simd::dot(vectors.row(item), vectors.row(last)) * lengths[item] * lengths[last]
                        }
                        None => like[item],
                    });
                }
            }
            let value = |&(scored, nearest): &(Scored, f32)| {
                let repeated = if picked.is_empty() { 0.0 } else { nearest };
                (1.0 - diversity) * relevance(scored) - diversity * repeated
            };
            let mut next = 0;
            for at in 1..left.len() {
                if value(&left[at]) > value(&left[next]) {
                    next = at;
                }
            }
            picked.push(left.remove(next).0);
        }
        Ok(picked)
    }

    /// Why each item is in the list: what its score would lose without each item of the history. Exact, by leaving each
    /// one out: no gradient and no approximation stands between.
    fn reasons(&self, ready: &Ready<'_>, items: &[Scored]) -> Result<Vec<Vec<Reason>>> {
        if ready.list.reasons == 0 {
            return Ok(Vec::new());
        }
        let history = ready.allowed.history();
        let of: Vec<ItemId> = items.iter().map(|scored| scored.item).collect();
        let lost = self.method.contributions(Viewer { history, user: ready.viewer }, &of)?;
        let reasons = |column: usize| {
            let mut reasons: Vec<Reason> = (0..history.items.len())
                .map(|row| Reason {
                    item: history.items[row],
                    contribution: lost.row(row)[column],
                    share: 0.0,
                })
                .filter(|reason| reason.contribution > 0.0)
                .collect();
            let total: f64 = reasons.iter().map(|reason| f64::from(reason.contribution)).sum();
            reasons.iter_mut().for_each(|r| r.share = (f64::from(r.contribution) / total) as f32);
            reasons.sort_by(|a, b| b.contribution.total_cmp(&a.contribution).then(a.item.cmp(&b.item)));
            reasons.truncate(ready.list.reasons);
            reasons
        };
        Ok((0..of.len()).map(reasons).collect())
    }
}

impl Allowed {
    fn history(&self) -> History<'_> {
        History { items: &self.items, weights: self.weights.as_deref() }
    }
}

impl Ready<'_> {
    fn query(&self) -> &[f32] {
        self.query.as_deref().expect("a search has a query")
    }

    fn add_row(&self, first: usize, scores: &mut [f32]) {
        if let Some(row) = &self.row {
            simd::axpy(1.0, &row[first..first + scores.len()], scores);
        }
        add_few(&self.few, first, scores);
    }
}

/// The inner products with the items from `first` on, and their biases; zeros where scores are none.
fn products(items: Option<ItemTable<'_>>, ready: &Ready<'_>, first: usize, scores: &mut [f32]) {
    match (items, &ready.query) {
        (Some(items), Some(query)) => crate::eval::scan::logits(items, query, first, scores),
        _ => scores.fill(0.0),
    }
}
