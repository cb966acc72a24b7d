//! [`Proposal`]: the distributions that negatives come from, for research.

use fastvae::Config;
use fastvae::internals::math::{Matrix, Purpose, Stream};
use fastvae::internals::proposal::{self, Draws, ItemTable, Scratch};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::errors::raised;
use crate::ids::checked;
use crate::model::Lists;
use crate::threads::detached;
use crate::training::settings;

/// A distribution over items given a query, over fixed item vectors.
#[pyclass(frozen, module = "fastvae_cf._fastvae")]
pub struct Proposal {
    proposal: Box<dyn proposal::Proposal>,
    vectors: Matrix,
    bias: Option<Vec<f32>>,
}

#[pymethods]
impl Proposal {
    #[new]
    #[pyo3(signature = (config, vectors, counts, bias, seed, threads))]
    fn new(
        py: Python<'_>,
        config: &str,
        vectors: PyReadonlyArray2<'_, f32>,
        counts: PyReadonlyArray1<'_, i64>,
        bias: Option<PyReadonlyArray1<'_, f32>>,
        seed: u64,
        threads: usize,
    ) -> PyResult<Self> {
        let config: Config = settings(Config::default(), config)?;
        config.validate().map_err(raised)?;
        let [rows, cols] = [vectors.shape()[0], vectors.shape()[1]];
        let vectors = Matrix::from_rows(rows, cols, vectors.as_slice()?);
        let bias = bias.map(|bias| bias.as_slice().map(<[f32]>::to_vec)).transpose()?;
        let count = |&count: &i64| {
            u32::try_from(count).map_err(|_| {
                PyValueError::new_err(format!("an item count is {count}; give 0 to 4,294,967,295"))
            })
        };
        let counts = counts.as_array().iter().map(count).collect::<PyResult<Vec<u32>>>()?;
        if counts.len() != rows || bias.as_ref().is_some_and(|bias| bias.len() != rows) {
            return Err(PyValueError::new_err(format!(
                "{rows} item vectors, {} counts, {} biases; give one of each for every item",
                counts.len(),
                bias.map_or(0, |bias| bias.len()),
            )));
        }
        let mut proposal = proposal::build(&config, &counts).map_err(raised)?;
        let items = ItemTable { vectors: vectors.view(), bias: bias.as_deref() };
        let proposal = detached(py, threads, || proposal.refresh(items, seed, 0).map(|()| proposal))?;
        Ok(Self { proposal, vectors, bias })
    }

    /// `n` draws for each query, and their ln Q.
    fn sample<'py>(
        &self,
        py: Python<'py>,
        queries: PyReadonlyArray2<'py, f32>,
        n: usize,
        seed: u64,
        threads: usize,
    ) -> PyResult<Lists<'py>> {
        let (rows, queries) = (queries.shape()[0], self.checked(&queries)?);
        let of_query = |(row, query): (usize, &[f32])| {
            let (mut scratch, mut draws) = (Scratch::default(), Draws::default());
            let items = self.items();
            self.proposal.prepare(query, items, &mut scratch);
            let stream = Stream::new(seed, Purpose::Negatives, 0, row as u32);
            self.proposal.draw(n, query, items, &stream, &mut scratch, &mut draws);
            // Not the corrections of the draws: for some kinds a constant stands in for ln Q there.
            let mut log_q = vec![0.0; n];
            self.proposal.log_q(&draws.items, query, items, &mut scratch, &mut log_q);
            (draws.items.iter().map(|&item| item as i32).collect::<Vec<_>>(), log_q)
        };
        let all: Vec<(Vec<i32>, Vec<f32>)> = detached(py, threads, || {
            Ok(queries.par_chunks_exact(self.vectors.cols()).enumerate().map(of_query).collect())
        })?;
        let (items, log_q): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let items = PyArray1::from_vec(py, items.concat()).reshape([rows, n])?;
        Ok((items, PyArray1::from_vec(py, log_q.concat()).reshape([rows, n])?))
    }

    /// ln Q of `items` (all where absent) for each query.
    #[pyo3(signature = (queries, items, threads))]
    fn log_q<'py>(
        &self,
        py: Python<'py>,
        queries: PyReadonlyArray2<'py, f32>,
        items: Option<PyReadonlyArray1<'py, i64>>,
        threads: usize,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let n_items = self.vectors.rows();
        let of: Vec<u32> = match items {
            Some(items) => checked(&items, n_items, "item")?,
            None => (0..n_items as u32).collect(),
        };
        let (rows, queries) = (queries.shape()[0], self.checked(&queries)?);
        let of_query = |query: &[f32]| {
            let mut scratch = Scratch::default();
            let mut log_q = vec![0.0; of.len()];
            self.proposal.prepare(query, self.items(), &mut scratch);
            self.proposal.log_q(&of, query, self.items(), &mut scratch, &mut log_q);
            log_q
        };
        let all: Vec<Vec<f32>> = detached(py, threads, || {
            Ok(queries.par_chunks_exact(self.vectors.cols()).map(of_query).collect())
        })?;
        PyArray1::from_vec(py, all.concat()).reshape([rows, of.len()])
    }
}

impl Proposal {
    fn items(&self) -> ItemTable<'_> {
        ItemTable { vectors: self.vectors.view(), bias: self.bias.as_deref() }
    }

    /// The queries, where they are as long as the item vectors.
    fn checked<'a>(&self, queries: &'a PyReadonlyArray2<'_, f32>) -> PyResult<&'a [f32]> {
        let (given, latent) = (queries.shape()[1], self.vectors.cols());
        if given != latent {
            return Err(PyValueError::new_err(format!(
                "queries of length {given} for item vectors of length {latent}"
            )));
        }
        Ok(queries.as_slice()?)
    }
}
