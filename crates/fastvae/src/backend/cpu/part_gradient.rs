//! [`PartGradient`]: the gradient rows of one partition of the items, added to in the order of the queries.
//!
//! Where a step touches most rows of a partition, often several times, adding to them in place is cheaper than
//! sorting the entries by row first: the rows stay in the second-level cache, and a query in registers.

use fearless_simd::{f32x16, prelude::*, u32x16};

use crate::math::Matrix;
use crate::math::lines::HUGE_PAGE;
use crate::math::matrix::LANES;

/// Gradient rows; zero between uses, so that its memory serves one partition after the other.
#[derive(Debug)]
pub(super) struct PartGradient {
    pub rows: Matrix,
    /// The gradient of each row's bias.
    pub bias: Vec<f32>,
}

impl Default for PartGradient {
    fn default() -> Self {
        Self { rows: Matrix::zeros(0, 0), bias: Vec::new() }
    }
}

impl PartGradient {
    /// Makes room for `n_rows` rows of `cols` columns.
    pub fn fit(&mut self, n_rows: usize, cols: usize) {
        if self.rows.rows() < n_rows || self.rows.cols() != cols {
            // They are added to in random order: on a huge page, no row waits for its address.
            let n_rows = n_rows.max(HUGE_PAGE / size_of::<f32>() / cols.next_multiple_of(LANES));
            self.rows = Matrix::zeros(n_rows, cols);
            self.bias = vec![0.0; n_rows];
        }
    }

    /// Adds `weights[k] * factor * query` to the row of `places[k]`, counted from `start`. The query is a padded row of `L`
    /// vectors, or of any number where `L` is zero.
    #[inline(always)]
    pub fn add<S: Simd, const L: usize>(
        &mut self,
        simd: S,
        query: &[f32],
        start: u32,
        places: &[u32],
        weights: (&[f32], f32),
        with_bias: bool,
    ) {
        if with_bias {
            for (place, weight) in places.iter().zip(weights.0) {
                self.bias[(place - start) as usize] += weight * weights.1;
            }
        }
        let rows = self.rows.data_mut();
        if L == 0 {
            add_to_any(simd, rows, query, start, places, weights);
        } else {
            add_to::<_, L>(simd, rows, query, start, places, weights);
        }
    }
}

/// Whether there is nothing in the gradient of a row, padded: no draw of it had any weight. A mark for each row that is
/// added to would say nearly the same, but adding waits for its writes, and a mark is one more.
#[inline(always)]
pub(super) fn is_zero<S: Simd>(simd: S, gradient: &[f32]) -> bool {
    let mut bits = u32x16::splat(simd, 0);
    for lane in gradient.as_chunks::<LANES>().0 {
        bits |= f32x16::load_array_ref(simd, lane).bitcast::<u32x16<S>>();
    }
    // All but the sign: there are two zeros.
    (bits << 1).simd_eq(u32x16::splat(simd, 0)).all_true()
}

/// [`PartGradient::add`] for rows of `L` vectors.
#[inline(always)]
fn add_to<S: Simd, const L: usize>(
    simd: S,
    rows: &mut [f32],
    query: &[f32],
    start: u32,
    places: &[u32],
    (weights, factor): (&[f32], f32),
) {
    let mut q = [f32x16::splat(simd, 0.0); L];
    for (l, q) in q.iter_mut().enumerate() {
        *q = f32x16::from_slice(simd, &query[l * LANES..][..LANES]);
    }
    for (place, &weight) in places.iter().zip(weights) {
        let at = (place - start) as usize;
        let weight = f32x16::splat(simd, weight * factor);
        let row = &mut rows[at * L * LANES..][..L * LANES];
        for (l, q) in q.iter().enumerate() {
            let lane = &mut row[l * LANES..][..LANES];
            q.mul_add(weight, f32x16::from_slice(simd, lane)).store_slice(lane);
        }
    }
}

