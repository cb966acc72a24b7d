//! `item-ridge`: what few other items say of each, by ridge regression in closed form.
//!
//! For item i, N(i) are the `neighbours` items with the largest G_ij / sqrt(G_jj), where G counts how often items are touched
//! together ([`CoCounts`]). Its weights solve (G_NN + penalty I) w = G_Ni, and a history scores it with the sum of w_ji over
//! its items j. What a dense linear model (`ease`) learns at the cost of items^3, nearly, at the cost of counting pairs.
//!
//! G is not held. Its rows are added up twice: once for the neighbours of each item, once more for what the neighbours
//! have among themselves, which each row gives to all the items that it is a neighbour of.

use std::time::Instant;

use fearless_simd::{Simd, dispatch};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::baseline::co_counts::{CoCountRow, CoCounts, Nearest, item_value};
use crate::baseline::inverse::invert;
use crate::baseline::item_weights::ItemWeights;
use crate::baseline::method::{Method, by_weight};
use crate::data::{Interactions, ItemId};
use crate::error::{Error, Result};
use crate::eval::{BlockScores, Scorer, Viewer};
use crate::math::Matrix;
use crate::math::matrix::LANES;
use crate::math::simd::{self, axpy_in, level};
use crate::model_file::tensors::{TensorFile, TensorWriter};

/// Co-counts among neighbours that are held at a time: 512 MB. Catalogues that need more are solved in parts, each with
/// rows of its own.
const HELD: usize = 1 << 27;

/// Neighbours of an item, at most: solving for them costs their number cubed.
pub(crate) const MOST_NEIGHBOURS: usize = 1024;

/// Settings of `item-ridge`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ItemRidgeSettings {
    /// Nearest items that each item is explained by.
    pub neighbours: usize,
    /// Pull of the weights towards zero, in interactions.
    pub penalty: f32,
    /// How little long histories count: a user with n items counts n^-power.
    pub power: f32,
    /// What ln(1 + count) of an item adds to its score, times this.
    pub popularity: f32,
}

impl Default for ItemRidgeSettings {
    fn default() -> Self {
        Self { neighbours: 64, penalty: 50.0, power: 0.5, popularity: 0.0 }
    }
}

impl ItemRidgeSettings {
    pub(crate) fn validate(&self) -> Result<()> {
        let refused =
            |key: &str, value: String, remedy: &str| Err(Error::config(key, format!("is {value}"), remedy));
        if !(1..=MOST_NEIGHBOURS).contains(&self.neighbours) {
            return refused(
                "neighbours",
                self.neighbours.to_string(),
                &format!("give 1 to {MOST_NEIGHBOURS}"),
            );
        }
        if !(self.penalty.is_finite() && self.penalty > 0.0) {
            return refused("penalty", self.penalty.to_string(), "give a positive number, such as 20");
        }
        if !(0.0..=2.0).contains(&self.power) {
            return refused("power", self.power.to_string(), "give a number from 0 to 2, such as 0.5");
        }
        if !self.popularity.is_finite() {
            return refused("popularity", self.popularity.to_string(), "give a number such as 0.01");
        }
        Ok(())
    }
}

/// Bytes that solving for `n_penalties` takes beside the data, its results among them.
pub(crate) fn memory(n_items: usize, n_interactions: usize, neighbours: usize, n_penalties: usize) -> u64 {
    let by_item = n_interactions * (size_of::<u32>() + size_of::<usize>());
    let edges = n_items.min(part_size(neighbours)) * neighbours;
    let of_edge = size_of::<Neighbour>() + size_of::<(u32, u32)>() + size_of::<usize>();
    let part = edges * (of_edge + size_of::<f32>() * neighbours / 2);
    let columns = n_items * neighbours * (size_of::<ItemId>() + n_penalties * size_of::<f32>());
    // The results are put together when the last part is given back.
    let results = n_penalties as u64 * ItemWeights::bytes_of(n_items, neighbours);
    (columns + by_item) as u64 + results.max(part as u64)
}

/// The items that are solved together.
fn part_size(neighbours: usize) -> usize {
    (HELD / (neighbours * neighbours / 2).max(1)).max(1)
}

/// A near item, and how often it is touched together with the one that it is near to.
#[derive(Debug, Clone, Copy, Default)]
struct Neighbour {
    item: ItemId,
    together: f32,
}

