//! For readers of events: which ledgers are durable, and which events retention has removed.

use orrery_ledger::domain::{Direction, EventId, LedgerRange, LedgerSeq};

use crate::encoding::error::StoreError;
use crate::state::consumers::spec::Needs;
use crate::state::ingest_runs::IngestRun;
use crate::state::store::Store;

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

    /// Returns whether all events that were stored of a ledger are still stored, or it had none. When
    /// true, what was read of them before this call was complete.
    pub fn has_all_events(&self, ledger: LedgerSeq) -> Result<bool, StoreError> {
        if !self.removed(Needs::EVENTS)?.contains(ledger) {
            return Ok(true);
        }
        // A ledger that had none may be in the set.
        Ok(self.ledger(ledger)?.is_some_and(|row| row.counts.events() == 0))
    }

    /// Returns the ledger of an event that retention has removed; `None` for an event that is stored
    /// or never was.
    pub fn ledger_of_lost_event(&self, id: EventId) -> Result<Option<LedgerSeq>, StoreError> {
        let Some(before) = id.0.checked_sub(1) else { return Ok(None) };
        let lost = self.lost_events(EventId(before))?;
        Ok(lost.filter(|lost| lost.first == id).map(|lost| lost.ledgers.first))
    }

    /// Returns the first consecutive events after `after` that retention has removed. What was read
    /// before this call is complete up to the first event that it returns.
    pub fn lost_events(&self, after: EventId) -> Result<Option<LostEvents>, StoreError> {
        let removed = self.removed(Needs::EVENTS)?;
        let mut first: Option<LostEvents> = None;
        for ledgers in removed.ranges() {
            let lost = self.first_of(*ledgers, after)?;
            if let Some(lost) = lost
                && first.is_none_or(|first| lost.first < first.first)
            {
                first = Some(lost);
            }
        }
        Ok(first)
    }

    /// Returns the first consecutive events after `after` that were stored of a range of ledgers.
    fn first_of(
        &self,
        wanted: LedgerRange,
        after: EventId,
    ) -> Result<Option<LostEvents>, StoreError> {
        let mut next = after.0.saturating_add(1);
        loop {
            let span = self.coverage.read().span(wanted, next, Direction::OldestFirst);
            let Some(run) = span.map(|span| span.first) else { return Ok(None) };
            // Ledgers and ids both ascend within a run.
            let start = match run.ledgers.first >= wanted.first {
                true => run.first_event,
                false => self.ledger_or_missing(wanted.first)?.first_event,
            };
            let end = match wanted.last.next().filter(|after| *after <= run.ledgers.last) {
                None => run.end_event,
                Some(after) => self.ledger_or_missing(after)?.first_event,
            };
            let first = EventId(next.max(start.0));
            if first < end {
                let last = EventId(end.0 - 1);
                let ledgers = LedgerRange {
                    first: self.ledger_of(&run, first)?,
                    last: self.ledger_of(&run, last)?,
                };
                return Ok(Some(LostEvents { first, last, ledgers }));
            }
            next = next.max(run.end_event.0);
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
