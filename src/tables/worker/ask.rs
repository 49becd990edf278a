//! Answers one query: examined, in a transaction that only reads, until its time is up.

use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;
use duckdb::types::{ToSqlOutput, Value};
use duckdb::{Connection, Statement, ToSql, params_from_iter};
use parking_lot::Mutex;

use super::change::Names;
use super::database::is_damage;
use super::gate::Gate;
use super::timer::{Timed, Timer};
use crate::tables::answer::{Answer, AnswerError, Style, with_unique_id};
use crate::tables::wire::{Failure, Question};

/// What queries are examined with.
pub struct Examiner {
    parser: Mutex<Connection>,
    /// None when statements are not examined, to test the other wall.
    gate: Option<Gate>,
    names: Names,
}

impl Examiner {
    /// Parses with that connection.
    pub fn new(parser: Connection, sql_wall: bool, names: Names) -> duckdb::Result<Self> {
        let gate = sql_wall.then(|| Gate::new(&parser)).transpose()?;
        Ok(Self { parser: Mutex::new(parser), gate, names })
    }
}

/// Answers a query.
pub fn answer(
    connection: &Connection,
    examiner: &Examiner,
    timer: &Timer,
    question: &Question,
) -> Result<Vec<u8>, Failure> {
    let deadline = Instant::now() + Duration::from_millis(question.milliseconds);
    let timed = timer.start(connection.interrupt_handle(), deadline);
    let answer = examined(connection, examiner, question, &timed);
    // There may be no transaction: when beginning one has failed.
    let _ = connection.execute_batch("ROLLBACK");
    answer
}

fn examined(
    connection: &Connection,
    examiner: &Examiner,
    question: &Question,
    timed: &Timed<'_>,
) -> Result<Vec<u8>, Failure> {
    let failed = |error: duckdb::Error| failure(&error, timed);
    let mut describes = false;
    if let Some(gate) = &examiner.gate {
        let begin = "BEGIN TRANSACTION READ ONLY";
        connection.execute_batch(begin).map_err(failed)?;
        let parser = examiner.parser.lock();
        describes = gate.pass(&parser, &question.sql, &examiner.names.read())?;
    }
    let mut statement = connection.prepare(&question.sql).map_err(failed)?;
    let parameters = parameters(&statement, question)?;
    let style = Style {
        format: question.format,
        numbers: question.numbers,
        rows: question.rows,
        bytes: question.bytes,
    };
    read(&mut statement, parameters, style, describes, timed)
}

fn read(
    statement: &mut Statement<'_>,
    parameters: Vec<Parameter>,
    style: Style,
    describes: bool,
    timed: &Timed<'_>,
) -> Result<Vec<u8>, Failure> {
    let failed = |error: duckdb::Error| failure(&error, timed);
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
fn failure(error: &duckdb::Error, timed: &Timed<'_>) -> Failure {
    let message = error.to_string();
    if timed.is_over() {
        Failure::TimedOut
    } else if is_damage(&message) {
        Failure::Damaged(message)
    } else if message.starts_with("FATAL Error") || message.contains("has been invalidated") {
        Failure::Unavailable(message)
    } else {
        Failure::Refused(message)
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
