//! Tables of the chain itself, which every owner reads beside those of its projects. Their rows are in files that
//! the service writes for other engines, too, and, as far as no file has them yet, in its memory. This crate knows
//! neither: a [`Chain`] tells what a query finds, and the worker reads the files.
//!
//! Files are named to a worker once, and rows in memory are sent to it once; a query then says by numbers of which
//! of them its tables consist ([`sent`]).

mod sent;
mod table;

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use orrery_ledger::domain::{LedgerRange, LedgerSeq};

pub(crate) use self::sent::Sent;
pub use self::table::{ChainColumn, ChainTable, ChainType};
use crate::query::{Interrupted, QueryError};

/// Where the tables of the chain come from.
pub trait Chain: Debug + Send + Sync {
    /// The tables.
    fn tables(&self) -> &[ChainTable];

    /// Absolute paths of the directories with the files, as far as they exist. Nothing else is in them.
    fn directories(&self) -> Vec<PathBuf>;

    /// Returns what a query finds that begins now, of the tables whose names `is_wanted` accepts: each row once,
    /// and none missing up to [`ChainSnapshot::newest`]. The files stay for as long as a query may take.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] when that is not known, or too much of it is in no file;
    /// [`QueryError::Interrupted`].
    fn snapshot(
        &self,
        is_wanted: &dyn Fn(&ChainTable) -> bool,
        interrupted: Interrupted<'_>,
    ) -> Result<ChainSnapshot, QueryError>;
}

/// What a query finds in the tables of the chain.
#[derive(Debug, Clone, Default)]
pub struct ChainSnapshot {
    /// The newest ledger; `None` when there is none.
    pub newest: Option<LedgerSeq>,
    /// The wanted tables.
    pub tables: Vec<ChainContent>,
}

/// What a query finds in a table.
#[derive(Debug, Clone)]
pub struct ChainContent {
    /// Name of the table.
    pub table: String,
    /// The files with its rows.
    pub files: Arc<ChainFiles>,
    /// The rows that no file has, in the order of ledgers.
    pub rows: Vec<Arc<ChainRows>>,
}

/// Files of a table.
#[derive(Debug)]
pub struct ChainFiles {
    number: u64,
    list: Vec<ChainFile>,
}

/// A Parquet file of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainFile {
    /// Directory of the file, one of [`Chain::directories`].
    pub directory: PathBuf,
    /// Name of the file. What is in a file of a name never changes.
    pub name: String,
    /// Number of its rows.
    pub rows: u64,
    /// Ledgers outside of which no row is.
    pub ledgers: LedgerRange,
}

/// Rows of a table in memory.
#[derive(Debug)]
pub struct ChainRows {
    number: u64,
    ledgers: LedgerRange,
    bytes: Vec<u8>,
}

/// Maximum number of rows in a batch of [`ChainRows`].
pub const MAX_BATCH_ROWS: usize = 2048;

/// Returns a number that no other part of a table has in this process.
fn number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl ChainFiles {
    /// Creates a list of files.
    pub fn new(list: Vec<ChainFile>) -> Self {
        Self { number: number(), list }
    }

    /// The files.
    pub fn list(&self) -> &[ChainFile] {
        &self.list
    }
}

impl ChainRows {
    /// Creates rows of these ledgers, of an Arrow IPC stream whose batches have at most [`MAX_BATCH_ROWS`] rows and
    /// the columns of the table.
    pub fn new(ledgers: LedgerRange, bytes: Vec<u8>) -> Self {
        Self { number: number(), ledgers, bytes }
    }

    /// Ledgers outside of which no row is.
    pub fn ledgers(&self) -> LedgerRange {
        self.ledgers
    }

    /// The rows as an Arrow IPC stream.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
