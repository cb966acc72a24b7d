//! [`Method`]: what a baseline must do beside scoring.

use crate::data::ItemId;
use crate::error::Result;
use crate::eval::Scorer;
use crate::math::{Matrix, MatrixView};
use crate::model_file::tensors::{Array, TensorWriter};

/// One method's learned values.
pub(crate) trait Method: Scorer + std::fmt::Debug + Send {
    /// Writes how much each item of the catalogue is like `item`; larger is nearer.
    fn likeness(&self, item: ItemId, scores: &mut [f32]) -> Result<()>;

    /// Adds the learned arrays to a file.
    fn write<'a>(&'a self, writer: &mut TensorWriter<'a>);
}

/// A table in memory, or in a mapped file.
#[derive(Debug)]
pub(crate) enum Table {
    Memory(Matrix),
    File(Array<f32>),
}

impl Table {
    pub(crate) fn view(&self) -> MatrixView<'_> {
        match self {
            Self::Memory(matrix) => matrix.view(),
            Self::File(array) => array.view(),
        }
    }
}

/// The cosines of every row of `vectors` with row `item`; 0 where either is all zeros.
pub(crate) fn cosines(vectors: MatrixView<'_>, item: ItemId, scores: &mut [f32]) {
    use crate::math::dots::row_dots;
    use crate::math::simd::dot;
    use rayon::prelude::*;
    const PART: usize = 4096;
    let query = vectors.row(item as usize);
    let own = dot(query, query).sqrt();
    scores.par_chunks_mut(PART).enumerate().for_each(|(part, scores)| {
        let rows = vectors.rows_from(part * PART, scores.len());
        row_dots(rows, query, scores);
        for (at, score) in scores.iter_mut().enumerate() {
            let length = dot(rows.row(at), rows.row(at)).sqrt() * own;
            *score = if length > 0.0 { *score / length } else { 0.0 };
        }
    });
}
