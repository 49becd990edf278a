//! Silence: no event that matches for a number of ledgers.
//!
//! A subscription is told in the ledger that lies `within` ledgers after the last event, or after which the
//! counting began: its making, or a ledger that is not stored. So each silence is told once, whatever was told
//! before. What is stored of a subscription ([`HEARD`]) only saves looking back.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use super::body::{self, Scene, Silent};
use super::upgrade::no_json;
use super::{Sources, Told};
use crate::CONSUMER;
use crate::found::query;
use crate::judging::{JudgedEvent, Verdict};
use crate::number::{Number, TriggerKind};
use crate::rows::in_subscriptions;
use crate::subscription::Subscription;
use orrery_conditions::Condition;
use orrery_ledger::domain::{Direction, LedgerRange, LedgerSeq, LedgerSet, Page};
use orrery_membership::Selected;
use orrery_store::{
    Bounds, ConsumerEffects, EventQuery, EventRecord, Mark, Needs, RowCodec, StoreError, Table,
    row_codec,
};

/// Number of ledgers that are looked through at once, and of those of projects.
const AT_ONCE: u32 = 4_096;
const AT_ONCE_OF_PROJECT: u32 = 64;
/// Number of contracts of a project whose events are looked up one contract after the other.
const MOST_LOOKED_UP: usize = 16;

/// When each subscription heard something last.
pub const HEARD: Table<(Mark<b'h'>, u32), Heard> = in_subscriptions();

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
    /// The ledger that is looked at next; 0 when all were that have to be.
    pub next: LedgerSeq,
}

row_codec!(Heard { up_to, last, is_base, next });

/// What came of looking at a ledger.
pub(crate) enum Looked {
    /// Nothing is to be told, or this.
    Done(Option<Told>),
    /// Time was over before it was known.
    NotYet,
}

/// Looks whether a subscription is told in a ledger, until `until`, and notes how far that came. Returns also
/// the work that its condition took, in steps.
///
/// # Errors
/// Errors of the database.
pub(crate) fn look(
    sources: &Sources<'_>,
    stored: &LedgerSet,
    (subscription, within): (&Arc<Subscription>, u32),
    ledger: LedgerSeq,
    effects: &mut ConsumerEffects<'_>,
    (until, most_steps): (Instant, u64),
) -> Result<(Looked, u64), StoreError> {
    let id = (Mark, subscription.id);
    let before = HEARD.get(effects, &id)?;
    if before.is_some_and(|heard| heard.up_to == ledger && heard.next.0 == 0) {
        return Ok((Looked::Done(None), 0));
    }
    let silence = Silence::of(sources, (subscription, within), most_steps);
    let heard = silence.heard(stored, ledger, before, until)?;
    let steps = silence.steps.get();
    let Some(heard) = heard else { return Ok((Looked::Done(None), steps)) };
    HEARD.put(effects, &id, &heard)?;
    if heard.next.0 > 0 {
        return Ok((Looked::NotYet, steps));
    }
    Ok((Looked::Done(silence.told(&heard)?), steps))
}

/// The silence of a subscription.
pub(crate) struct Silence<'a> {
    /// From what it is told.
    pub sources: &'a Sources<'a>,
    /// The subscription.
    pub subscription: &'a Arc<Subscription>,
    /// The number of ledgers.
    pub within: u32,
    /// The work that its condition took, in steps, and may take.
    steps: Cell<u64>,
    most_steps: u64,
}

/// What came of looking for an event.
enum Newest {
    /// The newest one is of this ledger.
    At(LedgerSeq),
    /// There is none.
    None,
    /// Its condition took too much work before it was known.
    NotYet,
}