/// As [`add_to`], for rows of any length.
#[inline(always)]
fn add_to_any<S: Simd>(
    simd: S,
    rows: &mut [f32],
    query: &[f32],
    start: u32,
    places: &[u32],
    (weights, factor): (&[f32], f32),
) {
    let stride = query.len();
    for (place, &weight) in places.iter().zip(weights) {
        let at = (place - start) as usize;
        let weight = f32x16::splat(simd, weight * factor);
        let row = &mut rows[at * stride..][..stride];
        for (lane, q) in row.chunks_exact_mut(LANES).zip(query.chunks_exact(LANES)) {
            f32x16::from_slice(simd, q).mul_add(weight, f32x16::from_slice(simd, lane)).store_slice(lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::grouping::{BucketEntries, BucketLayout, Buckets, Grouping};
    use crate::backend::cpu::rows::{row_gradient, weight_sum};
    use crate::math::simd::{level, levels};
    use crate::math::{Purpose, Stream};
    use fearless_simd::dispatch;

    #[test]
    fn rows_added_to_in_place_equal_grouped_ones_bit_for_bit() {
        let (n_rows, start) = (300, 1000);
        let mut gradients = PartGradient::default();
        for dim in [16, 20, 40, 64, 128, 200] {
            let mut stream = Stream::new(1, Purpose::Generate, 0, dim as u32);
            let values: Vec<f32> = (0..8 * dim).map(|_| stream.normal() as f32).collect();
            let queries = Matrix::from_rows(8, dim, &values);
            let layout = BucketLayout::with_shift(n_rows, 9);
            let mut buckets = Buckets::default();
            buckets.clear(1);
            gradients.fit(n_rows, dim);
            for query in 0..8 {
                let items: Vec<u32> = (0..100).map(|_| stream.below(n_rows as u64) as u32).collect();
                let weights: Vec<f32> = (0..100).map(|_| stream.normal() as f32).collect();
                buckets.extend(layout, &items, &weights, 1.0, query as u32);
                let places: Vec<u32> = items.iter().map(|item| start + item).collect();
                let (row, weights) = (queries.row(query), (&weights[..], 1.0));
                dispatch!(level(), simd => match dim.div_ceil(LANES) {
                    1 => gradients.add::<_, 1>(simd, row, start, &places, weights, true),
                    2 => gradients.add::<_, 2>(simd, row, start, &places, weights, true),
                    4 => gradients.add::<_, 4>(simd, row, start, &places, weights, true),
                    8 => gradients.add::<_, 8>(simd, row, start, &places, weights, true),
                    _ => gradients.add::<_, 0>(simd, row, start, &places, weights, true),
                });
            }
            let mut grouping = Grouping::default();
            let entries = BucketEntries { blocks: &[&buckets], bucket: 0, layout };
            let (runs, sources) = grouping.group(&entries, n_rows);
            let PartGradient { rows, bias } = &mut gradients;
            let touched =
                (0..rows.rows()).filter(|&row| !dispatch!(level(), simd => is_zero(simd, rows.row(row))));
            assert!(touched.eq(runs.iter().map(|run| run.item as usize)));
            let (mut first, mut expected) = (0, vec![0.0; rows.stride()]);
            for run in runs {
                let mine = &sources[first..run.end as usize];
                dispatch!(level(), simd => row_gradient(simd, mine, queries.view(), &mut expected));
                let item = run.item as usize;
                assert_eq!(rows.row(item), expected, "row {item} of {dim} columns");
                assert_eq!(bias[item], weight_sum(mine));
                // Left as the next use expects it.
                rows.row_mut(item).fill(0.0);
                bias[item] = 0.0;
                first = run.end as usize;
            }
            assert!(rows.data().iter().chain(&*bias).all(|&gradient| gradient == 0.0));
        }
    }

    #[test]
    fn a_gradient_is_zero_where_no_column_holds_anything() {
        for level in levels() {
            for n in [16, 48] {
                let mut gradient = vec![0.0; n];
                gradient[3] = -0.0;
                assert!(dispatch!(level, simd => is_zero(simd, &gradient)));
                for (column, value) in [(0, 1e-40), (n - 1, -2.0), (7, f32::NAN)] {
                    gradient[column] = value;
                    assert!(!dispatch!(level, simd => is_zero(simd, &gradient)));
                    gradient[column] = 0.0;
                }
            }
        }
    }
}
