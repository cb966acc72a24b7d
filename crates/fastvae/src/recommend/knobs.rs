//! [`Knobs`]: how a list differs from the plain best n, decided when it is asked for.

use rayon::prelude::*;

use crate::data::ItemId;
use crate::error::{Error, Result};
use crate::eval::Scored;
use crate::math::{Purpose, Stream};
use crate::model::{History, encode};
use crate::model_file::Model;
use crate::recommend::filter::{ascending, union};
use crate::recommend::search::Search;
use crate::recommend::single::{Request, best, best_of, clean_history, logits};

/// Candidates for each item of a diverse list, and at least this many in all.
const CANDIDATES_EACH: usize = 8;
const CANDIDATES: usize = 100;

/// What a list is made of beside the scores. The default changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Knobs {
    /// Subtracted from each score for each unit of ln(1 + count of the item): 0 to 2. At 1 an item ten times as
    /// popular must be ten times as likely.
    pub popularity_penalty: f32,
    /// From 0, the best scores, to 1, items as unlike each other as possible (maximal marginal relevance).
    pub diversity: f32,
    /// Above 0 the list is drawn without replacement from the softmax of score / temperature: 0 to 10.
    pub temperature: f32,
    /// Seed of that draw.
    pub seed: u64,
}

impl Knobs {
    /// Checks every value once.
    ///
    /// # Errors
    /// [`Error::Config`] with the first one out of its range.
    pub fn validate(&self) -> Result<()> {
        let ranges = [
            ("popularity_penalty", self.popularity_penalty, 2.0),
            ("diversity", self.diversity, 1.0),
            ("temperature", self.temperature, 10.0),
        ];
        for (key, value, most) in ranges {
            if !(0.0..=most).contains(&value) {
                return Err(Error::config(key, format!("is {value}"), format!("give 0 to {most}")));
            }
        }
        Ok(())
    }

    /// Whether scores are used as they are.
    fn keeps_scores(&self) -> bool {
        self.popularity_penalty == 0.0 && self.temperature == 0.0
    }
}

/// How a list was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Every allowed item was scored.
    Exact,
    /// Some cells of the index were.
    Approximate,
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
    /// As [`Model::recommend`], and [`Error::Config`] if a knob is out of its range.
    pub fn recommend_with(
        &self,
        request: &Request<'_>,
        knobs: &Knobs,
        search: Option<&Search>,
    ) -> Result<(Vec<Scored>, Method)> {
        knobs.validate()?;
        let (items, weights) = clean_history(self.n_items(), request.history)?;
        let mut excluded = ascending(self.n_items(), request.exclude)?;
        if !request.keep_seen {
            excluded = union(&excluded, &items);
        }
        let history = History { items: &items, weights: weights.as_deref() };
        let query = encode(self.parameters(), 1, |_| history);
        let query = query.view().row(0);
        let n = match knobs.diversity > 0.0 {
            true => request.n.saturating_mul(CANDIDATES_EACH).max(CANDIDATES),
            false => request.n,
        };
        let loose = request.only.is_none() && 2 * excluded.len() < self.n_items();
        let (list, method) = match search.filter(|_| loose && knobs.keeps_scores()) {
            Some(search) => (search.best(self, query, n, &excluded), Method::Approximate),
            None => {
                let allowed = match request.only {
                    None => None,
                    Some(only) => {
                        let mut allowed = ascending(self.n_items(), only)?;
                        allowed.retain(|item| excluded.binary_search(item).is_err());
                        Some(allowed)
                    }
                };
                (self.exact(n, query, &excluded, allowed.as_deref(), knobs), Method::Exact)
            }
        };
        let list = match knobs.diversity > 0.0 {
            true => self.diversified(&list, request.n, knobs.diversity),
            false => list,
        };
        Ok((list, method))
    }

    fn exact(
        &self,
        n: usize,
        query: &[f32],
        excluded: &[ItemId],
        allowed: Option<&[ItemId]>,
        knobs: &Knobs,
    ) -> Vec<Scored> {
        let adjusted = |first: usize, scores: &mut [f32]| {
            logits(self.parameters().items, query, first, scores);
            if knobs.popularity_penalty > 0.0 {
                let popularity = &self.log_counts()[first..first + scores.len()];
                crate::math::simd::axpy(-knobs.popularity_penalty, popularity, scores);
            }
        };
        if knobs.temperature == 0.0 {
            return match allowed {
                None => best(self.n_items(), n, excluded, adjusted),
                Some(allowed) => best_of(n, allowed, |item| {
                    let mut score = [0.0];
                    adjusted(item, &mut score);
                    score[0]
                }),
            };
        }
        // Gumbel noise of scale one added to score / temperature: the largest n are a draw without replacement
        // from the softmax (Efraimidis & Spirakis; Kool et al., 2019).
        let noisy = |first: usize, scores: &mut [f32]| {
            adjusted(first, scores);
            for (item, score) in (first as ItemId..).zip(scores) {
                *score = *score / knobs.temperature + gumbel(knobs.seed, item);
            }
        };
        let drawn = match allowed {
            None => best(self.n_items(), n, excluded, noisy),
            Some(allowed) => best_of(n, allowed, |item| {
                let mut score = [0.0];
                noisy(item, &mut score);
                score[0]
            }),
        };
        let without_noise = |drawn: Scored| {
            let mut score = [0.0];
            adjusted(drawn.item as usize, &mut score);
            Scored { item: drawn.item, score: score[0] }
        };
        drawn.into_iter().map(without_noise).collect()
    }

    /// ln(1 + count) of every item. Computed once.
    fn log_counts(&self) -> &[f32] {
        self.log_counts.get_or_init(|| {
            self.item_counts().par_iter().map(|&count| f64::from(count).ln_1p() as f32).collect()
        })
    }
}

/// Standard Gumbel noise of `item`: -ln(-ln u) with u uniform in (0, 1).
fn gumbel(seed: u64, item: ItemId) -> f32 {
    let word = Stream::new(seed, Purpose::Recommend, u32::MAX, item).next_word();
    let uniform = (f64::from(word) + 0.5) / (1u64 << 32) as f64;
    -(-uniform.ln()).ln() as f32
}
