//! Records of runs: one per run, and statistics per ledger. Defines how they are stored and what is
//! computed from them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::engine::Fidelity;
use super::{ProgramError, storage};
use orrery_ledger::domain::{Direction, LedgerRange, LedgerSeq, ProgramId, TxHash};
use orrery_store::{KindChanges, Store, StoreError};

/// Maximum number of execution records kept per program (interface, section Limits).
pub const MAX_EXECUTIONS: u64 = 500;
/// Maximum length in bytes of the message that says why a run failed, or how it differs. It may
/// contain types, values and field names chosen by others.
pub const LONGEST_SENTENCE: usize = 1024;
/// How long statistics per ledger are kept (interface, section Limits).
pub const STATS_RETENTION: Duration = Duration::from_hours(30 * 24);

/// Why a program was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunSource {
    /// The ledger was new.
    Live,
    /// The ledger had been stored before: a backfill was requested, or the run had to wait for
    /// earlier ledgers.
    Backfill,
}

impl RunSource {
    const fn number(self) -> u8 {
        match self {
            Self::Live => 0,
            Self::Backfill => 1,
        }
    }

    const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Live,
            _ => Self::Backfill,
        }
    }
}

/// Outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// The run succeeded, and its rows are stored.
    Success,
    /// The run failed. It stored no rows.
    Error,
}

/// How a run compares with what the network recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "outcome", content = "difference")]
pub enum Likeness {
    /// Return value, events and changes are the same.
    Exact,
    /// They differ. Contains the first difference.
    Diverged(String),
    /// No comparison was made.
    Unchecked,
}

impl From<Fidelity> for Likeness {
    fn from(fidelity: Fidelity) -> Self {
        match fidelity {
            Fidelity::Exact => Self::Exact,
            Fidelity::Diverged(what) => Self::Diverged(what),
            Fidelity::Unchecked => Self::Unchecked,
        }
    }
}

impl Likeness {
    /// Shortens the message to [`LONGEST_SENTENCE`] bytes.
    pub(super) fn shortened(self) -> Self {
        match self {
            Self::Diverged(difference) => Self::Diverged(shortened(difference)),
            other => other,
        }
    }
}

/// Truncates a message to [`LONGEST_SENTENCE`] bytes.
fn shortened(mut sentence: String) -> String {
    const MORE: char = '…';
    if sentence.len() > LONGEST_SENTENCE {
        let end = sentence.floor_char_boundary(LONGEST_SENTENCE - MORE.len_utf8());
        sentence.truncate(end);
        sentence.push(MORE);
    }
    sentence
}

/// Converts microseconds to milliseconds, rounded half up.
pub fn milliseconds(micros: u64) -> u64 {
    micros.saturating_add(500) / 1000
}

/// One run of a program on a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// Ledger of the transaction.
    pub ledger: u32,
    /// Hash of the transaction, in hexadecimal digits.
    pub tx: String,
    /// Why the program was run.
    pub source: RunSource,
    /// Why the run failed; `None` when it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether the run failed because an entry of the state before the transaction is unknown,
    /// which is not the program's fault.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub state_unavailable: bool,
    /// Number of rows that the run added. 0 when they were stored already.
    pub rows: u32,
    /// Duration of the run in microseconds.
    pub micros: u64,
    /// How the run compares with what the network recorded.
    pub likeness: Likeness,
    /// Time of the run, in UNIX milliseconds.
    pub at: u64,
}

impl Execution {
    /// Returns the outcome.
    pub fn status(&self) -> RunStatus {
        if self.error.is_none() { RunStatus::Success } else { RunStatus::Error }
    }

    /// Marks the run as failed, with a message of at most [`LONGEST_SENTENCE`] bytes.
    pub(super) fn set_error(&mut self, why: &dyn std::fmt::Display) {
        self.error = Some(shortened(why.to_string()));
    }

    /// Creates the record of a run that succeeded without rows; the caller fills in the rest.
    pub fn of(ledger: LedgerSeq, tx: &TxHash, source: RunSource, at: u64) -> Self {
        Self {
            ledger: ledger.0,
            tx: tx.to_string(),
            source,
            error: None,
            state_unavailable: false,
            rows: 0,
            micros: 0,
            likeness: Likeness::Unchecked,
            at,
        }
    }
}

/// Statistics of the runs on one ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LedgerSums {
    /// Number of runs.
    pub executions: u32,
    /// Number of failed runs.
    pub errors: u32,
    /// Number of rows added.
    pub rows: u64,
    /// Total duration of the runs, in microseconds.
    pub micros: u64,
    /// Time of the newest run, in UNIX milliseconds.
    pub at: u64,
}

impl LedgerSums {
    /// Adds a run.
    pub fn add(&mut self, execution: &Execution) {
        self.executions += 1;
        self.errors += u32::from(execution.error.is_some());
        self.rows += u64::from(execution.rows);
        self.micros += execution.micros;
        self.at = self.at.max(execution.at);
    }
}

