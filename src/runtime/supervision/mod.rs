//! Supervision of threads and tasks that must run for as long as the service does. One that panics, or
//! ends early, is logged, makes its component of health down, and is started again.

pub mod injected;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::observe::health::{Health, Outage};

/// Delay before a thread or task is started again.
pub const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Interval at which a thread that waits for its restart checks whether the service stops.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A thread or task that is started again when it fails.
#[derive(Debug, Clone)]
pub struct Supervised {
    name: &'static str,
    component: &'static str,
    health: Arc<Health>,
}

/// How a thread or task failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It panicked, with this message.
    Panicked(String),
    /// It ended although the service does not stop.
    Ended,
    /// It ended with this error.
    Failed(String),
}

impl Failure {
    /// Reads the message of a panic.
    pub fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Panicked(text.unwrap_or_else(|| "no message".to_owned()))
    }
}

impl Supervised {
    /// Describes a thread or task: its name in the log, and the component of health that is down
    /// while it does not run.
    pub fn new(name: &'static str, component: &'static str, health: &Arc<Health>) -> Self {
        Self { name, component, health: Arc::clone(health) }
    }

    /// Returns the name in the log.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the health to which failures are reported.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Logs a failure. The component is down until the returned value is dropped.
    pub fn failed(&self, failure: &Failure) -> Outage {
        let name = self.name;
        let what = match failure {
            Failure::Panicked(message) => {
                tracing::error!("'{name}' has panicked and is started again: {message}");
                "it has panicked and is started again: the log says why"
            }
            Failure::Ended => {
                tracing::error!("'{name}' has ended before the stop and is started again");
                "it has ended before the stop and is started again"
            }
            Failure::Failed(reason) => {
                tracing::error!("'{name}' has failed and is started again: {reason}");
                reason
            }
        };
        self.health.outage(self.component, what)
    }

    /// Runs `work` on the calling thread until it ends because of a stop, which `is_stopping`
    /// reports. It is called again [`RESTART_DELAY`] after each failure, so it must begin with a
    /// consistent state each time: locks are free again after a panic, but what they guard may be
    /// half changed.
    pub fn run(&self, is_stopping: impl Fn() -> bool, mut work: impl FnMut()) {
        loop {
            let failure = match catch_unwind(AssertUnwindSafe(&mut work)) {
                Ok(()) if is_stopping() => return,
                Ok(()) => Failure::Ended,
                Err(panic) => Failure::of_panic(&*panic),
            };
            let _outage = self.failed(&failure);
            let failed = Instant::now();
            while failed.elapsed() < RESTART_DELAY {
                if is_stopping() {
                    return;
                }
                thread::sleep(STOP_CHECK_INTERVAL);
            }
        }
    }
}

/// Calls a function when a panic drops it: to undo or mark as doubtful what is half done.
pub struct OnPanic<F: FnMut()>(F);

impl<F: FnMut()> OnPanic<F> {
    /// Calls `clean_up`, which must not panic, if a panic drops the returned value.
    pub fn new(clean_up: F) -> Self {
        Self(clean_up)
    }
}

impl<F: FnMut()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if thread::panicking() {
            (self.0)();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use crate::observe::health::Component;

    #[test]
    fn work_that_panics_or_ends_early_is_called_again_and_shown_in_health() {
        let health = Arc::<Health>::default();
        health.up("part");
        let (calls, stopping) = (AtomicUsize::new(0), AtomicBool::new(false));
        let seen = std::sync::Mutex::new(Vec::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                let supervised = Supervised::new("work", "part", &health);
                supervised.run(
                    || stopping.load(Ordering::SeqCst),
                    || {
                        let is_up = health.first_down().is_none();
                        seen.lock().unwrap().push(is_up);
                        match calls.fetch_add(1, Ordering::SeqCst) {
                            0 => panic!("the first time"),
                            1 => {}
                            _ => stopping.store(true, Ordering::SeqCst),
                        }
                    },
                );
            });
            let mut reasons = Vec::new();
            while !stopping.load(Ordering::SeqCst) {
                if let Some((name, reason)) = health.first_down() {
                    assert_eq!(name, "part");
                    // What the component itself reports does not hide the failure.
                    health.up("part");
                    if reasons.last() != Some(&reason) {
                        reasons.push(reason);
                    }
                }
                thread::sleep(Duration::from_millis(1));
            }
            let ended = "it has ended before the stop and is started again";
            let panicked = "it has panicked and is started again: the log says why";
            assert_eq!(reasons, [panicked, ended]);
        });
        assert_eq!(*seen.lock().unwrap(), [true; 3], "it is up when it runs");
        assert_eq!(health.components()["part"], Component::Up { detail: None });
    }

    #[test]
    fn a_stop_ends_the_wait_for_a_restart() {
        let health = Arc::<Health>::default();
        let (stopping, begun) = (AtomicBool::new(false), Instant::now());
        let stop_and_panic = || {
            stopping.store(true, Ordering::SeqCst);
            panic!("while it stops");
        };
        let supervised = Supervised::new("work", "part", &health);
        supervised.run(|| stopping.load(Ordering::SeqCst), stop_and_panic);
        assert!(begun.elapsed() < RESTART_DELAY);
        assert!(health.components().is_empty());
    }

    #[test]
    fn only_a_panic_calls_the_clean_up() {
        let calls = AtomicUsize::new(0);
        let count = || {
            calls.fetch_add(1, Ordering::SeqCst);
        };
        drop(OnPanic::new(count));
        assert_eq!(calls.load(Ordering::SeqCst), 0);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _counted = OnPanic::new(count);
            panic!("in between");
        }));
        assert!(panicked.is_err());
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_planned_panic_happens_once_and_only_under_its_name() {
        let injected = injected::Injected::default();
        injected.plan("a part");
        injected.panic_if("another part");
        assert!(injected.is_planned("a part"));
        let panics = AssertUnwindSafe(|| injected.panic_if("a part"));
        assert!(catch_unwind(panics).is_err());
        assert!(!injected.is_planned("a part"));
        injected.panic_if("a part");
    }
}
