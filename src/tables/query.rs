//! Requests and answers of SQL queries over tables. Depends on neither HTTP nor DuckDB.

use std::time::Duration;

use orrery_ledger::domain::LedgerSeq;
use serde::{Deserialize, Serialize};

/// A query.
#[derive(Debug, Clone, Default)]
pub struct QueryRequest {
    /// One read-only statement.
    pub query: String,
    /// Values of the parameters `?`, in order: null, booleans, numbers, strings and lists of these.
    pub params: Vec<serde_json::Value>,
    /// Maximum number of rows in the answer, if smaller than the service's limit.
    pub max_rows: Option<usize>,
    /// How integers of 64 bits and more, and decimals, are written.
    pub numbers: Numbers,
    /// Format of the answer.
    pub format: Format,
}

/// How integers of 64 bits and more, and decimals, are written. In CSV this matters only for values
/// that are written as JSON there: lists, maps, structs and unions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// As numbers where every reader keeps them exact, otherwise as strings: in JSON integers up to
    /// 2^53 − 1 in magnitude and decimals of up to 15 digits, in Parquet and Arrow all but integers of
    /// 128 bits. In Parquet, a column of these is one of decimals and one of strings, `NAME_exact`.
    #[default]
    Exact,
    /// The same, with both columns in Arrow, too.
    Decimal,
    /// As strings.
    String,
}

/// Format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A JSON array with an object per row.
    #[default]
    Rows,
    /// A JSON object with an array per column.
    Columns,
    /// Comma-separated values (RFC 4180) with a header; null is empty, an empty string is `""`.
    Csv,
    /// A Parquet file.
    Parquet,
    /// An Arrow IPC stream.
    Arrow,
}

impl Format {
    /// Returns the media type of the format.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Rows | Self::Columns => "application/json",
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Parquet => "application/vnd.apache.parquet",
            Self::Arrow => "application/vnd.apache.arrow.stream",
        }
    }
}

/// Polled while an answer is produced; returns true once the client no longer waits for it.
pub type Interrupted<'a> = &'a dyn Fn() -> bool;

/// The answer to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryAnswer {
    /// Body of the response.
    pub bytes: Vec<u8>,
    /// Media type of the body.
    pub media_type: &'static str,
    /// Newest ledger whose rows the tables of the chain had; `None` when the query does not read them.
    pub chain_ledger: Option<LedgerSeq>,
}

/// Why a query has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The statement is not allowed, or it fails. The message is DuckDB's, with the position if
    /// DuckDB gives one.
    #[error("{0}")]
    Refused(String),
    /// The answer exceeds the limit of rows or bytes.
    #[error("{0}")]
    TooLarge(String),
    /// The query exceeded this time limit.
    #[error("the query took longer than {} s and was stopped: ask for less", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The client no longer waits for the answer.
    #[error("the query was cancelled, because the client no longer waits for its answer")]
    Interrupted,
    /// The owner already runs this many queries, the maximum.
    #[error("{0} queries of this owner are running already: wait for one of them")]
    Busy(usize),
    /// The tables cannot be read at the moment.
    #[error("{0}; try again")]
    Unavailable(String),
    /// The kernel cannot confine workers fully, and the operator has not allowed queries without
    /// that.
    #[error(
        "SQL queries are refused here, because {0}: the operator may allow them with \
         queries.allow_unconfined"
    )]
    Unconfined(&'static str),
}
