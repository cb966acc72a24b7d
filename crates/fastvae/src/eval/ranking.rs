//! Ranking the whole catalogue for many users, in blocks of users x tiles of items.
//!
//! The scores of one tile stay in the second-level cache between the product that writes them and the selection
//! that reads them; a users x items matrix never exists. A block of users is the unit of parallel work and does
//! not depend on the number of threads, so neither does any score.

use rayon::prelude::*;

use crate::data::ItemId;
use crate::error::Result;
use crate::eval::scorer::{BlockScores, Scorer, Viewer, add_few, add_next};
use crate::eval::topk::{Scored, TopK};
use crate::math::dense::{Operand, product};
use crate::math::matrix::LANES;
use crate::math::{MatrixView, simd};
use crate::proposal::ItemTable;

/// Users ranked together: enough to pay for packing a tile of items in the product, which took 15 % of the time
/// with 128.
const USERS: usize = 256;

/// Users ranked together where there are few, so that every thread has some. Depends on their number alone: the
/// number of threads must not show in the scores.
const FEW_USERS: usize = 64;

/// Items scored together: 256 x 256 scores are 256 KB, which fits the second-level cache.
const TILE: usize = 256;

/// Users ahead whose scores of a few items are asked for: those of a block are more than its caches hold.
const FEW_AHEAD: usize = 4;

/// Blocks in flight per thread before their results are handed over in order.
const BLOCKS_PER_THREAD: usize = 16;

/// The best items of some users that follow one another.
#[derive(Debug, Clone, Default)]
pub struct Rankings {
    first: usize,
    ends: Vec<usize>,
    best: Vec<Scored>,
}

impl Rankings {
    /// Each user's position, as it was given to `history`, with the best items, best first.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[Scored])> {
        let start = |row: usize| if row == 0 { 0 } else { self.ends[row - 1] };
        (0..self.ends.len()).map(move |row| (self.first + row, &self.best[start(row)..self.ends[row]]))
    }

    /// Replaces every item by `name(item)`.
    pub(crate) fn rename(&mut self, name: impl Fn(ItemId) -> ItemId) {
        self.best.iter_mut().for_each(|scored| scored.item = name(scored.item));
    }
}

/// Ranks the catalogue of `scorer` for users `0..n_users` and hands the `k` best items of each, in the order of users, to
/// `sink`, after `digest` has turned each block of users into what the sink needs.
///
/// `exclude(user)` ascends and is never ranked; fewer than `k` items are left where it leaves fewer. Ties go to
/// the smaller item. `digest` runs in parallel on the current thread pool, `sink` does not. Memory follows the
/// number of threads, not of users.
///
/// # Errors
/// The first error of `sink` or of the scorer, which ends the work.
///
/// # Panics
/// If a history or an exclusion names an item beyond the catalogue.
pub fn rank<'h, V: Into<Viewer<'h>>, E: AsRef<[ItemId]>, T: Send>(
    scorer: impl Scorer,
    n_users: usize,
    viewer: impl Fn(usize) -> V + Sync,
    exclude: impl Fn(usize) -> E + Sync,
    k: usize,
    digest: impl Fn(Rankings) -> T + Sync,
    mut sink: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let block = if n_users < 32 * USERS { FEW_USERS } else { USERS };
    let wave = block * BLOCKS_PER_THREAD * rayon::current_num_threads();
    for start in (0..n_users).step_by(wave) {
        let blocks = (start..n_users.min(start + wave)).step_by(block).collect::<Vec<_>>();
        let digests: Vec<Result<T>> = blocks
            .into_par_iter()
            .map_init(Scratch::default, |scratch, first| {
                let users = first..n_users.min(first + block);
                let viewers: Vec<Viewer<'h>> = users.clone().map(|user| viewer(user).into()).collect();
                let excluded: Vec<E> = users.map(&exclude).collect();
                let scores = scorer.block(&viewers)?;
                let (ends, best) = match &scores.products {
                    Some((queries, items)) => scratch.rank(queries.view(), *items, &scores, &excluded, k),
                    None => scratch.rank_rows(&scores, scorer.n_items(), &excluded, k),
                };
                Ok(digest(Rankings { first, ends, best }))
            })
            .collect();
        digests.into_iter().try_for_each(|digest| sink(digest?))?;
    }
    Ok(())
}

/// Buffers of one thread.
#[derive(Default)]
struct Scratch {
    scores: Vec<f32>,
    selections: Vec<TopK>,
    /// How far each user's exclusions have been walked.
    cursors: Vec<usize>,
}

