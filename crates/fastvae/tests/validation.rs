//! Training on a validation part that is given.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use fastvae::data::{GenerateOptions, Interactions, Split, generate};
use fastvae::internals::eval::evaluate;
use fastvae::internals::model::ModelInternals;
use fastvae::internals::train::{TrainingInternals, VALIDATION_METRIC};
use fastvae::train::{Control, Finish, Refit, TrainOptions};
use fastvae::{Config, Training};

fn parts() -> (Interactions, Interactions) {
    let options = GenerateOptions { users: 150, items: 80, interactions: 2000, ..GenerateOptions::default() };
    let data = generate(options).unwrap();
    let parts = Split::Ratio(0.8).apply(&data, 0).unwrap();
    (parts.train, parts.test)
}

/// What a run is told of the part that it is to stop by.
fn with(validation: Interactions) -> TrainOptions {
    let mut options = TrainOptions::default();
    options.validation = Some(Arc::new(validation));
    options
}

fn config() -> Config {
    Config { hidden: 10, latent: 6, negatives: 12, codewords: 4, batch: 16, epochs: 5, ..Config::default() }
}

#[test]
fn a_given_validation_part_is_what_is_measured_and_nothing_is_held_out() {
    let (train, test) = parts();
    let config = Config { validate_every: 5, ..config() };
    let mut run = Training::new(train.clone(), &config, with(test.clone())).unwrap();
    assert_eq!(run.train_part().n_interactions(), train.n_interactions());
    run.run(|_| Control::Continue).unwrap();
    let told = run.records().last().unwrap().validation.unwrap();
    let model = run.finish(Finish::default()).unwrap();
    let evaluation = evaluate(&model, &train, &test, &[VALIDATION_METRIC]).unwrap();
    let blend = model.description().blend.unwrap();
    assert!((blend.network_alone.unwrap() - told).abs() < 1e-9);
    let measured = evaluation.mean(VALIDATION_METRIC).unwrap();
    let chosen = if blend.without_network { blend.linear_alone } else { blend.together };
    assert!((measured - chosen.unwrap()).abs() < 1e-9 && measured > told, "{measured} {blend}");
    assert_eq!(model.description().validation.as_ref(), Some(&evaluation));
    assert_eq!(model.description().learned.unwrap().share(), 1.0);
}

#[test]
fn a_validation_part_of_other_users_items_or_nothing_is_refused() {
    let (train, test) = parts();
    let refused = |validation: Interactions| {
        Training::new(train.clone(), &config(), with(validation)).unwrap_err().to_string()
    };
    let fewer_users = test.select_users(&(0..100).collect::<Vec<_>>()).unwrap();
    assert!(refused(fewer_users).contains("100 x 80 users and items, the data is 150 x 80"));
    let fewer_items = test.select_items(&(0..70).collect::<Vec<_>>()).unwrap();
    assert!(refused(fewer_items).contains("150 x 70"));
    let nothing = test.partition(&vec![false; test.n_interactions()]).0;
    assert!(refused(nothing).contains("has 0 interactions"));
}

/// A run that holds a fifth of a tenth of the users out.
fn held_out(refit: Refit) -> fastvae::Model {
    let (train, _) = parts();
    // A network is asked for, which data so small would do without.
    let mut config = Config { patience: 2, validate_every: 1, ..config() };
    config.ridge.weight = Some(2.0);
    let mut options = TrainOptions::default();
    options.refit = refit;
    let mut run = Training::new(train.clone(), &config, options).unwrap();
    run.run(|_| Control::Continue).unwrap();
    let mut finish = Finish::default();
    finish.data = Some(Arc::new(train));
    finish.store_users = true;
    run.finish(finish).unwrap()
}

#[test]
fn what_was_held_out_to_choose_the_epochs_is_learned_where_it_is_much_and_told_where_it_is_not() {
    let (train, _) = parts();
    let model = held_out(Refit::Never);
    let learned = model.description().learned.unwrap();
    assert!(!learned.refit && learned.of == train.n_interactions() && learned.share() < 1.0, "{learned:?}");
    // Whatever was held out, what is stored is all that was given.
    assert_eq!(model.users().unwrap().items(), train.items());
    let model = held_out(Refit::On(Arc::new(train.clone())));
    let learned = model.description().learned.unwrap();
    assert!(learned.refit && learned.share() == 1.0, "{learned:?}");
    let chosen = model.description().epochs.iter().filter(|epoch| epoch.refit).count();
    assert_eq!(learned.epochs, Some(chosen));
    assert!(
        model.description().validation.as_ref().unwrap().metrics[&VALIDATION_METRIC].standard_error.is_some()
    );
}

#[test]
fn a_pair_keeps_the_network_that_chose_beside_the_one_of_everything() {
    let (train, test) = parts();
    let mut config = Config { pair: true, patience: 2, validate_every: 1, ..config() };
    config.ridge.weight = Some(2.0);
    let mut options = TrainOptions::default();
    options.refit = Refit::On(Arc::new(train.clone()));
    let mut run = Training::new(train.clone(), &config, options).unwrap();
    run.run(|_| Control::Continue).unwrap();
    let measured = run.evaluate(&train, &test, &[VALIDATION_METRIC]).unwrap();
    let model = run.finish(Finish::default()).unwrap();
    let network = model.network().unwrap();
    assert_eq!((network.hidden(), network.latent()), (2 * config.hidden, 2 * config.latent));
    assert!(model.description().learned.unwrap().pair);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pair.fastvae");
    model.save(&path).unwrap();
    let loaded = fastvae::Model::load(&path).unwrap();
    for model in [&model, &loaded] {
        assert_eq!(evaluate(model, &train, &test, &[VALIDATION_METRIC]).unwrap(), measured);
    }
    // Where it is not asked for, the second takes the place of the first.
    config.pair = false;
    let mut options = TrainOptions::default();
    options.refit = Refit::On(Arc::new(train.clone()));
    let mut run = Training::new(train.clone(), &config, options).unwrap();
    run.run(|_| Control::Continue).unwrap();
    let model = run.finish(Finish::default()).unwrap();
    assert_eq!(model.network().unwrap().hidden(), config.hidden);
    assert!(!model.description().learned.unwrap().pair);
}
