//! SQL tables in DuckDB: types of columns, tables of programs, rows, and the worker processes that
//! keep them and run SQL. Nothing outside of this module depends on DuckDB; [`ffi`] wraps some
//! functions of its C API.
//!
//! The files kept here can be rebuilt: the row log in the store is the source of truth, and each
//! file records how much of it it holds ([`Tables::watermarks`]). Every owner has one file, in a
//! directory of its own, and one process per file, so that no flaw of SQL gives access to another
//! owner's data. `types`, `values`, `spec` and [`schema`] do not depend on DuckDB; `worker` runs in
//! the child process, and `wire` is the protocol between the service and the child.
#![warn(missing_docs)]

mod answer;
mod apply;
mod encode;
mod worker_log;
// Public for a fuzz target.
pub mod export_types;
#[doc(hidden)]
pub mod ffi;
mod files;
mod names;
mod owners;
pub mod query;
mod query_client;
pub mod schema;
pub mod show;
mod spec;
pub mod types;
mod values;
mod worker_process;
mod worker_slot;
// Public for a fuzz target.
#[doc(hidden)]
pub mod wire;
pub mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orrery_ledger::domain::{CloseTime, Emit, Hash32, LedgerSeq, Owner, ProgramId, TxHash};
use orrery_runtime::budget::Usage;
use sha2::{Digest, Sha256};

pub use self::names::{INJECTED, snake_cases};
use self::owners::Owners;
use self::query::{Interrupted, QueryAnswer, QueryError, QueryRequest};
use self::schema::ProgramSchema;
use self::wire::{Reply, Request};
pub use self::worker_process::Timeouts;
pub use orrery_runtime::confinement::Confinement;

/// Timeout of requests that have no limit of their own.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Where tables are kept, and how workers run.
#[derive(Debug, Clone)]
pub struct TablesSettings {
    /// A directory used for tables only.
    pub directory: PathBuf,
    /// The program to start as a worker: this binary.
    pub worker: PathBuf,
    /// Limits of queries.
    pub limits: QueryLimits,
    /// Protections to apply to workers: all of them, except in tests of a single one.
    pub protections: Protections,
    /// Whether queries are answered even if the kernel cannot confine workers.
    pub allow_unconfined: bool,
    /// Timeouts of requests to workers that are not queries.
    pub timeouts: Timeouts,
}

/// Limits of queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryLimits {
    /// Time after which a query is stopped.
    pub time: Duration,
    /// Bytes of memory that DuckDB may use for one owner.
    pub memory: u64,
    /// Threads that DuckDB may use for one owner.
    pub threads: u32,
    /// Maximum number of rows in an answer.
    pub rows: usize,
    /// Maximum length of an answer in bytes.
    pub bytes: usize,
    /// Maximum length of a statement in bytes.
    pub text: usize,
    /// Maximum number of concurrent queries per owner.
    pub at_a_time: usize,
    /// Idle time after which a worker is stopped.
    pub idle: Duration,
    /// Maximum number of concurrent workers; each serves one owner.
    pub workers: usize,
    /// Maximum wait for a worker permit.
    pub wait: Duration,
    /// Maximum size of an owner's database file in bytes.
    pub file_bytes: u64,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(10),
            memory: 512 << 20,
            threads: 1,
            rows: 10_000,
            bytes: 16 << 20,
            text: 64 << 10,
            at_a_time: 4,
            idle: Duration::from_secs(300),
            workers: 8,
            wait: Duration::from_secs(15),
            file_bytes: 64 << 30,
        }
    }
}

/// Protections around a worker. Each must suffice alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protections {
    /// The process drops its access to files, networks and other processes, and limits its
    /// resources.
    pub process: bool,
    /// Statements are checked, before they are executed, against the functions and tables that they
    /// may name.
    pub gate: bool,
    /// DuckDB's configuration is locked, and a query must be one read-only statement in a read-only
    /// transaction.
    pub lock: bool,
}

impl Default for Protections {
    fn default() -> Self {
        Self { process: true, gate: true, lock: true }
    }
}

