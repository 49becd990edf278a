use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rand::SeedableRng;
use rand::rngs::StdRng;
use tempfile::TempDir;

use super::*;
use crate::query::{Format, Numbers};
use crate::worker::database::Database;
use orrery_testkit::size;
use orrery_testkit::sql_fragments::made;

/// Value that no query may reveal, stored in an internal table of the service and in a file.
const SECRET: &str = "canary-51d2";
/// Query for the state that must be unchanged after each query: rows, tables and views.
const STATE: &str = "SELECT concat_ws('; ',
    (SELECT concat(count(*), ' ', sum(a)) FROM retroshade.program_1_swap),
    (SELECT string_agg(secret) FROM orrery.canary),
    (SELECT list_sort(list(schema_name || table_name))::VARCHAR FROM duckdb_tables()),
    (SELECT list_sort(list(view_name))::VARCHAR FROM duckdb_views() WHERE NOT internal))";
/// Query for the contents of the tables only, which is fast.
const CELLS: &str = "SELECT concat_ws('; ',
    (SELECT concat(count(*), ' ', sum(a)) FROM retroshade.program_1_swap),
    (SELECT string_agg(secret) FROM orrery.canary))";
/// Query for everything else that has a name, which is slower.
const THE_REST: &str = "SELECT concat_ws('; ',
    (SELECT list_sort(list(schema_name))::VARCHAR FROM duckdb_schemas()),
    (SELECT list_sort(list(function_name))::VARCHAR FROM duckdb_functions() WHERE NOT internal),
    (SELECT list_sort(list(database_name))::VARCHAR FROM duckdb_databases()),
    (SELECT count(*) FROM duckdb_secrets()), (SELECT count(*) FROM duckdb_variables()),
    (SELECT list_sort(list(name || value))::VARCHAR FROM duckdb_settings()))";

/// A worker's database that contains [`SECRET`], with a file next to it that contains it too.
struct Range {
    directory: TempDir,
    reader: Reader,
    /// For a concurrent query.
    other: Reader,
    writer: Connection,
    examiner: Examiner,
    timer: Arc<Timer>,
}

impl Range {
    fn new(gate: bool) -> Self {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("outside.csv"), format!("a\n{SECRET}\n")).unwrap();
        let opening = Opening {
            file: directory.path().join("tables.duckdb").to_str().unwrap().to_owned(),
            memory: 256 << 20,
            threads: 1,
            queries: 2,
            file_bytes: 1 << 30,
            process_wall: false,
            gate,
            lock: true,
            chain: None,
        };
        let (database, _) = Database::open(&opening).unwrap();
        let Database { writer, mut readers } = database;
        let tables = format!(
            "CREATE TABLE retroshade.program_1_swap AS SELECT range AS a FROM range(5);
             CREATE TABLE orrery.canary AS SELECT '{SECRET}' AS secret"
        );
        writer.execute_batch(&tables).unwrap();
        let (other, reader) = (readers.pop().unwrap(), readers.pop().unwrap());
        let names = Names::default();
        Arc::make_mut(&mut names.write()).insert("program_1_swap".to_owned());
        let examiner = Examiner::new(&reader.parser, &opening, names).unwrap();
        let timer = Arc::new(Timer::default());
        let running = Arc::clone(&timer);
        std::thread::spawn(move || running.run());
        Self { directory, reader, other, writer, examiner, timer }
    }

    fn ask(&self, sql: &str) -> Result<String, Failure> {
        let sql =
            sql.replace("{outside}", self.directory.path().join("outside.csv").to_str().unwrap());
        let answer = answer(&self.reader, &self.examiner, &self.timer, 1, &query_spec(sql), None);
        answer.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    fn cells(&self) -> String {
        let mut statement = self.writer.prepare_cached(CELLS).unwrap();
        statement.query_row([], |row| row.get(0)).unwrap()
    }

    fn state(&self) -> String {
        self.writer.query_row(STATE, [], |row| row.get(0)).unwrap()
    }

    /// Reads [`THE_REST`] through the connection that answers queries, which may have objects that
    /// other connections do not see.
    fn the_rest(&self) -> String {
        self.reader.connection.query_row(THE_REST, [], |row| row.get(0)).unwrap()
    }
}

