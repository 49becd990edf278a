//! Answers one query: checks it, and executes it in a read-only transaction until its time is up.

mod exactness;
mod wording;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;
use duckdb::types::{ToSqlOutput, Value};
use duckdb::{Connection, Statement, ToSql, params_from_iter};
use parking_lot::Mutex;

use super::chain::{self, ChainQuery};
use super::change::Names;
use super::database::{Reader, is_damage};
use super::gate::Gate;
use super::query_text::{Text, costs_too_much};
use super::rounding;
use super::timer::{Stop, Timed, Timer};
use crate::answer::{Answer, AnswerError, Style, described};
use crate::ffi::{Kind, StatementInspector};
use crate::wire::{Failure, Opening, QuerySpec};

/// Checks queries before they are executed.
pub struct Examiner {
    /// `None` when statements are not checked by the names in them, in tests of the other
    /// protections.
    gate: Option<Gate>,
    /// Whether a text must be one read-only statement, executed in a read-only transaction.
    lock: bool,
    names: Names,
    checked: Mutex<CheckedTexts>,
}

/// Cache of texts that have passed all checks, because clients repeat their queries. The checks
/// depend only on the text and the names of the owner's tables and views.
#[derive(Default)]
struct CheckedTexts {
    names: Arc<BTreeSet<String>>,
    /// For each text, whether it contains DESCRIBE, SHOW or SUMMARIZE (`SHOW_REF`).
    texts: HashMap<String, bool>,
}

/// Maximum number of cached texts, and maximum length of one in bytes.
const MAX_CACHED_TEXTS: usize = 64;
const MAX_CACHED_TEXT_BYTES: usize = 8 << 10;

impl CheckedTexts {
    fn find(&self, names: &Arc<BTreeSet<String>>, sql: &str) -> Option<bool> {
        Arc::ptr_eq(&self.names, names).then(|| self.texts.get(sql).copied()).flatten()
    }

    fn insert(&mut self, names: Arc<BTreeSet<String>>, sql: &str, describes: bool) {
        if !Arc::ptr_eq(&self.names, &names) || self.texts.len() >= MAX_CACHED_TEXTS {
            self.texts.clear();
            self.names = names;
        }
        if sql.len() <= MAX_CACHED_TEXT_BYTES {
            self.texts.insert(sql.to_owned(), describes);
        }
    }
}

impl Examiner {
    /// Creates the examiner. Reads the names of DuckDB's built-in views through `parser`.
    pub fn new(parser: &Connection, opening: &Opening, names: Names) -> duckdb::Result<Self> {
        let gate = opening.gate.then(|| Gate::new(parser)).transpose()?;
        Ok(Self { gate, lock: opening.lock, names, checked: Mutex::default() })
    }
}

/// Answers the query with request number `id`. `chain` is what it finds in the tables of the chain, if it may
/// read them.
pub fn answer(
    reader: &Reader,
    examiner: &Examiner,
    timer: &Timer,
    id: u32,
    query: &QuerySpec,
    chain: Option<&Arc<ChainQuery>>,
) -> Result<Vec<u8>, Failure> {
    let deadline = Instant::now() + Duration::from_millis(query.milliseconds);
    let timed = timer.start(id, stop(reader, chain), deadline);
    let _entered = chain::enter(chain);
    let chain = chain.map(|chain| &**chain);
    if !examiner.lock {
        return without_panic(|| check_and_run(reader, examiner, query, chain, &timed));
    }
    in_read_only_transaction(&reader.connection, timed, |timed| {
        check_and_run(reader, examiner, query, chain, timed)
    })
}

/// Returns a function that stops a query.
fn stop(reader: &Reader, chain: Option<&Arc<ChainQuery>>) -> Stop {
    let (stop, chain) = (reader.stop(), chain.cloned());
    Box::new(move || {
        chain.iter().for_each(|chain| chain.stop());
        stop();
    })
}

/// Runs `work` in a read-only transaction, and verifies afterwards that the transaction still
/// exists: errors leave a transaction open until it is rolled back.
fn in_read_only_transaction<T>(
    connection: &Connection,
    timed: Timed<'_>,
    work: impl FnOnce(&Timed<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let begun = connection.execute_batch("BEGIN TRANSACTION READ ONLY");
    let done = match &begun {
        Ok(()) => without_panic(|| work(&timed)),
        Err(error) => Err(failure(&error.to_string(), &timed)),
    };
    // Dropped first, so that the deadline cannot interrupt the rollback.
    drop(timed);
    let Err(error) = connection.execute_batch("ROLLBACK") else { return done };
    match done {
        // A failed database has no transactions, and a transaction that was not begun cannot be
        // rolled back.
        Err(done @ (Failure::Unavailable(_) | Failure::Damaged(_))) => Err(done),
        done if begun.is_err() => done,
        _ => Err(Failure::TransactionEnded(error.to_string())),
    }
}

/// Runs `work`, and turns a panic into a failure of this query alone: libraries that write answers
/// panic on values that they do not know.
fn without_panic<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(refused(
            "The query cannot be answered, because of an error of the service: choose another format, or \
             CAST its columns to other types, and tell the operator",
        ))
    })
}

