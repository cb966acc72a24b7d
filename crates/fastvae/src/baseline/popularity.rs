//! `popularity`: the items that most users touched, alike for everyone.

use crate::baseline::method::{Fallback, Method};
use crate::data::ItemId;
use crate::error::{Error, Result};
use crate::eval::{BlockScores, Scorer, Viewer};
use crate::math::{Matrix, simd};
use crate::model_file::tensors::TensorWriter;

/// Ranks by the number of users who touched an item.
#[derive(Debug)]
pub(crate) struct Popularity {
    scores: Vec<f32>,
}

impl Popularity {
    pub(crate) fn new(counts: &[u32]) -> Self {
        Self { scores: counts.iter().map(|&count| count as f32).collect() }
    }
}

impl Scorer for Popularity {
    fn n_items(&self) -> usize {
        self.scores.len()
    }

    fn block<'a>(&'a self, _: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        Ok(BlockScores::rows(|_, first, scores| {
            simd::axpy(1.0, &self.scores[first..][..scores.len()], scores)
        }))
    }
}

impl Method for Popularity {
    fn likeness(&self, _: ItemId, _: &mut [f32]) -> Result<()> {
        Err(Error::data(
            "popularity knows how many users touched an item, not which items are alike",
            "train item-knn, ease, wrmf or fastvae to compare items",
        ))
    }

    fn nobody(&self) -> Option<Fallback> {
        Some(Fallback::Popularity)
    }

    fn contributions(&self, viewer: Viewer<'_>, items: &[ItemId]) -> Result<Matrix> {
        // No history changes anything.
        Ok(Matrix::zeros(viewer.history.items.len(), items.len()))
    }

    fn write<'a>(&'a self, _: &mut TensorWriter<'a>) {
        // The counts are part of every file.
    }
}
