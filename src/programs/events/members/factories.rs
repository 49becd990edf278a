//! Reads the events of factories, and the contracts that they announce.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::announcing::{Announced, Announcing};
use super::found::Found;
use super::inheriting::announcements;
use super::reading_again::ReadingAgain;
use super::selectors::Selectors;
use super::state::MemberState;
use super::stored::{Announcement, Cursor};
use crate::ProgramError;
use crate::events::Unsure;
use crate::events::examining::Declaring;
use crate::events::logged::{EventsWriter, LoggedEvents};
use crate::events::pause::pause_after;
use crate::events::reading::logged;
use crate::registry::Entry;
use crate::rows::Damaged;
use crate::runner::Runner;
use orrery_ledger::domain::{ContractId, EventId, Hash32, Page, TxHash};
use orrery_store::{EventQuery, TransactionPosition};

/// Number of events of factories that are read at once.
const EVENTS_AT_ONCE: usize = if cfg!(test) { 7 } else { 4_096 };

/// How long a turn reads events of factories, and what was learnt.
pub const LONGEST_READ: Duration = Duration::from_millis(200);
/// How long a turn reads events again.
///
/// Unit tests: some events a turn, so that whatever may happen between two turns does.
const AGAIN_AT_ONCE: Duration = if cfg!(test) { Duration::ZERO } else { LONGEST_READ };

/// The factories of a project.
pub struct Factories<'a> {
    pub runner: &'a Runner,
    pub selectors: &'a Selectors,
    pub declaring: Declaring<'a>,
}

/// An event of a factory, in stored form.
struct Read {
    id: EventId,
    at: TransactionPosition,
    stored: Vec<u8>,
}

