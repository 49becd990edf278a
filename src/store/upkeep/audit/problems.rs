//! Collects the problems that all audit threads find, each as a place and a sentence.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use orrery_ledger::domain::LedgerSeq;
use parking_lot::Mutex;

use crate::encoding::columns::Family;
use crate::encoding::error::{NO_DESCRIPTOR, StoreError};

/// Maximum number of problems reported. A store with more damage is considered lost, and the audit
/// stops.
const MAX_PROBLEMS: usize = 1000;

/// Stored data that was changed after it was written, or that contradicts other stored data.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where: a ledger, or a column family and a key.
    pub place: String,
    /// What is wrong there.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Problems found so far.
#[derive(Default)]
pub(super) struct Problems {
    found: Mutex<Vec<Problem>>,
    /// Whether a file could not be opened because this process has too many open. What was not read is
    /// not damaged, and so nothing that was found counts.
    lacks_descriptors: AtomicBool,
}

impl Problems {
    pub(super) fn add(&self, place: String, what: String) {
        if what.contains(NO_DESCRIPTOR) {
            self.lacks_descriptors.store(true, Ordering::Relaxed);
        }
        let mut found = self.found.lock();
        if found.len() <= MAX_PROBLEMS {
            found.push(Problem { place, what });
        }
    }

    /// Returns whether none has been found so far.
    pub(super) fn is_empty(&self) -> bool {
        self.found.lock().is_empty()
    }

    /// Returns whether the audit should stop.
    pub(super) fn limit_exceeded(&self) -> bool {
        self.lacks_descriptors.load(Ordering::Relaxed) || self.found.lock().len() > MAX_PROBLEMS
    }

    /// Fails when not everything could be read.
    pub(super) fn check_read(&self) -> Result<(), StoreError> {
        match self.lacks_descriptors.load(Ordering::Relaxed) {
            true => Err(StoreError::too_few_descriptors()),
            false => Ok(()),
        }
    }

    /// Takes the problems, sorted by place, and returns with them whether there are more.
    pub(super) fn sorted(&self) -> (Vec<Problem>, bool) {
        let mut found = std::mem::take(&mut *self.found.lock());
        let more = found.len() > MAX_PROBLEMS;
        found.truncate(MAX_PROBLEMS);
        found.sort();
        found.dedup();
        (found, more)
    }
}

/// Names a row as the place of a problem.
pub(super) fn row(family: Family, key: &[u8]) -> String {
    format!("{} {}", family.name(), hex::encode(key))
}

/// Names a ledger's rows of a family as the place of a problem.
pub(super) fn of_ledger(family: Family, ledger: LedgerSeq) -> String {
    format!("{} of ledger {ledger}", family.name())
}
