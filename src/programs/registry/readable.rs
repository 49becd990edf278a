//! The programs whose tables an owner reads: its own, and other owners' programs that it has
//! subscribed to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Cell, Entry, EntrySnapshot, Registry};
use crate::manifest::Manifest;
use crate::{ProgramError, storage};
use orrery_ledger::domain::{Owner, ProgramId, excerpt};

/// A program whose tables an owner reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadableProgram {
    /// Id of the program.
    pub id: ProgramId,
    /// Whether the program is the owner's own.
    pub own: bool,
    /// Whether the program has a project name, and does not wait for that of another program.
    pub named: bool,
    /// Whether the program's rows fit: copies of other owners' rows must fit into the space that
    /// the owner's own rows leave.
    pub fits: bool,
}

impl Registry {
    /// Returns the programs whose tables an owner reads: its own, then those it has subscribed to,
    /// each sorted by id.
    pub(crate) fn readable_programs(&self, owner: &Owner) -> Vec<ReadableProgram> {
        let mut found = Vec::new();
        let all = self.snapshots();
        for (entry, snapshot) in &all {
            let other = snapshot.manifest.owner != *owner;
            let replaces = snapshot.manifest.replaces.as_ref().map(|it| it.program);
            let found_by_id = |id| all.iter().find(|(it, _)| it.id == id).map(|(_, it)| it.clone());
            if !other || read_by_others(snapshot, found_by_id).contains(owner) {
                found.push((replaces, other, entry.id, snapshot.row_bytes));
            }
        }
        // Those that are to replace another come last: they use the space of the other one.
        found.sort_unstable();
        let (mut used, mut fitting) = (0u64, BTreeMap::new());
        let mut readable = Vec::with_capacity(found.len());
        for (replaces, other, id, bytes) in found {
            let freed = replaces.and_then(|old| fitting.get(&old)).copied().unwrap_or(0);
            let total = used.saturating_sub(freed).saturating_add(bytes);
            let fits = !other || total <= self.settings.owner_mib.bytes();
            if fits && replaces.is_none() {
                used = total;
                fitting.insert(id, bytes);
            }
            readable.push(ReadableProgram { id, own: !other, named: replaces.is_none(), fits });
        }
        readable.sort_by_key(|it| (!it.own, it.id));
        readable
    }

    /// Returns all owners who read the tables of a program, its own owner first.
    pub(crate) fn readers_of(&self, program: &Entry) -> Vec<Owner> {
        let snapshot = program.snapshot();
        let replaced = |id| self.get(id).map(|entry| entry.snapshot());
        let others = read_by_others(&snapshot, replaced);
        let mut readers = vec![snapshot.manifest.owner.clone()];
        readers.extend(others.iter().cloned());
        readers
    }

    /// Returns all owners who have a program or a subscription.
    pub(crate) fn readers(&self) -> BTreeSet<Owner> {
        let mut readers = BTreeSet::new();
        for (_, snapshot) in self.snapshots() {
            readers.insert(snapshot.manifest.owner.clone());
            readers.extend(snapshot.subscribers.iter().cloned());
        }
        readers
    }

    /// Subscribes an owner to another owner's public program. Succeeds when the subscription exists
    /// already.
    pub(crate) fn subscribe(&self, owner: &Owner, project: &str) -> Result<Manifest, ProgramError> {
        // Serialises counting and adding subscriptions.
        let _one_at_a_time = self.deploying.lock();
        let entry = self.find_public(owner, project)?;
        let others = self.snapshots();
        let taken = others.iter().filter(|(_, it)| it.subscribers.contains(owner)).count();
        let mut cell = entry.lock();
        let manifest = Manifest::clone(&cell.manifest);
        if cell.subscribers.contains(owner) {
            return Ok(manifest);
        }
        let most = self.settings.owner_subscriptions.get() as usize;
        if taken >= most {
            return Err(ProgramError::TooManySubscriptions(most));
        }
        self.change_subscribers(&mut cell, |subscribers| subscribers.insert(owner.clone()))?;
        Ok(manifest)
    }

    /// Ends a subscription, if there is one.
    pub(crate) fn unsubscribe(
        &self,
        owner: &Owner,
        project: &str,
    ) -> Result<Manifest, ProgramError> {
        // The program must not be replaced in between.
        let _one_at_a_time = self.deploying.lock();
        let entry = self.find_public(owner, project)?;
        let mut cell = entry.lock();
        if cell.subscribers.contains(owner) {
            self.change_subscribers(&mut cell, |subscribers| subscribers.remove(owner))?;
        }
        Ok(Manifest::clone(&cell.manifest))
    }

    /// Returns another owner's public program. A private program gives the same error as none, so
    /// that its existence is not revealed.
    fn find_public(&self, owner: &Owner, project: &str) -> Result<Arc<Entry>, ProgramError> {
        let found = self.snapshots().into_iter().find(|(_, EntrySnapshot { manifest, .. })| {
            manifest.replaces.is_none()
                && manifest.project_name.eq_ignore_ascii_case(project)
                && (manifest.public || manifest.owner == *owner)
        });
        let (entry, snapshot) = found.ok_or_else(|| ProgramError::NotPublic(excerpt(project)))?;
        if snapshot.manifest.owner == *owner {
            let problem =
                format!("is '{}', your own project: read it without subscribing", excerpt(project));
            return Err(ProgramError::Value { name: "project", problem });
        }
        Ok(entry)
    }

    fn change_subscribers(
        &self,
        cell: &mut Cell,
        change: impl FnOnce(&mut BTreeSet<Owner>) -> bool,
    ) -> Result<(), ProgramError> {
        if cell.deleted {
            return Err(ProgramError::NotPublic(cell.manifest.project_name.clone()));
        }
        let mut subscribers = BTreeSet::clone(&cell.subscribers);
        change(&mut subscribers);
        let row = storage::subscribers(cell.manifest.id);
        storage::change(&self.store, |changes| storage::put_json(changes, &row, &subscribers))?;
        cell.subscribers = Arc::new(subscribers);
        Ok(())
    }
}

/// Returns the other owners who read the tables of a program. Those who have subscribed to a
/// program also read the one that is to replace it.
fn read_by_others(
    program: &EntrySnapshot,
    found_by_id: impl FnOnce(ProgramId) -> Option<EntrySnapshot>,
) -> Arc<BTreeSet<Owner>> {
    let EntrySnapshot { manifest, subscribers, .. } = program;
    match &manifest.replaces {
        _ if !manifest.public => Arc::default(),
        None => Arc::clone(subscribers),
        Some(replaced) => {
            let public = found_by_id(replaced.program).filter(|it| it.manifest.public);
            public.map(|it| it.subscribers).unwrap_or_default()
        }
    }
}
