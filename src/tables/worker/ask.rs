//! Answers one query: examined, in a transaction that only reads, until its time is up.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;
use duckdb::types::{ToSqlOutput, Value};
use duckdb::{Connection, Statement, ToSql, params_from_iter};
use parking_lot::Mutex;

use super::change::Names;
use super::database::{Reader, is_damage};
use super::gate::Gate;
use super::text::{Text, costs_too_much};
use super::timer::{Timed, Timer};
use crate::memory::duckdb::{Kind, Witness};
use crate::tables::answer::{Answer, AnswerError, Style, with_unique_id};
use crate::tables::wire::{Failure, Opening, Question};

/// What queries are examined with.
pub struct Examiner {
    /// None when statements are not judged by what they name, to test the other walls.
    gate: Option<Gate>,
    /// Whether a text must be one statement that reads, and is executed in a transaction that only reads.
    lock: bool,
    names: Names,
    passed: Mutex<Passed>,
}

/// Texts that have passed all examinations, which depend on nothing but the text and the names of the
/// owner's tables and views: clients ask the same again and again.
#[derive(Default)]
struct Passed {
    names: Arc<BTreeSet<String>>,
    /// Each with whether it asks for the columns of something.
    texts: HashMap<String, bool>,
}

/// Texts that are kept, and the longest of them in bytes.
const KEPT_TEXTS: usize = 64;
const LONGEST_KEPT: usize = 8 << 10;

impl Passed {
    fn find(&self, names: &Arc<BTreeSet<String>>, sql: &str) -> Option<bool> {
        Arc::ptr_eq(&self.names, names).then(|| self.texts.get(sql).copied()).flatten()
    }

    fn keep(&mut self, names: Arc<BTreeSet<String>>, sql: &str, describes: bool) {
        if !Arc::ptr_eq(&self.names, &names) || self.texts.len() >= KEPT_TEXTS {
            self.texts.clear();
            self.names = names;
        }
        if sql.len() <= LONGEST_KEPT {
            self.texts.insert(sql.to_owned(), describes);
        }
    }
}

impl Examiner {
    /// Learns from that connection what DuckDB brings along.
    pub fn new(parser: &Connection, opening: &Opening, names: Names) -> duckdb::Result<Self> {
        let gate = opening.gate.then(|| Gate::new(parser)).transpose()?;
        Ok(Self { gate, lock: opening.lock, names, passed: Mutex::default() })
    }
}

/// Answers the query of this number.
pub fn answer(
    reader: &Reader,
    examiner: &Examiner,
    timer: &Timer,
    id: u32,
    question: &Question,
) -> Result<Vec<u8>, Failure> {
    let deadline = Instant::now() + Duration::from_millis(question.milliseconds);
    let timed = timer.start(id, reader.stop(), deadline);
    if !examiner.lock {
        return examined(reader, examiner, question, &timed);
    }
    only_reading(&reader.connection, timed, |timed| examined(reader, examiner, question, timed))
}

/// Does something in a transaction that only reads, and sees to it that it is still the same one
/// afterwards: errors leave a transaction open until it is rolled back.
fn only_reading<T>(
    connection: &Connection,
    timed: Timed<'_>,
    work: impl FnOnce(&Timed<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let begun = connection.execute_batch("BEGIN TRANSACTION READ ONLY");
    let done = match &begun {
        Ok(()) => work(&timed),
        Err(error) => Err(failure(&error.to_string(), &timed)),
    };
    // Else the end of the time would interrupt the end of the transaction.
    drop(timed);
    let Err(error) = connection.execute_batch("ROLLBACK") else { return done };
    match done {
        // A database that has failed has no transactions, and one that was not begun has no end.
        Err(done @ (Failure::Unavailable(_) | Failure::Damaged(_))) => Err(done),
        done if begun.is_err() => done,
        _ => Err(Failure::TransactionEnded(error.to_string())),
    }
}

fn examined(
    reader: &Reader,
    examiner: &Examiner,
    question: &Question,
    timed: &Timed<'_>,
) -> Result<Vec<u8>, Failure> {
    if question.sql.contains('\0') {
        return Err(refused("The query has a null character: remove it"));
    }
    if let Some(reason) = costs_too_much(&question.sql) {
        return Err(refused(reason));
    }
    let names = Arc::clone(&examiner.names.read());
    let passed = examiner.passed.lock().find(&names, &question.sql);
    let (mut statement, describes) = match passed {
        Some(describes) => {
            let statement = reader.connection.prepare(&Text::of(&question.sql).executed());
            (statement.map_err(|error| failure(&error.to_string(), timed))?, describes)
        }
        None => {
            let (statement, describes) = pass(reader, examiner, &question.sql, &names, timed)?;
            examiner.passed.lock().keep(names, &question.sql, describes);
            (statement, describes)
        }
    };
    let parameters = parameters(&statement, question)?;
    let style = Style {
        format: question.format,
        numbers: question.numbers,
        rows: question.rows,
        bytes: question.bytes,
    };
    read(&mut statement, parameters, style, describes, timed)
}

/// Prepares a text that passes all examinations; says whether it asks for the columns of something.
fn pass<'r>(
    reader: &'r Reader,
    examiner: &Examiner,
    sql: &str,
    names: &BTreeSet<String>,
    timed: &Timed<'_>,
) -> Result<(Statement<'r>, bool), Failure> {
    let text = Text::of(sql);
    let describes = match &examiner.gate {
        Some(gate) => gate.pass(&reader.parser, text, names)?,
        None => false,
    };
    let executed = text.executed();
    if examiner.lock {
        is_one_statement(&reader.witness, &executed, timed)?;
    }
    let statement = reader.connection.prepare(&executed);
    let statement = statement.map_err(|error| failure(&error.to_string(), timed))?;
    if examiner.lock {
        only_reads(&reader.witness, text, &executed, timed)?;
    }
    Ok((statement, describes))
}

