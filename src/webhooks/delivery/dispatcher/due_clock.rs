//! The time by which deliveries are due: the clock of the machine, but never set back. Otherwise
//! retries would wait for as long as the clock was set back.

use std::time::Instant;

use crate::webhooks::Clock;

/// Difference in milliseconds up to which a clock is only adjusted.
const ADJUSTMENT: u64 = 2_000;

/// A clock that goes on when the machine's clock is set back.
pub struct DueClock {
    machine: Clock,
    last: u64,
    read: Instant,
    /// Milliseconds by which the machine's clock was set back, and not forward again since.
    behind: u64,
}

impl DueClock {
    pub fn new(machine: Clock) -> Self {
        Self { machine, last: 0, read: Instant::now(), behind: 0 }
    }

    /// Returns the UNIX time in milliseconds.
    pub fn now(&mut self) -> u64 {
        let (now, read) = ((self.machine)(), Instant::now());
        let passed = u64::try_from((read - self.read).as_millis()).unwrap_or(u64::MAX);
        let ahead = now.saturating_sub(self.last).saturating_sub(passed);
        if now.saturating_add(ADJUSTMENT) < self.last {
            self.behind += self.last - now;
        } else if ahead > ADJUSTMENT {
            self.behind = self.behind.saturating_sub(ahead);
        }
        (self.last, self.read) = (now, read);
        now.saturating_add(self.behind)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// The thread that reads the clock may have been stopped for longer than an adjustment takes.
    #[test]
    fn time_that_passes_is_no_change_of_the_clock() {
        let set = Arc::new(AtomicU64::new(100_000));
        let read = Arc::clone(&set);
        let mut clock = DueClock::new(Arc::new(move || read.load(Ordering::SeqCst)));
        assert_eq!(clock.now(), 100_000);
        set.store(40_000, Ordering::SeqCst);
        assert_eq!(clock.now(), 100_000);
        let passed = 10_000;
        clock.read -= std::time::Duration::from_millis(passed);
        set.store(40_000 + passed, Ordering::SeqCst);
        assert_eq!(clock.now(), 100_000 + passed);
    }

    #[test]
    fn the_time_goes_on_when_the_clock_is_set_back() {
        const DAY: u64 = 86_400_000;
        let machine = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&machine);
        let mut clock = DueClock::new(Arc::new(move || read.load(Ordering::SeqCst)));
        for (set, now) in [
            (5 * DAY, 5 * DAY),
            (5 * DAY + 1_000, 5 * DAY + 1_000),
            // Adjusted by a second.
            (5 * DAY, 5 * DAY),
            // Set back by two days, in two steps.
            (4 * DAY, 5 * DAY),
            (4 * DAY + 1_500, 5 * DAY + 1_500),
            (3 * DAY + 1_500, 5 * DAY + 1_500),
            (3 * DAY + 3_000, 5 * DAY + 3_000),
            // Set right again, and then forward.
            (5 * DAY + 3_000, 5 * DAY + 3_000),
            (9 * DAY, 9 * DAY),
        ] {
            machine.store(set, Ordering::SeqCst);
            assert_eq!(clock.now(), now, "{set}");
        }
    }
}
