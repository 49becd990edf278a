//! Stores new members of a project, then adds them in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::candidates::Candidates;
use super::found::Found;
use super::state::MemberState;
use super::stored::{Announcement, Cursor, StoredMember};
use crate::manifest::Manifest;
use crate::registry::Entry;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_ledger::domain::{ContractId, ProgramId};
use orrery_store::{KindChanges, RowCodec, StoreError};

impl Runner {
    /// Stores what was found, without the announcements that turned out to be none, then adds new members in memory.
    pub(super) fn add_members(
        &self,
        entry: &Entry,
        state: &mut MemberState,
        (found, removed): (Found, BTreeSet<(u8, ContractId)>),
        cursor: Cursor,
    ) -> Result<(), ProgramError> {
        let candidates = self.candidates(entry, state, &found, &removed)?;
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        if cell.deleted {
            return Ok(());
        }
        let before = Arc::clone(&cell.manifest);
        let manifest = candidates.is_less.then(|| without_members(&before));
        let joined = self.joined(entry, &before, &found, &candidates.changed)?;
        let written = cell.write(&self.store, |changes| {
            put_members(changes, entry.id, &candidates.changed)?;
            self.put_announcements(changes, entry.id, (&found, &removed))?;
            if let Some(manifest) = &manifest {
                manifest.put(changes, Some(&before))?;
            }
            entry.members.newly_known.lock().put(changes, entry.id, &joined)?;
            storage::put_json(changes, &storage::member_cursor(entry.id), &cursor)
        });
        if let Err(error) = written {
            (state.is_read, state.in_doubt) = (false, true);
            return Err(error);
        }
        if let Some(manifest) = manifest {
            cell.manifest = Arc::new(manifest);
            // What is being derived has rows of those that were removed.
            cell.merges += 1;
        }
        self.add_in_memory(entry, state, &candidates);
        (state.cursor, state.unwritten_looks) = (Some(cursor), 0);
        entry.members.newly_known.lock().add(joined);
        if candidates.is_changed {
            entry.members.note_added();
        }
        if candidates.is_less {
            entry.members.note_removed();
        }
        Ok(())
    }

    /// Puts the announcements that were found where they are the first ones, and deletes those that are none.
    fn put_announcements(
        &self,
        changes: &mut KindChanges<'_>,
        program: ProgramId,
        (found, removed): (&Found, &BTreeSet<(u8, ContractId)>),
    ) -> Result<(), StoreError> {
        for (selector, contract) in removed {
            changes.delete(&storage::announcement(program, *selector, contract))?;
        }
        for ((selector, contract), announcement) in &found.announcements {
            let row = storage::announcement(program, *selector, contract);
            let known = self.store.shared_row(&row)?;
            let known = known.as_deref().and_then(Announcement::decode);
            let is_removed = removed.contains(&(*selector, *contract));
            if is_removed || known.is_none_or(|known| *announcement < known) {
                changes.put(&row, announcement.encode())?;
            }
        }
        Ok(())
    }

    /// Notes in memory what was stored.
    fn add_in_memory(&self, entry: &Entry, state: &mut MemberState, candidates: &Candidates) {
        let Candidates { changed, is_changed, is_less, left_out } = candidates;
        let own = changed.iter().map(|(contract, it)| (*contract, it.in_memory()));
        self.events.members().set(entry.id, own);
        state.left_out = *left_out;
        entry.members.set_left_out(state.left_out);
        // One that is removed makes room, and one that takes it may have come later than others.
        state.must_limit |= *left_out > 0 && (*is_less || *is_changed || state.last.is_none());
        for (contract, member) in changed {
            if member.pending && !member.flags.is_empty() {
                state.pending.entry(*contract).or_default();
            } else {
                state.pending.remove(contract);
            }
            state.unrecorded.insert(*contract);
            if member.flags.is_empty() {
                state.cut.remove(contract);
            }
        }
        entry.members.set_pending(state.pending.len());
        entry.members.set_cut(state.cut.len());
    }
}

/// Returns a manifest of which all rows are derived anew, without those of members that are none any more.
fn without_members(manifest: &Manifest) -> Manifest {
    let mut manifest = Manifest::clone(manifest);
    if let Some(project) = &mut manifest.events {
        project.must_derive_without_members();
    }
    manifest
}

fn put_members(
    changes: &mut KindChanges<'_>,
    program: ProgramId,
    members: &BTreeMap<ContractId, StoredMember>,
) -> Result<(), StoreError> {
    for (contract, member) in members {
        let row = storage::member(program, contract);
        match member.flags.is_empty() {
            true => changes.delete(&row)?,
            false => changes.put(&row, member.encode())?,
        }
    }
    Ok(())
}
