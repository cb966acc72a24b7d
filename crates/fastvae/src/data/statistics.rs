//! [`Statistics`]: the size and shape of a data set, as in the paper's table 1.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::data::Interactions;

/// What a data set looks like.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Statistics {
    /// Number of users.
    pub users: usize,
    /// Number of items.
    pub items: usize,
    /// Number of (user, item) pairs.
    pub interactions: usize,
    /// Share of the users x items matrix that is empty, from 0 to 1.
    pub sparsity: f64,
    /// Interactions per user.
    pub history: Spread,
    /// Interactions per item.
    pub popularity: Spread,
    /// Concentration of the interactions on few items: 0 is even, 1 is all on one.
    pub popularity_gini: f64,
    /// Earliest and latest timestamp, where the data has them, in seconds since the epoch.
    pub timespan: Option<(i64, i64)>,
}

/// How counts are spread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Smallest count.
    pub min: usize,
    /// Quarter of the counts are at most this.
    pub lower_quartile: usize,
    /// Half of the counts are at most this.
    pub median: usize,
    /// Three quarters of the counts are at most this.
    pub upper_quartile: usize,
    /// 99 % of the counts are at most this.
    pub percentile_99: usize,
    /// Largest count.
    pub max: usize,
}

impl Statistics {
    /// The statistics of `data`; one pass and two sorts of counts.
    pub fn of(data: &Interactions) -> Self {
        let (users, items, interactions) = (data.n_users(), data.n_items(), data.n_interactions());
        let mut histories: Vec<usize> = data.offsets().windows(2).map(|span| span[1] - span[0]).collect();
        let mut popularity: Vec<usize> = data.item_counts().into_iter().map(|count| count as usize).collect();
        histories.sort_unstable();
        popularity.sort_unstable();
        let cells = users as f64 * items as f64;
        Self {
            users,
            items,
            interactions,
            sparsity: if cells > 0.0 { 1.0 - interactions as f64 / cells } else { 1.0 },
            history: Spread::of_sorted(&histories),
            popularity_gini: gini(&popularity),
            popularity: Spread::of_sorted(&popularity),
            timespan: data
                .timestamps()
                .and_then(|times| Some((times.iter().copied().min()?, times.iter().copied().max()?))),
        }
    }
}

impl Spread {
    fn of_sorted(counts: &[usize]) -> Self {
        let quantile = |share: f64| {
            let rank = (share * counts.len() as f64).ceil() as usize;
            counts.get(rank.max(1) - 1).copied().unwrap_or(0)
        };
        Self {
            mean: counts.iter().sum::<usize>() as f64 / counts.len().max(1) as f64,
            min: quantile(0.0),
            lower_quartile: quantile(0.25),
            median: quantile(0.5),
            upper_quartile: quantile(0.75),
            percentile_99: quantile(0.99),
            max: quantile(1.0),
        }
    }
}

/// Gini coefficient of ascending counts.
fn gini(counts: &[usize]) -> f64 {
    let n = counts.len() as f64;
    let total: f64 = counts.iter().map(|&count| count as f64).sum();
    if total == 0.0 {
        return 0.0;
    }
    let ranked: f64 = counts.iter().enumerate().map(|(at, &count)| (at + 1) as f64 * count as f64).sum();
    2.0 * ranked / (n * total) - (n + 1.0) / n
}

impl fmt::Display for Statistics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "users         {:>15}", thousands(self.users))?;
        writeln!(out, "items         {:>15}", thousands(self.items))?;
        writeln!(out, "interactions  {:>15}", thousands(self.interactions))?;
        writeln!(out, "sparsity      {:>14.4}%", self.sparsity * 100.0)?;
        writeln!(out, "per user      {}", self.history)?;
        writeln!(out, "per item      {}", self.popularity)?;
        write!(out, "popularity    gini {:.3}", self.popularity_gini)?;
        if let Some((first, last)) = self.timespan {
            let days = last.saturating_sub(first) as f64 / 86_400.0;
            write!(out, "\ntime span     {first} to {last} ({days:.0} days)")?;
        }
        Ok(())
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "mean {:.1}, min {}, quartiles {} / {} / {}, 99 % {}, max {}",
            self.mean,
            thousands(self.min),
            thousands(self.lower_quartile),
            thousands(self.median),
            thousands(self.upper_quartile),
            thousands(self.percentile_99),
            thousands(self.max)
        )
    }
}

/// `n` with a comma every three digits.
pub(crate) fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::IdMap;
    use std::sync::Arc;

    fn rows(
        offsets: Vec<usize>,
        items: Vec<u32>,
        timestamps: Option<Vec<i64>>,
        n_items: usize,
    ) -> Interactions {
        let users = Arc::new(IdMap::range(offsets.len() - 1));
        let item_ids = Arc::new(IdMap::range(n_items));
        Interactions::from_parts(offsets, items, None, timestamps, users, item_ids).unwrap()
    }

    #[test]
    fn a_small_example_counts_right() {
        let data = rows(vec![0, 2, 3, 3], vec![0, 1, 0], Some(vec![86_400, 0, 7]), 4);
        let statistics = Statistics::of(&data);
        assert_eq!((statistics.users, statistics.items, statistics.interactions), (3, 4, 3));
        assert_eq!(statistics.sparsity, 0.75);
        assert_eq!((statistics.history.median, statistics.history.max, statistics.history.min), (1, 2, 0));
        assert_eq!(statistics.history.mean, 1.0);
        assert_eq!(statistics.timespan, Some((0, 86_400)));
        let text = statistics.to_string();
        assert!(text.contains("75.0000%") && text.contains("(1 days)"), "{text}");
    }

    #[test]
    fn gini_is_zero_when_even_and_near_one_when_concentrated() {
        assert_eq!(gini(&[3, 3, 3]), 0.0);
        let mut counts = vec![0; 999];
        counts.push(50);
        assert!((gini(&counts) - 0.999).abs() < 1e-12);
        assert_eq!(gini(&[]), 0.0);
    }

    #[test]
    fn nothing_has_statistics_too() {
        let statistics = Statistics::of(&rows(vec![0], vec![], None, 0));
        assert_eq!((statistics.sparsity, statistics.history.max), (1.0, 0));
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1000, 2_001_164].map(thousands), ["0", "999", "1,000", "2,001,164"]);
    }
}
