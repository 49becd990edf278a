//! How many workers run: never more than there are places. Who needs one waits for it in line; whoever
//! looks after the workers is told, and ends one that is not needed, or that has had its turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// The places of all workers.
pub(super) struct Places {
    all: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    taken: usize,
    last_ticket: u64,
    line: VecDeque<u64>,
}

/// A place that is taken, until this is dropped.
pub(super) struct Place(Arc<Places>);

impl Places {
    pub fn new(all: usize) -> Arc<Self> {
        Arc::new(Self { all, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Takes a place, first come, first served; none when there is none until `deadline`.
    pub fn take(self: &Arc<Self>, deadline: Instant) -> Option<Place> {
        let mut state = self.state.lock();
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        state.line.push_back(ticket);
        self.changed.notify_all();
        while state.taken >= self.all || state.line.front() != Some(&ticket) {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        let is_mine = state.taken < self.all && state.line.front() == Some(&ticket);
        state.line.retain(|waiting| *waiting != ticket);
        state.taken += usize::from(is_mine);
        // The next in line may be first now.
        self.changed.notify_all();
        is_mine.then(|| Place(Arc::clone(self)))
    }

    /// How many workers have to end for all who wait.
    pub fn wanted(&self) -> usize {
        let state = self.state.lock();
        (state.taken + state.line.len()).saturating_sub(self.all)
    }

    /// Places that are taken.
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.state.lock().taken
    }

    /// Waits until something changes, or until `deadline`.
    pub fn wait(&self, deadline: Instant) {
        let mut state = self.state.lock();
        self.changed.wait_until(&mut state, deadline);
    }

    /// Waits until workers are wanted, or until `deadline`.
    pub fn wait_for_wanted(&self, deadline: Instant) {
        let mut state = self.state.lock();
        while state.taken + state.line.len() <= self.all {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.state.lock().taken -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[test]
    fn no_more_places_are_taken_than_there_are_and_the_first_in_line_is_served_first() {
        let places = Places::new(2);
        let (first, _second) = (places.take(soon()).unwrap(), places.take(soon()).unwrap());
        assert!(places.take(Instant::now()).is_none());
        assert_eq!((places.taken(), places.wanted()), (2, 0));
        let (served, who) = channel();
        thread::scope(|scope| {
            for number in 1..=3 {
                let (places, served) = (&places, served.clone());
                scope.spawn(move || {
                    let place = places.take(soon());
                    served.send((number, place)).unwrap();
                });
                // The line is as long as expected before the next one comes.
                while places.wanted() != number {
                    thread::yield_now();
                }
            }
            drop(first);
            for number in 1..=3 {
                let (who, place) = who.recv().unwrap();
                assert_eq!((who, places.taken()), (number, 2));
                drop(place);
            }
        });
        assert_eq!((places.taken(), places.wanted()), (1, 0));
    }

    #[test]
    fn who_gives_up_leaves_the_line() {
        let places = Places::new(1);
        let only = places.take(soon()).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| places.take(soon()).is_some());
            while places.wanted() == 0 {
                thread::yield_now();
            }
            assert!(places.take(Instant::now()).is_none());
            drop(only);
            assert!(waiting.join().unwrap());
        });
        assert_eq!(places.taken(), 0);
    }
}
