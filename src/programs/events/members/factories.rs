//! Reads the events of factories, and the contracts that they announce.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::announcing::{Announced, Announcing};
use super::found::Found;
use super::selectors::Selectors;
use super::state::MemberState;
use super::stored::{Announcement, Cursor};
use crate::events::Unsure;
use crate::events::examining::Declaring;
use crate::events::logged::{EventsWriter, LoggedEvents};
use crate::events::looks::pause_after;
use crate::events::reading::logged;
use crate::registry::Entry;
use crate::rows::Damaged;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_ledger::domain::{ContractId, EventId, Hash32, Page, TxHash};
use orrery_store::{EventQuery, RowCodec, TransactionPosition};

/// Number of events of factories that are read at once.
const EVENTS_AT_ONCE: usize = if cfg!(test) { 7 } else { 4_096 };

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
    /// Reads the events after the cursor, and moves it, until a time. Returns whether there may be more.
    pub fn read(
        &self,
        cursor: &mut Cursor,
        found: &mut Found,
        until: Option<Instant>,
    ) -> Result<bool, ProgramError> {
        let announcing = Announcing::new(&self.declaring, &self.selectors.factories);
        loop {
            let events = self.after(cursor.event)?;
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
                        cursor.unsure.add(&event.contract, *at, |contract, from, to| {
                            self.declaring.names.is_same_between(contract, from, to)
                        })?;
                    }
                }
                cursor.event = Some(id.0);
            }
            if events.len() < EVENTS_AT_ONCE {
                return Ok(false);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(true);
            }
        }
    }

    /// Returns the next events after one of them, in the order of ingestion.
    fn after(&self, event: Option<u64>) -> Result<Vec<Read>, ProgramError> {
        let contracts: BTreeSet<ContractId> =
            self.selectors.factories.iter().map(|factory| factory.contract).collect();
        let query = EventQuery {
            ledgers: None,
            contracts: contracts.into_iter().collect(),
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
    pub fn must_read_again(
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

    /// Reads all stored events again. Returns the announcements that were stored and are none; later ones of the same
    /// contract are found.
    pub fn read_again(
        &self,
        entry: &Entry,
        cursor: &mut Cursor,
        found: &mut Found,
    ) -> Result<BTreeSet<(u8, ContractId)>, ProgramError> {
        (cursor.event, cursor.unsure) = (None, Unsure::default());
        let mut read = Found::default();
        self.read(cursor, &mut read, None)?;
        let mut known: BTreeMap<(u8, ContractId), Announcement> = BTreeMap::new();
        storage::announcements(&self.runner.store, entry.id, |(selector, contract), row| {
            let damaged = || storage::announcement(entry.id, selector, &contract).damaged();
            let announcement = Announcement::decode(row).ok_or_else(damaged)?;
            known.insert((selector, contract), announcement);
            Ok(())
        })?;
        let mut removed = BTreeSet::new();
        for (of, announcement) in known {
            // What was read of events that are not stored any more holds on.
            let is_gone = !self.runner.store.has_all_events(announcement.at.ledger)?;
            // One that turns out to be none may hide a later one.
            let holds = read.announcements.get(&of).is_some_and(|first| *first <= announcement);
            if !holds && !is_gone {
                removed.insert(of);
            }
        }
        for ((selector, contract), announcement) in read.announcements {
            found.announce(selector, contract, announcement);
        }
        Ok(removed)
    }
}
