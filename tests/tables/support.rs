//! Owners, programs and values for tests.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use orrery_ledger::domain::{
    CloseTime, ContractId, Emit, Hash32, LedgerSeq, Owner, ProgramId, TxHash,
};
use orrery_settings::Queries;
use orrery_tables::query::{QueryError, QueryRequest};
use orrery_tables::schema::{ProgramSchema, SchemaError, SchemaLimits};
use orrery_tables::{Change, Row, Tables, TablesSettings, Tunables, event_id};
use orrery_testkit::program::example;
use orrery_testkit::values::symbol;
use serde_json::Value;
use stellar_xdr::{ScMap, ScMapEntry, ScVal};
use tempfile::TempDir;

/// A program that does nothing but the worker's part of the binary.
pub static WORKER: LazyLock<PathBuf> = LazyLock::new(|| example("sql_worker"));

/// Tables in a temporary directory.
pub struct World {
    pub tables: Tables,
    pub settings: TablesSettings,
    pub root: TempDir,
}

impl World {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// As [`Self::new`], with changed settings.
    pub fn with(change: impl FnOnce(&mut TablesSettings)) -> Self {
        let root = TempDir::new().unwrap();
        let mut settings = TablesSettings {
            directory: root.path().join("tables"),
            worker: WORKER.clone(),
            // Most tests do not depend on Landlock, so they also run on kernels without it.
            queries: Queries { allow_unconfined: true, ..Queries::default() },
            chain: None,
            tunables: Tunables::default(),
        };
        change(&mut settings);
        let tables = Tables::open(settings.clone()).unwrap();
        Self { tables, settings, root }
    }

    /// Closes everything and opens the same directory again.
    pub fn reopen(&mut self) {
        self.tables.close();
        self.tables = Tables::open(self.settings.clone()).unwrap();
    }

    /// Returns the rows of an answer; panics on an error.
    pub fn rows(&self, owner: &Owner, sql: &str) -> Value {
        self.try_rows(owner, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Returns the rows of an answer, or the error.
    pub fn try_rows(&self, owner: &Owner, sql: &str) -> Result<Value, QueryError> {
        let request = QueryRequest { query: sql.to_owned(), ..QueryRequest::default() };
        let answer = self.tables.query(owner, request)?;
        Ok(serde_json::from_slice(&answer.bytes).unwrap())
    }
}

pub fn owner(name: &str) -> Owner {
    Owner(name.to_owned())
}

/// A program of an owner, with all rows that it has emitted.
pub struct Program {
    pub id: ProgramId,
    pub project: String,
    pub schema: ProgramSchema,
    pub rows: Vec<Row>,
    /// Row log: the number of rows after each entry.
    pub log: Vec<usize>,
}

impl Program {
    pub fn new(id: u32, project: &str) -> Self {
        let (id, project) = (ProgramId(id), project.to_owned());
        Self { id, project, schema: ProgramSchema::default(), rows: Vec::new(), log: Vec::new() }
    }

    /// Returns the change that defines the program as it is now.
    pub fn definition(&self) -> Change {
        let (id, project, schema) = (self.id, self.project.clone(), self.schema.clone());
        Change::Program { id, project, own: true, schema }
    }

    /// Runs the program once, with the emits of one transaction. On an error, no row is added.
    pub fn run(&mut self, emits: Vec<Emit>) -> Result<(), SchemaError> {
        if let Some(schema) = self.schema.admit(&emits, SchemaLimits::default())? {
            self.schema = schema;
        }
        let number = u32::try_from(self.log.len()).unwrap() + 1;
        let mut transaction = [0; 32];
        transaction[..4].copy_from_slice(&number.to_be_bytes());
        transaction[31] = u8::try_from(self.id.0 % 256).unwrap();
        let transaction: TxHash = Hash32(transaction);
        for (at, emit) in (0..).zip(emits) {
            self.rows.push(Row {
                emit,
                transaction,
                event_id: event_id(self.id, &transaction, at),
                ledger: LedgerSeq(1_000 + number),
                closed_at: CloseTime::Seconds(1_700_000_000 + u64::from(number) * 5),
            });
        }
        self.log.push(self.rows.len());
        Ok(())
    }

    /// Returns the change with the rows of log entries `after + 1` to `up_to`.
    pub fn between(&self, after: u64, up_to: u64) -> Change {
        let at = |number: u64| match usize::try_from(number).unwrap() {
            0 => 0,
            number => self.log[number - 1],
        };
        let rows = self.rows[at(after)..at(up_to)].to_vec();
        Change::Rows { program: self.id, after, up_to, rows: rows.into() }
    }

    /// Returns the number of the last log entry.
    pub fn end(&self) -> u64 {
        u64::try_from(self.log.len()).unwrap()
    }

    /// Feeds an owner's tables up to the end of the log, `at_a_time` entries per call.
    pub fn feed(&self, tables: &Tables, owner: &Owner, at_a_time: u64) {
        let mut after = tables.watermarks(owner).unwrap().get(&self.id).copied().unwrap_or(0);
        tables.apply(owner, vec![self.definition()]).unwrap();
        while after < self.end() {
            let up_to = self.end().min(after + at_a_time);
            tables.apply(owner, vec![self.between(after, up_to)]).unwrap();
            after = up_to;
        }
        tables.set_complete(owner).unwrap();
    }
}

/// Returns the emit of a struct.
pub fn emit(target: &str, fields: impl IntoIterator<Item = (&'static str, ScVal)>) -> Emit {
    let mut fields: Vec<ScMapEntry> =
        fields.into_iter().map(|(key, val)| ScMapEntry { key: symbol(key), val }).collect();
    fields.sort();
    Emit {
        contract: ContractId([7; 32]),
        target: target.to_owned(),
        fields: ScMap(fields.try_into().unwrap()),
    }
}

/// Returns the path of an owner's database file.
pub fn database(tables: &Tables, owner: &Owner) -> PathBuf {
    tables.directory(owner).join("db").join("tables.duckdb")
}

/// Returns the path of the write-ahead log of a database file.
pub fn log(database: &Path) -> PathBuf {
    database.with_extension("duckdb.wal")
}
