//! When something is due that nothing else reports.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::rows::Class;

/// What a timer is set for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A delivery of this subscription and class becomes due.
    Part(u32, Class),
    /// The pause of a server ends.
    Server(Arc<str>),
}

/// Timers, each with the UNIX time in milliseconds at which it fires.
#[derive(Default)]
pub(super) struct Timers(BTreeSet<(u64, Timer)>);

impl Timers {
    pub fn set(&mut self, at: u64, timer: Timer) {
        self.0.insert((at, timer));
    }

    /// Removes a timer that was set for this time.
    pub fn remove(&mut self, at: u64, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    /// Returns the time of the next timer.
    pub fn next(&self) -> Option<u64> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes a timer that fires at that time or before.
    pub fn take_due(&mut self, now: u64) -> Option<Timer> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop_first().map(|(_, timer)| timer)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_taken_in_its_order() {
        let [early, late] = [Timer::Part(1, Class::First), Timer::Server("a".into())];
        let mut timers = Timers::default();
        timers.set(20, late.clone());
        timers.set(10, early.clone());
        timers.set(15, early.clone());
        timers.remove(15, early.clone());
        assert_eq!((timers.next(), timers.take_due(9)), (Some(10), None));
        assert_eq!(timers.take_due(10), Some(early));
        assert_eq!(timers.take_due(19), None);
        assert_eq!((timers.take_due(25), timers.next()), (Some(late), None));
    }
}
