//! Which programs' tables an owner reads: its own, and those of others that it has subscribed to.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Cell, Entry, Registry};
use crate::domain::{Owner, ProgramId, excerpt};
use crate::programs::ProgramError;
use crate::programs::manifest::Manifest;

/// A program whose tables an owner reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shelved {
    /// The program.
    pub id: ProgramId,
    /// Whether it is the owner's own.
    pub own: bool,
    /// Whether there is room for it: what is copied of others' programs must fit into what the
    /// owner's own leave.
    pub fits: bool,
}

impl Registry {
    /// The programs whose tables an owner reads: its own, then those that it has subscribed to, each by
    /// number.
    pub(in crate::programs) fn shelf(&self, owner: &Owner) -> Vec<Shelved> {
        let mut found = Vec::new();
        for entry in self.all() {
            let shown = entry.shown();
            if shown.is_read_by(owner) {
                found.push((shown.manifest.owner != *owner, entry.id, shown.row_bytes));
            }
        }
        found.sort_unstable();
        let mut taken = 0u64;
        let shelved = |(other, id, bytes): (bool, ProgramId, u64)| {
            let with_it = taken.saturating_add(bytes);
            let fits = !other || with_it <= self.settings.owner_bytes;
            if fits {
                taken = with_it;
            }
            Shelved { id, own: !other, fits }
        };
        found.into_iter().map(shelved).collect()
    }

    /// Everybody who has a program, or has subscribed to one.
    pub(in crate::programs) fn readers(&self) -> BTreeSet<Owner> {
        let mut readers = BTreeSet::new();
        for entry in self.all() {
            let shown = entry.shown();
            readers.insert(shown.manifest.owner.clone());
            readers.extend(shown.subscribers.iter().cloned());
        }
        readers
    }

    /// Subscribes an owner to another one's public program; a subscription that is there already stays.
    pub(in crate::programs) fn subscribe(
        &self,
        owner: &Owner,
        project: &str,
    ) -> Result<Manifest, ProgramError> {
        // Nobody else counts meanwhile.
        let _one_at_a_time = self.deploying.lock();
        let entry = self.public(owner, project)?;
        let others = self.all();
        let taken = others.iter().filter(|it| it.shown().subscribers.contains(owner)).count();
        let mut cell = entry.lock();
        let manifest = Manifest::clone(&cell.manifest);
        if cell.subscribers.contains(owner) {
            return Ok(manifest);
        }
        if taken >= self.settings.owner_subscriptions {
            return Err(ProgramError::TooManySubscriptions(self.settings.owner_subscriptions));
        }
        self.change_subscribers(&mut cell, |subscribers| subscribers.insert(owner.clone()))?;
        Ok(manifest)
    }

    /// Ends a subscription, if there is one.
    pub(in crate::programs) fn unsubscribe(
        &self,
        owner: &Owner,
        project: &str,
    ) -> Result<Manifest, ProgramError> {
        let entry = self.public(owner, project)?;
        let mut cell = entry.lock();
        if cell.subscribers.contains(owner) {
            self.change_subscribers(&mut cell, |subscribers| subscribers.remove(owner))?;
        }
        Ok(Manifest::clone(&cell.manifest))
    }

    /// Another one's public program. Whether there is a private one is nobody's business.
    fn public(&self, owner: &Owner, project: &str) -> Result<Arc<Entry>, ProgramError> {
        let all = self.all();
        let found = all.iter().find(|entry| {
            let manifest = entry.shown().manifest;
            manifest.project_name.eq_ignore_ascii_case(project)
                && (manifest.public || manifest.owner == *owner)
        });
        let entry = found.ok_or_else(|| ProgramError::NotPublic(excerpt(project)))?;
        if entry.shown().manifest.owner == *owner {
            let problem =
                format!("is '{}', which is yours: you read it as it is", excerpt(project));
            return Err(ProgramError::Value { name: "project", problem });
        }
        Ok(Arc::clone(entry))
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
        let row = serde_json::to_vec(&subscribers).expect("texts serialize");
        self.store.change_programs(|changes| changes.put_subscribers(cell.manifest.id, &row))?;
        cell.subscribers = Arc::new(subscribers);
        Ok(())
    }
}
