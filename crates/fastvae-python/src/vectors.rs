//! [`Vectors`]: the nearest rows of a table by cosine, for similar users.

use fastvae::eval::Viewer;
use fastvae::internals::eval::{BlockScores, Scorer, rank};
use fastvae::internals::math::Matrix;
use fastvae::internals::proposal::ItemTable;
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::ids::checked;
use crate::model::{Filled, Lists};
use crate::threads::detached;

/// A table of vectors, kept at length 1.
#[pyclass(frozen, module = "fastvae_cf._fastvae")]
pub struct Vectors {
    table: Matrix,
}

#[pymethods]
impl Vectors {
    #[new]
    fn new(vectors: PyReadonlyArray2<'_, f32>) -> PyResult<Self> {
        let [rows, cols] = [vectors.shape()[0], vectors.shape()[1]];
        let mut table = Matrix::from_rows(rows, cols, vectors.as_slice()?);
        for row in 0..rows {
            let row = table.row_mut(row);
            let norm = row.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
            if norm > 0.0 {
                row.iter_mut().for_each(|value| *value = (f64::from(*value) / norm) as f32);
            }
        }
        Ok(Self { table })
    }

    fn __len__(&self) -> usize {
        self.table.rows()
    }

    /// The `n` rows nearest to each of `rows` by cosine, itself included.
    fn nearest<'py>(
        &self,
        py: Python<'py>,
        rows: PyReadonlyArray1<'py, i64>,
        n: usize,
        threads: usize,
    ) -> PyResult<Lists<'py>> {
        let rows = checked(&rows, self.table.rows(), "user")?;
        let shape = [rows.len(), n.min(self.table.rows())];
        let mut lists = Filled::new(shape);
        let viewer = |at: usize| Viewer { user: Some(rows[at]), ..Viewer::default() };
        detached(py, threads, || {
            rank(
                self,
                rows.len(),
                viewer,
                |_| [],
                shape[1],
                |best| best,
                |best| {
                    best.iter().for_each(|(at, best)| lists.put(at, best));
                    Ok(())
                },
            )
        })?;
        lists.into_arrays(py, shape)
    }
}

/// The rows are the catalogue, and a viewer is one of them.
impl Scorer for Vectors {
    fn n_items(&self) -> usize {
        self.table.rows()
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> fastvae::Result<BlockScores<'a>> {
        let mut queries = Matrix::zeros(viewers.len(), self.table.cols());
        for (at, viewer) in viewers.iter().enumerate() {
            let row = viewer.user.expect("nearest gives every viewer a row");
            queries.row_mut(at).copy_from_slice(self.table.row(row as usize));
        }
        Ok(BlockScores::products(queries, ItemTable { vectors: self.table.view(), bias: None }))
    }

    fn item_table(&self) -> Option<ItemTable<'_>> {
        Some(ItemTable { vectors: self.table.view(), bias: None })
    }
}
