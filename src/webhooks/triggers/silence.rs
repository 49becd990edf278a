//! Silence: no event that matches for a number of ledgers.
//!
//! A subscription is told in the ledger that lies `within` ledgers after the last event, or after which the
//! counting began: its making, or a ledger that is not stored. So each silence is told once, whatever was told
//! before.
//!
//! Of ledgers that a subscription has looked at one after the other, what is stored ([`HEARD`]) is the truth:
//! retention may have removed their events since. Where it has not, because it was disabled meanwhile or what was
//! missing was stored late, a search goes back ([`SEARCHES`]), beside the ledgers that follow: others do not wait
//! for it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use super::Told;
use super::body::{self, Scene, Silent};
use super::silence_search::{Found, Heard, InLedger, SEARCHES, Search};
pub(crate) use super::silence_search::{Ledgers, Silence};
use crate::judging::Verdict;
use crate::number::{Number, TriggerKind};
use crate::rows::in_subscriptions;
use orrery_ledger::domain::LedgerSeq;
use orrery_store::{ConsumerEffects, Mark, Rows, StoreError, Table};

/// When each subscription heard something last.
pub const HEARD: Table<(Mark<b'h'>, u32), Heard> = in_subscriptions();

/// What follows from one ledger.
pub(super) enum Next {
    /// When something was heard last.
    Known(Heard),
    /// A search will say it that includes this ledger already.
    Waits(Heard),
    /// A search has to say it.
    Search(Search),
}

/// What came of listening to a ledger.
#[derive(Default)]
pub(crate) struct Listened {
    /// What the subscription is told, if it is.
    pub told: Option<Told>,
    /// What the condition could not be asked of.
    pub unmet: Vec<Verdict>,
}

impl Listened {
    /// Returns the number of events that the condition could not be asked of.
    pub fn unjudged(&self) -> u64 {
        self.unmet.iter().filter(|verdict| **verdict == Verdict::Unjudged).count() as u64
    }
}

impl Silence<'_> {
    /// Listens to a ledger that is newer than all others, and notes what was heard. Looks at no other one.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn listen(
        &self,
        ledger: LedgerSeq,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<Listened, StoreError> {
        let id = (Mark, self.subscription.id);
        let before = HEARD.get(effects, &id)?;
        if before.is_some_and(|heard| heard.up_to == ledger) || !self.counts(ledger) {
            return Ok(Listened::default());
        }
        let InLedger { is_heard, unmet } = self.heard_in(ledger)?;
        let heard = match self.next(ledger, before, is_heard) {
            Next::Known(heard) => heard,
            Next::Waits(heard) => {
                let of = ((Mark, self.subscription.id), heard.next);
                match SEARCHES.get(effects, &of)? {
                    Some(search) => {
                        SEARCHES.put(effects, &of, &Search { to: ledger, ..search })?;
                        heard
                    }
                    None => self.begin(effects, ledger, Search::before(ledger, self.made()))?,
                }
            }
            Next::Search(search) => self.begin(effects, ledger, search)?,
        };
        HEARD.put(effects, &id, &heard)?;
        let told = match heard.next.0 {
            0 => self.told(&heard)?,
            _ => None,
        };
        Ok(Listened { told, unmet })
    }

    /// Begins a search for what was heard last before a ledger.
    fn begin(
        &self,
        effects: &mut ConsumerEffects<'_>,
        ledger: LedgerSeq,
        search: Search,
    ) -> Result<Heard, StoreError> {
        if let Some(found) = self.end_of(ledger, &search) {
            return Ok(found.heard(ledger));
        }
        SEARCHES.put(effects, &((Mark, self.subscription.id), ledger), &search)?;
        Ok(Heard { up_to: ledger, last: search.known.last, is_base: true, next: ledger })
    }

    /// Whether the subscription has searches to go on with.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn is_searching(&self, rows: &dyn Rows) -> Result<bool, StoreError> {
        let mut has_one = false;
        SEARCHES.scan(rows, &(Mark, self.subscription.id), None, |_, _| {
            has_one = true;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(has_one)
    }

    /// Goes on with the searches of the subscription until `until`, and passes on what it is told. Returns
    /// whether all have ended.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn search(
        &self,
        effects: &mut ConsumerEffects<'_>,
        until: Instant,
        told: &mut Vec<Told>,
    ) -> Result<bool, StoreError> {
        let id = self.subscription.id;
        let after = self.subscription.state().after_place;
        let counts = |ledger| self.sources.store.place_of(ledger).is_some_and(|at| at > after);
        for (from, mut search) in searches(effects, id)? {
            let of = ((Mark, id), from);
            // It was disabled since: nothing is told of these ledgers.
            if !counts(search.to) {
                SEARCHES.delete(effects, &of)?;
                continue;
            }
            let Some(found) = self.search_on(from, &mut search, until)? else {
                SEARCHES.put(effects, &of, &search)?;
                return Ok(false);
            };
            SEARCHES.delete(effects, &of)?;
            let due = LedgerSeq(found.last.0.saturating_add(self.within));
            if from <= due && due <= search.to && counts(due) {
                told.extend(self.told(&found.heard(due))?);
            }
            let heard = HEARD.get(effects, &(Mark, id))?.filter(|heard| heard.next == from);
            if let Some(heard) = heard {
                HEARD.put(effects, &(Mark, id), &found.heard(heard.up_to))?;
            }
        }
        Ok(true)
    }

    /// Returns what follows from a ledger that counts; `before` is what was known.
    pub(super) fn next(&self, ledger: LedgerSeq, before: Option<Heard>, is_heard: bool) -> Next {
        let known = Heard { up_to: ledger, last: ledger, is_base: false, next: LedgerSeq(0) };
        if is_heard {
            return Next::Known(known);
        }
        let base = self.base(&self.ledgers.all, ledger);
        match before {
            Some(heard) if Some(heard.up_to) != ledger.previous() => {
                // Nobody listened to the ledgers in between.
                let since = if heard.next.0 == 0 { heard } else { Heard::since(self.made()) };
                Next::Search(Search { known: since, ..Search::before(ledger, self.made()) })
            }
            Some(heard) if heard.next.0 > 0 => Next::Waits(Heard { up_to: ledger, ..heard }),
            // What was missing was stored since.
            Some(heard)
                if heard.is_base
                    && self.base(&self.ledgers.with_events, heard.last) < heard.last =>
            {
                let next = heard.last;
                Next::Search(Search { next, ..Search::before(ledger, self.made()) })
            }
            Some(heard) => Next::Known(Heard {
                last: heard.last.max(base),
                is_base: heard.is_base || base > heard.last,
                ..known
            }),
            None => Next::Search(Search::before(ledger, self.made())),
        }
    }

    /// Returns what the subscription is told, if it is.
    pub(super) fn told(&self, heard: &Heard) -> Result<Option<Told>, StoreError> {
        let (ledger, since_ledger) = (heard.up_to, heard.last);
        if ledger.0.checked_sub(since_ledger.0) != Some(self.within) {
            return Ok(None);
        }
        let scene = Scene {
            contract: self.subscription.contracts.one(),
            ledger,
            closed_at: self.sources.closed_at(ledger)?,
            transaction: None,
        };
        let trigger = &self.subscription.definition.trigger;
        let body = body::body(trigger, &scene, Silent { since_ledger });
        let number = Number::of_trigger(ledger, None, TriggerKind::Silence, [0, 0]);
        Ok(Some(Told {
            subscription: Arc::clone(self.subscription),
            number,
            ledger,
            body: body.map_err(|error| {
                StoreError::Database(format!("numbers cannot be written as JSON: {error}"))
            })?,
            is_sure: true,
        }))
    }
}

