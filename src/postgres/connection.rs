//! One connection: statements with a deadline for each answer, and transactions.
//!
//! Everything works through a pooler that lends a connection of its own for each transaction (pgbouncer,
//! `pool_mode = transaction`): statements have no names, but for that of a `COPY`, which the driver names and
//! closes within the transaction, and settings are those of one transaction (`SET LOCAL`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::SinkExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::error::{Result, SinkError};

/// Deadline of an answer.
const ANSWER: Duration = Duration::from_secs(60);
/// Deadline of an answer to what takes as long as a table is large: building its key, copying rows within the
/// server. That the server's machine is gone, the system finds out.
const LONG: Duration = Duration::from_secs(24 * 3600);
/// Time that a row of a cursor is waited for: a transaction of a connection that broke may still hold it.
const LOCK_OF_ROWS: &str = "30s";
/// Time that a change of a table waits for those who read it, before it lets them pass and tries again.
const LOCK_OF_TABLES: &str = "1s";

/// What a transaction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reads or writes rows.
    Rows,
    /// Creates or changes tables.
    Tables,
    /// Reads all tables as they are at one moment.
    Check,
}

/// A connection to a server.
pub struct Connection {
    client: Client,
    /// What moves the bytes. The connection is closed once it ends.
    task: JoinHandle<()>,
    /// Whether a transaction was begun and not ended.
    is_open: AtomicBool,
    /// Whether the log says that listeners are not told.
    is_mute_told: AtomicBool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The server hears of an unfinished transaction at once.
        self.task.abort();
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("is_lost", &self.client.is_closed())
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Lets a task move the bytes.
    pub(crate) fn new<S, T>(
        (client, connection): (Client, tokio_postgres::Connection<S, T>),
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let task = tokio::spawn(async move {
            // Whoever waits for an answer gets the error, too.
            if let Err(error) = connection.await {
                tracing::debug!("a connection to PostgreSQL ended: {error}");
            }
        });
        Self { client, task, is_open: AtomicBool::new(false), is_mute_told: AtomicBool::new(false) }
    }

    /// Tells the log that listeners are not told of rows: once for a connection.
    pub(crate) fn tell_mute(&self, why: &SinkError) {
        if !self.is_mute_told.swap(true, Ordering::Relaxed) {
            tracing::warn!("listeners of PostgreSQL are not told of rows, which go on: {why}");
        }
    }

    /// Whether nothing can be done with the connection any more.
    pub fn is_lost(&self) -> bool {
        self.is_closed() || self.is_open.load(Ordering::Relaxed)
    }

