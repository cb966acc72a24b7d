//! What can be asked of one model: filters, weights, reasons, variety, items like an item, and lists from the index.
//!
//!     cargo run --release -p fastvae --example ways_to_ask

use std::sync::Arc;

use fastvae::data::{GenerateOptions, Titles, generate};
use fastvae::recommend::{ListOptions, Request, SearchOptions, Seen};
use fastvae::train::{Control, Finish, TrainOptions};
use fastvae::{Config, Result, Training};

/// Shows it from start to end.
///
/// # Errors
/// What the library reports.
pub fn main() -> Result<()> {
    let mut options = GenerateOptions::default();
    (options.users, options.items, options.interactions) = (400, 200, 8_000);
    let data = Arc::new(generate(options)?);
    let titles = Titles::new((0..data.n_items()).map(|item| format!("Film {item}")));
    let config =
        Config { hidden: 64, latent: 32, epochs: 12, codewords: 8, learning_rate: 5e-3, ..Config::default() };
    let mut training = Training::new(Arc::clone(&data), &config, TrainOptions::default())?;
    training.run(|_| Control::Continue)?;
    let mut finish = Finish::default();
    (finish.data, finish.titles, finish.store_users) = (Some(data), Some(titles), true);
    let mut model = training.finish(finish)?;

    let mut explained = ListOptions::best(3);
    explained.reasons = 2;
    let mut varied = ListOptions::best(3);
    (varied.knobs.diversity, varied.knobs.popularity_penalty) = (0.3, 0.2);
    let mut quick = ListOptions::best(3);
    quick.approximate = true;
    // How much of the index a search visits is measured for the recall that is asked for.
    let mut search = SearchOptions::default();
    search.recall = 0.9;
    model.calibrate(None, &search)?;

    let played = [("3", 12.0), ("17", 1.0)].map(|(item, weight)| {
        let mut seen = Seen::from(item);
        seen.weight = Some(weight);
        seen
    });
    let mut filtered = Request::of(played.clone()).with(explained.clone());
    filtered.exclude = vec!["5".to_string()];
    let questions = [
        ("who played 3 often and 17 once, and why", filtered),
        ("the same with more variety", Request::of(played).with(varied)),
        ("user 7, from the index", Request::of_user("7").with(quick)),
        ("nobody that is known", Request::default().with(ListOptions::best(3))),
    ];
    let (names, requests): (Vec<&str>, Vec<Request>) = questions.into_iter().unzip();
    // Those that score every item share one pass over the item vectors.
    for (name, answer) in names.into_iter().zip(model.ask(&requests)) {
        let answer = answer?;
        println!("{name}{}", answer.fallback.map(|_| " (what stands in for a taste)").unwrap_or_default());
        for best in answer.items {
            let because: Vec<String> = best.because.into_iter().flatten().map(|reason| reason.item).collect();
            println!("  {:.2}  {} {because:?}", best.score, best.title.unwrap_or(best.item));
        }
    }
    println!("items like {}", model.title(3).unwrap_or_default());
    for near in model.similar(3, 3)? {
        println!("  {:.2}  {}", near.score, model.title(near.item).unwrap_or_default());
    }
    Ok(())
}
