//! Programs that are to replace others: which they are, and the write in which one takes the name and
//! the subscribers of the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::state::Compared;
use super::{Cell, Deploy, Entry, Plan, Registry, Replace, delete_with_module};
use crate::backfills::stored_backfill;
use crate::events::announcements_lost;
use crate::manifest::{Manifest, Replaced};
use crate::storage::put_json;
use crate::{ProgramError, names, storage};
use orrery_ledger::domain::{LedgerRange, LedgerSet, Owner, ProgramId};
use orrery_store::Store;

/// Outcome of an attempt to take the place of another program.
#[derive(Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// The program has the name, and this one is deleted.
    Done(ProgramId),
    /// The program has not caught up yet.
    NotYet,
    /// The other one has rows of these ledgers which the program lacks, and cannot make.
    Loses(LedgerSet),
    /// The program is to replace none, or was deleted.
    Nothing,
}

impl Registry {
    /// Refuses a name that no project may have. One that had it before it was reserved keeps it, and can be replaced.
    pub(super) fn check_name(
        &self,
        owner: &Owner,
        name: &str,
        replace: Replace,
    ) -> Result<(), ProgramError> {
        let old = self.named(name).filter(|_| replace != Replace::No);
        match old.is_some_and(|old| old.snapshot().manifest.owner == *owner) {
            true => Ok(()),
            false => names::check_project(name),
        }
    }

    /// Checks whether an owner may replace a program, and returns what the new one would be.
    pub(super) fn plan_replacement(
        &self,
        owner: &Owner,
        deploy: &Deploy,
        may_name_none: bool,
    ) -> Result<Plan, ProgramError> {
        let name = &deploy.project_name;
        // Another owner's private project is as none, so that its existence is not revealed.
        let old = self.named(name).map(|old| (old.snapshot().manifest, old));
        let old = old.filter(|(manifest, _)| manifest.owner == *owner || manifest.public);
        let (manifest, old) = old.ok_or_else(|| ProgramError::UnknownProject(name.clone()))?;
        if manifest.owner != *owner {
            return Err(ProgramError::OthersProject(name.clone()));
        }
        self.check_not_replaced(&old)?;
        let contracts = if deploy.contracts.is_empty() && !may_name_none {
            manifest.contracts.clone()
        } else {
            names::distinct_or_none(deploy.contracts.clone())?
        };
        self.check_indexed(&contracts)?;
        let project_name = manifest.project_name.clone();
        Ok(Plan {
            project_name: String::new(),
            replaces: Some(Replaced {
                program: old.id,
                project_name,
                allow_loss: deploy.replace == Replace::AllowingLoss,
            }),
            contracts,
            public: deploy.public.unwrap_or(manifest.public),
        })
    }

    /// Returns the programs that are to replace others, sorted by id.
    pub(crate) fn replacements(&self) -> Vec<Arc<Entry>> {
        let mut all = self.all();
        all.retain(|entry| entry.snapshot().manifest.replaces.is_some());
        all
    }

    /// Returns the program that is to replace this one.
    pub(super) fn replacement_of(&self, id: ProgramId) -> Option<Arc<Entry>> {
        let replaces = |entry: &Arc<Entry>| {
            entry.snapshot().manifest.replaces.as_ref().is_some_and(|it| it.program == id)
        };
        self.all().into_iter().find(replaces)
    }

