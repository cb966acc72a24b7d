//! Log lines on standard error, which step aside for a progress bar.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Instant;

use indicatif::MultiProgress;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::prelude::*;

/// How much is said on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// Errors.
    Quiet,
    /// What happens, one line each.
    Normal,
    /// More of it.
    Verbose,
}

static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();

/// The bars on the terminal; log lines are written above them.
pub fn bars() -> &'static MultiProgress {
    static BARS: OnceLock<MultiProgress> = OnceLock::new();
    BARS.get_or_init(MultiProgress::new)
}

/// Whether a progress bar would be seen.
pub fn shows_bars() -> bool {
    VERBOSITY.get() != Some(&Verbosity::Quiet) && io::stderr().is_terminal()
}

/// Sends log lines of this program and its library to standard error.
pub fn start(verbosity: Verbosity) {
    VERBOSITY.get_or_init(|| verbosity);
    let level = match verbosity {
        Verbosity::Quiet => LevelFilter::ERROR,
        Verbosity::Normal => LevelFilter::INFO,
        Verbosity::Verbose => LevelFilter::DEBUG,
    };
    let lines = tracing_subscriber::fmt::layer()
        .compact()
        .with_target(false)
        .with_timer(SinceStart(Instant::now()))
        .with_ansi(io::stderr().is_terminal())
        .with_writer(AboveBars);
    // A second call, from a test, changes nothing.
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(Targets::new().with_target("fastvae", level)))
        .try_init();
}

/// Seconds since the program started.
struct SinceStart(Instant);

impl FormatTime for SinceStart {
    fn format_time(&self, line: &mut Writer<'_>) -> std::fmt::Result {
        write!(line, "{:8.2}s", self.0.elapsed().as_secs_f64())
    }
}

/// Standard error, with the bars out of the way while a line is written.
struct AboveBars;

impl Write for AboveBars {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        bars().suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl MakeWriter<'_> for AboveBars {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}
