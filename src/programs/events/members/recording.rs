//! Writes the changes of members into the row log: entries of ledger 0, one for each member and each time that
//! something was added. Where something is not as it was recorded, all rows are derived anew.

use std::collections::BTreeMap;
use std::time::Instant;

use super::changes::{Changes, Sources};
use super::recorded::Written;
use super::state::MemberState;
use super::stored::{self, Announcement};
use super::syncing::Synced;
use crate::events::EventProject;
use crate::events::pause::pause_after;
use crate::lanes::SHORT_TURN;
use crate::registry::Entry;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_executables::lookup::Lookup;
use orrery_ledger::domain::ContractId;
use orrery_membership::Facts;
use orrery_store::{RowBounds, RowCodec};

/// Number of members whose changes are written at once.
const AT_ONCE: usize = if cfg!(test) { 3 } else { 1_024 };
/// Number of changes after which no further members are written at once: a single contract has some thousand at
/// most, whoever made it.
const CHANGES_AT_ONCE: usize = if cfg!(test) { 5 } else { 8_192 };

impl Runner {
    /// Records the changes of members that have yet to be recorded, for the time of a turn.
    pub(super) fn record_members(
        &self,
        entry: &Entry,
        state: &mut MemberState,
        facts: &Facts<'_>,
    ) -> Result<Synced, ProgramError> {
        let manifest = entry.snapshot().manifest;
        let Some(project) = &manifest.events else { return Ok(Synced::default()) };
        let Some(cursor) = state.cursor.clone() else { return Ok(Synced::default()) };
        // What contracts ran is known once the index of executables has the ledgers.
        let place = self.store.last_place();
        if !project.selectors.wasm.is_empty() && !self.events.interfaces().has_indexed(place) {
            return Ok(Synced { is_waiting: state.has_unrecorded(), ..Synced::default() });
        }
        let ranges = self.ranges();
        let are_others = cursor.recorded_with != ranges;
        let is_begun = state.recording_with.as_ref() == Some(&ranges);
        if are_others && !is_begun && pause_after(state.recorded, Instant::now()).is_zero() {
            state.pass = Some(None);
            state.recording_with = Some(ranges.clone());
        }
        let begun = Instant::now();
        let synced = self.record_for(entry, state, facts, begun + SHORT_TURN)?;
        let is_all = !state.has_unrecorded();
        if are_others && is_all && state.recording_with.take() == Some(ranges.clone()) {
            state.recorded = Some((Instant::now(), begun.elapsed()));
            if let Some(cursor) = &mut state.cursor {
                cursor.recorded_with = ranges;
            }
            self.write_cursor(entry, state)?;
        }
        Ok(synced)
    }

    /// Goes on with a pass over all members once the others are recorded.
    fn pass_on(&self, entry: &Entry, state: &mut MemberState) -> Result<(), ProgramError> {
        let Some(after) = state.pass.filter(|_| state.unrecorded.is_empty()) else {
            return Ok(());
        };
        let mut next = Vec::new();
        storage::members_after(&self.store, entry.id, after, |contract, _| {
            next.push(contract);
            Ok(storage::more_if(next.len() < AT_ONCE))
        })?;
        state.pass = next.last().map(|last| Some(*last));
        state.unrecorded.extend(next);
        Ok(())
    }

    /// Records changes until a time. Where recorded ones are not so any more, they may be put off.
    fn record_for(
        &self,
        entry: &Entry,
        state: &mut MemberState,
        facts: &Facts<'_>,
        until: Instant,
    ) -> Result<Synced, ProgramError> {
        let must_derive = |project: &EventProject| project.must_derive();
        let must_derive = entry.snapshot().manifest.events.as_ref().is_some_and(must_derive);
        let may_replace = state.replacing.may_begin(must_derive, Instant::now());
        let mut synced = Synced::default();
        loop {
            self.pass_on(entry, state)?;
            let left = state.unrecorded.iter();
            let left = left.filter(|contract| !state.must_wait(contract, Instant::now()));
            let some: Vec<ContractId> = left.take(AT_ONCE).copied().collect();
            if some.is_empty() {
                // Now it is known of all when they became members.
                if !state.unrecorded.is_empty() || !self.limit_members(entry, state)? {
                    break;
                }
                synced.has_rows = true;
                continue;
            }
            let all = self.changes_of_some(entry, state, facts, (&some, until))?;
            let (now, put_off): (Vec<Written>, Vec<Written>) =
                all.into_iter().partition(|it| may_replace || it.replaced.is_none());
            if !now.is_empty() {
                synced.has_rows |= self.write_members(entry, state, &now)?;
            }
            for written in &now {
                state.unrecorded.remove(&written.contract);
            }
            state.replacing.put_off(put_off.iter().map(|it| it.contract));
            if Instant::now() >= until || self.is_full(entry) {
                break;
            }
        }
        let mut left = state.unrecorded.iter();
        synced.is_waiting = state.has_unrecorded();
        synced.has_more = synced.is_waiting
            && (state.unrecorded.is_empty() || left.any(|it| !state.must_wait(it, Instant::now())));
        if !synced.has_more {
            state.replacing.end();
        }
        Ok(synced)
    }