impl Scratch {
    /// Ends of the rows and their best items, one row after another.
    fn rank<E: AsRef<[ItemId]>>(
        &mut self,
        queries: MatrixView<'_>,
        items: ItemTable<'_>,
        BlockScores { rows, few, .. }: &BlockScores<'_>,
        exclude: &[E],
        k: usize,
    ) -> (Vec<usize>, Vec<Scored>) {
        let (n_users, n_items) = (queries.rows(), items.vectors.rows());
        let few: Vec<Vec<Scored>> = few.iter().flat_map(|few| (0..n_users).map(few)).collect();
        let mut few: Vec<&[Scored]> = few.iter().map(Vec::as_slice).collect();
        let k = k.min(n_items);
        self.scores.resize(n_users * TILE, 0.0);
        self.selections.resize_with(n_users.max(self.selections.len()), TopK::default);
        self.selections[..n_users].iter_mut().for_each(|selection| selection.reset(k));
        self.cursors.clear();
        self.cursors.resize(n_users, 0);

        for first in (0..n_items).step_by(TILE) {
            let width = TILE.min(n_items - first);
            if let Some(bias) = items.bias {
                for row in self.scores.chunks_mut(TILE) {
                    row[..width].copy_from_slice(&bias[first..first + width]);
                }
            }
            product(
                &mut self.scores,
                TILE,
                items.bias.is_some(),
                Operand::Plain(queries),
                Operand::Transposed(items.vectors.rows_from(first, width)),
            );
            for (user, scores) in self.scores.chunks_mut(TILE).enumerate() {
                let scores = &mut scores[..width];
                if let Some(rows) = rows {
                    rows(user, first, scores);
                }
                if let Some(next) = few.get(user + FEW_AHEAD) {
                    simd::prefetch_at(next.as_ptr().cast(), LANES);
                }
                if let Some(few) = few.get_mut(user) {
                    *few = add_next(few, first, scores);
                }
                let cursor = &mut self.cursors[user];
                for &item in &exclude[user].as_ref()[*cursor..] {
                    let Some(score) = scores.get_mut((item as usize) - first) else { break };
                    *score = f32::NEG_INFINITY;
                    *cursor += 1;
                }
                self.selections[user].offer(first as ItemId, scores);
            }
        }

        let (mut ends, mut best) = (Vec::with_capacity(n_users), Vec::with_capacity(n_users * k));
        for selection in &mut self.selections[..n_users] {
            selection.drain_into(&mut best);
            ends.push(best.len());
        }
        (ends, best)
    }

    /// As [`Scratch::rank`], for scores that come user by user alone.
    fn rank_rows<E: AsRef<[ItemId]>>(
        &mut self,
        BlockScores { rows, few, .. }: &BlockScores<'_>,
        n_items: usize,
        exclude: &[E],
        k: usize,
    ) -> (Vec<usize>, Vec<Scored>) {
        let k = k.min(n_items);
        self.scores.resize(n_items.max(self.scores.len()), 0.0);
        self.selections.resize_with(self.selections.len().max(1), TopK::default);
        let (mut ends, mut best) = (Vec::with_capacity(exclude.len()), Vec::new());
        for (user, excluded) in exclude.iter().enumerate() {
            let scores = &mut self.scores[..n_items];
            scores.fill(0.0);
            if let Some(rows) = rows {
                rows(user, 0, scores);
            }
            if let Some(few) = few {
                add_few(&few(user), 0, scores);
            }
            for &item in excluded.as_ref() {
                scores[item as usize] = f32::NEG_INFINITY;
            }
            let selection = &mut self.selections[0];
            selection.reset(k);
            selection.offer(0, scores);
            selection.drain_into(&mut best);
            ends.push(best.len());
        }
        (ends, best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Activation, Config};
    use crate::math::simd::dot;
    use crate::network::{History, Network, Parameters, encode};

    const N_ITEMS: usize = 1300;

    fn parameters(item_bias: bool) -> Parameters {
        let config = Config { hidden: 24, latent: 20, item_bias, ..Config::default() };
        let mut parameters = Parameters::random(&config, N_ITEMS);
        if let Some(bias) = &mut parameters.item_bias {
            (0..N_ITEMS).for_each(|i| bias.row_mut(0)[i] = (i % 7) as f32 * 0.1);
        }
        parameters
    }

    fn histories(n_users: usize) -> Vec<Vec<ItemId>> {
        (0..n_users).map(|u| (0..(u * 3) % 40).map(|k| (k * 31 + u * 2 % 29) as ItemId).collect()).collect()
    }

    fn ranked(p: &Parameters, histories: &[Vec<ItemId>], k: usize) -> Vec<Vec<Scored>> {
        let mut all = Vec::new();
        rank(
            p.network(Activation::Relu),
            histories.len(),
            |u| History { items: &histories[u], weights: None },
            |u| &histories[u][..],
            k,
            |rankings| rankings.iter().map(|(u, best)| (u, best.to_vec())).collect::<Vec<_>>(),
            |block| {
                for (user, best) in block {
                    assert_eq!(user, all.len(), "users come in order");
                    all.push(best);
                }
                Ok(())
            },
        )
        .unwrap();
        all
    }

    #[test]
    fn rankings_equal_scores_sorted_one_by_one() {
        for item_bias in [false, true] {
            let p = parameters(item_bias);
            let histories = histories(300);
            let rankings = ranked(&p, &histories, 50);
            for user in [0, 1, 13, 127, 128, 299] {
                let query = encode(p.network(Activation::Relu), 1, |_| History {
                    items: &histories[user],
                    weights: None,
                });
                let mut expected: Vec<(f32, ItemId)> = (0..N_ITEMS as ItemId)
                    .filter(|item| !histories[user].contains(item))
                    .map(|item| {
                        let score = dot(query.row(0), p.items.row(item as usize));
                        (score + p.item_bias.as_ref().map_or(0.0, |b| b.row(0)[item as usize]), item)
                    })
                    .collect();
                expected.sort_by(|a, b| b.0.total_cmp(&a.0));
                assert_eq!(rankings[user].len(), 50);
                for (got, want) in rankings[user].iter().zip(&expected) {
                    // Sums in another order may swap neighbours; their scores still agree.
                    assert!((got.score - want.0).abs() < 1e-5, "user {user}: {got:?} {want:?}");
                    assert!(!histories[user].contains(&got.item));
                }
            }
        }
    }

    /// A model whose scores come one user at a time.
    struct ByRows<'p>(Network<'p>);

