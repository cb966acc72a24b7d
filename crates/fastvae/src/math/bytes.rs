//! [`ByteMatrix`]: rows of small whole numbers with a scale each, a quarter of the bytes of f32.

use fearless_simd::{dispatch, f32x16, i32x16, prelude::*};
use rayon::prelude::*;

use crate::math::MatrixView;
use crate::math::matrix::LANES;
use crate::math::simd::level;

/// Largest absolute value of an entry.
const LARGEST: f32 = 127.0;
/// Entries of a word.
const QUAD: usize = 4;

/// A `rows x cols` matrix of whole numbers from -127 to 127, each row times its own scale: value = scale x entry. What is
/// lost is at most half a scale in each value, 1/254 of the row's largest.
///
/// Sixteen rows stand side by side, a row in each lane, so that their inner products need no sums over lanes; four columns
/// of a row share a word, so that any processor takes them apart with shifts.
pub struct ByteMatrix {
    /// Word `lane` of line `block * quads + quad` holds the columns `4 * quad..` of row `16 * block + lane`, the first in its
    /// lowest byte; what is beyond the rows and columns is zero.
    lines: Vec<[i32; LANES]>,
    /// A scale for each row, in whole lines.
    scales: Vec<[f32; LANES]>,
    rows: usize,
    /// Words of a row: a quarter of its columns.
    quads: usize,
}

impl std::fmt::Debug for ByteMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ByteMatrix({} x {})", self.rows, QUAD * self.quads)
    }
}

impl ByteMatrix {
    /// The nearest to `values`. Work is spread over the current thread pool.
    pub fn nearest(values: MatrixView<'_>) -> Self {
        let rows = values.rows();
        let (blocks, quads) = (rows.div_ceil(LANES), values.cols().div_ceil(QUAD));
        let mut lines = vec![[0; LANES]; blocks * quads];
        let mut scales = vec![[0.0; LANES]; blocks];
        let blocks = lines.par_chunks_mut(quads.max(1)).zip(&mut scales).enumerate();
        blocks.for_each(|(block, (lines, scales))| {
            for (lane, row) in (block * LANES..rows).take(LANES).enumerate() {
                let row = values.row(row);
                let largest = row.iter().fold(0.0f32, |most, value| most.max(value.abs()));
                let finite = row.iter().all(|value| value.is_finite());
                // What is not a number stays so: its row is never ranked, here as in full precision.
                scales[lane] = if finite { largest / LARGEST } else { f32::NAN };
                // A row of zeros keeps them, and so does one too small for a scale.
                let inverse = if scales[lane] > 0.0 { LARGEST / largest } else { 0.0 };
                for (line, values) in lines.iter_mut().zip(row.chunks(QUAD)) {
                    let mut bytes = [0; QUAD];
                    for (byte, value) in bytes.iter_mut().zip(values) {
                        // `as` saturates, so that rounding beyond the largest does no harm.
                        *byte = (value * inverse).round() as i8 as u8;
                    }
                    line[lane] = i32::from_le_bytes(bytes);
                }
            }
        });
        Self { lines, scales, rows, quads }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.lines[..]) + size_of_val(&self.scales[..])
    }

    /// `out[i] = query . rows[first + i]`, where `first` is a multiple of 16.
    ///
    /// # Panics
    /// If it is not, or if there are not so many rows.
    pub fn dots(&self, first: usize, query: &[f32], out: &mut [f32]) {
        assert!(first.is_multiple_of(LANES) && first + out.len() <= self.rows, "rows of whole blocks");
        dispatch!(level(), simd => self.dots_in(simd, first / LANES, query, out));
    }

    #[inline(always)]
    fn dots_in<S: Simd>(&self, simd: S, first: usize, query: &[f32], out: &mut [f32]) {
        let blocks = self.lines[first * self.quads..].chunks_exact(self.quads);
        let (query, rest) = query.as_chunks::<QUAD>();
        for ((block, scales), out) in blocks.zip(&self.scales[first..]).zip(out.chunks_mut(LANES)) {
            // A sum for each byte of a word: none waits for another.
            let mut sums = [f32x16::splat(simd, 0.0); QUAD];
            for (line, values) in block.iter().zip(query) {
                add_products(simd, line, values, &mut sums);
            }
            if let Some(line) = block.get(query.len()) {
                let mut values = [0.0; QUAD];
                values[..rest.len()].copy_from_slice(rest);
                add_products(simd, line, &values, &mut sums);
            }
            let dots = ((sums[0] + sums[1]) + (sums[2] + sums[3])) * f32x16::load_array_ref(simd, scales);
            out.copy_from_slice(&dots.as_slice()[..out.len()]);
        }
    }
}

