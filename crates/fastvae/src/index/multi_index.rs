//! [`InvertedMultiIndex`]: m codebooks, the codes of every item, and the cells.

use std::ops::Range;

use rayon::prelude::*;

use super::codebook::Codebook;
use super::kmeans::{self, Clustering, Points};
use super::lists::{InvertedLists, MOST_CODEBOOKS, Occupancy};
use crate::config::{Config, Quantizer};
use crate::data::ItemId;
use crate::error::{Error, Result};
use crate::math::{Matrix, MatrixView};

/// The shape of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexSettings {
    /// How item vectors are coded.
    pub quantizer: Quantizer,
    /// Codebooks (m), 1 to 4.
    pub n_codebooks: usize,
    /// Codewords per codebook (K), 1 to 256.
    pub n_codewords: usize,
}

impl From<&Config> for IndexSettings {
    fn from(config: &Config) -> Self {
        Self { quantizer: config.quantizer, n_codebooks: config.codebooks, n_codewords: config.codewords }
    }
}

/// Item vectors coded by m codebooks, and the items of each cell.
///
/// By product quantisation a codebook codes its share of the dimensions (the first ones take one more where
/// they do not divide evenly); by residual quantisation each codes, in all dimensions, what the ones before
/// left over. In both, `query . (q_i - residual_i)` is the sum over codebooks of one entry of
/// [`Codebook::scores`].
#[derive(Debug, Clone)]
pub struct InvertedMultiIndex {
    settings: IndexSettings,
    n_items: usize,
    dim: usize,
    codebooks: Vec<Codebook>,
    codes: Vec<u8>,
    lists: InvertedLists,
}

