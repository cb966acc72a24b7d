//! One file that holds everything a model needs to serve: `*.fastvae`.
//!
//! A model file is a [`tensors`] file (safetensors) of format [`FORMAT`]:
//!
//! | array | type and shape | |
//! |---|---|---|
//! | `encoder` | f32, n_items x hidden | encoder rows |
//! | `hidden_bias` | f32, hidden | |
//! | `head`, `head_bias` | f32, hidden x 2 latent; 2 latent | dense layer to mean and log-variance |
//! | `items`, `item_bias` | f32, n_items x latent; n_items | item vectors; biases where the model has them |
//! | `item_counts` | u32, n_items | users who touched each item in training |
//! | `item_ids.integers`, or `item_ids.bytes` and `.ends` | i64; u8 and u64 | outside identifiers; neither for `0..n_items` |
//! | `titles.bytes`, `titles.ends` | u8, u64 | optional |
//! | `index.codewords.J`, `index.codes` | f32, K x columns; u8, m x n_items | optional |
//! | `users.offsets`, `users.items`, `users.weights` | u64, u32, f32 | optional histories, with `user_ids` as for items |
//!
//! Baselines have files of the same kind with other arrays: see [`crate::baseline`].
//!
//! Its texts are `kind` (`model`), `format`, and `description`: a [`Description`] in JSON.

mod description;
pub(crate) mod load;
mod model;
pub(crate) mod save;
pub mod tensors;

pub use description::{Calibration, Description};
pub use model::Model;

/// The version of the layout that this library writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// The text `kind` of model files.
pub(crate) const KIND: &str = "model";
