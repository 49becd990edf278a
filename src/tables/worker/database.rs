//! The worker's open database file: DuckDB's settings and lockdown, the metadata that the file
//! holds about itself, and which DuckDB errors mean damage.

use std::collections::BTreeMap;

use duckdb::Connection;
use orrery_ledger::domain::ProgramId;

use super::chain;
use super::clock;
use super::timer::Stop;
use crate::ffi::{Database as Instance, DuckDbError, StatementInspector};
use crate::names;
use crate::schema::ProgramSchema;
use crate::wire::{Definition, Failure, Filling, Opening};

/// Schema of the file's own metadata tables.
pub const OWN_SCHEMA: &str = "orrery";
/// Layout version of the file. A file with another version is treated as damaged and rebuilt.
const LAYOUT: u32 = 1;

/// An open file: one connection for changes, and one reader per concurrent query.
pub struct Database {
    /// Connection that makes changes.
    pub writer: Connection,
    /// Readers that answer queries, one query at a time each.
    pub readers: Vec<Reader>,
}

/// Connections that answer one query at a time. A reader is never shared, so a query that keeps its
/// parser busy does not delay others.
pub struct Reader {
    /// Connection that executes the query.
    pub connection: Connection,
    /// Connection to the same database that plans queries of the tables of the chain, and has no row of them.
    pub planner: Connection,
    /// Connection to the same database that counts, parses and binds a statement before it is
    /// executed, to report its type.
    pub inspector: StatementInspector,
    /// Connection to an in-memory database that serialises the parsed statement without access to
    /// any data.
    pub parser: Connection,
}

impl Reader {
    /// Returns a function that interrupts the query in every stage except parsing.
    pub fn stop(&self) -> Stop {
        let connections = [&self.connection, &self.planner, &self.parser];
        let connections = connections.map(Connection::interrupt_handle);
        let inspector = self.inspector.interrupt();
        Box::new(move || {
            connections.iter().for_each(|connection| connection.interrupt());
            inspector.now();
        })
    }
}

/// Metadata that the file holds about itself.
pub struct Contents {
    /// Number of the last committed change.
    pub commit: u64,
    /// Programs that have tables in the file.
    pub programs: Vec<Definition>,
    /// Row log entry after which the rows of each program continue.
    pub watermarks: BTreeMap<ProgramId, u64>,
    /// Programs whose tables are being filled anew.
    pub fillings: Vec<Filling>,
}

impl Database {
    /// Opens the file, or creates it.
    pub fn open(opening: &Opening) -> Result<(Self, Contents), Failure> {
        let settings = settings(opening);
        let instance = match Instance::open(&opening.file, &settings) {
            Err(error) if needs_extension(&error.to_string()) => {
                replay(&opening.file, &settings).map_err(opening_failed)?;
                Instance::open(&opening.file, &settings)
            }
            opened => opened,
        };
        let instance = instance.map_err(|error| opening_failed(error.to_string()))?;
        let writer = instance.connect().map_err(storage_failure)?;
        chain::register(&writer).map_err(storage_failure)?;
        let chain_tables = opening.chain.as_ref().map_or(&[][..], |chain| &chain.tables);
        let of_the_chain = chain::definitions(chain_tables);
        writer.execute_batch(&of_the_chain).map_err(storage_failure)?;
        prepare(&writer)?;
        let contents = Contents::read(&writer)?;
        let parsers = Instance::open(":memory:", &settings).map_err(unavailable)?;
        let mut readers = Vec::with_capacity(opening.queries);
        for _ in 0..opening.queries {
            let connection = instance.connect().map_err(storage_failure)?;
            let planner = instance.connect().map_err(storage_failure)?;
            let inspector = instance.inspector().map_err(unavailable)?;
            let parser = parsers.connect().map_err(storage_failure)?;
            readers.push(Reader { connection, planner, inspector, parser });
        }
        let here = format!("USE {}", names::SCHEMA);
        writer.execute_batch(&here).map_err(storage_failure)?;
        let (macros, planning) = (clock::definitions(), chain::planning(chain_tables));
        for reader in &readers {
            for statements in [&here, &macros, &of_the_chain] {
                reader.connection.execute_batch(statements).map_err(storage_failure)?;
                reader.inspector.run(statements).map_err(unavailable)?;
            }
            for statements in [&here, &macros, &planning] {
                reader.planner.execute_batch(statements).map_err(storage_failure)?;
            }
        }
        if opening.lock {
            for connection in [Some(&writer), readers.first().map(|reader| &reader.parser)] {
                connection.map_or(Ok(()), |it| it.execute_batch(LOCK)).map_err(storage_failure)?;
            }
        }
        Ok((Self { writer, readers }, contents))
    }
}

