//! [`Knobs`]: how a list differs from the plain best n, decided when it is asked for.

use crate::data::ItemId;
use crate::error::{Error, Result};
use crate::math::{Purpose, Stream};

/// What a list is made of beside the scores. The default changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Knobs {
    /// Subtracted from each score for each unit of ln(1 + count of the item): 0 to 2. At 1 an item ten times as
    /// popular must be ten times as likely.
    pub popularity_penalty: f32,
    /// From 0, the best scores, to 1, items as unlike each other as possible (maximal marginal relevance).
    pub diversity: f32,
    /// Above 0 the list is drawn without replacement from the softmax of score / temperature: 0 to 10.
    pub temperature: f32,
    /// Seed of that draw.
    pub seed: u64,
}

impl Knobs {
    /// Checks every value once.
    ///
    /// # Errors
    /// [`Error::Config`] with the first one out of its range.
    pub fn validate(&self) -> Result<()> {
        let ranges = [
            ("popularity_penalty", self.popularity_penalty, 2.0),
            ("diversity", self.diversity, 1.0),
            ("temperature", self.temperature, 10.0),
        ];
        for (key, value, most) in ranges {
            if !(0.0..=most).contains(&value) {
                return Err(Error::config(key, format!("is {value}"), format!("give 0 to {most}")));
            }
        }
        Ok(())
    }

    /// Whether scores are used as they are.
    pub(super) fn keeps_scores(&self) -> bool {
        self.popularity_penalty == 0.0 && self.temperature == 0.0
    }
}

/// Standard Gumbel noise of `item`: -ln(-ln u) with u uniform in (0, 1).
pub(super) fn gumbel(seed: u64, item: ItemId) -> f32 {
    let word = Stream::new(seed, Purpose::Recommend, u32::MAX, item).next_word();
    let uniform = (f64::from(word) + 0.5) / (1u64 << 32) as f64;
    -(-uniform.ln()).ln() as f32
}