impl<'a> Silence<'a> {
    /// The silence of a subscription, for a number of ledgers. Looking for an event ends after so many steps
    /// of its condition.
    pub fn of(
        sources: &'a Sources<'a>,
        (subscription, within): (&'a Arc<Subscription>, u32),
        most_steps: u64,
    ) -> Self {
        Self { sources, subscription, within, steps: Cell::new(0), most_steps }
    }
}

impl Silence<'_> {
    /// Returns when something was heard last before the end of a ledger; `before` is what is known. `None`
    /// where the ledger does not count: it is not newer than the subscription, or not known. `stored` are
    /// the ledgers with all events.
    pub fn heard(
        &self,
        stored: &LedgerSet,
        ledger: LedgerSeq,
        before: Option<Heard>,
        until: Instant,
    ) -> Result<Option<Heard>, StoreError> {
        let Some(range) = self.known_around(stored, ledger) else { return Ok(None) };
        let made = LedgerSeq(self.subscription.state().after_ledger);
        let base = made.max(LedgerSeq(range.first.0.saturating_sub(1)));
        if ledger <= base {
            return Ok(None);
        }
        let not_yet = |next| Heard { up_to: ledger, last: base, is_base: true, next };
        let is_begun = before.is_some_and(|heard| heard.up_to == ledger && heard.next.0 > 0);
        if !is_begun {
            match self.newest_in(LedgerRange::only(ledger))? {
                Newest::At(_) => {
                    let (up_to, last) = (ledger, ledger);
                    return Ok(Some(Heard { up_to, last, is_base: false, next: LedgerSeq(0) }));
                }
                Newest::NotYet => return Ok(Some(not_yet(ledger))),
                Newest::None => {}
            }
        }
        let mut next = match before {
            Some(heard) if is_begun => heard.next,
            Some(heard) if Some(heard.up_to) == ledger.previous() && heard.next.0 == 0 => {
                // What was missing may have been stored since.
                match heard.is_base && base < heard.last {
                    true => heard.last,
                    false => {
                        let is_base = heard.is_base || base > heard.last;
                        let last = heard.last.max(base);
                        let next = LedgerSeq(0);
                        return Ok(Some(Heard { up_to: ledger, last, is_base, next }));
                    }
                }
            }
            _ => LedgerSeq(ledger.0 - 1),
        };
        let farthest = LedgerSeq(ledger.0.saturating_sub(self.within));
        let mut heard = not_yet(LedgerSeq(0));
        let at_once = match self.subscription.contracts.project() {
            Some(_) => AT_ONCE_OF_PROJECT,
            None => AT_ONCE,
        };
        while next > base && next >= farthest {
            let least = (base.0 + 1).max(farthest.0).max(next.0.saturating_sub(at_once));
            let piece = LedgerRange { first: LedgerSeq(least), last: next };
            match self.newest_in(piece)? {
                Newest::At(last) => return Ok(Some(Heard { last, is_base: false, ..heard })),
                Newest::NotYet => return Ok(Some(not_yet(next))),
                Newest::None => {}
            }
            next = LedgerSeq(least - 1);
            if Instant::now() >= until && next > base && next >= farthest {
                return Ok(Some(Heard { next, ..heard }));
            }
        }
        if base < farthest {
            heard = Heard { last: LedgerSeq(farthest.0 - 1), is_base: false, ..heard };
        }
        Ok(Some(heard))
    }

    /// Returns what the subscription is told, if it is.
    pub fn told(&self, heard: &Heard) -> Result<Option<Told>, StoreError> {
        let (ledger, since_ledger) = (heard.up_to, heard.last);
        if ledger.0 - since_ledger.0 != self.within {
            return Ok(None);
        }
        let scene = Scene {
            contract: self.subscription.contracts.one(),
            ledger,
            closed_at: self.sources.closed_at(ledger)?,
            transaction: None,
        };
        let trigger = &self.subscription.definition.trigger;
        let body = body::body(trigger, &scene, Silent { since_ledger }).map_err(no_json)?;
        let number = Number::of_trigger(ledger, None, TriggerKind::Silence, [0, 0]);
        let subscription = Arc::clone(self.subscription);
        Ok(Some(Told { subscription, number, ledger, body, is_sure: true }))
    }