fn unavailable(error: DuckDbError) -> Failure {
    Failure::Unavailable(error.to_string())
}

/// Settings that lock the database. They are applied after opening, because some of them cannot be
/// given before.
const LOCK: &str = "SET autoinstall_known_extensions = false;
    SET autoload_known_extensions = false;
    SET allow_community_extensions = false;
    SET allow_persistent_secrets = false;
    SET enable_external_access = false;
    SET lock_configuration = true;";

/// Returns the settings with which a database is opened.
fn settings(opening: &Opening) -> [(&'static str, String); 6] {
    [
        ("memory_limit", format!("{}B", opening.memory)),
        ("threads", opening.threads.to_string()),
        ("temp_directory", String::new()),
        ("max_temp_directory_size", "0B".to_owned()),
        ("preserve_insertion_order", "true".to_owned()),
        ("allow_unsigned_extensions", "false".to_owned()),
    ]
}

/// Whether opening failed because the WAL holds a statement with functions that DuckDB loads only
/// after it has opened its first database. This happens when a worker is killed after it altered a
/// column; the file is not damaged.
fn needs_extension(message: &str) -> bool {
    message.contains("replaying WAL") && message.contains("extension")
}

/// Replays the WAL into the file, in a DuckDB instance that loads all functions before it attaches
/// the file.
fn replay(file: &str, settings: &[(&str, String)]) -> Result<(), String> {
    let memory = Instance::open(":memory:", settings).map_err(|error| error.to_string())?;
    let connection = memory.connect().map_err(|error| error.to_string())?;
    let file = file.replace('\'', "''");
    let replayed = format!("ATTACH '{file}' AS replayed; CHECKPOINT replayed; DETACH replayed;");
    connection.execute_batch(&replayed).map_err(|error| error.to_string())
}

fn prepare(connection: &Connection) -> Result<(), Failure> {
    let own = OWN_SCHEMA;
    let create = format!(
        "BEGIN;
         CREATE SCHEMA IF NOT EXISTS {schema};
         CREATE SCHEMA IF NOT EXISTS {own};
         CREATE TABLE IF NOT EXISTS {own}.state (layout UINTEGER, commits UBIGINT);
         CREATE TABLE IF NOT EXISTS {own}.programs
             (program UINTEGER, project VARCHAR, own BOOLEAN, schema VARCHAR);
         CREATE TABLE IF NOT EXISTS {own}.watermarks (program UINTEGER, number UBIGINT);
         CREATE TABLE IF NOT EXISTS {own}.fillings
             (program UINTEGER, schema VARCHAR, complete_at UBIGINT);
         CREATE TABLE IF NOT EXISTS {own}.views (rule UINTEGER);
         CREATE TABLE IF NOT EXISTS {own}.progress
             (program UINTEGER, first_ledger BIGINT, last_ledger BIGINT);
         INSERT INTO {own}.state SELECT {LAYOUT}, 0 WHERE NOT EXISTS (SELECT 1 FROM {own}.state);
         COMMIT;",
        schema = names::SCHEMA,
    );
    connection.execute_batch(&create).map_err(|error| opening_failed(error.to_string()))
}

impl Contents {
    fn read(connection: &Connection) -> Result<Self, Failure> {
        Self::rows(connection).map_err(|error| opening_failed(error.to_string()))
    }

    fn rows(connection: &Connection) -> duckdb::Result<Self> {
        let state = format!("SELECT layout, commits FROM {OWN_SCHEMA}.state");
        let (layout, commit): (u32, u64) =
            connection.query_row(&state, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if layout != LAYOUT {
            let reason = format!("the file has layout {layout}, and this version uses {LAYOUT}");
            return Err(duckdb::Error::ToSqlConversionFailure(reason.into()));
        }
        let programs = format!(
            "SELECT program, project, own, schema FROM {OWN_SCHEMA}.programs ORDER BY program"
        );
        let mut statement = connection.prepare(&programs)?;
        let mut rows = statement.query([])?;
        let mut programs = Vec::new();
        while let Some(row) = rows.next()? {
            programs.push(Definition {
                program: ProgramId(row.get(0)?),
                project: row.get(1)?,
                own: row.get(2)?,
                schema: schema(&row.get::<_, String>(3)?)?,
            });
        }
        let watermarks = format!("SELECT program, number FROM {OWN_SCHEMA}.watermarks");
        let mut statement = connection.prepare(&watermarks)?;
        let mut rows = statement.query([])?;
        let mut watermarks = BTreeMap::new();
        while let Some(row) = rows.next()? {
            watermarks.insert(ProgramId(row.get(0)?), row.get(1)?);
        }
        let fillings = format!("SELECT program, schema, complete_at FROM {OWN_SCHEMA}.fillings");
        let mut statement = connection.prepare(&fillings)?;
        let mut rows = statement.query([])?;
        let mut fillings = Vec::new();
        while let Some(row) = rows.next()? {
            fillings.push(Filling {
                program: ProgramId(row.get(0)?),
                schema: schema(&row.get::<_, String>(1)?)?,
                complete_at: row.get(2)?,
            });
        }
        Ok(Self { commit, programs, watermarks, fillings })
    }
}

fn schema(stored: &str) -> duckdb::Result<ProgramSchema> {
    let unreadable = |error| duckdb::Error::ToSqlConversionFailure(Box::new(error));
    serde_json::from_str(stored).map_err(unreadable)
}

/// Maps a DuckDB error outside of queries to a failure: damaged or unavailable.
pub fn storage_failure(error: duckdb::Error) -> Failure {
    let message = error.to_string();
    if is_damage(&message) { Failure::Damaged(message) } else { Failure::Unavailable(message) }
}

/// Maps a DuckDB error during a change to a failure. The change is refused unless the file, the
/// machine or DuckDB itself has failed.
pub fn refused(error: duckdb::Error) -> Failure {
    const OURS: [&str; 6] =
        ["FATAL", "INTERNAL", "Fatal", "TransactionContext", "Out of Memory", "Interrupt"];
    let failure = storage_failure(error);
    match failure {
        Failure::Unavailable(message)
            if !OURS.iter().chain(&EXTERNAL_CAUSES).any(|word| message.contains(word))
                && !message.contains("invalidated")
                && !message.starts_with("IO Error") =>
        {
            Failure::Refused(message)
        }
        failure => failure,
    }
}

/// Whether an error says that stored data is corrupt. A statement cannot provoke such an error: the
/// SQL functions that raise custom errors raise errors of other kinds.
pub fn is_damage(message: &str) -> bool {
    let io = message.starts_with("IO Error: ")
        && ["Corrupt", "checksum", "Could not read", "end of file"]
            .iter()
            .any(|word| message.contains(word));
    io || ["Data Corruption Error: ", "Serialization Error: "]
        .iter()
        .any(|kind| message.starts_with(kind))
}

/// Maps an error during opening to a failure: damaged, unless the message names a lock or a cause
/// outside of the file.
fn opening_failed(message: String) -> Failure {
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if says(&["Could not set lock", "Conflicting lock"]) {
        Failure::Locked(message)
    } else if says(&EXTERNAL_CAUSES) && !is_damage(&message) {
        Failure::Unavailable(message)
    } else {
        Failure::Damaged(message)
    }
}

/// Parts of error messages that name a cause outside of the file.
const EXTERNAL_CAUSES: [&str; 8] = [
    "Permission denied",
    "Operation not permitted",
    "No space left",
    "Disk quota",
    "Too many open files",
    "Read-only file system",
    "Cannot allocate memory",
    "Out of Memory",
];
