//! DuckDB, and the only place that knows it: types of columns, tables of programs, rows, and the
//! processes that keep them and run SQL.
//!
//! What is kept here can be lost: the truth about rows is elsewhere, and each file says how much of it it
//! has ([`Tables::watermarks`]). There is one file per owner, in a directory of its own, and one process
//! per file, so that nobody can reach what is another's by any mistake of SQL. `types`, `values`, `spec`
//! and [`schema`] know no DuckDB; `worker` is what runs in the other process, and `wire` what is said
//! between the two.

mod answer;
mod apply;
mod complaints;
mod encode;
mod files;
mod names;
mod owners;
pub mod portable;
mod process;
pub mod query;
mod question;
pub mod schema;
mod seat;
pub mod show;
mod spec;
pub mod types;
mod values;
// Public for a fuzz target.
#[doc(hidden)]
pub mod wire;
pub mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

pub use self::names::{INJECTED, snake_cases};
use self::owners::Owners;
pub use self::process::Timeouts;
use self::query::{Interrupted, QueryAnswer, QueryError, QueryRequest};
use self::schema::ProgramSchema;
use self::wire::{Reply, Request};
use crate::budget::Usage;
pub use crate::confinement::Confinement;
use crate::domain::{CloseTime, Emit, Hash32, LedgerSeq, Owner, ProgramId, TxHash};

/// The longest wait for anything that has no limit of its own.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Where tables are kept, and by whom.
#[derive(Debug, Clone)]
pub struct TablesSettings {
    /// A directory for tables alone.
    pub directory: PathBuf,
    /// The program that becomes a worker: this one.
    pub worker: PathBuf,
    /// How much a query may use.
    pub limits: QueryLimits,
    /// What holds workers back: all of it, but for tests of each part alone.
    pub walls: Walls,
    /// Whether queries are answered where the kernel does not hold workers back.
    pub allow_unconfined: bool,
    /// How long workers may take for what is not a query.
    pub timeouts: Timeouts,
}

/// How much queries may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryLimits {
    /// Until a query is stopped.
    pub time: Duration,
    /// Bytes of memory that DuckDB may use for one owner.
    pub memory: u64,
    /// Threads that DuckDB may use for one owner.
    pub threads: u32,
    /// Rows of an answer.
    pub rows: usize,
    /// Bytes of an answer.
    pub bytes: usize,
    /// Bytes of a statement.
    pub text: usize,
    /// Queries of one owner at a time.
    pub at_a_time: usize,
    /// Until a worker that nobody needs is ended.
    pub idle: Duration,
    /// Workers that run at a time, one for each owner.
    pub workers: usize,
    /// How long a query waits until there is a place for its owner's worker.
    pub wait: Duration,
    /// Bytes that the file of one owner may grow to.
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

/// What holds a worker back. Each must suffice alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walls {
    /// The process gives up files, networks, other processes and resources.
    pub process: bool,
    /// Statements are judged by what they name, before they are executed.
    pub gate: bool,
    /// DuckDB is locked, and executes nothing but one statement that reads, in a transaction that only reads.
    pub lock: bool,
}

impl Default for Walls {
    fn default() -> Self {
        Self { process: true, gate: true, lock: true }
    }
}

/// A change of an owner's tables.
#[derive(Debug, Clone)]
pub enum Change {
    /// A program is new, or its tables have grown.
    Program {
        /// The program.
        id: ProgramId,
        /// Its project, after which views are called.
        project: String,
        /// Whether it is the owner's own; else it is someone's public one.
        own: bool,
        /// Its tables. Where those of the file cannot grow into them, the program is begun anew, with
        /// the watermark 0.
        schema: ProgramSchema,
    },
    /// Rows of a program.
    Rows {
        /// The program.
        program: ProgramId,
        /// The number of the row log entry before the first: the program's watermark.
        after: u64,
        /// The number of the last row log entry.
        up_to: u64,
        /// The rows, in the order of the log.
        rows: Vec<Row>,
    },
    /// A program is gone.
    Drop {
        /// The program.
        program: ProgramId,
    },
}

/// One row: an emit, and what it was made by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The emit.
    pub emit: Emit,
    /// The transaction.
    pub transaction: TxHash,
    /// What identifies the row: see [`event_id`].
    pub event_id: Hash32,
    /// The ledger of the transaction.
    pub ledger: LedgerSeq,
    /// When the ledger closed.
    pub closed_at: CloseTime,
}

/// What identifies a row: SHA-256 over the program's number (4 bytes, big-endian), the transaction's hash
/// and the number of the emit in its run (4 bytes, big-endian).
pub fn event_id(program: ProgramId, transaction: &TxHash, emit: u32) -> Hash32 {
    let mut digest = Sha256::new();
    digest.update(program.0.to_be_bytes());
    digest.update(transaction.as_bytes());
    digest.update(emit.to_be_bytes());
    Hash32(digest.finalize().into())
}

