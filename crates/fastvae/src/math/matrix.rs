//! Row-major matrices of f32 whose rows start on cache lines.

use crate::math::lines::{Lines, table_bytes};

/// Floats in a cache line; rows are padded to a multiple of it.
pub const LANES: usize = 16;

/// A `rows x cols` matrix, row-major, each row padded with zeros to [`Matrix::stride`] floats and aligned to
/// 64 bytes. The padding stays zero: kernels read it, so that no row has a tail.
#[derive(Clone)]
pub struct Matrix {
    lines: Lines,
    rows: usize,
    cols: usize,
    stride: usize,
}

impl Default for Matrix {
    fn default() -> Self {
        Self::zeros(0, 0)
    }
}

impl std::fmt::Debug for Matrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Matrix({} x {})", self.rows, self.cols)
    }
}

impl Matrix {
    /// A matrix of zeros; pages are taken from the system only when they are first written.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        let stride = cols.next_multiple_of(LANES);
        Self { lines: Lines::zeros(rows * stride), rows, cols, stride }
    }

    /// Floats in one of `rows x cols`, with the padding of its rows.
    pub fn floats_of(rows: usize, cols: usize) -> u64 {
        rows as u64 * cols.next_multiple_of(LANES) as u64
    }

    /// Bytes that one of `rows x cols` takes once all of it was touched.
    pub fn bytes_of(rows: usize, cols: usize) -> u64 {
        table_bytes(Self::floats_of(rows, cols))
    }

    /// A copy of `values`, `rows x cols` without padding.
    ///
    /// # Panics
    /// If `values` is not `rows * cols` long.
    pub fn from_rows(rows: usize, cols: usize, values: &[f32]) -> Self {
        assert_eq!(values.len(), rows * cols, "the values of a {rows} x {cols} matrix");
        let mut matrix = Self::zeros(rows, cols);
        for row in 0..rows {
            matrix.row_mut(row)[..cols].copy_from_slice(&values[row * cols..][..cols]);
        }
        matrix
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of meaningful columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Floats from one row to the next: `cols` rounded up to [`LANES`].
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// All rows with their padding.
    pub fn data(&self) -> &[f32] {
        self.lines.as_slice()
    }

    /// All rows with their padding, to write. The padding must stay zero.
    pub fn data_mut(&mut self) -> &mut [f32] {
        self.lines.as_mut_slice()
    }

    /// Row `row` with its padding.
    #[inline(always)]
    pub fn row(&self, row: usize) -> &[f32] {
        &self.data()[row * self.stride..][..self.stride]
    }

    /// Row `row` with its padding, to write. The padding must stay zero.
    #[inline(always)]
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        let stride = self.stride;
        &mut self.data_mut()[row * stride..][..stride]
    }

    /// A view of the whole matrix.
    pub fn view(&self) -> MatrixView<'_> {
        MatrixView { data: self.data(), rows: self.rows, cols: self.cols, stride: self.stride }
    }
}

/// A borrowed row-major matrix, padded (from [`Matrix`]) or not (from a mapped file).
#[derive(Debug, Clone, Copy)]
pub struct MatrixView<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    stride: usize,
}

impl<'a> MatrixView<'a> {
    /// A view of `data`, `rows x cols` without padding.
    ///
    /// # Panics
    /// If `data` is not `rows * cols` long.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "the values of a {rows} x {cols} matrix");
        Self { data, rows, cols, stride: cols }
    }

    /// A view of `data`, whose rows of `cols` floats start `stride` apart.
    ///
    /// # Panics
    /// If `data` is not `rows * stride` long or a row is longer than the stride.
    pub fn padded(data: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(
            data.len() == rows * stride && cols <= stride,
            "the values of a padded {rows} x {cols} matrix"
        );
        Self { data, rows, cols, stride }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of meaningful columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Floats from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// All rows with their padding.
    pub fn data(&self) -> &'a [f32] {
        self.data
    }

    /// The meaningful part of row `row`.
    #[inline(always)]
    pub fn row(&self, row: usize) -> &'a [f32] {
        &self.data[row * self.stride..][..self.cols]
    }

    /// Row `row` with its padding.
    #[inline(always)]
    pub fn padded_row(&self, row: usize) -> &'a [f32] {
        &self.data[row * self.stride..][..self.stride]
    }

    /// Columns `start .. start + cols` of every row as a view.
    ///
    /// # Panics
    /// If the view has fewer columns.
    pub fn columns(&self, start: usize, cols: usize) -> Self {
        assert!(start + cols <= self.cols, "columns {start}..{} of {}", start + cols, self.cols);
        Self { data: &self.data[start.min(self.data.len())..], cols, ..*self }
    }

    /// Rows `start .. start + rows` as a view.
    pub fn rows_from(&self, start: usize, rows: usize) -> Self {
        Self { data: &self.data[start * self.stride..][..rows * self.stride], rows, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_start_on_cache_lines_and_padding_is_zero() {
        let matrix = Matrix::from_rows(3, 5, &(0..15).map(|v| v as f32).collect::<Vec<_>>());
        for row in 0..3 {
            assert_eq!(matrix.row(row).as_ptr() as usize % 64, 0);
            assert_eq!(matrix.row(row)[5..], [0.0; 11]);
            assert_eq!(matrix.view().row(row)[4], row as f32 * 5.0 + 4.0);
        }
    }
}
