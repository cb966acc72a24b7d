//! [`Model`]: a trained model of any method, asked with positions and answering with arrays.

use std::path::PathBuf;
use std::sync::Arc;

use fastvae::eval::{Scored, Viewer};
use fastvae::internals::eval::Scorer;
use fastvae::recommend::{Knobs, ListOptions, Question};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::{PyAttributeError, PyValueError};
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::errors::raised;
use crate::ids::{Ids, checked};
use crate::interactions::Interactions;
use crate::threads::detached;

/// Lists of equal length: items and scores, one row for each query.
pub type Lists<'py> = (Bound<'py, PyArray2<i32>>, Bound<'py, PyArray2<f32>>);

/// For each item of a list the items of the history that speak for it, with what each adds and its share.
type Reasons = Vec<Vec<(u32, f32, f32)>>;

/// Lists; and for each what stands in for a taste, whether only some cells were looked at, and the reasons.
type Answers<'py> = (
    Bound<'py, PyArray2<i32>>,
    Bound<'py, PyArray2<f32>>,
    Vec<Option<&'static str>>,
    Vec<bool>,
    Vec<Reasons>,
);

/// What a list is asked for with: a dict of the Python side.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Wanted<'py> {
    n: usize,
    exclude: PyReadonlyArray1<'py, i64>,
    only: Option<PyReadonlyArray1<'py, i64>>,
    keep_seen: bool,
    popularity_penalty: f32,
    diversity: f32,
    temperature: f32,
    seed: u64,
    approximate: bool,
    reasons: usize,
}

impl Wanted<'_> {
    fn options(&self, n_items: usize) -> PyResult<ListOptions> {
        let mut options = ListOptions::best(self.n);
        options.exclude = checked(&self.exclude, n_items, "item")?;
        options.only = self.only.as_ref().map(|only| checked(only, n_items, "item")).transpose()?;
        options.n = self.n.min(options.only.as_ref().map_or(n_items, Vec::len));
        options.keep_seen = self.keep_seen;
        options.approximate = self.approximate;
        options.reasons = self.reasons;
        let &Self { popularity_penalty, diversity, temperature, seed, .. } = self;
        options.knobs = Knobs { popularity_penalty, diversity, temperature, seed };
        Ok(options)
    }
}

/// A trained model. Users and items are positions.
#[pyclass(frozen, module = "fastvae_cf._fastvae")]
pub struct Model {
    /// The library's own.
    pub model: fastvae::Model,
}

