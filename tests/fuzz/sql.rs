//! Examines and executes queries as the SQL worker does: any text is refused, or it is one
//! statement that reads, and DuckDB executed exactly what was examined. A query changes nothing,
//! and no response contains the secret, or says where the files of the tables of the chain are.

use std::fs::{self, File};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use std::{panic, thread};

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use duckdb::Connection;
use orrery::tables::chain::ChainTable;
use orrery::tables::ffi::{Database as Instance, Kind, StatementInspector};
use orrery::tables::query::{Format, Numbers};
use orrery::tables::wire::{
    ChainOpening, ChainPart, Failure, FileOfTable, Opening, PartOfTable, PartsOfTable, QuerySpec,
    SentParts,
};
use orrery::tables::worker::chain::{Held, select};
use orrery::tables::worker::database::{Database, Reader};
use orrery::tables::worker::query::{Examiner, answer};
use orrery::tables::worker::query_text::Text;
use orrery::tables::worker::timer::Timer;
use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use orrery_testkit::sql_fragments::made;

/// Content of a table that queries must not read, and of a file beside the database.
const SECRET: &str = "canary-51d2";
/// Placeholder for the path of that file in an input.
const OUTSIDE: &str = "{outside}";
/// Timeout of a query.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Stack of the worker's threads, in bytes.
const STACK: usize = 16 << 20;
/// Query of the state that must be the same after each query: rows, tables and views.
const STATE: &str = "SELECT concat_ws('; ',
    (SELECT concat(count(*), ' ', sum(a)) FROM retroshade.program_1_swap),
    (SELECT string_agg(secret) FROM orrery.canary),
    (SELECT list_sort(list(schema_name || table_name))::VARCHAR FROM duckdb_tables()),
    (SELECT list_sort(list(view_name))::VARCHAR FROM duckdb_views() WHERE NOT internal))";

struct Bench {
    outside: String,
    writer: Connection,
    reader: Reader,
    examiner: Examiner,
    timer: Arc<Timer>,
    /// Rows of `chain.events`, in a file and in memory.
    chain: Held,
    state: String,
    /// Reports the kind of an executed text, from a DuckDB instance of its own.
    inspector: StatementInspector,
    parser: Connection,
    _other: Instance,
    directory: TempDir,
}

static BENCH: LazyLock<Mutex<Bench>> = LazyLock::new(|| Mutex::new(Bench::new()));

