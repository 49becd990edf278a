//! The tasks and threads of a running service, and the signal that stops them: each runs until the stop,
//! and one that fails before is shown in health and started again.

use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};

use super::ServiceError;
use crate::observe::health::Health;
use crate::priority::Priority;
use crate::supervision::{Failure, RESTART_DELAY, Supervised};

/// Returns whether `stop` has turned true or its sender is dropped.
pub(super) fn is_stopping(stop: &watch::Receiver<bool>) -> bool {
    *stop.borrow() || stop.has_changed().is_err()
}

/// Returns when `stop` turns true or its sender is dropped.
pub(super) async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// The tasks and threads of a service. Dropping this ends them without waiting for them.
pub(super) struct Tasks {
    health: Arc<Health>,
    /// Turns true at the service's stop, and when they are to end for another reason.
    end: Arc<watch::Sender<bool>>,
    stop: watch::Receiver<bool>,
    tasks: JoinSet<()>,
    threads: Vec<JoinHandle<()>>,
    /// Passes the service's stop on to `end`.
    _passing: JoinSet<()>,
}

/// What a task returns: it says whether the task may end before the stop.
pub(super) trait End: Send {
    /// Returns why the task must be started again; `None` when it has ended for good.
    fn failure(self) -> Option<Failure>;
}

/// End of a task that runs until the stop.
impl End for () {
    fn failure(self) -> Option<Failure> {
        Some(Failure::Ended)
    }
}

/// End of a task that has no more work. Health says why, if there is a reason.
pub(super) struct Finished;

impl End for Finished {
    fn failure(self) -> Option<Failure> {
        None
    }
}

impl<T: End, E: Display + Send> End for Result<T, E> {
    fn failure(self) -> Option<Failure> {
        match self {
            Ok(end) => end.failure(),
            Err(error) => Some(Failure::Failed(error.to_string())),
        }
    }
}

impl Tasks {
    /// Begins without tasks; `stop` turns true when the service stops.
    pub fn new(health: &Arc<Health>, stop: &watch::Receiver<bool>) -> Self {
        let (health, (end, ending)) = (Arc::clone(health), watch::channel(false));
        let (end, stop) = (Arc::new(end), stop.clone());
        let mut passing = JoinSet::new();
        passing.spawn({
            let end = Arc::clone(&end);
            async move {
                stopped(stop).await;
                end.send_replace(true);
            }
        });
        let (tasks, threads) = (JoinSet::new(), Vec::new());
        Self { health, end, stop: ending, tasks, threads, _passing: passing }
    }

    /// Returns what turns true when the tasks and threads are to end.
    pub fn stop(&self) -> watch::Receiver<bool> {
        self.stop.clone()
    }

    /// Runs the task that `start` begins, which is called again after each failure. `name` is that
    /// of the task in the log and in health.
    pub fn spawn<F>(&mut self, name: &'static str, start: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output: End> + Send + 'static,
    {
        let supervised = Supervised::new(name, name, &self.health);
        self.tasks.spawn(supervise(supervised, self.stop.clone(), start));
    }

    /// Runs `work` on a thread of its own; it is called again after each failure. `name` is that of
    /// the thread in the log and in health.
    pub fn spawn_thread(
        &mut self,
        name: &'static str,
        priority: Priority,
        work: impl FnMut() + Send + 'static,
    ) -> Result<(), ServiceError> {
        let supervised = Supervised::new(name, name, &self.health);
        let stop = self.stop.clone();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            priority.apply_to_current_thread();
            supervised.run(|| is_stopping(&stop), work);
        });
        self.threads.push(thread.map_err(ServiceError::thread)?);
        Ok(())
    }

    /// Ends all tasks and threads, and waits until they have ended.
    pub async fn end(mut self) {
        self.end.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
        let threads = self.threads;
        let joined = spawn_blocking(move || threads.into_iter().all(|it| it.join().is_ok()));
        if !joined.await.unwrap_or(false) {
            tracing::error!("a thread of the service did not stop cleanly");
        }
    }
}