#[pymethods]
impl Model {
    /// Maps the file at `path`.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Ok(Self { model: py.detach(|| fastvae::Model::load(path)).map_err(raised)? })
    }

    /// Writes the file at `path`, with the histories of the training users or without.
    fn save(&self, py: Python<'_>, path: PathBuf, users: bool) -> PyResult<()> {
        py.detach(|| match users {
            true => self.model.save(path),
            false => self.model.save_without_users(path),
        })
        .map_err(raised)
    }

    /// The library's description, in JSON.
    fn description(&self) -> String {
        // Not by way of a JSON value: that would write an f32 with the digits of an f64.
        serde_json::to_string(self.model.description()).expect("plain structs always become JSON")
    }

    /// Number of items.
    #[getter]
    fn n_items(&self) -> usize {
        self.model.n_items()
    }

    /// The outside names of the items.
    #[getter]
    fn item_ids(&self) -> Ids {
        Ids { map: Arc::clone(self.model.item_ids()) }
    }

    /// The outside names of the users that the method has vectors for; None where it needs histories only.
    #[getter]
    fn vector_user_ids(&self) -> Option<Ids> {
        self.model.user_ids().map(|map| Ids { map: Arc::clone(map) })
    }

    /// The histories of the training users, where it has them.
    #[getter]
    fn users(&self) -> Option<Interactions> {
        self.model.users().map(|users| Interactions { rows: users.as_ref().clone() })
    }

    /// How many users touched each item in training.
    #[getter]
    fn item_counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_vec(py, self.model.item_counts().iter().map(|&count| i64::from(count)).collect())
    }

    /// The title of each item, None for items without; None where there are no titles.
    fn titles(&self) -> Option<Vec<Option<&str>>> {
        let titles = self.model.titles()?;
        Some((0..self.model.n_items() as u32).map(|item| titles.get(item)).collect())
    }

    /// Item vectors, `n_items x latent`.
    fn item_factors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let table = self.model.item_table().ok_or_else(|| {
            PyAttributeError::new_err("this method has no item vectors; it has no item_factors")
        })?;
        let (rows, cols) = (table.vectors.rows(), table.vectors.cols());
        let values = (0..rows).flat_map(|row| &table.vectors.row(row)[..cols]).copied().collect();
        PyArray1::from_vec(py, values).reshape([rows, cols])
    }

    /// Item biases, where the method has them.
    fn item_biases<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f32>>> {
        Some(PyArray1::from_slice(py, self.model.item_table()?.bias?))
    }

    /// The queries of some rows of `histories`: vectors whose inner products with item vectors are scores.
    fn user_factors<'py>(
        &self,
        py: Python<'py>,
        histories: &Interactions,
        rows: PyReadonlyArray1<'py, i64>,
        users: PyReadonlyArray1<'py, i64>,
        threads: usize,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let viewers = self.viewers(histories, &rows, &users)?;
        let scores = detached(py, threads, || self.model.block(&viewers))?;
        let (queries, _) = scores.products.as_ref().ok_or_else(|| {
            PyAttributeError::new_err("this method has no user vectors; it has no user_factors")
        })?;
        let (n, cols) = (queries.rows(), queries.cols());
        let values = (0..n).flat_map(|row| &queries.row(row)[..cols]).copied().collect();
        PyArray1::from_vec(py, values).reshape([n, cols])
    }

    /// The best items for some rows of `histories`; -1 and the smallest number where fewer than `n` are allowed.
    fn answer<'py>(
        &self,
        py: Python<'py>,
        histories: &Interactions,
        rows: PyReadonlyArray1<'py, i64>,
        users: PyReadonlyArray1<'py, i64>,
        wanted: Wanted<'py>,
        threads: usize,
    ) -> PyResult<Answers<'py>> {
        let viewers = self.viewers(histories, &rows, &users)?;
        let list = wanted.options(self.model.n_items())?;
        let shape = [viewers.len(), list.n];
        let mut lists = Filled::new(shape);
        let (mut fallbacks, mut approximate, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
        detached(py, threads, || {
            let mut put = |at, answer: fastvae::recommend::Answer| {
                lists.put(at, &answer.items);
                fallbacks.push(answer.fallback.map(|fallback| fallback.name()));
                approximate.push(answer.is_approximate);
                let of_item = |reasons: &Vec<fastvae::recommend::Reason>| {
                    reasons.iter().map(|reason| (reason.item, reason.contribution, reason.share)).collect()
                };
                reasons.push(answer.reasons.iter().map(of_item).collect());
                Ok(())
            };
            match viewers[..] {
                // The threads divide the items of one list, and the lists of many.
                [viewer] => {
                    let question = Question::for_viewer(viewer).with(list);
                    self.model.answer(&[question]).into_iter().try_for_each(|answer| put(0, answer?))
                }
                _ => self.model.recommend_all(viewers.len(), |at| viewers[at], &list, put),
            }
        })?;
        let (ids, scores) = lists.into_arrays(py, shape)?;
        Ok((ids, scores, fallbacks, approximate, reasons))
    }

    /// The items most like each of `items`, itself first.
    #[pyo3(signature = (items, n, exclude, only, threads))]
    fn similar_items<'py>(
        &self,
        py: Python<'py>,
        items: PyReadonlyArray1<'py, i64>,
        n: usize,
        exclude: PyReadonlyArray1<'py, i64>,
        only: Option<PyReadonlyArray1<'py, i64>>,
        threads: usize,
    ) -> PyResult<Lists<'py>> {
        let n_items = self.model.n_items();
        let items = checked(&items, n_items, "item")?;
        let mut allowed = vec![only.is_none(); n_items];
        if let Some(only) = only {
            checked(&only, n_items, "item")?.into_iter().for_each(|item| allowed[item as usize] = true);
        }
        checked(&exclude, n_items, "item")?.into_iter().for_each(|item| allowed[item as usize] = false);
        let n_allowed = allowed.iter().filter(|&&allowed| allowed).count();
        let shape = [items.len(), n.min(n_allowed)];
        let list = |&item: &u32| {
            // What is not allowed may stand before what is: as many more are asked for.
            let near = self.model.similar(item, n.saturating_add(n_items - n_allowed))?;
            // The cosine of an item with itself is 1; where likeness is no cosine it is not below any other.
            let own = near.first().map_or(1.0, |best| best.score.max(1.0));
            let mut list = vec![Scored { item, score: own }];
            list.extend(near);
            list.retain(|scored| allowed[scored.item as usize]);
            list.truncate(shape[1]);
            Ok(list)
        };
        let all = detached(py, threads, || items.par_iter().map(list).collect::<fastvae::Result<Vec<_>>>())?;
        let mut lists = Filled::new(shape);
        all.iter().enumerate().for_each(|(row, list)| lists.put(row, list));
        lists.into_arrays(py, shape)
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.model)
    }
}

impl Model {
    /// Some rows of `histories`, each with the user's position where the method has user vectors; -1 stands for nobody
    /// that it knows.
    fn viewers<'a>(
        &self,
        histories: &'a Interactions,
        rows: &PyReadonlyArray1<'_, i64>,
        users: &PyReadonlyArray1<'_, i64>,
    ) -> PyResult<Vec<Viewer<'a>>> {
        let rows = checked(rows, histories.rows.n_users(), "user")?;
        let users = users.as_array();
        if users.len() != rows.len() {
            return Err(PyValueError::new_err(format!("{} users for {} histories", users.len(), rows.len())));
        }
        let n_known = self.model.user_ids().map_or(0, |ids| ids.len());
        let known = |user: i64| u32::try_from(user).ok().filter(|&user| (user as usize) < n_known);
        let viewer = |(&row, &user): (&u32, &i64)| Viewer {
            history: histories.rows.row(row as usize).into(),
            user: known(user),
        };
        Ok(rows.iter().zip(users).map(viewer).collect())
    }
}

/// Lists that become arrays; implicit's values stand where a list is short.
pub struct Filled {
    n: usize,
    ids: Vec<i32>,
    scores: Vec<f32>,
}

impl Filled {
    /// Empty lists, each with room for as many.
    pub fn new([rows, n]: [usize; 2]) -> Self {
        Self { n, ids: vec![-1; rows * n], scores: vec![f32::MIN; rows * n] }
    }

    /// Fills row `row`.
    pub fn put(&mut self, row: usize, list: &[Scored]) {
        for (at, scored) in (row * self.n..).zip(list) {
            self.ids[at] = scored.item as i32;
            self.scores[at] = scored.score;
        }
    }

    /// The arrays.
    pub fn into_arrays(self, py: Python<'_>, shape: [usize; 2]) -> PyResult<Lists<'_>> {
        let ids = PyArray1::from_vec(py, self.ids).reshape(shape)?;
        Ok((ids, PyArray1::from_vec(py, self.scores).reshape(shape)?))
    }
}
