//! Where tables are kept, and the limits and protections of the processes that keep them.

use std::path::PathBuf;
use std::time::Duration;

use super::worker_process::Timeouts;

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