/// The weights of every item's neighbours for each of the `penalties`, item j's row saying what it speaks for. Bit-identical
/// at any number of threads.
pub(crate) fn solve(counts: &CoCounts<'_>, neighbours: usize, penalties: &[f32]) -> Vec<ItemWeights> {
    let n_items = counts.n_items();
    if neighbours + 1 >= n_items {
        return penalties.iter().map(|&penalty| solve_by_inverse(counts, penalty)).collect();
    }
    // Compressed columns: the neighbours of each item, and their weights for each penalty.
    let (mut offsets, mut items, mut values) = (vec![0], Vec::new(), vec![Vec::new(); penalties.len()]);
    let n_part = part_size(neighbours);
    for first in (0..n_items).step_by(n_part) {
        let part = first..n_items.min(first + n_part);
        let near: Vec<Vec<Neighbour>> = part
            .into_par_iter()
            .map_init(Default::default, |room, item| nearest(counts, item as ItemId, neighbours, room))
            .collect();
        let among = Among::of(counts, &near);
        for (values, &penalty) in values.iter_mut().zip(penalties) {
            let solved: Vec<Vec<f32>> = (0..near.len())
                .into_par_iter()
                .map_init(Vec::new, |work, at| among.weights(counts, &near, at, penalty, work))
                .collect();
            values.extend(solved.into_iter().flatten());
        }
        for near in &near {
            items.extend(near.iter().map(|neighbour| neighbour.item));
            offsets.push(items.len());
        }
    }
    let transposed = |values: Vec<f32>| ItemWeights::transpose_of(&offsets, &items, &values);
    values.into_iter().map(transposed).collect()
}

/// As [`solve`], where every item is explained by all others: with P = (G + penalty I)^-1, the weight of j for i is
/// -P_ij / P_ii, as in `ease`.
fn solve_by_inverse(counts: &CoCounts<'_>, penalty: f32) -> ItemWeights {
    let n_items = counts.n_items();
    let mut p = Matrix::zeros(n_items, n_items);
    let stride = p.stride().max(1);
    p.data_mut().par_chunks_mut(stride).enumerate().for_each_init(
        CoCountRow::default,
        |sums, (item, row)| {
            counts.row(item as ItemId, sums);
            row[..n_items].copy_from_slice(&sums.sums);
            row[item] = counts.own(item as ItemId) + penalty;
        },
    );
    invert(&mut p);
    let own: Vec<f32> = (0..n_items).map(|item| p.row(item)[item]).collect();
    let rows: Vec<Vec<(ItemId, f32)>> = (0..n_items)
        .map(|item| {
            let weights = p.row(item)[..n_items].iter().zip(&own).enumerate();
            let others = weights.filter(|&(other, (&value, _))| other != item && value != 0.0);
            others.map(|(other, (value, own))| (other as ItemId, -value / own)).collect()
        })
        .collect();
    ItemWeights::of_rows(&rows)
}

/// Items that [`seconds_of_an_item`] looks at.
const SAMPLE: usize = 512;

/// Seconds that a row of counts and a solution for one penalty take on the current thread pool, from a sample of items.
pub(crate) fn seconds_of_an_item(counts: &CoCounts<'_>, neighbours: usize) -> (f64, f64) {
    let step = (counts.n_items() / SAMPLE).max(1);
    let clock = Instant::now();
    let near: Vec<Vec<Neighbour>> = (0..counts.n_items())
        .into_par_iter()
        .step_by(step)
        .map_init(Default::default, |room, item| nearest(counts, item as ItemId, neighbours, room))
        .collect();
    let rows = clock.elapsed().as_secs_f64();
    // What they have among themselves is left at zero: solving takes as long.
    let mut edges = vec![0];
    near.iter().for_each(|near| edges.push(edges[edges.len() - 1] + near.len()));
    let among = Among { begins: vec![0; edges[near.len()]], edges, values: vec![0.0; neighbours] };
    let clock = Instant::now();
    (0..near.len()).into_par_iter().for_each_init(Vec::new, |work, at| {
        std::hint::black_box(among.weights(counts, &near, at, 1.0, work));
    });
    let n = near.len().max(1) as f64;
    (rows / n, clock.elapsed().as_secs_f64() / n)
}

