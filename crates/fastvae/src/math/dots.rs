//! Inner products of one query with many rows.

use fearless_simd::{dispatch, f32x16, prelude::*};

use crate::math::MatrixView;
use crate::math::matrix::LANES;
use crate::math::simd::{dot_in, lane_sums, level, prefetch};

/// `out[i] = query . rows[i]` for the rows `0..out.len()`; `query` has the view's columns.
pub fn row_dots(rows: MatrixView<'_>, query: &[f32], out: &mut [f32]) {
    #[inline(always)]
    fn body<S: Simd>(simd: S, rows: MatrixView<'_>, query: &[f32], out: &mut [f32]) {
        for (row, out) in out.iter_mut().enumerate() {
            *out = dot_in(simd, rows.row(row), query);
        }
    }
    dispatch!(level(), simd => body(simd, rows, query, out));
}

/// `out[i] = query . rows[items[i]]`; `query` has the view's columns. Equal rows give equal bits, as in
/// [`block_dots`].
pub fn gather_dots(rows: MatrixView<'_>, items: &[u32], query: &[f32], out: &mut [f32]) {
    #[inline(always)]
    fn body<S: Simd>(simd: S, rows: MatrixView<'_>, items: &[u32], query: &[f32], out: &mut [f32]) {
        for (at, (block, out)) in items.chunks(LANES).zip(out.chunks_mut(LANES)).enumerate() {
            for &next in items.iter().skip((at + 1) * LANES).take(LANES) {
                prefetch(rows.row(next as usize));
            }
            let mut products = [f32x16::splat(simd, 0.0); LANES];
            for (product, &item) in products.iter_mut().zip(block) {
                *product = products_in(simd, rows.row(item as usize), query);
            }
            out.copy_from_slice(&lane_sums(products).as_slice()[..out.len()]);
        }
    }
    dispatch!(level(), simd => body(simd, rows, items, query, out));
}

/// As [`row_dots`], sixteen rows at a time: their lanes are summed together, which costs less than half as much.
pub fn block_dots(rows: MatrixView<'_>, query: &[f32], out: &mut [f32]) {
    // Rows of few lines, known when compiled, leave no loop around each: 1.6 times as fast at 32 columns.
    match (rows.cols(), rows.stride() == rows.cols()) {
        (16, true) => dispatch!(level(), simd => line_dots_in::<_, 1>(simd, rows, query, out)),
        (32, true) => dispatch!(level(), simd => line_dots_in::<_, 2>(simd, rows, query, out)),
        (64, true) => dispatch!(level(), simd => line_dots_in::<_, 4>(simd, rows, query, out)),
        _ => dispatch!(level(), simd => block_dots_in(simd, rows, query, out)),
    }
}

#[inline(always)]
fn block_dots_in<S: Simd>(simd: S, rows: MatrixView<'_>, query: &[f32], out: &mut [f32]) {
    for (block, out) in out.chunks_mut(LANES).enumerate() {
        let mut products = [f32x16::splat(simd, 0.0); LANES];
        for (row, product) in products.iter_mut().enumerate().take(out.len()) {
            *product = products_in(simd, rows.row(block * LANES + row), query);
        }
        out.copy_from_slice(&lane_sums(products).as_slice()[..out.len()]);
    }
}

/// [`block_dots_in`] for unpadded rows of `LINES` lines, with the same bits.
#[inline(always)]
fn line_dots_in<S: Simd, const LINES: usize>(simd: S, rows: MatrixView<'_>, query: &[f32], out: &mut [f32]) {
    let (lines, _) = rows.data().as_chunks::<LANES>();
    let (rows, _) = lines.as_chunks::<LINES>();
    let (query_lines, _) = query.as_chunks::<LANES>();
    let mut query = [f32x16::splat(simd, 0.0); LINES];
    for line in 0..LINES {
        query[line] = f32x16::load_array_ref(simd, &query_lines[line]);
    }
    for (rows, out) in rows[..out.len()].chunks(LANES).zip(out.chunks_mut(LANES)) {
        let mut products = [f32x16::splat(simd, 0.0); LANES];
        match rows.first_chunk::<LANES>() {
            Some(rows) => {
                for row in 0..LANES {
                    for line in 0..LINES {
                        products[row] = f32x16::load_array_ref(simd, &rows[row][line])
                            .mul_add(query[line], products[row]);
                    }
                }
            }
            None => {
                for (row, product) in rows.iter().zip(&mut products) {
                    for line in 0..LINES {
                        *product = f32x16::load_array_ref(simd, &row[line]).mul_add(query[line], *product);
                    }
                }
            }
        }
        out.copy_from_slice(&lane_sums(products).as_slice()[..out.len()]);
    }
}

/// Sixteen partial sums of the inner product of two slices of equal length.
#[inline(always)]
fn products_in<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32x16<S> {
    let (a_lines, a_rest) = a.as_chunks::<LANES>();
    let (b_lines, b_rest) = b.as_chunks::<LANES>();
    let mut sum = f32x16::splat(simd, 0.0);
    for (x, y) in a_lines.iter().zip(b_lines) {
        sum = f32x16::load_array_ref(simd, x).mul_add(f32x16::load_array_ref(simd, y), sum);
    }
    if !a_rest.is_empty() {
        let mut tail = [[0.0; LANES]; 2];
        tail[0][..a_rest.len()].copy_from_slice(a_rest);
        tail[1][..b_rest.len()].copy_from_slice(b_rest);
        sum = f32x16::load_array_ref(simd, &tail[0]).mul_add(f32x16::load_array_ref(simd, &tail[1]), sum);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::simd::levels;
    use crate::math::{Purpose, Stream};

    #[test]
    fn dots_of_blocks_and_of_gathered_rows_equal_dots_of_single_ones() {
        for (rows, cols) in [(1, 16), (47, 32), (50, 64), (40, 37), (33, 5), (64, 256)] {
            let mut stream = Stream::new(3, Purpose::Initialise, 0, 0);
            let values: Vec<f32> = (0..rows * cols).map(|_| stream.normal() as f32).collect();
            let query: Vec<f32> = (0..cols).map(|_| stream.normal() as f32).collect();
            let table = MatrixView::new(&values, rows, cols);
            let (mut single, mut block, mut gathered) = (vec![0.0; rows], vec![0.0; rows], vec![0.0; rows]);
            row_dots(table, &query, &mut single);
            block_dots(table, &query, &mut block);
            let backwards: Vec<u32> = (0..rows as u32).rev().collect();
            gather_dots(table, &backwards, &query, &mut gathered);
            gathered.reverse();
            assert_eq!(block, gathered, "the place of a row does not matter to its bits");
            assert!(single.iter().zip(&block).all(|(a, b)| (a - b).abs() < 1e-4));
            for level in levels() {
                let mut plain = vec![0.0; rows];
                dispatch!(level, simd => block_dots_in(simd, table, &query, &mut plain));
                let mut lines = plain.clone();
                match cols {
                    16 => dispatch!(level, simd => line_dots_in::<_, 1>(simd, table, &query, &mut lines)),
                    32 => dispatch!(level, simd => line_dots_in::<_, 2>(simd, table, &query, &mut lines)),
                    64 => dispatch!(level, simd => line_dots_in::<_, 4>(simd, table, &query, &mut lines)),
                    _ => {}
                }
                assert_eq!(plain, lines, "{level:?}");
            }
        }
    }
}
