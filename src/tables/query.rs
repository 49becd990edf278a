//! What may be asked of tables with SQL, and how the answer or the refusal looks. Knows neither HTTP nor
//! DuckDB.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A query.
#[derive(Debug, Clone, Default)]
pub struct QueryRequest {
    /// One statement that reads.
    pub query: String,
    /// Values of its parameters `?`, in order: null, booleans, numbers, strings and lists of those.
    pub params: Vec<serde_json::Value>,
    /// Rows of the longest answer, when fewer than the service allows.
    pub max_rows: Option<usize>,
    /// How integers of 64 bits and more are written.
    pub numbers: Numbers,
    /// What the answer is.
    pub format: Format,
}

/// How integers of 64 bits and more are written in JSON and CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// As numbers up to 2^53 − 1 in magnitude, which every reader of JSON keeps, else as strings.
    #[default]
    Exact,
    /// As strings.
    String,
}

/// What an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A JSON array with an object per row.
    #[default]
    Rows,
    /// A JSON object with an array per column.
    Columns,
    /// Comma-separated values (RFC 4180) with a header; null is empty, an empty text is `""`.
    Csv,
    /// A Parquet file.
    Parquet,
    /// An Arrow IPC stream.
    Arrow,
}

impl Format {
    /// The media type of such an answer.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Rows | Self::Columns => "application/json",
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Parquet => "application/vnd.apache.parquet",
            Self::Arrow => "application/vnd.apache.arrow.stream",
        }
    }
}

/// Says, while an answer is being made, whether nobody waits for it any more.
pub type Interrupted<'a> = &'a dyn Fn() -> bool;

/// The answer to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryAnswer {
    /// What is sent.
    pub bytes: Vec<u8>,
    /// What the bytes are.
    pub media_type: &'static str,
}

/// Why a query has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// It is not one that is answered, or it fails. DuckDB's own words, with the position where it gives
    /// one.
    #[error("{0}")]
    Refused(String),
    /// The answer is longer than allowed.
    #[error("{0}")]
    TooLarge(String),
    /// It took too long.
    #[error("the query took longer than {} s and was stopped: ask for less", .0.as_secs_f64())]
    TimedOut(Duration),
    /// Nobody waits for the answer any more.
    #[error("the query was stopped, because nobody waited for its answer any more")]
    Interrupted,
    /// Too many at a time.
    #[error("{0} queries of this owner are running already: wait for one of them")]
    Busy(usize),
    /// The tables cannot be read right now.
    #[error("{0}; try again")]
    Unavailable(String),
    /// Workers are not held back as they should be, and the operator has not said that they may run so.
    #[error(
        "SQL queries are refused here, because {0}: the operator may allow them with \
         queries.allow_unconfined"
    )]
    Unconfined(&'static str),
}
