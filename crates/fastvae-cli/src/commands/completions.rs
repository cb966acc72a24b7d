//! `fastvae completions`: what a shell needs to complete commands and flags.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::commands::Cli;
use crate::output::print;

/// Print a script that completes commands and flags in your shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae completions bash > ~/.local/share/bash-completion/completions/fastvae
  fastvae completions zsh > ~/.zfunc/_fastvae
  fastvae completions fish > ~/.config/fish/completions/fastvae.fish")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Prints the script.
    pub fn run(self) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "fastvae", &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}
