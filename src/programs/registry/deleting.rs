//! Deletes programs, with their modules unless others have the same.

use super::{Entry, Registry};
use crate::{ProgramError, storage};
use orrery_ledger::domain::{Hash32, Owner, ProgramId};
use orrery_store::{KindChanges, StoreError};

impl Registry {
    /// Deletes a program with all its rows and records, and before it the one that is to replace
    /// it. Returns the ids of the deleted programs.
    pub(crate) fn delete(
        &self,
        owner: &Owner,
        id: ProgramId,
    ) -> Result<Vec<ProgramId>, ProgramError> {
        // Prevents a concurrent deploy of the same module.
        let _one_at_a_time = self.deploying.lock();
        let entry = self.owned(id, owner)?;
        let mut deleted = Vec::new();
        if let Some(replacement) = self.replacement_of(id) {
            self.delete_one(&replacement, |_| Ok(()))?;
            deleted.push(replacement.id);
        }
        self.delete_one(&entry, |_| Ok(()))?;
        deleted.push(id);
        Ok(deleted)
    }

    /// Deletes a program, and writes what `more` adds with the deletion. Must be called under the
    /// lock of deploys.
    pub(super) fn delete_one(
        &self,
        entry: &Entry,
        more: impl FnOnce(&mut KindChanges<'_>) -> Result<(), StoreError>,
    ) -> Result<(), ProgramError> {
        let id = entry.id;
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        if cell.deleted {
            // An earlier delete was reported as failed, but reached the store.
            self.remove(id);
            return Err(ProgramError::Unknown(id));
        }
        let module = cell.manifest.module;
        let unshared = self.is_unshared(&module, id);
        cell.write(&self.store, |changes| {
            delete_with_module(changes, id, unshared.then_some(&module))?;
            more(changes)
        })?;
        cell.deleted = true;
        if unshared {
            self.remove_compiled(id, module);
        }
        self.remove(id);
        Ok(())
    }

    /// Returns whether no other program has the module of this one.
    pub(super) fn is_unshared(&self, module: &Hash32, id: ProgramId) -> bool {
        let others = self.all();
        let mut others = others.iter().filter(|other| other.id != id);
        !others.any(|other| other.snapshot().manifest.module == *module)
    }

    pub(super) fn remove_compiled(&self, id: ProgramId, module: Hash32) {
        if let Err(error) = self.engine.remove_cached(module) {
            tracing::warn!(program = %id, "its compiled module could not be deleted: {error}");
        }
    }
}

/// Deletes a program with its rows and records, and its module, if given.
pub(super) fn delete_with_module(
    changes: &mut KindChanges<'_>,
    id: ProgramId,
    module: Option<&Hash32>,
) -> Result<(), StoreError> {
    storage::delete_program(changes, id)?;
    module.map_or(Ok(()), |module| changes.delete(&storage::module(module)))
}
