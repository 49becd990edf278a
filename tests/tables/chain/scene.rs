//! Tables of the chain as files below a directory and rows in memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Int64Array, ListBuilder, StringArray, StringBuilder,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, Owner};
use orrery_tables::Protections;
use orrery_tables::chain::{
    Chain, ChainContent, ChainFile, ChainFiles, ChainRows, ChainSnapshot, ChainTable,
    MAX_BATCH_ROWS,
};
use orrery_tables::query::{Interrupted, QueryAnswer, QueryError, QueryRequest};
use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::support::{World, owner};

/// A row of the table.
#[derive(Debug, Clone)]
pub struct Row {
    pub id: i64,
    pub contract: Option<String>,
    pub ledger: i64,
    pub ok: bool,
    pub name: Option<String>,
    pub topics: Vec<String>,
}

pub const NAMES: [&str; 5] = ["mint", "burn", "transfer", "", "it's \"ü\""];

/// Microseconds at which a ledger closed.
pub fn closed(ledger: i64) -> i64 {
    1_700_000_000_000_000 + ledger * 5_000_000
}

/// Returns a time as a query writes it.
pub fn written(microseconds: i64) -> String {
    let time = time::OffsetDateTime::from_unix_timestamp(microseconds / 1_000_000).unwrap();
    format!("{} {}", time.date(), time.time())
}

pub fn random_rows(random: &mut ChaCha8Rng, ledger: u32) -> Vec<Row> {
    let row = |random: &mut ChaCha8Rng, at: i64| Row {
        id: i64::from(ledger) * 1000 + at,
        contract: random.random_bool(0.9).then(|| format!("C{}", random.random_range(0..4))),
        ledger: ledger.into(),
        ok: random.random_bool(0.7),
        name: random.random_bool(0.8).then(|| (*NAMES.choose(random).unwrap()).to_owned()),
        topics: (0..random.random_range(0..3)).map(|at| format!("t{at}")).collect(),
    };
    (0..random.random_range(0..7)).map(|at| row(random, at)).collect()
}

pub fn schema() -> Schema {
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let element = Field::new("element", DataType::Utf8, false);
    Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("contract_id", DataType::Utf8, true),
        Field::new("ledger", DataType::Int64, false),
        Field::new("ledger_closed_at", utc, false),
        Field::new("ok", DataType::Boolean, false),
        Field::new("topics", DataType::List(element.into()), false),
        Field::new("name", DataType::Utf8, true),
    ])
}

/// Rows as files and memory have them; an older file lacks the last column.
pub fn batch(rows: &[Row], older: bool) -> RecordBatch {
    let mut topics = ListBuilder::new(StringBuilder::new()).with_field(Field::new(
        "element",
        DataType::Utf8,
        false,
    ));
    for row in rows {
        row.topics.iter().for_each(|topic| topics.values().append_value(topic));
        topics.append(true);
    }
    let times = rows.iter().map(|row| closed(row.ledger));
    let times = TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC");
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.id))),
        Arc::new(StringArray::from_iter(rows.iter().map(|row| row.contract.as_deref()))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.ledger))),
        Arc::new(times),
        Arc::new(BooleanArray::from(rows.iter().map(|row| row.ok).collect::<Vec<_>>())),
        Arc::new(topics.finish()),
    ];
    let mut schema = schema();
    match older {
        true => schema = schema.project(&[0, 1, 2, 3, 4, 5]).unwrap(),
        false => {
            let names = rows.iter().map(|row| row.name.as_deref());
            columns.push(Arc::new(StringArray::from_iter(names)));
        }
    }
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

pub fn span(rows: &[Row]) -> LedgerRange {
    let ledgers = rows.iter().map(|row| u32::try_from(row.ledger).unwrap());
    LedgerRange::new(ledgers.clone().min().unwrap_or(0), ledgers.max().unwrap_or(0))
}

/// The table as files below a directory and rows in memory.
#[derive(Debug)]
pub struct StandIn {
    pub root: PathBuf,
    pub tables: Vec<ChainTable>,
    pub state: Mutex<State>,
}

#[derive(Debug, Default)]
pub struct State {
    pub files: Vec<ChainFile>,
    pub listed: Option<Arc<ChainFiles>>,
    pub rows: Vec<Arc<ChainRows>>,
    pub newest: Option<u32>,
    pub unavailable: bool,
}

impl StandIn {
    pub fn new(root: &Path) -> Arc<Self> {
        let tables = vec![ChainTable::of("events", &schema()).unwrap()];
        Arc::new(Self { root: root.to_owned(), tables, state: Mutex::default() })
    }

