//! Limits what one run may request from the upstream server. Requests take time that does not count
//! as the program's, slots that other runs wait for, and memory for the responses.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::LookupFault;
use orrery_settings::Programs;

/// Limits of one run. Both are inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupLimits {
    /// Number of requested entries that are not stored, in addition to those that the transaction
    /// declared.
    pub entries: u32,
    /// Total time of the requests, including those for declared entries.
    pub time: Duration,
}

impl LookupLimits {
    /// No limits.
    pub const NONE: Self = Self { entries: u32::MAX, time: Duration::MAX };
}

impl From<&Programs> for LookupLimits {
    fn from(settings: &Programs) -> Self {
        Self { entries: settings.lookups.get(), time: settings.lookup_ms.duration() }
    }
}

/// Requests that one run has made so far.
#[derive(Debug)]
pub(super) struct LookupBudget {
    limits: LookupLimits,
    entries: Cell<u32>,
    took: Cell<Duration>,
}

impl LookupBudget {
    pub(super) fn new(limits: LookupLimits) -> Self {
        Self { limits, entries: Cell::default(), took: Cell::default() }
    }

    /// Counts an entry that the transaction did not declare.
    pub(super) fn count_entry(&self) -> Result<(), LookupFault> {
        if self.entries.get() >= self.limits.entries {
            return Err(LookupFault::Entries(self.limits.entries));
        }
        self.entries.set(self.entries.get() + 1);
        Ok(())
    }

    /// Makes a request with the remaining time as its timeout.
    pub(super) fn request<T>(&self, request: impl FnOnce(Duration) -> T) -> Result<T, LookupFault> {
        let left = self.limits.time.saturating_sub(self.took.get());
        if left.is_zero() {
            return Err(LookupFault::Time(self.limits.time));
        }
        let begun = Instant::now();
        let answer = request(left);
        self.took.set(self.took.get().saturating_add(begun.elapsed()));
        Ok(answer)
    }
}
