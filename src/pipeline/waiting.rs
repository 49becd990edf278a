//! Which ledgers wait until they may be stored, for those who show it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use orrery_ledger::domain::LedgerRange;

/// The ledgers that wait in all pipelines of a process.
#[derive(Debug, Default)]
pub struct WaitingLedgers {
    next: AtomicU64,
    of_gates: Mutex<BTreeMap<u64, LedgerRange>>,
}

/// What waits in one place. Nothing does any more once this is dropped.
pub(super) struct Place {
    all: Arc<WaitingLedgers>,
    number: u64,
}

impl WaitingLedgers {
    /// Returns the ledgers that wait, from the oldest on.
    pub fn ranges(&self) -> Vec<LedgerRange> {
        let mut ranges: Vec<_> = self.of_gates.lock().values().copied().collect();
        ranges.sort_unstable();
        ranges
    }

    /// Returns a place at which ledgers may wait.
    pub(super) fn place(self: &Arc<Self>) -> Place {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Place { all: Arc::clone(self), number }
    }
}

impl Place {
    /// Records which ledgers wait here.
    pub(super) fn set(&self, ledgers: Option<LedgerRange>) {
        let mut of_gates = self.all.of_gates.lock();
        match ledgers {
            Some(ledgers) => of_gates.insert(self.number, ledgers),
            None => of_gates.remove(&self.number),
        };
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.set(None);
    }
}
