//! What the default gives on small and odd data: beside the best of the simple methods, user by user, over five splits.
//!
//!     cargo test --release -p fastvae --test small_data -- --ignored --nocapture

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::PathBuf;
use std::sync::Arc;

use fastvae::baseline::Kind;
use fastvae::data::{GenerateOptions, IdMap, Interactions, ItemId, ReadOptions, Split, generate, read};
use fastvae::eval::{Measure, Metric};
use fastvae::internals::eval::evaluate_users;
use fastvae::internals::math::{Purpose, Stream};
use fastvae::train::Control;
use fastvae::{Config, Model, fit, train};

const METRIC: Metric = Metric { measure: Measure::Ndcg, k: 20 };
const SPLITS: u64 = 5;
/// What the default is set beside.
const SIMPLE: [Kind; 5] = [Kind::Popularity, Kind::ItemKnn, Kind::Ease, Kind::ItemRidge, Kind::Wrmf];

fn generated(users: usize, items: usize, interactions: usize) -> Interactions {
    let mut options = GenerateOptions::default();
    (options.users, options.items, options.interactions) = (users, items, interactions);
    generate(options).unwrap()
}

/// Users of `least` to `most` items, drawn by popularity and a taste of a few items beside each other.
fn drawn(users: usize, items: usize, least: u64, most: u64) -> Interactions {
    let (mut offsets, mut all) = (vec![0], Vec::new());
    for user in 0..users {
        let mut stream = Stream::new(7, Purpose::Generate, 3, user as u32);
        let n = least + stream.below(most - least + 1);
        let taste = (stream.uniform().powi(3) * items as f64) as u64;
        let mut history: Vec<ItemId> = Vec::new();
        while (history.len() as u64) < n {
            let item = match stream.uniform() < 0.6 {
                true => (taste + stream.below(1 + items as u64 / 50)) % items as u64,
                false => (stream.uniform().powi(3) * items as f64) as u64,
            };
            if !history.contains(&(item as ItemId)) {
                history.push(item as ItemId);
            }
        }
        history.sort_unstable();
        all.extend(history);
        offsets.push(all.len());
    }
    let ids = |n| Arc::new(IdMap::range(n));
    Interactions::from_parts(offsets, all, None, None, ids(users), ids(items)).unwrap()
}

fn movietweetings(users: usize) -> Option<Interactions> {
    let root = std::env::var_os("FASTVAE_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let path = root.join("movietweetings/ratings.dat");
    if !path.exists() {
        println!("skipped: {} is not there", path.display());
        return None;
    }
    let options = ReadOptions { min_rating: Some(7.0), ..ReadOptions::default() };
    let all = read(path, &options).unwrap();
    let mut some: Vec<u32> = (0..all.n_users() as u32).collect();
    Stream::new(3, Purpose::Split, 9, 0).shuffle(&mut some);
    some.truncate(users);
    some.sort_unstable();
    Some(fastvae::internals::data::drop_empty(&all.select_users(&some).unwrap()).unwrap())
}

/// The metric of each test user.
fn measured(model: &Model, train: &Interactions, test: &Interactions) -> Vec<f64> {
    evaluate_users(model, train, test, METRIC).unwrap().into_iter().map(|(_, value)| value).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The default's mean difference to the best simple method, in standard errors, over five splits.
fn compared(name: &str, data: &Interactions) -> f64 {
    let mut values = vec![Vec::new(); SIMPLE.len() + 1];
    let mut told = Vec::new();
    for seed in 0..SPLITS {
        let parts = Split::Ratio(0.8).apply(data, seed).unwrap();
        let learned_from = Arc::new(parts.train);
        for (values, kind) in values.iter_mut().zip(SIMPLE) {
            let model = fit(Arc::clone(&learned_from), &kind.settings(), |_| Control::Continue).unwrap();
            values.extend(measured(&model, &learned_from, &parts.test));
        }
        let config = Config { seed, ..Config::default() };
        let model = train(Arc::clone(&learned_from), &config, |_| Control::Continue).unwrap();
        let blend = model.description().blend;
        told.push(blend.map_or_else(
            || model.name().to_string(),
            |b| format!("{} {:.1}/{}/{:.3}", model.name(), b.weight, b.penalty, b.popularity),
        ));
        values[SIMPLE.len()].extend(measured(&model, &learned_from, &parts.test));
    }
    let own = values.pop().unwrap();
    let best = (0..SIMPLE.len()).max_by(|&a, &b| mean(&values[a]).total_cmp(&mean(&values[b]))).unwrap();
    let differences: Vec<f64> = own.iter().zip(&values[best]).map(|(own, best)| own - best).collect();
    let n = differences.len() as f64;
    let difference = mean(&differences);
    let spread = differences.iter().map(|d| (d - difference).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    let errors = difference / (spread / n).sqrt().max(1e-12);
    let all: Vec<String> =
        SIMPLE.iter().zip(&values).map(|(kind, values)| format!("{kind} {:.4}", mean(values))).collect();
    println!(
        "{name}: default {:.4} ({errors:+.1} standard errors to the best); {}",
        mean(&own),
        all.join(", ")
    );
    println!("    {}", told.join("; "));
    errors
}

#[test]
#[ignore = "trains for minutes"]
fn the_default_is_not_below_the_best_simple_method_on_small_data() {
    let mut sets = vec![
        ("300 users x 200 items", generated(300, 200, 6_000)),
        ("1,000 x 500, dense", generated(1_000, 500, 60_000)),
        ("4,000 users of 2 to 8 items over 10,000", drawn(4_000, 10_000, 2, 8)),
        ("12 heavy users", generated(12, 400, 1_500)),
        ("500 users of 1 to 4 items", drawn(500, 300, 1, 4)),
        ("3,000 users x 60 items", generated(3_000, 60, 30_000)),
        ("25 items", generated(200, 25, 1_500)),
    ];
    for users in [300, 5_000] {
        if let Some(data) = movietweetings(users) {
            sets.push((
                if users == 300 { "movietweetings, 300 users" } else { "movietweetings, 5,000 users" },
                data,
            ));
        }
    }
    let below: Vec<&str> =
        sets.iter().filter(|(name, data)| compared(name, data) < -1.0).map(|&(name, _)| name).collect();
    assert!(below.is_empty(), "below the best simple method by more than a standard error: {below:?}");
}
