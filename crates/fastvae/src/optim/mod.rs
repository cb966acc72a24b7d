//! Adam, for one row of a table at a time.
//!
//! `adam` updates every row in every step, as the paper does; `lazy-adam` only the rows that the step touched,
//! so that its cost follows the batch. Both use this kernel. A row that was not touched for a while first catches up with
//! what `adam` would have done to it: its moments decay, what is left of its momentum moves it, and weight decay pulls at it.
//! Without that, lazy Adam ends a little below dense Adam (`docs/defaults.md`).

mod compact;
pub(crate) mod halves;
mod missed;

use bytemuck::{Pod, Zeroable};
use fearless_simd::{f32x16, i32x16, prelude::*};

use crate::config::{Config, MomentKind, Optimizer, WeightDecayMode};
use crate::math::matrix::LANES;
use crate::math::{List, Matrix};
use crate::network::Shape;

const BETA1: f32 = 0.9;
const BETA2: f32 = 0.999;
const EPSILON: f32 = 1e-8;
/// First moments below this are taken for zero, and full second moments below its square, with the gradients that they
/// come from: they are far too small to move anything. A moment that decays without end would come to where numbers lose
/// their precision and processors their speed, a hundredfold, and stay there: rounding keeps the smallest number from ever
/// reaching zero.
const NOTHING: f32 = 1e-18;

/// Running means of a table's gradient and of its square.
#[derive(Debug, Clone, Default)]
pub struct Moments {
    /// Mean of the gradient: as the table, or in rows half as long, whose floats hold two numbers each.
    pub first: Matrix,
    /// Mean of its square, as the table; without rows where each row has one number for all columns.
    pub second: Matrix,
    /// What there is one of for each row.
    pub rows: List<RowState>,
}

/// What an update needs of a row beside its numbers: together, since in a large catalogue each look is one at memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct RowState {
    /// The step, counted from 1, that touched the row last; 0 for none.
    pub touched: u32,
    /// Mean of the square of its gradient, where all columns share one.
    pub second: f32,
}

impl Moments {
    /// Zeros for a table of this shape.
    pub fn of(shape: Shape) -> Self {
        let [first, second] = Self::sizes(shape).map(|(rows, cols)| Matrix::zeros(rows, cols));
        Self { first, second, rows: List::zeros(shape.rows) }
    }

    /// Rows and columns of `first` and `second` for a table of this shape.
    pub fn sizes(Shape { rows, cols, moments, .. }: Shape) -> [(usize, usize); 2] {
        match moments {
            MomentKind::Full => [(rows, cols); 2],
            MomentKind::Compact => [(rows, halves::words(cols)), (0, 0)],
        }
    }

    /// Bytes that they take for a table of this shape.
    pub fn bytes_of(shape: Shape) -> u64 {
        let matrices = Self::sizes(shape).map(|(rows, cols)| Matrix::bytes_of(rows, cols));
        matrices.iter().sum::<u64>() + List::<RowState>::bytes_of(shape.rows)
    }

    /// Bytes that they take on disk for a table of this shape, without padding.
    pub fn stored_bytes_of(shape: Shape) -> u64 {
        let floats = Self::sizes(shape).iter().map(|(rows, cols)| rows * cols).sum::<usize>();
        (floats * size_of::<f32>() + shape.rows * size_of::<RowState>()) as u64
    }

    /// Zeros for a table of `rows` x `cols`, two floats for each number.
    #[cfg(test)]
    pub(crate) fn full(rows: usize, cols: usize) -> Self {
        Self { first: Matrix::zeros(rows, cols), second: Matrix::zeros(rows, cols), rows: List::zeros(rows) }
    }

    /// Whether all columns of a row share one second moment.
    pub fn is_compact(&self) -> bool {
        self.second.rows() < self.first.rows()
    }

    /// Floats of `first` and of `second` for each row; none of the latter where all columns share one.
    pub fn strides(&self) -> [usize; 2] {
        [self.first.stride(), if self.is_compact() { 0 } else { self.second.stride() }]
    }
}

/// One row, a multiple of 16 numbers, and its moments.
#[derive(Debug)]
pub struct Row<'a> {
    /// The row itself.
    pub parameter: &'a mut [f32],
    /// Its moments.
    pub moments: RowMoments<'a>,
}

/// The moments of one row.
#[derive(Debug)]
pub enum RowMoments<'a> {
    /// First and second, each as long as the row.
    Full(&'a mut [f32], &'a mut [f32]),
    /// First, two to a float, and one second for all columns.
    Compact {
        /// Those first ones.
        first: &'a mut [f32],
        /// That second one.
        second: &'a mut f32,
        /// What the squared gradient of one column adds to it: see [`share`].
        share: f32,
    },
}

