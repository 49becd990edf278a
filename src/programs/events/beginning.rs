//! Begins to read the stored events of a project: all of them, from the first stored ledger on, when
//! it is new or has further contracts.

use crate::ProgramError;
use crate::backfill::State;
use crate::backfills::Backfills;
use crate::registry::{Entry, Registry};
use orrery_store::Store;

/// Begins the backfill that a project needs. Does nothing for a program, and for a project that is to
/// replace another, which reads the same ledgers as that one.
///
/// # Errors
/// When the store fails. The next call continues.
pub(crate) fn begin_reading(
    store: &Store,
    registry: &Registry,
    backfills: &Backfills,
    entry: &Entry,
) -> Result<(), ProgramError> {
    let manifest = entry.snapshot().manifest;
    let Some(project) = &manifest.events else { return Ok(()) };
    let contracts = project.wanted_backfill(&manifest.contracts);
    if manifest.replaces.is_some() || project.backfilled >= contracts {
        return Ok(());
    }
    // Known before the ledgers are read, members need no reading of their own.
    backfills.look_for_members(entry)?;
    if backfills.backfill(entry.id)?.is_some_and(|it| it.state == State::Running) {
        backfills.cancel(entry)?;
    }
    let ledgers = project.wanted(store.status().ranges.into_iter().collect());
    if !ledgers.ranges().is_empty() {
        backfills.begin_only(entry, ledgers)?;
    }
    let mut cell = entry.lock();
    registry.change_manifest(&mut cell, |manifest| {
        if let Some(project) = &mut manifest.events {
            project.backfilled = contracts;
        }
    })?;
    Ok(())
}