    /// Whether the server does not answer on it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.task.is_finished()
    }

    async fn within<T>(
        &self,
        what: &str,
        deadline: Duration,
        answer: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        match timeout(deadline, answer).await {
            Ok(answered) => answered.map_err(|error| SinkError::of(what, &error)),
            Err(_) => {
                // What comes later must not be taken for another answer.
                self.task.abort();
                let seconds = deadline.as_secs();
                Err(SinkError::Lost(format!(
                    "{what} failed: the server did not answer within {seconds} s"
                )))
            }
        }
    }

    /// Runs statements without parameters.
    pub(crate) async fn run(&self, what: &str, sql: &str) -> Result<()> {
        self.within(what, ANSWER, self.client.batch_execute(sql)).await
    }

    /// Runs statements that take as long as a table is large.
    pub(crate) async fn run_long(&self, what: &str, sql: &str) -> Result<()> {
        self.within(what, LONG, self.client.batch_execute(sql)).await
    }

    /// Runs a statement, whose parameters are texts: `$1` with a cast where it is something else.
    pub(crate) async fn rows(
        &self,
        what: &str,
        sql: &str,
        parameters: &[&str],
    ) -> Result<Vec<Row>> {
        self.within(what, ANSWER, self.query(sql, parameters)).await
    }

    /// Runs a statement that takes as long as a table is large.
    pub(crate) async fn rows_long(
        &self,
        what: &str,
        sql: &str,
        parameters: &[&str],
    ) -> Result<Vec<Row>> {
        self.within(what, LONG, self.query(sql, parameters)).await
    }

    async fn query(
        &self,
        sql: &str,
        parameters: &[&str],
    ) -> std::result::Result<Vec<Row>, tokio_postgres::Error> {
        let parameters: Vec<(&(dyn ToSql + Sync), Type)> =
            parameters.iter().map(|it| (it as &(dyn ToSql + Sync), Type::TEXT)).collect();
        self.client.query_typed(sql, &parameters).await
    }

    /// Sends data for a `COPY ... FROM STDIN`, and returns the number of rows that came to be.
    pub(crate) async fn copy_in(
        &self,
        what: &str,
        sql: &str,
        data: impl Iterator<Item = Bytes>,
    ) -> Result<u64> {
        let sink = self.within(what, ANSWER, self.client.copy_in::<_, Bytes>(sql)).await?;
        let mut sink = std::pin::pin!(sink);
        for part in data {
            self.within(what, ANSWER, sink.send(part)).await?;
        }
        self.within(what, ANSWER, sink.finish()).await
    }

    /// Begins a transaction, which [`Connection::end`] must end: a connection whose transaction was left is lost.
    pub(crate) async fn begin(&self, purpose: Purpose) -> Result<()> {
        if self.is_open.swap(true, Ordering::Relaxed) {
            self.task.abort();
            return Err(SinkError::Lost("a transaction was left unfinished".to_owned()));
        }
        let (wait, mode) = match purpose {
            Purpose::Rows => (LOCK_OF_ROWS, "READ COMMITTED READ WRITE"),
            Purpose::Tables => (LOCK_OF_TABLES, "READ COMMITTED READ WRITE"),
            Purpose::Check => (LOCK_OF_ROWS, "REPEATABLE READ READ ONLY"),
        };
        // Whatever was set for the role or the database.
        let sql = format!(
            "BEGIN ISOLATION LEVEL {mode}; SET LOCAL search_path = pg_catalog; \
             SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = '30s'; \
             SET LOCAL lock_timeout = '{wait}'; SET LOCAL standard_conforming_strings = on; \
             SET LOCAL client_min_messages = warning; SELECT set_config('transaction_timeout', '0', true) WHERE \
             current_setting('server_version_num')::integer >= 170000"
        );
        match self.run("beginning a transaction", &sql).await {
            Ok(()) => Ok(()),
            Err(error) => {
                self.task.abort();
                Err(match error {
                    SinkError::Refused(text) | SinkError::Busy(text) => SinkError::Lost(text),
                    error => error,
                })
            }
        }
    }

    /// Ends the transaction: commits it if what was done in it succeeded, else takes it back.
    ///
    /// # Errors
    /// That of what was done; or that of committing, after a [`SinkError::Lost`] of which the cursor says whether
    /// it happened.
    pub(crate) async fn end<T>(&self, done: Result<T>) -> Result<T> {
        match done {
            Ok(done) => {
                let committed = self.run("committing", "COMMIT").await;
                // The server can refuse it: then it has taken everything back.
                if !matches!(committed, Err(SinkError::Lost(_))) {
                    self.is_open.store(false, Ordering::Relaxed);
                }
                committed.map(|()| done)
            }
            Err(error) => {
                if self.run("taking back a transaction", "ROLLBACK").await.is_ok() {
                    self.is_open.store(false, Ordering::Relaxed);
                }
                Err(error)
            }
        }
    }
}

/// Returns the text in a column of an answer, empty where it is null.
pub(crate) fn text<'a>(row: &'a Row, column: &str) -> Result<&'a str> {
    let text: std::result::Result<Option<&str>, _> = row.try_get(column);
    Ok(text.map_err(|_| SinkError::odd(column))?.unwrap_or_default())
}

/// Returns the number that is a text in a column of an answer, 0 where it is null.
pub(crate) fn number<T: std::str::FromStr + Default>(row: &Row, column: &str) -> Result<T> {
    match text(row, column)? {
        "" => Ok(T::default()),
        text => text.parse().map_err(|_| SinkError::odd(column)),
    }
}

/// Returns the truth in a column of an answer, false where it is null.
pub(crate) fn truth(row: &Row, column: &str) -> Result<bool> {
    let truth: std::result::Result<Option<bool>, _> = row.try_get(column);
    Ok(truth.map_err(|_| SinkError::odd(column))?.unwrap_or_default())
}
