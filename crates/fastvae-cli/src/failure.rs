//! What goes wrong, as a person sees it: a message on standard error and an exit code.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// A mistake in how the program was called: exit code 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error of usage.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(message.into()))
}

/// Prints `error` with its causes, one a line, and gives the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    // Whoever read our output has seen enough: `fastvae inspect data.csv | head -1`.
    if error.chain().any(|cause| cause.downcast_ref::<crate::output::ReaderGone>().is_some()) {
        return ExitCode::SUCCESS;
    }
    let mut said = error.to_string();
    eprintln!("error: {said}");
    for cause in error.chain().skip(1) {
        // The library's messages already end with the operating system's reason.
        let cause = cause.to_string();
        if !said.contains(&cause) {
            eprintln!("  because: {cause}");
            said = cause;
        }
    }
    if is_usage(error) { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// Whether the call was wrong, rather than the world.
fn is_usage(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<Usage>()
            || matches!(cause.downcast_ref::<fastvae::Error>(), Some(fastvae::Error::Config { .. }))
    })
}

/// An input or output error of `path`.
pub fn io(path: &std::path::Path, source: io::Error) -> anyhow::Error {
    fastvae::Error::io(path, source).into()
}
