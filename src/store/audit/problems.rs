//! What is wrong, collected from all threads. Knows places and sentences.

use std::fmt;

use parking_lot::Mutex;

use super::super::columns::Family;
use crate::domain::LedgerSeq;

/// More are not kept: a store with so much damage is lost.
const MOST: usize = 1000;

/// Something that is not as it was written, or does not fit the rest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where: a ledger, or a family and a key.
    pub place: String,
    /// What is wrong there.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// All that were found so far.
#[derive(Default)]
pub(super) struct Problems {
    found: Mutex<Vec<Problem>>,
}

impl Problems {
    pub(super) fn add(&self, place: String, what: String) {
        let mut found = self.found.lock();
        if found.len() <= MOST {
            found.push(Problem { place, what });
        }
    }

    /// Whether to give up.
    pub(super) fn are_too_many(&self) -> bool {
        self.found.lock().len() > MOST
    }

    /// In the order of their places, and whether there are more.
    pub(super) fn sorted(&self) -> (Vec<Problem>, bool) {
        let mut found = std::mem::take(&mut *self.found.lock());
        let more = found.len() > MOST;
        found.truncate(MOST);
        found.sort();
        found.dedup();
        (found, more)
    }
}

/// A row as a place.
pub(super) fn row(family: Family, key: &[u8]) -> String {
    format!("{} {}", family.name(), hex::encode(key))
}

/// A ledger's rows of a family as a place.
pub(super) fn of_ledger(family: Family, ledger: LedgerSeq) -> String {
    format!("{} of ledger {ledger}", family.name())
}
