//! Looks for the members of a project: among what was learnt of creations and codes, and in the events of
//! factories. Each look goes on where the last one ended.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::factories::{Factories, LONGEST_READ};
use super::found::Found;
use super::index::Flags;
use super::newly_known::NewlyKnown;
use super::selectors::Selectors;
use super::state::{MemberState, ReadTo};
use super::stored::{self, Announcement, Cursor, StoredMember};
use crate::manifest::Manifest;
use crate::registry::Entry;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_ledger::domain::ContractId;
use orrery_membership::{CONSUMER, Facts, Learnt, Named};
use orrery_store::{RowCodec, RowFlow};

/// How long a turn waits for the facts of the newest ledger, and how often it looks.
const LONGEST_WAIT: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Maximum number of things that were learnt which a turn takes.
const LEARNT_AT_ONCE: usize = if cfg!(test) { 5 } else { 4_096 };
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
        let are_known = self.store.has_passed(CONSUMER, self.store.last_place()) != Some(false);
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

    /// Waits a moment until what was stored last is known.
    fn await_facts(&self) {
        let begun = Instant::now();
        let most = if cfg!(test) { Duration::ZERO } else { LONGEST_WAIT };
        let place = self.store.last_place();
        let lag = || self.store.consumer(CONSUMER).map_or(u64::MAX, |consumer| consumer.lag);
        while self.store.has_passed(CONSUMER, place) == Some(false)
            && lag() <= FAR_BEHIND
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

    /// Stores new members, then adds them in memory.
    fn add_members(
        &self,
        entry: &Entry,
        state: &mut MemberState,
        (found, removed): (Found, BTreeSet<(u8, ContractId)>),
        cursor: Cursor,
    ) -> Result<(), ProgramError> {
        let index = self.events.members();
        let Candidates { changed, is_changed, is_less, left_out } =
            self.candidates(entry, state, &found, &removed)?;
        let must_derive = is_less;
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        if cell.deleted {
            return Ok(());
        }
        let id = entry.id;
        let mut manifest = Manifest::clone(&cell.manifest);
        if let Some(project) = manifest.events.as_mut().filter(|_| must_derive) {
            project.must_derive_without_members();
        }
        let before = std::sync::Arc::clone(&cell.manifest);
        let joined = self.joined(entry, &before, &found, &changed)?;
        let written = cell.write(&self.store, |changes| {
            for (contract, member) in &changed {
                let row = storage::member(id, contract);
                match member.flags.is_empty() {
                    true => changes.delete(&row)?,
                    false => changes.put(&row, member.encode())?,
                }
            }
            for (selector, contract) in &removed {
                changes.delete(&storage::announcement(id, *selector, contract))?;
            }
            for ((selector, contract), announcement) in &found.announcements {
                let row = storage::announcement(id, *selector, contract);
                let known = self.store.shared_row(&row)?;
                let known = known.as_deref().and_then(Announcement::decode);
                let is_removed = removed.contains(&(*selector, *contract));
                if is_removed || known.is_none_or(|known| *announcement < known) {
                    changes.put(&row, announcement.encode())?;
                }
            }
            if must_derive {
                manifest.put(changes, Some(&before))?;
            }
            entry.members.newly_known.lock().put(changes, id, &joined)?;
            storage::put_json(changes, &storage::member_cursor(id), &cursor)
        });
        if let Err(error) = written {
            (state.is_read, state.in_doubt) = (false, true);
            return Err(error);
        }
        if must_derive {
            cell.manifest = std::sync::Arc::new(manifest);
            // What is being derived has rows of those that were removed.
            cell.merges += 1;
        }
        index.set(id, changed.iter().map(|(contract, it)| (*contract, it.in_memory())));
        state.left_out = left_out;
        entry.members.set_left_out(left_out);
        // One that is removed makes room, and one that takes it may have come later than others.
        state.must_limit |= left_out > 0 && (must_derive || is_changed || state.last.is_none());
        for (contract, member) in &changed {
            if member.pending && !member.flags.is_empty() {
                state.pending.entry(*contract).or_default();
            } else {
                state.pending.remove(contract);
            }
            state.unrecorded.insert(*contract);
        }
        entry.members.set_pending(state.pending.len());
        (state.cursor, state.unwritten_looks) = (Some(cursor), 0);
        entry.members.newly_known.lock().add(joined);
        if is_changed {
            entry.members.note_added();
        }
        if must_derive {
            entry.members.note_removed();
        }
        Ok(())
    }
}

/// What changes with what was found.
struct Candidates {
    /// What is to be stored.
    changed: BTreeMap<ContractId, StoredMember>,
    /// Whether the project has more members, or more reasons for some.
    is_changed: bool,
    /// Whether there is a reason less for some.
    is_less: bool,
    /// Number of contracts that are no members because others became members before.
    left_out: usize,
}

