//! DuckDB's own word on a text: how many statements it is, and of which type, before any of it runs. Its
//! Rust API cannot be asked: [`Connection::prepare`] executes every statement of a text but the last, and
//! tells no type. So a database is opened here through the C API (duckdb.h), which yields both kinds of
//! connections to it.

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::Arc;

use duckdb::{Connection, ffi};

/// Why DuckDB has refused something, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DuckDbError(String);

/// An open database. It is closed when this and the last of its connections are gone.
#[derive(Debug)]
pub struct Database {
    raw: ffi::duckdb_database,
}

// SAFETY: a database is used from any thread (duckdb.h: only results and appenders belong to one), and
// this type has no method that changes the pointer.
unsafe impl Send for Database {}

/// A connection that parses and binds statements, and executes none but those of [`Witness::run`].
#[derive(Debug)]
pub struct Witness {
    connection: Arc<RawConnection>,
}

/// Stops what a [`Witness`] does, from another thread.
#[derive(Debug, Clone)]
pub struct Interrupt {
    connection: Arc<RawConnection>,
}

#[derive(Debug)]
struct RawConnection(ffi::duckdb_connection);

// SAFETY: a connection locks itself (ClientContext::LockContext) in every function that is called here but
// `duckdb_interrupt`, which sets an atomic flag and is meant to be called while another thread is in one.
unsafe impl Send for RawConnection {}
// SAFETY: as above.
unsafe impl Sync for RawConnection {}

/// The type of a statement, as far as queries are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It reads.
    Select,
    /// It shows the plan of another one.
    Explain,
    /// Any other, with the number that duckdb.h gives it (`duckdb_statement_type`).
    Other(u32),
}

impl Database {
    /// Opens the database in a file, or one in memory that is called `:memory:`, with settings by name.
    ///
    /// # Errors
    /// DuckDB's reason, or the name of a setting that it does not take.
    pub fn open(file: &str, settings: &[(&str, String)]) -> Result<Self, DuckDbError> {
        let file = text(file)?;
        let config = Settings::new(settings)?;
        let mut raw = ptr::null_mut();
        let mut reason: *mut c_char = ptr::null_mut();
        // SAFETY: all pointers are valid for the call. On failure DuckDB sets `reason` to a text that is ours.
        let state =
            unsafe { ffi::duckdb_open_ext(file.as_ptr(), &raw mut raw, config.0, &raw mut reason) };
        if state == ffi::DuckDBSuccess {
            return Ok(Self { raw });
        }
        // SAFETY: null, or a text that ends in a null character.
        let error = unsafe { said(reason) };
        // SAFETY: the text was allocated by DuckDB and is not used any more; null is allowed.
        unsafe { ffi::duckdb_free(reason.cast()) };
        Err(error)
    }

    /// A connection of the Rust API.
    ///
    /// # Errors
    /// DuckDB's reason.
    pub fn connect(&self) -> duckdb::Result<Connection> {
        // SAFETY: the database is open. A connection holds the instance of the database itself, so that it
        // may outlive this.
        unsafe { Connection::open_from_raw(self.raw) }
    }

    /// A connection that tells of statements.
    ///
    /// # Errors
    /// When DuckDB makes no more connections.
    pub fn witness(&self) -> Result<Witness, DuckDbError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the database is open, and the pointer is valid for the call.
        let state = unsafe { ffi::duckdb_connect(self.raw, &raw mut raw) };
        match state == ffi::DuckDBSuccess {
            true => Ok(Witness { connection: Arc::new(RawConnection(raw)) }),
            false => Err(DuckDbError("there is no other connection to the database".to_owned())),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: it was opened, is closed once, and is not used afterwards.
        unsafe { ffi::duckdb_close(&raw mut self.raw) };
    }
}

impl Drop for RawConnection {
    fn drop(&mut self) {
        // SAFETY: it was made by `duckdb_connect`, is ended once, and is not used afterwards.
        unsafe { ffi::duckdb_disconnect(&raw mut self.0) };
    }
}

