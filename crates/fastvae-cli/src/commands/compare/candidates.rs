//! The small grid of settings that each model is tried with.

use fastvae::Config;
use fastvae::baseline::{Kind, Settings};
use fastvae::config::ModelKind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::settings::models;

/// What one training needs to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Candidate {
    /// A baseline.
    Baseline(Settings),
    /// FastVAE or Mult-VAE, which choose their weight of the KL divergence from the data themselves.
    Model(Box<Config>),
}

/// What can be compared: all that can be trained, and the other presets of fastvae.
pub fn comparable() -> impl Iterator<Item = &'static str> {
    models().chain(["fastvae-quick", "fastvae-best"])
}

/// The candidates of `model`, those of the defaults first.
pub fn candidates(model: &str, seed: u64, epochs: Option<usize>) -> Vec<Candidate> {
    let Ok(kind) = model.parse::<Kind>() else {
        let start = match model {
            "fastvae-quick" => Config::quick(),
            "fastvae-best" => Config::best(),
            _ => Config::default(),
        };
        let mut config = Config { seed, ..start };
        config.epochs = epochs.unwrap_or(config.epochs);
        if model == "mult-vae" {
            config.model = ModelKind::MultVae;
        }
        return vec![Candidate::Model(Box::new(config))];
    };
    let mut start = kind.settings();
    start.set_seed(seed);
    changes(kind).into_iter().map(|change| Candidate::Baseline(changed(&start, &change))).collect()
}

/// The keys that are tried, one object for each candidate.
fn changes(kind: Kind) -> Vec<Value> {
    match kind {
        Kind::Popularity => vec![json!({})],
        Kind::ItemKnn => {
            vec![json!({}), json!({ "weighting": "cosine" }), json!({ "weighting": "bm25" })]
        }
        Kind::Ease => [400.0, 100.0, 1600.0].map(|l| json!({ "regularization": l })).to_vec(),
        Kind::ItemRidge => vec![
            json!({}),
            json!({ "penalty": 15.0 }),
            json!({ "penalty": 150.0 }),
            json!({ "neighbours": 32, "penalty": 20.0 }),
            json!({ "power": 0.0 }),
        ],
        Kind::Wrmf => vec![
            json!({}),
            json!({ "regularization": 0.003 }),
            json!({ "alpha": 40.0 }),
            json!({ "factors": 32, "regularization": 0.03 }),
        ],
        Kind::Bpr | Kind::Warp | Kind::Aobpr | Kind::Dns | Kind::Pris | Kind::Sa => {
            vec![json!({}), json!({ "regularization": 0.02 }), json!({ "regularization": 0.05 })]
        }
    }
}

/// `start` with the keys of `change`.
fn changed(start: &Settings, change: &Value) -> Settings {
    let mut value = serde_json::to_value(start).expect("settings are JSON");
    if let (Value::Object(value), Value::Object(change)) = (&mut value, change) {
        value.extend(change.clone());
    }
    serde_json::from_value(value).expect("the grid has keys of its method")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_candidates_that_work() {
        for model in comparable() {
            let all = candidates(model, 7, Some(3));
            assert!(!all.is_empty());
            for candidate in &all {
                match candidate {
                    Candidate::Baseline(settings) => settings.validate().unwrap(),
                    Candidate::Model(config) => config.validate().unwrap(),
                }
                let json = serde_json::to_value(candidate).unwrap();
                assert!(model.starts_with(json["model"].as_str().unwrap()));
                assert_eq!(&serde_json::from_value::<Candidate>(json).unwrap(), candidate);
            }
        }
    }
}
