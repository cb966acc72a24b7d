//! Is an autoencoder worth it on these data? It and three simple methods, measured on the same held-out items.
//!
//!     cargo run --release -p fastvae --example baselines

use std::sync::Arc;

use fastvae::baseline::Kind;
use fastvae::data::{GenerateOptions, Split, generate};
use fastvae::eval::Metric;
use fastvae::train::Control;
use fastvae::{Config, Model, Result, fit, train};

/// Shows it from start to end.
///
/// # Errors
/// What the library reports.
pub fn main() -> Result<()> {
    let mut options = GenerateOptions::default();
    (options.users, options.items, options.interactions) = (400, 200, 8_000);
    let parts = Split::Ratio(0.8).apply(&generate(options)?, 0)?;
    let learned_from = Arc::new(parts.train);

    let config = Config { hidden: 64, latent: 32, epochs: 12, learning_rate: 5e-3, ..Config::default() };
    let mut models: Vec<Model> = vec![train(Arc::clone(&learned_from), &config, |_| Control::Continue)?];
    for kind in [Kind::Popularity, Kind::ItemKnn, Kind::Ease] {
        models.push(fit(Arc::clone(&learned_from), &kind.settings(), |_| Control::Continue)?);
    }

    let metric: Metric = "ndcg@10".parse()?;
    for model in &models {
        let measured = model.evaluate(&learned_from, &parts.test, &[metric])?;
        println!("{:<12} {metric} {:.4}", model.name(), measured.mean(metric).unwrap_or(f64::NAN));
    }
    Ok(())
}
