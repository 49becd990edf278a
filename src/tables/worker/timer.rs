//! Stops queries whose time is up, and those that nobody waits for any more.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// An interrupt between two steps of a query has no effect, so it is repeated.
const AGAIN: Duration = Duration::from_millis(50);

/// What stops a query.
pub type Stop = Box<dyn Fn() + Send>;

/// Stops queries whose time is up.
#[derive(Default)]
pub struct Timer {
    queries: Mutex<HashMap<u32, Query>>,
    changed: Condvar,
}

/// A query that was asked and has not ended.
struct Query {
    /// When it is stopped; none before it has begun.
    deadline: Option<Instant>,
    stop: Option<Stop>,
    cancelled: bool,
}

/// A query that is timed, until this is dropped.
pub struct Timed<'a> {
    timer: &'a Timer,
    deadline: Instant,
    id: u32,
}

impl Timer {
    /// Notes that the query of this number was asked, so that it can be cancelled before it begins.
    pub fn expect(&self, id: u32) {
        let query = Query { deadline: None, stop: None, cancelled: false };
        self.queries.lock().insert(id, query);
    }

    /// Begins to time the query of this number.
    pub fn start(&self, id: u32, stop: Stop, deadline: Instant) -> Timed<'_> {
        let mut queries = self.queries.lock();
        let cancelled = queries.get(&id).is_some_and(|query| query.cancelled);
        let query = Query { deadline: Some(deadline), stop: Some(stop), cancelled };
        queries.insert(id, query);
        self.changed.notify_one();
        Timed { timer: self, deadline, id }
    }

    /// Stops the query of this number now, as if its time were up. One that has ended is none.
    pub fn cancel(&self, id: u32) {
        if let Some(query) = self.queries.lock().get_mut(&id) {
            query.cancelled = true;
            self.changed.notify_one();
        }
    }

    /// Waits and stops, for ever.
    pub fn run(&self) {
        let mut queries = self.queries.lock();
        loop {
            let now = Instant::now();
            // A worker answers a handful of queries at a time.
            for query in queries.values().filter(|query| query.is_over(now)) {
                if let Some(stop) = &query.stop {
                    stop();
                }
            }
            let next = queries.values().filter_map(Query::ends).min();
            match next.map(|next| next.max(now + AGAIN)) {
                Some(next) => drop(self.changed.wait_until(&mut queries, next)),
                None => self.changed.wait(&mut queries),
            }
        }
    }

    fn is_cancelled(&self, id: u32) -> bool {
        self.queries.lock().get(&id).is_some_and(|query| query.cancelled)
    }
}

impl Query {
    /// When it is to be stopped, if that is known.
    fn ends(&self) -> Option<Instant> {
        match self.cancelled {
            true => self.stop.as_ref().map(|_| Instant::now()),
            false => self.deadline,
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.cancelled || self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl Timed<'_> {
    /// Whether the time is up, or nobody waits.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline || self.timer.is_cancelled(self.id)
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.timer.queries.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn running() -> Arc<Timer> {
        let timer = Arc::new(Timer::default());
        let runs = Arc::clone(&timer);
        thread::spawn(move || runs.run());
        timer
    }

    fn told() -> (Stop, Receiver<()>) {
        let (stop, stopped) = channel();
        (Box::new(move || stop.send(()).unwrap_or(())), stopped)
    }

    #[test]
    fn a_query_is_stopped_at_its_deadline_or_when_it_is_cancelled_before_or_after_it_began() {
        let timer = running();
        for cancelled_first in [false, true] {
            let (stop, stopped) = told();
            timer.expect(1);
            if cancelled_first {
                timer.cancel(1);
            }
            let timed = timer.start(1, stop, Instant::now() + LONG);
            let (other, undisturbed) = told();
            let others = timer.start(2, other, Instant::now() + LONG);
            assert_eq!(timed.is_over(), cancelled_first);
            timer.cancel(1);
            // It is repeated until the query has ended.
            (0..3).for_each(|_| stopped.recv().unwrap());
            assert!(timed.is_over());
            assert!(!others.is_over() && undisturbed.try_recv().is_err());
        }
        let (stop, stopped) = told();
        let timed = timer.start(3, stop, Instant::now() + AGAIN);
        stopped.recv().unwrap();
        assert!(timed.is_over());
    }

    #[test]
    fn what_has_ended_leaves_nothing_behind() {
        let timer = Timer::default();
        let (stop, _stopped) = told();
        timer.expect(1);
        drop(timer.start(1, stop, Instant::now() + LONG));
        timer.cancel(1);
        assert!(timer.queries.lock().is_empty());
    }
}
