//! [`Workers`]: the threads that compute, apart from those that talk.
//!
//! A request becomes one job of a pool with a thread for each core; inside it the library splits large catalogues
//! over threads that have nothing else to do. Jobs that wait are bounded, and a job whose client has given up is
//! dropped before it starts. Jobs of a kind that is cheaper together wait in a [`Queue`] of their own.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rayon::ThreadPool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::problem::Problem;

/// A pool of threads with a bounded queue.
#[derive(Debug)]
pub struct Workers {
    pool: ThreadPool,
    in_flight: Arc<Semaphore>,
    time: Duration,
}

/// Questions worked on together, at most: enough for the item vectors to be read seldom, few enough for the first of
/// them not to wait long for the last.
pub const TOGETHER: usize = 8;

/// Questions of one kind that wait for a thread.
#[derive(Debug)]
pub struct Queue<Q, A>(Mutex<VecDeque<Waiting<Q, A>>>);

#[derive(Debug)]
struct Waiting<Q, A> {
    question: Q,
    answer: oneshot::Sender<Result<A, Problem>>,
    permit: OwnedSemaphorePermit,
}

impl<Q, A> Default for Queue<Q, A> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Q, A> Queue<Q, A> {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting<Q, A>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first questions whose askers are still there.
    fn take(&self) -> Vec<Waiting<Q, A>> {
        let mut waiting = self.lock();
        let mut taken = Vec::new();
        while taken.len() < TOGETHER
            && let Some(next) = waiting.pop_front()
        {
            if !next.answer.is_closed() {
                taken.push(next);
            }
        }
        taken
    }
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
        let permit = self.admit()?;
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
        self.in_time(answered).await
    }

    /// Runs `work` on the pool for `question` and for others that wait in `queue`, at most [`TOGETHER`] of them. It gives
    /// an answer to each question, in their order, and is the same work for all of a queue.
    ///
    /// A job is made for each question, but takes whatever waits: a question that finds a thread idle is worked on
    /// alone and at once, and only those that would wait anyway are worked on together.
    ///
    /// # Errors
    /// As [`Workers::run`].
    pub async fn run_together<Q: Send + 'static, A: Send + 'static>(
        &self,
        queue: &Arc<Queue<Q, A>>,
        question: Q,
        work: impl FnOnce(&[Q]) -> Vec<Result<A, Problem>> + Send + 'static,
    ) -> Result<A, Problem> {
        let permit = self.admit()?;
        let (answer, answered) = oneshot::channel();
        queue.lock().push_back(Waiting { question, answer, permit });
        let queue = Arc::clone(queue);
        self.pool.spawn(move || {
            let taken = queue.take();
            if taken.is_empty() {
                return;
            }
            let (questions, askers): (Vec<Q>, Vec<_>) =
                taken.into_iter().map(|waiting| (waiting.question, (waiting.answer, waiting.permit))).unzip();
            match catch_unwind(AssertUnwindSafe(|| work(&questions))) {
                Ok(answers) => {
                    for ((asker, permit), answer) in askers.into_iter().zip(answers) {
                        let _ = asker.send(answer);
                        drop(permit);
                    }
                }
                // Whoever asked hears of it, for there is no answer to come.
                Err(_) => tracing::error!("{} requests panicked together", questions.len()),
            }
        });
        self.in_time(answered).await
    }

    /// Leave to compute, where not too many have it.
    fn admit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.in_flight).try_acquire_owned().map_err(|_| Problem::busy())
    }

    async fn in_time<A>(&self, answered: oneshot::Receiver<Result<A, Problem>>) -> Result<A, Problem> {
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
    async fn questions_that_wait_are_worked_on_together_and_each_is_answered() {
        let workers = Arc::new(Workers::start(1, 64, Duration::from_secs(5)).unwrap());
        let queue = Arc::new(Queue::<usize, (usize, usize)>::default());
        let (release, released) = std::sync::mpsc::channel::<()>();
        let busy = tokio::spawn({
            let workers = Arc::clone(&workers);
            async move {
                let wait = move || {
                    let _ = released.recv();
                    Ok(())
                };
                workers.run(wait).await
            }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut askers = tokio::task::JoinSet::new();
        for question in 0..20 {
            let (workers, queue) = (Arc::clone(&workers), Arc::clone(&queue));
            askers.spawn(async move {
                let work = |questions: &[usize]| {
                    let answer = |&question: &usize| match question {
                        13 => Err(Problem::bad_request("thirteen")),
                        _ => Ok((question, questions.len())),
                    };
                    questions.iter().map(answer).collect()
                };
                (question, workers.run_together(&queue, question, work).await)
            });
        }
        while queue.lock().len() < 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        let mut sizes = Vec::new();
        while let Some(asked) = askers.join_next().await {
            match asked.unwrap() {
                (13, answer) => assert_eq!(answer, Err(Problem::bad_request("thirteen"))),
                (question, answer) => {
                    let (same, size) = answer.unwrap();
                    assert_eq!(same, question);
                    sizes.push(size);
                }
            }
        }
        sizes.sort_unstable();
        assert_eq!(sizes, [[4; 4].as_slice(), [TOGETHER; 15].as_slice()].concat());
        let panics = |_: &[usize]| -> Vec<Result<(usize, usize), Problem>> { panic!("on purpose") };
        let queue = Arc::default();
        assert_eq!(workers.run_together(&queue, 1, panics).await, Err(Problem::internal()));
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