/// Statistics of the runs on a ledger, with the ledger and the source of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerStats {
    /// The ledger.
    pub ledger: LedgerSeq,
    /// Why the runs were made.
    pub source: RunSource,
    /// The statistics.
    pub sums: LedgerSums,
}

/// Selection of statistics.
#[derive(Debug, Clone, Copy)]
pub struct StatsQuery {
    /// Only runs of this source; all when `None`.
    pub source: Option<RunSource>,
    /// Only runs on these ledgers.
    pub ledgers: LedgerRange,
    /// Maximum number of results.
    pub limit: usize,
}

/// Stores a run's record under `number` and deletes the record that exceeds [`MAX_EXECUTIONS`].
pub(super) fn put_execution(
    changes: &mut KindChanges<'_>,
    program: ProgramId,
    number: u64,
    execution: &Execution,
) -> Result<(), StoreError> {
    storage::put_json(changes, &storage::execution(program, number), execution)?;
    match number.checked_sub(MAX_EXECUTIONS) {
        Some(old) => changes.delete(&storage::execution(program, old)),
        None => Ok(()),
    }
}

/// Stores the statistics of a ledger.
pub(super) fn put_sums(
    changes: &mut KindChanges<'_>,
    program: ProgramId,
    stats: &LedgerStats,
) -> Result<(), StoreError> {
    let row = storage::sums(program, stats.ledger, stats.source.number());
    storage::put_json(changes, &row, &stats.sums)
}

/// Returns the records of a program's runs on ledgers up to `last`, newest first, at most `limit`.
pub(super) fn executions(
    store: &Store,
    program: ProgramId,
    last: Option<LedgerSeq>,
    limit: usize,
) -> Result<Vec<Execution>, ProgramError> {
    let mut found = Vec::new();
    storage::executions(store, program, |_, value| {
        let execution: Execution = serde_json::from_slice(value)
            .map_err(|_| ProgramError::Damaged("the record of a run"))?;
        if last.is_none_or(|last| execution.ledger <= last.0) {
            found.push(execution);
        }
        Ok(storage::more_if(found.len() < limit))
    })?;
    Ok(found)
}

/// Returns the selected statistics, newest ledger first.
pub(super) fn stats(
    store: &Store,
    program: ProgramId,
    query: &StatsQuery,
) -> Result<Vec<LedgerStats>, ProgramError> {
    let mut found = Vec::new();
    let newest = Direction::NewestFirst;
    storage::stats(store, program, query.ledgers, newest, |ledger, source, value| {
        let source = RunSource::from_number(source);
        if query.source.is_none_or(|wanted| wanted == source) {
            let sums = serde_json::from_slice(value)
                .map_err(|_| ProgramError::Damaged("the sums of a ledger's runs"))?;
            found.push(LedgerStats { ledger, source, sums });
        }
        Ok(storage::more_if(found.len() < query.limit))
    })?;
    Ok(found)
}

/// Returns the statistics of one ledger so far, or zeros.
pub(super) fn sums_of(
    store: &Store,
    program: ProgramId,
    ledger: LedgerSeq,
    source: RunSource,
) -> Result<LedgerSums, ProgramError> {
    let ledgers = LedgerRange { first: ledger, last: ledger };
    let found = stats(store, program, &StatsQuery { source: Some(source), ledgers, limit: 1 })?;
    Ok(found.first().map(|stats| stats.sums).unwrap_or_default())
}

/// Deletes at most `most` statistics of ledgers whose newest run was before `limit`, in UNIX
/// milliseconds. Returns how many were deleted.
pub(super) fn prune_stats(
    store: &Store,
    program: ProgramId,
    limit: u64,
    most: usize,
) -> Result<usize, ProgramError> {
    let all = LedgerRange::new(0, u32::MAX);
    let mut old = Vec::new();
    storage::stats(store, program, all, Direction::OldestFirst, |ledger, source, value| {
        let sums = serde_json::from_slice::<LedgerSums>(value).unwrap_or_default();
        if sums.at < limit {
            old.push((ledger, source));
        }
        Ok(storage::more_if(old.len() < most))
    })?;
    if !old.is_empty() {
        storage::change(store, |changes| {
            old.iter().try_for_each(|(ledger, source)| {
                changes.delete(&storage::sums(program, *ledger, *source))
            })
        })?;
    }
    Ok(old.len())
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
    fn error_messages_are_truncated_at_a_character_boundary() {
        let texts = ["", "short", &"a".repeat(1024), &"a".repeat(1025), &"ä€𝄞".repeat(400)];
        for text in texts {
            let mut execution =
                Execution::of(LedgerSeq(1), &TxHash::from([0; 32]), RunSource::Live, 0);
            execution.set_error(&text);
            let short = execution.error.unwrap();
            assert!(short.len() <= LONGEST_SENTENCE);
            match short.strip_suffix('…') {
                Some(begin) => {
                    assert!(text.len() > LONGEST_SENTENCE && text.starts_with(begin));
                    assert!(begin.len() > LONGEST_SENTENCE - 8);
                }
                None => assert_eq!(short, text),
            }
        }
    }
}
