//! Lets DuckDB report how many statements a text contains, and of which type, before any of them is
//! executed. The Rust API cannot do that: [`Connection::prepare`] executes every statement of a
//! text but the last, and does not return a type. So the database is opened through the C API
//! (duckdb.h), which yields both kinds of connections to it.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::Arc;

use duckdb::{Connection, ffi};

/// Error message of DuckDB.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DuckDbError(String);

/// An open database. It is closed when this handle and its last connection are dropped.
#[derive(Debug)]
pub struct Database {
    raw: ffi::duckdb_database,
}

// SAFETY: a database may be used from any thread (duckdb.h: only results and appenders belong to
// one), and this type has no method that changes the pointer.
unsafe impl Send for Database {}

/// A connection that parses and binds statements, and executes only those passed to
/// [`StatementInspector::run`].
#[derive(Debug)]
pub struct StatementInspector {
    connection: Arc<RawConnection>,
}

/// Handle that interrupts a [`StatementInspector`] from another thread.
#[derive(Debug, Clone)]
pub struct Interrupt {
    connection: Arc<RawConnection>,
}

#[derive(Debug)]
struct RawConnection(ffi::duckdb_connection);

// SAFETY: a connection locks itself (ClientContext::LockContext) in every function that is called
// here except `duckdb_interrupt`, which sets an atomic flag and is meant to be called while another
// thread is inside one.
unsafe impl Send for RawConnection {}
// SAFETY: as above.
unsafe impl Sync for RawConnection {}

/// The type of a statement, as far as queries need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The statement reads.
    Select,
    /// The statement shows the plan of another one.
    Explain,
    /// Any other type, with its number in duckdb.h (`duckdb_statement_type`).
    Other(u32),
}

impl Database {
    /// Opens the database in `file`, or one in memory if that is `:memory:`, with settings by name.
    ///
    /// # Errors
    /// DuckDB's error message, or the name of a setting that it does not accept.
    pub fn open(file: &str, settings: &[(&str, String)]) -> Result<Self, DuckDbError> {
        let file = text(file)?;
        let config = Settings::new(settings)?;
        let mut raw = ptr::null_mut();
        let mut reason: *mut c_char = ptr::null_mut();
        // SAFETY: all pointers are valid for the call. On failure DuckDB sets `reason` to a text
        // that the caller owns.
        let state =
            unsafe { ffi::duckdb_open_ext(file.as_ptr(), &raw mut raw, config.0, &raw mut reason) };
        if state == ffi::DuckDBSuccess {
            return Ok(Self { raw });
        }
        // SAFETY: null, or a text that ends in a null character.
        let error = unsafe { error_from(reason) };
        // SAFETY: the text was allocated by DuckDB and is no longer used; null is allowed.
        unsafe { ffi::duckdb_free(reason.cast()) };
        Err(error)
    }

    /// Opens a connection of the Rust API.
    ///
    /// # Errors
    /// DuckDB's error message.
    pub fn connect(&self) -> duckdb::Result<Connection> {
        // SAFETY: the database is open. A connection keeps the database instance alive itself, so
        // it may outlive this handle.
        unsafe { Connection::open_from_raw(self.raw) }
    }

    /// Opens a connection that reports on statements.
    ///
    /// # Errors
    /// When DuckDB opens no further connection.
    pub fn inspector(&self) -> Result<StatementInspector, DuckDbError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the database is open, and the pointer is valid for the call.
        let state = unsafe { ffi::duckdb_connect(self.raw, &raw mut raw) };
        if state == ffi::DuckDBSuccess {
            Ok(StatementInspector { connection: Arc::new(RawConnection(raw)) })
        } else {
            Err(DuckDbError("a second connection cannot be opened".to_owned()))
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: the database was opened, is closed once, and is not used afterwards.
        unsafe { ffi::duckdb_close(&raw mut self.raw) };
    }
}

impl Drop for RawConnection {
    fn drop(&mut self) {
        // SAFETY: the connection was made by `duckdb_connect`, is closed once, and is not used
        // afterwards.
        unsafe { ffi::duckdb_disconnect(&raw mut self.0) };
    }
}

impl StatementInspector {
    /// Returns the number of statements in a text. Nothing is bound or executed.
    ///
    /// # Errors
    /// DuckDB's message for a text that its parser rejects.
    pub fn count(&self, sql: &str) -> Result<u64, DuckDbError> {
        Extracted::of(&self.connection, sql).map(|statements| statements.count)
    }

