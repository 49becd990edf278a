//! Protocol between the service and its SQL worker: frames over one stream socket, each with a
//! request or a reply as its head.

use std::collections::BTreeMap;

use orrery_ledger::domain::ProgramId;
use orrery_runtime::confinement::Confinement;
use serde::{Deserialize, Serialize};

pub use orrery_runtime::frames::{Frame, read, write};

use super::chain::ChainTable;
use super::names;
use super::query::{Format, Numbers};
use super::schema::ProgramSchema;

/// A request to the worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// First request: how to run, and to open the file.
    Open(Opening),
    /// Alternative first request: the worker confines itself, reports how far it could, and ends.
    Try(Opening),
    /// Begins a change. All up to `Progress` may follow; of all these only `Append` gets a reply.
    Begin,
    /// Creates a program's tables or alters them to match the definition.
    Define(Definition),
    /// Creates a program's tables of other columns beside those that queries see, or alters them.
    Fill(Filling),
    /// Removes the tables that are being filled beside those that queries see.
    Discard {
        /// The program.
        program: ProgramId,
    },
    /// Puts the tables that have been filled in the place of those that queries see.
    Swap {
        /// The program.
        program: ProgramId,
    },
    /// Appends rows to a table; the body is an Arrow IPC stream.
    Append {
        /// Name of the table.
        table: String,
    },
    /// Removes a program.
    Drop {
        /// The program.
        program: ProgramId,
    },
    /// Sets which ledgers the tables of a program have all rows of.
    Progress {
        /// The program.
        program: ProgramId,
        /// The first and the last ledger of each range.
        ranges: Vec<(u32, u32)>,
    },
    /// Ends the change, and commits all of it or nothing.
    Commit {
        /// Number of this change, counted over the life of the file.
        commit: u64,
        /// Number of the last row log entry of each program with new rows.
        watermarks: BTreeMap<ProgramId, u64>,
    },
    /// Rolls the change back.
    Abort,
    /// Adds a part of a table of the chain; the body of rows is an Arrow IPC stream. Gets no reply.
    Chain(ChainPart),
    /// Removes parts of tables of the chain, which later queries do not read. Gets no reply.
    ForgetChain {
        /// Numbers of the parts.
        parts: Vec<u64>,
    },
    /// Runs a query.
    Query(QuerySpec),
    /// Cancels a query, as if its time were up. Gets no reply of its own.
    Cancel {
        /// Request number of the query.
        query: u32,
    },
    /// Computes a digest of the tables, views, rows and watermarks in the file.
    Digest,
    /// Closes the file and ends the worker.
    Stop,
}

/// Settings of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Opening {
    /// Name of the database file in the worker's directory.
    pub file: String,
    /// Bytes of memory that DuckDB may use.
    pub memory: u64,
    /// Threads that DuckDB may use.
    pub threads: u32,
    /// Number of concurrent queries.
    pub queries: usize,
    /// Maximum size of the database file in bytes.
    pub file_bytes: u64,
    /// Whether the process confines itself.
    pub process_wall: bool,
    /// Whether statements are checked against the functions and tables that they may name.
    pub gate: bool,
    /// Whether DuckDB's configuration is locked and a query must be one read-only statement.
    pub lock: bool,
    /// The tables of the chain, if queries find them.
    pub chain: Option<ChainOpening>,
}

/// The tables of the chain, as a worker knows them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChainOpening {
    /// Absolute paths of the directories with their files, which the worker may read.
    pub directories: Vec<String>,
    /// The tables.
    pub tables: Vec<ChainTable>,
}

/// A part of a table of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainPart {
    /// Its number.
    pub number: u64,
    /// What it is.
    pub part: PartOfTable,
}

/// What a part of a table of the chain is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartOfTable {
    /// A list of files.
    Files(Vec<FileOfTable>),
    /// Rows in memory.
    Rows {
        /// First and last ledger outside of which no row is.
        ledgers: (u32, u32),
    },
}

/// A file of a table of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOfTable {
    /// Its directory, by its place in [`ChainOpening::directories`].
    pub directory: usize,
    /// Its name.
    pub name: String,
    /// Number of its rows.
    pub rows: u64,
    /// First and last ledger outside of which no row is.
    pub ledgers: (u32, u32),
}

