//! [`Recommender`]: a trained model or baseline, asked with positions and answering with arrays.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastvae::Model;
use fastvae::baseline::{Baseline, is_baseline};
use fastvae::eval::{BlockScores, Evaluation, Scored, Viewer};
use fastvae::math::Matrix;
use fastvae::model::History;
use fastvae::recommend::{BatchOptions, Request, recommend_all};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::{PyAttributeError, PyValueError};
use pyo3::prelude::*;
use rayon::prelude::*;
use serde::Serialize;
use serde_json::Value;

use crate::errors::raised;
use crate::ids::{Ids, checked};
use crate::interactions::Interactions;
use crate::threads::detached;

/// Lists of equal length: items and scores, one row for each query.
pub type Lists<'py> = (Bound<'py, PyArray2<i32>>, Bound<'py, PyArray2<f32>>);

/// What was trained.
pub enum Trained {
    /// The variational autoencoder.
    Model(Box<Model>),
    /// One of the methods that it is compared with.
    Baseline(Box<Baseline>),
}

impl Trained {
    /// What both can be asked for.
    pub fn recommender(&self) -> &dyn fastvae::recommend::Recommender {
        match self {
            Self::Model(model) => model.as_ref(),
            Self::Baseline(baseline) => baseline.as_ref(),
        }
    }
}

/// A trained model or baseline. Users and items are positions.
#[pyclass(frozen, module = "fastvae._fastvae")]
pub struct Recommender {
    /// The library's own.
    pub trained: Trained,
}

