//! JSON of programs and their runs: the documented fields first, then the additive ones.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::domain::{CloseTime, LedgerSet, ProgramId};
use crate::programs::events::EventCounts;
use crate::programs::records::{Execution, LedgerStats, Likeness, RunSource, RunStatus};
use crate::programs::{ProgramStatus, ReadTable, TrialResult, TrialRun, TrialTransaction};

/// Response to `GET /retroshade/{id}/status`.
#[derive(Serialize)]
pub(super) struct Status {
    program_id: ProgramId,
    project_name: String,
    /// Project whose name the program is to take.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<String>,
    /// Why the last program that was to replace this one did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    replacement_failed: Option<String>,
    running: bool,
    last_success_ledger: Option<u32>,
    last_error_ledger: Option<u32>,
    last_error_message: Option<String>,
    total_executions: u64,
    total_errors: u64,
    avg_execution_ms: u64,
    /// Newest ledger that the program has processed.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_ledger: Option<u32>,
    /// Number of stored ledgers that the program has yet to process.
    lag_ledgers: u64,
    row_bytes: u64,
    /// Whether all rows are in the owner's tables.
    rows_in_tables: bool,
    /// Of a project of events: the number of its events, of their rows, and of those in the table
    /// `undeclared`.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    events: Option<EventNumbers>,
    /// Contracts of a project of events that have no interface, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    without_interface: Vec<WithoutInterface>,
    /// State of its backfill.
    #[serde(skip_serializing_if = "Option::is_none")]
    backfill: Option<&'static str>,
    /// Number of runs that wait for earlier ledgers.
    runs_waiting: u64,
    /// Number of such runs beyond the limit of waiting runs; only a backfill repeats them.
    runs_given_up: u64,
    /// First and last ledger of each range that only a backfill can still process.
    missing_ledgers: Vec<[u32; 2]>,
}

impl From<ProgramStatus> for Status {
    fn from(status: ProgramStatus) -> Self {
        Self {
            program_id: status.id,
            project_name: status.project_name,
            replaces: status.replaces,
            replacement_failed: status.replacement_failed,
            running: status.running,
            last_success_ledger: status.last_success,
            last_error_ledger: status.last_error,
            last_error_message: status.last_error_message,
            total_executions: status.executions,
            total_errors: status.errors,
            avg_execution_ms: milliseconds(status.average_micros),
            last_ledger: status.last_ledger.map(|ledger| ledger.0),
            lag_ledgers: status.lag,
            row_bytes: status.row_bytes,
            rows_in_tables: status.in_tables,
            events: status.events.map(EventNumbers::from),
            backfill: status.backfill.map(|state| state.name()),
            without_interface: status
                .without_interface
                .into_iter()
                .map(|(contract, reason)| WithoutInterface {
                    contract: contract.to_string(),
                    reason,
                })
                .collect(),
            runs_waiting: status.runs_waiting,
            runs_given_up: status.runs_given_up,
            missing_ledgers: ranges(&status.missing),
        }
    }
}

#[derive(Serialize)]
struct WithoutInterface {
    contract: String,
    reason: String,
}

#[derive(Serialize)]
struct EventNumbers {
    events: u64,
    rows: u64,
    undeclared: u64,
}

impl From<EventCounts> for EventNumbers {
    fn from(EventCounts { events, undeclared }: EventCounts) -> Self {
        Self { events, rows: events - undeclared.min(events), undeclared }
    }
}

/// Item of `GET /retroshade/tables`. Fields after the second are additive.
#[derive(Serialize)]
pub(super) struct TableRecord<'a> {
    table_name: &'a str,
    project_name_plain: &'a str,
    own: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

impl<'a> From<&'a ReadTable> for TableRecord<'a> {
    fn from(table: &'a ReadTable) -> Self {
        Self {
            table_name: &table.name,
            project_name_plain: &table.project,
            own: table.own,
            problem: table.problem,
        }
    }
}

/// Item of `GET /retroshade/{id}/executions`.
#[derive(Serialize)]
pub(super) struct ExecutionRecord<'a> {
    ledger_sequence: u32,
    tx_hash: &'a str,
    status: RunStatus,
    error_message: Option<&'a str>,
    rows_written: u32,
    execution_ms: u64,
    created_at: String,
    execution_us: u64,
    source: RunSource,
    fidelity: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fidelity_difference: Option<&'a str>,
}

impl<'a> From<&'a Execution> for ExecutionRecord<'a> {
    fn from(execution: &'a Execution) -> Self {
        let (fidelity, fidelity_difference) = likeness(&execution.likeness);
        Self {
            ledger_sequence: execution.ledger,
            tx_hash: &execution.tx,
            status: execution.status(),
            error_message: execution.error.as_deref(),
            rows_written: execution.rows,
            execution_ms: milliseconds(execution.micros),
            created_at: iso8601(execution.at),
            execution_us: execution.micros,
            source: execution.source,
            fidelity,
            fidelity_difference,
        }
    }
}