/// A program's tables and views.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The program.
    pub program: ProgramId,
    /// Its project, after which its views are named; without views when it is empty.
    pub project: String,
    /// Whether the program belongs to the owner of the file; otherwise it is another owner's public
    /// program.
    pub own: bool,
    /// Its tables.
    pub schema: ProgramSchema,
}

impl Definition {
    /// Whether the program is a project of events.
    pub fn is_of_events(&self) -> bool {
        self.schema.of_events().events.is_some()
    }

    /// Returns the name under which a table of the program is stored.
    pub fn stored(&self, target: &str) -> String {
        names::stored(self.program, target, self.is_of_events())
    }
}

/// Tables of a program that are filled anew beside those that queries see, because those cannot be
/// converted in place. Rows go into these, from the first one on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filling {
    /// The program.
    pub program: ProgramId,
    /// Its tables as they will be.
    pub schema: ProgramSchema,
    /// Number of the last row log entry in the tables that queries see. With it these tables are
    /// complete, and take the place of the others.
    pub complete_at: u64,
}

/// A query with its limits and the format of its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QuerySpec {
    /// The statement.
    pub sql: String,
    /// Values of its parameters.
    pub params: Vec<serde_json::Value>,
    /// Maximum number of rows in the answer.
    pub rows: usize,
    /// Maximum length of the answer in bytes.
    pub bytes: usize,
    /// Time limit in milliseconds.
    pub milliseconds: u64,
    /// How integers of 64 bits and more, and decimals, are written.
    pub numbers: Numbers,
    /// Format of the answer.
    pub format: Format,
    /// What the tables of the chain consist of that it may read; `None` when it reads none.
    pub chain: Option<SentParts>,
}

/// Parts of the tables of the chain that a query reads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SentParts {
    /// The tables.
    pub tables: Vec<PartsOfTable>,
}

/// Parts of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartsOfTable {
    /// Name of the table.
    pub table: String,
    /// Number of its list of files.
    pub files: u64,
    /// Numbers of its rows in memory, in the order of ledgers.
    pub rows: Vec<u64>,
}

/// A reply of the worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The worker has confined itself as far as stated, and will open the file next.
    Ready(Confinement),
    /// The file is open.
    Opened {
        /// Number of the last change.
        commit: u64,
        /// Programs whose tables the file has.
        programs: Vec<Definition>,
        /// Number of the row log entry after which the rows of each program continue.
        watermarks: BTreeMap<ProgramId, u64>,
        /// Programs whose tables are being filled anew.
        fillings: Vec<Filling>,
    },
    /// A frame of rows was processed. Whether DuckDB accepted the rows is reported by the commit.
    Appended,
    /// The change is committed.
    Committed,
    /// The query was answered; the body is the answer.
    Answered,
    /// The digest, in hexadecimal digits.
    Digest(String),
    /// The request failed.
    Failed(Failure),
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "message")]
pub enum Failure {
    /// The statement or the change is not accepted, or it fails.
    Refused(String),
    /// The answer exceeds the limit of rows or bytes.
    TooLarge(String),
    /// The query exceeded its time limit or was cancelled.
    TimedOut,
    /// Another process has locked the file.
    Locked(String),
    /// The file is damaged.
    Damaged(String),
    /// The read-only transaction of a query no longer existed when the query had ended.
    TransactionEnded(String),
    /// Something of the service that the query reads cannot be read, in words for the user.
    Unreadable(String),
    /// Any other failure, possibly temporary.
    Unavailable(String),
}

impl Failure {
    /// Returns the same failure with the directory removed from paths in its message.
    pub fn without(&self, directory: &str) -> Self {
        let hide = |message: &String| message.replace(&format!("{directory}/"), "");
        match self {
            Self::Refused(message) => Self::Refused(hide(message)),
            Self::TooLarge(message) => Self::TooLarge(hide(message)),
            Self::Locked(message) => Self::Locked(hide(message)),
            Self::Damaged(message) => Self::Damaged(hide(message)),
            Self::TransactionEnded(message) => Self::TransactionEnded(hide(message)),
            Self::Unreadable(message) => Self::Unreadable(hide(message)),
            Self::Unavailable(message) => Self::Unavailable(hide(message)),
            Self::TimedOut => Self::TimedOut,
        }
    }
}
