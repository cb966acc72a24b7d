//! The commands, one file each.

mod bench;
mod compare;
mod completions;
mod demo;
mod doctor;
mod evaluate;
mod generate;
mod inspect;
mod paper;
mod plan;
mod prepare;
mod recommend;
mod serve;
mod similar;
mod train;

pub use recommend::tell_unknown;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::logging::Verbosity;

/// Recommendations from large catalogues: train, evaluate and recommend from a file of interactions.
#[derive(Debug, Parser)]
#[command(
    name = "fastvae",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "\
Try first:
  fastvae demo                                 needs no data, takes seconds
  fastvae inspect ratings.csv                  what a file of interactions holds
  fastvae train ratings.csv -o m.fastvae       train and evaluate, good defaults
  fastvae recommend m.fastvae --history 17,42  what to show who liked these
  fastvae serve m.fastvae                      the same over HTTP, with a page to try it on

`fastvae COMMAND --help` explains each command, with examples."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Say nothing but errors on standard error
    #[arg(short, long, global = true, conflicts_with = "verbose", display_order = 900)]
    quiet: bool,

    /// Say more on standard error
    #[arg(short, long, global = true, display_order = 901)]
    verbose: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    Generate(generate::Generate),
    Inspect(inspect::Inspect),
    Prepare(prepare::Prepare),
    Train(Box<train::Train>),
    Evaluate(evaluate::Evaluate),
    Compare(Box<compare::Compare>),
    Paper(paper::Paper),
    Recommend(Box<recommend::Recommend>),
    Similar(similar::Similar),
    Serve(serve::Serve),
    Plan(plan::Plan),
    Bench(bench::Bench),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
}

impl Cli {
    /// How much to say.
    pub fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        }
    }

    /// Runs the command.
    pub fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Demo(demo) => demo.run(),
            Command::Generate(generate) => generate.run().map(done),
            Command::Inspect(inspect) => inspect.run().map(done),
            Command::Prepare(prepare) => prepare.run().map(done),
            Command::Train(train) => train.run(),
            Command::Evaluate(evaluate) => evaluate.run().map(done),
            Command::Compare(compare) => compare.run(),
            Command::Paper(paper) => paper.run(),
            Command::Recommend(recommend) => recommend.run().map(done),
            Command::Similar(similar) => similar.run().map(done),
            Command::Serve(serve) => serve.run().map(done),
            Command::Plan(plan) => plan.run().map(done),
            Command::Bench(bench) => bench.run(),
            Command::Doctor(doctor) => doctor.run().map(done),
            Command::Completions(completions) => completions.run().map(done),
        }
    }
}

/// Runs `work` on `threads` threads; on one per core where not said.
///
/// # Errors
/// Where so many threads cannot be started.
fn with_threads<T: Send>(threads: Option<usize>, work: impl FnOnce() -> T + Send) -> Result<T> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads.unwrap_or(0))
        .build()
        .context("the threads cannot be started; give fewer --threads")?;
    Ok(pool.install(work))
}

fn done((): ()) -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flags_do_not_collide() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_of_train_lists_every_setting() {
        let command = Cli::command();
        let train = command.find_subcommand("train").expect("there is a command train");
        let help = train.get_after_help().map(ToString::to_string).unwrap_or_default();
        let words: Vec<&str> = help.split([' ', '\n', ';']).collect();
        for key in crate::settings::keys() {
            assert!(words.contains(&key.as_str()), "`{key}` is not in the help");
        }
    }

    #[test]
    fn every_command_has_examples() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:"), "{} has no examples", command.get_name());
        }
    }
}
