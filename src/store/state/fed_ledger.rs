//! A ledger of the feed.

use orrery_ledger::domain::LedgerSeq;

/// A ledger of the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FedLedger {
    /// Its 1-based position in the order of ingestion.
    pub place: u64,
    /// The ledger.
    pub ledger: LedgerSeq,
    /// Whether it was newer than all ledgers stored before.
    pub arrival: Arrival,
}

/// How a ledger relates to those stored before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It was newer than all stored ledgers.
    Live,
    /// A newer ledger was stored already.
    Backfilled,
}
