//! The times that deadlines count by. Neither is one reading of the machine's clock
//! ([`SteadyClock`]).

use super::Clock;
use orrery_runtime::steady::SteadyClock;

/// Time in milliseconds for which the machine's clock must be ahead until deliveries are due earlier
/// for that reason. An attempt that is made too early does little harm, and a machine that was asleep
/// should go on soon.
const DUE_HOLD: u64 = 10 * 60 * 1000;

/// Time in milliseconds for which the machine's clock must be ahead until deliveries are removed, and
/// subscriptions disabled, earlier for that reason.
const KEPT_HOLD: u64 = MS_PER_DAY;

/// Milliseconds per day.
const MS_PER_DAY: u64 = 24 * 3600 * 1000;

/// The clocks that the times are made from.
pub struct Clocks {
    /// Returns the UNIX time in milliseconds.
    pub machine: Clock,
    /// Returns the time in milliseconds that has passed since any moment.
    pub elapsed: Clock,
}

/// The times of deadlines.
pub struct Times {
    due: SteadyClock,
    kept: SteadyClock,
    noted: SteadyClock,
}

/// A moment, by all clocks, which differ only after the machine's clock was wrong, or the service did
/// not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    /// UNIX time in milliseconds by which deliveries are due.
    pub due: u64,
    /// UNIX time in milliseconds by which deliveries are kept, and subscriptions fail for days. It goes
    /// on in the next process where this one ends.
    pub kept: u64,
    /// The same for what begins now, and is compared with `kept` later: that may be behind for a day after
    /// the service did not run, and what begins in that day must not seem to have begun before.
    pub noted: u64,
}

impl Times {
    /// Creates the times. `kept` is the last known [`Moment::kept`]; without it, that begins with the
    /// machine's clock.
    pub fn new(clocks: &Clocks, kept: Option<u64>) -> Self {
        let Clocks { machine, elapsed } = clocks;
        let clock = |hold, begin| SteadyClock::new(machine.clone(), elapsed.clone(), hold, begin);
        let noted = kept.map(|kept| kept.max(machine()));
        Self {
            due: clock(DUE_HOLD, None),
            kept: clock(KEPT_HOLD, kept),
            noted: clock(KEPT_HOLD, noted),
        }
    }

    /// Returns this moment.
    pub fn now(&self) -> Moment {
        let kept = self.kept.now();
        Moment { due: self.due.now(), kept, noted: self.noted.now().max(kept) }
    }
}

impl Moment {
    /// Returns the day under which something that is kept from now on is stored, counted from 1970.
    pub fn day(&self) -> u16 {
        day_of(self.noted)
    }

    /// Returns the day of which those are counted back for which something was kept.
    pub fn day_kept(&self) -> u16 {
        day_of(self.kept)
    }
}

/// Returns the number of whole days since 1970.
pub fn day_of(unix_ms: u64) -> u16 {
    u16::try_from(unix_ms / MS_PER_DAY).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_begin_at_midnight() {
        assert_eq!(day_of(86_400_000 * 3 - 1), 2);
        assert_eq!(day_of(86_400_000 * 3), 3);
    }
}