    impl Scorer for ByRows<'_> {
        fn n_items(&self) -> usize {
            self.0.n_items()
        }

        fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
            let queries = encode(self.0, viewers.len(), |row| viewers[row].history);
            Ok(BlockScores::rows(move |row, first, scores| {
                for (item, score) in (first..).zip(scores) {
                    *score += dot(queries.view().row(row), self.0.item_table().vectors.row(item));
                }
            }))
        }
    }

    #[test]
    fn scores_by_row_rank_as_scores_by_tile() {
        let (p, histories) = (parameters(false), histories(150));
        let mut by_rows = Vec::new();
        rank(
            ByRows(p.network(Activation::Relu)),
            histories.len(),
            |u| History { items: &histories[u], weights: None },
            |u| &histories[u][..],
            50,
            |rankings| rankings.iter().map(|(_, best)| best.to_vec()).collect::<Vec<_>>(),
            |block| {
                by_rows.extend(block);
                Ok(())
            },
        )
        .unwrap();
        let by_tiles = ranked(&p, &histories, 50);
        assert_eq!(by_rows.len(), by_tiles.len());
        for (a, b) in by_rows.iter().flatten().zip(by_tiles.iter().flatten()) {
            assert!((a.score - b.score).abs() < 1e-5, "{a:?} {b:?}");
        }
    }

    #[test]
    fn rankings_do_not_depend_on_the_number_of_threads() {
        let (p, histories) = (parameters(true), histories(9000));
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| ranked(&p, &histories, 20))
        };
        assert_eq!(on(1), on(3));
    }

    #[test]
    fn exclusions_leave_what_is_left() {
        let p = parameters(false);
        let all_but_three: Vec<ItemId> =
            (0..N_ITEMS as ItemId).filter(|i| ![5, 600, 1299].contains(i)).collect();
        let mut left: Vec<ItemId> = Vec::new();
        rank(
            p.network(Activation::Relu),
            1,
            |_| History { items: &[1, 2], weights: None },
            |_| &all_but_three,
            50,
            |rankings| rankings.iter().flat_map(|(_, best)| best.iter().map(|s| s.item)).collect::<Vec<_>>(),
            |items| {
                left.extend(items);
                Ok(())
            },
        )
        .unwrap();
        left.sort_unstable();
        assert_eq!(left, [5, 600, 1299]);
    }

    #[test]
    fn the_first_error_of_the_sink_ends_the_work() {
        let (p, histories) = (parameters(false), histories(500));
        let mut calls = 0;
        let result = rank(
            p.network(Activation::Relu),
            500,
            |u| History { items: &histories[u], weights: None },
            |_| [],
            1,
            |_| (),
            |()| {
                calls += 1;
                Err(crate::Error::data("full", "stop"))
            },
        );
        assert!(result.is_err());
        assert_eq!(calls, 1);
    }
}
