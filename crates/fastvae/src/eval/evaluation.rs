//! [`Evaluation`]: means over users, with their standard errors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::eval::metrics::{Measure, Metric};

/// A mean over users.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Its standard error: the sample deviation over users divided by sqrt(users). Absent for one user, and for
    /// coverage, which is no mean.
    pub standard_error: Option<f64>,
}

/// How well a ranking did, over the users who have test items.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Users with test items: those that the means are over.
    pub n_users: usize,
    /// The value of each metric.
    pub metrics: BTreeMap<Metric, Estimate>,
}

impl Evaluation {
    /// The mean of `metric`, where it was asked for.
    pub fn mean(&self, metric: Metric) -> Option<f64> {
        self.metrics.get(&metric).map(|estimate| estimate.mean)
    }
}

/// A table: one line for each measure, one column for each cut-off, `mean ± standard error`.
impl fmt::Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measures: BTreeSet<Measure> = self.metrics.keys().map(|metric| metric.measure).collect();
        let ks: BTreeSet<usize> = self.metrics.keys().map(|metric| metric.k).collect();
        let label = |measure: Measure| match measure.remark() {
            "" => measure.name().to_string(),
            remark => format!("{} ({remark})", measure.name()),
        };
        let title = format!("{} users", self.n_users);
        let width = measures.iter().map(|&m| label(m).len()).chain([title.len()]).max().unwrap_or(0);
        write!(f, "{title:<width$}")?;
        for k in &ks {
            write!(f, "  {:>15}", format!("@{k}"))?;
        }
        for &measure in &measures {
            write!(f, "\n{:<width$}", label(measure))?;
            for &k in &ks {
                let cell = match self.metrics.get(&Metric { measure, k }) {
                    None => String::new(),
                    Some(Estimate { mean, standard_error: None }) => format!("{mean:.4}         "),
                    Some(Estimate { mean, standard_error: Some(error) }) => format!("{mean:.4} ± {error:.4}"),
                };
                write!(f, "  {cell:>15}")?;
            }
        }
        Ok(())
    }
}

/// Sums over some users, from which means and standard errors follow. Blocks of users are added in order, so
/// that the result does not depend on the number of threads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sums {
    n_users: usize,
    /// Sum and sum of squares for each metric.
    sums: Vec<(f64, f64)>,
}

impl Sums {
    pub(crate) fn add_user(&mut self, values: impl Iterator<Item = f64>) {
        self.n_users += 1;
        for (i, value) in values.enumerate() {
            if i == self.sums.len() {
                self.sums.push((0.0, 0.0));
            }
            self.sums[i].0 += value;
            self.sums[i].1 += value * value;
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.n_users += other.n_users;
        self.sums.resize(self.sums.len().max(other.sums.len()), (0.0, 0.0));
        for (sum, more) in self.sums.iter_mut().zip(&other.sums) {
            sum.0 += more.0;
            sum.1 += more.1;
        }
    }

    /// The means of `metrics`; `coverage(k)` is the share of the catalogue among anybody's first k.
    pub(crate) fn into_evaluation(
        mut self,
        metrics: &[Metric],
        coverage: impl Fn(usize) -> f64,
    ) -> Evaluation {
        self.sums.resize(metrics.len(), (0.0, 0.0));
        let n = self.n_users as f64;
        let estimate = |(sum, squares): (f64, f64)| Estimate {
            mean: if self.n_users == 0 { 0.0 } else { sum / n },
            // Rounding can leave the variance of equal values a little below zero.
            standard_error: (self.n_users > 1)
                .then(|| ((squares - sum * sum / n).max(0.0) / (n - 1.0) / n).sqrt()),
        };
        let metrics = metrics.iter().zip(&self.sums).map(|(&metric, &sums)| match metric.measure {
            Measure::Coverage => (metric, Estimate { mean: coverage(metric.k), standard_error: None }),
            _ => (metric, estimate(sums)),
        });
        Evaluation { n_users: self.n_users, metrics: metrics.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluation() -> Evaluation {
        let metrics: Vec<Metric> =
            ["recall@10", "ndcg@10", "ndcg@50", "coverage@50"].map(|m| m.parse().unwrap()).into();
        let (mut first, mut second) = (Sums::default(), Sums::default());
        first.add_user([0.0, 0.25, 0.5, 0.0].into_iter());
        first.add_user([1.0, 0.25, 0.5, 0.0].into_iter());
        second.add_user([0.5, 0.25, 0.8, 0.0].into_iter());
        first.add(&second);
        first.into_evaluation(&metrics, |_| 0.125)
    }

    #[test]
    fn standard_errors_are_sample_deviations_over_the_root_of_users() {
        let evaluation = evaluation();
        let recall = evaluation.metrics[&"recall@10".parse().unwrap()];
        assert_eq!(recall.mean, 0.5);
        assert!((recall.standard_error.unwrap() - 0.5 / 3f64.sqrt()).abs() < 1e-12);
        assert_eq!(evaluation.metrics[&"ndcg@10".parse().unwrap()].standard_error, Some(0.0));
    }

    #[test]
    fn the_table_names_the_denominator_of_recall() {
        let table = evaluation().to_string();
        let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "3 users                                 @10              @50",
                "recall (hits / test items)  0.5000 ± 0.2887",
                "ndcg                        0.2500 ± 0.0000  0.6000 ± 0.1000",
                "coverage                                     0.1250",
            ]
        );
    }

    #[test]
    fn evaluations_survive_json() {
        let json = serde_json::to_value(evaluation()).unwrap();
        assert_eq!(json["metrics"]["recall@10"]["mean"], 0.5);
        assert_eq!(serde_json::from_value::<Evaluation>(json).unwrap(), evaluation());
    }
}
