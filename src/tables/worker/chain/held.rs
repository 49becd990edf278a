//! What the worker has of the tables of the chain: lists of files and rows in memory, by the numbers that the
//! service gave them.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::ipc::reader::StreamReader;
use arrow::record_batch::RecordBatch;
use duckdb::Connection;
use parking_lot::Mutex;
use serde_json::Value as Json;

use super::files::DataFiles;
use super::plan::{Needs, needs};
use super::scans::Scans;
use crate::chain::{ChainTable, MAX_BATCH_ROWS};
use crate::wire::{ChainOpening, ChainPart, FileOfTable, PartOfTable, SentParts};

/// What the worker has.
pub struct Held {
    tables: Arc<Vec<ChainTable>>,
    files: Arc<DataFiles>,
    scans: Arc<Scans>,
    parts: Mutex<HashMap<u64, Part>>,
}

#[derive(Clone)]
enum Part {
    Files(Arc<Vec<FileOfTable>>),
    Rows(Arc<HeldRows>),
}

/// Rows of a table in memory.
pub struct HeldRows {
    /// First and last ledger outside of which no row is.
    pub ledgers: (u32, u32),
    /// The rows, at most [`MAX_BATCH_ROWS`] in each.
    pub batches: Vec<RecordBatch>,
}

/// What a query finds in a table.
pub struct Content {
    /// Files with its rows.
    pub files: Arc<Vec<FileOfTable>>,
    /// Rows in memory.
    pub rows: Vec<Arc<HeldRows>>,
}

/// What a query finds in the tables of the chain.
pub struct ChainQuery {
    definitions: Arc<Vec<ChainTable>>,
    tables: HashMap<String, Content>,
    /// Files that are open.
    pub files: Arc<DataFiles>,
    /// Scans of all queries.
    pub scans: Arc<Scans>,
    needs: Mutex<HashMap<String, Arc<Needs>>>,
    stopped: AtomicBool,
    trouble: OnceLock<String>,
}

impl Held {
    /// Creates what a worker has that was opened with these tables.
    pub fn new(opening: Option<ChainOpening>) -> Self {
        let (directories, tables) =
            opening.map(|it| (it.directories, it.tables)).unwrap_or_default();
        Self {
            tables: Arc::new(tables),
            files: Arc::new(DataFiles::new(directories)),
            scans: Arc::default(),
            parts: Mutex::default(),
        }
    }

    /// The tables.
    pub fn tables(&self) -> &[ChainTable] {
        &self.tables
    }

    /// Adds a part.
    ///
    /// # Errors
    /// When the rows are not an Arrow IPC stream with batches of the right size.
    pub fn add(&self, ChainPart { number, part }: ChainPart, body: &[u8]) -> io::Result<()> {
        let part = match part {
            PartOfTable::Files(files) => Part::Files(Arc::new(files)),
            PartOfTable::Rows { ledgers } => {
                let broken = |error| io::Error::new(ErrorKind::InvalidData, error);
                let stream = StreamReader::try_new(body, None).map_err(broken)?;
                let batches: Vec<_> = stream.collect::<Result<_, _>>().map_err(broken)?;
                if batches.iter().any(|batch| batch.num_rows() > MAX_BATCH_ROWS) {
                    return Err(io::Error::new(
                        ErrorKind::InvalidData,
                        "a batch has too many rows",
                    ));
                }
                Part::Rows(Arc::new(HeldRows { ledgers, batches }))
            }
        };
        self.parts.lock().insert(number, part);
        Ok(())
    }

    /// Removes parts. Queries that have begun keep them.
    pub fn forget(&self, parts: &[u64]) {
        let mut held = self.parts.lock();
        parts.iter().for_each(|part| drop(held.remove(part)));
    }

    /// Returns what a query finds that names these parts; `None` when one of them is not here.
    pub fn query(&self, sent: &SentParts) -> Option<ChainQuery> {
        let parts = self.parts.lock();
        let mut tables = HashMap::new();
        for table in &sent.tables {
            let Some(Part::Files(files)) = parts.get(&table.files).cloned() else { return None };
            let rows = table.rows.iter().map(|number| match parts.get(number) {
                Some(Part::Rows(rows)) => Some(Arc::clone(rows)),
                _ => None,
            });
            let rows = rows.collect::<Option<_>>()?;
            tables.insert(table.table.clone(), Content { files, rows });
        }
        Some(ChainQuery {
            definitions: Arc::clone(&self.tables),
            tables,
            files: Arc::clone(&self.files),
            scans: Arc::clone(&self.scans),
            needs: Mutex::default(),
            stopped: AtomicBool::new(false),
            trouble: OnceLock::new(),
        })
    }
}

impl HeldRows {
    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.batches.iter().map(|batch| batch.num_rows() as u64).sum()
    }
}

impl Content {
    /// Number of rows.
    pub fn rows(&self) -> u64 {
        let in_files: u64 = self.files.iter().map(|file| file.rows).sum();
        in_files.saturating_add(self.rows.iter().map(|rows| rows.rows()).sum())
    }
}

impl ChainQuery {
    /// Returns what it finds in a table.
    pub fn table(&self, name: &str) -> Option<&Content> {
        self.tables.get(name)
    }

    /// Finds out which rows a text needs with these values of its parameters, before it is executed. Where that
    /// cannot be told, it needs all.
    pub fn plan(&self, planner: &Connection, sql: &str, parameters: &[Json]) {
        // Optimized, it would show that the planner has no row.
        let serialize = "SELECT json_serialize_plan(?::VARCHAR)";
        let plan: duckdb::Result<String> = planner.query_row(serialize, [sql], |row| row.get(0));
        let Ok(plan) = plan else { return };
        let tables = self.definitions.iter().filter(|table| self.tables.contains_key(&table.name));
        let found = tables.map(|it| (it.name.clone(), Arc::new(needs(&plan, it, parameters))));
        *self.needs.lock() = found.collect();
    }

    /// Returns which rows of a table the query needs.
    pub fn needs(&self, table: &str) -> Arc<Needs> {
        self.needs.lock().get(table).cloned().unwrap_or_default()
    }

    /// Notes that something cannot be read, and returns the sentence for the user, which DuckDB hands on as the
    /// failure of the statement.
    pub fn unreadable(&self, sentence: String) -> String {
        self.trouble.get_or_init(|| sentence).clone()
    }

    /// Returns what could not be read, in words for the user, if anything.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.get().map(String::as_str)
    }

    /// Ends the reading of rows.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether the reading of rows is to end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