fn query_spec(sql: String) -> QuerySpec {
    QuerySpec {
        sql,
        params: Vec::new(),
        rows: 1_000,
        bytes: 1 << 20,
        milliseconds: 10_000,
        numbers: Numbers::Exact,
        format: Format::Rows,
        chain: None,
    }
}

/// A running parse cannot be interrupted, so each reader has a parser of its own.
#[test]
fn a_query_with_a_slow_parse_does_not_delay_others() {
    let Range { reader, other, examiner, timer, directory, writer } = Range::new(true);
    // The parser detects the syntax error only at the end of this text.
    let long = |words: usize| {
        let sql = format!("SELECT {} FROM FROM", vec!["1"; words].join(","));
        QuerySpec { milliseconds: 600_000, ..query_spec(sql) }
    };
    let mut words = 1_000;
    let (text, takes) = loop {
        let text = long(words);
        let read = |_| {
            let begun = Instant::now();
            let refused = answer(&other, &examiner, &timer, 1, &text, None);
            assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
            begun.elapsed()
        };
        // The minimum excludes the slower first time and times at which the machine is busy.
        let takes = (0..3).map(read).min().unwrap();
        if takes > Duration::from_millis(300) {
            break (text, takes);
        }
        words *= 2;
        assert!(words < 1 << 24, "it is read in no time");
    };
    let (is_over, texts) = (AtomicBool::new(false), AtomicUsize::new(0));
    let held_up = std::thread::scope(|scope| {
        let (examiner, timer, is_over, texts) = (&examiner, &timer, &is_over, &texts);
        let busy = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                texts.fetch_add(1, Ordering::Relaxed);
                answer(&other, examiner, timer, 1, &text, None).unwrap_err();
            }
        });
        let is_held_up = |number: u32| {
            let read_now = || texts.load(Ordering::Relaxed);
            // Waits until the other thread has begun its next text and DuckDB is parsing it.
            loop {
                let before = read_now();
                while read_now() == before {
                    std::thread::yield_now();
                }
                std::thread::sleep(takes / 8);
                if read_now() == before + 1 {
                    break;
                }
            }
            let begun = Instant::now();
            let answer =
                answer(&reader, examiner, timer, 2, &query_spec(format!("SELECT {number}")), None);
            assert!(answer.is_ok(), "{answer:?}");
            begun.elapsed() > takes / 2
        };
        let held_up = (0..8).filter(|number| is_held_up(*number)).count();
        is_over.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        held_up
    });
    // A few delays may be due to a busy machine.
    assert!(held_up < 4, "{held_up} of 8 queries wait, where {words} words take {takes:?}");
    drop((writer, directory));
}

#[test]
fn ended_transactions_are_detected_and_distinguished_from_errors() {
    let range = Range::new(true);
    let connection = &range.reader.connection;
    let within = |sql: &str, milliseconds: u64| {
        let deadline = Instant::now() + Duration::from_millis(milliseconds);
        let timed = range.timer.start(1, range.reader.stop(), deadline);
        in_read_only_transaction(connection, timed, |timed| {
            let done = connection.execute_batch(sql);
            done.map_err(|error| failure(&error.to_string(), timed))
        })
    };
    for sql in ["COMMIT", "ROLLBACK", "COMMIT; SELECT 1", "SELECT 1; COMMIT; nonsense"] {
        assert!(matches!(within(sql, 10_000), Err(Failure::TransactionEnded(_))), "{sql}");
    }
    assert_eq!(within("SELECT 1", 10_000), Ok(()));
    for sql in [
        "SELECT 'a'::INTEGER",
        "SELECT error('x')",
        "SELECT nope",
        "BEGIN",
        "INSERT INTO program_1_swap VALUES (1)",
        "CREATE TABLE x (a INTEGER)",
    ] {
        assert!(matches!(within(sql, 10_000), Err(Failure::Refused(_))), "{sql}");
    }
    let endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c";
    assert_eq!(within(endless, 100), Err(Failure::TimedOut));
    assert_eq!(within("SELECT 1", 10_000), Ok(()));
}

