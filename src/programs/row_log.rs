//! Log of the rows that programs have emitted, as stored: one entry per run, in the order in which
//! runs were written. Entries are only appended, so that a consumer only needs to remember the
//! number of the last entry it has read.

use std::ops::ControlFlow;

use super::manifest::{Manifest, Progress};
use super::rows::RunRows;
use super::storage;
use crate::domain::ProgramId;
use crate::store::{Store, StoreError, TransactionPosition};
use crate::tables::{Row, event_id};

/// Maximum number of runs read at once, whose rows are written in one transaction of DuckDB. Many,
/// because each transaction has a cost of its own; few in unit tests, so that their histories take
/// several transactions.
const MAX_BATCH_RUNS: usize = if cfg!(test) { 3 } else { 8_192 };
/// Maximum size of their rows in bytes, unless a single run has more.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// A program, with the number of its last run with rows.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedProgram {
    /// Manifest of the program. Its tables can hold the rows of all runs up to `last`.
    pub manifest: Manifest,
    /// Number of its last run with rows; 0 before the first.
    pub last: u64,
}

/// Returns all programs of a store that have a project name, sorted by id.
///
/// # Errors
/// When the database fails or a record is damaged.
pub fn programs(store: &Store) -> Result<Vec<LoggedProgram>, StoreError> {
    let mut found = Vec::new();
    for (id, _) in storage::manifests(store)? {
        let damaged = |family| StoreError::Corrupt { family, key: format!("program {id}") };
        let Some(progress) = store.shared_row(&storage::progress(id))? else { continue };
        let progress: Progress =
            serde_json::from_slice(&progress).map_err(|_| damaged("program_progress"))?;
        // Read after the number: a write commits rows and manifest together, so this one covers all
        // rows up to it.
        let Some(manifest) = store.shared_row(&storage::manifest(id))? else { continue };
        let manifest: Manifest =
            serde_json::from_slice(&manifest).map_err(|_| damaged("programs"))?;
        // The rows of projects of events are not exported: the export has the events themselves.
        if manifest.replaces.is_some() || manifest.events.is_some() {
            continue;
        }
        found.push(LoggedProgram { manifest, last: progress.log });
    }
    Ok(found)
}

/// Returns the transaction of a run by the run's number; `None` when there is no such run.
///
/// # Errors
/// When the database fails or a record is damaged.
pub fn transaction_of(
    store: &Store,
    program: ProgramId,
    run: u64,
) -> Result<Option<TransactionPosition>, StoreError> {
    let mut found = None;
    storage::row_log_after(store, program, run.saturating_sub(1), |number, position, _| {
        found = (number == run).then_some(position);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// Rows of consecutive runs.
#[derive(Debug)]
pub struct Batch {
    /// Rows in log order.
    pub rows: Vec<Row>,
    /// Number of the last of these runs.
    pub up_to: u64,
    /// Transaction of that run; `None` without runs.
    pub last: Option<TransactionPosition>,
    /// Whether there are more runs after these.
    pub more: bool,
}

/// Returns the rows of the next runs after the number `after` of the log, up to the number `last`.
///
/// # Errors
/// When the database fails or a record is damaged.
pub fn rows_after(
    store: &Store,
    program: ProgramId,
    after: u64,
    last: u64,
) -> Result<Batch, StoreError> {
    let mut batch = Batch { rows: Vec::new(), up_to: after, last: None, more: false };
    let (mut runs, mut bytes) = (0, 0);
    storage::row_log_after(store, program, after, |number, position, value| {
        if number > last {
            return Ok(ControlFlow::Break(()));
        }
        if runs == MAX_BATCH_RUNS || (runs > 0 && bytes + value.len() > MAX_BATCH_BYTES) {
            batch.more = true;
            return Ok(ControlFlow::Break(()));
        }
        let run = RunRows::decode(value).map_err(|_| StoreError::Corrupt {
            family: "rows",
            key: format!("program {program}, ledger {}", position.ledger),
        })?;
        for (index, emit) in (0..).zip(run.emits) {
            batch.rows.push(Row {
                event_id: event_id(program, &run.transaction, index),
                transaction: run.transaction,
                ledger: position.ledger,
                closed_at: run.closed_at,
                emit,
            });
        }
        (runs, bytes) = (runs + 1, bytes + value.len());
        (batch.up_to, batch.last) = (number, Some(position));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(batch)
}
