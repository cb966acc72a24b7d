//! Adam, for one row of a table at a time.
//!
//! `adam` updates every row in every step, as the paper does; `lazy-adam` only the rows that the step touched,
//! so that its cost follows the batch. Both use this kernel.

use fearless_simd::{f32x16, prelude::*};

use crate::config::{Config, Optimizer, WeightDecayMode};
use crate::math::Matrix;
use crate::math::matrix::LANES;

const BETA1: f32 = 0.9;
const BETA2: f32 = 0.999;
const EPSILON: f32 = 1e-8;

/// Running means of a table's gradient and of its square.
#[derive(Debug, Clone)]
pub struct Moments {
    /// Mean of the gradient.
    pub first: Matrix,
    /// Mean of its square.
    pub second: Matrix,
}

impl Moments {
    /// Zeros in the shape of `table`.
    pub fn like(table: &Matrix) -> Self {
        let zeros = || Matrix::zeros(table.rows(), table.cols());
        Self { first: zeros(), second: zeros() }
    }
}

/// The scalars of one optimiser step.
#[derive(Debug, Clone, Copy)]
pub struct Update {
    /// Which rows are updated.
    pub optimizer: Optimizer,
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
            rate: (f64::from(learning_rate) / correction(BETA1)) as f32,
            second_scale: (1.0 / correction(BETA2).sqrt()) as f32,
            coupled_decay: coupled,
            decoupled_decay: decoupled,
            clip: config.clip.unwrap_or(f32::INFINITY),
        }
    }

    /// Updates one row and its moments from its gradient; all slices are as long, a multiple of 16. Padding
    /// whose parameter and gradient are zero stays zero. The gradient may be scaled in place.
    #[inline(always)]
    pub fn row<S: Simd>(
        &self,
        simd: S,
        parameter: &mut [f32],
        first: &mut [f32],
        second: &mut [f32],
        gradient: &mut [f32],
    ) {
        if self.clip.is_finite() {
            let norm = gradient.iter().map(|g| g * g).sum::<f32>().sqrt();
            if norm > self.clip {
                gradient.iter_mut().for_each(|g| *g *= self.clip / norm);
            }
        }
        let rows = parameter
            .chunks_exact_mut(LANES)
            .zip(first.chunks_exact_mut(LANES))
            .zip(second.chunks_exact_mut(LANES))
            .zip(gradient.chunks_exact(LANES));
        for (((parameter, first), second), gradient) in rows {
            let p = f32x16::from_slice(simd, parameter);
            let g = p.mul_add(f32x16::splat(simd, self.coupled_decay), f32x16::from_slice(simd, gradient));
            let m = f32x16::from_slice(simd, first);
            let m = (g - m).mul_add(f32x16::splat(simd, 1.0 - BETA1), m);
            let v = f32x16::from_slice(simd, second) * BETA2;
            let v = (g * g).mul_add(f32x16::splat(simd, 1.0 - BETA2), v);
            let scale =
                v.sqrt().mul_add(f32x16::splat(simd, self.second_scale), f32x16::splat(simd, EPSILON));
            let p = p.mul_add(f32x16::splat(simd, -self.decoupled_decay), p);
            (p - m * self.rate / scale).store_slice(parameter);
            m.store_slice(first);
            v.store_slice(second);
        }
    }

    /// As [`Update::row`], for one number; used for item biases, which do not decay.
    #[inline(always)]
    pub fn scalar(&self, parameter: &mut f32, first: &mut f32, second: &mut f32, gradient: f32) {
        *first += (gradient - *first) * (1.0 - BETA1);
        *second = *second * BETA2 + gradient * gradient * (1.0 - BETA2);
        *parameter -= self.rate * *first / (second.sqrt() * self.second_scale + EPSILON);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::simd::level;
    use fearless_simd::dispatch;

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
                dispatch!(level(), simd => update.row(simd, &mut p, &mut m, &mut v, &mut gradient));
            }
            assert!((f64::from(p[7]) - oracle(&config, &gradients, 0.5)).abs() < 1e-5);
        }
    }

    #[test]
    fn clipping_bounds_the_norm_of_a_row() {
        let config = Config { clip: Some(1.0), weight_decay: 0.0, ..Config::default() };
        let (mut p, mut m, mut v, mut g) = ([0.0; 16], [0.0; 16], [0.0; 16], [3.0; 16]);
        let update = Update::at(&config, 0, 0);
        dispatch!(level(), simd => update.row(simd, &mut p, &mut m, &mut v, &mut g));
        assert!((g.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    }
}
