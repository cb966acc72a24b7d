//! [`Workers`]: the threads that compute, apart from those that talk.
//!
//! A request becomes one job of a pool with a thread for each core; inside it the library splits large catalogues
//! over threads that have nothing else to do. Jobs that wait are bounded, and a job whose client has given up is
//! dropped before it starts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rayon::ThreadPool;
use tokio::sync::{Semaphore, oneshot};

use crate::problem::Problem;

/// A pool of threads with a bounded queue.
#[derive(Debug)]
pub struct Workers {
    pool: ThreadPool,
    in_flight: Arc<Semaphore>,
    time: Duration,
}

impl Workers {
    /// `threads` threads (0: one for each core), at most `in_flight` jobs that run or wait, each for at most `time`.
    ///
    /// # Errors
    /// Where so many threads cannot be started.
    pub fn start(
        threads: usize,
        in_flight: usize,
        time: Duration,
    ) -> Result<Self, rayon::ThreadPoolBuildError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|at| format!("compute-{at}"))
            .build()?;
        Ok(Self { pool, in_flight: Arc::new(Semaphore::new(in_flight)), time })
    }

    /// Runs `work` on the pool.
    ///
    /// # Errors
    /// 429 where too many jobs wait, 503 where the time is over, 500 where `work` panicked; else what it gives.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let permit = Arc::clone(&self.in_flight).try_acquire_owned().map_err(|_| Problem::busy())?;
        let (answer, answered) = oneshot::channel();
        self.pool.spawn(move || {
            if !answer.is_closed() {
                let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                    tracing::error!("a request panicked");
                    Err(Problem::internal())
                });
                // A client that has gone needs no answer.
                let _ = answer.send(result);
            }
            drop(permit);
        });
        match tokio::time::timeout(self.time, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Problem::internal()),
            Err(_) => Err(Problem::overdue()),
        }
    }

    /// Runs `work` on the pool and waits for it: for what happens before a service starts.
    pub fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.pool.install(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_answer_and_the_next_job_runs() {
        let workers = Workers::start(1, 4, Duration::from_secs(5)).unwrap();
        let panicked = workers.run(|| -> Result<u32, Problem> { panic!("on purpose") }).await;
        assert_eq!(panicked, Err(Problem::internal()));
        assert_eq!(workers.run(|| Ok(7)).await, Ok(7));
    }

    #[tokio::test]
    async fn more_jobs_than_may_wait_are_refused_and_slow_ones_given_up() {
        let workers = Arc::new(Workers::start(1, 2, Duration::from_millis(300)).unwrap());
        let (release, released) = std::sync::mpsc::channel::<()>();
        let first = tokio::spawn({
            let workers = Arc::clone(&workers);
            async move {
                workers
                    .run(move || {
                        let _ = released.recv();
                        Ok(1)
                    })
                    .await
            }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        let second = tokio::spawn({
            let workers = Arc::clone(&workers);
            async move { workers.run(|| Ok(2)).await }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(workers.run(|| Ok(3)).await, Err(Problem::busy()));
        assert_eq!(first.await.unwrap(), Err(Problem::overdue()));
        assert_eq!(second.await.unwrap(), Err(Problem::overdue()));
        release.send(()).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(workers.run(|| Ok(4)).await, Ok(4));
    }
}
