//! [`Team`]: threads that stay awake between the stages of a training step.
//!
//! A step is a handful of stages of a few tasks each, and a stage takes some hundred microseconds. The threads of a pool for
//! any work fall asleep where one of them waits for the last task of a stage, and waking them takes as long as the task: on
//! virtual machines a fifth of a step. These wait in a loop, and sleep only where nothing comes for longer than a stage.
//!
//! Each task of a stage has a thread that it belongs to, the same in every stage and step: so the rows of a partition and
//! the buffers of a block mostly stay in the cache of one core. A thread whose own tasks are done takes those of others.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a helper waits for the next stage before it sleeps.
const AWAKE: Duration = Duration::from_micros(500);
/// Looks at the stage between two looks at the clock.
const LOOKS: usize = 200;
/// The lower half of a ticket of a stage that is over.
const CLOSED: u64 = u32::MAX as u64;

/// The thread that calls it, and helpers. Which of them does a task is left open: results must not depend on it.
pub(super) struct Team {
    hub: Arc<Hub>,
    helpers: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Team({})", self.threads())
    }
}

/// What the threads share.
#[derive(Default)]
struct Hub {
    /// The number of the stage.
    stage: AtomicU64,
    /// For each thread the next of its own tasks.
    tickets: Vec<Ticket>,
    n_tasks: AtomicU32,
    /// The work of the stage, a `&(dyn Fn(usize) + Sync)` on the stack of the thread that called.
    work: AtomicPtr<()>,
    /// Tasks of the stage that are done.
    done: AtomicU32,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    sleepers: AtomicU32,
    sleep: Mutex<()>,
    wake: Condvar,
    ended: AtomicBool,
}

/// The stage in the upper half, and how many of the thread's own tasks are taken in the lower. Two cache lines, which
/// processors fetch together.
#[repr(align(128))]
struct Ticket(AtomicU64);

impl Team {
    /// As many threads, the caller's own included; fewer where the system gives no more.
    pub fn new(threads: usize) -> Self {
        // No stage is open yet.
        let tickets = (0..threads).map(|_| Ticket(AtomicU64::new(CLOSED))).collect();
        let hub = Arc::new(Hub { tickets, ..Hub::default() });
        let start = |me: usize| {
            let hub = hub.clone();
            thread::Builder::new().name(format!("fastvae-step-{me}")).spawn(move || hub.help(me)).ok()
        };
        let helpers = (1..threads).map_while(start).collect();
        Self { hub, helpers }
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        1 + self.helpers.len()
    }

    /// The task of `n` to put at `position` so that each thread does its own in the opposite order: what it came by last
    /// in a stage before is still in its cache.
    pub fn backwards(&self, n: usize, position: usize) -> usize {
        let (threads, thread) = (self.hub.tickets.len(), position % self.hub.tickets.len());
        let own = (n - thread).div_ceil(threads);
        thread + (own - 1 - position / threads) * threads
    }

    /// Does `work` for each number below `n`; returns when all is done. A panic of a task is passed on after that.
    pub fn for_each(&mut self, n: usize, work: impl Fn(usize) + Sync) {
        if self.helpers.is_empty() || n < 2 {
            return (0..n).for_each(work);
        }
        let hub = &*self.hub;
        let mut work: &(dyn Fn(usize) + Sync) = &work;
        // Whoever sees this number sees the tickets of the last stage closed.
        hub.n_tasks.store(n as u32, Ordering::Release);
        hub.work.store((&raw mut work).cast(), Ordering::Relaxed);
        hub.done.store(0, Ordering::Relaxed);
        let stage = hub.stage.load(Ordering::Relaxed).wrapping_add(1);
        for ticket in &hub.tickets {
            ticket.0.store(stage << 32, Ordering::Release);
        }
        hub.stage.store(stage, Ordering::SeqCst);
        if hub.sleepers.load(Ordering::SeqCst) > 0 {
            drop(hub.sleep.lock().unwrap_or_else(PoisonError::into_inner));
            hub.wake.notify_all();
        }
        hub.work(0);
        // From here on `work` may go: every task was taken by someone, and is waited for.
        let mut looks = 0;
        while hub.done.load(Ordering::Acquire) < n as u32 {
            looks += 1;
            if looks % LOOKS == 0 { thread::yield_now() } else { std::hint::spin_loop() }
        }
        for ticket in &hub.tickets {
            ticket.0.store(stage << 32 | CLOSED, Ordering::Release);
        }
        if let Some(panic) = hub.panic.lock().unwrap_or_else(PoisonError::into_inner).take() {
            resume_unwind(panic);
        }
    }

    /// What `work` makes of each number below `n`.
    pub fn map<T: Send>(&mut self, n: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let mut results: Vec<Option<T>> = (0..n).map(|_| None).collect();
        self.for_each_mut(&mut results, |i, result| *result = Some(work(i)));
        results.into_iter().flatten().collect()
    }