/// Item of `GET /retroshade/{id}/stats`.
#[derive(Serialize)]
pub(super) struct StatsRecord {
    ledger_sequence: u32,
    source: RunSource,
    executions: u32,
    error_count: u32,
    rows_written: u64,
    total_execution_ms: u64,
    created_at: String,
}

impl From<&LedgerStats> for StatsRecord {
    fn from(stats: &LedgerStats) -> Self {
        Self {
            ledger_sequence: stats.ledger.0,
            source: stats.source,
            executions: stats.sums.executions,
            error_count: stats.sums.errors,
            rows_written: stats.sums.rows,
            total_execution_ms: milliseconds(stats.sums.micros),
            created_at: iso8601(stats.sums.at),
        }
    }
}

/// Response to `POST /retroshade/try`.
#[derive(Serialize)]
pub(super) struct TrialRecord {
    tables: serde_json::Value,
    transactions: Vec<TriedRecord>,
    missing_ledgers: Vec<[u32; 2]>,
}

/// Outcome of a transaction in a trial.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum TriedStatus {
    Success,
    Error,
    /// Not run; the message contains the reason.
    Skipped,
}

#[derive(Serialize)]
struct TriedRecord {
    tx_hash: String,
    ledger_sequence: u32,
    status: TriedStatus,
    error_message: Option<String>,
    rows: Box<RawValue>,
    execution_us: u64,
    fuel: u64,
    fidelity: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fidelity_difference: Option<String>,
}

impl From<TrialResult> for TrialRecord {
    fn from(tried: TrialResult) -> Self {
        let transactions = tried.transactions.into_iter().map(TriedRecord::from).collect();
        let missing_ledgers = ranges(&tried.missing);
        Self { tables: tried.tables, transactions, missing_ledgers }
    }
}

impl From<TrialTransaction> for TriedRecord {
    fn from(tried: TrialTransaction) -> Self {
        let tx_hash = tried.hash.to_string();
        let ledger_sequence = tried.ledger.0;
        match tried.run {
            Ok(TrialRun { execution, rows, fuel }) => {
                let (fidelity, difference) = likeness(&execution.likeness);
                let fidelity_difference = difference.map(str::to_owned);
                let status = match execution.status() {
                    RunStatus::Success => TriedStatus::Success,
                    RunStatus::Error => TriedStatus::Error,
                };
                Self {
                    tx_hash,
                    ledger_sequence,
                    status,
                    error_message: execution.error,
                    rows,
                    execution_us: execution.micros,
                    fuel,
                    fidelity,
                    fidelity_difference,
                }
            }
            Err(reason) => Self {
                tx_hash,
                ledger_sequence,
                status: TriedStatus::Skipped,
                error_message: Some(reason),
                rows: RawValue::from_string("[]".to_owned()).expect("it is JSON"),
                execution_us: 0,
                fuel: 0,
                fidelity: "unchecked",
                fidelity_difference: None,
            },
        }
    }
}

fn likeness(likeness: &Likeness) -> (&'static str, Option<&str>) {
    match likeness {
        Likeness::Exact => ("exact", None),
        Likeness::Diverged(difference) => ("diverged", Some(difference)),
        Likeness::Unchecked => ("unchecked", None),
    }
}

/// Returns the first and last ledger of each range.
pub(super) fn ranges(ledgers: &LedgerSet) -> Vec<[u32; 2]> {
    ledgers.ranges().iter().map(|range| [range.first.0, range.last.0]).collect()
}

/// Converts microseconds to milliseconds, rounded half up.
fn milliseconds(micros: u64) -> u64 {
    micros.saturating_add(500) / 1000
}

/// Formats UNIX milliseconds as ISO 8601, always with three fractional digits, so that the texts
/// sort in the order of time.
fn iso8601(milliseconds: u64) -> String {
    CloseTime::Milliseconds(milliseconds).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_rounded_half_up() {
        let cases =
            [(0, 0), (499, 0), (500, 1), (1_499, 1), (1_500, 2), (u64::MAX, u64::MAX / 1000)];
        for (micros, expected) in cases {
            assert_eq!(milliseconds(micros), expected, "{micros}");
        }
    }

    #[test]
    fn times_are_iso_8601_in_utc() {
        assert_eq!(iso8601(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso8601(1_700_000_000_260), "2023-11-14T22:13:20.260Z");
        assert_eq!(iso8601(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(iso8601(u64::MAX), "9999-12-31T23:59:59.999Z");
    }
}