#[pymethods]
impl Recommender {
    /// Maps the file at `path`.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let trained = py.detach(|| match is_baseline(&path)? {
            true => Baseline::load(&path).map(|baseline| Trained::Baseline(Box::new(baseline))),
            false => Model::load(&path).map(|model| Trained::Model(Box::new(model))),
        });
        Ok(Self { trained: trained.map_err(raised)? })
    }

    /// Writes the file at `path`, with the histories of the training users or without.
    fn save(&self, py: Python<'_>, path: PathBuf, users: bool) -> PyResult<()> {
        let recommender = self.trained.recommender();
        let path: &Path = &path;
        py.detach(|| match users {
            true => recommender.save(path),
            false => recommender.save_without_users(path),
        })
        .map_err(raised)
    }

    /// JSON: `kind`, `settings`, `epochs`, `statistics`, `evaluation`, `library_version`.
    fn description(&self) -> String {
        let json = match &self.trained {
            Trained::Model(model) => {
                let of = model.description();
                serde_json::to_string(&Described {
                    kind: "fastvae",
                    settings: &of.config,
                    epochs: &of.epochs,
                    statistics: &of.statistics,
                    evaluation: &of.evaluation,
                    library_version: &of.trained_by,
                })
            }
            Trained::Baseline(baseline) => {
                let of = baseline.description();
                serde_json::to_string(&Described {
                    kind: baseline.kind().name(),
                    settings: &of.settings,
                    epochs: &[],
                    statistics: &of.statistics,
                    evaluation: &of.evaluation,
                    library_version: &of.trained_by,
                })
            }
        };
        json.expect("plain structs always become JSON")
    }

    /// Number of items.
    #[getter]
    fn n_items(&self) -> usize {
        self.trained.recommender().n_items()
    }

    /// The outside names of the items.
    #[getter]
    fn item_ids(&self) -> Ids {
        Ids { map: Arc::clone(self.trained.recommender().item_ids()) }
    }

    /// The outside names of the users that the method has vectors for; None where it needs histories only.
    #[getter]
    fn vector_user_ids(&self) -> Option<Ids> {
        self.trained.recommender().user_ids().map(|map| Ids { map: Arc::clone(map) })
    }

    /// The histories of the training users, where it has them.
    #[getter]
    fn users(&self) -> Option<Interactions> {
        self.trained.recommender().users().map(|users| Interactions { rows: users.as_ref().clone() })
    }

    /// How many users touched each item in training.
    #[getter]
    fn item_counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        let counts = self.trained.recommender().item_counts();
        PyArray1::from_vec(py, counts.iter().map(|&count| i64::from(count)).collect())
    }

    /// The title of an item, where it has one.
    fn title(&self, item: u32) -> Option<&str> {
        let recommender = self.trained.recommender();
        recommender.title(item).filter(|_| (item as usize) < recommender.n_items())
    }

    /// Item vectors, `n_items x latent`.
    fn item_factors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let table = self.trained.recommender().item_table().ok_or_else(|| {
            PyAttributeError::new_err("this method has no item vectors; it has no item_factors")
        })?;
        let (rows, cols) = (table.vectors.rows(), table.vectors.cols());
        let values = (0..rows).flat_map(|row| &table.vectors.row(row)[..cols]).copied().collect();
        PyArray1::from_vec(py, values).reshape([rows, cols])
    }

    /// Item biases, where the method has them.
    fn item_biases<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f32>>> {
        let bias = self.trained.recommender().item_table()?.bias?;
        Some(PyArray1::from_slice(py, bias))
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
        let viewers = Viewers::new(self, histories, &rows, &users)?;
        let matrix = detached(py, threads, || self.queries(&viewers))??;
        let (n, cols) = (matrix.rows(), matrix.cols());
        let values = (0..n).flat_map(|row| &matrix.row(row)[..cols]).copied().collect();
        PyArray1::from_vec(py, values).reshape([n, cols])
    }

    /// The best items for some rows of `histories`; -1 and the smallest number where fewer than `n` are allowed.
    #[pyo3(signature = (histories, rows, users, n, exclude, only, keep_seen, threads))]
    #[expect(clippy::too_many_arguments, reason = "the options of a request, all given by one caller")]
    fn recommend<'py>(
        &self,
        py: Python<'py>,
        histories: &Interactions,
        rows: PyReadonlyArray1<'py, i64>,
        users: PyReadonlyArray1<'py, i64>,
        n: usize,
        exclude: PyReadonlyArray1<'py, i64>,
        only: Option<PyReadonlyArray1<'py, i64>>,
        keep_seen: bool,
        threads: usize,
    ) -> PyResult<Lists<'py>> {
        let recommender = self.trained.recommender();
        let n_items = recommender.n_items();
        let viewers = Viewers::new(self, histories, &rows, &users)?;
        let exclude = checked(&exclude, n_items, "item")?;
        let only = only.map(|only| checked(&only, n_items, "item")).transpose()?;
        let only = only.as_deref();
        let n = n.min(only.map_or(n_items, <[u32]>::len));
        let (ids, scores) = detached(py, threads, || {
            let mut lists = Filled::new(viewers.len(), n);
            if viewers.len() == 1 {
                let Viewer { history, user } = viewers.at(0);
                let request = Request { history, user, n, exclude: &exclude, only, keep_seen };
                lists.put(0, &recommender.recommend(&request)?);
            } else {
                let options = BatchOptions { n, exclude: &exclude, only, keep_seen };
                recommend_all(
                    recommender,
                    viewers.len(),
                    |at| viewers.at(at),
                    &options,
                    |at, best| {
                        lists.put(at, best);
                        Ok(())
                    },
                )?;
            }
            Ok((lists.ids, lists.scores))
        })?
        .map_err(raised)?;
        let shape = [viewers.len(), n];
        Ok((PyArray1::from_vec(py, ids).reshape(shape)?, PyArray1::from_vec(py, scores).reshape(shape)?))
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
        let recommender = self.trained.recommender();
        let n_items = recommender.n_items();
        let items = checked(&items, n_items, "item")?;
        let mut allowed = vec![only.is_none(); n_items];
        if let Some(only) = only {
            checked(&only, n_items, "item")?.into_iter().for_each(|item| allowed[item as usize] = true);
        }
        checked(&exclude, n_items, "item")?.into_iter().for_each(|item| allowed[item as usize] = false);
        let n_allowed = allowed.iter().filter(|&&allowed| allowed).count();
        let n = n.min(n_allowed);
        let (ids, scores) = detached(py, threads, || {
            let list = |&item: &u32| {
                // What is not allowed may stand before what is: as many more are asked for.
                let near = recommender.similar(item, n.saturating_add(n_items - n_allowed))?;
                // The cosine of an item with itself is 1; where likeness is no cosine it is not below any other.
                let own = near.first().map_or(1.0, |best| best.score.max(1.0));
                let mut list = vec![Scored { item, score: own }];
                list.extend(near);
                list.retain(|scored| allowed[scored.item as usize]);
                list.truncate(n);
                Ok(list)
            };
            let all: Vec<fastvae::Result<Vec<Scored>>> = items.par_iter().map(list).collect();
            let mut lists = Filled::new(items.len(), n);
            for (row, list) in all.into_iter().enumerate() {
                lists.put(row, &list?);
            }
            Ok((lists.ids, lists.scores))
        })?
        .map_err(raised)?;
        let shape = [items.len(), n];
        Ok((PyArray1::from_vec(py, ids).reshape(shape)?, PyArray1::from_vec(py, scores).reshape(shape)?))
    }

    /// For one row of `histories` and an item: items of the history, what each adds to the score, and its share.
    fn explain(
        &self,
        py: Python<'_>,
        histories: &Interactions,
        row: usize,
        item: u32,
        n: usize,
        threads: usize,
    ) -> PyResult<Vec<(u32, f32, f32)>> {
        let Trained::Model(model) = &self.trained else {
            return Err(PyValueError::new_err("baselines do not explain; use a FastVAE model"));
        };
        let history: History<'_> = histories.rows.row(row).into();
        let reasons = detached(py, threads, || model.explain(history, &[item], n))?.map_err(raised)?;
        Ok(reasons
            .into_iter()
            .flatten()
            .map(|reason| (reason.item, reason.contribution, reason.share))
            .collect())
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.trained.recommender())
    }
}

