//! Why something could not be done with a PostgreSQL server, by what the caller does about it. Every sentence
//! is for the operator: what happened, and what mends it. None has a password, nor values of rows.

use std::error::Error as _;

use tokio_postgres::error::DbError;

/// Result of what is done with a server.
pub type Result<T> = std::result::Result<T, SinkError>;

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// The connection is lost, or none could be made: try again on a new one, after a pause
    /// ([`Backoff`](crate::Backoff)). Whether a transaction that was being committed is there, its cursor says.
    #[error("{0}")]
    Lost(String),
    /// Others hold a lock, or the server took back a transaction: nothing was changed, the connection can be used
    /// again, and the same may be tried again.
    #[error("{0}")]
    Busy(String),
    /// The cursor is not where the caller believed it to be: read it again. Nothing was changed.
    #[error("{0}")]
    Moved(String),
    /// Another service writes with the name of this sink: nothing was changed.
    #[error("{0}")]
    OtherWriter(String),
    /// Objects that others made in the database stand in the way: what to do with each.
    #[error("waits for {}", .0.join("; "))]
    Blocked(Vec<String>),
    /// Somebody must change something. Trying again as it is fails again.
    #[error("{0}")]
    Refused(String),
}

impl SinkError {
    /// An answer of a server that is none of PostgreSQL's, or not the one to this question.
    pub(crate) fn odd(what: &str) -> Self {
        Self::Lost(format!("the server answered in a way that is not PostgreSQL's: {what}"))
    }

    /// Describes what failed (`writing rows`) with an error of the driver.
    pub(crate) fn of(what: &str, error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(answer) => of_answer(what, answer),
            None => Self::Lost(format!("{what} failed: {}", cause(error))),
        }
    }
}

/// Returns the innermost reason of an error of the driver, which names what it was doing outside of it.
pub(crate) fn cause(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(error) = inner {
        text = error.to_string();
        inner = error.source();
    }
    text
}

/// Turns the answer of the server to `what` into an error, by the classes of
/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn of_answer(what: &str, answer: &DbError) -> SinkError {
    let code = answer.code().code();
    let said = said(answer);
    let text = format!("{what} failed: {said}");
    match code {
        "55P03" | "40001" | "40P01" | "57014" => SinkError::Busy(text),
        // A pooled connection has a statement of another client with the name of ours; the next one has another.
        "42P05" | "26000" => SinkError::Busy(text),
        "53100" => SinkError::Lost(format!("{text}: make room on the server's disk")),
        "25006" => SinkError::Lost(format!(
            "{text}: the server takes no writes, as a standby does not: give the address of the primary"
        )),
        "42501" => SinkError::Refused(format!(
            "{text}: `orrery sink test` says which privileges are missing"
        )),
        _ if is_lost(code) => SinkError::Lost(text),
        _ if code.starts_with("23") => {
            SinkError::Refused(format!("{text}: {}", constraint(answer)))
        }
        _ => SinkError::Refused(text),
    }
}

/// Whether the answer says that the server, or the way to it, is not there now: connection exceptions, lack of
/// resources, what its operator does, failures of its system.
fn is_lost(code: &str) -> bool {
    code == "40003"
        || ["08", "25", "53", "57", "58", "XX"].iter().any(|class| code.starts_with(class))
}

/// Returns the server's words without its detail, which may have values of rows.
fn said(answer: &DbError) -> String {
    let at =
        answer.table().zip(answer.schema()).map(|(table, schema)| format!(" ({schema}.{table})"));
    let at = at.unwrap_or_default();
    format!("{}{at} [{}]", answer.message(), answer.code().code())
}

/// Says what to do about a row that the server's own rules refuse.
fn constraint(answer: &DbError) -> String {
    match (answer.constraint(), answer.column()) {
        (Some(name), _) if answer.code().code() == "23505" && name.ends_with("_pkey") => {
            "a row with its key is there already: somebody added it; `orrery sink replace` fills the table again"
                .to_owned()
        }
        (Some(name), _) => {
            format!(
                "the constraint \"{name}\" refuses what the chain has: ALTER TABLE ... DROP CONSTRAINT"
            )
        }
        (None, Some(column)) => format!(
            "the column \"{column}\" must not be null, and the sink does not write it: give it a default, or drop NOT NULL"
        ),
        (None, None) => "a rule that was added to the table refuses a row: drop it".to_owned(),
    }
}
