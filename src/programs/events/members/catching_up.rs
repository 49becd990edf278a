//! Reads the earlier events of members that became known late, by the index of events by contract.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Instant;

use super::index::Flags;
use super::stored::StoredMember;
use crate::effects::Effects;
use crate::events::EventProject;
use crate::lanes::SHORT_TURN;
use crate::records::RunSource;
use crate::registry::Entry;
use crate::runner::{Runner, TurnLimits};
use crate::writing::WriteOutcome;
use crate::{ProgramError, storage};
use orrery_ledger::domain::{ContractId, EventId, LedgerSeq, Page};
use orrery_membership::CONSUMER;
use orrery_store::{Bounds, EventQuery, RowCodec};

/// Number of ledgers that are read at once.
const LEDGERS_AT_ONCE: usize = if cfg!(test) { 2 } else { 64 };

/// Outcome of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaughtUp {
    /// There was nothing to read.
    Nothing,
    /// Something was read. There may be more.
    Some {
        /// Whether there are new rows.
        has_rows: bool,
    },
}

impl Runner {
    /// Whether a project may have more members although no further ledger is stored, or has yet to read earlier
    /// events of some.
    pub(crate) fn may_have_more_members(&self, entry: &Entry) -> bool {
        let manifest = entry.snapshot().manifest;
        let has_members = |it: &EventProject| it.selectors.have_members();
        let has_passed = || self.store.has_passed(CONSUMER, self.store.last_place()) == Some(true);
        entry.members.has_pending()
            || (manifest.events.as_ref().is_some_and(has_members) && !has_passed())
    }

    /// Reads earlier events of members of a project, for the time of a turn. Leaves the next turn to new
    /// ledgers.
    ///
    /// # Errors
    /// When the store fails; the next turn goes on.
    pub(crate) fn catch_up(&self, entry: &Entry) -> Result<CaughtUp, ProgramError> {
        if !entry.members.has_pending() {
            return Ok(CaughtUp::Nothing);
        }
        let Some(mut state) = entry.members.state.try_lock() else { return Ok(CaughtUp::Nothing) };
        if std::mem::replace(&mut state.is_turn_of_ledgers, false) || !state.is_read {
            return Ok(CaughtUp::Nothing);
        }
        state.is_turn_of_ledgers = true;
        let until = Instant::now() + SHORT_TURN;
        let mut has_rows = false;
        while let Some((contract, after)) = state.pending.first_key_value().map(|(a, b)| (*a, *b)) {
            match self.catch_up_with(entry, contract, after, until, &mut has_rows)? {
                Some(last) => {
                    state.pending.insert(contract, Some(last));
                }
                None => {
                    self.set_caught_up(entry, &contract)?;
                    state.pending.remove(&contract);
                    entry.members.set_pending(state.pending.len());
                }
            }
            if Instant::now() >= until || self.is_full(entry) {
                break;
            }
        }
        Ok(CaughtUp::Some { has_rows })
    }

    /// Reads earlier events of a contract after one of them. Returns the last one that was read; `None` when that was
    /// all.
    fn catch_up_with(
        &self,
        entry: &Entry,
        contract: ContractId,
        mut after: Option<EventId>,
        until: Instant,
        has_rows: &mut bool,
    ) -> Result<Option<EventId>, ProgramError> {
        loop {
            // Read before the events: what is stored later has the member when it is read.
            let progress = entry.lock().progress;
            // Of a ledger that was read in part, the beginning was read without it.
            let place = progress.part.map_or(progress.place, |part| part.place);
            let new = self.store.ledgers_after(place);
            let (ledgers, last) = self.ledgers_with(contract, after)?;
            let Some(last) = last else { return Ok(None) };
            for ledger in ledgers.into_iter().filter(|it| !new.contains(*it)) {
                let manifest = entry.snapshot().manifest;
                if !manifest.events.as_ref().is_some_and(|project| project.wants(ledger)) {
                    continue;
                }
                let mut effects = Effects::none(&manifest, ledger, RunSource::Backfill);
                effects.only = Some(contract);
                let limits = TurnLimits::with_deadline(Instant::now() + SHORT_TURN * 20);
                loop {
                    let effects_of = self.run(entry, &manifest.contracts, effects, limits)?;
                    let rest = effects_of.rest;
                    match self.write(entry, &[effects_of], |_, _, _, _| None)? {
                        WriteOutcome::Nothing => return Ok(after),
                        WriteOutcome::Runs(written) => *has_rows |= written.rows > 0,
                    }
                    if rest.is_none() {
                        break;
                    }
                    effects =
                        Effects::none(&entry.snapshot().manifest, ledger, RunSource::Backfill);
                    (effects.only, effects.rest) = (Some(contract), rest);
                }
            }
            after = Some(last);
            if Instant::now() >= until {
                return Ok(after);
            }
        }
    }

    /// Returns the next ledgers with events of a contract after one of them, and the last event in these;
    /// `None` where there is none.
    fn ledgers_with(
        &self,
        contract: ContractId,
        after: Option<EventId>,
    ) -> Result<(BTreeSet<LedgerSeq>, Option<EventId>), ProgramError> {
        let query = EventQuery {
            ledgers: None,
            contracts: vec![contract],
            topics: Default::default(),
            page: Page { cursor: after, ..Page::all() },
        };
        let (mut ledgers, mut last) = (BTreeSet::new(), None);
        self.store.events_within(&query, Bounds::NONE, |event| {
            if ledgers.len() >= LEDGERS_AT_ONCE && !ledgers.contains(&event.ledger) {
                return ControlFlow::Break(());
            }
            ledgers.insert(event.ledger);
            last = Some(event.id);
            ControlFlow::Continue(())
        })?;
        Ok((ledgers, last))
    }

    fn set_caught_up(&self, entry: &Entry, contract: &ContractId) -> Result<(), ProgramError> {
        let row = storage::member(entry.id, contract);
        let Some(stored) = self.store.shared_row(&row)? else { return Ok(()) };
        let member = StoredMember::decode(&stored).ok_or_else(|| row.damaged())?;
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        if cell.deleted {
            return Ok(());
        }
        let caught_up = StoredMember { pending: false, ..member };
        let is_left = caught_up.flags.without(Flags::BY_NAME) != Flags::default();
        cell.write(&self.store, |changes| match is_left {
            true => changes.put(&row, caught_up.encode()),
            false => changes.delete(&row),
        })
    }
}
