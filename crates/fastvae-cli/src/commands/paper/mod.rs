//! `fastvae paper`: the paper's tables and figures, measured again.
//!
//! One file for each table or figure. What a part needs trained or timed goes through [`Session`], so that an
//! interrupted run goes on where it stopped, parts share what they have in common, and processes share the work.

mod clusters;
mod curve;
mod datasets;
mod divergence;
mod negatives;
mod page;
mod samplers;
mod session;
mod shapes;
mod table1;
mod table2;
mod table3;
mod time;
mod tuning;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::commands::with_threads;
use crate::failure::io;
use crate::interrupt;
use crate::output::print;

use page::Page;
use session::{Effort, Session};

/// Trials of the paper's comparison with baselines.
const TRIALS: usize = 5;

/// Measure the paper's tables and figures again
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae paper all --quick --data data
  fastvae paper table2 --data data -o reproduction
  fastvae paper fig-time

DATA holds gowalla.mat and ml10m.mat (variable `data`, users x items), or splits of them as NAME.train.tsv.zst and \
NAME.test.tsv.zst; amazon and netflix are taken where they are there. fig-time, table3 and shapes need no data.
Each part writes a plot (.svg, .png), its numbers (.csv) and a page (.md) that says which findings hold. Started \
again with the same DIR, it goes on where it stopped. Several processes may work in one DIR: each takes up what no \
other works on. Models train on a GPU where there is one.")]
pub struct Paper {
    /// Which table or figure
    #[arg(value_enum)]
    part: Part,

    /// Where results go [default: paper, or paper-quick with --quick]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Where the datasets are
    #[arg(long, value_name = "DIR", default_value = "data")]
    data: PathBuf,

    /// Few epochs and one trial: about ten minutes for everything on two cores
    #[arg(long)]
    quick: bool,

    /// Trials of table2, each with a split of its own [default: the paper's 5, or 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    trials: Option<u16>,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// A table or figure of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Statistics of the datasets
    Table1,
    /// Quality against the baselines
    Table2,
    /// Cost of drawing negatives against M, D, K and T
    Table3,
    /// Cumulative probabilities of the proposals against the softmax
    FigDivergence,
    /// Quality by epoch for each proposal
    FigSamplers,
    /// Time of drawing and of training as items grow
    FigTime,
    /// Quality by the number of negatives
    FigNegatives,
    /// Quality by the number of codewords
    FigClusters,
    /// Time and memory on catalogues of the shape of Amazon and Netflix
    Shapes,
    /// All of them
    All,
}

impl Part {
    const EACH: [Self; 9] = [
        Self::Table1,
        Self::Table2,
        Self::Table3,
        Self::FigDivergence,
        Self::FigSamplers,
        Self::FigTime,
        Self::FigNegatives,
        Self::FigClusters,
        Self::Shapes,
    ];

    fn page(self, session: &Session) -> Result<Page> {
        match self {
            Self::Table1 => table1::page(session),
            Self::Table2 => table2::page(session),
            Self::Table3 => table3::page(session),
            Self::FigDivergence => divergence::page(session),
            Self::FigSamplers => samplers::page(session),
            Self::FigTime => time::page(session),
            Self::FigNegatives => negatives::page(session),
            Self::FigClusters => clusters::page(session),
            Self::Shapes => shapes::page(session),
            Self::All => unreachable!("all is taken apart into its parts"),
        }
    }
}

impl Paper {
    /// Measures; exit code 130 for an interrupted run.
    pub fn run(self) -> Result<ExitCode> {
        let effort = if self.quick { Effort::Quick } else { Effort::Full };
        let output = self.output.unwrap_or_else(|| PathBuf::from(effort.directory()));
        let runs = output.join("runs");
        std::fs::create_dir_all(&runs).map_err(|source| io(&runs, source))?;
        let trials = self.trials.map_or(effort.choose(TRIALS, 1), usize::from);
        let session = Session { output, runs, data: self.data, effort, trials };
        interrupt::watch()?;
        let parts = if self.part == Part::All { Part::EACH.to_vec() } else { vec![self.part] };
        let mut pages = Vec::new();
        for part in parts {
            let page = match with_threads(self.threads, || part.page(&session))? {
                Err(error) if interrupt::ended(&error) => {
                    eprintln!("interrupted; the same command goes on from what is done");
                    return Ok(ExitCode::from(interrupt::EXIT_CODE));
                }
                page => page?,
            };
            page.write(&session.output)?;
            print(&page.terminal())?;
            pages.push(page);
        }
        if self.part == Part::All {
            page::write_index(&session.output, &pages)?;
        }
        print(&format!("results in {}\n", session.output.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