impl Factories<'_> {
    /// Reads the events after the cursor, and moves it, for some time. Returns whether there may be more.
    pub fn read(&self, cursor: &mut Cursor, found: &mut Found) -> Result<bool, ProgramError> {
        let contracts = self.selectors.factories.iter().map(|factory| factory.contract).collect();
        let to = (&mut cursor.event, &mut cursor.unsure);
        self.read_of(&contracts, to, found, Instant::now() + LONGEST_READ)
    }

    /// Reads the events of some of the factories after one of them, until a time. Returns whether there may be
    /// more.
    fn read_of(
        &self,
        contracts: &BTreeSet<ContractId>,
        (last, unsure): (&mut Option<u64>, &mut Unsure),
        found: &mut Found,
        until: Instant,
    ) -> Result<bool, ProgramError> {
        let announcing = Announcing::new(&self.declaring, &self.selectors.factories);
        loop {
            let events = self.after(contracts, *last)?;
            for Read { id, at, stored } in &events {
                let read = LoggedEvents::read(stored)?;
                for event in read.all_events() {
                    let event = event?;
                    let Announced { contracts, is_sure } = announcing.announced(&event, *at)?;
                    for (selector, contract) in contracts {
                        let announcement = Announcement {
                            at: *at,
                            index: event.index,
                            transaction: Hash32(*read.transaction.as_bytes()),
                        };
                        found.announce(selector, contract, announcement);
                    }
                    if !is_sure {
                        unsure.add(&event.contract, *at, |contract, from, to| {
                            self.declaring.names.is_same_between(contract, from, to)
                        })?;
                    }
                }
                *last = Some(id.0);
            }
            if events.len() < EVENTS_AT_ONCE {
                return Ok(false);
            }
            if Instant::now() >= until {
                return Ok(true);
            }
        }
    }

    /// Returns the next events of contracts after one of them, in the order of ingestion.
    fn after(
        &self,
        contracts: &BTreeSet<ContractId>,
        event: Option<u64>,
    ) -> Result<Vec<Read>, ProgramError> {
        let query = EventQuery {
            ledgers: None,
            contracts: contracts.iter().copied().collect(),
            topics: Default::default(),
            page: Page { cursor: event.map(EventId), limit: EVENTS_AT_ONCE, ..Page::all() },
        };
        let mut events: Result<Vec<Read>, Damaged> = Ok(Vec::new());
        self.runner.store.events(&query, |event| {
            let (Ok(read), Some(contract)) = (&mut events, event.contract) else { return };
            let mut writer = EventsWriter::new(&TxHash::from(*event.tx), event.closed_at);
            let topics = event.topics.iter().copied();
            let written = writer.push_with_topics(&logged(event, ContractId(*contract)), topics);
            let at = TransactionPosition {
                ledger: event.ledger,
                application_order: event.application_order,
            };
            match written {
                Ok(()) => read.push(Read { id: event.id, at, stored: writer.finish() }),
                Err(error) => events = Err(error),
            }
        })?;
        Ok(events?)
    }

    /// Whether the code has become known that a factory had at some event while it was not.
    fn must_read_again(
        &self,
        unsure: &Unsure,
        state: &mut MemberState,
    ) -> Result<bool, ProgramError> {
        if unsure.is_empty() || !pause_after(state.read_again, Instant::now()).is_zero() {
            return Ok(false);
        }
        let generation = self.runner.events.interfaces().generation();
        let names = &self.declaring.names;
        let mut must = false;
        for span in unsure.spans() {
            let is_sure = |at| names.tried_surely(&span.contract, at).1;
            must |= is_sure(span.first) || is_sure(span.last);
            must |= span.may_be_joined && state.read_with != Some(generation);
            must |= span.first < span.last
                && !span.may_be_joined
                && !names.is_same_between(&span.contract, span.first, span.last)?;
            if must {
                break;
            }
        }
        state.read_with = Some(generation);
        Ok(must)
    }

    /// Reads the stored events again of factories whose code has become known, for some time. Returns the
    /// announcements that were stored and are none, or are later ones, and whether there is more to read.
    pub fn read_again(
        &self,
        entry: &Entry,
        cursor: &mut Cursor,
        found: &mut Found,
        state: &mut MemberState,
    ) -> Result<(BTreeSet<(u8, ContractId)>, bool), ProgramError> {
        let mut reading = match state.reading_again.take() {
            Some(reading) => reading,
            None if self.must_read_again(&cursor.unsure, state)? => {
                let contracts = cursor.unsure.spans().map(|span| span.contract).collect();
                ReadingAgain { contracts, ..ReadingAgain::default() }
            }
            None => return Ok((BTreeSet::new(), false)),
        };
        let begun = Instant::now();
        let ReadingAgain { contracts, event, unsure, found: read, .. } = &mut reading;
        let more = self.read_of(contracts, (event, unsure), read, begun + AGAIN_AT_ONCE)?;
        reading.took += begun.elapsed();
        if more {
            state.reading_again = Some(reading);
            return Ok((BTreeSet::new(), true));
        }
        let ReadingAgain { contracts, unsure, found: read, took, .. } = reading;
        let mut removed = BTreeSet::new();
        for ((selector, contract), stored) in announcements(&self.runner.store, entry.id)? {
            let factory = self.selectors.factories.get(usize::from(selector));
            let was_read = factory.is_some_and(|factory| contracts.contains(&factory.contract));
            let now = read.announcements.get(&(selector, contract));
            // What was read of events that are not stored any more holds on.
            if was_read
                && now.is_none_or(|now| *now > stored)
                && self.runner.store.has_all_events(stored.at.ledger)?
            {
                removed.insert((selector, contract));
            }
        }
        for ((selector, contract), announcement) in read.announcements {
            found.announce(selector, contract, announcement);
        }
        contracts.iter().for_each(|contract| cursor.unsure.remove(contract));
        cursor.unsure.join(&unsure, |contract, from, to| {
            self.declaring.names.is_same_between(contract, from, to)
        })?;
        state.read_again = Some((Instant::now(), took));
        Ok((removed, false))
    }
}
