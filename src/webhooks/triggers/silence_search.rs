//! What a subscription to silence hears in a ledger, and the search for what it heard last.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use super::Sources;
use crate::CONSUMER;
use crate::found::query;
use crate::judging::{JudgedEvent, Verdict};
use crate::rows::in_subscriptions;
use crate::subscription::Subscription;
use orrery_ledger::domain::{Direction, EventId, LedgerRange, LedgerSeq, LedgerSet, Page};
use orrery_membership::Selected;
use orrery_store::{
    Bounds, EventQuery, EventRecord, Mark, Needs, RowCodec, StoreError, Table, row_codec,
};

/// Number of ledgers that are looked through at once.
const AT_ONCE: u32 = 4_096;
/// Number of contracts of a project whose events are looked up one contract after the other.
const MOST_LOOKED_UP: usize = 16;

/// The searches of each subscription, by the first ledger that waits for them.
pub const SEARCHES: Table<((Mark<b'q'>, u32), LedgerSeq), Search> = in_subscriptions();

/// When a subscription heard something last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// The ledger up to which this is known.
    pub up_to: LedgerSeq,
    /// The ledger of the last event, or after which the counting began. Where neither is as near as the
    /// number of ledgers of the subscription: some ledger that is farther.
    pub last: LedgerSeq,
    /// Whether it is the ledger after which the counting began.
    pub is_base: bool,
    /// The first ledger of the search that will say it; 0 when it is known.
    pub next: LedgerSeq,
}

row_codec!(Heard { up_to, last, is_base, next });

impl Heard {
    /// The state of a subscription that heard nothing since it was made.
    pub(super) fn since(made: LedgerSeq) -> Self {
        Self { up_to: made, last: made, is_base: true, next: LedgerSeq(0) }
    }
}

/// The stored ledgers.
pub(crate) struct Ledgers {
    /// All of them.
    pub(super) all: LedgerSet,
    /// Those whose events retention has not removed.
    pub(super) with_events: LedgerSet,
}

impl Ledgers {
    /// Returns those of the store.
    pub fn of(sources: &Sources<'_>) -> Self {
        let status = sources.store.status();
        let all = status.ledgers_with(Needs::default());
        Self { all, with_events: status.ledgers_with(Needs::EVENTS) }
    }
}

/// What was heard in one ledger.
#[derive(Debug, Default)]
pub(super) struct InLedger {
    /// Whether there was an event that matches, or may do so: it is not known.
    pub is_heard: bool,
    /// What the condition could not be asked of.
    pub unmet: Vec<Verdict>,
}

impl InLedger {
    /// Notes what the condition says of an event. Returns whether nothing more need be heard.
    fn note(&mut self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Matches => {
                self.is_heard = true;
                return true;
            }
            Verdict::Differs => {}
            Verdict::Misfits(_) => {
                // The first says it all.
                if !self.unmet.iter().any(|it| matches!(it, Verdict::Misfits(_))) {
                    self.unmet.push(verdict);
                }
            }
            Verdict::Unjudged => {
                self.is_heard = true;
                self.unmet.push(verdict);
            }
        }
        false
    }
}

/// The silence of a subscription.
pub(crate) struct Silence<'a> {
    /// From what it is told.
    pub sources: &'a Sources<'a>,
    /// The stored ledgers.
    pub ledgers: &'a Ledgers,
    /// The subscription.
    pub subscription: &'a Arc<Subscription>,
    /// The number of ledgers.
    pub within: u32,
    /// The work that its condition took, in steps, and may take for one ledger or one search.
    steps: Cell<u64>,
    most_steps: u64,
}

/// A search back for what was heard last before some ledgers, in which nothing was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    /// The last ledger that waits for it.
    pub to: LedgerSeq,
    /// The ledger that is looked at next.
    pub next: LedgerSeq,
    /// The event of that ledger, or of one before it, before which is looked; 0 when it is looked at from its end.
    pub before: EventId,
    /// What is known of older ledgers.
    pub known: Heard,
}

row_codec!(Search { to, next, before, known });

impl Search {
    /// A search back from a ledger, for a subscription that was made after another one.
    pub fn before(ledger: LedgerSeq, made: LedgerSeq) -> Self {
        let next = LedgerSeq(ledger.0.saturating_sub(1));
        Self { to: ledger, next, before: EventId(0), known: Heard::since(made) }
    }
}

/// What a search has found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// See [`Heard::last`].
    pub last: LedgerSeq,
    /// See [`Heard::is_base`].
    pub is_base: bool,
}

