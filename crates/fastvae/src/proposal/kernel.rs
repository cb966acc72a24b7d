//! `kernel`: a quadratic kernel, Q(i given z) ~ alpha (z . q_i)^2 + 1 (Blanc & Rendle, 2018).
//!
//! The kernel's sum over a set of items is `alpha z^T S z + n` with S the sum of their outer products, so a tree
//! of such sums is descended instead of scanning the catalogue. Leaves are blocks of D items: the tree then
//! takes M D floats, as much as the item vectors, and not the M D^2 of a tree down to single items. Within a leaf
//! the kernel is taken of the item vectors as they are now, between leaves as they were at the refresh.
//! The item bias does not enter Q.

use std::ops::Range;

use rayon::prelude::*;

use super::logits::logits;
use super::state::{Reader, State, StateTensor};
use super::{ItemTable, Partitions, Proposal, Scratch, Spread};
use crate::config::ProposalKind;
use crate::data::ItemId;
use crate::error::Result;
use crate::math::{MatrixView, Stream, simd};

/// The weight of the square against the constant (alpha), as Blanc and Rendle set it.
pub const ALPHA: f32 = 100.0;
/// Items of a leaf, at least: below that the tree's upper levels cost more than a scan of the leaf.
const SMALLEST_LEAF: usize = 32;

/// The quadratic kernel.
#[derive(Debug, Clone)]
pub struct Kernel {
    n_items: usize,
    dim: usize,
    leaf: usize,
    partitions: Partitions,
    /// The tree in preorder, a row of [`Kernel::row`] floats per node; empty before the first refresh.
    tree: Vec<f32>,
}

impl Kernel {
    /// Over the items of `partitions` (at least one, places being items) with vectors of length `dim`.
    pub fn new(partitions: Partitions, dim: usize) -> Self {
        let n_items = partitions.starts()[partitions.len()] as usize;
        Self { n_items, dim, leaf: dim.max(SMALLEST_LEAF), partitions, tree: Vec::new() }
    }

    fn n_leaves(&self) -> usize {
        self.n_items.div_ceil(self.leaf)
    }

    /// Floats of a node: the upper triangle of a D x D matrix.
    fn row(&self) -> usize {
        self.dim * (self.dim + 1) / 2
    }

    fn leaf_items(&self, leaf: usize) -> Range<usize> {
        leaf * self.leaf..((leaf + 1) * self.leaf).min(self.n_items)
    }

    /// The sum of the kernel over the items of the node at preorder place `node` with leaves `leaves`.
    fn mass(&self, node: usize, leaves: Range<usize>, outer: &[f32]) -> f32 {
        let row = self.row();
        let square = simd::dot(&self.tree[node * row..][..row], outer);
        let n = (leaves.end * self.leaf).min(self.n_items) - leaves.start * self.leaf;
        // Rounding may leave a square slightly below zero.
        ALPHA * square.max(0.0) + n as f32
    }

    /// The kernels of the items of `leaf` and their sum.
    fn kernels(
        &self,
        leaf: usize,
        query: &[f32],
        vectors: MatrixView<'_>,
        padded: &mut Vec<f32>,
        out: &mut Vec<f32>,
    ) -> f64 {
        let range = self.leaf_items(leaf);
        out.clear();
        out.resize(range.len(), 0.0);
        logits(ItemTable { vectors, bias: None }, range.start, query, padded, out);
        out.iter_mut().for_each(|logit| *logit = ALPHA * *logit * *logit + 1.0);
        out.iter().map(|&kernel| f64::from(kernel)).sum()
    }
}

/// Fills `tree`, the nodes over `leaves` in preorder, from the sums of the leaves.
fn fill(tree: &mut [f32], row: usize, leaves: Range<usize>, leaf_sums: &[f32]) {
    let (node, below) = tree.split_at_mut(row);
    if leaves.len() == 1 {
        node.copy_from_slice(&leaf_sums[leaves.start * row..][..row]);
        return;
    }
    let middle = leaves.start + leaves.len() / 2;
    let (left, right) = below.split_at_mut((2 * (middle - leaves.start) - 1) * row);
    rayon::join(
        || fill(left, row, leaves.start..middle, leaf_sums),
        || fill(right, row, middle..leaves.end, leaf_sums),
    );
    node.iter_mut().zip(&*left).zip(&*right).for_each(|((sum, l), r)| *sum = l + r);
}

/// The sums of outer products of each leaf's items, upper triangles.
fn leaf_sums(vectors: MatrixView<'_>, leaf: usize, n_leaves: usize) -> Vec<f32> {
    let dim = vectors.cols();
    let row = dim * (dim + 1) / 2;
    let mut sums = vec![0.0; n_leaves * row];
    sums.par_chunks_mut(row).enumerate().for_each(|(number, sum)| {
        for item in number * leaf..((number + 1) * leaf).min(vectors.rows()) {
            let q = vectors.row(item);
            let mut rest = &mut *sum;
            for d in 0..dim {
                let (line, after) = rest.split_at_mut(dim - d);
                simd::axpy(q[d], &q[d..], line);
                rest = after;
            }
        }
    });
    sums
}

