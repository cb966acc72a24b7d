//! `popularity`: the items that most users touched, alike for everyone.

use crate::baseline::method::Method;
use crate::data::ItemId;
use crate::error::{Error, Result};
use crate::eval::{BlockScores, Scorer, Viewer};
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
        Ok(BlockScores::Rows(Box::new(|_, scores| scores.copy_from_slice(&self.scores))))
    }
}

impl Method for Popularity {
    fn likeness(&self, _: ItemId, _: &mut [f32]) -> Result<()> {
        Err(Error::data(
            "popularity knows how many users touched an item, not which items are alike",
            "train item-knn, ease, wrmf or fastvae to compare items",
        ))
    }

    fn write<'a>(&'a self, _: &mut TensorWriter<'a>) {
        // The counts are part of every file.
    }
}
