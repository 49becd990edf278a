//! Ledgers between the steps of the pipeline, in the order of the iterator.

use std::error::Error;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use super::error::PipelineError;
use orrery_ledger::domain::{Origin, RawLedger};
use orrery_store::{Durability, PreparedLedger};

/// Maximum number of ledgers stored with one write, when they arrive faster than they are stored.
const MAX_LEDGERS_PER_WRITE: usize = 16;
/// Size in bytes from which on no further ledger is added to a write.
const TARGET_BYTES_PER_WRITE: usize = 8 << 20;

/// A ledger that a worker prepares.
pub(super) struct Slot {
    origin: Origin,
    prepared: Receiver<Result<PreparedLedger, PipelineError>>,
}

/// A ledger for a worker.
pub(super) struct Work {
    pub ledger: RawLedger,
    pub done: SyncSender<Result<PreparedLedger, PipelineError>>,
}

/// Ledgers waiting to be stored, in the order of the iterator.
pub(super) struct PendingLedgers {
    pub slots: Receiver<Result<Slot, PipelineError>>,
    /// Next ledger, taken from `slots` before it was prepared.
    pub peeked: Option<Slot>,
}

/// A prepared ledger and its origin.
pub(super) type Prepared = (Origin, PreparedLedger);

impl PendingLedgers {
    /// Waits for the ledgers to store with the next write. Returns them with the error of the
    /// ledger after them, if it failed; returns `None` when no more ledgers follow.
    pub(super) fn next_batch(
        &mut self,
        durability: Durability,
    ) -> Option<(Vec<Prepared>, Result<(), PipelineError>)> {
        let first = match self.peeked.take() {
            Some(slot) => Ok(slot),
            None => self.slots.recv().ok()?,
        };
        let (mut ledgers, mut bytes) = (Vec::new(), 0);
        let mut next = Some(first.and_then(Slot::wait));
        while let Some(prepared) = next {
            match prepared {
                Ok((origin, ledger)) => {
                    bytes += ledger.bytes();
                    ledgers.push((origin, ledger));
                }
                Err(error) => return Some((ledgers, Err(error))),
            }
            if ledgers.len() == MAX_LEDGERS_PER_WRITE || bytes >= TARGET_BYTES_PER_WRITE {
                break;
            }
            next = self.try_next(durability);
        }
        Some((ledgers, Ok(())))
    }

    /// Returns one more ledger for the current write, if one is queued. Unless durability is
    /// deferred, it must already be prepared, so that the ledgers before it do not wait.
    fn try_next(&mut self, durability: Durability) -> Option<Result<Prepared, PipelineError>> {
        let slot = match self.slots.try_recv().ok()? {
            Ok(slot) => slot,
            Err(error) => return Some(Err(error)),
        };
        if durability == Durability::Deferred {
            return Some(slot.wait());
        }
        match slot.prepared.try_recv() {
            Ok(prepared) => Some(prepared.map(|ledger| (slot.origin, ledger))),
            Err(TryRecvError::Disconnected) => Some(Err(PipelineError::Worker)),
            Err(TryRecvError::Empty) => {
                self.peeked = Some(slot);
                None
            }
        }
    }
}

impl Slot {
    /// Waits until the ledger is prepared.
    fn wait(self) -> Result<Prepared, PipelineError> {
        let ledger = self.prepared.recv().map_err(|_| PipelineError::Worker)??;
        Ok((self.origin, ledger))
    }
}

/// Sends ledgers to the workers, and to the committer, in order, the slots in which it receives the
/// results.
pub(super) fn feed<E: Error + Send + Sync + 'static>(
    ledgers: impl Iterator<Item = Result<RawLedger, E>>,
    work: &SyncSender<Work>,
    slots: &SyncSender<Result<Slot, PipelineError>>,
) {
    for ledger in ledgers {
        let ledger = match ledger {
            Ok(ledger) => ledger,
            Err(error) => {
                // The committer returns the error after storing the ledgers before it.
                let _ = slots.send(Err(PipelineError::Source(Box::new(error))));
                return;
            }
        };
        let (done, prepared) = sync_channel(1);
        let slot = Slot { origin: ledger.origin.clone(), prepared };
        let handed_over = slots.send(Ok(slot)).is_ok() && work.send(Work { ledger, done }).is_ok();
        if !handed_over {
            // The committer has stopped and returns the reason.
            return;
        }
    }
}
