//! SQL tables in DuckDB: types of columns, tables of programs, rows, and the worker processes that
//! keep them and run SQL. Nothing outside of this crate depends on DuckDB; [`ffi`] wraps some
//! functions of its C API.
//!
//! The files kept here can be rebuilt: the row log in the store is the source of truth, and each
//! file records how much of it it holds ([`Tables::watermarks`]). Every owner has one file, in a
//! directory of its own, and one process per file, so that no flaw of SQL gives access to another
//! owner's data. `types`, `values`, `spec`, [`schema`] and [`event_tables`] do not depend on DuckDB;
//! `worker` runs in the child process, and `wire` is the protocol between the service and the child.

mod answer;
mod apply;
pub mod chain;
mod changes;
mod encode;
mod error;
pub mod event_tables;
mod worker_log;
// Public for a fuzz target.
pub mod export_types;
#[doc(hidden)]
pub mod ffi;
mod files;
mod frame;
mod names;
mod owners;
pub mod query;
mod query_client;
mod row;
pub mod schema;
mod settings;
pub mod show;
mod spec;
mod types;
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

use orrery_ledger::domain::{Owner, ProgramId};
use orrery_runtime::budget::Usage;

pub use self::changes::{Change, NewRows};
pub use self::encode::integer;
pub use self::error::TablesError;
pub use self::frame::Frame;
pub use self::names::{
    CHAIN, INJECTED, first_version, folded, in_query, in_shown_order, may_be_schema, snake_cases,
    view, written,
};
use self::owners::Owners;
use self::query::{Interrupted, QueryAnswer, QueryError, QueryRequest};
pub use self::row::{Row, change_id, event_id};
pub use self::settings::{Protections, TablesSettings, Tunables};
pub use self::types::{ColumnType, Field};
pub use self::values::{is_column, is_named, is_null, plain, tagged};
use self::wire::{Definition, Reply, Request};
pub use self::worker_process::Timeouts;
pub use orrery_runtime::confinement::Confinement;

/// Timeout of requests that have no limit of their own.
const TIMEOUT: Duration = Duration::from_secs(3600);

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

    /// Returns the number of the last row log entry of each program in the owner's file, after which
    /// its rows continue. While tables are filled anew ([`Change::Program`]), it is that of the new
    /// ones. The result holds until the next call that fails; by then some or all rows may have been
    /// lost.
    ///
    /// # Errors
    /// When the file cannot be opened at the moment.
    pub fn watermarks(&self, owner: &Owner) -> Result<BTreeMap<ProgramId, u64>, TablesError> {
        let tables = self.owners.tables(owner);
        let _changing = tables.changing.lock();
        tables.running_worker()?;
        Ok(tables.state.lock().watermarks.clone())
    }

    /// Returns the number of the last row log entry that queries see, of each program whose tables
    /// are being filled anew.
    ///
    /// # Errors
    /// When the file cannot be opened at the moment.
    pub fn filled_anew(&self, owner: &Owner) -> Result<BTreeMap<ProgramId, u64>, TablesError> {
        let tables = self.owners.tables(owner);
        let _changing = tables.changing.lock();
        tables.running_worker()?;
        let fillings = Arc::clone(&tables.state.lock().fillings);
        Ok(fillings.iter().map(|(program, filling)| (*program, filling.complete_at)).collect())
    }

    /// Returns the names of the tables that queries see, by program, as far as this process has opened
    /// the owner's file.
    pub fn shown_tables(&self, owner: &Owner) -> BTreeMap<ProgramId, Vec<String>> {
        let programs = Arc::clone(&self.owners.tables(owner).state.lock().programs);
        let tables = |it: &Definition| {
            let tables = it.schema.tables().iter();
            tables.map(|table| names::table(it.program, &table.target)).collect()
        };
        programs.iter().map(|(id, definition)| (*id, tables(definition))).collect()
    }

    /// Applies changes to the owner's tables, all of them or none.
    ///
    /// # Errors
    /// When no change was applied, or it is unknown whether they were: then the watermarks show it.
    pub fn apply(&self, owner: &Owner, changes: Vec<Change>) -> Result<(), TablesError> {
        self.apply_in_order(owner, [changes])
    }

    /// Applies transactions to the owner's tables in order, each of them completely or not at all.
    /// The changes of a transaction are taken from its iterator while the ones before are applied, and
    /// those of the next while it is committed, so that reading what they contain costs no time of its
    /// own. The iterators must not use the tables of this owner.
    ///
    /// # Errors
    /// When a transaction was not applied, or it is unknown whether it was: then the watermarks
    /// show it. The transactions before it were applied, and the ones after it were not.
    pub fn apply_in_order(
        &self,
        owner: &Owner,
        transactions: impl IntoIterator<Item: IntoIterator<Item = Change>>,
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

    /// Returns the tables of the chain itself, which all owners read.
    pub fn chain_tables(&self) -> &[chain::ChainTable] {
        self.owners.chain_tables()
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
