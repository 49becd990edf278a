//! Failures of writes, made on purpose. Every write to the database goes through one function, which
//! asks here whether it is to fail. No setting, flag or request reaches this: only a program that holds
//! the [`super::Store`] itself, which is what tests do, can plan a failure. Without a plan it costs one
//! load of an atomic flag for each write.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::StoreError;

/// How a write was to be made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// A batch, on disk when the call returns.
    Synced,
    /// A batch, in the log when the call returns.
    Logged,
    /// A batch, in memory only.
    Unlogged,
    /// Everything in memory, to disk.
    Flush,
}

/// What goes wrong with a write. A batch is atomic, so there is nothing between these two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing of it is written, and the write fails.
    NotWritten,
    /// All of it is written, and the write fails nevertheless: what is seen when the disk fails after
    /// the data has reached it.
    Written,
}

type Plan = Box<dyn FnMut(WriteKind) -> Option<Fault> + Send>;

/// The planned failures of one store; none unless a test plans some.
#[derive(Default)]
pub struct Faults {
    planned: AtomicBool,
    plan: Mutex<Option<Plan>>,
}

impl Faults {
    /// Asks `plan` about each write from now on, in the order in which they are made.
    pub fn plan(&self, plan: impl FnMut(WriteKind) -> Option<Fault> + Send + 'static) {
        *self.plan.lock() = Some(Box::new(plan));
        self.planned.store(true, Ordering::SeqCst);
    }

    /// Lets all writes succeed again.
    pub fn clear(&self) {
        self.planned.store(false, Ordering::SeqCst);
        *self.plan.lock() = None;
    }

    /// Makes a write, or lets it fail as planned.
    pub(super) fn write(
        &self,
        kind: WriteKind,
        write: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if !self.planned.load(Ordering::Relaxed) {
            return write();
        }
        let fault = self.plan.lock().as_mut().and_then(|plan| plan(kind));
        match fault {
            None => write(),
            Some(Fault::NotWritten) => Err(failure(kind)),
            Some(Fault::Written) => write().and(Err(failure(kind))),
        }
    }
}

fn failure(kind: WriteKind) -> StoreError {
    StoreError::Database(format!("IO error: No space left on device (planned, {kind:?})"))
}
