//! The recorded changes of members: entries of the row log, compared with what follows now, and written.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::logged::LoggedMember;
use super::rank::Rank;
use super::state::MemberState;
use super::stored::{Cursor, StoredMember};
use crate::events::data_finding::{BEFORE_ALL, MEMBERS_FROM};
use crate::events::logged::{EventsWriter, LoggedEvents};
use crate::manifest::{Manifest, Progress};
use crate::registry::Entry;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_ledger::domain::{ContractId, ProgramId};
use orrery_store::{KindChanges, RowCodec, Store, StoreError, TransactionPosition};

/// What is written of a member.
pub struct Written {
    pub contract: ContractId,
    /// When it became a member.
    pub rank: Rank,
    /// Whether only the first times are recorded in which it ran the codes of the project.
    pub is_cut: bool,
    /// Orders of its entries so far.
    pub orders: Vec<u32>,
    /// The changes of another entry.
    pub added: Vec<LoggedMember>,
    /// All changes, where the entries so far have others.
    pub replaced: Option<Vec<LoggedMember>>,
}

/// Entries of the row log that are written.
#[derive(Default)]
struct Entries {
    /// Each with its order, its number if it is new, and its content.
    rows: Vec<(u32, Option<u64>, Vec<u8>)>,
    /// The orders of the entries of each member that has other ones.
    orders: Vec<(ContractId, Vec<u32>)>,
}

impl Runner {
    /// Compares the changes of a contract with those that are recorded.
    pub(super) fn compare(
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
        let rank = Rank::default();
        Ok(Written { contract, rank, is_cut: false, orders, added, replaced })
    }

    /// Writes changes. Returns whether there are new rows.
    pub(super) fn write_members(
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
        let (mut progress, before) = (cell.progress, Arc::clone(&cell.manifest));
        let mut cursor = state.cursor.clone().unwrap_or_default();
        let is_replaced = all.iter().any(|written| written.replaced.is_some());
        let manifest = is_replaced.then(|| derived_anew(&before));
        let entries = Entries::of(all, &mut progress, &mut cursor)?;
        let written = cell.write(&self.store, |changes| {
            entries.put(changes, id)?;
            all.iter().try_for_each(|written| put_recorded(&self.store, changes, id, written))?;
            if let Some(manifest) = &manifest {
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
        if let Some(manifest) = manifest {
            cell.manifest = Arc::new(manifest);
            cell.merges += 1;
            state.replacing.note();
        }
        state.cursor = Some(cursor);
        for Written { contract, is_cut, .. } in all {
            match is_cut {
                true => state.cut.insert(*contract),
                false => state.cut.remove(contract),
            };
        }
        entry.members.set_cut(state.cut.len());
        Ok(!entries.rows.is_empty())
    }
}

impl Entries {
    /// Returns the entries of some members. Moves progress and cursor.
    fn of(
        all: &[Written],
        progress: &mut Progress,
        cursor: &mut Cursor,
    ) -> Result<Self, ProgramError> {
        let mut entries = Self::default();
        for Written { contract, orders, added, replaced, .. } in all {
            let mut orders = orders.clone();
            match replaced {
                Some(now) => {
                    let parts = [now.as_slice()].into_iter().chain(std::iter::repeat(&[][..]));
                    for (order, part) in orders.iter().zip(parts) {
                        entries.rows.push((*order, None, encoded(part)?));
                    }
                }
                None if !added.is_empty() => {
                    let order = MEMBERS_FROM + cursor.entries;
                    cursor.entries += 1;
                    progress.log += 1;
                    let encoded = encoded(added)?;
                    progress.row_bytes += encoded.len() as u64;
                    entries.rows.push((order, Some(progress.log), encoded));
                    orders.push(order);
                }
                None => continue,
            }
            entries.orders.push((*contract, orders));
        }
        Ok(entries)
    }

    fn put(&self, changes: &mut KindChanges<'_>, program: ProgramId) -> Result<(), StoreError> {
        for (order, number, encoded) in &self.rows {
            match number {
                Some(number) => {
                    storage::put_rows(changes, program, position(*order), *number, encoded)?;
                }
                None => changes.put(&storage::rows_of_run(program, position(*order)), encoded)?,
            }
        }
        for (contract, orders) in &self.orders {
            storage::put_json(changes, &storage::member_entries(program, contract), orders)?;
        }
        Ok(())
    }
}

/// Puts of a member that its changes are recorded.
fn put_recorded(
    store: &Store,
    changes: &mut KindChanges<'_>,
    program: ProgramId,
    written: &Written,
) -> Result<(), StoreError> {
    let row = storage::member(program, &written.contract);
    let Some(stored) = store.shared_row(&row)? else { return Ok(()) };
    let member = StoredMember::decode(&stored).ok_or_else(|| row.damaged())?;
    let (rank, is_cut) = (written.rank, written.is_cut);
    changes.put(&row, StoredMember { unrecorded: false, rank, is_cut, ..member }.encode())
}

/// Returns a manifest of which all rows are derived anew.
fn derived_anew(manifest: &Manifest) -> Manifest {
    let mut manifest = Manifest::clone(manifest);
    if let Some(project) = &mut manifest.events {
        project.must_derive = true;
    }
    manifest
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