fn check_and_run(
    reader: &Reader,
    examiner: &Examiner,
    query: &QuerySpec,
    chain: Option<&ChainQuery>,
    timed: &Timed<'_>,
) -> Result<Vec<u8>, Failure> {
    if query.sql.contains('\0') {
        return Err(refused("The query has a null character: remove it"));
    }
    if let Some(reason) = costs_too_much(&query.sql) {
        return Err(refused(reason));
    }
    let names = Arc::clone(&examiner.names.read());
    let key = text_and_types(query);
    let passed = examiner.checked.lock().find(&names, &key);
    let (mut statement, describes) = match passed {
        Some(describes) => {
            let statement = reader.connection.prepare(&Text::of(&query.sql).executed());
            (statement.map_err(|error| failure(&error.to_string(), timed))?, describes)
        }
        None => {
            let (statement, describes) = check_and_prepare(reader, examiner, query, &names, timed)?;
            examiner.checked.lock().insert(names, &key, describes);
            (statement, describes)
        }
    };
    let parameters = parameters(&statement, query)?;
    if let Some(chain) = chain {
        chain.plan(&reader.planner, Text::of(&query.sql).examined, &query.params);
    }
    let style = Style {
        format: query.format,
        numbers: query.numbers,
        rows: query.rows,
        bytes: query.bytes,
    };
    let done = read(&mut statement, parameters, style, describes, timed);
    match (done, chain.and_then(ChainQuery::trouble)) {
        // DuckDB reports it as a failure of the statement, which is not at fault.
        (Err(Failure::Refused(_)), Some(sentence)) => Err(Failure::Unreadable(sentence.to_owned())),
        (done, _) => done,
    }
}

/// Prepares a text if it passes all checks; also returns whether it contains a `SHOW_REF`.
fn check_and_prepare<'r>(
    reader: &'r Reader,
    examiner: &Examiner,
    query: &QuerySpec,
    names: &BTreeSet<String>,
    timed: &Timed<'_>,
) -> Result<(Statement<'r>, bool), Failure> {
    let text = Text::of(&query.sql);
    let gate = examiner.gate.as_ref();
    let passed = gate.map(|gate| gate.check(&reader.parser, text, names)).transpose()?;
    if let Some(passed) = &passed {
        rounding::check_numbers(&passed.parsed).map_err(|sentence| failure(&sentence, timed))?;
    }
    let executed = text.executed();
    if examiner.lock {
        check_single_statement(&reader.inspector, &executed, timed)?;
    }
    let statement = reader.connection.prepare(&executed);
    let statement = statement.map_err(|error| match failure(&error.to_string(), timed) {
        Failure::Refused(message) => Failure::Refused(wording::of(&message, names)),
        failure => failure,
    })?;
    if examiner.lock {
        check_read_only(&reader.inspector, text, &executed, timed)?;
    }
    if let Some(passed) = &passed {
        let parameters = query.params.as_slice();
        let planner = if query.chain.is_some() { &reader.planner } else { &reader.connection };
        exactness::check(reader, planner, text.examined, &passed.parsed, parameters)
            .map_err(|sentence| failure(&sentence, timed))?;
    }
    Ok((statement, passed.is_some_and(|passed| passed.describes)))
}

/// Returns the text of a query with the types of its parameters, on which the checks depend.
fn text_and_types(query: &QuerySpec) -> Cow<'_, str> {
    if query.params.is_empty() {
        return Cow::Borrowed(&query.sql);
    }
    let types = query.params.iter().map(exactness::typed).collect::<Vec<_>>().join(",");
    // No text has a null character.
    Cow::Owned(format!("{}\0{types}", query.sql))
}

/// Checks that a text is a single statement, because preparing executes all statements but the
/// last.
fn check_single_statement(
    inspector: &StatementInspector,
    executed: &str,
    timed: &Timed<'_>,
) -> Result<(), Failure> {
    match inspector.count(executed).map_err(|error| failure(&error.to_string(), timed))? {
        0 => Err(refused("There is no statement: write one SELECT")),
        1 => Ok(()),
        _ => Err(refused("Give one statement at a time")),
    }
}

