//! Writes the changes of members into the row log: entries of ledger 0, one for each member and each time that
//! something was added. Where something is not as it was recorded, all rows are derived anew.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::changes::Sources;
use super::logged::LoggedMember;
use super::rank::Rank;
use super::state::MemberState;
use super::stored::{self, Announcement, StoredMember};
use super::syncing::Synced;
use crate::events::data_finding::{BEFORE_ALL, MEMBERS_FROM};
use crate::events::logged::{EventsWriter, LoggedEvents};
use crate::events::looks::pause_after;
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
            return Ok(Synced { has_rows: false, has_more: has_more(state) });
        }
        let ranges = self.ranges();
        let are_others = cursor.recorded_with != ranges;
        let is_begun = state.recording_with.as_ref() == Some(&ranges);
        if are_others && !is_begun && pause_after(state.recorded, Instant::now()).is_zero() {
            state.pass = Some(None);
            state.recording_with = Some(ranges.clone());
        }
        let begun = Instant::now();
        let mut synced = Synced::default();
        loop {
            self.pass_on(entry, state)?;
            let some: Vec<ContractId> = state.unrecorded.iter().take(AT_ONCE).copied().collect();
            if some.is_empty() {
                // Now it is known of all when they became members.
                if !self.limit_members(entry, state)? {
                    break;
                }
                synced.has_rows = true;
                continue;
            }
            synced.has_rows |= self.record_some(entry, state, facts, &some)?;
            state.unrecorded.retain(|contract| !some.contains(contract));
            if begun.elapsed() >= SHORT_TURN {
                break;
            }
        }
        synced.has_more = has_more(state);
        if are_others && !synced.has_more && state.recording_with.take() == Some(ranges.clone()) {
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

    /// Returns the ranges of stored ledgers, without the end of the newest.
    fn ranges(&self) -> Vec<(u32, u32)> {
        let ranges = self.store.status().ranges;
        let mut ranges: Vec<_> = ranges.iter().map(|it| (it.first.0, it.last.0)).collect();
        if let Some(newest) = ranges.last_mut() {
            newest.1 = u32::MAX;
        }
        ranges
    }

    fn write_cursor(&self, entry: &Entry, state: &mut MemberState) -> Result<(), ProgramError> {
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        if cell.deleted {
            return Ok(());
        }
        let cursor = &state.cursor;
        let written = cell.write(&self.store, |changes| {
            storage::put_json(changes, &storage::member_cursor(entry.id), cursor)
        });
        if written.is_err() {
            (state.is_read, state.in_doubt) = (false, true);
        }
        written
    }

    fn record_some(
        &self,
        entry: &Entry,
        state: &mut MemberState,
        facts: &Facts<'_>,
        some: &[ContractId],
    ) -> Result<bool, ProgramError> {
        let manifest = entry.snapshot().manifest;
        let Some(project) = &manifest.events else { return Ok(false) };
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
        let mut all = Vec::new();
        for contract in some {
            let member = stored::member(&self.store, entry.id, contract)?.unwrap_or_default();
            let (now, rank) = sources.changes_of(*contract, member.flags)?;
            // What is no member has no rows.
            let now = if member.is_out { Vec::new() } else { now };
            all.push(Written { rank, ..self.compare(entry, *contract, now)? });
            // The last of those that stay is known: most that come later change nothing.
            let is_later = member.is_out && state.last.is_some_and(|it| it < (rank, *contract));
            let may_change = member.is_out || rank != member.rank;
            state.must_limit |= state.left_out > 0 && may_change && !is_later;
        }
        self.write_members(entry, state, &all)
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
        let mut before = Vec::new();
        for order in &orders {
            let position = position(*order);
            let stored = self.store.shared_row(&storage::rows_of_run(entry.id, position))?;
            let stored = stored.ok_or(ProgramError::Damaged("the changes of a member"))?;
            for change in LoggedEvents::read(&stored)?.members.iter() {
                before.push(change?);
            }
        }
        let holds = before.iter().all(|change| now.contains(change));
        let added = now.iter().filter(|change| !before.contains(change)).cloned().collect();
        let replaced = (!holds).then_some(now);
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
        }
        state.cursor = Some(cursor);
        Ok(!rows.is_empty())
    }
}

/// Whether the changes of some members have yet to be recorded, or it is not known which stay.
fn has_more(state: &MemberState) -> bool {
    !state.unrecorded.is_empty() || state.pass.is_some() || state.must_limit
}

fn position(order: u32) -> TransactionPosition {
    TransactionPosition { ledger: BEFORE_ALL, application_order: order }
}

fn encoded(changes: &[LoggedMember]) -> Result<Vec<u8>, ProgramError> {
    let mut writer = EventsWriter::of_members();
    changes.iter().try_for_each(|change| writer.push_member(change))?;
    Ok(writer.finish())
}
