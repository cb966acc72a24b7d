//! [`CoCounts`]: how often items are touched together, a row at a time.
//!
//! G = sum over users of weight_u x_u x_u^T is never held: a row of it is added up when it is asked for, from the histories
//! of the item's users, and left in a scratch of one number for each item.

use std::borrow::Cow;

use crate::baseline::by_item::ByItem;
use crate::data::{Interactions, ItemId, Row};
use crate::math::{Purpose, Stream};
use crate::network::History;

/// Items of a history that are paired, at most. Of a longer one so many are taken at equal distances from a random start, and
/// their pairs count for all: off the diagonal such a user's part has the standard error of a sample of that size, 2 % of
/// it where the pairs are alike.
const LONGEST: usize = 2000;

/// Where the rows come from.
pub(crate) struct CoCounts<'d> {
    offsets: Cow<'d, [usize]>,
    items: Cow<'d, [ItemId]>,
    /// What each interaction counts times the root of its user's weight, where not all of a user count alike.
    values: Option<Vec<f32>>,
    /// Each user's weight.
    weights: Vec<f32>,
    by_item: ByItem,
    diagonal: Vec<f32>,
}

/// A row of G while it is added up; kept from one row to the next.
#[derive(Debug, Default)]
pub(crate) struct CoCountRow {
    /// One for each item of the catalogue; zero where an item shares no user.
    pub sums: Vec<f32>,
    /// The items whose sum is not zero, in the order in which they were met.
    pub touched: Vec<ItemId>,
}

impl CoCountRow {
    /// Sets all of `n_items` to zero. Cost: those that were not.
    pub(crate) fn clear(&mut self, n_items: usize) {
        for other in self.touched.drain(..) {
            self.sums[other as usize] = 0.0;
        }
        self.sums.resize(n_items, 0.0);
    }

    /// Adds `value` to the sum of `other`. Where values may be negative, an item whose sum was zero again is noted twice.
    #[inline(always)]
    pub(crate) fn add(&mut self, other: ItemId, value: f32) {
        let sum = &mut self.sums[other as usize];
        if *sum == 0.0 && value != 0.0 {
            self.touched.push(other);
        }
        *sum += value;
    }
}

/// What the items of a history count: their weights, scaled so that their mean square is 1; 1 without weights.
pub(crate) fn item_value(history: History<'_>) -> impl Fn(usize) -> f32 {
    let scale = history.weights.map_or(1.0, |weights| {
        let square: f64 = weights.iter().map(|&weight| f64::from(weight).powi(2)).sum();
        if square > 0.0 { (weights.len() as f64 / square).sqrt() as f32 } else { 0.0 }
    });
    move |at| history.weights.map_or(1.0, |weights| scale * weights[at])
}

impl<'d> CoCounts<'d> {
    /// Of `data`, where a user with n items counts n^-`power`, scaled so that the mean interaction counts 1.
    pub(crate) fn of(data: &'d Interactions, power: f32) -> Self {
        let lengths = || data.offsets().windows(2).map(|span| span[1] - span[0]);
        let raw = |n: usize| if n == 0 { 0.0 } else { (n as f64).powf(-f64::from(power)) };
        let total: f64 = lengths().map(|n| raw(n) * n as f64).sum();
        let scale = data.n_interactions() as f64 / total.max(f64::MIN_POSITIVE);
        let weights: Vec<f32> = lengths().map(|n| (raw(n) * scale) as f32).collect();

        let mut diagonal = vec![0.0f64; data.n_items()];
        for (user, &weight) in weights.iter().enumerate() {
            let row = data.row(user);
            let value = item_value(row.into());
            for (at, &item) in row.items.iter().enumerate() {
                diagonal[item as usize] += f64::from(weight) * f64::from(value(at)).powi(2);
            }
        }
        let diagonal = diagonal.into_iter().map(|sum| sum as f32).collect();

        let (offsets, items, values) = match (lengths().any(|n| n > LONGEST), data.weights()) {
            (false, None) => (Cow::Borrowed(data.offsets()), Cow::Borrowed(data.items()), None),
            _ => thinned(data, &weights),
        };
        let by_item = ByItem::of_rows(data.n_items(), &offsets, &items);
        Self { offsets, items, values, weights, by_item, diagonal }
    }