impl Found {
    /// Returns what was heard last up to a ledger before which a search found this.
    pub(super) fn heard(&self, up_to: LedgerSeq) -> Heard {
        Heard { up_to, last: self.last, is_base: self.is_base, next: LedgerSeq(0) }
    }
}

/// Listens to one ledger after the other, for a replay or a preview.
#[derive(Clone, Copy, Default)]
pub(crate) struct InTurn {
    heard: Option<Heard>,
    /// Whether retention has removed what would say when something was heard last.
    is_unknown: bool,
    /// The search that a ledger waits for.
    search: Option<(LedgerSeq, Search)>,
}

impl InTurn {
    /// Listens to a ledger; `None` when time is over before it is known what was heard.
    pub fn listen(
        &mut self,
        silence: &Silence<'_>,
        ledger: LedgerSeq,
        until: Instant,
    ) -> Result<Option<Listened>, StoreError> {
        if !silence.counts(ledger) {
            return Ok(Some(Listened::default()));
        }
        let InLedger { is_heard, unmet } = silence.heard_in(ledger)?;
        let heard = match silence.next(ledger, self.heard, is_heard) {
            Next::Known(heard) | Next::Waits(heard) => heard,
            Next::Search(search) => {
                let left = self.search.take().filter(|(of, _)| *of == ledger);
                let mut search = left.map_or(search, |(_, search)| search);
                let Some(found) = silence.search_on(ledger, &mut search, until)? else {
                    self.search = Some((ledger, search));
                    return Ok(None);
                };
                self.is_unknown = found.is_base && silence.is_removed(found.last);
                found.heard(ledger)
            }
        };
        self.is_unknown &= !is_heard;
        self.heard = Some(heard);
        let told = if self.is_unknown { None } else { silence.told(&heard)? };
        Ok(Some(Listened { told, unmet }))
    }
}

/// Makes the searches of a subscription that was made after a ledger begin anew, because there may be events that
/// they have passed.
pub(crate) fn begin_anew(
    effects: &mut ConsumerEffects<'_>,
    subscription: u32,
    made: LedgerSeq,
) -> Result<(), StoreError> {
    for (from, search) in searches(effects, subscription)? {
        let begun = Search { to: search.to, ..Search::before(from, made) };
        SEARCHES.put(effects, &((Mark, subscription), from), &begun)?;
    }
    HEARD.delete(effects, &(Mark, subscription))
}

/// Removes what is stored of the silence of a subscription.
pub(crate) fn forget(
    effects: &mut ConsumerEffects<'_>,
    subscription: u32,
) -> Result<(), StoreError> {
    for (from, _) in searches(effects, subscription)? {
        SEARCHES.delete(effects, &((Mark, subscription), from))?;
    }
    HEARD.delete(effects, &(Mark, subscription))
}

/// Returns the searches of a subscription, each with its first ledger.
fn searches(rows: &dyn Rows, subscription: u32) -> Result<Vec<(LedgerSeq, Search)>, StoreError> {
    let mut all = Vec::new();
    SEARCHES.scan(rows, &(Mark, subscription), None, |(_, from), search| {
        all.push((from, search));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(all)
}
