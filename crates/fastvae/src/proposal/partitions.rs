//! [`Partitions`]: the catalogue cut into parts whose item vectors fit a cache.
//!
//! A training step looks at the draws of many queries. Taken partition by partition instead of query by query,
//! the rows of a partition are loaded once and serve all queries, and each row's gradient has one owner.

use crate::config::Config;
use crate::data::ItemId;
use crate::math::List;

/// Bytes of item vectors that a partition should hold: with the gradients and moments of its rows, they fit a small
/// second-level cache.
const PARTITION_BYTES: usize = 256 << 10;
/// Bounds of the number of partitions: enough for threads to share, few enough for each to be worth a visit.
const FEWEST: usize = 8;
const MOST: usize = 64;
/// Draws of one query that a partition should hold, at least: fewer leave vectors half filled.
const DRAWS: usize = 16;

/// The items in some order, cut into consecutive parts. A **place** is a position in that order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partitions {
    /// First place of each partition, and the number of items at the end.
    starts: Vec<u32>,
    /// The partition of the first of each [`STRETCH`] places.
    by_stretch: Vec<u32>,
    /// None where a place is the item itself.
    order: Option<Order>,
}

/// Places whose partition is looked up at once: a search would be guessed wrong at every turn.
const STRETCH: u32 = 64;

fn by_stretch(starts: &[u32]) -> Vec<u32> {
    let n = starts[starts.len() - 1];
    let partition = |place: u32| starts.partition_point(|&start| start <= place) - 1;
    (0..n).step_by(STRETCH as usize).map(|place| partition(place) as u32).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Order {
    items: List<ItemId>,
    places: List<u32>,
}

impl Partitions {
    /// How many partitions suit a run.
    pub fn wanted(config: &Config, n_items: usize) -> usize {
        let bytes = n_items * config.latent.next_multiple_of(16) * size_of::<f32>();
        let by_draws = (config.negatives / DRAWS).clamp(FEWEST, MOST);
        bytes.div_ceil(PARTITION_BYTES).clamp(FEWEST, by_draws)
    }

    /// `n_items` items in the order of their numbers, in at most `wanted` parts of about one size.
    pub fn ranges(n_items: usize, wanted: usize) -> Self {
        let width = n_items.div_ceil(wanted.max(1)).max(1);
        let mut starts: Vec<u32> = (0..n_items).step_by(width).map(|start| start as u32).collect();
        starts.push(n_items as u32);
        Self { by_stretch: by_stretch(&starts), starts, order: None }
    }

    /// The items in the order of inverted lists, cut only where a list ends, in about `wanted` parts.
    pub fn lists(items: &[ItemId], list_starts: &[u32], wanted: usize) -> Self {
        let (mut places, order) = (List::zeros(items.len()), List::from(items));
        for (place, &item) in items.iter().enumerate() {
            places[item as usize] = place as u32;
        }
        let width = items.len().div_ceil(wanted.max(1)).max(1) as u32;
        let mut starts = vec![0];
        for &end in &list_starts[1..] {
            if end - starts[starts.len() - 1] >= width {
                starts.push(end);
            }
        }
        if starts[starts.len() - 1] != items.len() as u32 {
            starts.push(items.len() as u32);
        }
        Self { by_stretch: by_stretch(&starts), starts, order: Some(Order { items: order, places }) }
    }

    /// Number of partitions.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether there are none, which is so without items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether places differ from items.
    pub fn is_reordered(&self) -> bool {
        self.order.is_some()
    }

    /// The places of partition `partition`.
    pub fn range(&self, partition: usize) -> std::ops::Range<u32> {
        self.starts[partition]..self.starts[partition + 1]
    }

    /// First place of each partition, and the number of items at the end.
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// The item at `place`.
    #[inline(always)]
    pub fn item(&self, place: u32) -> ItemId {
        self.order.as_ref().map_or(place, |order| order.items[place as usize])
    }

    /// The place of `item`.
    #[inline(always)]
    pub fn place(&self, item: ItemId) -> u32 {
        self.order.as_ref().map_or(item, |order| order.places[item as usize])
    }

    /// The partition that holds `place`.
    #[inline(always)]
    pub fn of_place(&self, place: u32) -> usize {
        let mut partition = self.by_stretch[(place / STRETCH) as usize] as usize;
        while self.starts[partition + 1] <= place {
            partition += 1;
        }
        partition
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_belongs_to_the_partition_whose_range_holds_it() {
        let items: Vec<u32> = (0..100).rev().collect();
        let lists = [0, 1, 30, 31, 31, 60, 98, 100];
        for partitions in [Partitions::ranges(100, 7), Partitions::lists(&items, &lists, 4)] {
            assert!((3..=7).contains(&partitions.len()));
            for p in 0..partitions.len() {
                assert!(partitions.range(p).all(|place| partitions.of_place(place) == p));
            }
            assert!((0..100).all(|item| partitions.item(partitions.place(item)) == item));
        }
    }

    #[test]
    fn lists_are_not_cut() {
        let items: Vec<u32> = (0..100).collect();
        let partitions = Partitions::lists(&items, &[0, 3, 50, 52, 100], 50);
        assert_eq!(partitions.starts(), [0, 3, 50, 52, 100]);
        assert_eq!(Partitions::lists(&items, &[0, 100], 50).starts(), [0, 100]);
        assert_eq!(Partitions::ranges(3, 64).starts(), [0, 1, 2, 3]);
    }
}
