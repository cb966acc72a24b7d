//! [`TopK`]: the k best of a stream of scores.
//!
//! Almost every score of a large catalogue is below the k-th best seen so far. Sixty-four of them are compared
//! at a time against that threshold; only survivors are written, into a buffer that is cut back to the best k
//! when it is full.

use fearless_simd::{dispatch, f32x16, prelude::*};

use crate::data::ItemId;
use crate::math::matrix::LANES;
use crate::math::simd::level;

/// Scores compared between two branches.
const GROUP: usize = 4 * LANES;

/// An item and its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scored {
    /// The item.
    pub item: ItemId,
    /// Its score.
    pub score: f32,
}

/// The k best scores of a stream, ties going to the item that comes first.
///
/// Items are offered in ascending order. Scores of negative infinity and NaN are never kept, which is how items
/// are excluded. Memory: at most 16 bytes for each of the k, and 2 KB.
#[derive(Debug, Clone, Default)]
pub struct TopK {
    k: usize,
    /// The k-th best score so far, or negative infinity: only what exceeds it can still be among the best.
    threshold: f32,
    /// Candidates, packed so that a larger key is a better one; unordered.
    keys: Vec<u64>,
    /// Length of `keys` at which it is cut back.
    full: usize,
}

impl TopK {
    /// Forgets everything and asks for the `k` best of the next stream; the buffer is kept.
    pub fn reset(&mut self, k: usize) {
        self.k = k;
        self.threshold = if k == 0 { f32::INFINITY } else { f32::NEG_INFINITY };
        self.keys.clear();
        // Twice k balances cutting back (rarer with more room) against survivors of a stale threshold.
        self.full = k + k.max(256 - GROUP);
    }

    /// Offers `scores[i]` of the items `first + i`; items must come in ascending order over all calls.
    pub fn offer(&mut self, first: ItemId, scores: &[f32]) {
        dispatch!(level(), simd => self.offer_in(simd, first, scores));
    }

    #[inline(always)]
    fn offer_in<S: Simd>(&mut self, simd: S, first: ItemId, scores: &[f32]) {
        let mut groups = scores.chunks_exact(GROUP);
        let mut item = first;
        let mut threshold = f32x16::splat(simd, self.threshold);
        for group in &mut groups {
            let mut survivors = 0;
            for (part, lanes) in group.chunks_exact(LANES).enumerate() {
                survivors |=
                    f32x16::from_slice(simd, lanes).simd_gt(threshold).to_bitmask() << (part * LANES);
            }
            if survivors != 0 {
                self.push(item, group, survivors);
                threshold = f32x16::splat(simd, self.threshold);
            }
            item += GROUP as ItemId;
        }
        let tail = groups.remainder();
        let survivors =
            tail.iter().enumerate().fold(0, |bits, (i, &s)| bits | (u64::from(s > self.threshold) << i));
        self.push(item, tail, survivors);
    }

    /// Offers `scores[i]` of `items[i]`, in any order, where `allowed` says so; it is asked only about scores that
    /// would be kept. A stream is offered either this way or by [`TopK::offer`].
    pub fn offer_any(&mut self, items: &[ItemId], scores: &[f32], mut allowed: impl FnMut(ItemId) -> bool) {
        for (&item, &score) in items.iter().zip(scores) {
            // Not `>`: with items in any order a smaller one may come later with the same score.
            let may_be_kept = score >= self.threshold && score > f32::NEG_INFINITY && self.k > 0;
            if may_be_kept && allowed(item) {
                self.keys.push(key(item, score));
                if self.keys.len() >= self.full {
                    self.cut_back();
                }
            }
        }
    }

    /// Whether k scores have been kept.
    pub fn is_full(&self) -> bool {
        self.keys.len() >= self.k
    }

    /// Keeps `scores[i]` of `first + i` for each bit `i` of `survivors`.
    #[inline(always)]
    fn push(&mut self, first: ItemId, scores: &[f32], mut survivors: u64) {
        while survivors != 0 {
            let i = survivors.trailing_zeros();
            self.keys.push(key(first + i, scores[i as usize]));
            survivors &= survivors - 1;
        }
        if self.keys.len() >= self.full {
            self.cut_back();
        }
    }

    /// Drops all but the k best and raises the threshold to the worst of them.
    #[inline(never)]
    fn cut_back(&mut self) {
        if self.keys.len() > self.k {
            let (_, worst, _) = self.keys.select_nth_unstable_by(self.k - 1, |a, b| b.cmp(a));
            self.threshold = scored(*worst).score;
            self.keys.truncate(self.k);
        }
    }

