//! The slot for an owner's worker: empty, occupied, or changing while a worker is started or
//! stopped. Starting may take minutes, because DuckDB replays the WAL of a large change. The mutex
//! is held only to look at the state, and callers that need the worker meanwhile wait with a
//! deadline of their own.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::worker_process::Worker;

/// The slot for an owner's worker.
#[derive(Default)]
pub(super) struct WorkerSlot {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
enum State {
    #[default]
    Empty,
    /// A thread holds the [`Change`].
    Changing,
    Occupied(Arc<Worker>),
}

/// Result of [`WorkerSlot::find`].
pub(super) enum Found<'s> {
    /// The running worker.
    Worker(Arc<Worker>),
    /// No worker runs, and the holder of the change may start one.
    Free(Change<'s>),
}

/// The right to start or stop the worker. Dropping it leaves the slot empty, unless a worker was
/// installed.
pub(super) struct Change<'s>(&'s WorkerSlot);

impl WorkerSlot {
    /// Returns the running worker, or the right to start one. `None` when another thread is still
    /// starting or stopping the worker at `deadline`.
    pub fn find(&self, deadline: Instant) -> Option<Found<'_>> {
        let mut state = self.state.lock();
        while matches!(*state, State::Changing) {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return None;
            }
        }
        if let State::Occupied(worker) = &*state
            && worker.is_alive()
        {
            return Some(Found::Worker(Arc::clone(worker)));
        }
        let dead = mem::replace(&mut *state, State::Changing);
        drop(state);
        // Dropped before the next worker starts, so that the dead one has released the file.
        drop(dead);
        Some(Found::Free(Change(self)))
    }

    /// Returns the worker in the slot, if there is one.
    pub fn worker(&self) -> Option<Arc<Worker>> {
        match &*self.state.lock() {
            State::Occupied(worker) => Some(Arc::clone(worker)),
            State::Empty | State::Changing => None,
        }
    }

    /// Whether there is a worker in the slot.
    pub fn is_occupied(&self) -> bool {
        matches!(*self.state.lock(), State::Occupied(_))
    }

    /// Removes the worker if `predicate` accepts it. No other thread can get the worker while
    /// `predicate` runs.
    pub fn remove_if(
        &self,
        predicate: impl FnOnce(&Arc<Worker>) -> bool,
    ) -> Option<(Arc<Worker>, Change<'_>)> {
        let mut state = self.state.lock();
        match mem::replace(&mut *state, State::Changing) {
            State::Occupied(worker) if predicate(&worker) => Some((worker, Change(self))),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Runs `work` while this worker stays in the slot; `None` when it is no longer the current
    /// one.
    pub fn run_if_current<T>(&self, worker: &Arc<Worker>, work: impl FnOnce() -> T) -> Option<T> {
        let state = self.state.lock();
        let is_current = matches!(&*state, State::Occupied(it) if Arc::ptr_eq(it, worker));
        is_current.then(work)
    }

    /// Waits until a start or stop of the worker has completed, or until `deadline`.
    pub fn wait(&self, deadline: Instant) {
        self.changed.wait_until(&mut self.state.lock(), deadline);
    }

    /// Waits until no thread is changing the slot, or until `deadline`.
    pub fn wait_until_settled(&self, deadline: Instant) {
        let mut state = self.state.lock();
        while matches!(*state, State::Changing) {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }

    fn set(&self, next: State) {
        *self.state.lock() = next;
        self.changed.notify_all();
    }
}

impl Change<'_> {
    /// Puts a started worker into the slot.
    pub fn install(self, worker: Arc<Worker>) {
        self.0.set(State::Occupied(worker));
        mem::forget(self);
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.set(State::Empty);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn change(slot: &WorkerSlot) -> Change<'_> {
        match slot.find(Instant::now()) {
            Some(Found::Free(change)) => change,
            Some(Found::Worker(_)) => panic!("no worker was started"),
            None => panic!("somebody else is at it"),
        }
    }

    #[test]
    fn one_caller_starts_the_worker_and_others_wait_with_a_deadline() {
        let slot = WorkerSlot::default();
        let first = change(&slot);
        assert!(slot.find(Instant::now()).is_none());
        assert!(!slot.is_occupied() && slot.worker().is_none());
        assert!(slot.remove_if(|_| true).is_none());
        let (came, come) = channel();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let deadline = Instant::now() + Duration::from_secs(60);
                    let found = slot.find(deadline);
                    came.send(matches!(found, Some(Found::Free(_)))).unwrap();
                });
            }
            drop(first);
            // Each thread starts no worker and drops its change, so the next one gets it.
            assert_eq!(come.iter().take(3).collect::<Vec<_>>(), [true; 3]);
        });
        slot.wait_until_settled(Instant::now());
        drop(change(&slot));
    }
}
