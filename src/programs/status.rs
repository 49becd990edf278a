//! Computes the status of a program from its progress and the stored records of its runs.

use serde::Serialize;

use super::backfill::State;
use super::events::{EventCounts, MembersStatus, WithoutInterface};
use super::manifest::Manifest;
use super::records::{self, MAX_EXECUTIONS, milliseconds};
use super::registry::Entry;
use super::{ProgramError, storage};
use orrery_ledger::domain::{LedgerSeq, LedgerSet, ProgramId};
use orrery_store::Store;

/// Status of a program, as `GET /retroshade/{id}/status` answers it: the documented members first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramStatus {
    /// Id of the program.
    #[serde(rename = "program_id")]
    pub id: ProgramId,
    /// Name of the program's project.
    pub project_name: String,
    /// The project whose name the program is to take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// Why the last program that was to replace this one did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement_failed: Option<String>,
    /// Whether the program is run on new ledgers.
    pub running: bool,
    /// Ledger of the newest successful run among those recorded.
    #[serde(rename = "last_success_ledger")]
    pub last_success: Option<u32>,
    /// Ledger of the newest failed run among those recorded.
    #[serde(rename = "last_error_ledger")]
    pub last_error: Option<u32>,
    /// Why the program was stopped; or else what it waits for, or why its rows are not in its
    /// tables; or else why the newest failed run failed.
    pub last_error_message: Option<String>,
    /// Number of recorded runs: only the newest `MAX_EXECUTIONS` records are kept.
    #[serde(rename = "total_executions")]
    pub executions: u64,
    /// Number of recorded runs that failed.
    #[serde(rename = "total_errors")]
    pub errors: u64,
    /// Mean duration of the recorded runs, in milliseconds.
    #[serde(rename = "avg_execution_ms")]
    pub average_ms: u64,
    /// Newest ledger that the program has processed since it was deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ledger: Option<LedgerSeq>,
    /// Number of stored ledgers that the program has yet to process.
    #[serde(rename = "lag_ledgers")]
    pub lag: u64,
    /// Size of the program's rows, in bytes.
    pub row_bytes: u64,
    /// Whether all of these rows are in the tables of the program's owner.
    #[serde(rename = "rows_in_tables")]
    pub in_tables: bool,
    /// Numbers of events of a project of events; `None` for a program.
    #[serde(flatten)]
    pub events: Option<EventNumbers>,
    /// What is said of the members of a project with selectors.
    #[serde(flatten)]
    pub members: Option<MembersStatus>,
    /// Contracts of a project of events that have no interface.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without_interface: Vec<WithoutInterface>,
    /// State of its backfill; `None` if none was ever requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backfill: Option<State>,
    /// Number of runs for which state was missing and which are repeated once earlier ledgers are
    /// stored.
    pub runs_waiting: u64,
    /// Number of such runs that exceeded the limit of waiting runs: only a backfill repeats them.
    pub runs_given_up: u64,
    /// Ledgers that only a backfill can still process: retention removed them before the program
    /// did, or they were not stored in full.
    #[serde(rename = "missing_ledgers")]
    pub missing: LedgerSet,
}

/// Number of the events of a project of events, of their rows, and of those in the table `undeclared`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EventNumbers {
    events: u64,
    rows: u64,
    undeclared: u64,
}

impl From<EventCounts> for EventNumbers {
    fn from(EventCounts { events, undeclared }: EventCounts) -> Self {
        Self { events, rows: events - undeclared.min(events), undeclared }
    }
}

/// Returns the status of a program. `wait_reason` says what it waits for, if anything; `is_copied`,
/// whether its rows up to a number of the row log are in its owner's tables.
pub(super) fn of(
    store: &Store,
    entry: &Entry,
    wait_reason: Option<String>,
    is_copied: impl FnOnce(u64) -> bool,
) -> Result<ProgramStatus, ProgramError> {
    let (manifest, progress, runs_waiting) = {
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(store)?;
        (Manifest::clone(&cell.manifest), cell.progress, cell.waiting.len() as u64)
    };
    let kept = records::executions(store, entry.id, None, MAX_EXECUTIONS as usize)?;
    let executions = kept.len() as u64;
    let failed = || kept.iter().filter(|it| it.error.is_some());
    let micros: u64 = kept.iter().map(|it| it.micros).sum();
    let last_ledger = match store.fed_after(progress.place, 1).first() {
        Some(next) => next.ledger.previous(),
        None => store.status().latest(),
    };
    let cursor = store.consumer(&storage::consumer(entry.id));
    let missing = cursor.map(|cursor| cursor.lost).unwrap_or_default();
    let replacement_failed = store.shared_row(&storage::replacement_failure(entry.id))?;
    Ok(ProgramStatus {
        id: entry.id,
        replaces: manifest.replaces.map(|it| it.project_name),
        replacement_failed: replacement_failed
            .map(|because| String::from_utf8_lossy(&because).into_owned()),
        running: manifest.running,
        last_success: kept.iter().find(|it| it.error.is_none()).map(|it| it.ledger),
        last_error: failed().next().map(|it| it.ledger),
        last_error_message: manifest
            .stopped_because
            .or(wait_reason)
            .or_else(|| failed().next().and_then(|it| it.error.clone())),
        project_name: manifest.project_name,
        executions,
        errors: failed().count() as u64,
        average_ms: milliseconds(micros.checked_div(executions).unwrap_or(0)),
        last_ledger,
        lag: store.last_place().saturating_sub(progress.place),
        missing,
        events: manifest.events.is_some().then(|| progress.events.into()),
        members: None,
        without_interface: Vec::new(),
        backfill: None,
        row_bytes: progress.row_bytes,
        in_tables: is_copied(progress.log),
        runs_waiting,
        runs_given_up: progress.given_up,
    })
}
