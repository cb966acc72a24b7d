//! Items like an item.

use crate::data::ItemId;
use crate::error::Result;
use crate::eval::Scored;
use crate::math::dots;
use crate::model_file::Model;
use crate::recommend::filter::ascending;
use crate::recommend::scan::best;

impl Model {
    /// The `n` items whose vectors point most nearly the way of `item`'s, nearest first, by cosine; without the
    /// item itself. Cost: items x latent, and once per model the same again for the lengths of the vectors.
    ///
    /// # Errors
    /// [`crate::Error::UnknownId`] if `item` is beyond the catalogue.
    pub fn similar(&self, item: ItemId, n: usize) -> Result<Vec<Scored>> {
        let itself = ascending(self.n_items(), &[item])?;
        let vectors = self.parameters().items.vectors;
        let lengths = self.inverse_norms();
        let mut query = vectors.row(item as usize).to_vec();
        query.iter_mut().for_each(|value| *value *= lengths[item as usize]);
        Ok(best(self.n_items(), n, &itself, |first, scores| {
            dots::block_dots(vectors.rows_from(first, scores.len()), &query, scores);
            for (score, length) in scores.iter_mut().zip(&lengths[first..]) {
                *score *= length;
            }
        }))
    }
}
