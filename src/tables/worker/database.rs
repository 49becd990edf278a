//! The database file as the worker has it open: how DuckDB is set up and locked, what the file says of
//! itself, and which of its errors mean damage.

use std::collections::BTreeMap;

use duckdb::Connection;

use super::timer::Stop;
use crate::domain::ProgramId;
use crate::memory::duckdb::{Database as Instance, DuckDbError, Witness};
use crate::tables::names;
use crate::tables::wire::{Definition, Failure, Opening};

/// The schema in which the file keeps what it knows about itself.
pub const OWN_SCHEMA: &str = "orrery";
/// How the file is laid out. Another one is built anew.
const LAYOUT: u32 = 1;

/// An open file: a connection for changes, and what queries are answered with.
pub struct Database {
    /// Makes changes.
    pub changes: Connection,
    /// Answer queries, each one at a time.
    pub readers: Vec<Reader>,
}

/// What a query is answered with. Nobody else uses it meanwhile, so that a query which keeps its parser busy
/// holds up no other.
pub struct Reader {
    /// Executes it.
    pub connection: Connection,
    /// Tells what will be executed, in the same database.
    pub witness: Witness,
    /// Writes down what the parser understands, without seeing any data.
    pub parser: Connection,
}

impl Reader {
    /// What stops a query, but for its parsing.
    pub fn stop(&self) -> Stop {
        let connections = [self.connection.interrupt_handle(), self.parser.interrupt_handle()];
        let witness = self.witness.interrupt();
        Box::new(move || {
            connections.iter().for_each(|connection| connection.interrupt());
            witness.now();
        })
    }
}

/// What the file says of itself.
pub struct Contents {
    /// Number of the last change.
    pub commit: u64,
    /// The programs.
    pub programs: Vec<Definition>,
    /// The last row log entry of each.
    pub watermarks: BTreeMap<ProgramId, u64>,
}

impl Database {
    /// Opens the file, or begins one.
    pub fn open(opening: &Opening) -> Result<(Self, Contents), Failure> {
        let settings = settings(opening);
        let instance = match Instance::open(&opening.file, &settings) {
            Err(error) if waits_for_extension(&error.to_string()) => {
                replay(&opening.file, &settings).map_err(opening_failed)?;
                Instance::open(&opening.file, &settings)
            }
            opened => opened,
        };
        let instance = instance.map_err(|error| opening_failed(error.to_string()))?;
        let changes = instance.connect().map_err(other)?;
        prepare(&changes)?;
        let contents = Contents::read(&changes)?;
        let parsers = Instance::open(":memory:", &settings).map_err(unavailable)?;
        let mut readers = Vec::with_capacity(opening.queries);
        for _ in 0..opening.queries {
            let connection = instance.connect().map_err(other)?;
            let witness = instance.witness().map_err(unavailable)?;
            let parser = parsers.connect().map_err(other)?;
            readers.push(Reader { connection, witness, parser });
        }
        let here = format!("USE {}", names::SCHEMA);
        changes.execute_batch(&here).map_err(other)?;
        for reader in &readers {
            reader.connection.execute_batch(&here).map_err(other)?;
            reader.witness.run(&here).map_err(unavailable)?;
        }
        if opening.lock {
            for connection in [Some(&changes), readers.first().map(|reader| &reader.parser)] {
                connection.map_or(Ok(()), |it| it.execute_batch(LOCK)).map_err(other)?;
            }
        }
        Ok((Self { changes, readers }, contents))
    }
}

fn unavailable(error: DuckDbError) -> Failure {
    Failure::Unavailable(error.to_string())
}

/// Set on the open database, because some of it cannot be given before.
const LOCK: &str = "SET autoinstall_known_extensions = false;
    SET autoload_known_extensions = false;
    SET allow_community_extensions = false;
    SET allow_persistent_secrets = false;
    SET enable_external_access = false;
    SET lock_configuration = true;";

/// What a database is opened with.
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

/// Whether the log holds a statement with functions that DuckDB loads only after it has opened its first
/// database: after a worker was killed that had altered a column. The file is not damaged then.
fn waits_for_extension(message: &str) -> bool {
    message.contains("replaying WAL") && message.contains("extension")
}

/// Brings the log into the file, in a DuckDB that has loaded all functions before it opens the file.
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
            let reason = format!("the file has layout {layout}, and this is {LAYOUT}");
            return Err(duckdb::Error::ToSqlConversionFailure(reason.into()));
        }
        let programs = format!(
            "SELECT program, project, own, schema FROM {OWN_SCHEMA}.programs ORDER BY program"
        );
        let mut statement = connection.prepare(&programs)?;
        let mut rows = statement.query([])?;
        let mut programs = Vec::new();
        while let Some(row) = rows.next()? {
            let schema: String = row.get(3)?;
            let unreadable = |error| duckdb::Error::ToSqlConversionFailure(Box::new(error));
            programs.push(Definition {
                program: ProgramId(row.get(0)?),
                project: row.get(1)?,
                own: row.get(2)?,
                schema: serde_json::from_str(&schema).map_err(unreadable)?,
            });
        }
        let watermarks = format!("SELECT program, number FROM {OWN_SCHEMA}.watermarks");
        let mut statement = connection.prepare(&watermarks)?;
        let mut rows = statement.query([])?;
        let mut watermarks = BTreeMap::new();
        while let Some(row) = rows.next()? {
            watermarks.insert(ProgramId(row.get(0)?), row.get(1)?);
        }
        Ok(Self { commit, programs, watermarks })
    }
}

/// What an error of DuckDB outside of queries means.
pub fn other(error: duckdb::Error) -> Failure {
    let message = error.to_string();
    match is_damage(&message) {
        true => Failure::Damaged(message),
        false => Failure::Unavailable(message),
    }
}

/// What an error of DuckDB about a change means: where neither the file, nor the machine, nor DuckDB
/// itself has failed, it is the change that cannot be made.
pub fn refused(error: duckdb::Error) -> Failure {
    const OURS: [&str; 6] =
        ["FATAL", "INTERNAL", "Fatal", "TransactionContext", "Out of Memory", "Interrupt"];
    let failure = other(error);
    match failure {
        Failure::Unavailable(message)
            if !OURS.iter().chain(&OUTSIDE).any(|word| message.contains(word))
                && !message.contains("invalidated")
                && !message.starts_with("IO Error") =>
        {
            Failure::Refused(message)
        }
        failure => failure,
    }
}

/// Whether an error says that what was read is not what was written. Statements cannot make DuckDB say
/// so: the functions that raise errors of their own choice raise others.
pub fn is_damage(message: &str) -> bool {
    let io = message.starts_with("IO Error: ")
        && ["Corrupt", "checksum", "Could not read", "end of file"]
            .iter()
            .any(|word| message.contains(word));
    io || ["Data Corruption Error: ", "Serialization Error: "]
        .iter()
        .any(|kind| message.starts_with(kind))
}

/// While opening, an error means damage unless it says that something outside is amiss.
fn opening_failed(message: String) -> Failure {
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if says(&["Could not set lock", "Conflicting lock"]) {
        Failure::Locked(message)
    } else if says(&OUTSIDE) && !is_damage(&message) {
        Failure::Unavailable(message)
    } else {
        Failure::Damaged(message)
    }
}

/// Words of errors for which the file is not to blame.
const OUTSIDE: [&str; 8] = [
    "Permission denied",
    "Operation not permitted",
    "No space left",
    "Disk quota",
    "Too many open files",
    "Read-only file system",
    "Cannot allocate memory",
    "Out of Memory",
];
