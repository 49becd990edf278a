//! Reads the earlier events of members that became known late, by the index of events by contract, and earlier
//! changes of what they hold by the index of contract data.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::time::Instant;

use super::index::Flags;
use super::state::ReadTo;
use super::stored::StoredMember;
use crate::effects::{Effects, Only};
use crate::events::EventProject;
use crate::lanes::SHORT_TURN;
use crate::records::RunSource;
use crate::registry::Entry;
use crate::runner::{Runner, TurnLimits};
use crate::writing::WriteOutcome;
use crate::{ProgramError, storage};
use orrery_contract_data::{CONSUMER as DATA, are_recorded, ledgers_that_changed};
use orrery_ledger::domain::{ContractId, LedgerSeq, Page};
use orrery_membership::has_passed;
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

/// How far a turn has come with a member.
enum Reached {
    /// To here.
    To(ReadTo),
    /// To here, and what it holds has yet to be recorded by the index.
    NotRecorded(ReadTo),
    /// To its end.
    End,
}

/// Returns the next member after one, or the first.
fn next_of(
    pending: &BTreeMap<ContractId, ReadTo>,
    after: Option<ContractId>,
) -> Option<(ContractId, ReadTo)> {
    let after = after.map_or(Bound::Unbounded, Bound::Excluded);
    pending.range((after, Bound::Unbounded)).next().map(|(contract, to)| (*contract, *to))
}

impl Runner {
    /// Whether a project may have more members although no further ledger is stored, or has yet to read earlier
    /// events of some.
    pub(crate) fn may_have_more_members(&self, entry: &Entry) -> bool {
        let manifest = entry.snapshot().manifest;
        let has_members = |it: &EventProject| it.selectors.have_members();
        let has_facts = || has_passed(&self.store, self.store.last_place()) == Some(true);
        entry.members.has_pending()
            || (manifest.events.as_ref().is_some_and(has_members) && !has_facts())
    }

    /// Reads what was stored of members of a project before they became known, for the time of a turn. Leaves the next turn to new
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
        let (mut has_rows, mut has_read, mut passed) = (false, false, state.passed);
        while let Some((contract, to)) = next_of(&state.pending, passed) {
            let begun = Instant::now();
            let reached = self.catch_up_with(entry, contract, to, until, &mut has_rows)?;
            let is_over = matches!(reached, Reached::End);
            state.names.note_reading(&contract, begun.elapsed(), is_over);
            match reached {
                Reached::To(to) => drop(state.pending.insert(contract, to)),
                Reached::End => {
                    self.set_caught_up(entry, &contract)?;
                    state.pending.remove(&contract);
                    entry.members.set_pending(state.pending.len());
                }
                Reached::NotRecorded(to) => {
                    has_read |= to != state.pending.insert(contract, to).unwrap_or_default();
                    passed = Some(contract);
                    if Instant::now() >= until {
                        break;
                    }
                    continue;
                }
            }
            has_read = true;
            if Instant::now() >= until || self.is_full(entry) {
                break;
            }
        }
        // Those that were passed over have their turn again after all others.
        state.passed = passed.filter(|passed| next_of(&state.pending, Some(*passed)).is_some());
        Ok(if has_read { CaughtUp::Some { has_rows } } else { CaughtUp::Nothing })
    }

    /// Reads more of what was stored of a contract before it became known.
    fn catch_up_with(
        &self,
        entry: &Entry,
        contract: ContractId,
        mut to: ReadTo,
        until: Instant,
        has_rows: &mut bool,
    ) -> Result<Reached, ProgramError> {
        loop {
            // Read before the ledgers: what is stored later has the member when it is read.
            let progress = entry.lock().progress;
            // Of a ledger that was read in part, the beginning was read without it.
            let place = progress.part.map_or(progress.place, |part| part.place);
            let new = self.store.ledgers_after(place);
            let has_data = matches!(to, ReadTo::Data(_));
            if has_data && !self.has_recorded(&contract, place)? {
                return Ok(Reached::NotRecorded(to));
            }
            let (ledgers, next) = self.ledgers_with(contract, to)?;
            let Some(next) = next else {
                let project = &entry.snapshot().manifest.events;
                if has_data || !project.as_ref().is_some_and(|project| project.has_storage) {
                    return Ok(Reached::End);
                }
                to = ReadTo::Data(None);
                continue;
            };
            let only = Only { contract, has_data };
            for ledger in ledgers.into_iter().filter(|it| !new.contains(*it)) {
                if !self.read_only(entry, ledger, only, has_rows)? {
                    return Ok(Reached::To(to));
                }
            }
            to = next;
            if Instant::now() >= until {
                return Ok(Reached::To(to));
            }
        }
    }

    /// Reads what a ledger says of one member. Returns false when that could not be written.
    fn read_only(
        &self,
        entry: &Entry,
        ledger: LedgerSeq,
        only: Only,
        has_rows: &mut bool,
    ) -> Result<bool, ProgramError> {
        let mut rest = None;
        loop {
            let manifest = entry.snapshot().manifest;
            if !manifest.events.as_ref().is_some_and(|project| project.wants(ledger)) {
                return Ok(true);
            }
            let mut effects = Effects::none(&manifest, ledger, RunSource::Backfill);
            (effects.only, effects.rest) = (Some(only), rest);
            let limits = TurnLimits::with_deadline(Instant::now() + SHORT_TURN * 20);
            let effects = self.run(entry, &manifest.contracts, effects, limits)?;
            rest = effects.rest;
            match self.write(entry, &[effects], |_, _, _, _| None)? {
                WriteOutcome::Nothing => return Ok(false),
                WriteOutcome::Runs(written) => *has_rows |= written.rows > 0,
            }
            if rest.is_none() {
                return Ok(true);
            }
        }
    }

    /// Whether the index of contract data has all that ledgers up to a place in the feed say of a contract.
    fn has_recorded(&self, contract: &ContractId, place: u64) -> Result<bool, ProgramError> {
        let has_passed = self.store.has_passed(DATA, place) == Some(true);
        Ok(has_passed && are_recorded(&self.store, [contract])?)
    }

    /// Returns the next ledgers with something of a contract after what was read, and how far it is read with
    /// these; `None` where there is none.
    fn ledgers_with(
        &self,
        contract: ContractId,
        to: ReadTo,
    ) -> Result<(BTreeSet<LedgerSeq>, Option<ReadTo>), ProgramError> {
        let after = match to {
            ReadTo::Events(after) => after,
            ReadTo::Data(after) => {
                let ledgers = ledgers_that_changed(&self.store, &contract, after, LEDGERS_AT_ONCE)?;
                let last = ledgers.last().map(|last| ReadTo::Data(Some(*last)));
                return Ok((ledgers.into_iter().collect(), last));
            }
        };
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
        Ok((ledgers, last.map(|last| ReadTo::Events(Some(last)))))
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
