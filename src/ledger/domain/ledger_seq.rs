//! Ledger sequence numbers and ranges of them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Sequence number of a ledger. Genesis is 1; the first ledger that any source yields is 2.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct LedgerSeq(pub u32);

impl LedgerSeq {
    /// The first ledger with metadata.
    pub const FIRST: Self = Self(2);

    /// Returns the next ledger; `None` at the end of the number range.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }

    /// Returns the previous ledger; `None` before ledger 0.
    pub fn previous(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}

impl fmt::Display for LedgerSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u32> for LedgerSeq {
    fn from(value: u32) -> Self {
        Self(value)
    }
}

/// Ledgers from `first` to `last`, both included; empty when `first` is after `last`. Serialised as a
/// list of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(LedgerSeq, LedgerSeq)", into = "(LedgerSeq, LedgerSeq)")]
pub struct LedgerRange {
    /// First ledger of the range.
    pub first: LedgerSeq,
    /// Last ledger of the range.
    pub last: LedgerSeq,
}

impl LedgerRange {
    /// Creates the range from `first` to `last`.
    pub fn new(first: impl Into<LedgerSeq>, last: impl Into<LedgerSeq>) -> Self {
        Self { first: first.into(), last: last.into() }
    }

    /// Creates the range of a single ledger.
    pub fn only(ledger: impl Into<LedgerSeq>) -> Self {
        let ledger = ledger.into();
        Self { first: ledger, last: ledger }
    }

    /// Returns whether the range contains no ledger.
    pub fn is_empty(&self) -> bool {
        self.first > self.last
    }

    /// Returns whether the range contains `sequence`.
    pub fn contains(&self, sequence: LedgerSeq) -> bool {
        self.first <= sequence && sequence <= self.last
    }

    /// Returns the number of ledgers in the range.
    pub fn len(&self) -> u64 {
        if self.is_empty() { 0 } else { u64::from(self.last.0) - u64::from(self.first.0) + 1 }
    }
}

impl From<(LedgerSeq, LedgerSeq)> for LedgerRange {
    fn from((first, last): (LedgerSeq, LedgerSeq)) -> Self {
        Self { first, last }
    }
}

impl From<LedgerRange> for (LedgerSeq, LedgerSeq) {
    fn from(range: LedgerRange) -> Self {
        (range.first, range.last)
    }
}

impl fmt::Display for LedgerRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}–{}", self.first, self.last)
    }
}
