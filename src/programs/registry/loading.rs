//! Members of projects in memory, as they are stored.

use crate::ProgramError;
use crate::events::{EventProject, Flags, MemberIndex, in_memory, members};
use crate::manifest::Manifest;
use orrery_ledger::domain::ContractId;
use orrery_store::Store;

/// Returns the members of a project with selectors that it names itself.
pub(super) fn named_members(manifest: &Manifest) -> Vec<(ContractId, Flags)> {
    match &manifest.events {
        Some(project) if !project.selectors.is_empty() => in_memory(manifest, &[]),
        _ => Vec::new(),
    }
}

/// Reads the members of a project into memory.
pub(super) fn load_members(
    store: &Store,
    manifest: &Manifest,
    index: &MemberIndex,
) -> Result<(), ProgramError> {
    let has_members = |project: &EventProject| !project.selectors.is_empty();
    if manifest.events.as_ref().is_some_and(has_members) {
        index.set(manifest.id, in_memory(manifest, &members(store, manifest.id)?));
    }
    Ok(())
}