    pub(crate) fn n_items(&self) -> usize {
        self.diagonal.len()
    }

    /// G_ii.
    pub(crate) fn own(&self, item: ItemId) -> f32 {
        self.diagonal[item as usize]
    }

    /// Puts the row of `item` in place of what `row` holds; the item's own place is left at zero. Sums are taken in the
    /// order of users. Cost: the length of the histories that hold the item.
    pub(crate) fn row(&self, item: ItemId, row: &mut CoCountRow) {
        row.clear(self.n_items());
        for at in self.by_item.offsets[item as usize]..self.by_item.offsets[item as usize + 1] {
            let user = self.by_item.users[at] as usize;
            let span = self.offsets[user]..self.offsets[user + 1];
            match &self.values {
                None => {
                    let weight = self.weights[user];
                    self.items[span].iter().for_each(|&other| row.add(other, weight));
                }
                Some(values) => {
                    let own = values[self.by_item.places[at]];
                    self.items[span.clone()]
                        .iter()
                        .zip(&values[span])
                        .for_each(|(&other, v)| row.add(other, own * v));
                }
            }
        }
        row.sums[item as usize] = 0.0;
    }
}

/// Chooses the items that are most alike; its room is kept from one choice to the next.
#[derive(Debug, Default)]
pub(crate) struct Nearest {
    keys: Vec<u64>,
}

impl Nearest {
    /// The `n` of some items that are most alike, ascending, each with its likeness; of equals the smaller item. Those whose
    /// likeness is not above zero are left out.
    pub(crate) fn of(
        &mut self,
        likeness: impl Iterator<Item = (ItemId, f32)>,
        n: usize,
    ) -> impl ExactSizeIterator<Item = (ItemId, f32)> {
        let pack = |high: u32, low: u32| (u64::from(high) << 32) | u64::from(low);
        // Positive numbers are ordered as their bits are, and whole numbers are sorted in half the time of pairs.
        self.keys.clear();
        let likeness = likeness.filter(|(_, likeness)| *likeness > 0.0);
        self.keys.extend(likeness.map(|(item, likeness)| pack(likeness.to_bits(), !item)));
        if self.keys.len() > n {
            self.keys.select_nth_unstable_by(n, |a, b| b.cmp(a));
            self.keys.truncate(n);
        }
        self.keys.iter_mut().for_each(|key| *key = pack(!(*key as u32), (*key >> 32) as u32));
        self.keys.sort_unstable();
        self.keys.iter().map(|&key| ((key >> 32) as ItemId, f32::from_bits(key as u32)))
    }
}

/// Offsets, items, and what each interaction counts.
type Histories<'d> = (Cow<'d, [usize]>, Cow<'d, [ItemId]>, Option<Vec<f32>>);

/// Histories of at most [`LONGEST`] items, and what each interaction counts in them.
fn thinned<'d>(data: &Interactions, weights: &[f32]) -> Histories<'d> {
    let (mut offsets, mut items, mut values) = (vec![0], Vec::new(), Vec::new());
    for (user, &weight) in weights.iter().enumerate() {
        let row: Row<'_> = data.row(user);
        let (value, n) = (item_value(row.into()), row.items.len());
        let kept = n.min(LONGEST);
        let (start, pairs) = match n > kept {
            true => {
                let start = Stream::new(0, Purpose::Thin, 0, user as u32).uniform();
                (start, (n * (n - 1)) as f64 / (kept * (kept - 1)) as f64)
            }
            false => (0.0, 1.0),
        };
        let root = (f64::from(weight) * pairs).sqrt() as f32;
        for at in 0..kept {
            let at = ((at as f64 + start) * n as f64 / kept as f64) as usize;
            items.push(row.items[at]);
            values.push(root * value(at));
        }
        offsets.push(items.len());
    }
    (Cow::Owned(offsets), Cow::Owned(items), Some(values))
}