impl<'a> RowMoments<'a> {
    /// Those kept as `first` and `second`, or in the `state` where there is no `second`; `share` is that of the table.
    #[inline(always)]
    pub fn of(first: &'a mut [f32], second: &'a mut [f32], state: &'a mut RowState, share: f32) -> Self {
        match second {
            [] => Self::Compact { first, second: &mut state.second, share },
            all => Self::Full(first, all),
        }
    }
}

/// What the square of one number adds to the second moment that all of `columns` share.
pub fn share(columns: usize) -> f32 {
    (1.0 - BETA2) / columns as f32
}

/// The scalars of one optimiser step.
#[derive(Debug, Clone, Copy)]
pub struct Update {
    /// Which rows are updated.
    pub optimizer: Optimizer,
    /// The step, counted from 1.
    step: u32,
    /// Learning rate over the first moment's bias correction.
    rate: f32,
    /// One over the root of the second moment's bias correction.
    second_scale: f32,
    /// Added to the gradient, times the parameter.
    coupled_decay: f32,
    /// Taken from the parameter, times the parameter.
    decoupled_decay: f32,
    /// Largest norm of a row's gradient.
    clip: f32,
}

impl Update {
    /// The update of step `step`, counted from 0, in epoch `epoch`, counted from 0.
    pub fn at(config: &Config, epoch: usize, step: u64) -> Self {
        let learning_rate = config.learning_rate * config.decay.at(epoch, config.epochs);
        let t = (step + 1).min(i32::MAX as u64) as i32;
        let correction = |beta: f32| 1.0 - f64::from(beta).powi(t);
        let (coupled, decoupled) = match config.weight_decay_mode {
            WeightDecayMode::Coupled => (config.weight_decay, 0.0),
            WeightDecayMode::Decoupled => (0.0, config.weight_decay * learning_rate),
        };
        Self {
            optimizer: config.optimizer,
            step: (step + 1) as u32,
            rate: (f64::from(learning_rate) / correction(BETA1)) as f32,
            second_scale: (1.0 / correction(BETA2).sqrt()) as f32,
            coupled_decay: coupled,
            decoupled_decay: decoupled,
            clip: config.clip.unwrap_or(f32::INFINITY),
        }
    }

    /// The steps that passed over a row since its last, which becomes this one.
    #[inline(always)]
    pub fn gap(&self, state: &mut RowState) -> u32 {
        let last = std::mem::replace(&mut state.touched, self.step);
        if last == 0 { 0 } else { self.step.saturating_sub(last + 1) }
    }

    /// Updates one row and its moments from its gradient, as long, after `gap` steps that passed over it. Padding whose
    /// parameter and gradient are zero stays zero. The gradient may be scaled in place. `ask` is called with the number
    /// of each vector of sixteen before it is updated: the time to ask for one of the next row.
    #[inline(always)]
    pub fn row<S: Simd>(&self, simd: S, row: Row<'_>, gradient: &mut [f32], gap: u32, ask: impl Fn(usize)) {
        let Row { parameter, moments } = row;
        if self.clip.is_finite() {
            let norm = gradient.iter().map(|g| g * g).sum::<f32>().sqrt();
            if norm > self.clip {
                gradient.iter_mut().for_each(|g| *g *= self.clip / norm);
            }
        }
        match moments {
            RowMoments::Full(first, second) => {
                self.full(simd, [parameter, first, second], gradient, gap, ask)
            }
            RowMoments::Compact { first, second, share } => {
                let (row, second) = ([parameter, first], (second, share));
                if gap == 0 {
                    self.compact::<_, false>(simd, row, second, gradient, gap, ask);
                } else {
                    self.compact::<_, true>(simd, row, second, gradient, gap, ask);
                }
            }
        }
    }

