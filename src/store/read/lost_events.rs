//! For readers that follow events by id: which ledgers are durable, and which events after an id
//! retention has removed.

use orrery_ledger::domain::{Direction, EventId, LedgerRange, LedgerSeq};

use crate::encoding::columns::Family;
use crate::encoding::error::{StoreError, corrupt};
use crate::state::ingest_runs::IngestRun;
use crate::state::store::Store;
use crate::state::totals::{TOTALS_ROW, Totals};

/// Events with consecutive ids that are no longer stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostEvents {
    /// Id of the first lost event.
    pub first: EventId,
    /// Id of the last lost event.
    pub last: EventId,
    /// Ledgers of the first to the last lost event.
    pub ledgers: LedgerRange,
}

impl Store {
    /// Returns whether all events of the stored ledgers of this range are durable, so that a crash
    /// neither removes them nor reuses their ids.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    pub fn are_durable(&self, ledgers: LedgerRange) -> Result<bool, StoreError> {
        let durable = self.last_durable_event();
        for piece in self.pieces(ledgers) {
            let last = self.ledger_or_missing(piece.last)?;
            if last.first_event.0 + last.counts.events() > durable.0 + 1 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the first consecutive events after `after` that retention has removed or is about to
    /// remove. What was read before this call is complete up to the first event that it returns.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    pub fn lost_events(&self, after: EventId) -> Result<Option<LostEvents>, StoreError> {
        // Read from the database, where the totals change in the same write as the removal; the
        // totals in memory are updated after it.
        let totals = self.database.get(Family::Meta, TOTALS_ROW)?;
        let totals = totals.map(|bytes| Totals::decode(&bytes)).transpose();
        let kept_from =
            totals.map_err(corrupt(Family::Meta, TOTALS_ROW))?.unwrap_or_default().events_from;
        let Some(last_lost) = kept_from.previous() else { return Ok(None) };
        let lost = LedgerRange { first: LedgerSeq(0), last: last_lost };
        let mut next = after.0.saturating_add(1);
        loop {
            let span = self.coverage.read().span(lost, next, Direction::OldestFirst);
            let Some(run) = span.map(|span| span.first) else { return Ok(None) };
            // Ledgers and ids both ascend within a run, so its lost part is its beginning.
            let end = match run.ledgers.last <= last_lost {
                true => run.end_event,
                false => self.ledger_or_missing(kept_from)?.first_event,
            };
            let first = EventId(next.max(run.first_event.0));
            if first < end {
                let last = EventId(end.0 - 1);
                let ledgers = LedgerRange {
                    first: self.ledger_of(&run, first)?,
                    last: self.ledger_of(&run, last)?,
                };
                return Ok(Some(LostEvents { first, last, ledgers }));
            }
            next = run.end_event.0;
        }
    }

    /// Returns the ledger of an event whose id belongs to `run`.
    fn ledger_of(&self, run: &IngestRun, event: EventId) -> Result<LedgerSeq, StoreError> {
        let (mut first, mut last) = (run.ledgers.first.0, run.ledgers.last.0);
        // Finds the last ledger whose first event id is not above `event`. An empty ledger has the
        // first id of the ledger after it, so of several with the same first id only the last has
        // events.
        while first < last {
            let middle = last - (last - first) / 2;
            match self.ledger_or_missing(LedgerSeq(middle))?.first_event <= event {
                true => first = middle,
                false => last = middle - 1,
            }
        }
        Ok(LedgerSeq(first))
    }
}
