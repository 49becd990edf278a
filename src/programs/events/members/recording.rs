//! Writes the changes of members into the row log: entries of ledger 0, one for each member and each time that
//! something was added. Where something is not as it was recorded, all rows are derived anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use super::changes::Sources;
use super::logged::LoggedMember;
use super::rank::Rank;
use super::state::MemberState;
use super::stored::{self, Announcement, StoredMember};
use super::syncing::Synced;
use crate::events::EventProject;
use crate::events::data_finding::{BEFORE_ALL, MEMBERS_FROM};
use crate::events::logged::{EventsWriter, LoggedEvents};
use crate::events::pause::pause_after;
use crate::lanes::SHORT_TURN;
use crate::manifest::Manifest;
use crate::registry::Entry;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_executables::lookup::Lookup;
use orrery_ledger::domain::ContractId;
use orrery_membership::Facts;
use orrery_store::{RowBounds, RowCodec, TransactionPosition};

/// Number of members whose changes are written at once.
const AT_ONCE: usize = if cfg!(test) { 3 } else { 1_024 };
/// Number of changes after which no further members are written at once: a single contract has some thousand at
/// most, whoever made it.
const CHANGES_AT_ONCE: usize = if cfg!(test) { 5 } else { 8_192 };

/// What is written of a member.
struct Written {
    contract: ContractId,
    /// When it became a member.
    rank: Rank,
    /// Orders of its entries so far.
    orders: Vec<u32>,
    /// The changes of another entry.
    added: Vec<LoggedMember>,
    /// All changes, where the entries so far have others.
    replaced: Option<Vec<LoggedMember>>,
}

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
            let left = left.filter(|contract| !state.replacing.has_put_off(contract));
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
            && (state.unrecorded.is_empty() || left.any(|it| !state.replacing.has_put_off(it)));
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
        let mut announcements = BTreeMap::new();
        for contract in some {
            for number in (0..=u8::MAX).take(selectors.factories.len()) {
                let row = storage::announcement(entry.id, number, contract);
                if let Some(stored) = self.store.shared_row(&row)? {
                    let announcement = Announcement::decode(&stored);
                    let announcement = announcement.ok_or_else(|| row.damaged())?;
                    announcements.insert((*contract, number), announcement);
                }
            }
        }
        let sources = Sources {
            store: &self.store,
            selectors,
            facts,
            lookup: lookup.as_ref(),
            announcements: &announcements,
        };
        let (mut all, mut changes) = (Vec::new(), 0);
        for contract in some {
            let member = stored::member(&self.store, entry.id, contract)?.unwrap_or_default();
            let (now, rank) = sources.changes_of(*contract, member.flags)?;
            // What is no member has no rows.
            let now = if member.is_out { Vec::new() } else { now };
            changes += now.len();
            all.push(Written { rank, ..self.compare(entry, *contract, now)? });
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

    /// Compares the changes of a contract with those that are recorded.
    fn compare(
        &self,
        entry: &Entry,
        contract: ContractId,
        now: Vec<LoggedMember>,
    ) -> Result<Written, ProgramError> {
        let row = storage::member_entries(entry.id, &contract);
        let orders: Vec<u32> = match self.store.shared_row(&row)? {
            Some(stored) => serde_json::from_slice(&stored)
                .map_err(|_| ProgramError::Damaged("the changes of a member"))?,
            None => Vec::new(),
        };
        let mut before = BTreeSet::new();
        for order in &orders {
            let position = position(*order);
            let stored = self.store.shared_row(&storage::rows_of_run(entry.id, position))?;
            let stored = stored.ok_or(ProgramError::Damaged("the changes of a member"))?;
            for change in LoggedEvents::read(&stored)?.members.iter() {
                before.insert(stored_form(&change?)?);
            }
        }
        let (mut kept, mut added) = (0, Vec::new());
        for change in &now {
            // Those of a contract differ.
            match before.contains(&stored_form(change)?) {
                true => kept += 1,
                false => added.push(change.clone()),
            }
        }
        let replaced = (kept < before.len()).then_some(now);
        Ok(Written { contract, rank: Rank::default(), orders, added, replaced })
    }

    /// Writes changes. Returns whether there are new rows.
    fn write_members(
        &self,
        entry: &Entry,
        state: &mut MemberState,
        all: &[Written],
    ) -> Result<bool, ProgramError> {
        let id = entry.id;
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        if cell.deleted {
            return Ok(false);
        }
        let (mut progress, mut manifest) = (cell.progress, Manifest::clone(&cell.manifest));
        let mut cursor = state.cursor.clone().unwrap_or_default();
        let is_replaced = all.iter().any(|written| written.replaced.is_some());
        if let Some(project) = manifest.events.as_mut().filter(|_| is_replaced) {
            project.must_derive = true;
        }
        let mut rows: Vec<(u32, Option<u64>, Vec<u8>)> = Vec::new();
        let mut entries: Vec<(ContractId, Vec<u32>)> = Vec::new();
        for Written { contract, orders, added, replaced, .. } in all {
            let mut orders = orders.clone();
            match replaced {
                Some(now) => {
                    let parts = [now.as_slice()].into_iter().chain(std::iter::repeat(&[][..]));
                    for (order, part) in orders.iter().zip(parts) {
                        rows.push((*order, None, encoded(part)?));
                    }
                }
                None if !added.is_empty() => {
                    let order = MEMBERS_FROM + cursor.entries;
                    cursor.entries += 1;
                    progress.log += 1;
                    let encoded = encoded(added)?;
                    progress.row_bytes += encoded.len() as u64;
                    rows.push((order, Some(progress.log), encoded));
                    orders.push(order);
                }
                None => continue,
            }
            entries.push((*contract, orders));
        }
        let before = Arc::clone(&cell.manifest);
        let written = cell.write(&self.store, |changes| {
            for (order, number, encoded) in &rows {
                match number {
                    Some(number) => {
                        storage::put_rows(changes, id, position(*order), *number, encoded)?;
                    }
                    None => changes.put(&storage::rows_of_run(id, position(*order)), encoded)?,
                }
            }
            for (contract, orders) in &entries {
                storage::put_json(changes, &storage::member_entries(id, contract), orders)?;
            }
            for Written { contract, rank, .. } in all {
                let row = storage::member(id, contract);
                if let Some(stored) = self.store.shared_row(&row)? {
                    let member = StoredMember::decode(&stored).ok_or_else(|| row.damaged())?;
                    let recorded = StoredMember { unrecorded: false, rank: *rank, ..member };
                    changes.put(&row, recorded.encode())?;
                }
            }
            if is_replaced {
                manifest.put(changes, Some(&before))?;
            }
            storage::put_json(changes, &storage::progress(id), &progress)?;
            storage::put_json(changes, &storage::member_cursor(id), &cursor)
        });
        if let Err(error) = written {
            (state.is_read, state.in_doubt) = (false, true);
            return Err(error);
        }
        cell.progress = progress;
        if is_replaced {
            cell.manifest = Arc::new(manifest);
            cell.merges += 1;
            state.replacing.note();
        }
        state.cursor = Some(cursor);
        Ok(!rows.is_empty())
    }
}

fn stored_form(change: &LoggedMember) -> Result<Vec<u8>, ProgramError> {
    let mut form = Vec::new();
    change.write(&mut form)?;
    Ok(form)
}

fn position(order: u32) -> TransactionPosition {
    TransactionPosition { ledger: BEFORE_ALL, application_order: order }
}

fn encoded(changes: &[LoggedMember]) -> Result<Vec<u8>, ProgramError> {
    let mut writer = EventsWriter::of_members();
    changes.iter().try_for_each(|change| writer.push_member(change))?;
    Ok(writer.finish())
}
