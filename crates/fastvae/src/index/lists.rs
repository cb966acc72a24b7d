//! [`InvertedLists`]: the items of each cell that holds any.

use crate::data::ItemId;
use crate::math::List;

/// Codebooks of an index, at most.
pub(super) const MOST_CODEBOOKS: usize = 4;

/// The items of each cell, cells in the order of their codes and items of a cell in ascending order.
///
/// Only cells that hold items exist: there are at most n_items of them, however many code tuples there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvertedLists {
    starts: Vec<u32>,
    items: List<ItemId>,
    cell_of: List<u32>,
    codes: Vec<[u8; MOST_CODEBOOKS]>,
}

/// How the items spread over the cells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Occupancy {
    /// Cells that hold items.
    pub cells: usize,
    /// Cells that could be: K^m.
    pub possible: f64,
    /// Items in the largest cell.
    pub largest: usize,
    /// Entropy in nats of the cell of an item drawn at random; `ln possible` if all cells were alike.
    pub entropy: f64,
}

impl InvertedLists {
    /// Groups the items by their codes; `codes` is `n_codebooks x n_items`. Cost: O(n_codebooks (n_items + K^2)).
    ///
    /// # Panics
    /// If `codes` is not a whole number of codebooks, or more than four of them.
    pub fn new(codes: &[u8], n_items: usize) -> Self {
        let columns: Vec<&[u8]> = codes.chunks_exact(n_items.max(1)).collect();
        assert!(
            columns.len() <= MOST_CODEBOOKS && columns.len() * n_items == codes.len(),
            "codes by codebook"
        );
        // A stable counting sort by the codes of two codebooks at a time, the last ones first, orders the items by code
        // tuple without a table of K^m counts.
        let radix = codes.iter().max().map_or(1, |&largest| usize::from(largest) + 1);
        let (mut items, mut sorted) = (List::zeros(n_items), List::zeros(n_items));
        items.iter_mut().zip(0..).for_each(|(item, number): (&mut ItemId, u32)| *item = number);
        for pair in columns.chunks(2).rev() {
            let key =
                |item: usize| pair.iter().fold(0, |key, column| key * radix + usize::from(column[item]));
            let mut next = vec![0u32; radix.pow(pair.len() as u32) + 1];
            for item in 0..n_items {
                next[key(item) + 1] += 1;
            }
            for k in 1..next.len() {
                next[k] += next[k - 1];
            }
            for &item in &*items {
                let place = &mut next[key(item as usize)];
                sorted[*place as usize] = item;
                *place += 1;
            }
            std::mem::swap(&mut items, &mut sorted);
        }

        let mut lists = Self { starts: Vec::new(), items, cell_of: sorted, codes: Vec::new() };
        for (position, &item) in lists.items.iter().enumerate() {
            let mut tuple = [0; MOST_CODEBOOKS];
            for (code, column) in tuple.iter_mut().zip(&columns) {
                *code = column[item as usize];
            }
            if lists.codes.last() != Some(&tuple) {
                lists.codes.push(tuple);
                lists.starts.push(position as u32);
            }
            lists.cell_of[item as usize] = lists.codes.len() as u32 - 1;
        }
        lists.starts.push(n_items as u32);
        lists
    }

    /// Number of cells that hold items.
    pub fn n_cells(&self) -> usize {
        self.codes.len()
    }

    /// The items of `cell`, at least one.
    pub fn items(&self, cell: usize) -> &[ItemId] {
        &self.items[self.starts[cell] as usize..self.starts[cell + 1] as usize]
    }

    /// All items, cell after cell.
    pub fn all_items(&self) -> &[ItemId] {
        &self.items
    }

    /// Where each cell starts in [`InvertedLists::all_items`], and the number of items at the end.
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// The cell of each item.
    pub fn cell_of(&self) -> &[u32] {
        &self.cell_of
    }

    /// The codes of `cell`, one for each codebook and zeros after them.
    pub fn codes(&self, cell: usize) -> [u8; MOST_CODEBOOKS] {
        self.codes[cell]
    }

    /// How the items spread over the cells, of which there could be `possible`.
    pub fn occupancy(&self, possible: f64) -> Occupancy {
        let sizes = self.starts.windows(2).map(|w| (w[1] - w[0]) as usize);
        let n = self.items.len() as f64;
        let entropy = sizes.clone().map(|size| size as f64 / n).map(|share| -share * share.ln()).sum();
        Occupancy { cells: self.n_cells(), possible, largest: sizes.max().unwrap_or(0), entropy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{Purpose, Stream};

    #[test]
    fn cells_hold_every_item_once_in_the_order_of_their_codes() {
        let codes = [3, 0, 3, 200, 0, 0, 1, 1, 1, 0, 1, 0];
        let lists = InvertedLists::new(&codes, 6);
        assert_eq!(lists.n_cells(), 4);
        let cells: Vec<_> = (0..4).map(|cell| (lists.codes(cell), lists.items(cell).to_vec())).collect();
        assert_eq!(
            cells,
            [
                ([0, 0, 0, 0], vec![5]),
                ([0, 1, 0, 0], vec![1, 4]),
                ([3, 1, 0, 0], vec![0, 2]),
                ([200, 0, 0, 0], vec![3])
            ]
        );
        assert_eq!(lists.cell_of(), [2, 1, 2, 3, 1, 0]);
    }

    #[test]
    fn cells_of_any_number_of_codebooks_are_those_of_sorted_codes() {
        let mut stream = Stream::new(4, Purpose::Generate, 0, 0);
        for n_codebooks in 1..=MOST_CODEBOOKS {
            for largest in [0, 3, 255] {
                let n = 700;
                let codes: Vec<u8> = (0..n_codebooks * n).map(|_| stream.below(largest + 1) as u8).collect();
                let tuple =
                    |item: usize| -> Vec<u8> { (0..n_codebooks).map(|j| codes[j * n + item]).collect() };
                let mut expected: Vec<ItemId> = (0..n as ItemId).collect();
                expected.sort_by_key(|&item| tuple(item as usize));
                let lists = InvertedLists::new(&codes, n);
                assert_eq!(lists.all_items(), expected, "{n_codebooks} codebooks up to {largest}");
                for item in 0..n {
                    let cell = lists.cell_of()[item] as usize;
                    assert_eq!(lists.codes(cell)[..n_codebooks], tuple(item));
                    assert!(lists.items(cell).contains(&(item as ItemId)));
                }
            }
        }
    }

    #[test]
    fn empty_cells_own_no_items_and_do_not_exist() {
        let lists = InvertedLists::new(&[255; 4 * 5], 5);
        assert_eq!((lists.n_cells(), lists.items(0).len()), (1, 5));
        let occupancy = lists.occupancy(256f64.powi(4));
        assert_eq!((occupancy.cells, occupancy.largest, occupancy.entropy), (1, 5, 0.0));
    }
}