#[test]
fn checked_queries_are_cached_until_names_change() {
    let range = Range::new(true);
    // A table named like a file may be read only if it is the owner's.
    range.writer.execute_batch("CREATE TABLE retroshade.\"odd.csv\" AS SELECT 7 AS a").unwrap();
    Arc::make_mut(&mut range.examiner.names.write()).insert("odd.csv".to_owned());
    let sql = "SELECT a FROM \"odd.csv\"";
    let is_kept = || {
        let names = Arc::clone(&range.examiner.names.read());
        range.examiner.checked.lock().find(&names, sql)
    };
    assert_eq!(is_kept(), None);
    let first = range.ask(sql).unwrap();
    assert_eq!(is_kept(), Some(false));
    assert_eq!(range.ask(sql).unwrap(), first);
    *range.examiner.names.write() = Arc::default();
    assert_eq!(is_kept(), None);
    assert!(matches!(range.ask(sql), Err(Failure::Refused(_))));
    // Refused texts are not cached, and the cache is bounded.
    let refused = "SELECT * FROM orrery.canary";
    for number in 0..3 * MAX_CACHED_TEXTS {
        assert!(range.ask(refused).is_err());
        assert!(range.ask(&format!("SELECT {number}")).is_ok());
        assert!(range.ask(&format!("SELECT '{}'", "x".repeat(MAX_CACHED_TEXT_BYTES))).is_ok());
        let passed = range.examiner.checked.lock();
        assert!(passed.texts.len() <= MAX_CACHED_TEXTS && !passed.texts.contains_key(refused));
        assert!(passed.texts.keys().all(|text| text.len() <= MAX_CACHED_TEXT_BYTES));
    }
}

#[test]
fn without_the_gate_only_a_single_read_statement_is_executed() {
    let range = Range::new(false);
    let before = (range.state(), range.the_rest());
    for sql in [
        "SELECT 1; SELECT 2",
        "COMMIT; DROP TABLE program_1_swap",
        "/* /* */ EXPLAIN SELECT $x$*/ COMMIT; DROP TABLE program_1_swap; SELECT 1 -- $x$",
        "EXPLAIN ANALYZE DELETE FROM program_1_swap",
        "EXPLAIN ANALYZE CREATE TEMP TABLE x AS SELECT 1",
        "/**/EXPLAIN ANALYZE CREATE TEMP TABLE x AS SELECT 1",
        "CREATE TEMP TABLE x AS SELECT 1",
        "CREATE TEMP VIEW pool AS SELECT 1",
        "CREATE MACRO f() AS 1",
        "SET VARIABLE x = 1",
        "ATTACH ':memory:' AS m",
        "COMMIT",
        "ROLLBACK",
        "USE orrery",
        "PREPARE p AS SELECT 1",
        "CALL force_checkpoint()",
        "",
    ] {
        assert!(matches!(range.ask(sql), Err(Failure::Refused(_))), "{sql}");
        assert_eq!((range.state(), range.the_rest()), before, "{sql}");
    }
    assert_eq!(range.ask("SELECT count(*) AS n FROM program_1_swap").unwrap(), "[{\"n\":5}]");
}

/// Returns the same parser in a database of its own, so that its verdict on an executed text is
/// independent of the database that let it pass.
fn another_parser() -> (StatementInspector, Connection) {
    let database = crate::ffi::Database::open(":memory:", &[]).unwrap();
    let inspector = database.inspector().unwrap();
    inspector
        .run("CREATE SCHEMA retroshade; CREATE TABLE retroshade.program_1_swap (a BIGINT); USE retroshade")
        .unwrap();
    (inspector, database.connect().unwrap())
}