impl Runner {
    /// Returns what is to be stored of new members. Of more than a project may have, those that were found later
    /// are none until it is known when all became members ([`Self::limit_members`]).
    fn candidates(
        &self,
        entry: &Entry,
        state: &MemberState,
        found: &Found,
        removed: &BTreeSet<(u8, ContractId)>,
    ) -> Result<Candidates, ProgramError> {
        let (index, is_first) = (self.events.members(), state.cursor.is_none());
        let mut changed: BTreeMap<ContractId, StoredMember> = BTreeMap::new();
        let (mut new, mut is_changed) = (0, false);
        // Of one that is none because others came before, nothing is in memory.
        let known = |contract: &ContractId| {
            let stored = stored::member(&self.store, entry.id, contract)?.unwrap_or_default();
            let now = index.flags(entry.id, contract);
            let is_out = stored.is_out && !now.has(Flags::NAMED);
            let flags = if stored.is_out { now.and(stored.flags) } else { now };
            let pending = !is_out && state.pending.contains_key(contract);
            Ok::<_, ProgramError>(StoredMember { flags, pending, is_out, ..stored })
        };
        for (contract, flags) in &found.members {
            let before = known(contract)?;
            let is_new = before.is_out || before.flags.is_empty();
            let is_out = is_new && index.count(entry.id) + new >= index.most();
            new += usize::from(is_new && !is_out);
            let now = before.flags.and(*flags);
            let is_more = !is_out && (is_new || now != before.flags);
            is_changed |= is_more;
            // What the project names itself is read by a backfill.
            let was_whole = !is_new && before.flags.are_whole();
            let is_late = !is_first && is_more && !was_whole;
            let pending = !is_out && (is_late || before.pending);
            let member = StoredMember { flags: now, pending, unrecorded: true, is_out, ..before };
            changed.insert(*contract, member);
        }
        for contract in &found.touched {
            let before = known(contract)?;
            if !before.flags.is_empty() && !changed.contains_key(contract) {
                changed.insert(*contract, StoredMember { unrecorded: true, ..before });
            }
        }
        let mut is_less = false;
        let announced: BTreeSet<ContractId> =
            found.announcements.keys().map(|(_, contract)| *contract).collect();
        for (_, contract) in removed {
            if announced.contains(contract) || self.is_announced(entry, contract, removed)? {
                continue;
            }
            is_less = true;
            let before = match changed.get(contract) {
                Some(changed) => *changed,
                None => known(contract)?,
            };
            let flags = before.flags.without(Flags::ANNOUNCED);
            changed.insert(*contract, StoredMember { flags, unrecorded: true, ..before });
        }
        let mut left_out = state.left_out;
        for (contract, now) in &changed {
            let was_out =
                stored::member(&self.store, entry.id, contract)?.is_some_and(|it| it.is_out);
            left_out -= usize::from(was_out).min(left_out);
            left_out += usize::from(now.is_out && !now.flags.is_empty());
        }
        Ok(Candidates { changed, is_changed, is_less, left_out })
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

/// Adds the contracts of which something was learnt after a cursor, for some time, or all at the first look. Moves
/// the cursor. Returns whether there is more.
fn learnt(
    facts: &Facts<'_>,
    selectors: &Selectors,
    is_first: bool,
    cursor: &mut Cursor,
    found: &mut Found,
) -> Result<bool, ProgramError> {
    if is_first {
        for creator in &selectors.created_by {
            facts.made_by(&creator.0, None, |contract| add(found, contract, Flags::CREATED))?;
        }
        for code in &selectors.wasm {
            facts.runners(code, |contract| add(found, contract, Flags::MAY_RUN))?;
        }
        cursor.learnt = facts.newest()?;
        return Ok(false);
    }
    let until = Instant::now() + LONGEST_READ;
    let mut new = Vec::new();
    facts.learnt_after(cursor.learnt, |number, what| {
        new.push((number, what));
        Ok(match new.len() < LEARNT_AT_ONCE {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    })?;
    let mut has_more = new.len() >= LEARNT_AT_ONCE;
    for (number, what) in new {
        add_learnt(facts, selectors, what, found)?;
        cursor.learnt = number;
        if Instant::now() >= until {
            has_more = true;
            break;
        }
    }
    Ok(has_more)
}

/// Adds the contracts that something concerns which was learnt.
fn add_learnt(
    facts: &Facts<'_>,
    selectors: &Selectors,
    what: Learnt,
    found: &mut Found,
) -> Result<(), ProgramError> {
    let may_mean = |named| {
        for code in &selectors.wasm {
            if facts.may_mean(named, code)? {
                return Ok::<_, ProgramError>(true);
            }
        }
        Ok(false)
    };
    match what {
        Learnt::Contract(contract) => {
            found.touched.insert(contract);
            if !selectors.created_by.is_empty()
                && let Some(creation) = facts.creation(&contract)?
                && selectors.created_by.iter().any(|creator| creator.0 == creation.creator)
            {
                found.add(contract, Flags::CREATED);
            }
        }
        Learnt::Ran(contract, named) => {
            found.touched.insert(contract);
            if may_mean(named)? {
                found.add(contract, Flags::MAY_RUN);
            }
        }
        Learnt::Tag(tag) => {
            if may_mean(Named::Tag(tag))? {
                // Also of those that are members a time begins, or ends.
                facts.referring(tag, |contract| {
                    found.touched.insert(contract);
                    add(found, contract, Flags::MAY_RUN)
                })?;
            }
        }
    }
    Ok(())
}

fn add(found: &mut Found, contract: ContractId, flags: Flags) -> RowFlow {
    found.add(contract, flags);
    Ok(ControlFlow::Continue(()))
}
