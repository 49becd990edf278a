//! How many runs there are at a time. Each has instances and a stack of its own, and there is room for
//! so many.

use parking_lot::{Condvar, Mutex};

use crate::priority::Priority;

/// Room for runs, for threads of each priority: those that can wait do not hold up the others.
pub(super) struct Places {
    prompt: Line,
    patient: Line,
}

/// Those who come first are first.
struct Line {
    at_a_time: u64,
    passed: Mutex<Passed>,
    changed: Condvar,
}

#[derive(Default)]
struct Passed {
    came: u64,
    left: u64,
}

/// Room for one run, until this is dropped.
pub(super) struct Place<'t>(&'t Line);

impl Places {
    pub(super) fn new(at_a_time: usize) -> Self {
        Self { prompt: Line::new(at_a_time), patient: Line::new(at_a_time) }
    }

    /// Waits for room.
    pub(super) fn take(&self) -> Place<'_> {
        let line = if Priority::is_patient() { &self.patient } else { &self.prompt };
        line.take()
    }
}

impl Line {
    fn new(at_a_time: usize) -> Self {
        let at_a_time = u64::try_from(at_a_time).unwrap_or(u64::MAX).max(1);
        Self { at_a_time, passed: Mutex::default(), changed: Condvar::new() }
    }

    fn take(&self) -> Place<'_> {
        let mut passed = self.passed.lock();
        let place = passed.came;
        passed.came += 1;
        // Somebody behind may have been quicker, and have left already.
        while place.saturating_sub(passed.left) >= self.at_a_time {
            self.changed.wait(&mut passed);
        }
        Place(self)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut passed = self.0.passed.lock();
        passed.left += 1;
        if passed.came - passed.left >= self.0.at_a_time {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn there_are_never_more_than_may_be_and_everybody_has_one() {
        const THREADS: usize = 8;
        const TIMES: usize = 200;
        let line = Line::new(3);
        let (now, most, had) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..TIMES {
                        let _place = line.take();
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                        had.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!((most.into_inner(), had.into_inner()), (3, THREADS * TIMES));
    }

    #[test]
    fn who_waits_is_before_who_comes_again() {
        let line = Line::new(1);
        let place = line.take();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let _place = line.take();
                line.passed.lock().left
            });
            while line.passed.lock().came < 2 {
                thread::yield_now();
            }
            drop(place);
            let again = line.take();
            assert_eq!((waiting.join().unwrap(), line.passed.lock().left), (1, 2));
            drop(again);
        });
    }
}
