//! [`Interactions`]: the library's sparse matrix, from SciPy's, from columns and from files.

use std::path::PathBuf;
use std::sync::Arc;

use fastvae::data::{self, GenerateOptions, IdMap, InteractionsBuilder, ReadOptions, Split, generate};
use fastvae::internals::data::{k_core, read_aligned, read_with_items};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::raised;
use crate::ids::{Column, Ids, UNKNOWN};
use crate::threads::detached;

/// An array of indices as SciPy keeps them.
#[derive(FromPyObject)]
pub enum Indices<'py> {
    /// Below 2^31 entries.
    Short(PyReadonlyArray1<'py, i32>),
    /// More.
    Long(PyReadonlyArray1<'py, i64>),
}

impl Indices<'_> {
    fn as_slice(&self) -> PyResult<IndexSlice<'_>> {
        Ok(match self {
            Self::Short(array) => IndexSlice::Short(array.as_slice()?),
            Self::Long(array) => IndexSlice::Long(array.as_slice()?),
        })
    }
}

#[derive(Clone, Copy)]
enum IndexSlice<'a> {
    Short(&'a [i32]),
    Long(&'a [i64]),
}

impl IndexSlice<'_> {
    fn len(self) -> usize {
        match self {
            Self::Short(values) => values.len(),
            Self::Long(values) => values.len(),
        }
    }

    #[inline(always)]
    fn at(self, place: usize) -> i64 {
        match self {
            Self::Short(values) => i64::from(values[place]),
            Self::Long(values) => values[place],
        }
    }
}

/// Who touched what: users x items with optional weights and timestamps.
///
/// `fastvae_cf.read` and `fastvae_cf.split` give it; every function that takes a sparse matrix takes it too.
#[pyclass(frozen, module = "fastvae_cf")]
pub struct Interactions {
    /// The library's own.
    pub rows: data::Interactions,
}

#[pymethods]
impl Interactions {
    /// From compressed sparse rows; copies what it keeps once.
    #[staticmethod]
    #[pyo3(signature = (indptr, indices, weights, n_items, user_ids=None, item_ids=None))]
    fn from_csr(
        indptr: Indices<'_>,
        indices: Indices<'_>,
        weights: Option<PyReadonlyArray1<'_, f32>>,
        n_items: usize,
        user_ids: Option<&Ids>,
        item_ids: Option<&Ids>,
    ) -> PyResult<Self> {
        let n_users = indptr.as_slice()?.len().saturating_sub(1);
        let user_ids = named("users", n_users, user_ids)?;
        let item_ids = named("items", n_items, item_ids)?;
        let weights = weights.as_ref().map(|weights| weights.as_slice()).transpose()?;
        let rows = from_csr(indptr.as_slice()?, indices.as_slice()?, weights, user_ids, item_ids)?;
        Ok(Self { rows })
    }

