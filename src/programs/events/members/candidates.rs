//! What changes with new members, and with announcements that turn out to be none.

use std::collections::{BTreeMap, BTreeSet};

use super::found::Found;
use super::index::Flags;
use super::state::MemberState;
use super::stored::{self, StoredMember};
use crate::registry::Entry;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_ledger::domain::ContractId;

/// What changes with what was found.
pub struct Candidates {
    /// What is to be stored.
    pub changed: BTreeMap<ContractId, StoredMember>,
    /// Whether the project has more members, or more reasons for some.
    pub is_changed: bool,
    /// Whether there is a reason less for some.
    pub is_less: bool,
    /// Number of contracts that are no members because others became members before.
    pub left_out: usize,
}

impl Runner {
    /// Returns what is to be stored of new members. Of more than a project may have, those that were found later
    /// are none until it is known when all became members ([`Self::limit_members`]).
    pub(super) fn candidates(
        &self,
        entry: &Entry,
        state: &MemberState,
        found: &Found,
        removed: &BTreeSet<(u8, ContractId)>,
    ) -> Result<Candidates, ProgramError> {
        let (changed, left_out) = (BTreeMap::new(), state.left_out);
        let mut candidates = Candidates { changed, is_changed: false, is_less: false, left_out };
        self.add_found(entry, state, found, &mut candidates)?;
        for contract in &found.touched {
            let before = self.known_member(entry, state, contract)?;
            if !before.flags.is_empty() && !candidates.changed.contains_key(contract) {
                let touched = StoredMember { unrecorded: true, ..before };
                candidates.changed.insert(*contract, touched);
            }
        }
        let announced: BTreeSet<ContractId> =
            found.announcements.keys().map(|(_, contract)| *contract).collect();
        for (_, contract) in removed {
            if announced.contains(contract) || self.is_announced(entry, contract, removed)? {
                continue;
            }
            candidates.is_less = true;
            let before = match candidates.changed.get(contract) {
                Some(changed) => *changed,
                None => self.known_member(entry, state, contract)?,
            };
            let flags = before.flags.without(Flags::ANNOUNCED);
            let less = StoredMember { flags, unrecorded: true, ..before };
            candidates.changed.insert(*contract, less);
        }
        for (contract, now) in &candidates.changed {
            let stored = stored::member(&self.store, entry.id, contract)?;
            let was_out = stored.is_some_and(|it| it.is_out);
            candidates.left_out -= usize::from(was_out).min(candidates.left_out);
            candidates.left_out += usize::from(now.is_out && !now.flags.is_empty());
        }
        Ok(candidates)
    }

    /// Adds new members, and members for which there are more reasons.
    fn add_found(
        &self,
        entry: &Entry,
        state: &MemberState,
        found: &Found,
        candidates: &mut Candidates,
    ) -> Result<(), ProgramError> {
        let (index, is_first) = (self.events.members(), state.cursor.is_none());
        let mut new = 0;
        for (contract, flags) in &found.members {
            let before = self.known_member(entry, state, contract)?;
            let is_new = before.is_out || before.flags.is_empty();
            let is_out = is_new && index.count(entry.id) + new >= index.most();
            new += usize::from(is_new && !is_out);
            let now = before.flags.and(*flags);
            let is_more = !is_out && (is_new || now != before.flags);
            candidates.is_changed |= is_more;
            // What the project names itself is read by a backfill.
            let was_whole = !is_new && before.flags.are_whole();
            let is_late = !is_first && is_more && !was_whole;
            let pending = !is_out && (is_late || before.pending);
            let member = StoredMember { flags: now, pending, unrecorded: true, is_out, ..before };
            candidates.changed.insert(*contract, member);
        }
        Ok(())
    }

    /// Returns what is known of a member. Of one that is none because others came before, nothing is in memory.
    fn known_member(
        &self,
        entry: &Entry,
        state: &MemberState,
        contract: &ContractId,
    ) -> Result<StoredMember, ProgramError> {
        let stored = stored::member(&self.store, entry.id, contract)?.unwrap_or_default();
        let now = self.events.members().flags(entry.id, contract);
        let is_out = stored.is_out && !now.has(Flags::NAMED);
        let flags = if stored.is_out { now.and(stored.flags) } else { now };
        let pending = !is_out && state.pending.contains_key(contract);
        Ok(StoredMember { flags, pending, is_out, ..stored })
    }

    /// Whether a factory announced a contract besides what is removed.
    fn is_announced(
        &self,
        entry: &Entry,
        contract: &ContractId,
        removed: &BTreeSet<(u8, ContractId)>,
    ) -> Result<bool, ProgramError> {
        for selector in 0..=u8::MAX {
            let row = storage::announcement(entry.id, selector, contract);
            let is_stored = self.store.shared_row(&row)?.is_some();
            if is_stored && !removed.contains(&(selector, *contract)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
