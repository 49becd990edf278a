//! Determines the ledgers that a method can answer about: a gapless range up to the newest ledger.

use super::{Rpc, RpcError};
use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet};
use orrery_store::Needs;

/// A gapless range of ledgers, with the close times of its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub oldest: LedgerSeq,
    pub latest: LedgerSeq,
    /// UNIX time in seconds.
    pub oldest_closed_at: u64,
    /// UNIX time in seconds.
    pub latest_closed_at: u64,
}

/// The part of a ledger that a method reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needed {
    /// Only the ledger's row: the ledger has to be stored.
    Header,
    /// The raw ledger.
    RawLedger,
    /// The ledger's events.
    Events,
}

impl Range {
    pub(super) fn contains(&self, ledger: u64) -> bool {
        (u64::from(self.oldest.0)..=u64::from(self.latest.0)).contains(&ledger)
    }
}

impl Rpc {
    /// Returns the gapless range of ledgers up to the newest for which `needed` is stored, or
    /// `None` while there is none.
    pub(super) fn stored_range(&self, needed: Needed) -> Result<Option<Range>, RpcError> {
        let Some(latest) = self.store.ends().latest else { return Ok(None) };
        let Some(range) = self.store.range_of(latest) else { return Ok(None) };
        let needs = match needed {
            Needed::Header => Needs::default(),
            Needed::RawLedger => Needs::RAW_LEDGERS,
            Needed::Events => Needs::EVENTS,
        };
        let mut kept = LedgerSet::from(LedgerRange { first: range.first, last: latest });
        kept.remove_all(&self.store.removed(needs)?);
        let newest = kept.ranges().last().filter(|kept| kept.last == latest);
        let Some(oldest) = newest.map(|newest| newest.first) else { return Ok(None) };
        let closed_at = |ledger| -> Result<Option<u64>, RpcError> {
            Ok(self.store.ledger(ledger)?.map(|row| row.close_time.seconds()))
        };
        let (Some(oldest_closed_at), Some(latest_closed_at)) =
            (closed_at(oldest)?, closed_at(latest)?)
        else {
            return Ok(None);
        };
        Ok(Some(Range { oldest, latest, oldest_closed_at, latest_closed_at }))
    }

    /// Like [`Self::stored_range`], but an empty range is an error.
    ///
    /// # Errors
    /// −32603 while there is no such ledger.
    pub(super) fn range(&self, needed: Needed) -> Result<Range, RpcError> {
        let no_raw = "raw ledgers are not kept, which this method reads: see retention.raw_ledgers";
        match self.stored_range(needed)? {
            Some(range) => Ok(range),
            None if needed == Needed::RawLedger && self.stored_range(Needed::Header)?.is_some() => {
                Err(RpcError::internal(no_raw))
            }
            None => Err(RpcError::internal("data stores are not initialized")),
        }
    }
}
