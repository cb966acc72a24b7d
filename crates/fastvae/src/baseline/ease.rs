//! `ease`: a linear model from items to items with a zero diagonal, solved in closed form (Steck, 2019).
//!
//! With P = (X^T X + lambda I)^-1, B_ij = -P_ij / P_jj off the diagonal, and a history scores X_u B.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::baseline::by_item::ByItem;
use crate::baseline::inverse::invert;
use crate::baseline::method::{Method, Table, by_weight};
use crate::data::{Interactions, ItemId};
use crate::error::{Error, Result};
use crate::eval::{BlockScores, Scorer, Viewer};
use crate::math::{Matrix, simd};
use crate::model_file::tensors::{TensorFile, TensorWriter};
use crate::resources;

/// Settings of `ease`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EaseSettings {
    /// Weight of the squared coefficients (lambda).
    pub regularization: f32,
}

impl Default for EaseSettings {
    fn default() -> Self {
        Self { regularization: 400.0 }
    }
}

impl EaseSettings {
    pub(crate) fn validate(&self) -> Result<()> {
        if self.regularization.is_finite() && self.regularization > 0.0 {
            return Ok(());
        }
        Err(Error::config(
            "regularization",
            format!("is {}", self.regularization),
            "give a positive number, such as 400",
        ))
    }

    /// Bytes that fitting takes for a catalogue of `n_items`: one dense matrix and some of its rows.
    pub fn memory(n_items: usize) -> u64 {
        let stride = n_items.next_multiple_of(16) as u64;
        stride * 4 * (n_items as u64 + 512)
    }
}

/// The coefficients B, `n_items x n_items`: row i says what item i speaks for.
#[derive(Debug)]
pub(crate) struct Ease {
    coefficients: Table,
}

impl Ease {
    /// Cost: 2 n_items^3 operations.
    ///
    /// # Errors
    /// [`Error::Data`] if the matrix does not fit the memory that is free.
    pub(crate) fn fit(data: &Interactions, settings: &EaseSettings) -> Result<Self> {
        fits(data.n_items(), resources::available_memory())?;
        let mut p = gram(data);
        let n = p.rows();
        (0..n).for_each(|item| p.row_mut(item)[item] += settings.regularization);
        invert(&mut p);
        let diagonal: Vec<f32> = (0..n).map(|item| p.row(item)[item]).collect();
        let stride = p.stride();
        p.data_mut().par_chunks_mut(stride).enumerate().for_each(|(item, row)| {
            row.iter_mut().zip(&diagonal).for_each(|(value, d)| *value /= -d);
            row[item] = 0.0;
        });
        Ok(Self { coefficients: Table::Memory(p) })
    }

    pub(crate) fn read(file: &TensorFile, n_items: usize) -> Result<Self> {
        Ok(Self { coefficients: Table::File(file.array_of("coefficients", &[n_items, n_items])?) })
    }
}

/// Refuses a catalogue whose matrix is larger than the free memory.
fn fits(n_items: usize, available: Option<u64>) -> Result<()> {
    let needed = EaseSettings::memory(n_items);
    match available {
        Some(available) if needed > available => Err(Error::data(
            format!(
                "ease holds a matrix of {n_items} x {n_items} items, {:.1} GB, and {:.1} GB of memory are free",
                needed as f64 / 1e9,
                available as f64 / 1e9
            ),
            "use item-knn, wrmf or fastvae, whose memory follows the interactions, or keep fewer items with --k-core",
        )),
        _ => Ok(()),
    }
}

/// X^T X, one row of items at a time.
fn gram(data: &Interactions) -> Matrix {
    let by_item = ByItem::of(data);
    let value = |place: usize| data.weights().map_or(1.0, |weights| weights[place]);
    let mut gram = Matrix::zeros(data.n_items(), data.n_items());
    let stride = gram.stride();
    gram.data_mut().par_chunks_mut(stride.max(1)).enumerate().for_each(|(item, row)| {
        for at in by_item.offsets[item]..by_item.offsets[item + 1] {
            let (own, user) = (value(by_item.places[at]), by_item.users[at] as usize);
            for place in data.offsets()[user]..data.offsets()[user + 1] {
                row[data.items()[place] as usize] += own * value(place);
            }
        }
    });
    gram
}