/// Preparing a text executes all of its statements but the last, so there must be no more than one.
fn is_one_statement(witness: &Witness, executed: &str, timed: &Timed<'_>) -> Result<(), Failure> {
    match witness.count(executed).map_err(|error| failure(&error.to_string(), timed))? {
        0 => Err(refused("There is no statement: write one SELECT")),
        1 => Ok(()),
        _ => Err(refused("Give one statement at a time")),
    }
}

/// What is executed must be a SELECT, or show the plan of what is one by itself.
fn only_reads(
    witness: &Witness,
    text: Text<'_>,
    executed: &str,
    timed: &Timed<'_>,
) -> Result<(), Failure> {
    let is = |sql: &str, kind: Kind| -> Result<bool, Failure> {
        let found = witness.only_statement(sql);
        Ok(found.map_err(|error| failure(&error.to_string(), timed))? == Some(kind))
    };
    let reads = match text.before {
        "" => is(executed, Kind::Select)?,
        _ => is(executed, Kind::Explain)? && is(text.examined, Kind::Select)?,
    };
    match reads {
        true => Ok(()),
        false => Err(refused("Only statements that read are answered")),
    }
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
    let mut answer = Answer::begin(style, &schema, types).map_err(unanswerable)?;
    while let Some(batch) = statement.step().map_err(failed)? {
        let batch = RecordBatch::from(batch);
        let batch = match describes {
            true => with_unique_id(batch).map_err(|error| unanswerable(error.into()))?,
            false => batch,
        };
        answer.add(&batch).map_err(unanswerable)?;
        if timed.is_over() {
            return Err(Failure::TimedOut);
        }
    }
    answer.end().map_err(unanswerable)
}

/// Why a query failed, from what DuckDB says.
fn failure(message: &str, timed: &Timed<'_>) -> Failure {
    if timed.is_over() {
        Failure::TimedOut
    } else if is_damage(message) {
        Failure::Damaged(message.to_owned())
    } else if message.starts_with("FATAL Error") || message.contains("has been invalidated") {
        Failure::Unavailable(message.to_owned())
    } else {
        Failure::Refused(message.to_owned())
    }
}

fn unanswerable(error: AnswerError) -> Failure {
    match error {
        AnswerError::Rows(_) | AnswerError::Bytes(_) => Failure::TooLarge(error.to_string()),
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

fn parameters(statement: &Statement<'_>, question: &Question) -> Result<Vec<Parameter>, Failure> {
    let (wanted, given) = (statement.parameter_count(), question.params.len());
    if wanted != given {
        return Err(Failure::Refused(format!(
            "The query has {wanted} parameters, and {given} values were given"
        )));
    }
    question.params.iter().map(|value| parameter(value).map(Parameter)).collect()
}

fn parameter(value: &serde_json::Value) -> Result<Value, Failure> {
    use serde_json::Value as Json;
    Ok(match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::BigInt(number),
            (None, Some(number)) => Value::UBigInt(number),
            // A number of more digits than a float keeps would silently become another one.
            (None, None) => match number.as_f64() {
                Some(float) if float.abs() < MOST_EXACT || float.fract() != 0.0 => {
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

/// Floats up to here have all digits before their point.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests;