/// z z^T as an upper triangle with the entries off the diagonal doubled: its inner product with S is z^T S z.
fn outer_product(query: &[f32], out: &mut Vec<f32>) {
    out.clear();
    for (d, z) in query.iter().enumerate() {
        out.push(z * z);
        out.extend(query[d + 1..].iter().map(|other| 2.0 * z * other));
    }
}

/// Fills `targets` with `n` sorted independent uniforms in 0 ..= `total`: the prefix sums of n + 1 exponential
/// spacings, from the stream's words 0 to n, divided by the last sum.
fn sorted_targets(n: usize, total: f64, stream: &Stream, words: &mut Vec<u32>, targets: &mut Vec<f64>) {
    words.resize(n + 1, 0);
    stream.fill(0, words);
    targets.clear();
    let mut sum = 0.0;
    for &word in &*words {
        // Half a step up: never zero.
        sum -= ((f64::from(word) + 0.5) / 4_294_967_296.0).ln();
        targets.push(sum);
    }
    targets.truncate(n);
    targets.iter_mut().for_each(|target| *target *= total / sum);
}

/// A descent of many draws at once: each node splits its sorted draws between its children.
struct Descent<'a, F> {
    kernel: &'a Kernel,
    outer: &'a [f32],
    targets: &'a mut [f64],
    /// Called for each leaf that draws reach with its number, its draws, its mass and their targets in it.
    reached: F,
}

impl<F: FnMut(usize, Range<usize>, f32, &[f64])> Descent<'_, F> {
    /// `draws` are those of this node, their targets in 0 ..= `mass`.
    fn visit(&mut self, node: usize, leaves: Range<usize>, draws: Range<usize>, mass: f32) {
        if draws.is_empty() {
            return;
        }
        if leaves.len() == 1 {
            (self.reached)(leaves.start, draws.clone(), mass, &self.targets[draws]);
            return;
        }
        let middle = leaves.start + leaves.len() / 2;
        let (left, right) = (node + 1, node + 2 * (middle - leaves.start));
        let left_mass = self.kernel.mass(left, leaves.start..middle, self.outer);
        let right_mass = self.kernel.mass(right, middle..leaves.end, self.outer);
        // The children's masses add up to the parent's only up to rounding: targets are stretched to fit.
        let stretch = (f64::from(left_mass) + f64::from(right_mass)) / f64::from(mass);
        let mine = &mut self.targets[draws.clone()];
        mine.iter_mut().for_each(|target| *target *= stretch);
        let cut = draws.start + mine.partition_point(|&target| target < f64::from(left_mass));
        self.targets[cut..draws.end].iter_mut().for_each(|target| *target -= f64::from(left_mass));
        self.visit(left, leaves.start..middle, draws.start..cut, left_mass);
        self.visit(right, middle..leaves.end, cut..draws.end, right_mass);
    }
}

impl Proposal for Kernel {
    fn kind(&self) -> ProposalKind {
        ProposalKind::Kernel
    }

    fn refresh(&mut self, items: ItemTable<'_>, _: u64, _: u32) -> Result<()> {
        let n_leaves = self.n_leaves();
        let sums = leaf_sums(items.vectors, self.leaf, n_leaves);
        self.tree.resize((2 * n_leaves - 1) * self.row(), 0.0);
        fill(&mut self.tree, self.dim * (self.dim + 1) / 2, 0..n_leaves, &sums);
        Ok(())
    }

    fn prepare(&self, query: &[f32], _: ItemTable<'_>, scratch: &mut Scratch) {
        assert!(!self.tree.is_empty(), "a refresh comes before the first query");
        outer_product(&query[..self.dim], &mut scratch.scores);
        scratch.total = f64::from(self.mass(0, 0..self.n_leaves(), &scratch.scores));
        // ln of (leaf's share / sum of its kernels), found when a leaf is first asked for.
        scratch.log_base.clear();
        scratch.log_base.resize(self.n_leaves(), f32::NAN);
    }

    fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    fn spread(
        &self,
        n: usize,
        query: &[f32],
        items: ItemTable<'_>,
        stream: &Stream,
        scratch: &mut Scratch,
        spread: &mut Spread,
    ) {
        let Scratch {
            query: padded,
            scores: outer,
            weights,
            total,
            log_base,
            targets,
            words,
            places,
            correction,
            ..
        } = scratch;
        places.resize(n, 0);
        correction.resize(n, 0.0);
        sorted_targets(n, *total, stream, words, targets);
        let reached = |leaf: usize, range: Range<usize>, mass: f32, mine: &[f64]| {
            let sum = self.kernels(leaf, query, items.vectors, padded, weights);
            log_base[leaf] = ((f64::from(mass) / *total).ln() - sum.ln()) as f32;
            // Both the targets and the sums ascend. Kernels are positive, so only rounding goes beyond the last.
            let (mut at, mut passed) = (0, f64::from(weights[0]));
            for (t, target) in range.zip(mine) {
                while at + 1 < weights.len() && passed <= target * sum / f64::from(mass) {
                    at += 1;
                    passed += f64::from(weights[at]);
                }
                places[t] = (leaf * self.leaf + at) as u32;
                correction[t] = log_base[leaf] + weights[at].ln();
            }
        };
        let mut descent = Descent { kernel: self, outer, targets, reached };
        descent.visit(0, 0..self.n_leaves(), 0..n, *total as f32);
        spread.push_places(places, correction, &self.partitions);
    }