#[test]
fn only_the_examined_single_read_statement_is_executed() {
    let rounds = size::choose(1_000, 1_000_000);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let (answered, plans) = std::thread::scope(|scope| {
        let each = |thread| scope.spawn(move || examine(thread, rounds.div_ceil(threads)));
        let running: Vec<_> = (0..threads).map(each).collect();
        let sums = running.into_iter().map(|it| it.join().unwrap());
        sums.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    });
    eprintln!("{rounds} texts: {answered} answered, {plans} plans shown, the rest refused");
    // The test is meaningful only if a good part of the texts is executed.
    assert!(answered > rounds / 200 && plans > rounds / 500, "{answered} {plans}");
}

/// Asks `rounds` generated texts; returns how many were answered, and how many plans were shown.
fn examine(seed: u64, rounds: u64) -> (u64, u64) {
    let range = Range::new(true);
    let (inspector, parser) = another_parser();
    let (cells, before, rest_before) = (range.cells(), range.state(), range.the_rest());
    let serialized = |sql: &str| -> String {
        parser.query_row("SELECT json_serialize_sql(?::VARCHAR)", [sql], |row| row.get(0)).unwrap()
    };
    let mut random = StdRng::seed_from_u64(0x5e1ec7 + seed);
    let (mut answered, mut plans) = (0, 0);
    for round in 0..rounds {
        let sql = made(&mut random);
        let say = || format!("seed {seed}, round {round}: {sql:?}");
        if round % 10_000 == 9_999 {
            eprintln!("seed {seed}: {} texts", round + 1);
        }
        let answer = range.ask(&sql);
        let message = match &answer {
            Ok(rows) => rows.clone(),
            Err(Failure::Refused(sentence) | Failure::TooLarge(sentence)) => sentence.clone(),
            Err(other) => panic!("{}: {other:?}", say()),
        };
        assert!(!message.contains(SECRET), "{}: {message}", say());
        assert_eq!(range.cells(), cells, "{}", say());
        if round % 100 == 99 {
            assert_eq!(range.state(), before, "one of a hundred up to {}", say());
            assert_eq!(range.the_rest(), rest_before, "one of a hundred up to {}", say());
        }
        if answer.is_err() {
            continue;
        }
        let text = Text::of(&sql);
        let executed = text.executed();
        assert!(executed.ends_with(text.examined) && sql.ends_with(text.examined), "{}", say());
        let kind = inspector.only_statement(&executed);
        if text.prefix.is_empty() {
            assert_eq!(kind, Ok(Some(Kind::Select)), "{}", say());
            answered += 1;
        } else {
            assert_eq!(kind, Ok(Some(Kind::Explain)), "{}", say());
            // The explained text must be a single SELECT by itself too.
            assert_eq!(
                inspector.only_statement(text.examined),
                Ok(Some(Kind::Select)),
                "{}",
                say()
            );
            plans += 1;
        }
        let seen = serialized(text.examined);
        assert!(seen.starts_with("{\"error\":false"), "{}", say());
        assert!(!seen.contains("\"table_name\":\"canary\""), "{}", say());
    }
    (answered, plans)
}

#[test]
fn a_panic_is_a_failure_of_its_query_alone() {
    let range = Range::new(true);
    let begun = Instant::now();
    for _ in 0..3 {
        let timed = range.timer.start(1, range.reader.stop(), begun + Duration::from_secs(60));
        let done: Result<(), _> =
            in_read_only_transaction(&range.reader.connection, timed, |_| panic!("injected"));
        let Err(Failure::Refused(sentence)) = done else { panic!("{done:?}") };
        assert!(sentence.contains("CAST its columns"), "{sentence}");
        assert_eq!(range.ask("SELECT 1 AS a").unwrap(), r#"[{"a":1}]"#);
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
}