/// Why tables cannot be changed or looked at.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// The process or its file is not to be had right now. Afterwards the watermarks must be asked for
    /// again.
    #[error("{0}")]
    Unavailable(String),
    /// There was no place for another worker for a while.
    #[error("{0} workers run for other owners")]
    AllPlacesTaken(usize),
    /// DuckDB does not take a change, and would not another time either. Nothing of it was made.
    #[error("DuckDB refuses them: {0}")]
    Refused(String),
    /// Rows that do not continue what is there.
    #[error("program {program} has rows up to {watermark}, and these come after {after}")]
    OutOfStep {
        /// The program.
        program: ProgramId,
        /// What is there.
        watermark: u64,
        /// What they continue.
        after: u64,
    },
    /// Rows of a program that is not there.
    #[error("program {0} is not known to the tables of this owner")]
    UnknownProgram(ProgramId),
    /// A row whose table is not there.
    #[error("program {program} has no table for '{target}'")]
    UnknownTarget {
        /// The program.
        program: ProgramId,
        /// The target.
        target: String,
    },
    /// A value that was not admitted to its column.
    #[error("column '{column}' of '{target}' was not made for this value: {reason}")]
    NotAdmitted {
        /// The target.
        target: String,
        /// The column.
        column: String,
        /// What is wrong.
        reason: String,
    },
    /// Rows cannot be packed.
    #[error("rows cannot be packed: {0}")]
    Packing(#[from] arrow::error::ArrowError),
    /// A file of the owner's directory.
    #[error("the directory of tables {path} cannot be used: {error}")]
    Directory {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        error: std::io::Error,
    },
}

/// The tables of all owners. Cheap to clone; every call blocks until it is done.
#[derive(Clone)]
pub struct Tables {
    owners: Arc<Owners>,
}

impl Tables {
    /// Opens the directory. Nothing is started before it is needed.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn open(settings: TablesSettings) -> Result<Self, TablesError> {
        Ok(Self { owners: Owners::open(settings)? })
    }

    /// How much of each program's row log the owner's file has. It holds until the next call that
    /// fails; rows may have been lost by then, all of them at worst.
    ///
    /// # Errors
    /// When the file cannot be opened right now.
    pub fn watermarks(&self, owner: &Owner) -> Result<BTreeMap<ProgramId, u64>, TablesError> {
        let slot = self.owners.slot(owner);
        let _changing = slot.changing.lock();
        slot.running()?;
        Ok(slot.state.lock().watermarks.clone())
    }

    /// Makes changes, all of them or none.
    ///
    /// # Errors
    /// When none was made, or it is not known whether they were: then the watermarks tell.
    pub fn apply(&self, owner: &Owner, changes: Vec<Change>) -> Result<(), TablesError> {
        apply::apply(&self.owners.slot(owner), changes)
    }

    /// Whether rows may be missing: the file was begun anew, and [`Tables::set_complete`] was not called
    /// since. Queries are not answered then.
    pub fn is_incomplete(&self, owner: &Owner) -> bool {
        self.owners.slot(owner).is_incomplete()
    }

    /// Says that the owner's file has all rows that there are, so that queries are answered again. To be
    /// called whenever an owner's watermarks have reached the ends of the row logs; it costs nothing when
    /// nothing was missing.
    ///
    /// # Errors
    /// When that cannot be noted.
    pub fn set_complete(&self, owner: &Owner) -> Result<(), TablesError> {
        self.owners.slot(owner).set_complete()
    }

    /// Answers a query.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn query(&self, owner: &Owner, request: QueryRequest) -> Result<QueryAnswer, QueryError> {
        self.query_when(owner, request, || Ok(()), &|| false)
    }

    /// Answers a query once the tables are `ready`, unless it is interrupted. While it waits for that, it
    /// counts as one of the owner's queries.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn query_when(
        &self,
        owner: &Owner,
        request: QueryRequest,
        ready: impl FnOnce() -> Result<(), QueryError>,
        interrupted: Interrupted<'_>,
    ) -> Result<QueryAnswer, QueryError> {
        question::ask(&self.owners.slot(owner), request, ready, interrupted)
    }

    /// A digest of everything in the owner's file that queries can see: the same for the same changes,
    /// however often the file was built anew.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn digest(&self, owner: &Owner) -> Result<String, TablesError> {
        let slot = self.owners.slot(owner);
        let _changing = slot.changing.lock();
        let worker = slot.running()?;
        let send = worker.timeouts().send;
        let asked = worker.ask(&Request::Digest, &[], send).map_err(|_| slot.lost(&worker))?;
        match asked.next(TIMEOUT).map_err(|_| slot.lost(&worker))? {
            (Reply::Digest(digest), _) => Ok(digest),
            (reply, _) => Err(slot.failed(&worker, reply)),
        }
    }

    /// Learns what holds workers back on this machine, without opening any file.
    ///
    /// # Errors
    /// When no worker can be started.
    pub fn try_confinement(&self) -> Result<Confinement, TablesError> {
        self.owners.try_out()
    }

    /// What is taken of the places for workers.
    pub fn usage(&self) -> Usage {
        self.owners.places.usage()
    }

    /// What holds workers back; none before the first was started.
    pub fn confinement(&self) -> Option<Confinement> {
        *self.owners.confinement.lock()
    }

    /// The process that runs for an owner, if one does.
    pub fn process(&self, owner: &Owner) -> Option<u32> {
        let slot = self.owners.slot(owner);
        slot.seat.worker().filter(|worker| worker.is_alive()).map(|worker| worker.id())
    }

    /// The directory of an owner's files.
    pub fn directory(&self, owner: &Owner) -> PathBuf {
        self.owners.slot(owner).directory.path().to_owned()
    }

    /// Ends all workers, each after what it is doing. They are started again when they are needed.
    pub fn close(&self) {
        self.owners.stop_all();
    }
}
