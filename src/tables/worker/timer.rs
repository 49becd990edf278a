//! Stops queries whose time is up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// An interrupt between two steps of a query has no effect, so it is repeated.
const AGAIN: Duration = Duration::from_millis(50);

/// What stops a query.
pub type Stop = Box<dyn Fn() + Send>;

/// Stops queries whose time is up.
#[derive(Default)]
pub struct Timer {
    due: Mutex<Due>,
    changed: Condvar,
}

#[derive(Default)]
struct Due {
    last: u64,
    queries: BTreeMap<(Instant, u64), Stop>,
}

/// A query that is timed, until this is dropped.
pub struct Timed<'a> {
    timer: &'a Timer,
    deadline: Instant,
    number: u64,
}

impl Timer {
    /// Begins to time a query.
    pub fn start(&self, stop: Stop, deadline: Instant) -> Timed<'_> {
        let mut due = self.due.lock();
        due.last += 1;
        let number = due.last;
        due.queries.insert((deadline, number), stop);
        self.changed.notify_one();
        Timed { timer: self, deadline, number }
    }

    /// Waits and stops, for ever.
    pub fn run(&self) {
        let mut due = self.due.lock();
        loop {
            let now = Instant::now();
            for stop in due.queries.range(..=(now, u64::MAX)).map(|(_, stop)| stop) {
                stop();
            }
            let next = due.queries.keys().next().map(|(deadline, _)| (*deadline).max(now + AGAIN));
            match next {
                Some(next) => drop(self.changed.wait_until(&mut due, next)),
                None => self.changed.wait(&mut due),
            }
        }
    }
}

impl Timed<'_> {
    /// Whether the time is up.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.timer.due.lock().queries.remove(&(self.deadline, self.number));
    }
}
