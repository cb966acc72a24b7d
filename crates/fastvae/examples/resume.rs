//! A training that is stopped, saved, and goes on bit for bit where it was.
//!
//!     cargo run --release -p fastvae --example resume

use std::sync::Arc;

use fastvae::data::{GenerateOptions, generate};
use fastvae::train::{Control, Event, Finish, Outcome, TrainOptions};
use fastvae::{Config, Result, Training};

/// Shows it from start to end.
///
/// # Errors
/// What the library reports.
pub fn main() -> Result<()> {
    let mut options = GenerateOptions::default();
    (options.users, options.items, options.interactions) = (400, 200, 8_000);
    let data = Arc::new(generate(options)?);
    let config = Config { hidden: 32, latent: 16, epochs: 6, ..Config::default() };
    let losses =
        |training: &Training| -> Vec<f64> { training.records().iter().map(|record| record.loss).collect() };

    let mut whole = Training::new(Arc::clone(&data), &config, TrainOptions::default())?;
    whole.run(|_| Control::Continue)?;

    // The observer may stop a run after any step: on a signal, after a time, or, as here, after two epochs.
    let mut stopped = Training::new(Arc::clone(&data), &config, TrainOptions::default())?;
    let outcome = stopped.run(|event| match event {
        Event::Epoch(record) if record.epoch == 2 => Control::Stop,
        _ => Control::Continue,
    })?;
    assert_eq!(outcome, Outcome::Interrupted);
    let path = std::env::temp_dir().join(format!("resume-{}.checkpoint", std::process::id()));
    stopped.save_checkpoint(&path)?;
    drop(stopped);

    let mut resumed = Training::resume(Arc::clone(&data), &config, TrainOptions::default(), &path)?;
    std::fs::remove_file(&path).expect("the checkpoint was just written there");
    println!("resumed after {} epochs", resumed.records().len());
    resumed.run(|_| Control::Continue)?;
    assert_eq!(losses(&resumed), losses(&whole));
    println!("the losses of both runs: {:.3?}", losses(&whole));

    let mut finish = Finish::default();
    (finish.data, finish.store_users) = (Some(data), true);
    println!("{:?}", resumed.finish(finish)?);
    Ok(())
}
