//! Outside identifiers: columns of them, and the maps that give them positions.

use std::collections::HashMap;
use std::sync::Arc;

use fastvae::data::IdMap;
use fastvae::internals::data::IdMapBuilder;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::errors::raised;

/// Stands for an identifier that a map does not know.
pub const UNKNOWN: u32 = u32::MAX;

/// A column of identifiers.
#[derive(FromPyObject)]
pub enum Column<'py> {
    /// Integers.
    Integers(PyReadonlyArray1<'py, i64>),
    /// Strings.
    Strings(Bound<'py, PyList>),
}

impl Column<'_> {
    /// Number of identifiers.
    pub fn len(&self) -> usize {
        match self {
            Self::Integers(integers) => integers.as_array().len(),
            Self::Strings(strings) => strings.len(),
        }
    }

    /// The positions of the column's identifiers in a map of their own: integers ascend, strings follow their first
    /// appearance and stay strings, even where they look like integers.
    pub fn interned(&self) -> PyResult<(Vec<u32>, IdMap)> {
        let mut positions = Vec::with_capacity(self.len());
        match self {
            Self::Integers(integers) => {
                let mut builder = IdMapBuilder::new();
                for &id in integers.as_array() {
                    positions.push(builder.intern_integer(id).map_err(raised)?);
                }
                let (map, moved) = builder.finish();
                if let Some(moved) = moved {
                    positions.iter_mut().for_each(|position| *position = moved[*position as usize]);
                }
                Ok((positions, map))
            }
            Self::Strings(strings) => {
                let mut known: HashMap<String, u32> = HashMap::new();
                let mut order = Vec::new();
                for (row, id) in strings.iter().enumerate() {
                    let id = text(&id, row)?.to_str()?.to_owned();
                    let next = known.len() as u32;
                    positions.push(*known.entry(id).or_insert_with_key(|id| {
                        order.push(id.clone());
                        next
                    }));
                }
                Ok((positions, IdMap::from_strings(order).map_err(raised)?))
            }
        }
    }

    /// The positions of the column's identifiers in `map`, [`UNKNOWN`] where it has none.
    pub fn positions(&self, map: &IdMap) -> PyResult<Vec<u32>> {
        match self {
            Self::Integers(integers) => Ok(integers
                .as_array()
                .iter()
                .map(|&id| map.position_of_integer(id).unwrap_or(UNKNOWN))
                .collect()),
            Self::Strings(strings) => {
                let position = |(row, id): (usize, Bound<'_, PyAny>)| {
                    Ok(map.position(text(&id, row)?.to_str()?).unwrap_or(UNKNOWN))
                };
                strings.iter().enumerate().map(position).collect()
            }
        }
    }
}

fn text<'a, 'py>(id: &'a Bound<'py, PyAny>, row: usize) -> PyResult<&'a Bound<'py, PyString>> {
    id.cast::<PyString>().map_err(|_| {
        PyValueError::new_err(format!(
            "row {row} has the identifier {id}, which is neither a string nor an integer; remove such rows"
        ))
    })
}

/// Outside identifiers (strings or integers) in the order of their positions.
#[pyclass(frozen, module = "fastvae_cf._fastvae")]
pub struct Ids {
    /// The map.
    pub map: Arc<IdMap>,
}

#[pymethods]
impl Ids {
    fn __len__(&self) -> usize {
        self.map.len()
    }

    fn __eq__(&self, other: &Self) -> bool {
        *self.map == *other.map
    }

    /// Whether the identifiers are 0, 1, 2 and so on.
    #[getter]
    fn is_range(&self) -> bool {
        self.map.is_range()
    }

    /// Whether they are integers.
    #[getter]
    fn is_integers(&self) -> bool {
        self.map.is_integers()
    }

    /// All identifiers: an array of int64, or a list of strings.
    fn names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let n = self.map.len() as u32;
        if let Some(integers) = self.map.integers() {
            return Ok(PyArray1::from_slice(py, integers).into_any());
        }
        if self.map.is_range() {
            return Ok(PyArray1::from_vec(py, (0..i64::from(n)).collect()).into_any());
        }
        Ok(PyList::new(py, (0..n).map(|position| self.map.name(position)))?.into_any())
    }

    /// The position of each identifier, -1 for unknown ones.
    fn positions<'py>(&self, py: Python<'py>, ids: Column<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let positions = ids.positions(&self.map)?;
        let signed = |position| if position == UNKNOWN { -1 } else { i64::from(position) };
        Ok(PyArray1::from_vec(py, positions.into_iter().map(signed).collect()))
    }
}

/// Positions as the library counts them, each below `below`.
pub fn checked(positions: &PyReadonlyArray1<'_, i64>, below: usize, what: &str) -> PyResult<Vec<u32>> {
    let check = |&position: &i64| match usize::try_from(position) {
        Ok(at) if at < below => Ok(at as u32),
        _ => Err(pyo3::exceptions::PyIndexError::new_err(format!(
            "{what} {position} is out of range; there are {below}"
        ))),
    };
    positions.as_array().iter().map(check).collect()
}