    /// Returns a guard that prevents the program from being replaced.
    ///
    /// # Errors
    /// [`ProgramError::ReplacementRunning`] when it is being replaced, or is to replace another.
    pub(crate) fn block_replacing(
        &self,
        entry: &Entry,
    ) -> Result<MutexGuard<'_, ()>, ProgramError> {
        let deploying = self.deploying.lock();
        self.check_not_replaced(entry)?;
        self.check_not_replacing(entry)?;
        Ok(deploying)
    }

    /// Fails when the program is being replaced.
    fn check_not_replaced(&self, entry: &Entry) -> Result<(), ProgramError> {
        let Some(replacement) = self.replacement_of(entry.id) else { return Ok(()) };
        let project = entry.snapshot().manifest.project_name.clone();
        Err(ProgramError::ReplacementRunning { project, by: replacement.id })
    }

    /// Fails when the program is to replace another.
    pub(crate) fn check_not_replacing(&self, entry: &Entry) -> Result<(), ProgramError> {
        let Some(Replaced { project_name, .. }) = entry.snapshot().manifest.replaces.clone() else {
            return Ok(());
        };
        Err(ProgramError::ReplacementRunning { project: project_name, by: entry.id })
    }

    /// Gives a program the name and the subscribers of the one that it is to replace, and deletes
    /// that one, in one write, if it has processed at least as many ledgers, lacks no rows of that one
    /// (unless the loss is allowed), and `is_copied` says that its rows up to this number of the row
    /// log are in the tables of all readers.
    pub(crate) fn take_over(
        &self,
        new: &Entry,
        is_copied: impl FnOnce(u64) -> bool,
    ) -> Result<TakeOver, ProgramError> {
        // Prevents changes of subscribers, and a concurrent deploy of the same module.
        let _one_at_a_time = self.deploying.lock();
        let Some(replaced) = new.snapshot().manifest.replaces.clone() else {
            return Ok(TakeOver::Nothing);
        };
        let Some(old) = self.get(replaced.program) else { return Ok(TakeOver::Nothing) };
        // No other code locks two cells in another order.
        let (mut old_cell, mut new_cell) = (old.lock(), new.lock());
        old_cell.reload_if_in_doubt(&self.store)?;
        new_cell.reload_if_in_doubt(&self.store)?;
        if new_cell.deleted {
            drop(new_cell);
            self.remove(new.id);
            return Ok(TakeOver::Nothing);
        }
        // An earlier write may have been reported as failed, but reached the store.
        let is_written = new_cell.manifest.replaces.is_none();
        if !is_written {
            let are_known = new.members.are_known(&new_cell.manifest, new_cell.progress.place);
            if !has_caught_up(&new_cell, &old_cell) || !are_known {
                return Ok(TakeOver::NotYet);
            }
            if !replaced.allow_loss {
                match rows_lost(&self.store, &mut new_cell, &old_cell)? {
                    None => return Ok(TakeOver::NotYet),
                    Some(lost) if lost.is_empty() => {}
                    Some(lost) => return Ok(TakeOver::Loses(lost)),
                }
                let lost = self.members_lost(&new_cell, &old_cell)?;
                if !lost.is_empty() {
                    return Ok(TakeOver::Loses(lost));
                }
            }
            if !is_copied(new_cell.progress.log) {
                return Ok(TakeOver::NotYet);
            }
            self.write_take_over(&mut new_cell, &mut old_cell, replaced)?;
        }
        let module = old_cell.manifest.module;
        let unshared = self.is_unshared(&module, old.id);
        // Unlocking shows the changed states to readers, who see both changes or none.
        let mut entries = self.entries.write();
        drop((new_cell, old_cell));
        self.members.remove(old.id);
        entries.remove(&old.id);
        drop(entries);
        self.supplied.forget(old.id);
        if unshared {
            self.remove_compiled(old.id, module);
        }
        Ok(TakeOver::Done(old.id))
    }

    /// Returns the ledgers of events that announced members of the other one, which this one does not know and
    /// cannot read.
    fn members_lost(&self, new: &Cell, old: &Cell) -> Result<LedgerSet, ProgramError> {
        match (&new.manifest.events, &old.manifest.events) {
            (Some(project), Some(old_project)) => announcements_lost(
                &self.store,
                (old.manifest.id, &old_project.selectors),
                (new.manifest.id, &project.selectors),
            ),
            _ => Ok(LedgerSet::default()),
        }
    }

    fn write_take_over(
        &self,
        new: &mut Cell,
        old: &mut Cell,
        replaced: Replaced,
    ) -> Result<(), ProgramError> {
        let Replaced { program, project_name, .. } = replaced;
        let id = new.manifest.id;
        let never_read = self.never_read(new, program)?;
        let mut manifest =
            Manifest { project_name, replaces: None, ..Manifest::clone(&new.manifest) };
        if let Some(project) = &mut manifest.events {
            project.backfilled = project.wanted_backfill(&manifest.contracts);
        }
        let subscribers =
            if manifest.public { BTreeSet::clone(&old.subscribers) } else { BTreeSet::new() };
        let module = old.manifest.module;
        let unshared = self.is_unshared(&module, program);
        let stored = Arc::clone(&new.manifest);
        let written = new.write(&self.store, |changes| {
            manifest.put(changes, Some(&stored))?;
            put_json(changes, &storage::subscribers(id), &subscribers)?;
            changes.put_seen(id, &never_read, false);
            delete_with_module(changes, program, unshared.then_some(&module))
        });
        old.in_doubt |= written.is_err();
        written?;
        new.manifest = Arc::new(manifest);
        new.subscribers = Arc::new(subscribers);
        old.deleted = true;
        Ok(())
    }

    /// Returns the ledgers of which the other program has rows that this one lacks so far, and cannot
    /// make, as far as they were found now.
    pub(crate) fn rows_lost(&self, new: &Entry, old: &Entry) -> Result<LedgerSet, ProgramError> {
        let _one_at_a_time = self.deploying.lock();
        let (mut old, mut new) = (old.lock(), new.lock());
        old.reload_if_in_doubt(&self.store)?;
        new.reload_if_in_doubt(&self.store)?;
        Ok(rows_lost(&self.store, &mut new, &old)?.unwrap_or_default())
    }

    /// Returns the ledgers that are lost to the other program, and that this one has not read either.
    fn never_read(&self, new: &Cell, old: ProgramId) -> Result<LedgerSet, ProgramError> {
        let mut lost = lost_to(&self.store, old);
        if let Some(place) = new.progress.deployed_at_place {
            lost.remove_all(&self.store.ledgers_after(place));
        }
        if let Some(backfill) = stored_backfill(&self.store, new.manifest.id)? {
            lost.remove_all(&backfill.covered());
        }
        Ok(match &new.manifest.events {
            Some(project) => project.wanted(lost),
            None => lost,
        })
    }

    /// Deletes a program that cannot replace the other one, and notes why, in one write.
    pub(crate) fn give_up(&self, new: &Entry, because: &str) -> Result<TakeOver, ProgramError> {
        let _one_at_a_time = self.deploying.lock();
        let Some(replaced) = new.snapshot().manifest.replaces.clone() else {
            return Ok(TakeOver::Nothing);
        };
        let id = new.id;
        let because = format!("program {id} did not replace it: {because}");
        self.delete_one(new, |changes| {
            changes.put(&storage::replacement_failure(replaced.program), because)
        })?;
        Ok(TakeOver::Done(id))
    }

    /// Removes a program that is deleted from the store.
    pub(crate) fn remove(&self, id: ProgramId) {
        // Its name may have been taken in a write whose outcome was unknown.
        let new = self.replacement_of(id);
        let mut new_cell = new.as_ref().map(|new| new.lock());
        if let Some(cell) = &mut new_cell
            && cell.reload_if_in_doubt(&self.store).is_err()
        {
            // It is removed at its next turn.
            return;
        }
        let mut entries = self.entries.write();
        drop(new_cell);
        self.members.remove(id);
        entries.remove(&id);
        drop(entries);
        self.supplied.forget(id);
    }
}

