//! The id up to which events are durable.

use std::sync::atomic::{AtomicU64, Ordering};

use orrery_ledger::domain::EventId;

/// Id of the last event that survives a crash; every event before it does, too.
#[derive(Default)]
pub(crate) struct DurableEvents(pub(crate) AtomicU64);

impl DurableEvents {
    /// Creates the value for a store that was just opened, all of whose events are on disk.
    pub(crate) fn up_to(last: EventId) -> Self {
        Self(AtomicU64::new(last.0))
    }

    /// Records that every event up to `last` is on disk; returns whether the durable id advanced.
    pub(crate) fn advance_to(&self, last: EventId) -> bool {
        self.0.fetch_max(last.0, Ordering::AcqRel) < last.0
    }
}