impl Bench {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let outside = directory.path().join("outside.csv");
        fs::write(&outside, format!("a\n{SECRET}\n")).unwrap();
        let chain = chain(directory.path());
        let opening = Opening {
            file: directory.path().join("tables.duckdb").to_str().unwrap().to_owned(),
            memory: 256 << 20,
            threads: 1,
            queries: 1,
            file_bytes: 1 << 30,
            process_wall: false,
            gate: true,
            lock: true,
            chain: Some(chain.clone()),
        };
        let opened = Database::open(&opening);
        let (Database { writer, mut readers }, _) = opened.unwrap_or_else(|e| panic!("{e:?}"));
        let table = "CREATE TABLE retroshade.program_1_swap";
        let tables = format!(
            "{table} AS SELECT range AS a FROM range(5);
             CREATE TABLE orrery.canary AS SELECT '{SECRET}' AS secret;
             CREATE SCHEMA chain; CREATE VIEW chain.events AS {}",
            select(&chain.tables[0])
        );
        writer.execute_batch(&tables).unwrap();
        let reader = readers.pop().unwrap();
        let names = Arc::default();
        let examiner = Examiner::new(&reader.parser, &opening, Arc::clone(&names)).unwrap();
        Arc::make_mut(&mut names.write())
            .extend(["program_1_swap".to_owned(), "chain.events".to_owned()]);
        let timer = Arc::new(Timer::default());
        let running = Arc::clone(&timer);
        thread::spawn(move || running.run());
        let other = Instance::open(":memory:", &[]).unwrap();
        let inspector = other.inspector().unwrap();
        inspector
            .run(&format!("CREATE SCHEMA retroshade; {table} (a BIGINT); USE retroshade"))
            .unwrap();
        let mut bench = Self {
            outside: outside.to_str().unwrap().to_owned(),
            state: String::new(),
            parser: other.connect().unwrap(),
            _other: other,
            directory,
            writer,
            reader,
            examiner,
            timer,
            chain: held(chain),
            inspector,
        };
        bench.state = bench.state_now();
        bench
    }

    fn state_now(&self) -> String {
        self.writer.query_row(STATE, [], |row| row.get(0)).unwrap()
    }

    fn check(&self, sql: String) {
        let query = QuerySpec {
            sql,
            params: Vec::new(),
            rows: 1_000,
            bytes: 1 << 20,
            milliseconds: TIMEOUT.as_millis() as u64,
            numbers: Numbers::Exact,
            format: Format::Rows,
            chain: Some(parts()),
        };
        let sql = &query.sql;
        let chain = query.chain.as_ref().and_then(|parts| self.chain.query(parts)).map(Arc::new);
        let answered = answer(&self.reader, &self.examiner, &self.timer, 1, &query, chain.as_ref());
        let message = match &answered {
            Ok(rows) => std::str::from_utf8(rows).unwrap(),
            Err(Failure::Refused(sentence) | Failure::TooLarge(sentence)) => sentence,
            Err(Failure::TimedOut) => "",
            Err(failure) => panic!("{sql:?}: {failure:?}"),
        };
        assert!(!message.contains(SECRET), "{sql:?}: {message}");
        // DuckDB may quote the statement.
        let place = self.directory.path().to_str().unwrap();
        assert!(sql.contains(place) || !message.contains(place), "{sql:?}: {message}");
        assert_eq!(self.state_now(), self.state, "{sql:?}");
        // A query whose result was too large was executed as well.
        if let Ok(_) | Err(Failure::TooLarge(_)) = answered {
            self.is_one_that_reads(sql);
        }
    }

    fn is_one_that_reads(&self, sql: &str) {
        let text = Text::of(sql);
        let executed = text.executed();
        assert!(executed.ends_with(text.examined) && sql.ends_with(text.examined), "{sql:?}");
        let kind = match text.prefix {
            "" => Kind::Select,
            _ => Kind::Explain,
        };
        assert_eq!(self.inspector.only_statement(&executed), Ok(Some(kind)), "{sql:?}");
        // The statement whose plan is asked for is itself one that reads.
        assert_eq!(self.inspector.only_statement(text.examined), Ok(Some(Kind::Select)), "{sql:?}");
        let serialize = "SELECT json_serialize_sql(?::VARCHAR)";
        let seen: String =
            self.parser.query_row(serialize, [text.examined], |row| row.get(0)).unwrap();
        assert!(seen.starts_with("{\"error\":false"), "{sql:?}");
        assert!(!seen.contains("\"table_name\":\"canary\""), "{sql:?}");
    }
}

/// Rows of `chain.events` in ledgers `first` to `last`.
fn events(first: i64, last: i64) -> RecordBatch {
    let ledgers = || first..=last;
    let names = ledgers().map(|ledger| (ledger % 3 > 0).then(|| format!("name {}", ledger % 4)));
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(ledgers().map(|ledger| ledger * 10)))),
        ("ledger", Arc::new(Int64Array::from_iter_values(ledgers()))),
        ("name", Arc::new(names.collect::<StringArray>())),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Writes a file of `chain.events`; returns what a worker is opened with that reads it.
fn chain(directory: &Path) -> ChainOpening {
    let (directory, rows) = (directory.join("events"), events(1, 30));
    fs::create_dir(&directory).unwrap();
    let file = File::create(directory.join("a.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    ChainOpening {
        directories: vec![directory.to_str().unwrap().to_owned()],
        tables: vec![ChainTable::of("events", &rows.schema()).unwrap()],
    }
}

/// Returns what a worker has of these tables: a file, and rows in memory.
fn held(opening: ChainOpening) -> Held {
    let held = Held::new(Some(opening));
    let file =
        FileOfTable { directory: 0, name: "a.parquet".to_owned(), rows: 30, ledgers: (1, 30) };
    held.add(ChainPart { number: 1, part: PartOfTable::Files(vec![file]) }, &[]).unwrap();
    let rows = events(31, 33);
    let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema()).unwrap();
    writer.write(&rows).unwrap();
    let bytes = writer.into_inner().unwrap();
    held.add(ChainPart { number: 2, part: PartOfTable::Rows { ledgers: (31, 33) } }, &bytes)
        .unwrap();
    held
}

/// Returns what a query finds in them.
fn parts() -> SentParts {
    SentParts { tables: vec![PartsOfTable { table: "events".to_owned(), files: 1, rows: vec![2] }] }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    (0..500).map(|_| made(&mut random).into_bytes()).collect()
}

pub fn check(bytes: &[u8]) {
    let mut bench = BENCH.lock();
    let bench = &mut *bench;
    let sql = String::from_utf8_lossy(bytes).replace(OUTSIDE, &bench.outside);
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK);
        let checked = thread.spawn_scoped(scope, move || bench.check(sql)).unwrap().join();
        checked.unwrap_or_else(|panic| panic::resume_unwind(panic));
    });
}
