//! Measures of a ranking against the items that the user touched afterwards.
//!
//! With n test items, and hits at the ranks r1 < r2 < ... (from 1) among the first k:
//!
//! | measure | one user's value |
//! |---|---|
//! | `recall@k` | hits / n (the paper, LightGCN) |
//! | `recall-min@k` | hits / min(k, n) (Liang et al., 2018) |
//! | `ndcg@k` | sum of 1 / log2(r + 1), over the same sum for the ranks 1 to min(k, n) |
//! | `precision@k` | hits / k |
//! | `map@k` | sum over hits j of j / rj, over min(k, n) |
//! | `mrr@k` | 1 / r1, or 0 without a hit |
//! | `hit-rate@k` | 1 with a hit, 0 without |
//! | `coverage@k` | (no user's value) share of the catalogue that is among anybody's first k |

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::data::ItemId;
use crate::error::{Error, Result};

/// A measure of rankings without its cut-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Measure {
    /// Hits over the number of test items.
    Recall,
    /// Hits over the smaller of k and the number of test items.
    RecallMin,
    /// Normalised discounted cumulative gain.
    Ndcg,
    /// Hits over k.
    Precision,
    /// Mean average precision.
    Map,
    /// Mean reciprocal rank of the first hit.
    Mrr,
    /// Whether there is a hit.
    HitRate,
    /// Share of the catalogue that anybody is recommended.
    Coverage,
}

impl Measure {
    /// Every measure.
    pub const ALL: [Self; 8] = [
        Self::Recall,
        Self::RecallMin,
        Self::Ndcg,
        Self::Precision,
        Self::Map,
        Self::Mrr,
        Self::HitRate,
        Self::Coverage,
    ];

    /// The name in output and configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recall => "recall",
            Self::RecallMin => "recall-min",
            Self::Ndcg => "ndcg",
            Self::Precision => "precision",
            Self::Map => "map",
            Self::Mrr => "mrr",
            Self::HitRate => "hit-rate",
            Self::Coverage => "coverage",
        }
    }

    /// What is divided by what, where two definitions are in use.
    pub(crate) fn remark(self) -> &'static str {
        match self {
            Self::Recall => "hits / test items",
            Self::RecallMin => "hits / min(k, test items)",
            Self::Map => "over min(k, test items)",
            _ => "",
        }
    }
}

/// A measure at a cut-off, written `ndcg@50`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Metric {
    /// What is measured.
    pub measure: Measure,
    /// How many of the best items count; at least 1.
    pub k: usize,
}

impl Metric {
    /// `measure` at `k`.
    pub const fn new(measure: Measure, k: usize) -> Self {
        Self { measure, k }
    }

    /// Every one of `measures` at every one of `ks`.
    pub fn grid(measures: &[Measure], ks: &[usize]) -> Vec<Self> {
        measures.iter().flat_map(|&measure| ks.iter().map(move |&k| Self { measure, k })).collect()
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.measure.name(), self.k)
    }
}

impl From<Metric> for String {
    fn from(metric: Metric) -> Self {
        metric.to_string()
    }
}

impl FromStr for Metric {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || {
            Error::config(
                "metric",
                format!("`{text}` is not a measure at a cut-off"),
                format!("write one of {} with a positive number, as in `ndcg@50`", names()),
            )
        };
        let (name, k) = text.split_once('@').ok_or_else(unknown)?;
        let measure = Measure::ALL.into_iter().find(|measure| measure.name() == name).ok_or_else(unknown)?;
        match k.parse() {
            Ok(k) if k > 0 => Ok(Self { measure, k }),
            _ => Err(unknown()),
        }
    }
}

impl TryFrom<String> for Metric {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

fn names() -> String {
    Measure::ALL.map(Measure::name).join(", ")
}

/// Measures one user's ranking after another; the logarithms are taken once.
#[derive(Debug, Clone)]
pub struct Yardstick {
    metrics: Vec<Metric>,
    /// `gains[r]` = sum of 1 / log2(rank + 1) over the ranks 1 to r.
    gains: Vec<f64>,
    /// Ranks of the hits of the user at hand, from 0.
    hits: Vec<usize>,
}

impl Yardstick {
    /// A yardstick for `metrics`, at cut-offs of at most `longest`, the number of items.
    pub fn new(metrics: &[Metric], longest: usize) -> Self {
        let depth = depth(metrics).min(longest);
        let mut gains = vec![0.0; depth + 1];
        for rank in 1..=depth {
            gains[rank] = gains[rank - 1] + 1.0 / ((rank + 1) as f64).log2();
        }
        Self { metrics: metrics.to_vec(), gains, hits: Vec::new() }
    }