    /// [`Update::row`] with full moments.
    #[inline(always)]
    fn full<S: Simd>(
        &self,
        simd: S,
        [parameter, first, second]: [&mut [f32]; 3],
        gradient: &[f32],
        gap: u32,
        ask: impl Fn(usize),
    ) {
        // A copy: the compiler cannot know that the rows do not overlap the update.
        let update = *self;
        let (first, second) = (&mut first[..parameter.len()], &mut second[..parameter.len()]);
        let rows = parameter
            .as_chunks_mut::<LANES>()
            .0
            .iter_mut()
            .zip(first.as_chunks_mut::<LANES>().0)
            .zip(second.as_chunks_mut::<LANES>().0)
            .zip(gradient.as_chunks::<LANES>().0);
        if gap == 0 {
            for (line, (((parameter, first), second), gradient)) in rows.enumerate() {
                ask(line);
                let p = f32x16::load_array_ref(simd, parameter);
                let (m, v) = (f32x16::load_array_ref(simd, first), f32x16::load_array_ref(simd, second));
                let g = f32x16::load_array_ref(simd, gradient);
                let (p, m, v) = update.lanes(simd, p, m, v, g);
                p.store_slice(parameter);
                m.store_slice(first);
                v.store_slice(second);
            }
            return;
        }
        let missed = update.missed(gap);
        for (line, (((parameter, first), second), gradient)) in rows.enumerate() {
            ask(line);
            let p = f32x16::load_array_ref(simd, parameter);
            let (m, v) = (f32x16::load_array_ref(simd, first), f32x16::load_array_ref(simd, second));
            let g = f32x16::load_array_ref(simd, gradient);
            // Decay takes no more than there is, however small the root.
            let decay = f32x16::splat(simd, missed.decay);
            let root = update.root::<_, 2>(simd, v).max(decay);
            let p = (p - p.mul_add(decay, m * missed.momentum) * reciprocal(simd, root)) * missed.shrink;
            let (p, m, v) = update.lanes(simd, p, m * missed.first, v * missed.second, g);
            p.store_slice(parameter);
            m.store_slice(first);
            v.store_slice(second);
        }
    }

    /// Parameters, first and second moments after a step with gradient `g`.
    #[inline(always)]
    fn lanes<S: Simd>(
        &self,
        simd: S,
        p: f32x16<S>,
        m: f32x16<S>,
        v: f32x16<S>,
        g: f32x16<S>,
    ) -> (f32x16<S>, f32x16<S>, f32x16<S>) {
        let g = above(simd, p.mul_add(f32x16::splat(simd, self.coupled_decay), g), NOTHING);
        let m = above(simd, (g - m).mul_add(f32x16::splat(simd, 1.0 - BETA1), m), NOTHING);
        let v = (g * g).mul_add(f32x16::splat(simd, 1.0 - BETA2), v * BETA2);
        let v = above(simd, v, NOTHING * NOTHING);
        let p = p.mul_add(f32x16::splat(simd, -self.decoupled_decay), p);
        let step = m * self.rate * reciprocal(simd, self.root::<_, 2>(simd, v));
        (p - step, m, v)
    }

    /// What the first moment is divided by, after `STEPS` steps of Newton's method.
    #[inline(always)]
    fn root<S: Simd, const STEPS: usize>(&self, simd: S, v: f32x16<S>) -> f32x16<S> {
        let root = v * inverse_root::<_, STEPS>(simd, v);
        root.mul_add(f32x16::splat(simd, self.second_scale), f32x16::splat(simd, EPSILON))
    }

    /// As [`Update::row`], for one number; used for item biases, which do not decay.
    #[inline(always)]
    pub fn scalar(&self, parameter: &mut f32, first: &mut f32, second: &mut f32, gradient: f32, gap: u32) {
        if gap > 0 {
            let missed = self.missed(gap);
            *parameter -= missed.momentum * *first / (second.sqrt() * self.second_scale + EPSILON);
            *first *= missed.first;
            *second *= missed.second;
        }
        *first += (gradient - *first) * (1.0 - BETA1);
        *second = *second * BETA2 + gradient * gradient * (1.0 - BETA2);
        *parameter -= self.rate * *first / (second.sqrt() * self.second_scale + EPSILON);
    }
}

/// x where it is larger than `limit` or smaller than its negative, else zero.
#[inline(always)]
fn above<S: Simd>(simd: S, x: f32x16<S>, limit: f32) -> f32x16<S> {
    x.abs().simd_gt(f32x16::splat(simd, limit)).select(x, f32x16::splat(simd, 0.0))
}

/// `1 / sqrt(x)` for x >= 0, and some number for 0, to about 5e-6 with two steps of Newton's method and 2e-7 with three.
/// Roots and divisions go through one unit of the processor that is far slower than memory brings rows.
#[inline(always)]
fn inverse_root<S: Simd, const STEPS: usize>(simd: S, x: f32x16<S>) -> f32x16<S> {
    // Halving and negating the exponent's bits halves and negates the exponent (Blinn, 1997).
    let bits = i32x16::splat(simd, 0x5f37_59df) - (x.bitcast::<i32x16<S>>() >> 1);
    let mut y = bits.bitcast::<f32x16<S>>();
    let half = x * -0.5;
    for _ in 0..STEPS {
        y *= (half * y).mul_add(y, f32x16::splat(simd, 1.5));
    }
    y
}

