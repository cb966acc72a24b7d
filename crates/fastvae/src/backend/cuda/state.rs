//! What the kernels are given; the same structures as in `kernels/state.cuh` and `kernels/index.cu`.

use cudarc::driver::DeviceRepr;

use crate::network::Tables;

/// An address in the device's memory; 0 for none.
pub(super) type Pointer = u64;

/// A table with its first and second moments.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Table {
    pub values: Pointer,
    pub first: Pointer,
    pub second: Pointer,
}

/// The rows of a table that a step touches.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Touched {
    pub stamp: Pointer,
    pub slot: Pointer,
    pub before: Pointer,
    pub rows: Pointer,
    pub gradient: Pointer,
    pub count: Pointer,
}

/// Where the run stands, on the device.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Clock {
    pub step: u64,
    pub epoch: u32,
    pub first: u32,
    pub n_users: u32,
    pub next: u32,
    pub learning_rate: f32,
    pub rate: f32,
    pub second_scale: f32,
    pub decoupled_decay: f32,
    pub anneal: f32,
    pub padding: u32,
    pub likelihood_loss: f64,
    pub kl: f64,
    pub weighted_kl: f64,
}

/// Where the state of a run lies, and its sizes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Run {
    pub offsets: Pointer,
    pub positives: Pointer,
    pub weights: Pointer,
    pub input_scale: Pointer,
    pub order: Pointer,
    pub encoder: Table,
    pub hidden_bias: Table,
    pub head: Table,
    pub head_bias: Table,
    pub items: Table,
    pub hidden: Pointer,
    pub d_hidden: Pointer,
    pub latent: Pointer,
    pub d_latent: Pointer,
    pub noise: Pointer,
    pub queries: Pointer,
    pub d_queries: Pointer,
    pub drawn: Pointer,
    pub logits: Pointer,
    pub positive_gradient: Pointer,
    pub log_sum: Pointer,
    pub pull: Pointer,
    pub losses: Pointer,
    pub touched_items: Touched,
    pub touched_encoder: Touched,
    pub codebooks: [Pointer; 2],
    pub codes: Pointer,
    pub list: Pointer,
    pub alias: Pointer,
    pub log_weights: Pointer,
    pub item_log_weights: Pointer,
    pub mass: Pointer,
    pub log_mass: Pointer,
    pub spans: Pointer,
    pub shares: Pointer,
    pub clock: Pointer,
    pub seed: u64,
    pub n_interactions: u64,
    pub anneal_steps: u64,
    pub n_items: u32,
    pub n_order: u32,
    pub batch: u32,
    pub samples: u32,
    pub negatives: u32,
    pub hidden_width: u32,
    pub hidden_stride: u32,
    pub latent_width: u32,
    pub latent_stride: u32,
    pub head_stride: u32,
    pub n_codewords: u32,
    pub score_stride: u32,
    pub n_slots: u32,
    pub one_word: u32,
    pub columns_start: [u32; 2],
    pub columns_end: [u32; 2],
    pub dropout_threshold: u32,
    pub tanh: u32,
    pub stratified: u32,
    pub dense_adam: u32,
    pub compact: u32,
    pub kl_per_interaction: u32,
    pub dropout_scale: f32,
    pub kl_weight: f32,
    pub coupled_decay: f32,
    pub log_probability: f32,
}

impl Run {
    /// The tables that the kernels know. Networks with others are refused by [`super::tables::unsupported`].
    pub const TABLES: [&str; 5] = ["encoder", "hidden_bias", "head", "head_bias", "items"];

    /// Gives the kernels these tables.
    pub fn take(&mut self, tables: Tables<Table>) {
        (self.encoder, self.hidden_bias, self.head) = (tables.encoder, tables.hidden_bias, tables.head);
        (self.head_bias, self.items) = (tables.head_bias, tables.items);
    }
}

/// One codebook's points.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Points {
    pub book: u32,
    pub residual: u32,
    pub n: u32,
    pub of: u32,
    pub offset: u64,
}

/// What the iterations of one codebook work on.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Clustering {
    pub codes: Pointer,
    pub sums: Pointer,
    pub counts: Pointer,
    pub farthest: Pointer,
}

/// Items whose scores are held at a time by the full softmax.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Tile {
    pub scores: Pointer,
    pub first: u32,
    pub n: u32,
    pub width: u32,
    pub padding: u32,
    pub tops: Pointer,
    pub sums: Pointer,
    pub d_queries: Pointer,
}

// SAFETY: plain numbers in the layout of the kernels' structures.
unsafe impl DeviceRepr for Run {}
// SAFETY: as above.
unsafe impl DeviceRepr for Clock {}
// SAFETY: as above.
unsafe impl DeviceRepr for Points {}
// SAFETY: as above.
unsafe impl DeviceRepr for Clustering {}
