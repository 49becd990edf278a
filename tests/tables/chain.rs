//! Tables of the chain: queries find the rows of files and of memory as if they were in one table, each once,
//! whatever moves meanwhile; and nothing else becomes readable by them.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

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
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::support::{Program, World, emit, owner};
use orrery_testkit::histories;
use orrery_testkit::signal::{self, Signal};
use orrery_testkit::size::choose;
use orrery_testkit::values::symbol;

/// A row of the table.
#[derive(Debug, Clone)]
struct Row {
    id: i64,
    contract: Option<String>,
    ledger: i64,
    ok: bool,
    name: Option<String>,
    topics: Vec<String>,
}

const NAMES: [&str; 5] = ["mint", "burn", "transfer", "", "it's \"ü\""];

/// Microseconds at which a ledger closed.
fn closed(ledger: i64) -> i64 {
    1_700_000_000_000_000 + ledger * 5_000_000
}

fn random_rows(random: &mut ChaCha8Rng, ledger: u32) -> Vec<Row> {
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

fn schema() -> Schema {
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
fn batch(rows: &[Row], older: bool) -> RecordBatch {
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

fn span(rows: &[Row]) -> LedgerRange {
    let ledgers = rows.iter().map(|row| u32::try_from(row.ledger).unwrap());
    LedgerRange::new(ledgers.clone().min().unwrap_or(0), ledgers.max().unwrap_or(0))
}

/// The table as files below a directory and rows in memory.
#[derive(Debug)]
struct StandIn {
    root: PathBuf,
    tables: Vec<ChainTable>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<ChainFile>,
    listed: Option<Arc<ChainFiles>>,
    rows: Vec<Arc<ChainRows>>,
    newest: Option<u32>,
    unavailable: bool,
}

impl StandIn {
    fn new(root: &Path) -> Arc<Self> {
        let tables = vec![ChainTable::of("events", &schema()).unwrap()];
        Arc::new(Self { root: root.to_owned(), tables, state: Mutex::default() })
    }

    fn events(&self) -> PathBuf {
        self.root.join("data/events")
    }

    fn write(&self, name: &str, rows: &[Row], older: bool) -> ChainFile {
        let directory = self.events();
        fs::create_dir_all(&directory).unwrap();
        let batch = batch(rows, older);
        let small = WriterProperties::builder().set_max_row_group_row_count(Some(10));
        let file = File::create(directory.join(name)).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(small.build())).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let name = name.to_owned();
        ChainFile { directory, name, rows: rows.len() as u64, ledgers: span(rows) }
    }

    fn held(rows: &[Row]) -> Arc<ChainRows> {
        let mut writer = StreamWriter::try_new(Vec::new(), &schema()).unwrap();
        for rows in rows.chunks(MAX_BATCH_ROWS) {
            writer.write(&batch(rows, false)).unwrap();
        }
        writer.finish().unwrap();
        Arc::new(ChainRows::new(span(rows), writer.into_inner().unwrap()))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
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
struct Scene {
    world: World,
    chain: Arc<StandIn>,
    export: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self::with(Protections::default())
    }

    fn with(protections: Protections) -> Self {
        let export = tempfile::tempdir().unwrap();
        let chain = StandIn::new(export.path());
        let world = World::with(|settings| {
            settings.chain = Some(Arc::clone(&chain) as _);
            settings.tunables.protections = protections;
        });
        Self { world, chain, export }
    }

    /// An owner without programs, whose tables are complete.
    fn owner(&self, name: &str) -> Owner {
        let owner = owner(name);
        self.world.tables.apply(&owner, Vec::new()).unwrap();
        self.world.tables.set_complete(&owner).unwrap();
        owner
    }

    fn ask(&self, owner: &Owner, sql: &str) -> Result<QueryAnswer, QueryError> {
        let request = QueryRequest { query: sql.to_owned(), ..QueryRequest::default() };
        self.world.tables.query(owner, request)
    }

    fn text(&self, owner: &Owner, sql: &str) -> String {
        match self.ask(owner, sql) {
            Ok(answer) => String::from_utf8_lossy(&answer.bytes).into_owned(),
            Err(error) => error.to_string(),
        }
    }
}

/// A plain table of DuckDB with the same rows: the second implementation.
struct Plain(duckdb::Connection);

impl Plain {
    fn new(rows: &[Row]) -> Self {
        let connection = duckdb::Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "create schema chain; create table chain.events (id bigint, contract_id varchar, ledger bigint,
                 ledger_closed_at timestamp, ok boolean, topics varchar[], name varchar)",
            )
            .unwrap();
        let text = |text: &Option<String>| match text {
            Some(text) => format!("'{}'", text.replace('\'', "''")),
            None => "null".to_owned(),
        };
        for rows in rows.chunks(500) {
            let row = |row: &Row| {
                let topics: Vec<_> = row.topics.iter().map(|topic| format!("'{topic}'")).collect();
                format!(
                    "({}, {}, {}, make_timestamp({}), {}, [{}]::varchar[], {})",
                    row.id,
                    text(&row.contract),
                    row.ledger,
                    closed(row.ledger),
                    row.ok,
                    topics.join(", "),
                    text(&row.name)
                )
            };
            let rows: Vec<_> = rows.iter().map(row).collect();
            let insert = format!("insert into chain.events values {}", rows.join(", "));
            connection.execute_batch(&insert).unwrap();
        }
        Self(connection)
    }

    fn answer(&self, sql: &str) -> String {
        self.0.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }
}

/// Returns a query for all rows of another one as a text.
fn as_text(sql: &str) -> String {
    format!(
        "select coalesce(string_agg(r, ' ' order by r), '') || '#' as t from (select x::varchar as r from ({sql}) x)"
    )
}

fn random_condition(random: &mut ChaCha8Rng, depth: u32, last: u32) -> String {
    let of = ["=", "<>", "<", "<=", ">", ">="];
    let how = of[random.random_range(0..of.len())];
    let ledger = random.random_range(0..last + 5);
    let name = NAMES[random.random_range(0..NAMES.len())].replace('\'', "''");
    match random.random_range(0..if depth == 0 { 9 } else { 12 }) {
        0 => format!("ledger {how} {ledger}"),
        1 => format!("{ledger} {how} ledger"),
        2 => format!("ledger between {ledger} and {}", ledger + random.random_range(0..9)),
        3 => format!("contract_id {how} 'C{}'", random.random_range(0..5)),
        4 => format!("name in ('{name}', 'mint')"),
        5 => ["ok", "not ok", "name is null", "contract_id is not null"][random.random_range(0..4)]
            .into(),
        6 => format!("ledger_closed_at {how} make_timestamp({})", closed(ledger.into())),
        7 => format!("id % {} = 1", random.random_range(2..5)),
        8 => format!("name {how} '{name}'"),
        kind => {
            let parts: Vec<_> = (0..random.random_range(1..4))
                .map(|_| random_condition(random, depth - 1, last))
                .collect();
            let join = if kind == 9 { " and " } else { " or " };
            format!("({})", parts.join(join))
        }
    }
}

fn random_query(random: &mut ChaCha8Rng, last: u32) -> String {
    let condition = random_condition(random, 2, last);
    let other = random_condition(random, 1, last);
    let limit = random.random_range(0..20);
    let offset = random.random_range(0..4);
    let direction = ["", " desc"][random.random_range(0..2)];
    let filter = [String::new(), format!(" where {condition}")][random.random_range(0..2)].clone();
    match random.random_range(0..10) {
        0 => "select count(*) as n, count(name) as m, min(ledger) as a, max(ledger_closed_at) as b from chain.events".to_owned(),
        1 => format!("select count(*) as n from chain.events{filter}"),
        2 => format!("select * from chain.events where {condition}"),
        3 => format!("select name, topics from chain.events where {condition}"),
        4 => format!(
            "select * from chain.events{filter} order by ledger{direction}, id{direction} limit {limit} offset {offset}"
        ),
        5 => format!(
            "select id, n from (select id, name as n, ledger as l from chain.events) where {} order by l{direction}, id limit {limit}",
            format!("({condition})").replace("name", "n").replace("ledger_closed_at", "make_timestamp(0)").replace("ledger", "l")
                .replace("contract_id", "n").replace("not ok", "l > 3").replace("ok", "l > 4")
        ),
        6 => format!(
            "select a.id, b.id as other from chain.events a join chain.events b on a.ledger = b.ledger and a.id < b.id where a.{}",
            if random.random_bool(0.5) { "ok" } else { "name = 'mint'" }
        ),
        7 => format!(
            "select contract_id, count(*) as n from chain.events{filter} group by 1 union all select name, count(*) from chain.events where {other} group by 1"
        ),
        8 => format!(
            "with x as (select * from chain.events where {condition}) select count(*) as n from x where ledger in (select ledger from x where {other})"
        ),
        _ => format!("select distinct name from chain.events{filter}"),
    }
}

/// Small: 6 histories; full: 200.
#[test]
fn rows_of_files_and_memory_are_those_of_one_table() {
    histories::run(6, 200, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let scene = Scene::new();
        let owner = scene.owner("ana");
        let last = random.random_range(10..120);
        let (mut files, mut held, mut all) = (Vec::new(), Vec::new(), Vec::new());
        let (mut rows, mut number) = (Vec::new(), 0);
        for ledger in 2..=last {
            rows.extend(random_rows(&mut random, ledger));
            if !random.random_bool(0.2) && ledger < last {
                continue;
            }
            number += 1;
            match random.random_range(0..3) {
                0 if !rows.is_empty() => held.push(StandIn::held(&rows)),
                kind if !rows.is_empty() => {
                    let older = kind == 1 && random.random_bool(0.5);
                    if older {
                        rows.iter_mut().for_each(|row: &mut Row| row.name = None);
                    }
                    files.push(scene.chain.write(&format!("{number}.parquet"), &rows, older));
                }
                _ => {}
            }
            all.append(&mut rows);
        }
        scene.chain.change(|state| (state.files, state.rows) = (files, held));
        let plain = Plain::new(&all);
        for _ in 0..40 {
            let sql = random_query(&mut random, last);
            let expected = plain.answer(&as_text(&sql));
            let found = scene.world.rows(&owner, &as_text(&sql));
            assert_eq!(found[0]["t"], expected, "seed {seed}: {sql}");
        }
        // Values of parameters are compared as those in the text.
        let sql =
            "select count(*) as n from chain.events where ledger >= ? and name = ? and ok = ?";
        let params = vec![json!(last / 2), json!("mint"), json!(true)];
        let request = QueryRequest { query: sql.to_owned(), params, ..QueryRequest::default() };
        let found = scene.world.tables.query(&owner, request).unwrap();
        let sql = format!(
            "select count(*)::varchar from chain.events where ledger >= {} and name = 'mint' and ok",
            last / 2
        );
        let expected = format!("[{{\"n\":{}}}]", plain.answer(&sql));
        assert_eq!(String::from_utf8(found.bytes).unwrap(), expected);
    });
}

