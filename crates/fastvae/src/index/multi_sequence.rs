//! [`MultiSequence`]: the cells of an index from the most promising on (Babenko & Lempitsky, 2012).
//!
//! A cell scores the sum of its codewords' inner products with the query. With the codewords of each codebook sorted
//! by theirs, a cell is a tuple of ranks, and a tuple never scores more than one with smaller ranks: a heap that
//! starts at rank zero everywhere gives the tuples in order and looks at no more of them than it must.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::index::lists::{InvertedLists, MOST_CODEBOOKS};
use crate::index::multi_index::InvertedMultiIndex;

/// The cells that hold items, in the order of their scores for one query; ties in no particular order.
#[derive(Debug)]
pub struct MultiSequence<'a> {
    lists: &'a InvertedLists,
    first_cells: &'a FirstCells,
    /// Scores and codes of each codebook, best first.
    sorted: Vec<Vec<(f32, u8)>>,
    heap: BinaryHeap<Node>,
}

/// Where the cells of each first code start: what makes finding a cell cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstCells(Vec<u32>);

impl FirstCells {
    /// Of the cells of `lists`, which stand in the order of their codes.
    pub fn of(lists: &InvertedLists) -> Self {
        let mut starts = vec![0; 257];
        for cell in 0..lists.n_cells() {
            starts[usize::from(lists.codes(cell)[0]) + 1] += 1;
        }
        for code in 0..256 {
            starts[code + 1] += starts[code];
        }
        Self(starts)
    }

    /// The cell of these codes, if it holds items.
    fn cell(&self, lists: &InvertedLists, codes: [u8; MOST_CODEBOOKS]) -> Option<usize> {
        let (mut low, mut high) =
            (self.0[usize::from(codes[0])] as usize, self.0[usize::from(codes[0]) + 1] as usize);
        while low < high {
            let middle = low.midpoint(high);
            match lists.codes(middle).cmp(&codes) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Some(middle),
            }
        }
        None
    }
}

/// A tuple of ranks that waits for its turn.
#[derive(Debug, Clone, Copy)]
struct Node {
    score: f32,
    ranks: [u8; MOST_CODEBOOKS],
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Node {}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Node {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.ranks.cmp(&self.ranks))
    }
}

impl<'a> MultiSequence<'a> {
    /// The cells of `index` for `query`, whose `first_cells` are those of its lists.
    pub fn new(index: &'a InvertedMultiIndex, first_cells: &'a FirstCells, query: &[f32]) -> Self {
        let mut scores = Vec::new();
        index.scores(query, &mut scores);
        let sorted: Vec<Vec<(f32, u8)>> = scores
            .chunks_exact(index.score_stride())
            .map(|scores| {
                let n_codewords = index.settings().n_codewords;
                let mut sorted: Vec<(f32, u8)> = scores[..n_codewords]
                    .iter()
                    .enumerate()
                    .map(|(code, &score)| (score, code as u8))
                    .collect();
                sorted.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                sorted
            })
            .collect();
        let mut cells =
            Self { lists: index.lists(), first_cells, sorted, heap: BinaryHeap::with_capacity(1024) };
        cells.wait([0; MOST_CODEBOOKS]);
        cells
    }

    fn wait(&mut self, ranks: [u8; MOST_CODEBOOKS]) {
        let score = self.sorted.iter().zip(ranks).map(|(sorted, rank)| sorted[usize::from(rank)].0).sum();
        self.heap.push(Node { score, ranks });
    }

    /// Every tuple has one parent, the one with its last rank above zero lowered by one, so none waits twice.
    fn wait_for_children(&mut self, ranks: [u8; MOST_CODEBOOKS]) {
        let last = ranks.iter().rposition(|&rank| rank > 0).unwrap_or(0);
        for j in last..self.sorted.len() {
            if usize::from(ranks[j]) + 1 < self.sorted[j].len() {
                let mut child = ranks;
                child[j] += 1;
                self.wait(child);
            }
        }
    }
}

impl Iterator for MultiSequence<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while let Some(Node { ranks, .. }) = self.heap.pop() {
            self.wait_for_children(ranks);
            let mut codes = [0; MOST_CODEBOOKS];
            for ((code, sorted), rank) in codes.iter_mut().zip(&self.sorted).zip(ranks) {
                *code = sorted[usize::from(rank)].1;
            }
            if let Some(cell) = self.first_cells.cell(self.lists, codes) {
                return Some(cell);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Quantizer;
    use crate::index::IndexSettings;
    use crate::math::{Matrix, Purpose, Stream};

    fn random(rows: usize, cols: usize, seed: u64) -> Matrix {
        let mut stream = Stream::new(seed, Purpose::Initialise, 0, 0);
        Matrix::from_rows(rows, cols, &(0..rows * cols).map(|_| stream.normal() as f32).collect::<Vec<_>>())
    }

    #[test]
    fn every_cell_comes_once_and_in_the_order_of_scores() {
        let vectors = random(900, 12, 1);
        let query = random(1, 12, 2).row(0)[..12].to_vec();
        for quantizer in [Quantizer::Product, Quantizer::Residual] {
            for (n_codebooks, n_codewords) in [(1, 20), (2, 9), (3, 5), (4, 4), (2, 256)] {
                let settings = IndexSettings { quantizer, n_codebooks, n_codewords };
                let index = InvertedMultiIndex::build(vectors.view(), settings, None, 0, 0).unwrap();
                let first_cells = FirstCells::of(index.lists());
                let order: Vec<usize> = MultiSequence::new(&index, &first_cells, &query).collect();
                let mut all = order.clone();
                all.sort_unstable();
                assert!(all.into_iter().eq(0..index.lists().n_cells()), "each of the cells once");
                let mut approximation = vec![0.0; 12];
                let scores: Vec<f32> = order
                    .iter()
                    .map(|&cell| {
                        index.approximation(index.lists().codes(cell), &mut approximation);
                        approximation.iter().zip(&query).map(|(a, b)| a * b).sum()
                    })
                    .collect();
                assert!(scores.windows(2).all(|pair| pair[0] >= pair[1] - 1e-4), "{scores:?}");
            }
        }
    }
}