    fn log_q(
        &self,
        of: &[ItemId],
        query: &[f32],
        items: ItemTable<'_>,
        scratch: &mut Scratch,
        log_q: &mut [f32],
    ) {
        let Scratch { query: padded, scores: outer, weights, total, log_base, .. } = scratch;
        let plain = ItemTable { vectors: items.vectors, bias: None };
        for (out, &item) in log_q.iter_mut().zip(of) {
            let leaf = item as usize / self.leaf;
            if log_base[leaf].is_nan() {
                let sum = self.kernels(leaf, query, items.vectors, padded, weights);
                let (node, leaves) = self.leaf_node(leaf);
                let mass = self.mass(node, leaves, outer);
                log_base[leaf] = ((f64::from(mass) / *total).ln() - sum.ln()) as f32;
            }
            let logit = super::logits::logit(plain, item, query);
            *out = log_base[leaf] + (ALPHA * logit * logit + 1.0).ln();
        }
    }

    fn state(&self) -> State {
        if self.tree.is_empty() {
            return Vec::new();
        }
        let row = self.row();
        let n_leaves = self.n_leaves();
        let sums = (0..n_leaves).flat_map(|leaf| {
            let (node, _) = self.leaf_node(leaf);
            &self.tree[node * row..][..row]
        });
        vec![("leaves".into(), StateTensor::f32([n_leaves, row], sums.copied().collect()))]
    }

    fn restore(&mut self, state: State) -> Result<()> {
        let mut reader = Reader::new(state);
        let (n_leaves, row) = (self.n_leaves(), self.row());
        let sums = reader.numbers("leaves", &[n_leaves, row])?;
        reader.finish()?;
        self.tree.resize((2 * n_leaves - 1) * row, 0.0);
        fill(&mut self.tree, row, 0..n_leaves, &sums);
        Ok(())
    }
}

impl Kernel {
    /// The preorder place of a leaf.
    fn leaf_node(&self, leaf: usize) -> (usize, Range<usize>) {
        let (mut node, mut leaves) = (0, 0..self.n_leaves());
        while leaves.len() > 1 {
            let middle = leaves.start + leaves.len() / 2;
            if leaf < middle {
                node += 1;
                leaves.end = middle;
            } else {
                node += 2 * (middle - leaves.start);
                leaves.start = middle;
            }
        }
        (node, leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{Matrix, Purpose};

    #[test]
    fn targets_are_sorted_and_uniform() {
        let (mut words, mut targets) = (Vec::new(), Vec::new());
        let n = 100_000;
        sorted_targets(n, 2.0, &Stream::new(3, Purpose::Negatives, 0, 0), &mut words, &mut targets);
        assert!(targets.len() == n && targets.is_sorted() && targets[n - 1] <= 2.0);
        // Kolmogorov and Smirnov's distance; 1.95 / sqrt(n) is passed once in a thousand.
        let distance = targets.iter().enumerate().map(|(i, t)| (t / 2.0 - i as f64 / n as f64).abs());
        assert!(distance.fold(0.0, f64::max) < 1.95 / (n as f64).sqrt());
    }

    #[test]
    fn tree_probabilities_equal_the_kernel_of_every_item() {
        let mut stream = Stream::new(1, Purpose::Initialise, 0, 0);
        for (n_items, dim) in [(1, 3), (31, 4), (500, 5), (333, 40)] {
            let values: Vec<f32> = (0..n_items * dim).map(|_| 0.3 * stream.normal() as f32).collect();
            let vectors = Matrix::from_rows(n_items, dim, &values);
            let query: Vec<f32> = (0..dim).map(|_| stream.normal() as f32).collect();
            let items = ItemTable { vectors: vectors.view(), bias: None };
            let mut kernel = Kernel::new(Partitions::ranges(n_items, 8), dim);
            kernel.refresh(items, 0, 0).unwrap();
            let mut scratch = Scratch::default();
            kernel.prepare(&query, items, &mut scratch);
            let all: Vec<u32> = (0..n_items as u32).collect();
            let mut log_q = vec![0.0; n_items];
            kernel.log_q(&all, &query, items, &mut scratch, &mut log_q);
            let values: Vec<f64> = (0..n_items)
                .map(|i| {
                    let dot: f64 = query.iter().zip(vectors.row(i)).map(|(z, q)| f64::from(z * q)).sum();
                    f64::from(ALPHA) * dot * dot + 1.0
                })
                .collect();
            let sum: f64 = values.iter().sum();
            for (value, log_q) in values.iter().zip(log_q) {
                assert!(((value / sum).ln() - f64::from(log_q)).abs() < 1e-3);
            }
        }
    }
}