    /// Returns the ranges of stored ledgers, without the end of the newest.
    fn ranges(&self) -> Vec<(u32, u32)> {
        let ranges = self.store.status().ranges;
        let mut ranges: Vec<_> = ranges.iter().map(|it| (it.first.0, it.last.0)).collect();
        if let Some(newest) = ranges.last_mut() {
            newest.1 = u32::MAX;
        }
        ranges
    }

    pub(super) fn write_cursor(
        &self,
        entry: &Entry,
        state: &mut MemberState,
    ) -> Result<(), ProgramError> {
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        if cell.deleted {
            return Ok(());
        }
        let cursor = &state.cursor;
        let written = cell.write(&self.store, |changes| {
            storage::put_json(changes, &storage::member_cursor(entry.id), cursor)
        });
        match written {
            Ok(()) => state.unwritten_looks = 0,
            Err(_) => (state.is_read, state.in_doubt) = (false, true),
        }
        written
    }

    /// Returns what is to be written of the first of some contracts: until a time, or of those that have some
    /// thousand changes together.
    fn changes_of_some(
        &self,
        entry: &Entry,
        state: &mut MemberState,
        facts: &Facts<'_>,
        (some, until): (&[ContractId], Instant),
    ) -> Result<Vec<Written>, ProgramError> {
        let manifest = entry.snapshot().manifest;
        let Some(project) = &manifest.events else { return Ok(Vec::new()) };
        let selectors = &project.selectors;
        let lookup = match selectors.wasm.is_empty() {
            true => None,
            false => Some(Lookup::new(&self.store, RowBounds::none())?),
        };
        let announcements = self.announcements_of(entry, some, selectors.factories.len())?;
        let sources = Sources {
            store: &self.store,
            selectors,
            facts,
            lookup: lookup.as_ref(),
            announcements: &announcements,
        };
        let (mut all, mut changes) = (Vec::new(), 0);
        for contract in some {
            let begun = Instant::now();
            let member = stored::member(&self.store, entry.id, contract)?.unwrap_or_default();
            let Changes { changes: now, rank, is_cut } =
                sources.changes_of(*contract, member.flags)?;
            // What is no member has no rows.
            let (now, is_cut) = if member.is_out { (Vec::new(), false) } else { (now, is_cut) };
            changes += now.len();
            all.push(Written { rank, is_cut, ..self.compare(entry, *contract, now)? });
            state.slow.note(*contract, Instant::now(), begun.elapsed());
            // The last of those that stay is known: most that come later change nothing.
            let is_later = member.is_out && state.last.is_some_and(|it| it < (rank, *contract));
            let may_change = member.is_out || rank != member.rank;
            state.must_limit |= state.left_out > 0 && may_change && !is_later;
            if changes >= CHANGES_AT_ONCE || Instant::now() >= until {
                break;
            }
        }
        Ok(all)
    }

    /// Returns the announcements of some contracts, by contract and number of the selector.
    fn announcements_of(
        &self,
        entry: &Entry,
        some: &[ContractId],
        factories: usize,
    ) -> Result<BTreeMap<(ContractId, u8), Announcement>, ProgramError> {
        let mut announcements = BTreeMap::new();
        for contract in some {
            for number in (0..=u8::MAX).take(factories) {
                let row = storage::announcement(entry.id, number, contract);
                if let Some(stored) = self.store.shared_row(&row)? {
                    let announcement = Announcement::decode(&stored);
                    let announcement = announcement.ok_or_else(|| row.damaged())?;
                    announcements.insert((*contract, number), announcement);
                }
            }
        }
        Ok(announcements)
    }
}
