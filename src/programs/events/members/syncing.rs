//! Looks for the members of a project: among what was learnt of creations and codes, and in the events of
//! factories. Each look goes on where the last one ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::factories::Factories;
use super::found::Found;
use super::index::Flags;
use super::learning::learnt;
use super::newly_known::NewlyKnown;
use super::selectors::Selectors;
use super::state::{MemberState, ReadTo};
use super::stored::{self, Announcement, Cursor, StoredMember};
use crate::manifest::Manifest;
use crate::registry::Entry;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_ledger::domain::ContractId;
use orrery_membership::{Facts, has_passed, lag};
use orrery_store::RowCodec;

/// How long a turn waits for the facts of the newest ledger, and how often it looks.
const LONGEST_WAIT: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Number of looks that found nothing after which it is stored how far they have come.
const MOST_UNWRITTEN: u32 = 1_000;
/// Number of ledgers by which the facts may be behind for a turn to wait for them.
const FAR_BEHIND: u64 = 64;

/// Outcome of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Synced {
    /// Whether there are new rows.
    pub has_rows: bool,
    /// Whether more can be done at once.
    pub has_more: bool,
    /// Whether more is to be done later although no further ledger is stored.
    pub is_waiting: bool,
}

impl Runner {
    /// Looks for members of a project that became known since the last look, and adds them. Those whose
    /// earlier events may have been passed over have these read later ([`Self::catch_up`]).
    ///
    /// # Errors
    /// When the store fails; the next look begins with what is stored.
    pub(crate) fn sync_members(&self, entry: &Entry) -> Result<Synced, ProgramError> {
        let manifest = entry.snapshot().manifest;
        let Some(project) = manifest.events.as_ref().filter(|it| !it.selectors.is_empty()) else {
            return Ok(Synced::default());
        };
        let mut state = entry.members.state.lock();
        self.read_members(entry, &manifest, &mut state)?;
        if !project.selectors.have_members() {
            return Ok(Synced::default());
        }
        let synced = self.look_for_members(entry, (&manifest, &project.selectors), &mut state);
        entry.members.set_unrecorded(state.has_unrecorded());
        synced
    }

    fn look_for_members(
        &self,
        entry: &Entry,
        (manifest, selectors): (&Manifest, &Selectors),
        state: &mut MemberState,
    ) -> Result<Synced, ProgramError> {
        let place = self.store.last_place();
        self.await_facts();
        let (mut found, before) = (Found::default(), state.cursor.clone());
        let mut cursor = before.clone().unwrap_or_default();
        found.touched.extend(manifest.contracts.iter().skip(cursor.named));
        cursor.named = manifest.contracts.len();
        if before.is_none() {
            self.inherit(manifest, selectors, &mut found)?;
        }
        let (mut removed, mut has_more, mut reads_again) = (BTreeSet::new(), false, false);
        if !selectors.factories.is_empty() {
            self.events.interfaces().wait_until_indexed(self.store.last_place());
            let declaring = self.declaring(manifest)?;
            let factories = Factories { runner: self, selectors, declaring };
            has_more = factories.read(&mut cursor, &mut found)?;
            if !has_more {
                (removed, reads_again) =
                    factories.read_again(entry, &mut cursor, &mut found, state)?;
            }
            factories.declaring.names.finish()?;
        }
        // In this order: what is recorded of ledgers that were read follows from facts that have these.
        let are_known = has_passed(&self.store, self.store.last_place()) != Some(false);
        let facts = Facts::new(&self.store)?;
        has_more |= learnt(&facts, selectors, before.is_none(), &mut cursor, &mut found)?;
        self.keep_new(entry, state, &removed, &mut found)?;
        let is_same = found.is_empty() && removed.is_empty();
        if is_same && before.as_ref().is_some_and(|before| before.unsure == cursor.unsure) {
            self.keep_cursor(entry, state, cursor)?;
        } else {
            self.add_members(entry, state, (found, removed), cursor)?;
        }
        if !has_more {
            entry.members.note_looked(place.min(facts.place()));
        }
        let recorded = match are_known {
            true => self.record_members(entry, state, &facts)?,
            // What is recorded too early is mended later by deriving all rows anew.
            false => Synced { is_waiting: state.has_unrecorded(), ..Synced::default() },
        };
        Ok(Synced { has_more: has_more || reads_again || recorded.has_more, ..recorded })
    }