impl Witness {
    /// How many statements a text is. Nothing is bound or executed.
    ///
    /// # Errors
    /// What DuckDB's parser says of a text that it does not understand.
    pub fn count(&self, sql: &str) -> Result<u64, DuckDbError> {
        Extracted::of(&self.connection, sql).map(|statements| statements.count)
    }

    /// The type of a text's only statement; none when it is none or several. The statement is bound, which
    /// looks up the names in it, and not executed.
    ///
    /// # Errors
    /// What DuckDB says of a statement that cannot be parsed or bound.
    pub fn only_statement(&self, sql: &str) -> Result<Option<Kind>, DuckDbError> {
        let statements = Extracted::of(&self.connection, sql)?;
        match statements.count {
            1 => statements.first_kind(&self.connection).map(Some),
            _ => Ok(None),
        }
    }

    /// Executes statements of our own, whose answers nobody needs.
    ///
    /// # Errors
    /// DuckDB's reason.
    pub fn run(&self, sql: &str) -> Result<(), DuckDbError> {
        let sql = text(sql)?;
        // SAFETY: an all-zero result is what duckdb.h asks for; DuckDB fills it in any case.
        let mut result: ffi::duckdb_result = unsafe { std::mem::zeroed() };
        // SAFETY: the connection is open and the pointers are valid for the call.
        let state = unsafe { ffi::duckdb_query(self.connection.0, sql.as_ptr(), &raw mut result) };
        let done = match state == ffi::DuckDBSuccess {
            true => Ok(()),
            // SAFETY: the result is DuckDB's; its text lives until the result is destroyed.
            false => Err(unsafe { said(ffi::duckdb_result_error(&raw mut result)) }),
        };
        // SAFETY: the result was filled in by `duckdb_query` and is not used afterwards.
        unsafe { ffi::duckdb_destroy_result(&raw mut result) };
        done
    }

    /// What stops it.
    pub fn interrupt(&self) -> Interrupt {
        Interrupt { connection: Arc::clone(&self.connection) }
    }
}

impl Interrupt {
    /// Stops what the connection does now. Parsing cannot be stopped.
    pub fn now(&self) {
        // SAFETY: the connection is open as long as this exists.
        unsafe { ffi::duckdb_interrupt(self.connection.0) };
    }
}

/// The statements of a text.
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
        // SAFETY: null, or what was just extracted.
        let error = unsafe { ffi::duckdb_extract_statements_error(statements.raw) };
        match error.is_null() {
            true => Ok(statements),
            // SAFETY: the text lives until the statements are destroyed, which is later.
            false => Err(unsafe { said(error) }),
        }
    }

    fn first_kind(&self, connection: &RawConnection) -> Result<Kind, DuckDbError> {
        let mut prepared = ptr::null_mut();
        // SAFETY: the connection is open, there is a statement of this index (DuckDB checks it as well),
        // and the pointer is valid. Whatever comes back is destroyed below; null is allowed there.
        let state = unsafe {
            ffi::duckdb_prepare_extracted_statement(connection.0, self.raw, 0, &raw mut prepared)
        };
        let kind = match state == ffi::DuckDBSuccess {
            // SAFETY: it was prepared.
            true => Ok(match unsafe { ffi::duckdb_prepared_statement_type(prepared) } {
                ffi::duckdb_statement_type_DUCKDB_STATEMENT_TYPE_SELECT => Kind::Select,
                ffi::duckdb_statement_type_DUCKDB_STATEMENT_TYPE_EXPLAIN => Kind::Explain,
                other => Kind::Other(other),
            }),
            // SAFETY: null, or a statement that failed; its text lives until that is destroyed.
            false => Err(unsafe { said(ffi::duckdb_prepare_error(prepared)) }),
        };
        // SAFETY: null, or a statement that is not used afterwards.
        unsafe { ffi::duckdb_destroy_prepare(&raw mut prepared) };
        kind
    }
}

