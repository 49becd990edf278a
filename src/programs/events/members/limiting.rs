//! Keeps the members of a project within their number: of more, those stay that became members first in the chain,
//! whatever the order in which they became known. The others are stored, and are members once there is room.

use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::index::Flags;
use super::rank::Rank;
use super::state::{MemberState, ReadTo};
use super::stored::StoredMember;
use crate::manifest::Manifest;
use crate::registry::Entry;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_ledger::domain::ContractId;
use orrery_membership::KnownMember;
use orrery_store::RowCodec;

/// What changes with the members that stay.
#[derive(Default)]
struct Settled {
    /// The last of those that stay; `None` where all do.
    last: Option<(Rank, ContractId)>,
    /// Those that are members now and were not, or the other way round, as they are stored then.
    changed: Vec<(ContractId, StoredMember)>,
    /// Number of those that do not stay.
    left_out: usize,
}

impl Runner {
    /// Makes those members of a project that became members first, once it is known when all did. Returns whether
    /// that changes anything.
    pub(super) fn limit_members(
        &self,
        entry: &Entry,
        state: &mut MemberState,
    ) -> Result<bool, ProgramError> {
        if !state.must_limit || state.left_out == 0 {
            state.must_limit = false;
            return Ok(false);
        }
        let settled = self.settled(entry)?;
        let is_changed = !settled.changed.is_empty();
        if is_changed && !self.write_settled(entry, state, &settled)? {
            return Ok(false);
        }
        (state.must_limit, state.last, state.left_out) = (false, settled.last, settled.left_out);
        entry.members.set_left_out(state.left_out);
        Ok(is_changed)
    }

    /// Visits all that are members, or would be if there was room.
    fn each_candidate(
        &self,
        entry: &Entry,
        mut visit: impl FnMut(ContractId, StoredMember),
    ) -> Result<(), ProgramError> {
        storage::members_after(&self.store, entry.id, None, |contract, row| {
            let damaged = || storage::member(entry.id, &contract).damaged();
            let member = StoredMember::decode(row).ok_or_else(damaged)?;
            if !member.flags.without(Flags::BY_NAME).is_empty() {
                visit(contract, member);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }

    fn settled(&self, entry: &Entry) -> Result<Settled, ProgramError> {
        let most = self.events.members().most();
        let mut first: BinaryHeap<(Rank, ContractId)> = BinaryHeap::new();
        self.each_candidate(entry, |contract, member| {
            first.push((member.rank, contract));
            if first.len() > most {
                first.pop();
            }
        })?;
        // Where there is room, all stay.
        let last = if first.len() < most { None } else { first.pop() };
        let mut settled = Settled { last, ..Settled::default() };
        self.each_candidate(entry, |contract, member| {
            let is_first = last.is_none_or(|last| (member.rank, contract) <= last);
            let stays = is_first || member.flags.has(Flags::NAMED);
            settled.left_out += usize::from(!stays);
            if stays == member.is_out {
                // What is not a member any more has no rows, and what is one has all.
                let now =
                    StoredMember { is_out: !stays, pending: stays, unrecorded: true, ..member };
                settled.changed.push((contract, now));
            }
        })?;
        Ok(settled)
    }

    /// Writes which members stay. Returns whether it was written.
    fn write_settled(
        &self,
        entry: &Entry,
        state: &mut MemberState,
        settled: &Settled,
    ) -> Result<bool, ProgramError> {
        let id = entry.id;
        let is_displaced = settled.changed.iter().any(|(_, member)| member.is_out);
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        if cell.deleted {
            return Ok(false);
        }
        let (before, mut manifest) = (Arc::clone(&cell.manifest), Manifest::clone(&cell.manifest));
        if let Some(project) = manifest.events.as_mut().filter(|_| is_displaced) {
            project.must_derive_without_members();
        }
        let joined = settled.joined();
        let written = cell.write(&self.store, |changes| {
            for (contract, member) in &settled.changed {
                changes.put(&storage::member(id, contract), member.encode())?;
            }
            if is_displaced {
                manifest.put(changes, Some(&before))?;
            }
            entry.members.newly_known.lock().put(changes, id, &joined)
        });
        if let Err(error) = written {
            (state.is_read, state.in_doubt) = (false, true);
            return Err(error);
        }
        if is_displaced {
            cell.manifest = Arc::new(manifest);
            // What is being derived has rows of those that were displaced.
            cell.merges += 1;
        }
        self.settle_in_memory(entry, state, settled);
        entry.members.newly_known.lock().add(joined);
        entry.members.note_added();
        if is_displaced {
            entry.members.note_removed();
        }
        Ok(true)
    }

    /// Notes in memory which members stay.
    fn settle_in_memory(&self, entry: &Entry, state: &mut MemberState, settled: &Settled) {
        let own = settled.changed.iter().map(|(contract, it)| (*contract, it.in_memory()));
        self.events.members().set(entry.id, own);
        for (contract, member) in &settled.changed {
            state.unrecorded.insert(*contract);
            if member.is_out {
                state.pending.remove(contract);
            } else {
                state.pending.insert(*contract, ReadTo::default());
            }
        }
        entry.members.set_pending(state.pending.len());
    }
}

impl Settled {
    /// Returns since when those are members that were not.
    fn joined(&self) -> Vec<KnownMember> {
        let staying = self.changed.iter().filter(|(_, member)| !member.is_out);
        let joined = staying.filter_map(|(contract, member)| {
            let since = member.rank.since()?;
            Some(KnownMember { contract: *contract, since })
        });
        joined.collect()
    }
}
