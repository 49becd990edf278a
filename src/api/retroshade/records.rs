//! JSON of programs and their runs: the documented fields first, then the additive ones.

use serde::Serialize;
use serde_json::value::RawValue;

use orrery_ledger::domain::{CloseTime, LedgerSeq, LedgerSet, TxHash};
use orrery_programs::records::{
    Execution, LedgerStats, Likeness, RunSource, RunStatus, milliseconds,
};
use orrery_programs::{ReadTable, TrialResult, TrialRun, TrialTransaction};

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
    missing_ledgers: LedgerSet,
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
    tx_hash: TxHash,
    ledger_sequence: LedgerSeq,
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
        Self { tables: tried.tables, transactions, missing_ledgers: tried.missing }
    }
}

impl From<TrialTransaction> for TriedRecord {
    fn from(tried: TrialTransaction) -> Self {
        let (tx_hash, ledger_sequence) = (tried.hash, tried.ledger);
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

/// Formats UNIX milliseconds as ISO 8601, always with three fractional digits, so that the texts
/// sort in the order of time.
fn iso8601(milliseconds: u64) -> String {
    CloseTime::Milliseconds(milliseconds).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_iso_8601_in_utc() {
        assert_eq!(iso8601(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso8601(1_700_000_000_260), "2023-11-14T22:13:20.260Z");
        assert_eq!(iso8601(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(iso8601(u64::MAX), "9999-12-31T23:59:59.999Z");
    }
}
