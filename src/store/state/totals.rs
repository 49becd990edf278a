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
        }
    }

    /// Returns whether the close time is that of the newest ledger.
    pub(crate) fn is_of_latest(&self, latest: &LedgerRow) -> bool {
        self.latest_close_time == latest.close_time.seconds()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        for value in [self.events, self.transactions, self.latest_close_time] {
            out.extend_from_slice(&value.to_be_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Ok(read(bytes)?.0)
    }

    /// Returns the first ledgers whose events and transactions are stored, which the row held before
    /// there were sets of removed ledgers.
    pub(crate) fn old_floors(bytes: &[u8]) -> Result<Option<(LedgerSeq, LedgerSeq)>, Malformed> {
        Ok(read(bytes)?.1)
    }

    pub(crate) fn load(database: &Database) -> Result<Self, StoreError> {
        let Some(bytes) = database.get(Family::Meta, TOTALS_ROW)? else {
            return Ok(Self::default());
        };
        Self::decode(&bytes).map_err(corrupt(Family::Meta, TOTALS_ROW))
    }
}

fn read(bytes: &[u8]) -> Result<(Totals, Option<(LedgerSeq, LedgerSeq)>), Malformed> {
    let mut reader = Reader::new(bytes);
    let totals = Totals {
        events: reader.u64()?,
        transactions: reader.u64()?,
        latest_close_time: reader.u64()?,
    };
    let floors = match reader.is_at_end() {
        true => None,
        false => Some((LedgerSeq(reader.u32()?), LedgerSeq(reader.u32()?))),
    };
    reader.end()?;
    Ok((totals, floors))
}
