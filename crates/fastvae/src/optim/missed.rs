//! What steps that passed over a row would have done to it.

use std::sync::OnceLock;

use super::{BETA1, BETA2, Update};

impl Update {
    /// What `gap` steps without a gradient do.
    #[inline(always)]
    pub(super) fn missed(&self, gap: u32) -> Missed {
        if gap == 0 {
            return Missed::default();
        }
        let Powers { first, second, steps } = powers(gap);
        Missed {
            momentum: self.rate * steps,
            decay: self.rate * self.coupled_decay * gap as f32,
            shrink: (1.0 - self.decoupled_decay).powi(gap.min(1 << 20) as i32),
            first,
            second,
        }
    }
}

/// What a row missed: factors on its moments, how far the rest of its momentum moves it (times the first moment over the
/// root of the second), how strongly coupled decay pulls (over that root), and what decoupled decay leaves.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Missed {
    pub momentum: f32,
    pub decay: f32,
    pub shrink: f32,
    pub first: f32,
    pub second: f32,
}

/// The moments' decay over some steps, and the sum of what the momentum is worth in each of them: it falls by BETA1 while
/// the root that it is divided by falls by the root of BETA2.
#[derive(Debug, Clone, Copy)]
struct Powers {
    first: f32,
    second: f32,
    steps: f32,
}

/// [`Powers`] of `gap` steps; looked up where it is short, as most are.
#[inline(always)]
fn powers(gap: u32) -> Powers {
    static TABLE: OnceLock<Vec<Powers>> = OnceLock::new();
    let compute = |gap: u32| {
        let (first, second) = (f64::from(BETA1), f64::from(BETA2));
        let ratio = first / second.sqrt();
        Powers {
            first: first.powf(gap.into()) as f32,
            second: second.powf(gap.into()) as f32,
            steps: (ratio * (1.0 - ratio.powf(gap.into())) / (1.0 - ratio)) as f32,
        }
    };
    let table = TABLE.get_or_init(|| (0..1024).map(compute).collect());
    table.get(gap as usize).copied().unwrap_or_else(|| compute(gap))
}
