//! Measures of rankings.

use fastvae::eval::Metric;
use fastvae::internals::eval::PairedDifference;
use fastvae::internals::eval::evaluate_users as values_of_users;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::raised;
use crate::interactions::Interactions;
use crate::model::Model;
use crate::threads::detached;

/// Name, mean and standard error of each metric over the users with test items, and their number.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "what Python makes a dict of")]
pub fn evaluate(
    py: Python<'_>,
    model: &Model,
    histories: &Interactions,
    test: &Interactions,
    metrics: Vec<String>,
    threads: usize,
) -> PyResult<(usize, Vec<(String, f64, Option<f64>)>)> {
    let metrics = metrics.iter().map(|name| name.parse()).collect::<fastvae::Result<Vec<Metric>>>();
    let metrics = metrics.map_err(raised)?;
    let evaluation = detached(py, threads, || model.model.evaluate(&histories.rows, &test.rows, &metrics))?;
    let estimate = |metric: &Metric| {
        let estimate = evaluation.metrics[metric];
        (metric.to_string(), estimate.mean, estimate.standard_error)
    };
    Ok((evaluation.n_users, metrics.iter().map(estimate).collect()))
}

/// Users with test items, and each one's value of the metric.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "two arrays")]
pub fn evaluate_users<'py>(
    py: Python<'py>,
    model: &Model,
    histories: &Interactions,
    test: &Interactions,
    metric: &str,
    threads: usize,
) -> PyResult<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f64>>)> {
    let metric: Metric = metric.parse().map_err(raised)?;
    let values =
        detached(py, threads, || values_of_users(&model.model, &histories.rows, &test.rows, metric))?;
    let (users, values) = values.into_iter().map(|(user, value)| (i64::from(user), value)).unzip();
    Ok((PyArray1::from_vec(py, users), PyArray1::from_vec(py, values)))
}

/// Mean of first less second, its standard error, and the two-sided p-value.
#[pyfunction]
pub fn paired_difference(
    first: PyReadonlyArray1<'_, f64>,
    second: PyReadonlyArray1<'_, f64>,
) -> PyResult<(f64, f64, f64)> {
    let (first, second) = (first.as_slice()?, second.as_slice()?);
    if first.len() != second.len() {
        return Err(PyValueError::new_err(format!(
            "{} values against {}; give values of the same users",
            first.len(),
            second.len()
        )));
    }
    let difference = PairedDifference::of(first, second);
    Ok((difference.mean, difference.standard_error, difference.p_value))
}
