//! A file of lists for every user, made block by block: neither the scores nor the lists of all are ever held.
//!
//!     cargo run --release -p fastvae --example lists_for_all

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use fastvae::data::{GenerateOptions, generate};
use fastvae::recommend::ListOptions;
use fastvae::train::Control;
use fastvae::{Config, Error, Result, train};

/// Shows it from start to end.
///
/// # Errors
/// What the library reports.
pub fn main() -> Result<()> {
    let mut options = GenerateOptions::default();
    (options.users, options.items, options.interactions) = (400, 200, 8_000);
    let data = Arc::new(generate(options)?);
    let config = Config { hidden: 32, latent: 16, epochs: 6, ..Config::default() };
    let model = train(Arc::clone(&data), &config, |_| Control::Continue)?;

    let path = std::env::temp_dir().join(format!("lists-{}.csv", std::process::id()));
    let to_file = |source| Error::io(&path, source);
    let mut file = BufWriter::new(File::create(&path).map_err(to_file)?);
    model.recommend_all(
        data.n_users(),
        |user| data.row(user),
        &ListOptions::best(5),
        |user, answer| {
            for best in answer.items {
                let (user, item) = (data.user_ids().name(user as u32), model.item_ids().name(best.item));
                writeln!(file, "{user},{item},{}", best.score).map_err(to_file)?;
            }
            Ok(())
        },
    )?;
    file.flush().map_err(to_file)?;
    println!("{} bytes of lists", file.get_ref().metadata().map_err(to_file)?.len());
    std::fs::remove_file(&path).map_err(to_file)
}
