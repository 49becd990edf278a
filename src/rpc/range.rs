//! Which ledgers a method can answer about: consecutive ones up to the newest.

use super::{Rpc, RpcError};
use crate::domain::LedgerSeq;

/// Ledgers without a gap, and when their ends closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub oldest: LedgerSeq,
    pub latest: LedgerSeq,
    /// UNIX seconds.
    pub oldest_closed_at: u64,
    /// UNIX seconds.
    pub latest_closed_at: u64,
}

/// What a method needs of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needed {
    /// That it was stored.
    Header,
    /// Its raw form.
    RawLedger,
    /// Its events.
    Events,
}

impl Range {
    pub(super) fn contains(&self, ledger: u64) -> bool {
        (u64::from(self.oldest.0)..=u64::from(self.latest.0)).contains(&ledger)
    }
}

impl Rpc {
    /// The ledgers of which all is stored that is needed, up to the newest ledger; what is behind a gap is not among
    /// them. None before the first.
    ///
    /// # Errors
    /// What the store says.
    pub(super) fn stored(&self, needed: Needed) -> Result<Option<Range>, RpcError> {
        let ends = self.store.ends();
        let Some(latest) = ends.latest else { return Ok(None) };
        let Some(range) = self.store.range_of(latest) else { return Ok(None) };
        let floor = match needed {
            Needed::Header => range.first,
            Needed::RawLedger => match self.store.first_raw()? {
                Some(first) => first,
                None => return Ok(None),
            },
            Needed::Events => ends.events_from,
        };
        let oldest = range.first.max(floor);
        if oldest > latest {
            return Ok(None);
        }
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

    /// The same, where there has to be one.
    ///
    /// # Errors
    /// −32603 as long as there is none.
    pub(super) fn range(&self, needed: Needed) -> Result<Range, RpcError> {
        let no_raw = "raw ledgers are not kept, which this method reads: see retention.raw_ledgers";
        match self.stored(needed)? {
            Some(range) => Ok(range),
            None if needed == Needed::RawLedger && self.stored(Needed::Header)?.is_some() => {
                Err(RpcError::internal(no_raw))
            }
            None => Err(RpcError::internal("data stores are not initialized")),
        }
    }
}
