//! Stops queries whose deadline has passed, and those that the parent has cancelled.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Interval at which an interrupt is repeated: one that arrives between two steps of a query has no
/// effect.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(50);

/// Function that stops a query.
pub type Stop = Box<dyn Fn() + Send>;

/// Stops queries at their deadline or when they are cancelled.
#[derive(Default)]
pub struct Timer {
    queries: Mutex<HashMap<u32, Query>>,
    changed: Condvar,
}

/// A query that was requested and has not ended.
struct Query {
    /// When the query is stopped; `None` before it has begun.
    deadline: Option<Instant>,
    stop: Option<Stop>,
    cancelled: bool,
}

/// A query that is being timed; dropping this ends the timing.
pub struct Timed<'a> {
    timer: &'a Timer,
    deadline: Instant,
    id: u32,
}

impl Timer {
    /// Registers a requested query, so that it can be cancelled before it begins.
    pub fn register(&self, id: u32) {
        let query = Query { deadline: None, stop: None, cancelled: false };
        self.queries.lock().insert(id, query);
    }

    /// Begins to time a query: `stop` is called repeatedly from `deadline` on, or after a
    /// cancellation.
    pub fn start(&self, id: u32, stop: Stop, deadline: Instant) -> Timed<'_> {
        let mut queries = self.queries.lock();
        let cancelled = queries.get(&id).is_some_and(|query| query.cancelled);
        let query = Query { deadline: Some(deadline), stop: Some(stop), cancelled };
        queries.insert(id, query);
        self.changed.notify_one();
        Timed { timer: self, deadline, id }
    }

    /// Stops a query now, as if its deadline had passed. Does nothing when the query has ended.
    pub fn cancel(&self, id: u32) {
        if let Some(query) = self.queries.lock().get_mut(&id) {
            query.cancelled = true;
            self.changed.notify_one();
        }
    }

    /// Runs the timer loop. Never returns.
    pub fn run(&self) {
        let mut queries = self.queries.lock();
        loop {
            let now = Instant::now();
            // A worker answers a handful of queries at a time.
            for query in queries.values().filter(|query| query.is_due(now)) {
                if let Some(stop) = &query.stop {
                    stop();
                }
            }
            let next = queries.values().filter_map(Query::stop_at).min();
            match next.map(|next| next.max(now + INTERRUPT_INTERVAL)) {
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
    /// Returns when the query is to be stopped; `None` before it has begun.
    fn stop_at(&self) -> Option<Instant> {
        if self.cancelled { self.stop.as_ref().map(|_| Instant::now()) } else { self.deadline }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.cancelled || self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl Timed<'_> {
    /// Whether the deadline has passed or the query was cancelled.
    pub fn should_stop(&self) -> bool {
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

    fn stop_channel() -> (Stop, Receiver<()>) {
        let (stop, stopped) = channel();
        (Box::new(move || stop.send(()).unwrap_or(())), stopped)
    }

    #[test]
    fn queries_stop_at_their_deadline_or_when_cancelled_before_or_after_start() {
        let timer = running();
        for cancelled_first in [false, true] {
            let (stop, stopped) = stop_channel();
            timer.register(1);
            if cancelled_first {
                timer.cancel(1);
            }
            let timed = timer.start(1, stop, Instant::now() + LONG);
            let (other, undisturbed) = stop_channel();
            let others = timer.start(2, other, Instant::now() + LONG);
            assert_eq!(timed.should_stop(), cancelled_first);
            timer.cancel(1);
            // The stop is repeated until the query has ended.
            (0..3).for_each(|_| stopped.recv().unwrap());
            assert!(timed.should_stop());
            assert!(!others.should_stop() && undisturbed.try_recv().is_err());
        }
        let (stop, stopped) = stop_channel();
        let timed = timer.start(3, stop, Instant::now() + INTERRUPT_INTERVAL);
        stopped.recv().unwrap();
        assert!(timed.should_stop());
    }

    #[test]
    fn ended_queries_leave_no_entries() {
        let timer = Timer::default();
        let (stop, _stopped) = stop_channel();
        timer.register(1);
        drop(timer.start(1, stop, Instant::now() + LONG));
        timer.cancel(1);
        assert!(timer.queries.lock().is_empty());
    }
}
