//! The `fastvae` command line: from a file of interactions to recommendations.
//!
//! One file per command under `commands`; flags that several commands share have a file of their own
//! (`data_flags`, `settings`). Standard output carries results only: a table, or with `--json` one object.
//! Everything else goes to standard error. Exit codes: 0 for success, 1 for failure, 2 for usage, 130 for an
//! interrupted training.

mod commands;
mod data_flags;
mod described;
mod display;
mod failure;
mod fit;
mod interrupt;
mod list_flags;
mod logging;
mod output;
mod plot;
mod progress;
mod scores;
mod settings;

use std::process::ExitCode;

use clap::Parser;
use fastvae::internals::math::simd;

use commands::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    logging::start(cli.verbosity());
    match simd::check_variable().map_err(Into::into).and_then(|()| cli.run()) {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}