    /// Returns the type of the only statement in a text, or `None` when the text has none or
    /// several. The statement is bound, which looks up the names in it, but not executed.
    ///
    /// # Errors
    /// DuckDB's message for a statement that cannot be parsed or bound.
    pub fn only_statement(&self, sql: &str) -> Result<Option<Kind>, DuckDbError> {
        let statements = Extracted::of(&self.connection, sql)?;
        match statements.count {
            1 => statements.first_kind(&self.connection).map(Some),
            _ => Ok(None),
        }
    }

    /// Executes trusted statements and discards their results.
    ///
    /// # Errors
    /// DuckDB's error message.
    pub fn run(&self, sql: &str) -> Result<(), DuckDbError> {
        let sql = text(sql)?;
        // SAFETY: duckdb.h requires an all-zero result; DuckDB fills it in any case.
        let mut result: ffi::duckdb_result = unsafe { std::mem::zeroed() };
        // SAFETY: the connection is open and the pointers are valid for the call.
        let state = unsafe { ffi::duckdb_query(self.connection.0, sql.as_ptr(), &raw mut result) };
        let done = if state == ffi::DuckDBSuccess {
            Ok(())
        } else {
            // SAFETY: DuckDB filled the result; its text lives until the result is destroyed.
            Err(unsafe { error_from(ffi::duckdb_result_error(&raw mut result)) })
        };
        // SAFETY: the result was filled in by `duckdb_query` and is not used afterwards.
        unsafe { ffi::duckdb_destroy_result(&raw mut result) };
        done
    }

    /// Returns a handle that interrupts this connection.
    pub fn interrupt(&self) -> Interrupt {
        Interrupt { connection: Arc::clone(&self.connection) }
    }
}

impl Interrupt {
    /// Interrupts what the connection is executing. Parsing cannot be interrupted.
    pub fn now(&self) {
        // SAFETY: the connection stays open as long as this handle exists.
        unsafe { ffi::duckdb_interrupt(self.connection.0) };
    }
}

/// The statements extracted from a text.
struct Extracted {
    raw: ffi::duckdb_extracted_statements,
    count: u64,
}

impl Extracted {
    fn of(connection: &RawConnection, sql: &str) -> Result<Self, DuckDbError> {
        let sql = text(sql)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the connection is open, the text ends in a null character, the pointer is valid.
        let count =
            unsafe { ffi::duckdb_extract_statements(connection.0, sql.as_ptr(), &raw mut raw) };
        let statements = Self { raw, count };
        // SAFETY: null, or the statements that were just extracted.
        let error = unsafe { ffi::duckdb_extract_statements_error(statements.raw) };
        if error.is_null() {
            Ok(statements)
        } else {
            // SAFETY: the text lives until the statements are destroyed, which happens later.
            Err(unsafe { error_from(error) })
        }
    }

    fn first_kind(&self, connection: &RawConnection) -> Result<Kind, DuckDbError> {
        let mut prepared = ptr::null_mut();
        // SAFETY: the connection is open, a statement with this index exists (DuckDB checks that as
        // well), and the pointer is valid. The result is destroyed below, where null is allowed.
        let state = unsafe {
            ffi::duckdb_prepare_extracted_statement(connection.0, self.raw, 0, &raw mut prepared)
        };
        let kind = if state == ffi::DuckDBSuccess {
            // SAFETY: it was prepared.
            Ok(match unsafe { ffi::duckdb_prepared_statement_type(prepared) } {
                ffi::duckdb_statement_type_DUCKDB_STATEMENT_TYPE_SELECT => Kind::Select,
                ffi::duckdb_statement_type_DUCKDB_STATEMENT_TYPE_EXPLAIN => Kind::Explain,
                other => Kind::Other(other),
            })
        } else {
            // SAFETY: null, or a statement that failed; its text lives until the statement is
            // destroyed.
            Err(unsafe { error_from(ffi::duckdb_prepare_error(prepared)) })
        };
        // SAFETY: null, or a statement that is not used afterwards.
        unsafe { ffi::duckdb_destroy_prepare(&raw mut prepared) };
        kind
    }
}

impl Drop for Extracted {
    fn drop(&mut self) {
        // SAFETY: null, or extracted statements, which are not used afterwards.
        unsafe { ffi::duckdb_destroy_extracted(&raw mut self.raw) };
    }
}

/// Settings with which a database is opened.
struct Settings(ffi::duckdb_config);

