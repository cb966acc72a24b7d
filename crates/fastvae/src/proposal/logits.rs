//! Logits of many items: the scan that the exact proposals pay for.

use fearless_simd::{dispatch, f32x16, prelude::*};

use super::ItemTable;
use crate::math::matrix::LANES;
use crate::math::{MatrixView, dots, simd};

/// `out[i] = query . vectors[first + i] + bias[first + i]`; `padded` is a buffer for the query.
pub(super) fn logits(
    items: ItemTable<'_>,
    first: usize,
    query: &[f32],
    padded: &mut Vec<f32>,
    out: &mut [f32],
) {
    let vectors = items.vectors;
    let rows = vectors.rows_from(first, out.len());
    if vectors.stride().is_multiple_of(LANES) {
        padded.clear();
        padded.extend_from_slice(&query[..vectors.cols()]);
        padded.resize(vectors.stride(), 0.0);
        dispatch!(simd::level(), simd => padded_rows(simd, rows, padded, out));
    } else {
        dots::row_dots(rows, &query[..vectors.cols()], out);
    }
    if let Some(bias) = items.bias {
        out.iter_mut().zip(&bias[first..]).for_each(|(logit, b)| *logit += b);
    }
}

/// The logit of one item.
#[inline]
pub(super) fn logit(items: ItemTable<'_>, item: u32, query: &[f32]) -> f32 {
    let item = item as usize;
    let bias = items.bias.map_or(0.0, |bias| bias[item]);
    simd::dot(items.vectors.row(item), &query[..items.vectors.cols()]) + bias
}

/// Sixteen rows at a time: their lanes are summed by four rounds of adding even and odd lanes, which leaves
/// row i's sum in lane i (a sum over the lanes of each row by itself takes twice as long).
#[inline(always)]
fn padded_rows<S: Simd>(simd: S, rows: MatrixView<'_>, query: &[f32], out: &mut [f32]) {
    let (lines, _) = rows.data().as_chunks::<LANES>();
    let (query_lines, _) = query.as_chunks::<LANES>();
    let n_lines = query_lines.len();
    let mut blocks = out.chunks_exact_mut(LANES);
    let mut first = 0;
    for (out, block) in (&mut blocks).zip(lines.chunks_exact(LANES * n_lines)) {
        let (low, high) = block.split_at(8 * n_lines);
        let sums = pair_sums(eight_rows(simd, low, query_lines), eight_rows(simd, high, query_lines));
        sums.store_slice(out);
        first += LANES;
    }
    for (row, out) in blocks.into_remainder().iter_mut().enumerate() {
        *out = simd::dot_in(simd, rows.padded_row(first + row), query);
    }
}

/// Products of eight rows with the query, summed down to two lanes for each.
#[inline(always)]
fn eight_rows<S: Simd>(simd: S, rows: &[[f32; LANES]], query: &[[f32; LANES]]) -> f32x16<S> {
    let (first, second) = rows.split_at(4 * query.len());
    pair_sums(four_rows(simd, first, query), four_rows(simd, second, query))
}

/// Products of four rows with the query, summed down to four lanes for each.
#[inline(always)]
fn four_rows<S: Simd>(simd: S, rows: &[[f32; LANES]], query: &[[f32; LANES]]) -> f32x16<S> {
    let (a, rest) = rows.split_at(query.len());
    let (b, rest) = rest.split_at(query.len());
    let (c, d) = rest.split_at(query.len());
    // Four named sums and no index: an array of sums goes through memory, four times slower.
    let zero = f32x16::splat(simd, 0.0);
    let (mut sum_a, mut sum_b, mut sum_c, mut sum_d) = (zero, zero, zero, zero);
    for ((((z, a), b), c), d) in query.iter().zip(a).zip(b).zip(c).zip(d) {
        let z = f32x16::load_array_ref(simd, z);
        sum_a = f32x16::load_array_ref(simd, a).mul_add(z, sum_a);
        sum_b = f32x16::load_array_ref(simd, b).mul_add(z, sum_b);
        sum_c = f32x16::load_array_ref(simd, c).mul_add(z, sum_c);
        sum_d = f32x16::load_array_ref(simd, d).mul_add(z, sum_d);
    }
    pair_sums(pair_sums(sum_a, sum_b), pair_sums(sum_c, sum_d))
}

/// Sums of neighbouring lanes: those of `a`, then those of `b`.
#[inline(always)]
fn pair_sums<S: Simd>(a: f32x16<S>, b: f32x16<S>) -> f32x16<S> {
    let (even, odd) = a.deinterleave(b);
    even + odd
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{Matrix, Purpose, Stream};

    #[test]
    fn scanned_logits_equal_single_ones_padded_or_not() {
        let mut stream = Stream::new(1, Purpose::Initialise, 0, 0);
        for cols in [3, 16, 32, 33, 200] {
            let values: Vec<f32> = (0..71 * cols).map(|_| stream.normal() as f32).collect();
            let query: Vec<f32> = (0..cols).map(|_| stream.normal() as f32).collect();
            let bias: Vec<f32> = (0..71).map(|i| i as f32).collect();
            let matrix = Matrix::from_rows(71, cols, &values);
            for vectors in [matrix.view(), MatrixView::new(&values, 71, cols)] {
                let items = ItemTable { vectors, bias: Some(&bias) };
                let mut out = vec![0.0; 50];
                logits(items, 20, &query, &mut Vec::new(), &mut out);
                for (i, out) in out.iter().enumerate() {
                    assert!((out - logit(items, 20 + i as u32, &query)).abs() < 1e-4);
                }
            }
        }
    }
}
