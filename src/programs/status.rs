//! How a program is: computed over the records of runs that are kept.

use super::ProgramError;
use super::manifest::Manifest;
use super::records::{self, MOST_EXECUTIONS};
use super::registry::Entry;
use crate::domain::{LedgerSeq, LedgerSet, ProgramId};
use crate::store::{Store, program_consumer};

/// How a program is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramStatus {
    /// Its number.
    pub id: ProgramId,
    /// Its project.
    pub project_name: String,
    /// Whether it is run on new ledgers.
    pub running: bool,
    /// Ledger of the newest run that succeeded.
    pub last_success: Option<u32>,
    /// Ledger of the newest run that failed.
    pub last_error: Option<u32>,
    /// Why the program was stopped, or what it waits for, or why its rows are not in its tables, or else why
    /// that run failed.
    pub last_error_message: Option<String>,
    /// Runs.
    pub executions: u64,
    /// Runs that failed.
    pub errors: u64,
    /// How long a run took, microseconds.
    pub average_micros: u64,
    /// Newest ledger that it has seen since it was deployed.
    pub last_ledger: Option<LedgerSeq>,
    /// Stored ledgers that it has yet to see.
    pub lag: u64,
    /// Ledgers that it will not see unless a backfill does: retention removed them first, or they were not
    /// stored in full.
    pub missing: LedgerSet,
    /// Bytes of its rows.
    pub row_bytes: u64,
    /// Runs for which state was missing, and which are made again when ledgers before theirs are stored.
    pub runs_waiting: u64,
    /// Runs of that kind that were too many to be kept: only a backfill makes them.
    pub runs_given_up: u64,
}

/// How a program is that waits for this, if it waits.
pub(super) fn of(
    store: &Store,
    entry: &Entry,
    waits_for: Option<String>,
) -> Result<ProgramStatus, ProgramError> {
    let (manifest, progress, runs_waiting) = {
        let mut cell = entry.lock();
        cell.settle(store)?;
        (Manifest::clone(&cell.manifest), cell.progress, cell.waiting.len() as u64)
    };
    let kept = records::executions(store, entry.id, None, MOST_EXECUTIONS as usize)?;
    let executions = kept.len() as u64;
    let failed = || kept.iter().filter(|it| it.error.is_some());
    let micros: u64 = kept.iter().map(|it| it.micros).sum();
    let last_ledger = match store.fed_after(progress.place, 1).first() {
        Some(next) => next.ledger.previous(),
        None => store.status().latest(),
    };
    let cursor = store.consumer(&program_consumer(entry.id));
    let missing = cursor.map(|cursor| cursor.lost).unwrap_or_default();
    Ok(ProgramStatus {
        id: entry.id,
        running: manifest.running,
        last_success: kept.iter().find(|it| it.error.is_none()).map(|it| it.ledger),
        last_error: failed().next().map(|it| it.ledger),
        last_error_message: manifest
            .stopped_because
            .or(waits_for)
            .or_else(|| failed().next().and_then(|it| it.error.clone())),
        project_name: manifest.project_name,
        executions,
        errors: failed().count() as u64,
        average_micros: micros.checked_div(executions).unwrap_or(0),
        last_ledger,
        lag: store.last_place().saturating_sub(progress.place),
        missing,
        row_bytes: progress.row_bytes,
        runs_waiting,
        runs_given_up: progress.given_up,
    })
}