/// `1 / x` for normal x, to about 1e-7.
#[inline(always)]
fn reciprocal<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
    let estimate = x.approximate_recip();
    estimate * (f32x16::splat(simd, 2.0) - x * estimate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::simd::level;
    use fearless_simd::dispatch;

    fn full<'a>(parameter: &'a mut [f32], first: &'a mut [f32], second: &'a mut [f32]) -> Row<'a> {
        Row { parameter, moments: RowMoments::Full(first, second) }
    }

    fn compact<'a>(
        parameter: &'a mut [f32],
        first: &'a mut [f32],
        second: &'a mut f32,
        columns: usize,
    ) -> Row<'a> {
        Row { parameter, moments: RowMoments::Compact { first, second, share: share(columns) } }
    }

    /// Kingma and Ba's algorithm 1 with L2 regularisation or decoupled decay, in f64.
    fn oracle(config: &Config, gradients: &[f64], start: f64) -> f64 {
        let (mut p, mut m, mut v) = (start, 0.0, 0.0);
        let (b1, b2, lr, wd) = (0.9, 0.999, f64::from(config.learning_rate), f64::from(config.weight_decay));
        for (t, &g) in gradients.iter().enumerate() {
            let coupled = config.weight_decay_mode == WeightDecayMode::Coupled;
            let g = if coupled { g + wd * p } else { g };
            m = b1 * m + (1.0 - b1) * g;
            v = b2 * v + (1.0 - b2) * g * g;
            let hat = |x: f64, b: f64| x / (1.0 - b.powi(t as i32 + 1));
            if !coupled {
                p -= lr * wd * p;
            }
            p -= lr * hat(m, b1) / (hat(v, b2).sqrt() + 1e-8);
        }
        p
    }

    #[test]
    fn rows_follow_the_published_algorithm() {
        for mode in [WeightDecayMode::Coupled, WeightDecayMode::Decoupled] {
            let config = Config {
                weight_decay: 0.1,
                weight_decay_mode: mode,
                learning_rate: 0.01,
                ..Config::default()
            };
            let gradients: Vec<f64> = (0..20).map(|t| (t as f64 * 0.7).sin() + 0.1).collect();
            let (mut p, mut m, mut v) = ([0.5; 16], [0.0; 16], [0.0; 16]);
            for (t, &g) in gradients.iter().enumerate() {
                let update = Update::at(&config, 0, t as u64);
                let mut gradient = [g as f32; 16];
                dispatch!(level(), simd => update.row(simd, full(&mut p, &mut m, &mut v), &mut gradient, 0, |_| ()));
            }
            assert!((f64::from(p[7]) - oracle(&config, &gradients, 0.5)).abs() < 1e-5);
        }
    }

    #[test]
    fn moments_that_only_decay_end_at_zero() {
        let config = Config { weight_decay: 0.0, ..Config::default() };
        let (mut p, mut m, mut v, mut shared) = ([0.5; 16], [1e-3; 16], [1e-6; 16], 1e-6);
        // The upper half of a float is a number, and there are no columns for the lower.
        let (mut q, mut n) = (p, m.map(|m: f32| f32::from_bits(m.to_bits() & 0xffff_0000)));
        for step in 0..200_000 {
            let update = Update::at(&config, 0, step);
            dispatch!(level(), simd => {
                update.row(simd, full(&mut p, &mut m, &mut v), &mut [0.0; 16], 0, |_| ());
                update.row(simd, compact(&mut q, &mut n, &mut shared, 16), &mut [0.0; 16], 0, |_| ());
            });
        }
        assert!(m.iter().chain(&v).chain(&n).all(|&moment| moment == 0.0), "{} {} {}", m[0], v[0], n[0]);
        assert!(p.iter().chain(&q).all(|p| p.is_finite()));
    }

    #[test]
    fn clipping_bounds_the_norm_of_a_row() {
        let config = Config { clip: Some(1.0), weight_decay: 0.0, ..Config::default() };
        let (mut p, mut m, mut v, mut g) = ([0.0; 16], [0.0; 16], [0.0; 16], [3.0; 16]);
        let update = Update::at(&config, 0, 0);
        dispatch!(level(), simd => update.row(simd, full(&mut p, &mut m, &mut v), &mut g, 0, |_| ()));
        assert!((g.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    }

    #[test]
    fn compact_rows_divide_rounded_moments_by_the_root_mean_square_of_their_columns() {
        // To eight bits.
        let rounded = |x: f64| {
            let unit = 2f64.powi(x.abs().log2().floor() as i32 - 7);
            (x / unit).round() * unit
        };
        let config = Config { weight_decay: 0.1, learning_rate: 0.01, ..Config::default() };
        // Twenty columns of a row padded to 32.
        let gradient = |t: u64, d: usize| if d < 20 { (t as f64 * 0.7 + d as f64).sin() } else { 0.0 };
        let (mut p, mut m, mut v) = ([0.0f32; 32], [0.0; 16], 0.0);
        p[..20].fill(0.5);
        let (mut expected, mut first, mut second) = ([0.5f64; 20], [0.0; 20], 0.0);
        for t in 0..20 {
            let update = Update::at(&config, 0, t);
            let mut gradients: [f32; 32] = std::array::from_fn(|d| gradient(t, d) as f32);
            dispatch!(level(), simd =>
                update.row(simd, compact(&mut p, &mut m, &mut v, 20), &mut gradients, 0, |_| ()));
            let g: Vec<f64> = (0..20).map(|d| gradient(t, d) + 0.1 * expected[d]).collect();
            second = 0.999 * second + 0.001 * g.iter().map(|g| g * g).sum::<f64>() / 20.0;
            let hat = |x: f64, b: f64| x / (1.0 - b.powi(t as i32 + 1));
            for d in 0..20 {
                first[d] = rounded(0.9 * first[d] + 0.1 * g[d]);
                expected[d] -= 0.01 * hat(first[d], 0.9) / (hat(second, 0.999).sqrt() + 1e-8);
            }
        }
        for (p, expected) in p.iter().zip(&expected) {
            assert!((f64::from(*p) - expected).abs() < 1e-4, "{p} {expected}");
        }
        // The columns from 16 on lie in the lower halves of the words.
        assert!(p[20..].iter().all(|&x| x == 0.0) && m[4..].iter().all(|m| m.to_bits() & 0xffff == 0));
    }

    /// A row that is touched in some steps only, updated in all of them or with what it missed.
    fn run(config: &Config, touched: impl Fn(u64) -> bool) -> [f32; 2] {
        let gradient = |step: u64| 0.5 + (step % 7) as f32 * 0.3;
        [Optimizer::Adam, Optimizer::LazyAdam].map(|optimizer| {
            let config = Config { optimizer, ..config.clone() };
            let shared = config.moments == MomentKind::Compact;
            let (mut p, mut m, mut v, mut state) = ([1.0f32; 16], [0.0; 16], [0.0; 16], RowState::default());
            for step in 5000..5400 {
                let update = Update::at(&config, 0, step);
                if !touched(step) && optimizer == Optimizer::LazyAdam {
                    continue;
                }
                let gap = update.gap(&mut state);
                assert!(optimizer == Optimizer::LazyAdam || gap == 0);
                let mut g = [if touched(step) { gradient(step) } else { 0.0 }; 16];
                let second = &mut v[..if shared { 0 } else { 16 }];
                let moments = RowMoments::of(&mut m, second, &mut state, share(16));
                let row = Row { parameter: &mut p, moments };
                dispatch!(level(), simd => update.row(simd, row, &mut g, gap, |_| ()));
            }
            p[0]
        })
    }

    #[test]
    fn a_lazy_row_catches_up_with_a_dense_one() {
        // Decay also enters the dense row's second moment and, once it has moved, acts on what is left: not exactly alike.
        for (weight_decay, weight_decay_mode, moments) in [
            (0.0, WeightDecayMode::Coupled, MomentKind::Full),
            (0.01, WeightDecayMode::Coupled, MomentKind::Full),
            (0.01, WeightDecayMode::Decoupled, MomentKind::Full),
            (0.01, WeightDecayMode::Coupled, MomentKind::Compact),
            (0.01, WeightDecayMode::Decoupled, MomentKind::Compact),
        ] {
            let config =
                Config { weight_decay, weight_decay_mode, moments, learning_rate: 1e-3, ..Config::default() };
            for every in [2, 5, 30] {
                let [dense, lazy] =
                    run(&config, |step| step.is_multiple_of(every) || [5000, 5399].contains(&step));
                let (moved, apart) = (1.0 - dense, (dense - lazy).abs());
                assert!(moved > 0.01 && apart < 0.01 * moved, "every {every}: {dense} {lazy}");
            }
        }
    }
}
