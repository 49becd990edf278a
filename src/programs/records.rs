//! Records of runs: one of each, and sums over those of a ledger. Knows how they are kept and what is
//! computed from them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ProgramError;
use super::engine::Fidelity;
use crate::domain::{Direction, LedgerRange, LedgerSeq, ProgramId, TxHash};
use crate::store::{ProgramChanges, Store, StoreError};

/// Records that are kept of each program (interface, section Limits).
pub const MOST_EXECUTIONS: u64 = 500;
/// Bytes of the sentence that says why a run failed, or how it differs. It may name what somebody else
/// chose: types, values, fields.
pub const LONGEST_SENTENCE: usize = 1024;
/// How long sums over ledgers are kept (interface, section Limits).
pub const STATS_KEPT: Duration = Duration::from_hours(30 * 24);

/// Why a program was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunSource {
    /// The ledger was new.
    Live,
    /// The ledger had been stored before: somebody asked for it, or a run waited for ledgers before it.
    Backfill,
}

impl RunSource {
    const fn number(self) -> u8 {
        match self {
            Self::Live => 0,
            Self::Backfill => 1,
        }
    }

    const fn of_number(number: u8) -> Self {
        match number {
            0 => Self::Live,
            _ => Self::Backfill,
        }
    }
}

/// What came of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Its rows are stored.
    Success,
    /// It left nothing.
    Error,
}

/// How a run compares with what the chain recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "outcome", content = "difference")]
pub enum Likeness {
    /// Return value, events and changes are the same.
    Exact,
    /// They are not; what differed first.
    Diverged(String),
    /// Nobody looked.
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
    /// The same with a sentence of bounded length.
    pub(super) fn shortened(self) -> Self {
        match self {
            Self::Diverged(difference) => Self::Diverged(shortened(difference)),
            other => other,
        }
    }
}

/// A sentence of at most [`LONGEST_SENTENCE`] bytes.
fn shortened(mut sentence: String) -> String {
    const MORE: char = '…';
    if sentence.len() > LONGEST_SENTENCE {
        let end = sentence.floor_char_boundary(LONGEST_SENTENCE - MORE.len_utf8());
        sentence.truncate(end);
        sentence.push(MORE);
    }
    sentence
}

/// One run of a program on a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// The transaction's ledger.
    pub ledger: u32,
    /// The transaction, hex.
    pub tx: String,
    /// Why it was run.
    pub source: RunSource,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether it failed because of something that nobody knows, which is no fault of the program's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub state_unavailable: bool,
    /// Rows that it left.
    pub rows: u32,
    /// How long it took, microseconds.
    pub micros: u64,
    /// How it compares with what the chain recorded.
    pub likeness: Likeness,
    /// When it was run, UNIX milliseconds.
    pub at: u64,
}

impl Execution {
    /// What came of it.
    pub fn status(&self) -> RunStatus {
        if self.error.is_none() { RunStatus::Success } else { RunStatus::Error }
    }

    /// It failed, and why.
    pub(super) fn fails(&mut self, why: &dyn std::fmt::Display) {
        self.error = Some(shortened(why.to_string()));
    }

    /// A record of the transaction.
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

/// Sums over the runs of one ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LedgerSums {
    /// Runs.
    pub executions: u32,
    /// Runs that failed.
    pub errors: u32,
    /// Rows.
    pub rows: u64,
    /// Time of all, microseconds.
    pub micros: u64,
    /// When they were last added to, UNIX milliseconds.
    pub at: u64,
}

impl LedgerSums {
    /// Counts a run.
    pub fn add(&mut self, execution: &Execution) {
        self.executions += 1;
        self.errors += u32::from(execution.error.is_some());
        self.rows += u64::from(execution.rows);
        self.micros += execution.micros;
        self.at = self.at.max(execution.at);
    }
}

/// Sums over a ledger's runs, with the ledger and why they were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerStats {
    /// The ledger.
    pub ledger: LedgerSeq,
    /// Why its runs were made.
    pub source: RunSource,
    /// The sums.
    pub sums: LedgerSums,
}