/// What came of looking through a piece.
enum Piece {
    /// Nothing is heard in it.
    Silent,
    /// The newest ledger in which something is heard.
    Heard(LedgerSeq),
    /// Time was over, or the condition took too much work: what is before this event is left.
    Left(EventId),
}

impl<'a> Silence<'a> {
    /// The silence of a subscription, for a number of ledgers. Listening to a ledger, and a search, end after so
    /// many steps of its condition.
    pub fn of(
        sources: &'a Sources<'a>,
        ledgers: &'a Ledgers,
        (subscription, within): (&'a Arc<Subscription>, u32),
        most_steps: u64,
    ) -> Self {
        Self { sources, ledgers, subscription, within, steps: Cell::new(0), most_steps }
    }

    /// The work that the condition took so far, in steps.
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }
}

impl Silence<'_> {
    /// The ledger after which the subscription was made.
    pub(super) fn made(&self) -> LedgerSeq {
        LedgerSeq(self.subscription.state().after_ledger)
    }

    /// Whether a ledger counts: it is newer than the subscription, and all of its events were stored.
    pub(super) fn counts(&self, ledger: LedgerSeq) -> bool {
        ledger > self.made() && self.known_around(&self.ledgers.all, ledger).is_some()
    }

    /// Returns the ledger after which counting begins at the latest that reaches a ledger: the making, or the
    /// last one before it that is not among these. The ledger itself where it is not.
    pub(super) fn base(&self, ledgers: &LedgerSet, ledger: LedgerSeq) -> LedgerSeq {
        let range = self.known_around(ledgers, ledger);
        let missing = range.map_or(ledger, |range| LedgerSeq(range.first.0.saturating_sub(1)));
        self.made().max(missing)
    }

    /// Whether retention has removed the events of a stored ledger.
    pub(super) fn is_removed(&self, ledger: LedgerSeq) -> bool {
        self.ledgers.all.contains(ledger) && !self.ledgers.with_events.contains(ledger)
    }

    /// Returns the consecutive ledgers around one of which all events of the contract are stored.
    fn known_around(&self, ledgers: &LedgerSet, ledger: LedgerSeq) -> Option<LedgerRange> {
        let mut known = ledgers.clone();
        if let Some(contract) = self.subscription.contracts.one() {
            let complete = self.sources.store.complete_around(CONSUMER, &contract, ledger)?;
            known = known.within(complete);
        }
        known.ranges().iter().find(|range| range.contains(ledger)).copied()
    }

    /// Returns what a search has found for the ledgers from one on, if there is nothing left to look at.
    pub(super) fn end_of(&self, from: LedgerSeq, search: &Search) -> Option<Found> {
        let Search { next, known, .. } = *search;
        let farthest = from.0.saturating_sub(self.within);
        if next <= known.up_to {
            return Some(Found { last: known.last, is_base: known.is_base });
        }
        if next.0 < farthest {
            return Some(Found { last: LedgerSeq(farthest - 1), is_base: false });
        }
        let base = self.base(&self.ledgers.with_events, next);
        (next <= base).then_some(Found { last: base, is_base: true })
    }

    /// Goes on with a search until `until`, or until the condition took too much work, at least by one event;
    /// `None` when that is first.
    pub(super) fn search_on(
        &self,
        from: LedgerSeq,
        search: &mut Search,
        until: Instant,
    ) -> Result<Option<Found>, StoreError> {
        let farthest = from.0.saturating_sub(self.within);
        loop {
            if let Some(found) = self.end_of(from, search) {
                return Ok(Some(found));
            }
            let base = self.base(&self.ledgers.with_events, search.next);
            let least = (search.known.up_to.max(base).0 + 1).max(farthest);
            let looked = match self.subscription.contracts.project() {
                Some(_) => {
                    let ledger = search.next;
                    let is_heard = self.heard_in(ledger)?.is_heard;
                    (ledger, if is_heard { Piece::Heard(ledger) } else { Piece::Silent })
                }
                None => {
                    let least = least.max(search.next.0.saturating_sub(AT_ONCE - 1));
                    let range = LedgerRange { first: LedgerSeq(least), last: search.next };
                    // Within a piece, the newest event by its id is one of the newest ledger with events.
                    let pieces = self.sources.store.pieces(range);
                    let piece = pieces.last().copied().unwrap_or(range);
                    let before = Some(search.before).filter(|before| before.0 > 0);
                    (piece.first, self.newest_in(piece, before, until)?)
                }
            };
            match looked {
                (_, Piece::Heard(last)) => return Ok(Some(Found { last, is_base: false })),
                (_, Piece::Left(before)) => {
                    search.before = before;
                    return Ok(None);
                }
                (first, Piece::Silent) => {
                    search.next = LedgerSeq(first.0.saturating_sub(1));
                    search.before = EventId(0);
                }
            }
            if Instant::now() >= until || self.steps.get() > self.most_steps {
                return Ok(self.end_of(from, search));
            }
        }
    }

    /// Looks through a piece of ledgers, back from its end or from an event.
    fn newest_in(
        &self,
        piece: LedgerRange,
        before: Option<EventId>,
        until: Instant,
    ) -> Result<Piece, StoreError> {
        let page = Page { direction: Direction::NewestFirst, cursor: before, ..Page::all() };
        let query = EventQuery { page, ..query(self.subscription, piece) };
        let is_over = || Instant::now() >= until;
        let bounds = Bounds { interrupted: &is_over, ..Bounds::NONE };
        let walked =
            self.sources.store.events_within(&query, bounds, |event| match self.judge(event) {
                Verdict::Matches | Verdict::Unjudged => {
                    ControlFlow::Break(Piece::Heard(event.ledger))
                }
                _ if is_over() || self.steps.get() > self.most_steps => {
                    ControlFlow::Break(Piece::Left(event.id))
                }
                Verdict::Differs | Verdict::Misfits(_) => ControlFlow::Continue(()),
            })?;
        let left = walked.interrupted.map(|at| Piece::Left(at.cursor));
        Ok(walked.broken_off.or(left).unwrap_or(Piece::Silent))
    }

    /// Listens to one ledger: until something is heard. An event of which it is not known whether it matches may
    /// do so, and leads to no alarm. So do those of which it is not asked, because the condition took too much work.
    pub(super) fn heard_in(&self, ledger: LedgerSeq) -> Result<InLedger, StoreError> {
        let mut heard = InLedger::default();
        let begun = self.steps.get();
        let mut note = |verdict: Verdict| -> ControlFlow<Result<(), StoreError>> {
            let is_enough = heard.note(verdict);
            if !is_enough && self.steps.get().saturating_sub(begun) > self.most_steps {
                heard.note(Verdict::Unjudged);
                return ControlFlow::Break(Ok(()));
            }
            match is_enough {
                true => ControlFlow::Break(Ok(())),
                false => ControlFlow::Continue(()),
            }
        };
        let mut query = query(self.subscription, LedgerRange::only(ledger));
        let Some(project) = self.subscription.contracts.project() else {
            let walked = self
                .sources
                .store
                .events_within(&query, Bounds::NONE, |event| note(self.judge(event)))?;
            walked.broken_off.unwrap_or(Ok(()))?;
            return Ok(heard);
        };
        let followed = self.sources.followed;
        match followed.contracts(project, MOST_LOOKED_UP) {
            Some(none) if none.is_empty() => return Ok(heard),
            listed => query.contracts = listed.unwrap_or_default(),
        }
        // What the project selects is asked once something passes the filter.
        let mut selected: Option<Selected> = None;
        let walked = self.sources.store.events_within(&query, Bounds::NONE, |event| {
            if !self.subscription.filter.matches(event.contract, event.topics) {
                return ControlFlow::Continue(());
            }
            let selected = match &mut selected {
                Some(selected) => selected,
                none => match followed.selected(project, ledger) {
                    Ok(found) => none.insert(found),
                    Err(error) => return ControlFlow::Break(Err(error)),
                },
            };
            note(self.judge_selected(event, selected))
        })?;
        walked.broken_off.unwrap_or(Ok(()))?;
        Ok(heard)
    }

    /// Judges an event: whether it passes the filter and meets the condition.
    fn judge(&self, event: &EventRecord<'_>) -> Verdict {
        let subscription = self.subscription;
        if !subscription.filter.matches(event.contract, event.topics) {
            return Verdict::Differs;
        }
        let Some(condition) = &subscription.condition else { return Verdict::Matches };
        self.steps.set(self.steps.get().saturating_add(condition.steps(event.size())));
        JudgedEvent::new(event, self.sources.network, self.sources.names).by(condition)
    }

    /// Judges an event by what the subscription's project selects, and with its interfaces.
    fn judge_selected(&self, event: &EventRecord<'_>, selected: &Selected) -> Verdict {
        if !selected.may_have(event.id) {
            return Verdict::Differs;
        }
        let names = self.sources.names;
        if let Some(names) = names {
            names.supply(selected.supplied.clone());
        }
        let verdict = self.judge(event);
        if let Some(names) = names {
            names.supply(None);
        }
        verdict.unless_unsure(selected.unsure.contains(&event.id))
    }
}
