//! Injects write failures in tests, and calls tests back between a write and what follows it. Every write to the database goes through [`Faults::write`],
//! which decides whether it fails. No setting, flag or request can schedule a failure, only a
//! program that holds the [`super::Store`] itself, as tests do. Without a plan the cost is one
//! atomic load per write.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::encoding::error::StoreError;

/// How a write is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// A batch that is durable when the call returns.
    Synced,
    /// A batch that is in the WAL, but not synced, when the call returns.
    Logged,
    /// A batch in the memtables only.
    Unlogged,
    /// A flush of all memtables, or a sync of the WAL.
    Flush,
}

/// What goes wrong with a write. A batch is atomic, so there are no other outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is written, and the write fails.
    NotWritten,
    /// Everything is written, and the write still fails, as when the disk fails after the data has
    /// reached it.
    Written,
}

type Plan = Box<dyn FnMut(WriteKind) -> Option<Fault> + Send>;
type Observer = Box<dyn FnMut(WriteKind) + Send>;

/// Scheduled failures of one store; none unless a test schedules some.
#[derive(Default)]
pub struct Faults {
    planned: AtomicBool,
    plan: Mutex<Option<Plan>>,
    after_writes: Mutex<Option<Observer>>,
}

impl Faults {
    /// Makes `plan` decide about each write from now on, in the order of the writes.
    pub fn plan(&self, plan: impl FnMut(WriteKind) -> Option<Fault> + Send + 'static) {
        *self.plan.lock() = Some(Box::new(plan));
        self.planned.store(true, Ordering::SeqCst);
    }

    /// Calls `observe` after each write from now on, when the database has it and the state of the
    /// store in memory does not. `observe` may read the store, but not write to it.
    pub fn after_writes(&self, observe: impl FnMut(WriteKind) + Send + 'static) {
        *self.after_writes.lock() = Some(Box::new(observe));
        self.planned.store(true, Ordering::SeqCst);
    }

    /// Removes the plan and the observer, so that all writes succeed again.
    pub fn clear(&self) {
        self.planned.store(false, Ordering::SeqCst);
        *self.plan.lock() = None;
        *self.after_writes.lock() = None;
    }

    /// Makes a write, or lets it fail as scheduled.
    pub(crate) fn write(
        &self,
        kind: WriteKind,
        write: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if !self.planned.load(Ordering::Relaxed) {
            return write();
        }
        let fault = self.plan.lock().as_mut().and_then(|plan| plan(kind));
        let outcome = match fault {
            None => write(),
            Some(Fault::NotWritten) => return Err(failure(kind)),
            Some(Fault::Written) => write().and(Err(failure(kind))),
        };
        if let Some(observe) = self.after_writes.lock().as_mut() {
            observe(kind);
        }
        outcome
    }
}

fn failure(kind: WriteKind) -> StoreError {
    StoreError::Database(format!("IO error: No space left on device (planned, {kind:?})"))
}
