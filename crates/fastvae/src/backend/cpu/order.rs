//! The item tables in the order of the items or of the proposal's partitions.

use crate::backend::cpu::rows::RowTable;
use crate::backend::cpu::team::Team;
use crate::math::Matrix;
use crate::optim::Moments;
use crate::proposal::Partitions;

/// Rows copied by one task.
const ROWS: usize = 512;

/// Reorders the rows of a table, its moments and its bias: from the order of the items to that of the places, or
/// back. Takes the memory of one table meanwhile.
pub(super) fn permute(team: &mut Team, table: RowTable<'_>, partitions: &Partitions, to_places: bool) {
    // The row that comes to stand at `row`.
    let source = |row: usize| match to_places {
        true => partitions.item(row as u32) as usize,
        false => partitions.place(row as u32) as usize,
    };
    let mut spare = Matrix::zeros(table.rows.rows(), table.rows.cols());
    let Moments { first, second, second_stride, touched } = table.moments;
    let shared = *second_stride == 1;
    let mut reorder = |matrix: &mut Matrix| {
        let stride = matrix.stride();
        if spare.cols() != matrix.cols() {
            spare = Matrix::zeros(matrix.rows(), matrix.cols());
        }
        let mut chunks: Vec<&mut [f32]> = spare.data_mut().chunks_mut(ROWS * stride).collect();
        team.for_each_mut(&mut chunks, |chunk, rows| {
            for (k, row) in rows.chunks_exact_mut(stride).enumerate() {
                row.copy_from_slice(matrix.row(source(chunk * ROWS + k)));
            }
        });
        std::mem::swap(matrix, &mut spare);
    };
    reorder(table.rows);
    reorder(first);
    if shared {
        reorder_column(&mut second.data_mut()[..touched.len()], source);
    } else {
        reorder(second);
    }
    reorder_column(touched, source);
    if let Some(bias) = table.bias {
        for column in [bias.values, bias.first, bias.second] {
            reorder_column(column, source);
        }
    }
}

fn reorder_column<T: Copy>(column: &mut [T], source: impl Fn(usize) -> usize) {
    let reordered: Vec<T> = (0..column.len()).map(|row| column[source(row)]).collect();
    column.copy_from_slice(&reordered);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::rows::BiasColumn;
    use crate::math::List;

    #[test]
    fn there_and_back_changes_nothing_and_there_is_the_order_of_the_places() {
        let items: Vec<u32> = (0..1300).map(|k| (k * 7 + 3) % 1300).collect();
        let partitions = Partitions::lists(&items, &[0, 400, 1300], 2);
        let values: Vec<f32> = (0..1300 * 3).map(|x| x as f32).collect();
        let mut rows = Matrix::from_rows(1300, 3, &values);
        let touched = List::from(&(0..1300).collect::<Vec<_>>()[..]);
        let second_stride = rows.stride();
        let mut moments = Moments { first: rows.clone(), second: rows.clone(), second_stride, touched };
        let mut columns = [0, 1, 2].map(|c| (0..1300).map(|row| (row * 10 + c) as f32).collect::<Vec<_>>());
        let start = (rows.clone(), columns.clone());
        for to_places in [true, false] {
            let [values, first, second] = &mut columns;
            let bias = Some(BiasColumn { values, first, second });
            let table = RowTable { rows: &mut rows, moments: &mut moments, bias };
            permute(&mut Team::new(2), table, &partitions, to_places);
            for (row, &item) in items.iter().enumerate().filter(|_| to_places) {
                assert_eq!(rows.row(row), start.0.row(item as usize));
                assert_eq!(moments.second.row(row), start.0.row(item as usize));
                assert_eq!(moments.touched[row], item);
                assert_eq!(columns[2][row], start.1[2][item as usize]);
            }
        }
        assert_eq!((rows.data(), columns), (start.0.data(), start.1));
    }
}