    /// From columns; the number of rows that `user_ids` and `item_ids` do not know comes along.
    #[staticmethod]
    #[pyo3(signature = (users, items, weights=None, timestamps=None, user_ids=None, item_ids=None))]
    fn from_columns(
        users: Column<'_>,
        items: Column<'_>,
        weights: Option<PyReadonlyArray1<'_, f32>>,
        timestamps: Option<PyReadonlyArray1<'_, i64>>,
        user_ids: Option<&Ids>,
        item_ids: Option<&Ids>,
    ) -> PyResult<(Self, usize)> {
        let weights = weights.as_ref().map(|weights| weights.as_slice()).transpose()?;
        let timestamps = timestamps.as_ref().map(|times| times.as_slice()).transpose()?;
        let n = users.len();
        for (what, length) in [
            ("items", items.len()),
            ("weights", weights.map_or(n, <[f32]>::len)),
            ("timestamps", timestamps.map_or(n, <[i64]>::len)),
        ] {
            if length != n {
                return Err(PyValueError::new_err(format!(
                    "there are {n} users and {length} {what}; give columns of one length"
                )));
            }
        }
        let resolve = |column: &Column<'_>, known: Option<&Ids>| match known {
            Some(known) => Ok((column.positions(&known.map)?, Arc::clone(&known.map))),
            None => column.interned().map(|(positions, map)| (positions, Arc::new(map))),
        };
        let (users, user_ids) = resolve(&users, user_ids)?;
        let (items, item_ids) = resolve(&items, item_ids)?;
        let mut builder = InteractionsBuilder::new();
        let mut skipped = 0;
        for row in 0..n {
            if users[row] == UNKNOWN || items[row] == UNKNOWN {
                skipped += 1;
                continue;
            }
            let weight = weights.map(|weights| weights[row]);
            if keeps(weight, row)? {
                builder.push(users[row], items[row], weight, timestamps.map(|times| times[row]));
            }
        }
        let (rows, _) = builder.build(user_ids, item_ids).map_err(raised)?;
        Ok((Self { rows }, skipped))
    }

    /// From a file; against `item_ids`, or against these and `user_ids`, where they are given.
    #[staticmethod]
    #[pyo3(signature = (path, *, format=None, user_col=None, item_col=None, rating_col=None, weight_col=None,
        timestamp_col=None, min_rating=None, binarize=false, k_core=None, user_ids=None, item_ids=None))]
    #[expect(clippy::too_many_arguments, reason = "the options of a reader, by name")]
    fn read(
        py: Python<'_>,
        path: PathBuf,
        format: Option<&str>,
        user_col: Option<&str>,
        item_col: Option<&str>,
        rating_col: Option<&str>,
        weight_col: Option<&str>,
        timestamp_col: Option<&str>,
        min_rating: Option<f32>,
        binarize: bool,
        k_core: Option<usize>,
        user_ids: Option<&Ids>,
        item_ids: Option<&Ids>,
    ) -> PyResult<Self> {
        let column =
            |name: Option<&str>| name.map(|name| name.parse().unwrap_or_else(|never| match never {}));
        let options = ReadOptions {
            format: format.map(str::parse).transpose().map_err(raised)?,
            user: column(user_col),
            item: column(item_col),
            rating: column(rating_col),
            weight: column(weight_col),
            timestamp: column(timestamp_col),
            min_rating,
            binarize,
            k_core,
            ..ReadOptions::default()
        };
        let users = user_ids.map(|ids| Arc::clone(&ids.map));
        let items = item_ids.map(|ids| Arc::clone(&ids.map));
        let rows = detached(py, 0, || match (users, items) {
            (Some(users), Some(items)) => read_aligned(path, &options, &users, &items).map(|(rows, _)| rows),
            (None, Some(items)) => read_with_items(path, &options, &items).map(|(rows, _)| rows),
            _ => data::read(path, &options),
        })?;
        Ok(Self { rows })
    }

    /// Synthetic interactions with tastes that a model can find.
    #[staticmethod]
    fn generate(
        py: Python<'_>,
        users: usize,
        items: usize,
        interactions: usize,
        genres: usize,
        seed: u64,
    ) -> PyResult<Self> {
        let options =
            GenerateOptions { users, items, interactions, genres, seed, ..GenerateOptions::default() };
        Ok(Self { rows: detached(py, 0, || generate(options))? })
    }

    /// Number of users, those without interactions included.
    #[getter]
    fn n_users(&self) -> usize {
        self.rows.n_users()
    }

    /// Number of items, those without interactions included.
    #[getter]
    fn n_items(&self) -> usize {
        self.rows.n_items()
    }

    /// Number of interactions.
    #[getter]
    fn nnz(&self) -> usize {
        self.rows.n_interactions()
    }

    /// (users, items).
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.rows.n_users(), self.rows.n_items())
    }

    /// The outside names of the users.
    #[getter]
    fn user_ids(&self) -> Ids {
        Ids { map: Arc::clone(self.rows.user_ids()) }
    }

    /// The outside names of the items.
    #[getter]
    fn item_ids(&self) -> Ids {
        Ids { map: Arc::clone(self.rows.item_ids()) }
    }

    /// Seconds since 1970 of each interaction, where they are known.
    #[getter]
    fn timestamps<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<i64>>> {
        self.rows.timestamps().map(|times| PyArray1::from_slice(py, times))
    }

    /// The arrays of a SciPy CSR matrix: indptr, indices, and data where not every weight is 1.
    #[expect(clippy::type_complexity, reason = "three arrays")]
    fn csr_arrays<'py>(
        &self,
        py: Python<'py>,
    ) -> (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i32>>, Option<Bound<'py, PyArray1<f32>>>) {
        let indptr = self.rows.offsets().iter().map(|&offset| offset as i64).collect();
        let indices = self.rows.items().iter().map(|&item| item as i32).collect();
        let weights = self.rows.weights().map(|weights| PyArray1::from_slice(py, weights));
        (PyArray1::from_vec(py, indptr), PyArray1::from_vec(py, indices), weights)
    }

    /// A SciPy CSR matrix with float32 values.
    fn to_csr<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (indptr, indices, weights) = self.csr_arrays(py);
        let values = weights.unwrap_or_else(|| PyArray1::from_vec(py, vec![1.0; self.rows.n_interactions()]));
        let shape = (self.rows.n_users(), self.rows.n_items());
        py.import("scipy.sparse")?.call_method1("csr_matrix", ((values, indices, indptr), shape))
    }

    /// Train, test, and for a split by users the history of the test users.
    fn split(&self, py: Python<'_>, by: &str, seed: u64) -> PyResult<(Self, Self, Option<Self>)> {
        let split: Split = by.parse().map_err(raised)?;
        let parts = detached(py, 0, || split.apply(&self.rows, seed))?;
        let own = |rows| Self { rows };
        Ok((own(parts.train), own(parts.test), parts.history.map(own)))
    }

    /// What is trained on and tested in fold `fold` of `n_folds`.
    fn fold(&self, py: Python<'_>, n_folds: usize, fold: usize, seed: u64) -> PyResult<(Self, Self)> {
        let (train, test) =
            detached(py, 0, || fastvae::internals::data::fold(&self.rows, n_folds, fold, seed))?;
        Ok((Self { rows: train }, Self { rows: test }))
    }

    /// Only users and items with at least `k` interactions among each other.
    fn k_core(&self, py: Python<'_>, k: usize) -> PyResult<Self> {
        Ok(Self { rows: detached(py, 0, || k_core(&self.rows, k))? })
    }

    fn __repr__(&self) -> String {
        let rows = &self.rows;
        format!(
            "<Interactions: {} users x {} items, {} interactions>",
            rows.n_users(),
            rows.n_items(),
            rows.n_interactions()
        )
    }
}

