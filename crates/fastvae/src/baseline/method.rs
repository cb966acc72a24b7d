//! [`Method`]: what a trained method must do beside scoring; the variational autoencoder is one of them.

use crate::data::ItemId;
use crate::error::Result;
use crate::eval::{Scorer, Viewer};
use crate::math::{Matrix, MatrixView};
use crate::model_file::tensors::{Array, TensorWriter};
use crate::network::{History, Network};

/// What somebody is shown of whom nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fallback {
    /// The method's own answer to nobody.
    Nobody,
    /// The items that most users touched.
    Popularity,
}

/// One method's learned values.
pub(crate) trait Method: Scorer + std::fmt::Debug + Send {
    /// Writes how much each item of the catalogue is like `item`; larger is nearer. Asked of methods alone that have no
    /// table of item vectors, whose cosines say it otherwise.
    fn likeness(&self, item: ItemId, scores: &mut [f32]) -> Result<()>;

    /// Adds the learned arrays to a file.
    fn write<'a>(&'a self, writer: &mut TensorWriter<'a>);

    /// Its own answer to nobody, where it has one.
    fn nobody(&self) -> Option<Fallback> {
        None
    }

    /// What the score of each of `items` loses when an item of the history is left out: a row for each item of the history,
    /// a column for each of `items`. Exact, by leaving each one out.
    fn contributions(&self, viewer: Viewer<'_>, items: &[ItemId]) -> Result<Matrix> {
        self.contributions_by_scores(viewer, items)
    }

    /// [`Method::contributions`] by scoring once without each item of the history.
    fn contributions_by_scores(&self, viewer: Viewer<'_>, items: &[ItemId]) -> Result<Matrix> {
        let History { items: history, weights } = viewer.history;
        let n = history.len();
        let without = |left_out: usize| -> (Vec<ItemId>, Option<Vec<f32>>) {
            let kept = |at: &usize| *at != left_out;
            let weights = weights.map(|weights| (0..n).filter(kept).map(|at| weights[at]).collect());
            ((0..n).filter(kept).map(|at| history[at]).collect(), weights)
        };
        let shorter: Vec<_> = (0..=n).map(without).collect();
        let viewers: Vec<Viewer<'_>> = shorter
            .iter()
            .map(|(items, weights)| Viewer {
                history: History { items, weights: weights.as_deref() },
                ..viewer
            })
            .collect();
        let scores = self.block(&viewers)?;
        let whole = scores.of_items(n, items, self.n_items());
        let mut lost = Matrix::zeros(n, items.len());
        for row in 0..n {
            let rest = scores.of_items(row, items, self.n_items());
            for ((lost, whole), rest) in lost.row_mut(row).iter_mut().zip(&whole).zip(rest) {
                *lost = whole - rest;
            }
        }
        Ok(lost)
    }

    /// The network that scores, where one does.
    fn network(&self) -> Option<Network<'_>> {
        None
    }

    /// Gives back the memory of what is mapped and has been copied.
    fn forget_items(&self) {}
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

    pub(crate) fn forget(&self) {
        if let Self::File(array) = self {
            array.forget();
        }
    }
}

/// [`Method::contributions`] of a method that scores with weight x `of(item, recommended)`, summed over the history.
pub(crate) fn by_weight(
    History { items: history, weights }: History<'_>,
    items: &[ItemId],
    of: impl Fn(ItemId, ItemId) -> f32,
) -> Matrix {
    let mut lost = Matrix::zeros(history.len(), items.len());
    for (row, &item) in history.iter().enumerate() {
        let weight = weights.map_or(1.0, |weights| weights[row]);
        for (lost, &recommended) in lost.row_mut(row).iter_mut().zip(items) {
            *lost = weight * of(item, recommended);
        }
    }
    lost
}