async fn supervise<F: Future<Output: End>>(
    supervised: Supervised,
    stop: watch::Receiver<bool>,
    mut start: impl FnMut() -> F,
) {
    loop {
        let run = async {
            tokio::select! {
                end = start() => end,
                never = supervised.health().injected().panic_when(supervised.name()) => match never {},
            }
        };
        let failure = match AssertUnwindSafe(run).catch_unwind().await {
            Ok(_) if is_stopping(&stop) => return,
            Ok(end) => match end.failure() {
                Some(failure) => failure,
                None => return,
            },
            Err(panic) => Failure::of_panic(&*panic),
        };
        let _outage = supervised.failed(&failure);
        tokio::select! {
            () = tokio::time::sleep(RESTART_DELAY) => {}
            () = stopped(stop.clone()) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use orrery_testkit::wait::wait_in_task;
    use tokio::time::{Instant, timeout};

    use super::*;

    const LONGEST: Duration = Duration::from_secs(30);

    fn always() -> bool {
        true
    }

    fn tasks() -> (Tasks, Arc<Health>, watch::Sender<bool>) {
        let (health, (stop, stopping)) = (Arc::<Health>::default(), watch::channel(false));
        (Tasks::new(&health, &stopping), health, stop)
    }

    #[tokio::test]
    async fn a_task_that_panics_or_ends_early_is_started_again() {
        let (mut tasks, health, stop) = tasks();
        let starts = Arc::new(AtomicUsize::new(0));
        let (own, stopping) = (Arc::clone(&starts), stop.subscribe());
        tasks.spawn("task", move || {
            let (start, stopping) = (own.fetch_add(1, Ordering::SeqCst), stopping.clone());
            async move {
                match start {
                    0 => panic!("the first time"),
                    1 => {}
                    2 => return Err("for a reason"),
                    _ => stopped(stopping).await,
                }
                Ok(())
            }
        });
        let reason = || health.first_down().map(|(name, reason)| format!("{name}: {reason}"));
        let is_down = |word: &str| reason().is_some_and(|it| it.starts_with(word));
        wait_in_task("it has panicked", || is_down("task: it has panicked")).await;
        wait_in_task("it has ended", || is_down("task: it has ended")).await;
        wait_in_task("it has failed", || is_down("task: for a reason")).await;
        wait_in_task("it runs", || reason().is_none()).await;
        wait_in_task("it runs", || starts.load(Ordering::SeqCst) == 4).await;
        stop.send_replace(true);
        timeout(LONGEST, tasks.end()).await.unwrap();
        assert_eq!(starts.load(Ordering::SeqCst), 4);
        assert!(health.components().is_empty());
    }

    #[tokio::test]
    async fn a_finished_task_is_not_started_again_and_a_stop_ends_every_wait() {
        let (mut tasks, health, stop) = tasks();
        tasks.spawn("finished", || async { Finished });
        tasks.spawn("panics", || async { assert!(!always(), "each time") });
        tasks.spawn_thread("a thread", Priority::Prompt, || panic!("each time")).unwrap();
        wait_in_task("both have panicked", || health.components().len() == 2).await;
        assert!(!health.components().contains_key("finished"));
        let begun = Instant::now();
        stop.send_replace(true);
        timeout(LONGEST, tasks.end()).await.unwrap();
        assert!(begun.elapsed() < RESTART_DELAY);
    }

    #[tokio::test]
    async fn a_waiting_task_panics_when_that_is_injected() {
        let (mut tasks, health, stop) = tasks();
        let stopping = stop.subscribe();
        tasks.spawn("task", move || stopped(stopping.clone()));
        health.injected().plan("task");
        wait_in_task("it has panicked", || health.first_down().is_some()).await;
        wait_in_task("it runs again", || health.first_down().is_none()).await;
        stop.send_replace(true);
        timeout(LONGEST, tasks.end()).await.unwrap();
    }
}