/// Number of runs of the other program that are compared at once, because others wait meanwhile. A ledger
/// is compared whole.
///
/// Few in unit tests, whose programs have few runs.
const COMPARED_AT_ONCE: usize = if cfg!(test) { 64 } else { 10_000 };

/// Returns the ledgers of which the program `old` has rows that `new` lacks and cannot make, as far as
/// they were found now: data of their transactions is not stored any more, or state that their runs need
/// is not known. `None` when there is more to compare.
fn rows_lost(store: &Store, new: &mut Cell, old: &Cell) -> Result<Option<LedgerSet>, ProgramError> {
    let (mut lost, mut compared) = (LedgerSet::default(), new.compared.clone());
    let is_whole = compare(store, (new, old), &mut compared, &mut lost)?;
    if lost.is_empty() {
        new.compared = compared;
        return Ok(is_whole.then_some(lost));
    }
    Ok(Some(lost))
}

/// Compares some more. Returns whether that was all.
fn compare(
    store: &Store,
    (new, old): (&Cell, &Cell),
    compared: &mut Compared,
    lost: &mut LedgerSet,
) -> Result<bool, ProgramError> {
    let (id, old_id) = (new.manifest.id, old.manifest.id);
    let has = |program, position| {
        store.shared_row(&storage::rows_of_run(program, position)).map(|row| row.is_some())
    };
    let mut left = COMPARED_AT_ONCE;
    if compared.ledgers.is_empty() {
        compared.log = old.progress.log;
    }
    // Runs on ledgers that were compared before these runs were stored.
    storage::row_log_after(store, old_id, compared.log, |number, position, _| {
        if compared.ledgers.contains(position.ledger) && !has(id, position)? {
            lost.insert(LedgerRange::only(position.ledger));
        }
        compared.log = number;
        left = left.saturating_sub(1);
        Ok(storage::more_if(left > 0))
    })?;
    let mut ledgers = lost_to(store, id);
    ledgers.remove_all(&compared.ledgers);
    for range in ledgers.ranges() {
        let (mut done, mut last) = (*range, None);
        storage::runs_with_rows(store, old_id, *range, |position| {
            if left == 0 && last != Some(position.ledger) {
                done.last = position.ledger.previous().unwrap_or_default();
                return Ok(storage::more_if(false));
            }
            if !has(id, position)? {
                lost.insert(LedgerRange::only(position.ledger));
            }
            (left, last) = (left.saturating_sub(1), Some(position.ledger));
            Ok(storage::more_if(true))
        })?;
        compared.ledgers.insert(done);
        if done != *range {
            return Ok(false);
        }
    }
    for position in new.waiting.positions() {
        if has(old_id, position)? && !has(id, position)? {
            lost.insert(LedgerRange::only(position.ledger));
        }
    }
    Ok(compared.log >= old.progress.log)
}

fn lost_to(store: &Store, program: ProgramId) -> LedgerSet {
    store.consumer(&storage::consumer(program)).map(|it| it.lost).unwrap_or_default()
}

/// Returns whether the new program has processed at least the ledgers that the old one has, apart
/// from those of a backfill.
fn has_caught_up(new: &Cell, old: &Cell) -> bool {
    !old.deleted
        && new.manifest.running
        && new.progress.part.is_none()
        && new.progress.place >= old.progress.place
}