    /// Keeps how far was looked, and stores it after some looks: a look after a restart begins with what is
    /// stored.
    fn keep_cursor(
        &self,
        entry: &Entry,
        state: &mut MemberState,
        cursor: Cursor,
    ) -> Result<(), ProgramError> {
        let is_moved = state.cursor.as_ref() != Some(&cursor);
        state.cursor = Some(cursor);
        state.unwritten_looks += u32::from(is_moved);
        if state.unwritten_looks >= MOST_UNWRITTEN {
            self.write_cursor(entry, state)?;
        }
        Ok(())
    }

    /// Leaves of what was found only what is new.
    fn keep_new(
        &self,
        entry: &Entry,
        state: &MemberState,
        removed: &BTreeSet<(u8, ContractId)>,
        found: &mut Found,
    ) -> Result<(), ProgramError> {
        let index = self.events.members();
        let mut known = BTreeSet::new();
        for ((selector, contract), announcement) in &found.announcements {
            let row = storage::announcement(entry.id, *selector, contract);
            let stored = self.store.shared_row(&row)?;
            let stored = stored.as_deref().and_then(Announcement::decode);
            let is_removed = removed.contains(&(*selector, *contract));
            if !is_removed && stored.is_some_and(|stored| stored <= *announcement) {
                known.insert((*selector, *contract));
            }
        }
        found.announcements.retain(|of, _| !known.contains(of));
        let announced: BTreeSet<ContractId> =
            found.announcements.keys().map(|(_, contract)| *contract).collect();
        found.members.retain(|contract, flags| {
            !index.flags(entry.id, contract).has(*flags) || announced.contains(contract)
        });
        let mut touched = BTreeSet::new();
        for contract in &found.touched {
            let is_known = !index.flags(entry.id, contract).is_empty()
                || (state.left_out > 0
                    && stored::member(&self.store, entry.id, contract)?.is_some());
            touched.extend(is_known.then_some(*contract));
        }
        found.touched = touched;
        Ok(())
    }

    /// Waits a moment until what was stored last is known.
    fn await_facts(&self) {
        let begun = Instant::now();
        let most = if cfg!(test) { Duration::ZERO } else { LONGEST_WAIT };
        let place = self.store.last_place();
        while has_passed(&self.store, place) == Some(false)
            && lag(&self.store).is_some_and(|lag| lag <= FAR_BEHIND)
            && begun.elapsed() < most
        {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Reads what is stored of the members of a project, unless it is in memory.
    fn read_members(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        state: &mut MemberState,
    ) -> Result<(), ProgramError> {
        if state.is_read {
            return Ok(());
        }
        state.cursor = stored::cursor(&self.store, entry.id)?;
        let members = stored::members(&self.store, entry.id)?;
        let newly_known = NewlyKnown::read(&self.store, entry.id)?;
        let pending = members.iter().filter(|(_, member)| member.pending);
        state.pending = pending.map(|(contract, _)| (*contract, ReadTo::default())).collect();
        state.left_out = members.iter().filter(|(_, member)| member.is_out).count();
        (state.must_limit, state.last) = (state.left_out > 0, None);
        entry.members.set_left_out(state.left_out);
        let unrecorded = members.iter().filter(|(_, member)| member.unrecorded);
        state.unrecorded = unrecorded.map(|(contract, _)| *contract).collect();
        let cut = members.iter().filter(|(_, member)| member.is_cut);
        state.cut = cut.map(|(contract, _)| *contract).collect();
        entry.members.set_cut(state.cut.len());
        entry.members.set_pending(state.pending.len());
        entry.members.set_unrecorded(state.has_unrecorded());
        *entry.members.newly_known.lock() = newly_known;
        entry.members.note_read();
        let (index, own) = (self.events.members(), in_memory(manifest, &members));
        match state.in_doubt {
            true => index.replace(entry.id, own),
            false => index.set(entry.id, own),
        }
        if state.in_doubt {
            // Whatever was read meanwhile may lack members, or have too many.
            entry.members.note_removed();
        }
        (state.is_read, state.in_doubt) = (true, false);
        Ok(())
    }
}

/// Returns the members of a project as they are in memory.
pub fn in_memory(
    manifest: &Manifest,
    members: &[(ContractId, StoredMember)],
) -> Vec<(ContractId, Flags)> {
    let mut all: BTreeMap<ContractId, Flags> =
        members.iter().map(|(contract, member)| (*contract, member.in_memory())).collect();
    for contract in &manifest.contracts {
        let flags = all.entry(*contract).or_default();
        *flags = flags.and(Flags::NAMED);
    }
    all.into_iter().collect()
}