impl InvertedMultiIndex {
    /// Builds an index over `vectors` (`n_items x dim`), from the codewords of `warm` where it has the same
    /// shape. Work is spread over the current thread pool; the result does not depend on its size.
    ///
    /// # Errors
    /// [`Error::Config`] if the settings do not fit the vectors.
    pub fn build(
        vectors: MatrixView<'_>,
        settings: IndexSettings,
        warm: Option<&Self>,
        seed: u64,
        epoch: u32,
    ) -> Result<Self> {
        let (n_items, dim) = (vectors.rows(), vectors.cols());
        settings.check(n_items, dim)?;
        let warm = warm.filter(|warm| warm.settings == settings && warm.dim == dim);
        let points = |j: usize| Points::new(vectors, settings.columns(j, dim));
        let cluster = |j: usize, points: Points<'_>| {
            let start = warm.map(|warm| &warm.codebooks[j]);
            kmeans::cluster(&points, settings.n_codewords, start, seed, epoch, j as u16)
        };
        let numbers = 0..settings.n_codebooks;
        let found: Vec<Clustering> = match settings.quantizer {
            // Side by side, so that no thread waits for the last strip of each iteration.
            Quantizer::Product => numbers.into_par_iter().map(|j| cluster(j, points(j))).collect(),
            Quantizer::Residual => {
                let mut found: Vec<Clustering> = Vec::with_capacity(numbers.len());
                for j in numbers {
                    let coded = found.iter().map(|before| (&before.codebook, &before.codes));
                    let rest = coded.fold(points(j), |rest, (codebook, codes)| rest.without(codebook, codes));
                    found.push(cluster(j, rest));
                }
                found
            }
        };
        let (codebooks, codes): (Vec<_>, Vec<_>) =
            found.into_iter().map(|found| (found.codebook, found.codes)).unzip();
        let all = codes.concat();
        drop(codes);
        let lists = InvertedLists::new(&all, n_items);
        Ok(Self { settings, n_items, dim, codebooks, codes: all, lists })
    }

    /// Moves the codewords after the vectors and codes the items anew.
    ///
    /// # Errors
    /// [`Error::Config`] if the settings do not fit the vectors.
    pub fn refresh(&mut self, vectors: MatrixView<'_>, seed: u64, epoch: u32) -> Result<()> {
        *self = Self::build(vectors, self.settings, Some(self), seed, epoch)?;
        Ok(())
    }

    /// The index with these codewords and codes: the same cells in the same order, without k-means.
    ///
    /// `codewords` has one `n_codewords x columns` matrix for each codebook, `codes` is
    /// `n_codebooks x n_items`.
    ///
    /// # Errors
    /// [`Error::Data`] if shapes or values do not fit together.
    pub fn from_parts(
        settings: IndexSettings,
        n_items: usize,
        dim: usize,
        codewords: Vec<Matrix>,
        codes: Vec<u8>,
    ) -> Result<Self> {
        let damaged =
            |problem: String| Error::data(problem, "the index must be rebuilt from the item vectors");
        settings.check(n_items, dim)?;
        if codewords.len() != settings.n_codebooks {
            return Err(damaged(format!("{} codebooks, expected {}", codewords.len(), settings.n_codebooks)));
        }
        let mut codebooks = Vec::with_capacity(codewords.len());
        for (j, codewords) in codewords.into_iter().enumerate() {
            let columns = settings.columns(j, dim);
            if (codewords.rows(), codewords.cols()) != (settings.n_codewords, columns.len()) {
                return Err(damaged(format!(
                    "codebook {j} is {} x {}, expected {} x {}",
                    codewords.rows(),
                    codewords.cols(),
                    settings.n_codewords,
                    columns.len()
                )));
            }
            if codewords.data().iter().any(|value| !value.is_finite()) {
                return Err(damaged(format!("codebook {j} has values that are not finite")));
            }
            codebooks.push(Codebook::new(columns, codewords));
        }
        if Some(codes.len()) != n_items.checked_mul(settings.n_codebooks) {
            return Err(damaged(format!(
                "{} codes, expected {} for each of {n_items} items",
                codes.len(),
                settings.n_codebooks
            )));
        }
        if let Some(code) = codes.iter().find(|&&code| usize::from(code) >= settings.n_codewords) {
            return Err(damaged(format!("code {code} with {} codewords", settings.n_codewords)));
        }
        let lists = InvertedLists::new(&codes, n_items);
        Ok(Self { settings, n_items, dim, codebooks, codes, lists })
    }

    /// The shape.
    pub fn settings(&self) -> IndexSettings {
        self.settings
    }

    /// Number of items.
    pub fn n_items(&self) -> usize {
        self.n_items
    }

    /// Length of the item vectors.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The codebooks.
    pub fn codebooks(&self) -> &[Codebook] {
        &self.codebooks
    }

    /// The code of every item in every codebook, `n_codebooks x n_items`.
    pub fn codes(&self) -> &[u8] {
        &self.codes
    }

    /// The code of every item in codebook `j`.
    pub fn codes_of(&self, j: usize) -> &[u8] {
        &self.codes[j * self.n_items..][..self.n_items]
    }

    /// The items of each cell.
    pub fn lists(&self) -> &InvertedLists {
        &self.lists
    }

    /// Length of a row of [`InvertedMultiIndex::scores`].
    pub fn score_stride(&self) -> usize {
        self.codebooks[0].score_len()
    }

    /// `out[j * score_stride + k] = query . codeword k of codebook j`; `out` is resized. Cost: O(K D).
    pub fn scores(&self, query: &[f32], out: &mut Vec<f32>) {
        let stride = self.score_stride();
        out.resize(self.codebooks.len() * stride, 0.0);
        for (codebook, out) in self.codebooks.iter().zip(out.chunks_exact_mut(stride)) {
            codebook.scores(query, out);
        }
    }

    /// The sum of the codewords of a code tuple: what every item of the cell is taken for.
    pub fn approximation(&self, codes: [u8; MOST_CODEBOOKS], out: &mut [f32]) {
        out.fill(0.0);
        for (codebook, code) in self.codebooks.iter().zip(codes) {
            let columns = &mut out[codebook.columns()];
            columns.iter_mut().zip(codebook.codeword(usize::from(code))).for_each(|(x, c)| *x += c);
        }
    }

    /// What the codewords leave of the vector of `item`, as it is in `vectors` now.
    pub fn residual(&self, item: ItemId, vectors: MatrixView<'_>, out: &mut [f32]) {
        let cell = self.lists.cell_of()[item as usize] as usize;
        self.approximation(self.lists.codes(cell), out);
        out.iter_mut().zip(vectors.row(item as usize)).for_each(|(x, q)| *x = q - *x);
    }

    /// The largest norm of a residual: C of theorems 5.3 and 5.4.
    pub fn largest_residual(&self, vectors: MatrixView<'_>) -> f32 {
        let squares = (0..self.n_items as u32).into_par_iter().map_init(
            || vec![0.0; self.dim],
            |residual, item| {
                self.residual(item, vectors, residual);
                residual.iter().map(|x| x * x).sum::<f32>()
            },
        );
        squares.reduce(|| 0.0, f32::max).sqrt()
    }

    /// How the items spread over the cells.
    pub fn occupancy(&self) -> Occupancy {
        self.lists.occupancy((self.settings.n_codewords as f64).powi(self.settings.n_codebooks as i32))
    }
}

