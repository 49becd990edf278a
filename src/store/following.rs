//! For those who follow events by their ids: up to which id events are there to stay, and which of those
//! behind an id retention has removed.

use std::sync::atomic::{AtomicU64, Ordering};

use super::columns::Family;
use super::database::corrupt;
use super::runs::Run;
use super::{Store, StoreError, TOTALS_ROW, Totals};
use crate::domain::{Direction, EventId, LedgerRange, LedgerSeq};

/// Events that followed one another and are not kept any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostEvents {
    /// Id of the first of them.
    pub first: EventId,
    /// Id of the last.
    pub last: EventId,
    /// Their ledgers.
    pub ledgers: LedgerRange,
}

/// The last event that no crash undoes.
#[derive(Default)]
pub(super) struct DurableEvents(AtomicU64);

impl DurableEvents {
    /// All of these are on disk when a store is opened.
    pub(super) fn up_to(last: EventId) -> Self {
        Self(AtomicU64::new(last.0))
    }

    /// Everything up to this event is on disk; says whether that is news.
    pub(super) fn are_now(&self, last: EventId) -> bool {
        self.0.fetch_max(last.0, Ordering::AcqRel) < last.0
    }
}

impl Store {
    /// Id of the last event that is on disk; 0 when there is none. Those after it may be read already, but
    /// a crash may take them away and give their ids to others.
    pub fn last_durable_event(&self) -> EventId {
        EventId(self.durable_events.0.load(Ordering::Acquire))
    }

    /// Whether no crash takes away, or gives another id to, an event of these ledgers, which are stored.
    ///
    /// # Errors
    /// What the database says.
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

    /// The first events after `after` that retention has removed, or is about to. What was read before this
    /// is whole up to the first event that it names.
    ///
    /// # Errors
    /// What the database says.
    pub fn lost_events(&self, after: EventId) -> Result<Option<LostEvents>, StoreError> {
        // As the removal itself left it: what is in memory follows a moment later.
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
            // Both ascend within a run: what is lost of it is its beginning.
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

    /// The ledger of an event that was given its id in a run.
    fn ledger_of(&self, run: &Run, event: EventId) -> Result<LedgerSeq, StoreError> {
        let (mut first, mut last) = (run.ledgers.first.0, run.ledgers.last.0);
        // The last ledger that begins at the event or before: those after it with the same first id are
        // empty, or it is not theirs.
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