/// Checks that the executed text is a SELECT, or an EXPLAIN of text that is a SELECT by itself.
fn check_read_only(
    inspector: &StatementInspector,
    text: Text<'_>,
    executed: &str,
    timed: &Timed<'_>,
) -> Result<(), Failure> {
    let is = |sql: &str, kind: Kind| -> Result<bool, Failure> {
        let found = inspector.only_statement(sql);
        Ok(found.map_err(|error| failure(&error.to_string(), timed))? == Some(kind))
    };
    let reads = match text.prefix {
        "" => is(executed, Kind::Select)?,
        _ => is(executed, Kind::Explain)? && is(text.examined, Kind::Select)?,
    };
    if reads { Ok(()) } else { Err(refused("Only statements that read are answered")) }
}

fn refused(sentence: &str) -> Failure {
    Failure::Refused(sentence.to_owned())
}

fn read(
    statement: &mut Statement<'_>,
    parameters: Vec<Parameter>,
    style: Style,
    describes: bool,
    timed: &Timed<'_>,
) -> Result<Vec<u8>, Failure> {
    let failed = |error: duckdb::Error| failure(&error.to_string(), timed);
    let schema = statement.stream_arrow(params_from_iter(parameters)).map_err(failed)?.get_schema();
    let types = (0..schema.fields().len()).map(|column| statement.column_logical_type(column));
    let mut answer = Answer::begin(style, &schema, types).map_err(answer_failure)?;
    while let Some(batch) = statement.step().map_err(failed)? {
        let batch = RecordBatch::from(batch);
        let batch = if describes {
            described(batch).map_err(|error| answer_failure(error.into()))?
        } else {
            batch
        };
        answer.add(&batch).map_err(answer_failure)?;
        if timed.should_stop() {
            return Err(Failure::TimedOut);
        }
    }
    answer.end().map_err(answer_failure)
}

/// Classifies an error message of DuckDB.
fn failure(message: &str, timed: &Timed<'_>) -> Failure {
    if timed.should_stop() {
        Failure::TimedOut
    } else if is_damage(message) {
        Failure::Damaged(message.to_owned())
    } else if message.starts_with("FATAL Error") || message.contains("has been invalidated") {
        Failure::Unavailable(message.to_owned())
    } else if message.contains("from type Variant") {
        // The driver has no type for it, so it fails before the types of columns are known.
        refused("A column has a type that answers do not have (VARIANT): CAST it to VARCHAR")
    } else {
        Failure::Refused(message.to_owned())
    }
}

fn answer_failure(error: AnswerError) -> Failure {
    match error {
        AnswerError::TooLarge(sentence) => Failure::TooLarge(sentence),
        error => Failure::Refused(error.to_string()),
    }
}

/// The value of a parameter.
struct Parameter(Value);

impl ToSql for Parameter {
    fn to_sql(&self) -> duckdb::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Owned(self.0.clone()))
    }
}

fn parameters(statement: &Statement<'_>, query: &QuerySpec) -> Result<Vec<Parameter>, Failure> {
    let (wanted, given) = (statement.parameter_count(), query.params.len());
    if wanted != given {
        return Err(Failure::Refused(format!(
            "The query has {wanted} parameters, and {given} values were given"
        )));
    }
    query.params.iter().map(|value| parameter(value).map(Parameter)).collect()
}

fn parameter(value: &serde_json::Value) -> Result<Value, Failure> {
    use serde_json::Value as Json;
    Ok(match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::BigInt(number),
            (None, Some(number)) => Value::UBigInt(number),
            // Larger numbers without a fraction are refused: conversion to a float could silently
            // change digits.
            (None, None) => match number.as_f64() {
                Some(float) if float.abs() < MAX_EXACT_FLOAT || float.fract() != 0.0 => {
                    Value::Double(float)
                }
                _ => {
                    return Err(Failure::Refused(format!(
                        "The parameter {number} has too many digits: give it as a string"
                    )));
                }
            },
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(items) => Value::List(items.iter().map(parameter).collect::<Result<_, _>>()?),
        Json::Object(_) => {
            let sentence = "A parameter may be null, a boolean, a number, a string or a list";
            return Err(Failure::Refused(sentence.to_owned()));
        }
    })
}

/// 2^53: floats below this represent all integer digits exactly.
const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests;