    /// Does `work` for each of `items`, with its position.
    pub fn for_each_mut<T: Send>(&mut self, items: &mut [T], work: impl Fn(usize, &mut T) + Sync) {
        struct Start<T>(*mut T);
        // SAFETY: each item is reached by one task alone.
        unsafe impl<T: Send> Sync for Start<T> {}
        impl<T> Start<T> {
            fn at(&self, i: usize) -> *mut T {
                self.0.wrapping_add(i)
            }
        }
        let start = Start(items.as_mut_ptr());
        // SAFETY: `i` is below the number of items, each `i` comes once, and the items are borrowed until all is done.
        self.for_each(items.len(), |i| work(i, unsafe { &mut *start.at(i) }));
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.hub.ended.store(true, Ordering::SeqCst);
        drop(self.hub.sleep.lock().unwrap_or_else(PoisonError::into_inner));
        self.hub.wake.notify_all();
        for helper in self.helpers.drain(..) {
            // A helper catches the panics of its tasks, and has none of its own.
            let _ = helper.join();
        }
    }
}

impl Hub {
    /// The next task of the stage that belongs to thread `of`, if one is left, and the stage's work.
    fn take(&self, of: usize) -> Option<(usize, *mut ())> {
        let ticket = &self.tickets[of].0;
        let mut seen = ticket.load(Ordering::Acquire);
        loop {
            let task = of as u64 + (seen & CLOSED) * self.tickets.len() as u64;
            let (n, work) = (self.n_tasks.load(Ordering::Acquire), self.work.load(Ordering::Relaxed));
            if task >= u64::from(n) {
                return None;
            }
            // Where `n` and `work` are those of a later stage, the ticket was closed before, and this fails.
            match ticket.compare_exchange_weak(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some((task as usize, work)),
                Err(now) => seen = now,
            }
        }
    }

    /// Does tasks of the stage until none is left: those of thread `me`, then those of the others.
    fn work(&self, me: usize) {
        for k in 0..self.tickets.len() {
            let of = (me + k) % self.tickets.len();
            while let Some((task, work)) = self.take(of) {
                // SAFETY: the task is one of the stage that `work` belongs to, whose caller waits until it is done.
                let work = unsafe { *work.cast::<&(dyn Fn(usize) + Sync)>() };
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(task))) {
                    self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
                }
                self.done.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// The life of helper `me`.
    fn help(&self, me: usize) {
        let mut seen = 0;
        while let Some(stage) = self.wait(seen) {
            self.work(me);
            seen = stage;
        }
    }

    /// Waits for a stage other than `seen`, first awake, then asleep; none at the end of the team.
    fn wait(&self, seen: u64) -> Option<u64> {
        let next = || Some(self.stage.load(Ordering::SeqCst)).filter(|&stage| stage != seen);
        let start = Instant::now();
        while start.elapsed() < AWAKE {
            for _ in 0..LOOKS {
                if let Some(stage) = next() {
                    return Some(stage);
                }
                std::hint::spin_loop();
            }
            thread::yield_now();
        }
        let mut sleep = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while next().is_none() && !self.ended.load(Ordering::SeqCst) {
            sleep = self.wake.wait(sleep).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_task_is_done_once_in_each_of_many_stages() {
        for threads in [1, 2, 5] {
            let mut team = Team::new(threads);
            assert_eq!(team.threads(), threads);
            let squares: Vec<usize> = (0..50).map(|i| i * i).collect();
            assert_eq!(team.map(50, |i| i * i), squares);
            let mut counts = vec![0u32; 300];
            for stage in 0..2000 {
                let n = [1, 2, 7, 300][stage % 4];
                team.for_each_mut(&mut counts[..n], |_, count| *count += 1);
                if stage % 500 == 499 {
                    // Long enough for the helpers to fall asleep.
                    thread::sleep(4 * AWAKE);
                }
            }
            assert_eq!((counts[0], counts[1], counts[6], counts[299]), (2000, 1500, 1000, 500));
        }
    }

    #[test]
    fn what_tasks_wrote_is_seen_by_the_next_stage() {
        let mut team = Team::new(4);
        let (mut values, mut sums) = (vec![0u64; 64], vec![0u64; 64]);
        for round in 1..500 {
            team.for_each_mut(&mut values, |i, value| *value += i as u64);
            team.for_each_mut(&mut sums, |_, sum| *sum = values.iter().sum());
            assert!(sums.iter().all(|&sum| sum == round * 63 * 64 / 2));
        }
    }

    #[test]
    fn a_panic_is_passed_on_when_all_is_done_and_the_team_works_on() {
        let mut team = Team::new(3);
        let done = AtomicUsize::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            team.for_each(50, |i| {
                assert_ne!(i, 20, "the task that fails");
                done.fetch_add(1, Ordering::Relaxed);
            });
        }));
        assert!(outcome.is_err());
        assert_eq!(done.load(Ordering::Relaxed), 49);
        team.for_each(50, |_| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.load(Ordering::Relaxed), 99);
    }
}