/// The `n` items with the largest share of togetherness with `item`, ascending.
fn nearest(
    counts: &CoCounts<'_>,
    item: ItemId,
    n: usize,
    room: &mut (CoCountRow, Nearest),
) -> Vec<Neighbour> {
    let (row, nearest) = room;
    counts.row(item, row);
    let others = row.touched.iter().filter(|&&other| other != item);
    let likeness = others.map(|&other| (other, row.sums[other as usize] / counts.own(other).sqrt()));
    let near = nearest.of(likeness, n);
    near.map(|(item, _)| Neighbour { item, together: row.sums[item as usize] }).collect()
}

/// What the neighbours of each item of a part have among themselves.
struct Among {
    /// For each item of the part, the first of its edges, an edge being an item and one of its neighbours.
    edges: Vec<usize>,
    /// For each edge, where its co-counts with the later neighbours of the same item begin.
    begins: Vec<usize>,
    values: Vec<f32>,
}

impl Among {
    fn of(counts: &CoCounts<'_>, near: &[Vec<Neighbour>]) -> Self {
        let mut edges = vec![0];
        near.iter().for_each(|near| edges.push(edges[edges.len() - 1] + near.len()));
        // Edges in the order of their neighbours: each row of G then fills one span of the values.
        let mut first_of = vec![0; counts.n_items() + 1];
        near.iter().flatten().for_each(|neighbour| first_of[neighbour.item as usize + 1] += 1);
        for item in 0..counts.n_items() {
            first_of[item + 1] += first_of[item];
        }
        let mut next = first_of.clone();
        let mut of_row = vec![(0u32, 0u32); edges[near.len()]];
        for (at, near) in near.iter().enumerate() {
            for (place, neighbour) in near.iter().enumerate() {
                let to = &mut next[neighbour.item as usize];
                of_row[*to] = (at as u32, place as u32);
                *to += 1;
            }
        }
        let mut begins = vec![0; of_row.len()];
        let mut spans = Vec::with_capacity(counts.n_items());
        let mut end = 0;
        for item in 0..counts.n_items() {
            let start = end;
            for &(at, place) in &of_row[first_of[item]..first_of[item + 1]] {
                let (at, place) = (at as usize, place as usize);
                begins[edges[at] + place] = end;
                end += near[at].len() - 1 - place;
            }
            spans.push(end - start);
        }
        let mut values = vec![0.0; end];
        let mut rest = &mut values[..];
        let mut tasks = Vec::new();
        for (item, &length) in spans.iter().enumerate() {
            let (own, others) = rest.split_at_mut(length);
            rest = others;
            if length > 0 {
                tasks.push((item, own));
            }
        }
        tasks.into_par_iter().for_each_init(CoCountRow::default, |row, (item, own)| {
            counts.row(item as ItemId, row);
            let mut to = own.iter_mut();
            for &(at, place) in &of_row[first_of[item]..first_of[item + 1]] {
                for (later, to) in near[at as usize][place as usize + 1..].iter().zip(&mut to) {
                    *to = row.sums[later.item as usize];
                }
            }
        });
        Self { edges, begins, values }
    }

    /// The weights of the neighbours of the item at place `at` of the part.
    fn weights(
        &self,
        counts: &CoCounts<'_>,
        near: &[Vec<Neighbour>],
        at: usize,
        penalty: f32,
        work: &mut Vec<f32>,
    ) -> Vec<f32> {
        let near = &near[at];
        let n = near.len();
        // The right side is the last column.
        let stride = (n + 1).next_multiple_of(LANES);
        work.clear();
        work.resize(n * stride, 0.0);
        for (place, neighbour) in near.iter().enumerate() {
            let row = &mut work[place * stride..][..stride];
            row[place] = counts.own(neighbour.item) + penalty;
            let begin = self.begins[self.edges[at] + place];
            row[place + 1..n].copy_from_slice(&self.values[begin..][..n - 1 - place]);
            row[n] = neighbour.together;
        }
        dispatch!(level(), simd => eliminate(simd, work, n, stride));
        let mut solved = vec![0.0f64; n];
        for row in (0..n).rev() {
            let values = &work[row * stride..][..stride];
            let known: f64 =
                values[row + 1..n].iter().zip(&solved[row + 1..]).map(|(&v, w)| f64::from(v) * w).sum();
            solved[row] = (f64::from(values[n]) - known) / f64::from(values[row]);
        }
        solved.into_iter().map(|weight| weight as f32).collect()
    }
}