/// A file with rows of ledgers `first` to `last`, one each.
fn plain_rows(first: u32, last: u32) -> Vec<Row> {
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

#[test]
fn counts_and_files_without_needed_rows_are_not_read() {
    let scene = Scene::new();
    let owner = scene.owner("ana");
    let old = scene.chain.write("old.parquet", &plain_rows(1, 500), false);
    let new = scene.chain.write("new.parquet", &plain_rows(501, 1000), false);
    let held = StandIn::held(&plain_rows(1001, 1003));
    scene.chain.change(|state| {
        (state.files, state.rows, state.newest) = (vec![old, new], vec![held], Some(1003));
    });
    fs::remove_file(scene.chain.events().join("old.parquet")).unwrap();
    for (sql, answer) in [
        ("select count(*) as n from chain.events", r#"[{"n":1003}]"#),
        ("select count(*) as n from chain.events where ledger > 900", r#"[{"n":103}]"#),
        (
            "select id from chain.events order by ledger desc limit 2",
            r#"[{"id":1003},{"id":1002}]"#,
        ),
        (
            "select id from chain.events where ok order by ledger desc limit 1 offset 400",
            r#"[{"id":603}]"#,
        ),
        (
            "select count(*) as n from chain.events where ledger_closed_at > make_timestamp(1700004999000000) and ledger > 800",
            r#"[{"n":4}]"#,
        ),
    ] {
        assert_eq!(scene.text(&owner, sql), answer, "{sql}");
    }
    let answer = scene.ask(&owner, "select 1 as a from chain.events limit 1").unwrap();
    assert_eq!(answer.chain_ledger, Some(LedgerSeq(1003)));
    assert_eq!(scene.ask(&owner, "select 1 as a").unwrap().chain_ledger, None);
    // The file that is gone is missed where it is needed.
    let said = scene.text(&owner, "select max(id) as n from chain.events where ledger > 400");
    assert!(said.contains("cannot be opened") && said.contains("tell the operator"), "{said}");
    assert!(!said.contains('/'), "{said}");
}

/// Statements that try to reach files, settings or other databases by way of the tables of the chain.
const HOSTILE: [&str; 49] = [
    "select * from read_parquet('{events}/a.parquet')",
    "select * from read_parquet('{events}/*')",
    "select * from parquet_scan('{events}/a.parquet')",
    "select * from parquet_metadata('{events}/a.parquet')",
    "select * from '{events}/a.parquet'",
    "select * from \"{events}/a.parquet\"",
    "select * from glob('{events}/*')",
    "select * from read_blob('{events}/a.parquet')",
    "select * from read_text('{root}/manifest.json')",
    "select * from read_csv('{root}/data/programs/p.parquet')",
    "select * from chain.events, read_text('{root}/manifest.json')",
    "select * from orrery_chain('events', 'id BIGINT')",
    "select * from retroshade.orrery_chain('events', 'id BIGINT')",
    "select * from system.main.orrery_chain('events', 'id BIGINT')",
    "select orrery_chain('events', 'id BIGINT')",
    "from chain.events, lateral (select * from orrery_chain('events', 'id BIGINT'))",
    "select * from orrery_chain_events()",
    "select * from temp.main.orrery_chain_events()",
    "select * from orrery_plan_events",
    "select * from temp.main.orrery_plan_events",
    "select * from temp.orrery_plan_events",
    "copy chain.events to '{events}/stolen.parquet'",
    "copy (select * from chain.events) to '{root}/stolen.csv'",
    "copy chain.events from '{events}/a.parquet'",
    "insert into chain.events values (1)",
    "delete from chain.events",
    "update chain.events set id = 1",
    "drop view chain.events",
    "create or replace view chain.events as select 1",
    "create table chain.mine as select 1",
    "alter view chain.events rename to x",
    "attach '{events}/a.parquet' as x",
    "attach '{root}/x.duckdb'",
    "install parquet",
    "load parquet",
    "load '{root}/data/programs/p.parquet'",
    "pragma database_list",
    "pragma show_tables_expanded",
    "set enable_external_access = true",
    "set allowed_directories = ['{root}']",
    "select * from duckdb_settings()",
    "select * from duckdb_views()",
    "select * from duckdb_functions()",
    "select sql from duckdb_views",
    "select * from pg_catalog.pg_views",
    "select view_definition from information_schema.views",
    "select current_setting('allowed_directories')",
    "select * from query('select * from chain.events')",
    "select * from chain.programs",
];

/// Statements that are answered, whose answers must not say where anything is.
const TELLING: [&str; 16] = [
    "explain select * from chain.events where ledger > 3",
    "explain analyze select count(name) from chain.events",
    "explain (format json) select * from chain.events",
    "explain (analyze, format json) select max(ledger) from chain.events",
    "explain (format graphviz) select * from chain.events order by ledger desc limit 3",
    "describe chain.events",
    "describe select * from chain.events",
    "summarize chain.events",
    "show all tables",
    "show tables",
    "select * from information_schema.tables",
    "select * from information_schema.columns",
    "select typeof(x) from chain.events x limit 1",
    "select x::varchar from chain.events x limit 1",
    "select nope from chain.events",
    "select * from chain.event",
];

#[test]
fn hostile_statements_reach_no_file_and_learn_no_path() {
    let all = Protections::default();
    for protections in
        [all, Protections { process: false, ..all }, Protections { lock: false, ..all }]
    {
        let scene = Scene::with(protections);
        let (owner, root) =
            (scene.owner("mallory"), scene.export.path().to_str().unwrap().to_owned());
        fs::create_dir_all(scene.export.path().join("data/programs")).unwrap();
        let secret = "canary-5c1d";
        fs::write(scene.export.path().join("manifest.json"), secret).unwrap();
        fs::write(scene.export.path().join("data/programs/p.parquet"), secret).unwrap();
        let file = scene.chain.write("a.parquet", &plain_rows(1, 30), false);
        scene.chain.change(|state| state.files = vec![file]);
        let names = || {
            let mut all: Vec<_> =
                walk(scene.export.path()).into_iter().map(|(name, _)| name).collect();
            all.sort();
            all
        };
        let before = names();
        let events = scene.chain.events();
        let filled =
            |sql: &str| sql.replace("{events}", events.to_str().unwrap()).replace("{root}", &root);
        for sql in HOSTILE {
            let refused = scene.ask(&owner, &filled(sql));
            assert!(matches!(refused, Err(QueryError::Refused(_))), "{sql}: {refused:?}");
            let said = refused.unwrap_err().to_string();
            assert!(!said.contains(secret), "{sql}: {said}");
            // DuckDB may quote the statement.
            assert!(sql.contains('{') || !said.contains(&root), "{sql}: {said}");
        }
        for sql in TELLING {
            let said = scene.text(&owner, sql);
            let has = |part: &str| said.to_lowercase().contains(&part.to_lowercase());
            assert!(!has(&root) && !has(".parquet") && !has("data/events"), "{sql}: {said}");
        }
        assert_eq!(scene.text(&owner, "select count(*) as n from chain.events"), r#"[{"n":30}]"#);
        assert_eq!(names(), before);
    }
}

/// Files below a directory with their sizes.
fn walk(directory: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let (path, kind) = entry.map(|it| (it.path(), it.file_type().unwrap())).unwrap();
        match kind.is_dir() {
            true => found.extend(walk(&path)),
            false => found.push((path.clone(), path.symlink_metadata().unwrap().len())),
        }
    }
    found
}

#[test]
fn links_other_directories_and_damaged_files_are_refused_in_a_sentence() {
    let scene = Scene::new();
    let owner = scene.owner("ana");
    let rows = plain_rows(1, 300);
    let good = scene.chain.write("good.parquet", &rows, false);
    let events = scene.chain.events();
    let programs = scene.export.path().join("data/programs");
    fs::create_dir_all(&programs).unwrap();
    fs::copy(events.join("good.parquet"), programs.join("other.parquet")).unwrap();
    symlink(programs.join("other.parquet"), events.join("link.parquet")).unwrap();
    symlink("/etc/passwd", events.join("passwd.parquet")).unwrap();
    let bytes = fs::read(events.join("good.parquet")).unwrap();
    fs::write(events.join("short.parquet"), &bytes[..bytes.len() / 2]).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 3..bytes.len() / 3 + 60].fill(0xff);
    fs::write(events.join("flipped.parquet"), flipped).unwrap();
    let named = |name: &str| ChainFile { name: name.to_owned(), ..good.clone() };
    for name in [
        "link.parquet",
        "passwd.parquet",
        "../programs/other.parquet",
        ".",
        "missing.parquet",
        "short.parquet",
        "flipped.parquet",
    ] {
        scene.chain.change(|state| state.files = vec![named(name)]);
        let refused = scene.ask(&owner, "select * from chain.events");
        let Err(QueryError::Refused(said)) = refused else { panic!("{name}: {refused:?}") };
        assert!(said.contains("tell the operator") && !said.contains('/'), "{name}: {said}");
    }
    let fewer = ChainFile { rows: 299, ..good.clone() };
    scene.chain.change(|state| state.files = vec![fewer]);
    let said = scene.text(&owner, "select * from chain.events");
    assert!(said.contains("has other rows than the export says"), "{said}");
    // A file in a directory that the process may not read.
    let elsewhere = ChainFile { directory: programs, ..named("other.parquet") };
    scene.chain.change(|state| state.files = vec![elsewhere]);
    let refused = scene.ask(&owner, "select * from chain.events");
    assert!(matches!(refused, Err(QueryError::Unavailable(_))), "{refused:?}");
    scene.chain.change(|state| state.files = vec![good]);
    assert_eq!(scene.text(&owner, "select count(id) as n from chain.events"), r#"[{"n":300}]"#);
    scene.chain.change(|state| state.unavailable = true);
    let said = scene.text(&owner, "select 1 from chain.events");
    assert_eq!(said, "the export is behind; try again");
    assert_eq!(scene.text(&owner, "select 1 as a"), r#"[{"a":1}]"#);
}

#[test]
fn owners_share_the_tables_and_a_new_process_has_them() {
    let scene = Scene::new();
    let (ana, bo) = (scene.owner("ana"), scene.owner("bo"));
    let mut program = Program::new(1, "chain");
    program.run(vec![emit("events", [("note", symbol("mine"))])]).unwrap();
    program.feed(&scene.world.tables, &ana, 10);
    let count = "select count(*) as n from chain.events";
    assert_eq!(scene.text(&bo, count), r#"[{"n":0}]"#);
    // The directory is made when the first file is.
    let file = scene.chain.write("a.parquet", &plain_rows(1, 40), false);
    let held = StandIn::held(&plain_rows(41, 45));
    scene.chain.change(|state| (state.files, state.rows) = (vec![file], vec![held]));
    for owner in [&ana, &bo] {
        assert_eq!(scene.text(owner, "select count(id) as n from chain.events"), r#"[{"n":45}]"#);
        let process = scene.world.tables.process(owner).unwrap();
        assert!(signal::send(process, Signal::KILL));
        let again = || scene.text(owner, "select sum(id)::bigint as n from chain.events");
        orrery_testkit::wait::wait_until("a new process answers", || {
            let said = again();
            if said == r#"[{"n":1035}]"# { Ok(()) } else { Err(said) }
        });
    }
    // A project of an earlier version that is called so keeps its tables, under other names.
    assert_eq!(scene.text(&ana, "select note from chain_events"), r#"[{"note":"mine"}]"#);
    let said = scene.text(&bo, "select note from chain_events");
    assert!(said.contains("does not exist") || said.contains("not one of yours"), "{said}");
}

#[test]
fn without_an_export_there_are_no_such_tables() {
    let mut scene = Scene::new();
    let owner = scene.owner("ana");
    let tables = "select table_schema as s, table_name as t from information_schema.tables where table_schema = 'chain'";
    assert_eq!(scene.text(&owner, tables), r#"[{"s":"chain","t":"events"}]"#);
    let digest = scene.world.tables.digest(&owner).unwrap();
    scene.world.settings.chain = None;
    scene.world.reopen();
    assert_eq!(scene.text(&owner, tables), "[]");
    assert_eq!(scene.world.tables.digest(&owner).unwrap(), digest);
    let said = scene.text(&owner, "select * from chain.events");
    assert!(said.contains("while the service exports to a directory"), "{said}");
    // Other columns are other views.
    let mut other = schema().fields().to_vec();
    other.push(Arc::new(Field::new("more", DataType::Boolean, true)));
    let tables = vec![ChainTable::of("events", &Schema::new(other)).unwrap()];
    let root = scene.export.path().to_owned();
    let chain = Arc::new(StandIn { root, tables, state: Mutex::default() });
    let file = chain.write("a.parquet", &plain_rows(1, 3), false);
    chain.change(|state| state.files = vec![file]);
    scene.world.settings.chain = Some(chain);
    scene.world.reopen();
    let sql = "select id, more from chain.events where id = 2";
    assert_eq!(scene.text(&owner, sql), r#"[{"id":2,"more":null}]"#);
}

#[test]
fn no_query_sees_a_row_twice_or_misses_one_while_files_are_written() {
    let scene = Scene::new();
    let owners = [scene.owner("ana"), scene.owner("bo")];
    let rounds = choose(40, 400);
    let done = AtomicBool::new(false);
    // Ledger 1 is in a file from the beginning.
    let first = scene.chain.write("0.parquet", &plain_rows(1, 1), false);
    scene.chain.change(|state| (state.files, state.newest) = (vec![first], Some(1)));
    thread::scope(|scope| {
        for owner in owners.iter().cycle().take(4) {
            scope.spawn(|| {
                let mut asked = 0;
                while !done.load(Ordering::Acquire) || asked == 0 {
                    let sql = "select count(*) as n, count(distinct id) as d, max(ledger) as l from chain.events";
                    let Ok(answer) = scene.ask(owner, sql) else { continue };
                    let newest = answer.chain_ledger.unwrap();
                    let expected = format!("[{{\"n\":{newest},\"d\":{newest},\"l\":{newest}}}]");
                    assert_eq!(String::from_utf8(answer.bytes).unwrap(), expected);
                    asked += 1;
                }
            });
        }
        let (mut random, mut exported, mut newest) = (ChaCha8Rng::seed_from_u64(3), 1, 1);
        for round in 1..=rounds {
            newest += random.random_range(1..4);
            let held: Vec<_> = (exported + 1..=newest)
                .map(|ledger| StandIn::held(&plain_rows(ledger, ledger)))
                .collect();
            scene.chain.change(|state| (state.rows, state.newest) = (held, Some(newest)));
            if random.random_bool(0.4) {
                let rows = plain_rows(exported + 1, newest);
                let file = scene.chain.write(&format!("{round}.parquet"), &rows, false);
                exported = newest;
                scene.chain.change(|state| {
                    state.files.push(file);
                    state.rows.clear();
                });
            }
            thread::yield_now();
        }
        done.store(true, Ordering::Release);
    });
}

#[test]
fn what_a_query_reads_at_a_time_is_limited() {
    let scene = Scene::new();
    let owner = scene.owner("ana");
    let file = scene.chain.write("a.parquet", &plain_rows(1, 20), false);
    scene.chain.change(|state| state.files = vec![file]);
    let joined = |times: usize| {
        let joins: String =
            (1..times).map(|at| format!(" join chain.events e{at} on e{at}.id = e0.id")).collect();
        let filters: String = (1..times).map(|at| format!(" and e{at}.id + {at} < 90")).collect();
        format!("select count(*) as n from chain.events e0{joins} where true{filters}")
    };
    assert_eq!(scene.text(&owner, &joined(3)), r#"[{"n":20}]"#);
    // What one query has read is free again for the next.
    for _ in 0..40 {
        assert_eq!(scene.text(&owner, "select max(id) as n from chain.events"), r#"[{"n":20}]"#);
    }
    let all: Vec<_> = (0..40).map(|at| format!("select id, {at} from chain.events")).collect();
    let sum = format!("select count(*) as n from ({})", all.join(" union all "));
    assert_eq!(scene.text(&owner, &sum), r#"[{"n":800}]"#);
}
