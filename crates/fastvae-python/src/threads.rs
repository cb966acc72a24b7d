//! Work without the interpreter, on threads of our own.
//!
//! Not on rayon's global pool: after `os.fork`, as in `multiprocessing`, its threads are gone but it does not know,
//! and the child would wait for ever. Pools are kept by process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::marker::Ungil;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::errors::raised;

struct Pools {
    process: u32,
    by_size: HashMap<usize, Arc<ThreadPool>>,
}

static POOLS: Mutex<Option<Pools>> = Mutex::new(None);

/// Runs `work` on `n` threads (0: one per core) while other Python threads go on; raises what it reports.
pub fn detached<T: Ungil + Send>(
    py: Python<'_>,
    n: usize,
    work: impl FnOnce() -> fastvae::Result<T> + Ungil + Send,
) -> PyResult<T> {
    let pool = pool(n)?;
    py.detach(|| pool.install(work)).map_err(raised)
}

/// The pool of `n` threads of this process.
pub fn pool(n: usize) -> PyResult<Arc<ThreadPool>> {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if pools.as_ref().is_some_and(|pools| pools.process != process) {
        // The threads of the parent do not exist here: waiting for their end would never end.
        std::mem::forget(pools.take());
    }
    let pools = pools.get_or_insert_with(|| Pools { process, by_size: HashMap::new() });
    let n = if n == 0 { fastvae::internals::resources::available_threads() } else { n };
    if let Some(pool) = pools.by_size.get(&n) {
        return Ok(Arc::clone(pool));
    }
    let pool =
        ThreadPoolBuilder::new().num_threads(n).thread_name(|at| format!("fastvae-{at}")).build().map_err(
            |e| PyValueError::new_err(format!("{n} threads cannot be started ({e}); lower num_threads")),
        )?;
    let pool = Arc::new(pool);
    pools.by_size.insert(n, Arc::clone(&pool));
    Ok(pool)
}
