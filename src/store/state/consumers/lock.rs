//! The lock that serialises changes to the rows of one consumer.

use parking_lot::{Mutex, MutexGuard};

use super::rows::ConsumerEffects;
use crate::encoding::error::StoreError;

/// Makes one change, and returns the callback that receives the outcome of the write.
pub(crate) type Change = Box<dyn FnOnce(&mut ConsumerEffects<'_>) -> OutcomeCallback + Send>;
pub(crate) type OutcomeCallback = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Serialises changes to the rows of one consumer: its steps and changes from outside.
#[derive(Default)]
pub(crate) struct ConsumerLock {
    /// Held from the first read of the rows until the changes that depend on it are durable.
    changing: Mutex<()>,
    /// Changes waiting for the lock.
    pub(crate) waiting: Mutex<Vec<Change>>,
}

impl ConsumerLock {
    /// Waits for the lock, and holds it until the guard is dropped.
    pub(crate) fn acquire(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }
}