/// A change to an owner's tables.
#[derive(Debug, Clone)]
pub enum Change {
    /// A program was added, or its tables have grown.
    Program {
        /// The program.
        id: ProgramId,
        /// Its project, after which views are named.
        project: String,
        /// Whether the program belongs to the owner; otherwise it is another owner's public
        /// program.
        own: bool,
        /// Its tables. If the tables in the file cannot grow into these, the program starts again
        /// with the watermark 0.
        schema: ProgramSchema,
    },
    /// Rows of a program.
    Rows {
        /// The program.
        program: ProgramId,
        /// Number of the row log entry before the first row: must equal the program's watermark.
        after: u64,
        /// Number of the last row log entry, the new watermark.
        up_to: u64,
        /// The rows, in the order of the row log.
        rows: Vec<Row>,
    },
    /// A program was removed.
    Drop {
        /// The program.
        program: ProgramId,
    },
}

/// One row: an emit and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The emit.
    pub emit: Emit,
    /// Hash of the transaction whose run made the emit.
    pub transaction: TxHash,
    /// Id of the row: see [`event_id`].
    pub event_id: Hash32,
    /// The ledger of the transaction.
    pub ledger: LedgerSeq,
    /// Close time of the ledger.
    pub closed_at: CloseTime,
}

/// Returns the id of a row: SHA-256 over the program's number (4 bytes, big-endian), the
/// transaction's hash and the number of the emit in its run (4 bytes, big-endian).
pub fn event_id(program: ProgramId, transaction: &TxHash, emit: u32) -> Hash32 {
    let mut digest = Sha256::new();
    digest.update(program.0.to_be_bytes());
    digest.update(transaction.as_bytes());
    digest.update(emit.to_be_bytes());
    Hash32(digest.finalize().into())
}

/// Why tables cannot be changed or read.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// The process or its file is unavailable at the moment. The caller must read the watermarks
    /// again afterwards.
    #[error("{0}")]
    Unavailable(String),
    /// No worker permit became free in time; holds the total number of permits.
    #[error("all {0} SQL workers are in use by other owners")]
    AllWorkersBusy(usize),
    /// DuckDB rejects the change, and would reject it again. Nothing of it was applied.
    #[error("DuckDB rejects the change: {0}")]
    Refused(String),
    /// Rows that do not continue those in the table.
    #[error("program {program} has rows up to {watermark}, and these come after {after}")]
    OutOfStep {
        /// The program.
        program: ProgramId,
        /// Last row log entry in the tables.
        watermark: u64,
        /// Row log entry that the rows follow.
        after: u64,
    },
    /// Rows of a program that the tables do not have.
    #[error("program {0} is not known to the tables of this owner")]
    UnknownProgram(ProgramId),
    /// A row for a table that does not exist.
    #[error("program {program} has no table for '{target}'")]
    UnknownTarget {
        /// The program.
        program: ProgramId,
        /// The target.
        target: String,
    },
    /// A value that does not match its column, because it was not admitted.
    #[error("column '{column}' of '{target}' cannot hold this value: {reason}")]
    NotAdmitted {
        /// The target.
        target: String,
        /// The column.
        column: String,
        /// What is wrong with the value.
        reason: String,
    },
    /// Rows cannot be encoded as Arrow.
    #[error("rows cannot be packed: {0}")]
    Packing(#[from] arrow::error::ArrowError),
    /// A file in the owner's directory cannot be used.
    #[error("the directory of tables {path} cannot be used: {error}")]
    Directory {
        /// Path of the directory.
        path: PathBuf,
        /// The I/O error.
        error: std::io::Error,
    },
}

/// The tables of all owners. Cheap to clone; every call blocks until it is done.
#[derive(Clone)]
pub struct Tables {
    owners: Arc<Owners>,
}