/// Eliminates below the diagonal of `n` rows of `stride` numbers, of which the upper triangle and the right side count; pivots
/// are at least the penalty. Vectors begin before the diagonal, where nothing is read that matters.
#[inline(always)]
fn eliminate<S: Simd>(simd: S, work: &mut [f32], n: usize, stride: usize) {
    for pivot in 0..n {
        let (above, below) = work.split_at_mut((pivot + 1) * stride);
        let pivot_row = &above[pivot * stride..];
        let inverse = 1.0 / pivot_row[pivot];
        for (row, below) in below.chunks_exact_mut(stride).enumerate() {
            let column = pivot + 1 + row;
            let from = column / LANES * LANES;
            axpy_in(simd, -pivot_row[column] * inverse, &pivot_row[from..stride], &mut below[from..]);
        }
    }
}

/// The weights of every item.
#[derive(Debug)]
pub(crate) struct ItemRidge {
    weights: ItemWeights,
    /// What is added for everyone, where something is.
    bias: Option<Vec<f32>>,
}

/// Name of the arrays in files.
const ARRAYS: &str = "ridge";

impl ItemRidge {
    /// Cost: twice the squared lengths of the histories, and items x neighbours^3 / 6.
    pub(crate) fn fit(data: &Interactions, settings: &ItemRidgeSettings) -> Self {
        let counts = CoCounts::of(data, settings.power);
        let weights = solve(&counts, settings.neighbours, &[settings.penalty]).pop();
        Self::of(weights.expect("weights for one penalty"), settings, &data.item_counts())
    }

    fn of(weights: ItemWeights, settings: &ItemRidgeSettings, item_counts: &[u32]) -> Self {
        let bias = (settings.popularity != 0.0)
            .then(|| item_counts.iter().map(|&count| settings.popularity * (count as f32).ln_1p()).collect());
        Self { weights, bias }
    }

    pub(crate) fn read(file: &TensorFile, settings: &ItemRidgeSettings, item_counts: &[u32]) -> Result<Self> {
        Ok(Self::of(ItemWeights::read(file, ARRAYS, item_counts.len())?, settings, item_counts))
    }
}

impl Scorer for ItemRidge {
    fn n_items(&self) -> usize {
        self.weights.n_items()
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        let scores = BlockScores::few(|at| {
            let history = viewers[at].history;
            self.weights.spoken_for(history.items, item_value(history), 1.0)
        });
        Ok(match &self.bias {
            None => scores,
            Some(bias) => {
                scores.plus(|_, first, scores| simd::axpy(1.0, &bias[first..first + scores.len()], scores))
            }
        })
    }
}

impl Method for ItemRidge {
    fn likeness(&self, item: ItemId, scores: &mut [f32]) -> Result<()> {
        scores.fill(f32::NEG_INFINITY);
        self.weights.of(item).for_each(|(other, weight)| scores[other as usize] = weight);
        Ok(())
    }

    fn contributions(&self, viewer: Viewer<'_>, items: &[ItemId]) -> Result<Matrix> {
        match viewer.history.weights {
            // What one item counts depends on the weights of the others.
            Some(_) => self.contributions_by_scores(viewer, items),
            None => Ok(by_weight(viewer.history, items, |item, of| self.weights.between(item, of))),
        }
    }

