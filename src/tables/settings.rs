//! Where tables are kept, and the limits and protections of the processes that keep them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orrery_settings::Queries;

use super::chain::Chain;
use super::worker_process::Timeouts;

/// Where tables are kept, and how workers run.
#[derive(Debug, Clone)]
pub struct TablesSettings {
    /// A directory used for tables only.
    pub directory: PathBuf,
    /// The program to start as a worker: this binary.
    pub worker: PathBuf,
    /// Limits of queries.
    pub queries: Queries,
    /// Tables of the chain itself; `None` when queries find none.
    pub chain: Option<Arc<dyn Chain>>,
    /// What no setting changes.
    pub tunables: Tunables,
}

/// Values that no setting changes, and tests do.
#[derive(Debug, Clone, Copy)]
pub struct Tunables {
    /// Idle time after which a worker is stopped.
    pub idle: Duration,
    /// Protections to apply to workers: all of them, except in tests of a single one.
    pub protections: Protections,
    /// Timeouts of requests to workers that are not queries.
    pub timeouts: Timeouts,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(300),
            protections: Protections::default(),
            timeouts: Timeouts::default(),
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