impl IndexSettings {
    /// The columns that codebook `j` codes.
    pub(crate) fn columns(&self, j: usize, dim: usize) -> Range<usize> {
        match self.quantizer {
            Quantizer::Residual => 0..dim,
            Quantizer::Product => {
                let (share, rest) = (dim / self.n_codebooks, dim % self.n_codebooks);
                let start = |j: usize| j * share + j.min(rest);
                start(j)..start(j + 1)
            }
        }
    }

    /// Whether an index of this shape fits.
    pub(crate) fn check(&self, n_items: usize, dim: usize) -> Result<()> {
        if !(1..=MOST_CODEBOOKS).contains(&self.n_codebooks) || self.n_codebooks > dim {
            return Err(Error::config(
                "codebooks",
                format!("is {} for {dim} latent dimensions", self.n_codebooks),
                "give 1 to 4, and each codebook at least one dimension",
            ));
        }
        if !(1..=256).contains(&self.n_codewords) {
            return Err(Error::config("codewords", format!("is {}", self.n_codewords), "give 1 to 256"));
        }
        if self.n_codewords > n_items {
            return Err(Error::config(
                "codewords",
                format!("is {} for {n_items} items", self.n_codewords),
                format!("give at most {n_items}"),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{Purpose, Stream};

    fn random(rows: usize, cols: usize, seed: u64) -> Matrix {
        let mut stream = Stream::new(seed, Purpose::Initialise, 0, 0);
        Matrix::from_rows(rows, cols, &(0..rows * cols).map(|_| stream.normal() as f32).collect::<Vec<_>>())
    }

    fn settings(quantizer: Quantizer, n_codebooks: usize, n_codewords: usize) -> IndexSettings {
        IndexSettings { quantizer, n_codebooks, n_codewords }
    }

    #[test]
    fn dimensions_are_shared_evenly_and_the_first_codebooks_take_the_rest() {
        let shape = settings(Quantizer::Product, 4, 2);
        let columns: Vec<_> = (0..4).map(|j| shape.columns(j, 10)).collect();
        assert_eq!(columns, [0..3, 3..6, 6..8, 8..10]);
    }

    #[test]
    fn codewords_and_residual_add_up_to_the_item_and_scores_to_its_approximation() {
        let vectors = random(300, 10, 1);
        let query: Vec<f32> = random(1, 10, 2).row(0)[..10].to_vec();
        for quantizer in [Quantizer::Product, Quantizer::Residual] {
            for m in 1..=4 {
                let index =
                    InvertedMultiIndex::build(vectors.view(), settings(quantizer, m, 5), None, 0, 0).unwrap();
                let mut scores = Vec::new();
                index.scores(&query, &mut scores);
                let (mut approximation, mut residual) = (vec![0.0; 10], vec![0.0; 10]);
                for item in 0..300 {
                    let codes = index.lists().codes(index.lists().cell_of()[item] as usize);
                    index.approximation(codes, &mut approximation);
                    index.residual(item as u32, vectors.view(), &mut residual);
                    let row = vectors.view().row(item);
                    assert!((0..10).all(|d| (approximation[d] + residual[d] - row[d]).abs() < 1e-5));
                    let score: f32 =
                        (0..m).map(|j| scores[j * index.score_stride() + usize::from(codes[j])]).sum();
                    let expected: f32 = approximation.iter().zip(&query).map(|(a, z)| a * z).sum();
                    assert!((score - expected).abs() < 1e-4);
                    let norm = residual.iter().map(|x| x * x).sum::<f32>().sqrt();
                    assert!(norm <= index.largest_residual(vectors.view()) + 1e-6);
                }
            }
        }
    }

    #[test]
    fn more_codewords_than_items_are_refused_with_a_remedy() {
        let vectors = random(7, 4, 1);
        let error = InvertedMultiIndex::build(vectors.view(), settings(Quantizer::Product, 2, 8), None, 0, 0);
        let message = error.unwrap_err().to_string();
        assert!(message.contains("codewords") && message.contains("give at most 7"), "{message}");
    }

    #[test]
    fn an_index_restored_from_its_parts_has_the_same_cells_in_the_same_order() {
        let vectors = random(500, 9, 1);
        for quantizer in [Quantizer::Product, Quantizer::Residual] {
            let index =
                InvertedMultiIndex::build(vectors.view(), settings(quantizer, 3, 6), None, 0, 0).unwrap();
            let codewords: Vec<Matrix> = index.codebooks().iter().map(|c| c.codewords().clone()).collect();
            let parts =
                |codes| InvertedMultiIndex::from_parts(index.settings(), 500, 9, codewords.clone(), codes);
            assert_eq!(parts(index.codes().to_vec()).unwrap().lists(), index.lists());
            assert!(parts(vec![6; 1500]).is_err(), "a code beyond the codewords");
            assert!(parts(vec![0; 1499]).is_err(), "a code is missing");
        }
        let shape = settings(Quantizer::Product, 2, 6);
        let wrong = vec![Matrix::zeros(6, 5), Matrix::zeros(6, 5)];
        assert!(InvertedMultiIndex::from_parts(shape, 500, 9, wrong, vec![0; 1000]).is_err());
    }

    #[test]
    fn a_second_codebook_on_the_residual_leaves_less_than_one_on_its_half() {
        // Correlated halves are what product quantisation cannot see.
        let mut vectors = random(2000, 8, 3);
        for row in 0..2000 {
            let (first, second) = vectors.row_mut(row).split_at_mut(4);
            second[..4].iter_mut().zip(first).for_each(|(y, x)| *y = *x + 0.1 * *y);
        }
        let mean = |quantizer| {
            let index =
                InvertedMultiIndex::build(vectors.view(), settings(quantizer, 2, 16), None, 0, 0).unwrap();
            let mut residual = vec![0.0; 8];
            (0..2000)
                .map(|item| {
                    index.residual(item, vectors.view(), &mut residual);
                    residual.iter().map(|x| x * x).sum::<f32>()
                })
                .sum::<f32>()
        };
        assert!(mean(Quantizer::Residual) < mean(Quantizer::Product));
    }

    #[test]
    fn a_refresh_starts_from_the_last_codewords_and_does_not_depend_on_threads() {
        let (before, after) = (random(3000, 8, 1), random(3000, 8, 2));
        let at = |threads| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
                let shape = settings(Quantizer::Product, 2, 16);
                let mut index = InvertedMultiIndex::build(before.view(), shape, None, 0, 0).unwrap();
                index.refresh(after.view(), 0, 1).unwrap();
                (index.codes().to_vec(), index.codebooks()[1].codewords().data().to_vec())
            })
        };
        let one = at(1);
        assert!(one == at(2) && one == at(5));
    }
}
