//! Evaluating a model, or the popularity baseline, on held-out interactions.

use std::sync::atomic::{AtomicU32, Ordering};

use rayon::prelude::*;

use crate::data::{Interactions, ItemId, UserId};
use crate::error::{Error, Result};
use crate::eval::evaluation::{Evaluation, Sums};
use crate::eval::metrics::{Measure, Metric, Yardstick, depth};
use crate::eval::ranking::{Rankings, rank};
use crate::eval::scorer::{Scorer, Viewer, positions_of};
use crate::eval::topk::Scored;

/// Users whose sums are made before they are added up; fixed, so that sums do not depend on the threads.
const USERS: usize = 128;

/// Measures how a model or a baseline ranks the items of `test`, given the items of `histories`.
///
/// Row u of both belongs to the same user: `histories` is the training data, or for users that the model has
/// never seen the part that is folded in. Items of the history are never ranked. Users without test items are
/// left out and cost nothing. Cost: users x items x latent, without ever holding users x items.
///
/// # Errors
/// [`Error::Data`] if the two differ in users, differ from the model in items, or have a user that a method
/// without folding in has not learned from.
pub fn evaluate(
    scorer: impl Scorer,
    histories: &Interactions,
    test: &Interactions,
    metrics: &[Metric],
) -> Result<Evaluation> {
    let protocol = Protocol::of(&scorer, histories, test, metrics)?;
    let mut total = Sums::default();
    protocol.rank(
        &scorer,
        histories,
        depth(metrics),
        |rankings| {
            let ranked = rankings.iter().map(|(position, best)| (position, best.iter().map(|s| s.item)));
            protocol.sums(ranked)
        },
        |sums| total.add(&sums),
    )?;
    Ok(protocol.evaluation(total))
}

/// As [`evaluate`], for one metric, user by user: the users who have test items, ascending, each with the value.
/// Two models measured on the same data can be compared user by user with it.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_users(
    scorer: impl Scorer,
    histories: &Interactions,
    test: &Interactions,
    metric: Metric,
) -> Result<Vec<(UserId, f64)>> {
    let protocol = Protocol::of(&scorer, histories, test, &[metric])?;
    let mut all = Vec::with_capacity(protocol.users.len());
    protocol.rank(
        &scorer,
        histories,
        metric.k,
        |rankings| {
            let mut yardstick = protocol.yardstick.clone();
            let value = |(position, best): (usize, &[Scored])| {
                let user = protocol.users[position];
                let ranked = best.iter().map(|scored| scored.item);
                let value = yardstick.values(ranked, test.row(user).items).next();
                (user as UserId, value.expect("one metric has one value"))
            };
            rankings.iter().map(value).collect::<Vec<_>>()
        },
        |values| all.extend(values),
    )?;
    Ok(all)
}

/// Measures what ranking the items by `counts`, alike for everyone, achieves: the baseline that a model must
/// beat. The rest is as in [`evaluate`]; ties go to the smaller item.
///
/// # Errors
/// [`Error::Data`] if the arguments differ in users or items.
pub fn evaluate_popularity(
    counts: &[u32],
    histories: &Interactions,
    test: &Interactions,
    metrics: &[Metric],
) -> Result<Evaluation> {
    if test.n_items() != counts.len() {
        return Err(mismatch("items", "the counts", counts.len(), "the test data", test.n_items()));
    }
    let protocol = Protocol::new(histories, test, metrics)?;
    let mut order: Vec<ItemId> = (0..counts.len() as ItemId).collect();
    order.sort_by_key(|&item| std::cmp::Reverse(counts[item as usize]));
    let k = depth(metrics);
    let blocks: Vec<Sums> = (0..protocol.users.len())
        .collect::<Vec<_>>()
        .par_chunks(USERS)
        .map(|positions| {
            protocol.sums(positions.iter().map(|&position| {
                let seen = histories.row(protocol.users[position]).items;
                (position, order.iter().copied().filter(|item| seen.binary_search(item).is_err()).take(k))
            }))
        })
        .collect();
    let mut total = Sums::default();
    blocks.iter().for_each(|sums| total.add(sums));
    Ok(protocol.evaluation(total))
}

