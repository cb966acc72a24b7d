//! Training on a validation part that is given.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use fastvae::data::{GenerateOptions, Generator, Interactions, Split};
use fastvae::eval::evaluate;
use fastvae::train::{Control, VALIDATION_METRIC};
use fastvae::{Config, Training};

fn parts() -> (Interactions, Interactions) {
    let options = GenerateOptions { users: 150, items: 80, interactions: 2000, ..GenerateOptions::default() };
    let data = Generator::new(options).unwrap().interactions().unwrap();
    let parts = Split::Ratio(0.8).apply(&data, 0).unwrap();
    (parts.train, parts.test)
}

fn config() -> Config {
    Config { hidden: 10, latent: 6, negatives: 12, codewords: 4, batch: 16, epochs: 5, ..Config::default() }
}

#[test]
fn a_given_validation_part_is_what_is_measured_and_nothing_is_held_out() {
    let (train, test) = parts();
    let config = Config { validate_every: 5, ..config() };
    let mut run = Training::with_validation(&config, train.clone(), test.clone()).unwrap();
    assert_eq!(run.train_part().n_interactions(), train.n_interactions());
    run.run(|_, _| Ok(Control::Continue)).unwrap();
    let told = run.records().last().unwrap().validation.unwrap();
    let model = run.into_model().unwrap();
    let evaluation = evaluate(model.parameters(), &train, &test, &[VALIDATION_METRIC]).unwrap();
    assert_eq!(evaluation.mean(VALIDATION_METRIC), Some(told));
}

#[test]
fn a_validation_part_of_other_users_items_or_nothing_is_refused() {
    let (train, test) = parts();
    let refused = |validation: Interactions| {
        Training::with_validation(&config(), train.clone(), validation).unwrap_err().to_string()
    };
    let fewer_users = test.select_users(&(0..100).collect::<Vec<_>>()).unwrap();
    assert!(refused(fewer_users).contains("100 x 80 users and items, the data is 150 x 80"));
    let fewer_items = test.select_items(&(0..70).collect::<Vec<_>>()).unwrap();
    assert!(refused(fewer_items).contains("150 x 70"));
    let nothing = test.partition(&vec![false; test.n_interactions()]).0;
    assert!(refused(nothing).contains("has 0 interactions"));
}