/// Which sums are wanted.
#[derive(Debug, Clone, Copy)]
pub struct StatsQuery {
    /// Only of runs that were made for this; all when none.
    pub source: Option<RunSource>,
    /// Only of these ledgers.
    pub ledgers: LedgerRange,
    /// At most so many.
    pub limit: usize,
}

/// Puts the record of a run as number `number`, and lets the one go that is one too many.
pub(super) fn put_execution(
    changes: &mut ProgramChanges<'_>,
    program: ProgramId,
    number: u64,
    execution: &Execution,
) -> Result<(), StoreError> {
    changes.put_execution(program, number, &json(execution))?;
    match number.checked_sub(MOST_EXECUTIONS) {
        Some(old) => changes.delete_execution(program, old),
        None => Ok(()),
    }
}

/// Puts the sums over a ledger's runs.
pub(super) fn put_sums(
    changes: &mut ProgramChanges<'_>,
    program: ProgramId,
    stats: &LedgerStats,
) -> Result<(), StoreError> {
    changes.put_stats(program, stats.ledger, stats.source.number(), &json(&stats.sums))
}

/// The records of a program's runs, newest first: at most `limit`, of ledgers up to `last`.
pub(super) fn executions(
    store: &Store,
    program: ProgramId,
    last: Option<LedgerSeq>,
    limit: usize,
) -> Result<Vec<Execution>, ProgramError> {
    let mut found = Vec::new();
    let mut damaged = false;
    store.executions(program, |_, value| {
        let Ok(execution) = serde_json::from_slice::<Execution>(value) else {
            damaged = true;
            return false;
        };
        if last.is_none_or(|last| execution.ledger <= last.0) {
            // Earlier versions wrote sentences of any length.
            found.push(Execution {
                error: execution.error.map(shortened),
                likeness: execution.likeness.shortened(),
                ..execution
            });
        }
        found.len() < limit
    })?;
    if damaged { Err(ProgramError::Damaged("the record of a run")) } else { Ok(found) }
}

/// The sums that are wanted, newest ledger first.
pub(super) fn stats(
    store: &Store,
    program: ProgramId,
    query: &StatsQuery,
) -> Result<Vec<LedgerStats>, ProgramError> {
    let mut found = Vec::new();
    let mut damaged = false;
    store.program_stats(
        program,
        query.ledgers,
        Direction::NewestFirst,
        |ledger, source, value| {
            let source = RunSource::of_number(source);
            if query.source.is_some_and(|wanted| wanted != source) {
                return true;
            }
            let Ok(sums) = serde_json::from_slice(value) else {
                damaged = true;
                return false;
            };
            found.push(LedgerStats { ledger, source, sums });
            found.len() < query.limit
        },
    )?;
    if damaged { Err(ProgramError::Damaged("the sums of a ledger's runs")) } else { Ok(found) }
}

/// The sums of one ledger so far.
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

/// Removes sums that were last added to before `limit`, UNIX milliseconds; at most `most` of them.
pub(super) fn prune_stats(
    store: &Store,
    program: ProgramId,
    limit: u64,
    most: usize,
) -> Result<usize, ProgramError> {
    let all = LedgerRange::new(0, u32::MAX);
    let mut old = Vec::new();
    store.program_stats(program, all, Direction::OldestFirst, |ledger, source, value| {
        let sums = serde_json::from_slice::<LedgerSums>(value).unwrap_or_default();
        if sums.at < limit {
            old.push((ledger, source));
        }
        old.len() < most
    })?;
    if !old.is_empty() {
        store.change_programs(|changes| {
            old.iter()
                .try_for_each(|(ledger, source)| changes.delete_stats(program, *ledger, *source))
        })?;
    }
    Ok(old.len())
}

/// Records are made of numbers and texts, which serialize without fail.
fn json<T: Serialize>(record: &T) -> Vec<u8> {
    serde_json::to_vec(record).expect("numbers and texts serialize")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_on_a_character_within_their_limit() {
        let texts = ["", "short", &"a".repeat(1024), &"a".repeat(1025), &"ä€𝄞".repeat(400)];
        for text in texts {
            let mut execution =
                Execution::of(LedgerSeq(1), &TxHash::from([0; 32]), RunSource::Live, 0);
            execution.fails(&text);
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