/// As [`evaluate`], for lists that somebody else ranked: `ranked(users, k)` gives the `k` best items of each user, best
/// first and `ItemId::MAX` after the last, or nothing if it cannot.
///
/// # Errors
/// [`Error::Data`] if the two differ in users or items, and what `ranked` reports.
pub fn evaluate_lists(
    histories: &Interactions,
    test: &Interactions,
    metrics: &[Metric],
    ranked: impl FnOnce(&[UserId], usize) -> Result<Option<Vec<ItemId>>>,
) -> Result<Option<Evaluation>> {
    let protocol = Protocol::new(histories, test, metrics)?;
    let users: Vec<UserId> = protocol.users.iter().map(|&user| user as UserId).collect();
    let k = depth(metrics);
    let Some(lists) = ranked(&users, k)? else { return Ok(None) };
    let blocks: Vec<Sums> = lists
        .par_chunks(USERS * k.max(1))
        .enumerate()
        .map(|(block, lists)| {
            protocol.sums(lists.chunks_exact(k).enumerate().map(|(at, list)| {
                (block * USERS + at, list.iter().copied().take_while(|&item| item != ItemId::MAX))
            }))
        })
        .collect();
    let mut total = Sums::default();
    blocks.iter().for_each(|sums| total.add(sums));
    Ok(Some(protocol.evaluation(total)))
}

/// Who is evaluated, on what.
struct Protocol<'a> {
    test: &'a Interactions,
    /// Users with test items.
    users: Vec<usize>,
    yardstick: Yardstick,
    /// The best rank of each item over all users, where coverage is asked for. Minima do not depend on the
    /// order of threads.
    best_ranks: Vec<AtomicU32>,
}

impl<'a> Protocol<'a> {
    /// The protocol for a scorer of the same catalogue.
    fn of(
        scorer: &impl Scorer,
        histories: &Interactions,
        test: &'a Interactions,
        metrics: &[Metric],
    ) -> Result<Self> {
        if test.n_items() != scorer.n_items() {
            return Err(mismatch("items", "the model", scorer.n_items(), "the test data", test.n_items()));
        }
        Self::new(histories, test, metrics)
    }

    /// Ranks the catalogue for every user of the protocol; digests reach `sink` in the order of users.
    fn rank<T: Send>(
        &self,
        scorer: &impl Scorer,
        histories: &Interactions,
        depth: usize,
        digest: impl Fn(Rankings) -> T + Sync,
        mut sink: impl FnMut(T),
    ) -> Result<()> {
        let known = positions_of(scorer, histories.user_ids());
        rank(
            scorer,
            self.users.len(),
            |position| {
                let user = self.users[position];
                Viewer { history: histories.row(user).into(), user: known[user] }
            },
            |position| histories.row(self.users[position]).items,
            depth,
            digest,
            |digest| {
                sink(digest);
                Ok(())
            },
        )
    }

    fn new(histories: &Interactions, test: &'a Interactions, metrics: &[Metric]) -> Result<Self> {
        let (users, items) = (histories.n_users(), histories.n_items());
        if users != test.n_users() {
            return Err(mismatch("users", "the histories", users, "the test data", test.n_users()));
        }
        if items != test.n_items() {
            return Err(mismatch("items", "the histories", items, "the test data", test.n_items()));
        }
        let covers = metrics.iter().any(|metric| metric.measure == Measure::Coverage);
        Ok(Self {
            test,
            users: (0..users).filter(|&user| !test.row(user).items.is_empty()).collect(),
            yardstick: Yardstick::new(metrics, items),
            best_ranks: (0..if covers { items } else { 0 }).map(|_| AtomicU32::new(u32::MAX)).collect(),
        })
    }

    /// The sums over some users, given by their place in `users`, with their rankings.
    fn sums(&self, rankings: impl Iterator<Item = (usize, impl Iterator<Item = ItemId> + Clone)>) -> Sums {
        let mut yardstick = self.yardstick.clone();
        let mut sums = Sums::default();
        for (position, ranked) in rankings {
            if !self.best_ranks.is_empty() {
                for (rank, item) in (0..).zip(ranked.clone()) {
                    let best = &self.best_ranks[item as usize];
                    // Most ranks are no news; a load shares the cache line where an update would fight for it.
                    if best.load(Ordering::Relaxed) > rank {
                        best.fetch_min(rank, Ordering::Relaxed);
                    }
                }
            }
            sums.add_user(yardstick.values(ranked, self.test.row(self.users[position]).items));
        }
        sums
    }