impl Scorer for Ease {
    fn n_items(&self) -> usize {
        self.coefficients.view().rows()
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        let coefficients = self.coefficients.view();
        Ok(BlockScores::rows(move |row, first, scores| {
            let history = viewers[row].history;
            for (at, &item) in history.items.iter().enumerate() {
                let weight = history.weights.map_or(1.0, |weights| weights[at]);
                simd::axpy(weight, &coefficients.row(item as usize)[first..][..scores.len()], scores);
            }
        }))
    }
}

impl Method for Ease {
    fn likeness(&self, item: ItemId, scores: &mut [f32]) -> Result<()> {
        scores.copy_from_slice(self.coefficients.view().row(item as usize));
        Ok(())
    }

    fn contributions(&self, viewer: Viewer<'_>, items: &[ItemId]) -> Result<Matrix> {
        let coefficients = self.coefficients.view();
        Ok(by_weight(viewer.history, items, |item, of| coefficients.row(item as usize)[of as usize]))
    }

    fn write<'a>(&'a self, writer: &mut TensorWriter<'a>) {
        writer.matrix("coefficients", self.coefficients.view());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::tests::random_interactions;

    /// The inverse by Gauss and Jordan's elimination with pivots, in double precision.
    fn direct_inverse(mut a: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
        let n = a.len();
        for (i, row) in a.iter_mut().enumerate() {
            row.extend((0..n).map(|j| f64::from(u8::from(i == j))));
        }
        for k in 0..n {
            let pivot = (k..n).max_by(|&x, &y| a[x][k].abs().total_cmp(&a[y][k].abs())).unwrap();
            a.swap(k, pivot);
            let scale = a[k][k];
            a[k].iter_mut().for_each(|v| *v /= scale);
            let pivot = a[k].clone();
            for (i, row) in a.iter_mut().enumerate().filter(|(i, _)| *i != k) {
                let factor = row[k];
                assert!(i < n);
                row.iter_mut().zip(&pivot).for_each(|(v, p)| *v -= factor * p);
            }
        }
        a.into_iter().map(|row| row[n..].to_vec()).collect()
    }

    #[test]
    fn coefficients_equal_the_direct_inverse() {
        for weighted in [false, true] {
            let data = random_interactions(120, 50, weighted);
            let settings = EaseSettings { regularization: 3.0 };
            let ease = Ease::fit(&data, &settings).unwrap();
            let mut gram = vec![vec![0.0; 50]; 50];
            for user in 0..120 {
                let row = data.row(user);
                let value = |at: usize| row.weights.map_or(1.0, |w| f64::from(w[at]));
                for (a, &i) in row.items.iter().enumerate() {
                    for (b, &j) in row.items.iter().enumerate() {
                        gram[i as usize][j as usize] += value(a) * value(b);
                    }
                }
            }
            (0..50).for_each(|i| gram[i][i] += 3.0);
            let p = direct_inverse(gram);
            for i in 0..50 {
                for j in 0..50 {
                    let expected = if i == j { 0.0 } else { -p[i][j] / p[j][j] };
                    let got = f64::from(ease.coefficients.view().row(i)[j]);
                    assert!((got - expected).abs() < 1e-4, "({i}, {j}): {got} {expected}");
                }
            }
        }
    }

    #[test]
    fn a_catalogue_too_large_is_refused_with_its_memory() {
        let error = fits(1_000_000, Some(16_000_000_000)).unwrap_err().to_string();
        assert!(
            error.contains("4002.0 GB") && error.contains("16.0 GB") && error.contains("wrmf"),
            "{error}"
        );
        assert!(fits(6_000, Some(1_000_000_000)).is_ok());
    }
}
