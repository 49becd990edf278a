//! What programs have emitted, as it lies in the store: run by run, in the order in which runs were written. Runs are
//! only ever added, so whoever follows a program notes the number of the last run that was taken.

use super::manifest::{Manifest, Progress};
use super::rows::RunRows;
use crate::domain::ProgramId;
use crate::store::{Store, StoreError, TransactionPosition};
use crate::tables::{Row, event_id};

/// Runs that are read together, at the most.
const RUNS_AT_ONCE: usize = 2048;
/// Bytes of their rows, at the most, unless one run has more.
const BYTES_AT_ONCE: usize = 8 << 20;

/// A program, and the last of its runs with rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Logged {
    /// What it is. Its tables hold the rows of all runs up to `last`.
    pub manifest: Manifest,
    /// Number of its last run with rows; 0 before the first.
    pub last: u64,
}

/// All programs of a store, by number.
///
/// # Errors
/// What the database says, or that a record is damaged.
pub fn programs(store: &Store) -> Result<Vec<Logged>, StoreError> {
    let mut found = Vec::new();
    for (id, _) in store.programs()? {
        let damaged = |family| StoreError::Corrupt { family, key: format!("program {id}") };
        let Some(progress) = store.program_progress(id)? else { continue };
        let progress: Progress =
            serde_json::from_slice(&progress).map_err(|_| damaged("program_progress"))?;
        // After the number: what the rows up to it needed of the tables is in it by now.
        let Some(manifest) = store.program(id)? else { continue };
        let manifest = serde_json::from_slice(&manifest).map_err(|_| damaged("programs"))?;
        found.push(Logged { manifest, last: progress.log });
    }
    Ok(found)
}

/// The transaction of a run, by the run's number; none when there is no such run.
///
/// # Errors
/// What the database says, or that a record is damaged.
pub fn transaction_of(
    store: &Store,
    program: ProgramId,
    run: u64,
) -> Result<Option<TransactionPosition>, StoreError> {
    let mut found = None;
    store.row_log_after(program, run.saturating_sub(1), |number, position, _| {
        found = (number == run).then_some(position);
        Ok(false)
    })?;
    Ok(found)
}

/// Rows of some runs.
#[derive(Debug)]
pub struct Batch {
    /// In the order of the log.
    pub rows: Vec<Row>,
    /// Number of the last of their runs.
    pub up_to: u64,
    /// Its transaction; none without runs.
    pub last: Option<TransactionPosition>,
    /// There are more runs after these.
    pub more: bool,
}

/// Rows of the next runs after a number of the log, up to another one.
///
/// # Errors
/// What the database says, or that a record is damaged.
pub fn rows_after(
    store: &Store,
    program: ProgramId,
    after: u64,
    last: u64,
) -> Result<Batch, StoreError> {
    let mut batch = Batch { rows: Vec::new(), up_to: after, last: None, more: false };
    let (mut runs, mut bytes) = (0, 0);
    store.row_log_after(program, after, |number, position, value| {
        if number > last {
            return Ok(false);
        }
        if runs == RUNS_AT_ONCE || (runs > 0 && bytes + value.len() > BYTES_AT_ONCE) {
            batch.more = true;
            return Ok(false);
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
        Ok(true)
    })?;
    Ok(batch)
}
