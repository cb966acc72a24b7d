//! Where the time of a step goes.

use std::time::Instant;

/// A part of a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Phase {
    /// Dropout and the embedding bag.
    Encode,
    /// The dense layers and the latent draw.
    Dense,
    /// The proposal: preparation and the cells of the draws.
    Draw,
    /// The items of the draws.
    Settle,
    /// Logits of the draws and the softmax sum.
    Softmax,
    /// The positives: logits, loss, and the gradient at the query.
    Positives,
    /// Back through the dense layers.
    Backward,
    /// Gradients and updates of the item vectors.
    Items,
    /// Gradients and updates of the encoder's rows.
    Encoder,
    /// Gradients and updates of the dense layers.
    Head,
}

impl Phase {
    /// All phases, in the order of a step.
    pub const ALL: [Self; 10] = [
        Self::Encode,
        Self::Dense,
        Self::Draw,
        Self::Settle,
        Self::Softmax,
        Self::Positives,
        Self::Backward,
        Self::Items,
        Self::Encoder,
        Self::Head,
    ];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Encode => "encode",
            Self::Dense => "dense layers",
            Self::Draw => "draw cells",
            Self::Settle => "draw items",
            Self::Softmax => "softmax",
            Self::Positives => "positives",
            Self::Backward => "backward, dense",
            Self::Items => "items: gradient + Adam",
            Self::Encoder => "encoder: gradient + Adam",
            Self::Head => "dense: gradient + Adam",
        }
    }
}

/// Nanoseconds of each phase, summed over threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PhaseTimes {
    nanoseconds: [u64; Phase::ALL.len()],
}

impl PhaseTimes {
    /// Adds the time since `lap` to `phase` and starts the next lap.
    #[inline]
    pub(super) fn lap(&mut self, phase: Phase, lap: &mut Instant) {
        let now = Instant::now();
        self.nanoseconds[phase as usize] += (now - *lap).as_nanos() as u64;
        *lap = now;
    }

    /// Adds `other` to this.
    pub fn add(&mut self, other: &Self) {
        for (sum, nanoseconds) in self.nanoseconds.iter_mut().zip(&other.nanoseconds) {
            *sum += nanoseconds;
        }
    }

    /// Seconds of `phase`, summed over threads.
    pub fn seconds(&self, phase: Phase) -> f64 {
        self.nanoseconds[phase as usize] as f64 * 1e-9
    }
}
