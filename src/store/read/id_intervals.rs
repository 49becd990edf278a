//! Finds the intervals of event ids that hold the wanted ledgers, in walking order and on demand.
//! Reads runs and rows of ledgers, not events.

use orrery_ledger::domain::{Direction, EventId, LedgerRange, Page};

use super::query::EventQuery;
use crate::encoding::error::StoreError;
use crate::state::ingest_runs::Span;
use crate::state::store::Store;

/// Ids from `first` to `last`, both included. Its ends are edges of blocks or the page's cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    pub first: u64,
    pub last: u64,
}

impl Interval {
    fn is_empty(self) -> bool {
        self.first > self.last
    }

    fn intersection(self, other: Self) -> Self {
        Self { first: self.first.max(other.first), last: self.last.min(other.last) }
    }
}

/// Intervals of ids that may hold the wanted events.
pub(crate) struct Intervals<'s> {
    store: &'s Store,
    /// The wanted ledgers; `None` for all.
    wanted: Option<LedgerRange>,
    direction: Direction,
    /// Ids that the page's cursor admits; none when the interval is empty.
    page: Interval,
}

impl<'s> Intervals<'s> {
    /// Creates the intervals of the events that a query may find.
    pub(crate) fn of_query(store: &'s Store, query: &EventQuery) -> Self {
        let direction = query.page.direction;
        Self { store, wanted: query.ledgers, direction, page: of_page(&query.page) }
    }

    /// Creates the intervals of all events of a range of ledgers, in the order of their ids.
    pub(crate) fn of_ledgers(store: &'s Store, ledgers: LedgerRange) -> Self {
        let page = Interval { first: 0, last: u64::MAX };
        Self { store, wanted: Some(ledgers), direction: Direction::OldestFirst, page }
    }

    /// Returns the interval at which a walk begins.
    pub(crate) fn first(&self) -> Result<Option<Interval>, StoreError> {
        self.at_or_after(match self.direction {
            Direction::OldestFirst => self.page.first,
            Direction::NewestFirst => self.page.last,
        })
    }

    /// Returns the interval that holds an id, or the next one in walking order.
    pub(crate) fn at_or_after(&self, mut id: u64) -> Result<Option<Interval>, StoreError> {
        loop {
            let beyond_page = match self.direction {
                Direction::OldestFirst => id > self.page.last,
                Direction::NewestFirst => id < self.page.first,
            };
            if beyond_page || self.page.is_empty() {
                return Ok(None);
            }
            let span = {
                let coverage = self.store.coverage.read();
                match self.wanted.filter(|wanted| !coverage.is_within(*wanted)) {
                    Some(wanted) => {
                        coverage.span(wanted, id, self.direction).map(|span| (span, wanted))
                    }
                    None => {
                        // Rows of a write in progress may be in the database already.
                        let published = Interval { first: 0, last: coverage.last_event().0 };
                        let all = self.page.intersection(published);
                        return Ok(Some(all).filter(|all| self.holds_or_follows(all, id)));
                    }
                }
            };
            let Some((span, wanted)) = span else { return Ok(None) };
            let interval = self.ids(&span, wanted)?.intersection(self.page);
            if self.holds_or_follows(&interval, id) {
                return Ok(Some(interval));
            }
            // The wanted ledgers of these runs have no events, or none at or after the id.
            let next = match self.direction {
                Direction::OldestFirst => Some(span.last.end_event.0),
                Direction::NewestFirst => span.first.first_event.0.checked_sub(1),
            };
            match next {
                Some(next) => id = next,
                None => return Ok(None),
            }
        }
    }

    fn holds_or_follows(&self, interval: &Interval, id: u64) -> bool {
        let reached = match self.direction {
            Direction::OldestFirst => id <= interval.last,
            Direction::NewestFirst => interval.first <= id,
        };
        reached && !interval.is_empty()
    }

    /// Returns the ids of the wanted ledgers of a span; empty when they have no events.
    fn ids(&self, span: &Span, wanted: LedgerRange) -> Result<Interval, StoreError> {
        let first = if wanted.first <= span.first.ledgers.first {
            span.first.first_event
        } else {
            self.store.ledger_or_missing(wanted.first)?.first_event
        };
        let end = if span.last.ledgers.last <= wanted.last {
            span.last.end_event
        } else {
            let row = self.store.ledger_or_missing(wanted.last)?;
            EventId(row.first_event.0 + row.counts.events())
        };
        Ok(Interval { first: first.0, last: end.0.saturating_sub(1) })
    }
}

/// Returns the ids that a page may hold.
fn of_page(page: &Page<EventId>) -> Interval {
    const NOTHING: Interval = Interval { first: 1, last: 0 };
    let Some(cursor) = page.cursor else { return Interval { first: 0, last: u64::MAX } };
    match page.direction {
        Direction::OldestFirst => match cursor.0.checked_add(1) {
            Some(first) => Interval { first, last: u64::MAX },
            None => NOTHING,
        },
        Direction::NewestFirst => match cursor.0.checked_sub(1) {
            Some(last) => Interval { first: 0, last },
            None => NOTHING,
        },
    }
}