/// What is told about a model. Not a JSON value made by hand: that would write an f32 with the digits of an f64.
#[derive(Serialize)]
struct Described<'a, S> {
    kind: &'a str,
    settings: &'a S,
    epochs: &'a [Value],
    statistics: &'a Option<Value>,
    evaluation: &'a Option<Evaluation>,
    library_version: &'a str,
}

impl Recommender {
    /// The queries of `viewers`, on the current threads.
    fn queries(&self, viewers: &Viewers<'_>) -> PyResult<Matrix> {
        let all: Vec<Viewer<'_>> = (0..viewers.len()).map(|at| viewers.at(at)).collect();
        match self.trained.recommender().block(&all).map_err(raised)? {
            BlockScores::Vectors { queries, .. } => Ok(queries),
            BlockScores::Rows(_) => {
                Err(PyAttributeError::new_err("this method has no user vectors; it has no user_factors"))
            }
        }
    }
}

/// Who is asked about: some rows of a matrix, each with the user's position where the method has user vectors.
struct Viewers<'a> {
    histories: &'a fastvae::data::Interactions,
    rows: Vec<u32>,
    users: Vec<Option<u32>>,
}

impl<'a> Viewers<'a> {
    fn new(
        of: &Recommender,
        histories: &'a Interactions,
        rows: &PyReadonlyArray1<'_, i64>,
        users: &PyReadonlyArray1<'_, i64>,
    ) -> PyResult<Self> {
        let rows = checked(rows, histories.rows.n_users(), "user")?;
        let n_known = of.trained.recommender().user_ids().map_or(0, |ids| ids.len());
        // -1 stands for nobody that the method knows.
        let known =
            |&user: &i64| usize::try_from(user).ok().filter(|&user| user < n_known).map(|user| user as u32);
        let users: Vec<Option<u32>> = users.as_array().iter().map(known).collect();
        if users.len() != rows.len() {
            return Err(PyValueError::new_err(format!("{} users for {} histories", users.len(), rows.len())));
        }
        Ok(Self { histories: &histories.rows, rows, users })
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn at(&self, place: usize) -> Viewer<'a> {
        let history = self.histories.row(self.rows[place] as usize).into();
        Viewer { history, user: self.users[place] }
    }
}

/// Lists that become arrays; implicit's values stand where a list is short.
pub struct Filled {
    n: usize,
    /// Items, row after row.
    pub ids: Vec<i32>,
    /// Their scores.
    pub scores: Vec<f32>,
}

impl Filled {
    /// `rows` empty lists of room for `n`.
    pub fn new(rows: usize, n: usize) -> Self {
        Self { n, ids: vec![-1; rows * n], scores: vec![f32::MIN; rows * n] }
    }

    /// Fills row `row`.
    pub fn put(&mut self, row: usize, list: &[Scored]) {
        for (at, scored) in (row * self.n..).zip(list) {
            self.ids[at] = scored.item as i32;
            self.scores[at] = scored.score;
        }
    }
}
