//! Ctrl-C: the first one asks to stop at the next step, the second one stops at once.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// What a shell shows for a program that Ctrl-C ended.
pub const EXIT_CODE: u8 = 130;

static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// Takes Ctrl-C, and a request to terminate, from now on.
pub fn watch() -> Result<()> {
    ctrlc::set_handler(|| {
        if REQUESTS.fetch_add(1, Ordering::SeqCst) > 0 {
            std::process::exit(EXIT_CODE.into());
        }
        eprintln!("stopping; press Ctrl-C again to stop at once");
    })
    .context("Ctrl-C cannot be watched")
}

/// Whether somebody asked to stop.
pub fn requested() -> bool {
    REQUESTS.load(Ordering::SeqCst) > 0
}

/// Whether `error` says that work ended for it.
pub fn ended(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(fastvae::Error::Interrupted))
}