    /// Appends the best to `out`, best first; fewer than k where fewer were offered. Empties the selection.
    pub fn drain_into(&mut self, out: &mut Vec<Scored>) {
        self.cut_back();
        self.keys.sort_unstable_by(|a, b| b.cmp(a));
        out.extend(self.keys.drain(..).map(scored));
    }
}

/// Score in the high half, mapped so that unsigned order is numeric order; item below, inverted so that the
/// smaller item wins a tie.
#[inline(always)]
fn key(item: ItemId, score: f32) -> u64 {
    // Adding zero turns -0 into +0: equal scores must have equal bits.
    let bits = (score + 0.0).to_bits();
    let ordered = bits ^ (((bits as i32 >> 31) as u32) | 0x8000_0000);
    (u64::from(ordered) << 32) | u64::from(!item)
}

/// The inverse of [`key`].
fn scored(key: u64) -> Scored {
    let ordered = (key >> 32) as u32;
    let bits = ordered ^ (((!ordered as i32 >> 31) as u32) | 0x8000_0000);
    Scored { item: !(key as u32), score: f32::from_bits(bits) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All scores sorted: what the fast path must equal.
    fn naive(k: usize, scores: &[f32]) -> Vec<Scored> {
        let mut all: Vec<Scored> = (0..)
            .zip(scores)
            .filter(|(_, s)| **s > f32::NEG_INFINITY)
            .map(|(item, &score)| Scored { item, score })
            .collect();
        all.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap().then(a.item.cmp(&b.item)));
        all.truncate(k);
        all
    }

    fn selected(k: usize, scores: &[f32], tile: usize) -> Vec<Scored> {
        let mut top = TopK::default();
        top.reset(k);
        for (t, scores) in scores.chunks(tile).enumerate() {
            top.offer((t * tile) as ItemId, scores);
        }
        let mut out = Vec::new();
        top.drain_into(&mut out);
        out
    }

    proptest! {
        #[test]
        fn selection_equals_a_full_sort(
            // Few distinct values, so that ties are everywhere.
            scores in prop::collection::vec(
                prop_oneof![
                    8 => (-20i32..20).prop_map(|v| v as f32 * 0.5),
                    8 => -1e3f32..1e3,
                    1 => Just(f32::NEG_INFINITY),
                    1 => Just(-0.0f32),
                ],
                0..3000,
            ),
            k in 0usize..700,
            tile in 1usize..600,
        ) {
            prop_assert_eq!(selected(k, &scores, tile), naive(k, &scores));
        }
    }

    proptest! {
        #[test]
        fn selection_in_any_order_equals_a_full_sort(
            scores in prop::collection::vec((-20i32..20).prop_map(|v| v as f32 * 0.5), 0..2000),
            k in 0usize..300,
            seed: u64,
        ) {
            let mut items: Vec<ItemId> = (0..scores.len() as ItemId).collect();
            crate::math::Stream::new(seed, crate::math::Purpose::Shuffle, 0, 0).shuffle(&mut items);
            let shuffled: Vec<f32> = items.iter().map(|&item| scores[item as usize]).collect();
            let masked: Vec<f32> = (0..).zip(&scores).map(|(i, &s)| if i % 3 == 0 { f32::NEG_INFINITY } else { s }).collect();
            let mut top = TopK::default();
            top.reset(k);
            for (items, scores) in items.chunks(97).zip(shuffled.chunks(97)) {
                top.offer_any(items, scores, |item| item % 3 != 0);
            }
            let mut out = Vec::new();
            top.drain_into(&mut out);
            prop_assert_eq!(out, naive(k, &masked));
        }
    }

    #[test]
    fn ascending_scores_survive_every_threshold() {
        let scores: Vec<f32> = (0..5000).map(|i| i as f32).collect();
        assert_eq!(selected(100, &scores, 512), naive(100, &scores));
    }

    #[test]
    fn ties_go_to_the_smaller_item() {
        let items: Vec<ItemId> = selected(5, &[1.0; 1000], 100).iter().map(|s| s.item).collect();
        assert_eq!(items, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn not_a_number_is_never_kept() {
        let mut scores = vec![f32::NAN; 200];
        scores[150] = -3.0;
        assert_eq!(selected(10, &scores, 64), [Scored { item: 150, score: -3.0 }]);
    }
}
