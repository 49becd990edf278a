//! Totals over all stored ledgers, and their row in the database.

use orrery_ledger::domain::LedgerSeq;

use crate::db::database::Database;
use crate::encoding::bytes::{Malformed, Reader};
use crate::encoding::columns::Family;
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::ledgers::LedgerRow;

pub(crate) const TOTALS_ROW: &[u8] = b"totals";

/// Totals over all stored ledgers, without what was pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Stored events.
    pub events: u64,
    /// Stored smart-contract transactions.
    pub transactions: u64,
    /// Events of ledgers below this one have been pruned, or are being pruned.
    pub events_from: LedgerSeq,
    /// Transactions of ledgers below this one have been pruned, or are being pruned.
    pub transactions_from: LedgerSeq,
    /// Close time of the newest ledger, UNIX seconds; 0 before the first.
    pub(crate) latest_close_time: u64,
}

impl Totals {
    pub(crate) fn with(&self, ledger: &LedgerRow, newest: bool) -> Self {
        Self {
            events: self.events + ledger.counts.events(),
            transactions: self.transactions + u64::from(ledger.counts.stored_transactions),
            latest_close_time: if newest {
                ledger.close_time.seconds()
            } else {
                self.latest_close_time
            },
            ..*self
        }
    }

    /// Returns whether the close time is that of the newest ledger.
    pub(crate) fn is_of_latest(&self, latest: &LedgerRow) -> bool {
        self.latest_close_time == latest.close_time.seconds()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        for value in [self.events, self.transactions, self.latest_close_time] {
            out.extend_from_slice(&value.to_be_bytes());
        }
        for ledger in [self.events_from, self.transactions_from] {
            out.extend_from_slice(&ledger.0.to_be_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let totals = Self {
            events: reader.u64()?,
            transactions: reader.u64()?,
            latest_close_time: reader.u64()?,
            events_from: LedgerSeq(reader.u32()?),
            transactions_from: LedgerSeq(reader.u32()?),
        };
        reader.end()?;
        Ok(totals)
    }

    pub(crate) fn load(database: &Database) -> Result<Self, StoreError> {
        let Some(bytes) = database.get(Family::Meta, TOTALS_ROW)? else {
            return Ok(Self::default());
        };
        Self::decode(&bytes).map_err(corrupt(Family::Meta, TOTALS_ROW))
    }
}
