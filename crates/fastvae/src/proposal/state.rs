//! What a proposal leaves in a checkpoint: named tensors, checked when they come back.

use crate::error::{Error, Result};
use crate::math::Matrix;

/// The values of a [`StateTensor`], row-major.
#[derive(Debug, Clone, PartialEq)]
pub enum StateData {
    /// Bytes.
    U8(Vec<u8>),
    /// Unsigned integers.
    U32(Vec<u32>),
    /// Numbers.
    F32(Vec<f32>),
}

/// What a proposal keeps between refreshes, by name.
pub type State = Vec<(String, StateTensor)>;

/// A tensor of a proposal's state.
#[derive(Debug, Clone, PartialEq)]
pub struct StateTensor {
    /// Length of each dimension.
    pub shape: Vec<usize>,
    /// The values.
    pub data: StateData,
}

impl StateTensor {
    /// A tensor of bytes.
    pub fn u8(shape: impl Into<Vec<usize>>, data: Vec<u8>) -> Self {
        Self { shape: shape.into(), data: StateData::U8(data) }
    }

    /// A tensor of unsigned integers.
    pub fn u32(shape: impl Into<Vec<usize>>, data: Vec<u32>) -> Self {
        Self { shape: shape.into(), data: StateData::U32(data) }
    }

    /// A tensor of numbers.
    pub fn f32(shape: impl Into<Vec<usize>>, data: Vec<f32>) -> Self {
        Self { shape: shape.into(), data: StateData::F32(data) }
    }

    /// A matrix without its padding.
    pub fn matrix(matrix: &Matrix) -> Self {
        let rows = (0..matrix.rows()).flat_map(|row| &matrix.row(row)[..matrix.cols()]);
        Self::f32([matrix.rows(), matrix.cols()], rows.copied().collect())
    }

    fn has_shape(&self, shape: &[usize]) -> bool {
        let len = match &self.data {
            StateData::U8(data) => data.len(),
            StateData::U32(data) => data.len(),
            StateData::F32(data) => data.len(),
        };
        self.shape == shape && shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) == Some(len)
    }
}

/// Takes tensors out of a state one by one, each checked.
#[derive(Debug)]
pub(super) struct Reader {
    tensors: State,
}

impl Reader {
    pub(super) fn new(tensors: State) -> Self {
        Self { tensors }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.iter().any(|(found, _)| found == name)
    }

    /// The bytes of `name`.
    pub(super) fn bytes(&mut self, name: &str, shape: &[usize]) -> Result<Vec<u8>> {
        match self.take(name, shape)? {
            StateData::U8(data) => Ok(data),
            _ => Err(damaged(format!("`{name}` does not hold bytes"))),
        }
    }

    /// The numbers of `name`, all finite.
    pub(super) fn numbers(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        match self.take(name, shape)? {
            StateData::F32(data) if data.iter().all(|value| value.is_finite()) => Ok(data),
            StateData::F32(_) => Err(damaged(format!("`{name}` holds values that are not finite"))),
            _ => Err(damaged(format!("`{name}` does not hold numbers"))),
        }
    }

    /// Nothing may be left.
    pub(super) fn finish(self) -> Result<()> {
        match self.tensors.first() {
            Some((name, _)) => Err(damaged(format!("`{name}` belongs to another proposal"))),
            None => Ok(()),
        }
    }

    fn take(&mut self, name: &str, shape: &[usize]) -> Result<StateData> {
        let place = self.tensors.iter().position(|(found, _)| found == name);
        let place = place.ok_or_else(|| damaged(format!("`{name}` is missing")))?;
        let (_, tensor) = self.tensors.swap_remove(place);
        if tensor.has_shape(shape) {
            Ok(tensor.data)
        } else {
            Err(damaged(format!("`{name}` has shape {:?}, expected {shape:?}", tensor.shape)))
        }
    }
}

fn damaged(problem: String) -> Error {
    Error::data(
        format!("state of the proposal: {problem}"),
        "resume with the settings that wrote it, or from another checkpoint",
    )
}
