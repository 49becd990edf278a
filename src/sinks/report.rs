//! What is said of sinks, and what they are asked for: as the service's commands have it.

use serde::{Deserialize, Serialize};

/// A sink as a running service has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkReport {
    /// Name of the sink.
    pub name: String,
    /// Address of the server, without password and parameters.
    pub address: String,
    /// Whether there is a connection to the server now.
    pub connected: bool,
    /// Why there is no connection, or nothing can be written at all, and what mends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Ledgers between the newest stored one and the oldest one up to which a live project has everything; `None`
    /// without such a project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_ledgers: Option<u32>,
    /// Seconds for which rows wait that are not in the database; 0 when none do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<u64>,
    /// Its projects, sorted by name: those that it has, and those whose rows it had.
    pub projects: Vec<SinkProjectReport>,
}

/// A project of a sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkProjectReport {
    /// Name of the project.
    pub project: String,
    /// Schema of its tables; empty if it can have none.
    pub schema: String,
    /// How its rows are.
    pub state: SinkProjectState,
    /// Why they are not live, or what they wait for, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Up to this ledger everything that was processed is there; `None` before the first fill is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<u32>,
    /// Entries of the project's log whose rows are in the tables that everybody sees.
    pub entries: u64,
    /// Entries of the project's log.
    pub of: u64,
    /// What the rows that everybody sees follow from: program, deployment and arrangement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
    /// Entries whose rows are filled in beside, while tables are filled again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled: Option<u64>,
    /// What others made that keeps filled tables from being put in their places, each with what to do about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<String>,
    /// The tables that everybody sees, sorted by name.
    #[serde(default)]
    pub tables: Vec<SinkTableReport>,
}

/// How the rows of a project in a sink are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkProjectState {
    /// All rows are there, or are about to be: new ones are added as they come.
    Live,
    /// There are more rows than those that are there; they are being added.
    CatchingUp,
    /// Rows that are there are not what they should be: they are derived again, or wait to be filled again.
    Behind,
    /// Tables are filled, beside those that everybody sees.
    Filling,
    /// Tables are filled, and something keeps them from being put in their places: see `blocked_by`.
    Blocked,
    /// The sink stopped adding rows until somebody changes something: see `reason`.
    Stopped,
    /// The project can have no tables in this database: see `reason`.
    Refused,
    /// There is no project of this name yet.
    Waiting,
    /// Its owner has paused the project: it has all rows so far.
    Paused,
    /// The project was deleted: its tables stay.
    Deleted,
    /// The project was taken out of the sink's list: its tables stay.
    Left,
}

impl SinkProjectState {
    /// Returns its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::CatchingUp => "catching_up",
            Self::Behind => "behind",
            Self::Filling => "filling",
            Self::Blocked => "blocked",
            Self::Stopped => "stopped",
            Self::Refused => "refused",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Deleted => "deleted",
            Self::Left => "left",
        }
    }
}

/// A table of a project in a sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkTableReport {
    /// Name in its schema.
    pub name: String,
    /// Number of rows that the sink wrote.
    pub rows: u64,
    /// Characters U+0000 in them that were written as `\x00`.
    pub nuls: u64,
}

/// Request about one sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkRequest {
    /// Name of the sink.
    pub sink: String,
}

/// Request about a project of a sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkProjectRequest {
    /// Name of the sink.
    pub sink: String,
    /// Name of the project.
    pub project: String,
}

/// Request to remove a project from the database of a sink that does not have it any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkRemoval {
    /// Name of the sink.
    pub sink: String,
    /// Name of the project.
    pub project: String,
    /// Whether its tables and views are dropped. Otherwise they stay, and belong to the database's users from then
    /// on.
    pub drop: bool,
}

/// What a sink's server is, and what is missing there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkTestReport {
    /// Address of the server, without password and parameters.
    pub address: String,
    /// Version of the server.
    pub version: String,
    /// Role that writes.
    pub user: String,
    /// Database.
    pub database: String,
    /// What is missing, each with the statement that mends it.
    pub missing: Vec<String>,
    /// Projects that can have no tables there, each with the reason.
    pub refused: Vec<String>,
}

/// A table of a project, as it is in the database and as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkCheckedTable {
    /// Name with the schema.
    pub name: String,
    /// Number of rows that are there; `None` where the table is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Number of rows of the project's log.
    pub expected: u64,
    /// What is wrong, and what mends it, in one sentence; `None` when counts and digests are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
}