/// `sums[k] += values[k] * byte k` of each word.
#[inline(always)]
fn add_products<S: Simd>(simd: S, line: &[i32; LANES], values: &[f32; QUAD], sums: &mut [f32x16<S>; QUAD]) {
    let words = i32x16::load_array_ref(simd, line);
    for byte in 0..QUAD {
        // Up to the top and down again: the shift down repeats the sign.
        let entries = (words << (24 - 8 * byte as u32)) >> 24;
        sums[byte] = entries.to_float::<f32x16<S>>().mul_add(f32x16::splat(simd, values[byte]), sums[byte]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::simd::levels;
    use crate::math::{Matrix, Purpose, Stream};

    fn random(rows: usize, cols: usize) -> Matrix {
        let mut stream = Stream::new(5, Purpose::Initialise, 0, 0);
        let values: Vec<f32> = (0..rows * cols).map(|_| stream.normal() as f32).collect();
        Matrix::from_rows(rows, cols, &values)
    }

    fn scale(matrix: &ByteMatrix, row: usize) -> f32 {
        matrix.scales[row / LANES][row % LANES]
    }

    fn value(matrix: &ByteMatrix, row: usize, col: usize) -> f32 {
        let word = matrix.lines[row / LANES * matrix.quads + col / QUAD][row % LANES];
        scale(matrix, row) * f32::from(word.to_le_bytes()[col % QUAD] as i8)
    }

    #[test]
    fn each_value_is_within_half_a_scale() {
        let values = random(40, 37);
        let bytes = ByteMatrix::nearest(values.view());
        for row in 0..40 {
            for col in 0..37 {
                let lost = (value(&bytes, row, col) - values.view().row(row)[col]).abs();
                assert!(lost <= scale(&bytes, row) * 0.5001, "{lost} of {}", scale(&bytes, row));
            }
        }
        assert!(bytes.bytes() * 3 < size_of_val(values.data()));
    }

    #[test]
    fn dots_equal_the_sum_over_columns_on_every_instruction_set() {
        for (rows, cols) in [(1, 5), (16, 16), (77, 33), (40, 64)] {
            let bytes = ByteMatrix::nearest(random(rows, cols).view());
            let query: Vec<f32> = (0..cols).map(|col| (col as f32 * 0.7).sin()).collect();
            let expected: Vec<f32> = (0..rows)
                .map(|row| (0..cols).map(|col| value(&bytes, row, col) * query[col]).sum())
                .collect();
            let close = |got: &[f32], want: &[f32]| got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-3);
            for level in levels() {
                let mut out = vec![0.0; rows];
                dispatch!(level, simd => bytes.dots_in(simd, 0, &query, &mut out));
                assert!(close(&out, &expected), "{level:?}");
            }
            let first = rows / 2 / LANES * LANES;
            let mut rest = vec![0.0; rows - first];
            bytes.dots(first, &query, &mut rest);
            assert!(close(&rest, &expected[first..]));
        }
    }

    #[test]
    fn rows_of_zeros_stay_zeros_and_what_is_not_a_number_stays_so() {
        let mut values = Matrix::zeros(3, 8);
        values.row_mut(1)[2] = f32::NAN;
        let bytes = ByteMatrix::nearest(values.view());
        let mut out = [1.0; 3];
        bytes.dots(0, &[1.0; 8], &mut out);
        assert_eq!((out[0], out[2]), (0.0, 0.0));
        assert!(out[1].is_nan());
    }
}