    /// The metrics, in the order of [`Yardstick::values`].
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// The values of one user, one for each metric: `ranked` is best first, `test` ascends and is not empty.
    /// Coverage has no value for one user; its place is 0.
    pub fn values<'a>(
        &'a mut self,
        ranked: impl Iterator<Item = ItemId>,
        test: &'a [ItemId],
    ) -> impl Iterator<Item = f64> + 'a {
        self.hits.clear();
        for (rank, item) in ranked.take(self.gains.len() - 1).enumerate() {
            if test.binary_search(&item).is_ok() {
                self.hits.push(rank);
            }
        }
        self.metrics.iter().map(|&metric| self.value(metric, test.len()))
    }

    fn value(&self, Metric { measure, k }: Metric, n_test: usize) -> f64 {
        let hits = &self.hits[..self.hits.partition_point(|&rank| rank < k)];
        let ideal = k.min(n_test);
        match measure {
            Measure::Recall => hits.len() as f64 / n_test as f64,
            Measure::RecallMin => hits.len() as f64 / ideal as f64,
            Measure::Ndcg => {
                let gain: f64 = hits.iter().map(|&rank| self.gains[rank + 1] - self.gains[rank]).sum();
                gain / self.gains[ideal.min(self.gains.len() - 1)]
            }
            Measure::Precision => hits.len() as f64 / k as f64,
            Measure::Map => {
                let precisions: f64 = hits
                    .iter()
                    .enumerate()
                    .map(|(before, &rank)| (before + 1) as f64 / (rank + 1) as f64)
                    .sum();
                precisions / ideal as f64
            }
            Measure::Mrr => hits.first().map_or(0.0, |&rank| 1.0 / (rank + 1) as f64),
            Measure::HitRate => f64::from(u8::from(!hits.is_empty())),
            Measure::Coverage => 0.0,
        }
    }
}

/// The largest cut-off of `metrics`.
pub(crate) fn depth(metrics: &[Metric]) -> usize {
    metrics.iter().map(|metric| metric.k).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(metric: &str, ranked: &[ItemId], test: &[ItemId]) -> f64 {
        let metric = metric.parse().unwrap();
        let mut yardstick = Yardstick::new(&[metric], 100);
        yardstick.values(ranked.iter().copied(), test).next().unwrap()
    }

    #[test]
    fn values_equal_those_worked_out_by_hand() {
        // Hits at ranks 2 and 4; the test item 9 is never ranked.
        let (ranked, test) = ([7, 3, 8, 1, 5], [1, 3, 9]);
        let check = |metric, expected: f64| {
            let got = value(metric, &ranked, &test);
            assert!((got - expected).abs() < 1e-12, "{metric} is {got}, not {expected}");
        };
        check("recall@5", 2.0 / 3.0);
        check("recall@2", 1.0 / 3.0);
        check("recall-min@5", 2.0 / 3.0);
        check("recall-min@2", 0.5);
        check("precision@5", 0.4);
        check("precision@10", 0.2);
        check("mrr@5", 0.5);
        check("mrr@1", 0.0);
        check("hit-rate@1", 0.0);
        check("hit-rate@2", 1.0);
        check("map@5", (1.0 / 2.0 + 2.0 / 4.0) / 3.0);
        check("map@2", (1.0 / 2.0) / 2.0);
        let ideal = 1.0 + 1.0 / 3f64.log2() + 0.5;
        check("ndcg@5", (1.0 / 3f64.log2() + 1.0 / 5f64.log2()) / ideal);
        check("ndcg@2", (1.0 / 3f64.log2()) / (1.0 + 1.0 / 3f64.log2()));
    }

    #[test]
    fn a_perfect_ranking_has_the_value_one() {
        for metric in ["recall@3", "recall-min@2", "ndcg@2", "ndcg@50", "precision@3", "map@3", "mrr@1"] {
            assert_eq!(value(metric, &[4, 6, 2], &[2, 4, 6]), 1.0, "{metric}");
        }
    }

    #[test]
    fn metrics_are_read_as_they_are_written() {
        for metric in Metric::grid(&Measure::ALL, &[1, 50]) {
            assert_eq!(metric.to_string().parse::<Metric>().unwrap(), metric);
        }
        for text in ["ndcg", "ndcg@", "ndcg@0", "ndcg@-1", "ndgc@5", "@5", ""] {
            let problem = text.parse::<Metric>().unwrap_err().to_string();
            assert!(problem.contains("as in `ndcg@50`"), "{problem}");
        }
    }
}