impl Drop for Extracted {
    fn drop(&mut self) {
        // SAFETY: null, or what was extracted; it is not used afterwards.
        unsafe { ffi::duckdb_destroy_extracted(&raw mut self.raw) };
    }
}

/// Settings that a database is opened with.
struct Settings(ffi::duckdb_config);

impl Settings {
    fn new(settings: &[(&str, String)]) -> Result<Self, DuckDbError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid for the call; what is made is destroyed when this is dropped.
        let state = unsafe { ffi::duckdb_create_config(&raw mut raw) };
        let config = Self(raw);
        if state != ffi::DuckDBSuccess {
            return Err(DuckDbError("there is no memory for settings".to_owned()));
        }
        for (name, value) in settings {
            let (name_text, value) = (text(name)?, text(value)?);
            // SAFETY: the settings exist, and the texts end in null characters and are copied.
            let state =
                unsafe { ffi::duckdb_set_config(config.0, name_text.as_ptr(), value.as_ptr()) };
            if state != ffi::DuckDBSuccess {
                return Err(DuckDbError(format!("the setting {name} is not taken")));
            }
        }
        Ok(config)
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // SAFETY: null, or made by `duckdb_create_config`; it is not used afterwards.
        unsafe { ffi::duckdb_destroy_config(&raw mut self.0) };
    }
}

fn text(text: &str) -> Result<CString, DuckDbError> {
    let null = |_| DuckDbError("a text has a null character".to_owned());
    CString::new(text).map_err(null)
}

/// What DuckDB says, if it says something.
///
/// # Safety
/// `message` is null or ends in a null character.
unsafe fn said(message: *const c_char) -> DuckDbError {
    if message.is_null() {
        return DuckDbError("DuckDB gives no reason".to_owned());
    }
    // SAFETY: the caller says so.
    DuckDbError(unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness() -> Witness {
        let database = Database::open(":memory:", &[("threads", "1".to_owned())]).unwrap();
        let witness = database.witness().unwrap();
        witness.run("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)").unwrap();
        witness
    }

    #[test]
    fn statements_are_counted_and_typed_before_anything_runs() {
        let witness = witness();
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
            assert_eq!(witness.only_statement(sql), Ok(kind), "{sql}");
        }
        assert_eq!(witness.count("SELECT 1; SELECT 2;; SELECT 3"), Ok(3));
        // The table and its row are still there.
        witness.run("SELECT 1 / (SELECT a FROM t)").unwrap();
        assert_eq!(witness.only_statement("SELECT a FROM t"), Ok(Some(Kind::Select)));
    }

    #[test]
    fn what_is_not_understood_is_refused_in_duckdbs_own_words() {
        let witness = witness();
        for (sql, words) in [
            ("SELEC 1", "syntax error at or near \"SELEC\""),
            ("SELECT * FROM nope", "nope does not exist"),
            ("SELECT '\0'", "a text has a null character"),
        ] {
            let error = witness.only_statement(sql).unwrap_err().to_string();
            assert!(error.contains(words), "{sql}: {error}");
        }
        assert!(witness.count("SELECT * FROM nope").is_ok());
        assert!(witness.run("DROP TABLE nope").is_err());
    }

    #[test]
    fn a_setting_that_is_not_known_is_named() {
        let error = Database::open(":memory:", &[("nope", String::new())]).unwrap_err();
        assert!(error.to_string().contains("nope"), "{error}");
        assert!(Database::open("/nowhere/to/be/found", &[]).is_err());
    }

    #[test]
    fn connections_outlive_the_database_that_made_them() {
        let database = Database::open(":memory:", &[]).unwrap();
        let (connection, witness) = (database.connect().unwrap(), database.witness().unwrap());
        drop(database);
        connection.execute_batch("CREATE TABLE t (a INTEGER)").unwrap();
        assert_eq!(witness.only_statement("FROM t"), Ok(Some(Kind::Select)));
        witness.interrupt().now();
        assert_eq!(witness.only_statement("FROM t"), Ok(Some(Kind::Select)));
    }
}
