//! The item tables in the order of the items or of the proposal's partitions.

use bytemuck::cast_slice_mut;

use crate::backend::cpu::rows::RowTable;
use crate::backend::cpu::team::Team;
use crate::optim::{Moments, RowState};
use crate::proposal::Partitions;

/// Reorders the rows of a table, its moments and its bias in place: from the order of the items to that of the places, or
/// back.
pub(super) fn permute(team: &mut Team, table: RowTable<'_>, partitions: &Partitions, to_places: bool) {
    // The row that comes to stand at `row`.
    let source = |row: usize| match to_places {
        true => partitions.item(row as u32) as usize,
        false => partitions.place(row as u32) as usize,
    };
    let (n, stride) = (table.rows.rows(), table.rows.stride());
    let moments = table.moments.strides();
    let Moments { first, second, rows } = table.moments;
    let mut lists = vec![
        (table.rows.data_mut(), stride),
        (first.data_mut(), moments[0]),
        (second.data_mut(), moments[1]),
        (cast_slice_mut(rows), size_of::<RowState>() / size_of::<f32>()),
    ];
    if let Some(bias) = table.bias {
        lists.extend([bias.values, bias.first, bias.second].map(|column| (column, 1)));
    }
    lists.retain(|&(_, stride)| stride > 0);
    team.for_each_mut(&mut lists, |_, (values, stride)| reorder(&mut values[..n * *stride], *stride, source));
}

/// Moves rows of `stride` numbers, that of `source(row)` to `row`, one cycle of the permutation after the other. No second
/// table is taken for it: fresh memory would cost more time than the rows.
fn reorder(values: &mut [f32], stride: usize, source: impl Fn(usize) -> usize) {
    let mut done = vec![false; values.len() / stride];
    let mut held = vec![0.0; stride];
    for start in 0..done.len() {
        if done[start] {
            continue;
        }
        held.copy_from_slice(&values[start * stride..][..stride]);
        let mut row = start;
        loop {
            done[row] = true;
            let from = source(row);
            if from == start {
                break;
            }
            values.copy_within(from * stride..(from + 1) * stride, row * stride);
            row = from;
        }
        values[row * stride..][..stride].copy_from_slice(&held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::rows::BiasColumn;
    use crate::math::{List, Matrix};

    #[test]
    fn there_and_back_changes_nothing_and_there_is_the_order_of_the_places() {
        let items: Vec<u32> = (0..1300).map(|k| (k * 7 + 3) % 1300).collect();
        let partitions = Partitions::lists(&items, &[0, 400, 1300], 2);
        let values: Vec<f32> = (0..1300 * 3).map(|x| x as f32).collect();
        let mut rows = Matrix::from_rows(1300, 3, &values);
        let states: Vec<_> =
            (0..1300).map(|touched| RowState { touched, second: -(touched as f32) }).collect();
        let mut moments =
            Moments { first: rows.clone(), second: rows.clone(), rows: List::from(&states[..]) };
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
                assert_eq!(moments.rows[row], states[item as usize]);
                assert_eq!(columns[2][row], start.1[2][item as usize]);
            }
        }
        assert_eq!((rows.data(), columns), (start.0.data(), start.1));
    }
}
