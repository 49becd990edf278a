//! Examines and executes queries as the SQL worker does: any text is refused, or it is one
//! statement that reads, and DuckDB executed exactly what was examined. A query changes nothing,
//! and no response contains the secret.

use std::fs;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use std::{panic, thread};

use duckdb::Connection;
use orrery::tables::ffi::{Database as Instance, Kind, StatementInspector};
use orrery::tables::query::{Format, Numbers};
use orrery::tables::wire::{Failure, Opening, QuerySpec};
use orrery::tables::worker::database::{Database, Reader};
use orrery::tables::worker::query::{Examiner, answer};
use orrery::tables::worker::query_text::Text;
use orrery::tables::worker::timer::Timer;
use parking_lot::Mutex;
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
    state: String,
    /// Reports the kind of an executed text, from a DuckDB instance of its own.
    inspector: StatementInspector,
    parser: Connection,
    _other: Instance,
    _directory: TempDir,
}

static BENCH: LazyLock<Mutex<Bench>> = LazyLock::new(|| Mutex::new(Bench::new()));

impl Bench {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let outside = directory.path().join("outside.csv");
        fs::write(&outside, format!("a\n{SECRET}\n")).unwrap();
        let opening = Opening {
            file: directory.path().join("tables.duckdb").to_str().unwrap().to_owned(),
            memory: 256 << 20,
            threads: 1,
            queries: 1,
            file_bytes: 1 << 30,
            process_wall: false,
            gate: true,
            lock: true,
            chain: None,
        };
        let opened = Database::open(&opening);
        let (Database { writer, mut readers }, _) = opened.unwrap_or_else(|e| panic!("{e:?}"));
        let table = "CREATE TABLE retroshade.program_1_swap";
        let tables = format!(
            "{table} AS SELECT range AS a FROM range(5);
             CREATE TABLE orrery.canary AS SELECT '{SECRET}' AS secret"
        );
        writer.execute_batch(&tables).unwrap();
        let reader = readers.pop().unwrap();
        let names = Arc::default();
        let examiner = Examiner::new(&reader.parser, &opening, Arc::clone(&names)).unwrap();
        Arc::make_mut(&mut names.write()).insert("program_1_swap".to_owned());
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
            _directory: directory,
            writer,
            reader,
            examiner,
            timer,
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
            chain: None,
        };
        let sql = &query.sql;
        let answered = answer(&self.reader, &self.examiner, &self.timer, 1, &query, None);
        let message = match &answered {
            Ok(rows) => std::str::from_utf8(rows).unwrap(),
            Err(Failure::Refused(sentence) | Failure::TooLarge(sentence)) => sentence,
            Err(Failure::TimedOut) => "",
            Err(failure) => panic!("{sql:?}: {failure:?}"),
        };
        assert!(!message.contains(SECRET), "{sql:?}: {message}");
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