impl Tables {
    /// Opens the directory. Workers are started only when they are needed.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub fn open(settings: TablesSettings) -> Result<Self, TablesError> {
        Ok(Self { owners: Owners::open(settings)? })
    }

    /// Returns the number of the last row log entry of each program in the owner's file. The result
    /// holds until the next call that fails; by then some or all rows may have been lost.
    ///
    /// # Errors
    /// When the file cannot be opened at the moment.
    pub fn watermarks(&self, owner: &Owner) -> Result<BTreeMap<ProgramId, u64>, TablesError> {
        let tables = self.owners.tables(owner);
        let _changing = tables.changing.lock();
        tables.running_worker()?;
        Ok(tables.state.lock().watermarks.clone())
    }

    /// Applies changes to the owner's tables, all of them or none.
    ///
    /// # Errors
    /// When no change was applied, or it is unknown whether they were: then the watermarks show it.
    pub fn apply(&self, owner: &Owner, changes: Vec<Change>) -> Result<(), TablesError> {
        self.apply_in_order(owner, [changes])
    }

    /// Applies transactions to the owner's tables in order, each of them completely or not at all.
    /// While one is committed, the next is taken from the iterator, so that reading what it
    /// contains costs no time of its own. The iterator must not use the tables of this owner.
    ///
    /// # Errors
    /// When a transaction was not applied, or it is unknown whether it was: then the watermarks
    /// show it. The transactions before it were applied, and the ones after it were not.
    pub fn apply_in_order(
        &self,
        owner: &Owner,
        transactions: impl IntoIterator<Item = Vec<Change>>,
    ) -> Result<(), TablesError> {
        apply::apply(&self.owners.tables(owner), transactions)
    }

    /// Whether rows may be missing: the file was created anew, and [`Tables::set_complete`] was not
    /// called since. Queries are refused in that state.
    pub fn is_incomplete(&self, owner: &Owner) -> bool {
        self.owners.tables(owner).is_incomplete()
    }

    /// Declares that the owner's file has all rows, so that queries are answered again. Call it
    /// whenever an owner's watermarks have reached the ends of the row logs; it is cheap when no
    /// rows were missing.
    ///
    /// # Errors
    /// When the note cannot be written.
    pub fn set_complete(&self, owner: &Owner) -> Result<(), TablesError> {
        self.owners.tables(owner).set_complete()
    }

    /// Answers a query.
    ///
    /// # Errors
    /// Why the query has no answer.
    pub fn query(&self, owner: &Owner, request: QueryRequest) -> Result<QueryAnswer, QueryError> {
        self.query_when(owner, request, || Ok(()), &|| false)
    }

    /// Waits until `ready` returns, then answers a query unless it is interrupted. While it waits,
    /// it counts as one of the owner's queries.
    ///
    /// # Errors
    /// Why the query has no answer.
    pub fn query_when(
        &self,
        owner: &Owner,
        request: QueryRequest,
        ready: impl FnOnce() -> Result<(), QueryError>,
        interrupted: Interrupted<'_>,
    ) -> Result<QueryAnswer, QueryError> {
        query_client::run_query(&self.owners.tables(owner), request, ready, interrupted)
    }

    /// Returns a digest of everything in the owner's file that queries can see: the same for the
    /// same changes, however often the file was rebuilt.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn digest(&self, owner: &Owner) -> Result<String, TablesError> {
        let tables = self.owners.tables(owner);
        let _changing = tables.changing.lock();
        let worker = tables.running_worker()?;
        let send = worker.timeouts().send;
        let pending =
            worker.send_request(&Request::Digest, &[], send).map_err(|_| tables.lost(&worker))?;
        match pending.next(TIMEOUT).map_err(|_| tables.lost(&worker))? {
            (Reply::Digest(digest), _) => Ok(digest),
            (reply, _) => Err(tables.failed(&worker, reply)),
        }
    }

    /// Determines how this kernel can confine workers, without opening any file.
    ///
    /// # Errors
    /// When no worker can be started.
    pub fn try_confinement(&self) -> Result<Confinement, TablesError> {
        self.owners.probe_confinement()
    }

    /// Usage of the worker permits.
    pub fn usage(&self) -> Usage {
        self.owners.permits.usage()
    }

    /// Confinement of workers; `None` until the first worker has started.
    pub fn confinement(&self) -> Option<Confinement> {
        *self.owners.confinement.lock()
    }

    /// Process id of the owner's running worker; `None` when there is none.
    pub fn process(&self, owner: &Owner) -> Option<u32> {
        let tables = self.owners.tables(owner);
        tables.slot.worker().filter(|worker| worker.is_alive()).map(|worker| worker.id())
    }

    /// Path of the directory with an owner's files.
    pub fn directory(&self, owner: &Owner) -> PathBuf {
        self.owners.tables(owner).directory.path().to_owned()
    }

    /// Stops all workers, each after its current work. They are started again when they are needed.
    pub fn close(&self) {
        self.owners.stop_all();
    }
}