    pub fn events(&self) -> PathBuf {
        self.root.join("data/events")
    }

    /// Writes a file in small groups of rows.
    pub fn write(&self, name: &str, rows: &[Row], older: bool) -> ChainFile {
        let small = WriterProperties::builder().set_max_row_group_row_count(Some(10));
        self.write_batches(name, &[batch(rows, older)], span(rows), small.build())
    }

    /// Writes a file of one group, in which the rows are so many times.
    pub fn write_repeated(&self, name: &str, rows: &[Row], times: usize) -> ChainFile {
        let batches = vec![batch(rows, false); times];
        self.write_batches(name, &batches, span(rows), WriterProperties::default())
    }

    fn write_batches(
        &self,
        name: &str,
        batches: &[RecordBatch],
        ledgers: LedgerRange,
        properties: WriterProperties,
    ) -> ChainFile {
        let directory = self.events();
        fs::create_dir_all(&directory).unwrap();
        let file = File::create(directory.join(name)).unwrap();
        let schema = batches[0].schema();
        let mut writer = ArrowWriter::try_new(file, schema, Some(properties)).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.close().unwrap();
        let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        ChainFile { directory, name: name.to_owned(), rows, ledgers }
    }

    pub fn held(rows: &[Row]) -> Arc<ChainRows> {
        let mut writer = StreamWriter::try_new(Vec::new(), &schema()).unwrap();
        for rows in rows.chunks(MAX_BATCH_ROWS) {
            writer.write(&batch(rows, false)).unwrap();
        }
        writer.finish().unwrap();
        Arc::new(ChainRows::new(span(rows), writer.into_inner().unwrap()))
    }

    pub fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        state.listed = Some(Arc::new(ChainFiles::new(state.files.clone())));
    }
}

impl Chain for StandIn {
    fn tables(&self) -> &[ChainTable] {
        &self.tables
    }

    fn directories(&self) -> Vec<PathBuf> {
        let directory = self.events();
        if directory.is_dir() { vec![directory] } else { Vec::new() }
    }

    fn snapshot(
        &self,
        is_wanted: &dyn Fn(&ChainTable) -> bool,
        _: Interrupted<'_>,
    ) -> Result<ChainSnapshot, QueryError> {
        assert!(is_wanted(&self.tables[0]));
        let state = self.state.lock();
        if state.unavailable {
            return Err(QueryError::Unavailable("the export is behind".to_owned()));
        }
        let content = ChainContent {
            table: "events".to_owned(),
            files: state.listed.clone().unwrap_or_else(|| Arc::new(ChainFiles::new(Vec::new()))),
            rows: state.rows.clone(),
        };
        Ok(ChainSnapshot { newest: state.newest.map(LedgerSeq), tables: vec![content] })
    }
}

/// Tables with a chain.
pub struct Scene {
    pub world: World,
    pub chain: Arc<StandIn>,
    pub export: tempfile::TempDir,
}

impl Scene {
    pub fn new() -> Self {
        Self::with(Protections::default())
    }

    pub fn with(protections: Protections) -> Self {
        let export = tempfile::tempdir().unwrap();
        let chain = StandIn::new(export.path());
        let world = World::with(|settings| {
            settings.chain = Some(Arc::clone(&chain) as _);
            settings.tunables.protections = protections;
        });
        Self { world, chain, export }
    }

    /// An owner without programs, whose tables are complete.
    pub fn owner(&self, name: &str) -> Owner {
        let owner = owner(name);
        self.world.tables.apply(&owner, Vec::new()).unwrap();
        self.world.tables.set_complete(&owner).unwrap();
        owner
    }

    pub fn ask(&self, owner: &Owner, sql: &str) -> Result<QueryAnswer, QueryError> {
        let request = QueryRequest { query: sql.to_owned(), ..QueryRequest::default() };
        self.world.tables.query(owner, request)
    }

    pub fn text(&self, owner: &Owner, sql: &str) -> String {
        match self.ask(owner, sql) {
            Ok(answer) => String::from_utf8_lossy(&answer.bytes).into_owned(),
            Err(error) => error.to_string(),
        }
    }
}
/// A file with rows of ledgers `first` to `last`, one each.
pub fn plain_rows(first: u32, last: u32) -> Vec<Row> {
    let row = |ledger: u32| Row {
        id: ledger.into(),
        contract: Some("C0".to_owned()),
        ledger: ledger.into(),
        ok: true,
        name: None,
        topics: Vec::new(),
    };
    (first..=last).map(row).collect()
}