    fn write<'a>(&'a self, writer: &mut TensorWriter<'a>) {
        self.weights.write(writer, ARRAYS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::tests::random_interactions;

    /// Every item by the definition, with a direct solution in double precision: column i is what predicts item i.
    fn naive(data: &Interactions, settings: &ItemRidgeSettings) -> Vec<Vec<f64>> {
        let (n_users, n_items) = (data.n_users(), data.n_items());
        let mut x = vec![vec![0.0; n_items]; n_users];
        let mut weight = vec![0.0; n_users];
        let (mut counted, mut all) = (0.0, 0.0);
        for user in 0..n_users {
            let row = data.row(user);
            let n = row.items.len() as f64;
            weight[user] = if n > 0.0 { n.powf(-f64::from(settings.power)) } else { 0.0 };
            counted += weight[user] * n;
            all += n;
            let square: f64 = row.weights.map_or(n, |w| w.iter().map(|&w| f64::from(w).powi(2)).sum());
            for (at, &item) in row.items.iter().enumerate() {
                let value = row.weights.map_or(1.0, |weights| f64::from(weights[at]));
                x[user][item as usize] = value * (n / square).sqrt();
            }
        }
        weight.iter_mut().for_each(|weight| *weight *= all / counted);
        let gram = |i: usize, j: usize| -> f64 { (0..n_users).map(|u| weight[u] * x[u][i] * x[u][j]).sum() };
        let mut columns = vec![vec![0.0; n_items]; n_items];
        for i in 0..n_items {
            // Where all are neighbours, those are that share nobody with the item.
            let all = settings.neighbours + 1 >= n_items;
            let mut near: Vec<usize> =
                (0..n_items).filter(|&j| j != i && (all || gram(i, j) > 0.0)).collect();
            near.sort_by(|&a, &b| {
                let likeness = |j: usize| gram(i, j) / gram(j, j).sqrt();
                likeness(b).total_cmp(&likeness(a)).then(a.cmp(&b))
            });
            near.truncate(settings.neighbours);
            let n = near.len();
            let mut rows: Vec<Vec<f64>> = near
                .iter()
                .map(|&a| {
                    let mut row: Vec<f64> = near.iter().map(|&b| gram(a, b)).collect();
                    row.push(gram(a, i));
                    row
                })
                .collect();
            (0..n).for_each(|a| rows[a][a] += f64::from(settings.penalty));
            for pivot in 0..n {
                let scale = rows[pivot][pivot];
                rows[pivot].iter_mut().for_each(|v| *v /= scale);
                let pivot_row = rows[pivot].clone();
                for (a, row) in rows.iter_mut().enumerate().filter(|(a, _)| *a != pivot) {
                    let factor = row[pivot];
                    assert!(a < n);
                    row.iter_mut().zip(&pivot_row).for_each(|(v, p)| *v -= factor * p);
                }
            }
            near.iter().zip(&rows).for_each(|(&j, row)| columns[i][j] = row[n]);
        }
        columns
    }

    #[test]
    fn weights_are_the_ridge_regression_on_the_nearest() {
        for (weighted, neighbours, power) in [(false, 6, 0.5), (true, 6, 0.5), (false, 60, 0.0)] {
            let data = random_interactions(150, 50, weighted);
            let settings = ItemRidgeSettings { neighbours, penalty: 4.0, power, ..Default::default() };
            let expected = naive(&data, &settings);
            let got = ItemRidge::fit(&data, &settings);
            let mut n_weights = 0;
            for (i, column) in expected.iter().enumerate() {
                for (j, &expected) in column.iter().enumerate() {
                    let weight = f64::from(got.weights.between(j as ItemId, i as ItemId));
                    assert!((weight - expected).abs() < 1e-4, "({j}, {i}): {weight} {expected}");
                    n_weights += usize::from(weight != 0.0);
                }
            }
            assert!(n_weights > 50 * neighbours.min(20) / 2, "{n_weights}");
        }
    }

    #[test]
    fn weights_do_not_depend_on_the_threads() {
        let data = random_interactions(300, 80, true);
        let fit = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| ItemRidge::fit(&data, &ItemRidgeSettings::default()).weights)
        };
        assert_eq!(fit(1), fit(3));
    }

    #[test]
    fn a_history_too_long_counts_as_one_that_is_not_in_expectation() {
        // One user with 5,000 items beside many with two: their pairs count about as they would without a limit.
        let n_items = 5000;
        let mut offsets = vec![0, n_items];
        let mut items: Vec<ItemId> = (0..n_items as ItemId).collect();
        for user in 0..2000u32 {
            items.extend([user * 2, user * 2 + 1]);
            offsets.push(items.len());
        }
        let ids = |n| std::sync::Arc::new(crate::data::IdMap::range(n));
        let data = Interactions::from_parts(offsets, items, None, None, ids(2001), ids(n_items)).unwrap();
        let counts = CoCounts::of(&data, 0.0);
        let mut row = CoCountRow::default();
        let mut total = 0.0;
        for item in 0..n_items as ItemId {
            counts.row(item, &mut row);
            total += row.sums.iter().map(|&sum| f64::from(sum)).sum::<f64>();
        }
        let expected = (n_items * (n_items - 1) + 2 * 2000) as f64;
        assert!((total / expected - 1.0).abs() < 1e-3, "{total} {expected}");
        assert_eq!((counts.own(0), counts.own(4999)), (2.0, 1.0));
    }
}