    /// Returns the consecutive ledgers around one of which all events of the contract are stored.
    fn known_around(&self, stored: &LedgerSet, ledger: LedgerSeq) -> Option<LedgerRange> {
        let mut known = stored.clone();
        if let Some(contract) = self.subscription.contracts.one() {
            let complete = self.sources.store.complete_around(CONSUMER, &contract, ledger)?;
            known = known.within(complete);
        }
        known.ranges().iter().find(|range| range.contains(ledger)).copied()
    }

    /// Whether an event matches. One of which that is not known does not.
    fn is_heard(&self, event: &EventRecord<'_>) -> bool {
        let Sources { network, names, .. } = *self.sources;
        let meets = |condition: &Condition| {
            let steps = condition.steps(event.size());
            self.steps.set(self.steps.get().saturating_add(steps));
            JudgedEvent::new(event, network, names).by(condition) == Verdict::Matches
        };
        self.subscription.filter.matches(event.contract, event.topics)
            && self.subscription.condition.as_ref().is_none_or(meets)
    }

    /// Returns the newest ledger of a range with an event of the project that matches.
    fn newest_of_project(&self, project: &str, range: LedgerRange) -> Result<Newest, StoreError> {
        let followed = self.sources.followed;
        let contracts = match followed.contracts(project, MOST_LOOKED_UP) {
            Some(none) if none.is_empty() => return Ok(Newest::None),
            listed => listed.unwrap_or_default(),
        };
        for ledger in (range.first.0..=range.last.0).rev().map(LedgerSeq) {
            let one = LedgerRange::only(ledger);
            let query =
                EventQuery { contracts: contracts.clone(), ..query(self.subscription, one) };
            // What the project selects is asked once something matches, if it is one of its events.
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
                match selected.events.contains(&event.id) && self.meets(event, selected) {
                    true => ControlFlow::Break(Ok(Newest::At(ledger))),
                    false if self.steps.get() > self.most_steps => {
                        ControlFlow::Break(Ok(Newest::NotYet))
                    }
                    false => ControlFlow::Continue(()),
                }
            })?;
            if let Some(found) = walked.broken_off {
                return found;
            }
        }
        Ok(Newest::None)
    }

    /// Whether an event that a project selects meets the condition, if there is one.
    fn meets(&self, event: &EventRecord<'_>, selected: &Selected) -> bool {
        let names = self.sources.names;
        if let Some(names) = names {
            names.supply(selected.supplied.clone());
        }
        let meets = self.is_heard(event);
        if let Some(names) = names {
            names.supply(None);
        }
        meets
    }

    /// Returns the newest ledger of a range with an event that matches.
    fn newest_in(&self, range: LedgerRange) -> Result<Newest, StoreError> {
        if let Some(project) = self.subscription.contracts.project() {
            return self.newest_of_project(project, range);
        }
        let (mut newest, mut left) = (None, range);
        // The newest event by its id may be of an older ledger than another one.
        while !left.is_empty() {
            let query = EventQuery {
                page: Page { direction: Direction::NewestFirst, ..Page::all() },
                ..query(self.subscription, left)
            };
            let walked =
                self.sources.store.events_within(&query, Bounds::NONE, |event| {
                    match self.is_heard(event) {
                        true => ControlFlow::Break(Some(event.ledger)),
                        false if self.steps.get() > self.most_steps => ControlFlow::Break(None),
                        false => ControlFlow::Continue(()),
                    }
                })?;
            match walked.broken_off {
                Some(Some(found)) => {
                    newest = Some(found);
                    left.first = LedgerSeq(found.0.saturating_add(1));
                }
                Some(None) => return Ok(Newest::NotYet),
                None => break,
            }
        }
        Ok(newest.map_or(Newest::None, Newest::At))
    }
}

/// Returns the ledgers with all events.
pub(crate) fn stored(sources: &Sources<'_>) -> LedgerSet {
    sources.store.status().ledgers_with(Needs::EVENTS)
}
