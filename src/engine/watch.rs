//! Watches the time of runs from another thread, because a looping program cannot be stopped
//! otherwise.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::limits::Bounds;

/// Interval at which the epoch is raised again until an overdue run has stopped, and minimum delay
/// between two checks of the runs.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Handle of the watch thread, which ends when this is dropped.
pub(super) struct Watch(Arc<Shared>);

struct Shared {
    wasmtime: wasmtime::Engine,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Current runs.
    runs: Vec<Arc<Bounds>>,
    /// When the thread checks the runs next; `None` when it has none to check.
    next_check: Option<Instant>,
    closed: bool,
}

/// A run that is watched until this is dropped.
pub(super) struct Watched<'w> {
    watch: &'w Watch,
    run: &'w Arc<Bounds>,
}

impl Watch {
    /// Starts the thread that watches runs of this engine.
    pub(super) fn start(wasmtime: wasmtime::Engine) -> io::Result<Self> {
        let shared =
            Arc::new(Shared { wasmtime, state: Mutex::default(), changed: Condvar::new() });
        let watching = Arc::clone(&shared);
        thread::Builder::new().name("programs-watch".to_owned()).spawn(move || watching.watch())?;
        Ok(Self(shared))
    }

    /// Starts watching a run that begins now.
    pub(super) fn watch_run<'w>(&'w self, run: &'w Arc<Bounds>) -> Watched<'w> {
        let latest = Instant::now().checked_add(run.limits.wall);
        let mut state = self.0.state.lock();
        state.runs.push(Arc::clone(run));
        // Most runs end long before their limit: the thread is notified only when it has to wake up
        // earlier.
        if latest
            .is_some_and(|latest| state.next_check.is_none_or(|next_check| latest < next_check))
        {
            state.next_check = latest;
            self.0.changed.notify_one();
        }
        drop(state);
        Watched { watch: self, run }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let runs = &mut self.watch.0.state.lock().runs;
        if let Some(place) = runs.iter().position(|run| Arc::ptr_eq(run, self.run)) {
            runs.swap_remove(place);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn watch(&self) {
        let mut state = self.state.lock();
        while !state.closed {
            let now = Instant::now();
            // A notification may only have set an earlier time to wake up.
            if state.next_check.is_none_or(|next_check| next_check <= now) {
                state.next_check =
                    self.check_runs(&state.runs).and_then(|wait| now.checked_add(wait));
            }
            match state.next_check {
                Some(next_check) => drop(self.changed.wait_until(&mut state, next_check)),
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Marks the runs that have exceeded their time as overdue and raises the epoch for them.
    /// Returns the delay until the next check.
    fn check_runs(&self, runs: &[Arc<Bounds>]) -> Option<Duration> {
        let mut any_overdue = false;
        let mut next = None;
        for run in runs {
            let left = run.limits.wall.saturating_sub(run.used());
            if left.is_zero() {
                run.set_overdue();
                any_overdue = true;
            }
            let wait = left.max(MIN_CHECK_INTERVAL);
            next = Some(next.map_or(wait, |next: Duration| next.min(wait)));
        }
        if any_overdue {
            self.wasmtime.increment_epoch();
        }
        next
    }
}
