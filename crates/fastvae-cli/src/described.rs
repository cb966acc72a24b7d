//! What a model says of itself, as a person reads it.

use fastvae::eval::Evaluation;
use fastvae::model::{Description, Learned};
use serde_json::{Map, Value, json};

use crate::display::thousands;
use crate::scores::{add_metrics, scores_table};

/// What of the data a model has learned from.
pub fn learned(learned: &Learned) -> String {
    let share = match learned.interactions {
        all if all == learned.of => "all interactions".to_string(),
        // Not rounded up to all.
        _ => format!("{:.1} % of the interactions", (learned.share() * 1000.0).floor() / 10.0),
    };
    match (learned.refit, learned.epochs) {
        (true, Some(epochs)) if learned.pair => {
            format!("{share}, in {epochs} epochs once these were chosen; beside the network that chose them")
        }
        (true, Some(epochs)) => format!("{share}, in {epochs} epochs once these were chosen"),
        (true, None) => format!("{share}, once it was measured"),
        (false, _) => share,
    }
}

/// What was measured on held-out interactions and on the validation part, as tables.
pub fn tables(description: &Description) -> String {
    let mut text = String::new();
    if let Some(evaluation) = &description.evaluation {
        let on = description.measured_on.as_ref().map(|on| format!(" ({on})")).unwrap_or_default();
        let n_users = thousands(evaluation.n_users);
        text.push_str(&format!("\nmeasured on held-out interactions of {n_users} users{on}\n"));
        text.push_str(&scores_table(evaluation, None));
    }
    if let Some(validation) = &description.validation {
        text.push_str(&validation_table(validation));
    }
    text
}

/// How a model does on the part that its epochs were chosen by.
pub fn validation_table(validation: &Evaluation) -> String {
    format!(
        "\nvalidation part, {} users: the epochs were chosen by it, so it flatters a little\n{}",
        thousands(validation.n_users),
        scores_table(validation, None)
    )
}

/// What the description says of learning and measuring, in JSON.
pub fn add_to(description: &Description, object: &mut Map<String, Value>) {
    let with_errors = |evaluation: &Evaluation| {
        let mut measured = Map::new();
        add_metrics(evaluation, &mut measured);
        measured.insert("n_users".into(), evaluation.n_users.into());
        Value::from(measured)
    };
    object.insert("learned".into(), json!(description.learned));
    object.insert("blend".into(), json!(description.blend));
    object.insert("validation".into(), json!(description.validation.as_ref().map(with_errors)));
    object.insert("measured_on".into(), json!(description.measured_on));
}
