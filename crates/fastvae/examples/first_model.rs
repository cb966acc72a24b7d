//! From interactions to a list: split, train, measure, save, load, ask.
//!
//!     cargo run --release -p fastvae --example first_model [ratings.csv]

use std::path::Path;

use fastvae::data::{GenerateOptions, Interactions, ReadOptions, Split, generate, read};
use fastvae::recommend::{ListOptions, Request};
use fastvae::train::{Control, Event};
use fastvae::{Config, Model, Result, train};

/// The file that the command names, or a small generated catalogue.
fn interactions() -> Result<Interactions> {
    match std::env::args().nth(1).filter(|path| Path::new(path).is_file()) {
        Some(path) => read(path, &ReadOptions::default()),
        None => {
            let mut options = GenerateOptions::default();
            (options.users, options.items, options.interactions) = (400, 200, 8_000);
            generate(options)
        }
    }
}

/// Shows it from start to end.
///
/// # Errors
/// What the library reports.
pub fn main() -> Result<()> {
    let data = interactions()?;
    let parts = Split::Ratio(0.8).apply(&data, 0)?;

    let config = Config { hidden: 64, latent: 32, epochs: 12, learning_rate: 5e-3, ..Config::default() };
    let model = train(parts.train.clone(), &config, |event| {
        if let Event::Epoch(epoch) = event {
            println!("epoch {:2}: loss {:.2}", epoch.epoch, epoch.loss);
        }
        Control::Continue
    })?;
    println!("{}", model.evaluate(&parts.train, &parts.test, &["ndcg@10".parse()?, "recall@10".parse()?])?);

    let path = std::env::temp_dir().join(format!("first-model-{}.fastvae", std::process::id()));
    model.save(&path)?;
    let model = Model::load(&path)?;
    std::fs::remove_file(&path).expect("the model was just written there");

    // Somebody who was never seen in training, by what they did.
    let name = |item| model.item_ids().name(item).into_owned();
    let request = Request::of([name(3), name(17), name(42)]).with(ListOptions::best(5));
    for answer in model.ask(&[request]) {
        for best in answer?.items {
            println!("{:>6}  {:.2}", best.item, best.score);
        }
    }
    Ok(())
}
