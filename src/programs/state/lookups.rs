//! How much one run may ask of another server. Such questions take time that is not the program's, places
//! that others wait for, and room for the answers.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// What one run may ask for. Both are inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupLimits {
    /// Entries that are not stored, beside those that the transaction declared.
    pub entries: u32,
    /// Time that looking them up takes, with what the transaction declared.
    pub time: Duration,
}

impl LookupLimits {
    /// No limits.
    pub const NONE: Self = Self { entries: u32::MAX, time: Duration::MAX };
}

impl Default for LookupLimits {
    fn default() -> Self {
        Self { entries: 64, time: Duration::from_secs(5) }
    }
}

/// What a program did wrong in asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LookupFault {
    /// Too many entries.
    #[error("the program asked for more than {0} entries that are not stored")]
    Entries(u32),
    /// Too much time.
    #[error("looking up entries that are not stored took more than {} s", .0.as_secs_f64())]
    Time(Duration),
}

/// What one run has asked for.
#[derive(Debug)]
pub(super) struct Asked {
    limits: LookupLimits,
    entries: Cell<u32>,
    took: Cell<Duration>,
}

impl Asked {
    pub(super) fn nothing(limits: LookupLimits) -> Self {
        Self { limits, entries: Cell::default(), took: Cell::default() }
    }

    /// Counts an entry that was not declared.
    pub(super) fn count(&self) -> Result<(), LookupFault> {
        if self.entries.get() >= self.limits.entries {
            return Err(LookupFault::Entries(self.limits.entries));
        }
        self.entries.set(self.entries.get() + 1);
        Ok(())
    }

    /// Asks with what is left of the time.
    pub(super) fn ask<T>(&self, ask: impl FnOnce(Duration) -> T) -> Result<T, LookupFault> {
        let left = self.limits.time.saturating_sub(self.took.get());
        if left.is_zero() {
            return Err(LookupFault::Time(self.limits.time));
        }
        let begun = Instant::now();
        let answer = ask(left);
        self.took.set(self.took.get().saturating_add(begun.elapsed()));
        Ok(answer)
    }
}
