//! Two pieces of work at the same time, of which both results are needed.

use std::panic::resume_unwind;
use std::thread;

use parking_lot::Mutex;

/// Runs `other` on a thread of its own, of the priority of this one, while this one runs `work`. If no
/// thread can be started, `other` runs afterwards. Panics are passed on.
pub fn beside<A: Send, B>(other: impl FnOnce() -> A + Send, work: impl FnOnce() -> B) -> (A, B) {
    // Taken by the thread that runs it.
    let other = Mutex::new(Some(other));
    let take = || other.lock().take();
    thread::scope(|scope| {
        let started = thread::Builder::new().spawn_scoped(scope, || take().map(|other| other()));
        let worked = work();
        let found = match started {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => take().map(|other| other()),
        };
        match found {
            Some(found) => (found, worked),
            // It is taken once: by the thread, or here when there is none.
            None => unreachable!("the work beside was taken twice"),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn both_run_at_the_same_time() {
        let both = Barrier::new(2);
        let meet = |number| {
            both.wait();
            number
        };
        assert_eq!(beside(|| meet(1), || meet(2)), (1, 2));
    }

    #[test]
    fn panics_are_passed_on() {
        for fails in [0, 1] {
            let work = |number| assert_ne!(number, fails, "as wanted");
            let both = || beside(|| work(0), || work(1));
            assert!(catch_unwind(AssertUnwindSafe(both)).is_err());
        }
    }
}
