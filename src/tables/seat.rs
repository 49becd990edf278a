//! Where an owner's worker is: there is none, one runs, or one is being started or ended. Starting may take
//! minutes, because the log of a large change is read again; the lock is held for looking only, and those
//! who need the worker meanwhile wait as long as they like.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::process::Worker;

/// The seat of an owner's worker.
#[derive(Default)]
pub(super) struct Seat {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
enum State {
    #[default]
    Empty,
    /// Somebody has the [`Change`].
    Changing,
    Taken(Arc<Worker>),
}

/// What there is for one who needs a worker.
pub(super) enum Found<'s> {
    /// It runs.
    Worker(Arc<Worker>),
    /// None runs, and whoever has this may start one.
    Free(Change<'s>),
}

/// The right to start or end the worker. The seat is empty once this is dropped, unless one was seated.
pub(super) struct Change<'s>(&'s Seat);

impl Seat {
    /// The worker, or the right to start one, unless somebody else is at it until `deadline`.
    pub fn find(&self, deadline: Instant) -> Option<Found<'_>> {
        let mut state = self.state.lock();
        while matches!(*state, State::Changing) {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return None;
            }
        }
        if let State::Taken(worker) = &*state
            && worker.is_alive()
        {
            return Some(Found::Worker(Arc::clone(worker)));
        }
        let gone = mem::replace(&mut *state, State::Changing);
        drop(state);
        // It lets go of the file before the next one asks for it.
        drop(gone);
        Some(Found::Free(Change(self)))
    }

    /// The worker that runs, if one does.
    pub fn worker(&self) -> Option<Arc<Worker>> {
        match &*self.state.lock() {
            State::Taken(worker) => Some(Arc::clone(worker)),
            State::Empty | State::Changing => None,
        }
    }

    /// Whether there is a worker.
    pub fn is_taken(&self) -> bool {
        matches!(*self.state.lock(), State::Taken(_))
    }

    /// Takes the worker away if it is as it should be. Nobody gets it while `is` looks.
    pub fn remove_if(
        &self,
        is: impl FnOnce(&Arc<Worker>) -> bool,
    ) -> Option<(Arc<Worker>, Change<'_>)> {
        let mut state = self.state.lock();
        match mem::replace(&mut *state, State::Changing) {
            State::Taken(worker) if is(&worker) => Some((worker, Change(self))),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Does something while this worker stays the one that runs; none when it is another one by now.
    pub fn while_it_is<T>(&self, worker: &Arc<Worker>, work: impl FnOnce() -> T) -> Option<T> {
        let state = self.state.lock();
        let is = matches!(&*state, State::Taken(it) if Arc::ptr_eq(it, worker));
        is.then(work)
    }

    /// Waits until a worker came or went, or until `deadline`.
    pub fn wait(&self, deadline: Instant) {
        self.changed.wait_until(&mut self.state.lock(), deadline);
    }

    /// Waits until nobody is changing it, or until `deadline`.
    pub fn settle(&self, deadline: Instant) {
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
    /// This worker runs from now on.
    pub fn seat(self, worker: Arc<Worker>) {
        self.0.set(State::Taken(worker));
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

    fn change(seat: &Seat) -> Change<'_> {
        match seat.find(Instant::now()) {
            Some(Found::Free(change)) => change,
            Some(Found::Worker(_)) => panic!("no worker was started"),
            None => panic!("somebody else is at it"),
        }
    }

    #[test]
    fn one_at_a_time_starts_a_worker_and_the_others_wait_as_long_as_they_like() {
        let seat = Seat::default();
        let first = change(&seat);
        assert!(seat.find(Instant::now()).is_none());
        assert!(!seat.is_taken() && seat.worker().is_none());
        assert!(seat.remove_if(|_| true).is_none());
        let (came, come) = channel();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let deadline = Instant::now() + Duration::from_secs(60);
                    let found = seat.find(deadline);
                    came.send(matches!(found, Some(Found::Free(_)))).unwrap();
                });
            }
            drop(first);
            // Each could start none, and the next one tries.
            assert_eq!(come.iter().take(3).collect::<Vec<_>>(), [true; 3]);
        });
        seat.settle(Instant::now());
        drop(change(&seat));
    }
}