/// The identifiers `0..n`, or those given where there are as many.
fn named(what: &str, n: usize, ids: Option<&Ids>) -> PyResult<Arc<IdMap>> {
    match ids {
        None => Ok(Arc::new(IdMap::range(n))),
        Some(ids) if ids.map.len() == n => Ok(Arc::clone(&ids.map)),
        Some(ids) => Err(PyValueError::new_err(format!(
            "the matrix has {n} {what}, not the {} that are known; give a matrix of the same {what}",
            ids.map.len()
        ))),
    }
}

/// Whether an interaction of this weight counts: as in files, what is not positive is no interaction.
fn keeps(weight: Option<f32>, row: usize) -> PyResult<bool> {
    match weight {
        Some(weight) if !weight.is_finite() => {
            Err(PyValueError::new_err(format!("value {row} is {weight}; give finite weights")))
        }
        Some(weight) => Ok(weight > 0.0),
        None => Ok(true),
    }
}

fn from_csr(
    indptr: IndexSlice<'_>,
    indices: IndexSlice<'_>,
    weights: Option<&[f32]>,
    user_ids: Arc<IdMap>,
    item_ids: Arc<IdMap>,
) -> PyResult<data::Interactions> {
    let broken = |problem: String| PyValueError::new_err(format!("the matrix is damaged: {problem}"));
    let n = indices.len();
    if weights.is_some_and(|weights| weights.len() < n) {
        return Err(broken(format!("{} values for {n} indices", weights.map_or(0, <[f32]>::len))));
    }
    let mut offsets = Vec::with_capacity(indptr.len());
    for row in 0..indptr.len() {
        match usize::try_from(indptr.at(row)) {
            Ok(offset) if offset <= n && offsets.last().is_none_or(|&last| last <= offset) => {
                offsets.push(offset)
            }
            _ => return Err(broken(format!("row {row} starts at {}", indptr.at(row)))),
        }
    }
    let (Some(&0), Some(&end)) = (offsets.first(), offsets.last()) else {
        return Err(broken("the first row does not start at 0".to_string()));
    };
    let n_items = item_ids.len();
    let mut items = Vec::with_capacity(end);
    for place in 0..end {
        match usize::try_from(indices.at(place)) {
            Ok(item) if item < n_items => items.push(item as u32),
            _ => {
                let item = indices.at(place);
                return Err(PyValueError::new_err(format!("column {item} is not below {n_items}")));
            }
        }
    }
    let weights = weights.map(|weights| &weights[..end]).filter(|weights| weights.iter().any(|&w| w != 1.0));
    let sorted =
        offsets.windows(2).all(|span| items[span[0]..span[1]].windows(2).all(|pair| pair[0] < pair[1]));
    let positive = weights.is_none_or(|weights| weights.iter().all(|&w| w.is_finite() && w > 0.0));
    if sorted && positive {
        let weights = weights.map(<[f32]>::to_vec);
        return data::Interactions::from_parts(offsets, items, weights, None, user_ids, item_ids)
            .map_err(raised);
    }
    // Unsorted, repeated or zero entries: SciPy allows them all.
    let mut builder = InteractionsBuilder::new();
    for (user, span) in offsets.windows(2).enumerate() {
        for place in span[0]..span[1] {
            let weight = weights.map(|weights| weights[place]);
            if keeps(weight, place)? {
                builder.push(user as u32, items[place], Some(weight.unwrap_or(1.0)), None);
            }
        }
    }
    Ok(builder.build(user_ids, item_ids).map_err(raised)?.0)
}