    fn evaluation(self, sums: Sums) -> Evaluation {
        sums.into_evaluation(self.yardstick.metrics(), |k| {
            let covered = self.best_ranks.iter().filter(|best| (best.load(Ordering::Relaxed) as usize) < k);
            covered.count() as f64 / self.best_ranks.len().max(1) as f64
        })
    }
}

fn mismatch(what: &str, a: &str, n_a: usize, b: &str, n_b: usize) -> Error {
    Error::data(
        format!("{a} has {n_a} {what}, {b} {n_b}"),
        "give parts of one split, with the identifiers that the model was trained on",
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{Activation, Config};
    use crate::data::IdMap;
    use crate::math::{Purpose, Stream};
    use crate::network::{History, Parameters, encode};

    const N_ITEMS: usize = 90;

    fn interactions(rows: &[Vec<ItemId>]) -> Interactions {
        let mut offsets = vec![0];
        rows.iter().for_each(|row| offsets.push(offsets[offsets.len() - 1] + row.len()));
        Interactions::from_parts(
            offsets,
            rows.concat(),
            None,
            None,
            Arc::new(IdMap::range(rows.len())),
            Arc::new(IdMap::range(N_ITEMS)),
        )
        .unwrap()
    }

    /// Histories and test items of random users, some without either.
    fn split(n_users: u32) -> (Vec<Vec<ItemId>>, Vec<Vec<ItemId>>) {
        (0..n_users)
            .map(|user| {
                let mut stream = Stream::new(1, Purpose::Split, 0, user);
                let (mut history, mut test) = (Vec::new(), Vec::new());
                let (p, q) = (stream.uniform() * 0.3, stream.uniform() * 0.2);
                for item in 0..N_ITEMS as ItemId {
                    let u = stream.uniform();
                    if u < p {
                        history.push(item);
                    } else if u < p + q && user % 5 != 0 {
                        test.push(item);
                    }
                }
                (history, test)
            })
            .unzip()
    }

    /// The definitions of the module `metrics`, rank by rank.
    fn naive(measure: Measure, k: usize, ranked: &[ItemId], test: &[ItemId]) -> f64 {
        let hit = |rank: usize| f64::from(u8::from(ranked.get(rank).is_some_and(|i| test.contains(i))));
        let hits: f64 = (0..k).map(hit).sum();
        let ideal = k.min(test.len());
        let discount = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
        match measure {
            Measure::Recall => hits / test.len() as f64,
            Measure::RecallMin => hits / ideal as f64,
            Measure::Ndcg => {
                (0..k).map(|r| hit(r) * discount(r)).sum::<f64>() / (0..ideal).map(discount).sum::<f64>()
            }
            Measure::Precision => hits / k as f64,
            Measure::Map => {
                (0..k).map(|r| hit(r) * (0..=r).map(hit).sum::<f64>() / (r + 1) as f64).sum::<f64>()
                    / ideal as f64
            }
            Measure::Mrr => (0..k).find(|&r| hit(r) > 0.0).map_or(0.0, |r| 1.0 / (r + 1) as f64),
            Measure::HitRate => f64::from(u8::from(hits > 0.0)),
            Measure::Coverage => unreachable!("coverage has no value for one user"),
        }
    }

    fn assert_naive(
        evaluation: &Evaluation,
        ranking: impl Fn(usize) -> Vec<ItemId>,
        histories: &[Vec<ItemId>],
        test: &[Vec<ItemId>],
    ) {
        let users: Vec<usize> = (0..test.len()).filter(|&user| !test[user].is_empty()).collect();
        assert_eq!(evaluation.n_users, users.len());
        for (metric, estimate) in &evaluation.metrics {
            let rankings = users.iter().map(|&user| {
                let mut ranked = ranking(user);
                ranked.retain(|item| !histories[user].contains(item));
                ranked.truncate(metric.k);
                (user, ranked)
            });
            let expected = if metric.measure == Measure::Coverage {
                let mut covered: Vec<ItemId> = rankings.flat_map(|(_, ranked)| ranked).collect();
                covered.sort_unstable();
                covered.dedup();
                covered.len() as f64 / N_ITEMS as f64
            } else {
                rankings.map(|(user, r)| naive(metric.measure, metric.k, &r, &test[user])).sum::<f64>()
                    / users.len() as f64
            };
            assert!((estimate.mean - expected).abs() < 1e-9, "{metric}: {} {expected}", estimate.mean);
        }
    }

    fn random_model() -> Parameters {
        Parameters::random(&Config { hidden: 16, latent: 12, ..Config::default() }, N_ITEMS)
    }

    fn all_metrics() -> Vec<Metric> {
        Metric::grid(&Measure::ALL, &[1, 3, 10, 200])
    }

    #[test]
    fn evaluation_equals_the_definitions() {
        let (histories, test) = split(300);
        let p = random_model();
        let ranking = |user: usize| {
            let query = encode(p.network(Activation::Relu), 1, |_| History {
                items: &histories[user],
                weights: None,
            });
            let score = |item: ItemId| crate::math::simd::dot(query.row(0), p.items.row(item as usize));
            let mut items: Vec<ItemId> = (0..N_ITEMS as ItemId).collect();
            items.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
            items
        };
        let evaluation = evaluate(
            p.network(Activation::Relu),
            &interactions(&histories),
            &interactions(&test),
            &all_metrics(),
        )
        .unwrap();
        assert_naive(&evaluation, ranking, &histories, &test);
    }

    #[test]
    fn the_popularity_baseline_equals_the_definitions() {
        let (histories, test) = split(300);
        let train = interactions(&histories);
        let counts = train.item_counts();
        let ranking = |_| {
            let mut items: Vec<ItemId> = (0..N_ITEMS as ItemId).collect();
            items.sort_by_key(|&item| (std::cmp::Reverse(counts[item as usize]), item));
            items
        };
        let evaluation = evaluate_popularity(&counts, &train, &interactions(&test), &all_metrics()).unwrap();
        assert_naive(&evaluation, ranking, &histories, &test);
    }

    #[test]
    fn values_of_users_average_to_the_evaluation() {
        let (histories, test) = split(300);
        let (p, metric) = (random_model(), "ndcg@10".parse().unwrap());
        let (histories, test) = (interactions(&histories), interactions(&test));
        let values = evaluate_users(p.network(Activation::Relu), &histories, &test, metric).unwrap();
        let evaluation = evaluate(p.network(Activation::Relu), &histories, &test, &[metric]).unwrap();
        assert!(values.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let mean = values.iter().map(|(_, value)| value).sum::<f64>() / values.len() as f64;
        assert!((mean - evaluation.mean(metric).unwrap()).abs() < 1e-12);
    }

    #[test]
    fn folding_in_needs_no_user_of_the_training_data() {
        // Every item points its own way, so a history of one item asks for its neighbour 45 places on.
        let config = Config { hidden: N_ITEMS, latent: N_ITEMS, ..Config::default() };
        let mut p = Parameters::random(&config, N_ITEMS);
        for matrix in [&mut p.encoder, &mut p.head, &mut p.items] {
            matrix.data_mut().fill(0.0);
        }
        for item in 0..N_ITEMS {
            p.encoder.row_mut(item)[item] = 1.0;
            p.head.row_mut(item)[item] = 1.0;
            p.items.row_mut(item)[(item + 45) % N_ITEMS] = 1.0;
        }
        let fold_in = interactions(&[vec![3], vec![50], vec![7]]);
        let test = interactions(&[vec![48], vec![5, 9], vec![]]);
        let metrics = ["recall@1", "recall-min@1"].map(|m| m.parse().unwrap());
        let evaluation = evaluate(p.network(Activation::Relu), &fold_in, &test, &metrics).unwrap();
        assert_eq!(evaluation.n_users, 2);
        assert_eq!(evaluation.mean(metrics[0]), Some(0.75));
        assert_eq!(evaluation.mean(metrics[1]), Some(1.0));
    }

    #[test]
    fn parts_that_do_not_belong_together_are_refused() {
        let p = random_model();
        let (one, two) = (interactions(&[vec![1]]), interactions(&[vec![1], vec![2]]));
        let error =
            evaluate(p.network(Activation::Relu), &one, &two, &all_metrics()).unwrap_err().to_string();
        assert!(error.contains("the histories has 1 users, the test data 2"), "{error}");
    }
}
