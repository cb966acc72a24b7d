//! KL(N(mu, sigma^2) || N(0, 1)) and how much it weighs.

use crate::config::Kl;

/// How much the divergence of one user weighs in the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KlWeight {
    /// The same for every user (the paper's beta).
    Constant(f32),
    /// This much per interaction of the user (RecVAE's gamma).
    PerInteraction(f32),
}

impl KlWeight {
    /// The weight that `kl` asks for; where it gives neither beta nor gamma, gamma is chosen from the data.
    ///
    /// The chosen gamma is 0.04 where items are touched by 10 to 25 users on average. Above, it falls with that
    /// number to the power 0.65: an item seen often needs less of a prior. Below, it falls with the square: where
    /// most items are hardly ever seen, a strong prior leaves nothing but the popular ones. The form was fitted to
    /// the best values of four catalogues (`docs/defaults.md`).
    pub fn resolve(kl: &Kl, n_interactions: usize, n_items: usize) -> Self {
        let mean_count = n_interactions as f32 / n_items.max(1) as f32;
        match (kl.beta, kl.gamma) {
            (Some(beta), _) => Self::Constant(beta),
            (None, Some(gamma)) => Self::PerInteraction(gamma),
            (None, None) => {
                let often = (25.0 / mean_count.max(25.0)).powf(0.65);
                let seldom = (mean_count.min(10.0) / 10.0).powi(2).max(0.025);
                Self::PerInteraction(0.04 * often * seldom)
            }
        }
    }

    /// The weight for a user with `n` interactions.
    pub fn of(self, n: usize) -> f32 {
        match self {
            Self::Constant(beta) => beta,
            Self::PerInteraction(gamma) => gamma * n as f32,
        }
    }
}

/// The divergence of one user; adds `weight` times its gradient to the gradients of mean and log-variance.
/// `deviation` is exp(log_variance / 2).
///
/// KL = -1/2 sum(1 + logvar - mu^2 - exp(logvar)).
pub fn kl(
    mean: &[f32],
    log_variance: &[f32],
    deviation: &[f32],
    weight: f32,
    d_mean: &mut [f32],
    d_log_variance: &mut [f32],
) -> f64 {
    let mut sum = 0.0;
    for d in 0..mean.len() {
        let (mu, lv, variance) = (mean[d], log_variance[d], deviation[d] * deviation[d]);
        sum += f64::from(1.0 + lv - mu * mu - variance);
        d_mean[d] += weight * mu;
        d_log_variance[d] += weight * 0.5 * (variance - 1.0);
    }
    -0.5 * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_pass_finite_differences() {
        let (mean, log_variance) = ([0.3f32, -1.2, 0.0], [0.1f32, -2.0, 1.5]);
        let (mut d_mean, mut d_lv) = ([0.0; 3], [0.0; 3]);
        let deviation = |l: &[f32]| l.iter().map(|v| (v / 2.0).exp()).collect::<Vec<_>>();
        kl(&mean, &log_variance, &deviation(&log_variance), 1.0, &mut d_mean, &mut d_lv);
        let value = |m: &[f32], l: &[f32]| kl(m, l, &deviation(l), 0.0, &mut [0.0; 3], &mut [0.0; 3]);
        let h = 1e-2;
        for i in 0..3 {
            let (mut up, mut down) = (mean, mean);
            (up[i], down[i]) = (up[i] + h, down[i] - h);
            let slope = (value(&up, &log_variance) - value(&down, &log_variance)) / f64::from(2.0 * h);
            assert!((slope - f64::from(d_mean[i])).abs() < 1e-3);
            let (mut up, mut down) = (log_variance, log_variance);
            (up[i], down[i]) = (up[i] + h, down[i] - h);
            let slope = (value(&mean, &up) - value(&mean, &down)) / f64::from(2.0 * h);
            assert!((slope - f64::from(d_lv[i])).abs() < 1e-3);
        }
    }

    #[test]
    fn the_standard_normal_has_no_divergence() {
        assert_eq!(kl(&[0.0; 4], &[0.0; 4], &[1.0; 4], 1.0, &mut [0.0; 4], &mut [0.0; 4]), 0.0);
    }

    #[test]
    fn gamma_falls_where_items_are_seen_often_and_where_hardly_ever() {
        let auto = |interactions, items| match KlWeight::resolve(&Kl::default(), interactions, items) {
            KlWeight::PerInteraction(gamma) => gamma,
            KlWeight::Constant(_) => panic!("the default weighs per interaction"),
        };
        assert_eq!(auto(20_000, 1000), 0.04);
        assert!((auto(270_000, 1000) - 0.0085).abs() < 1e-4);
        assert!((auto(3400, 1000) - 0.0046).abs() < 1e-4);
        assert!((auto(1000, 1000) - 0.001).abs() < 1e-6);
    }
}
