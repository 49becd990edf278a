//! The time of runs, watched from another thread: nothing else can stop a program that loops.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::limits::Bounds;

/// How often a run that is over its time is reminded, until it has stopped; and the shortest time for
/// which one is left alone.
const REMIND: Duration = Duration::from_millis(10);

/// The watching thread. It ends when this is dropped.
pub(super) struct Watch(Arc<Shared>);

struct Shared {
    wasmtime: wasmtime::Engine,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The runs that there are now.
    runs: Vec<Arc<Bounds>>,
    /// When it looks again; none when there is nothing to look at.
    wakes: Option<Instant>,
    closed: bool,
}

/// A run that is being watched, until this is dropped.
pub(super) struct Watched<'w> {
    watch: &'w Watch,
    run: &'w Arc<Bounds>,
}

impl Watch {
    /// Watches runs of programs of this engine.
    pub(super) fn start(wasmtime: wasmtime::Engine) -> io::Result<Self> {
        let shared =
            Arc::new(Shared { wasmtime, state: Mutex::default(), changed: Condvar::new() });
        let watching = Arc::clone(&shared);
        thread::Builder::new().name("programs-watch".to_owned()).spawn(move || watching.watch())?;
        Ok(Self(shared))
    }

    /// Watches a run that begins now.
    pub(super) fn over<'w>(&'w self, run: &'w Arc<Bounds>) -> Watched<'w> {
        let latest = Instant::now().checked_add(run.limits.wall);
        let mut state = self.0.state.lock();
        state.runs.push(Arc::clone(run));
        // Most runs are over long before: the thread is woken for the first of many.
        if latest.is_some_and(|latest| state.wakes.is_none_or(|wakes| latest < wakes)) {
            state.wakes = latest;
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
            // It may have been woken for a run that ends earlier than the others.
            if state.wakes.is_none_or(|wakes| wakes <= now) {
                state.wakes = self.look(&state.runs).and_then(|wait| now.checked_add(wait));
            }
            match state.wakes {
                Some(wakes) => drop(self.changed.wait_until(&mut state, wakes)),
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Stops the runs whose time is over. Says when to look again.
    fn look(&self, runs: &[Arc<Bounds>]) -> Option<Duration> {
        let mut over = false;
        let mut next = None;
        for run in runs {
            let left = run.limits.wall.saturating_sub(run.used());
            if left.is_zero() {
                run.set_overdue();
                over = true;
            }
            let wait = left.max(REMIND);
            next = Some(next.map_or(wait, |next: Duration| next.min(wait)));
        }
        if over {
            self.wasmtime.increment_epoch();
        }
        next
    }
}