impl Settings {
    fn new(settings: &[(&str, String)]) -> Result<Self, DuckDbError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid for the call; the settings are destroyed when this is
        // dropped.
        let state = unsafe { ffi::duckdb_create_config(&raw mut raw) };
        let config = Self(raw);
        if state != ffi::DuckDBSuccess {
            return Err(DuckDbError("the settings cannot be allocated".to_owned()));
        }
        for (name, value) in settings {
            let (name_text, value) = (text(name)?, text(value)?);
            // SAFETY: the settings exist, and the texts end in null characters and are copied.
            let state =
                unsafe { ffi::duckdb_set_config(config.0, name_text.as_ptr(), value.as_ptr()) };
            if state != ffi::DuckDBSuccess {
                return Err(DuckDbError(format!("DuckDB does not accept the setting {name}")));
            }
        }
        Ok(config)
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // SAFETY: null, or made by `duckdb_create_config`, and not used afterwards.
        unsafe { ffi::duckdb_destroy_config(&raw mut self.0) };
    }
}

fn text(text: &str) -> Result<CString, DuckDbError> {
    let null = |_| DuckDbError("a text has a null character".to_owned());
    CString::new(text).map_err(null)
}

/// Copies an error message of DuckDB, or says that there is none.
///
/// # Safety
/// `message` is null or ends in a null character.
unsafe fn error_from(message: *const c_char) -> DuckDbError {
    if message.is_null() {
        return DuckDbError("DuckDB gives no reason".to_owned());
    }
    // SAFETY: the caller guarantees it.
    DuckDbError(unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inspector() -> StatementInspector {
        let database = Database::open(":memory:", &[("threads", "1".to_owned())]).unwrap();
        let inspector = database.inspector().unwrap();
        inspector.run("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)").unwrap();
        inspector
    }

    #[test]
    fn statements_are_counted_and_typed_before_anything_runs() {
        let inspector = inspector();
        for (sql, kind) in [
            ("SELECT a FROM t", Some(Kind::Select)),
            ("FROM t WHERE a = ?", Some(Kind::Select)),
            ("DESCRIBE t", Some(Kind::Select)),
            ("EXPLAIN ANALYZE DELETE FROM t", Some(Kind::Explain)),
            ("DELETE FROM t", Some(Kind::Other(5))),
            ("DELETE FROM t; SELECT 1", None),
            ("SELECT 1; DELETE FROM t", None),
            ("/* /* */ EXPLAIN SELECT $x$*/ DROP TABLE t; SELECT 1 -- $x$", None),
            ("", None),
            (";;", None),
        ] {
            assert_eq!(inspector.only_statement(sql), Ok(kind), "{sql}");
        }
        assert_eq!(inspector.count("SELECT 1; SELECT 2;; SELECT 3"), Ok(3));
        // The table and its row are still there.
        inspector.run("SELECT 1 / (SELECT a FROM t)").unwrap();
        assert_eq!(inspector.only_statement("SELECT a FROM t"), Ok(Some(Kind::Select)));
    }

    #[test]
    fn parser_errors_contain_duckdbs_message() {
        let inspector = inspector();
        for (sql, words) in [
            ("SELEC 1", "syntax error at or near \"SELEC\""),
            ("SELECT * FROM nope", "nope does not exist"),
            ("SELECT '\0'", "a text has a null character"),
        ] {
            let error = inspector.only_statement(sql).unwrap_err().to_string();
            assert!(error.contains(words), "{sql}: {error}");
        }
        assert!(inspector.count("SELECT * FROM nope").is_ok());
        assert!(inspector.run("DROP TABLE nope").is_err());
    }

    #[test]
    fn errors_name_an_unknown_setting() {
        let error = Database::open(":memory:", &[("nope", String::new())]).unwrap_err();
        assert!(error.to_string().contains("nope"), "{error}");
        assert!(Database::open("/nowhere/to/be/found", &[]).is_err());
    }

    #[test]
    fn connections_outlive_the_database_that_made_them() {
        let database = Database::open(":memory:", &[]).unwrap();
        let (connection, inspector) = (database.connect().unwrap(), database.inspector().unwrap());
        drop(database);
        connection.execute_batch("CREATE TABLE t (a INTEGER)").unwrap();
        assert_eq!(inspector.only_statement("FROM t"), Ok(Some(Kind::Select)));
        inspector.interrupt().now();
        assert_eq!(inspector.only_statement("FROM t"), Ok(Some(Kind::Select)));
    }
}
