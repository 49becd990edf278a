//! The engines that people use read the tables: pyiceberg from a file and through the catalogue, polars,
//! DuckDB and ClickHouse. `ORRERY_TEST_PYTHON` names a Python that has them; the test checks those that are
//! there. `reader.py` writes the Parquet files and asks the engines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use orrery_iceberg::catalog::Lake;
use orrery_iceberg::order::{self, Step, Writer};
use orrery_iceberg::{Bounds, Change, Column, Columns, DataFile, Table, TableState, Type, commit};
use serde_json::{Value, json};

use crate::served::serve;

/// Versions that were tried: pyiceberg 0.12, polars 2.1, DuckDB 1.5.5, chdb 4.4.
const ENGINES: &str = "pyiceberg polars duckdb duckdb_extension_avro duckdb_extension_iceberg chdb";
const UUID: &str = "6b0f3f4e-55a1-8c77-9a3e-0d1c2b3a4f5e";

fn python() -> Option<PathBuf> {
    let python = PathBuf::from(std::env::var_os("ORRERY_TEST_PYTHON").unwrap_or("python3".into()));
    let ran = Command::new(&python).args(["-c", "import pyarrow, pyiceberg"]).output();
    match ran.is_ok_and(|ran| ran.status.success()) {
        true => Some(python),
        false => {
            println!(
                "skipped: ORRERY_TEST_PYTHON names no Python that has pyarrow and any of {ENGINES}"
            );
            None
        }
    }
}

fn run(python: &Path, args: &[&str]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/iceberg/reader.py");
    let ran = Command::new(python).arg(script).args(args).output().unwrap();
    assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    let text = String::from_utf8(ran.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// Columns of the table: one of each type, and one with the digits of another.
fn all_columns() -> Vec<Column> {
    let number = Type::Decimal(38);
    let parts = vec![("a".to_owned(), Type::String), ("b".to_owned(), number.clone())];
    let mut columns: Vec<_> = [
        ("ledger", Type::Long),
        ("closed_at", Type::Timestamptz),
        ("amount", number.clone()),
        ("big", Type::String),
        ("nonce", number),
        ("ok", Type::Boolean),
        ("raw", Type::Binary),
        ("tags", Type::list(Type::String)),
        ("by_name", Type::map(Type::String, Type::String)),
        ("pair", Type::Struct(parts)),
    ]
    .map(|(name, kind)| Column::new(name, kind))
    .to_vec();
    let exact_of = Some("amount".to_owned());
    columns.push(Column { exact_of, ..Column::new("amount_exact", Type::String) });
    columns
}

/// A table in a directory.
struct World {
    python: PathBuf,
    directory: tempfile::TempDir,
    now: Vec<Column>,
    columns: Columns,
    state: TableState,
    files: Vec<DataFile>,
}

struct Directory<'a>(&'a Path);

impl Writer for Directory<'_> {
    type Error = std::io::Error;

    fn carry_out(&mut self, step: &Step) -> std::io::Result<()> {
        match step {
            Step::Manifest => Ok(()),
            Step::Write(file) | Step::Point(file) => {
                let path = self.0.join(&file.path);
                fs::create_dir_all(path.parent().unwrap())?;
                fs::write(path, &file.bytes)
            }
            Step::Remove(path) => fs::remove_file(self.0.join(path)),
        }
    }
}

impl World {
    /// The first files are an earlier version's, in which the amount is a text, and columns have no ids.
    fn new(python: PathBuf) -> Self {
        let now = all_columns();
        let earlier = |column: &&Column| column.exact_of.is_none();
        let earlier: Vec<_> = now
            .iter()
            .filter(earlier)
            .map(|column| match &*column.name {
                "amount" => (column.name.clone(), Type::String.sql()),
                _ => (column.name.clone(), column.text.clone()),
            })
            .collect();
        let columns = Columns { uuid: UUID.to_owned(), ..Columns::default() };
        let mut columns = columns.of_earlier(&earlier, &now, &Type::String.sql()).unwrap();
        columns.set(&now);
        let (state, files) = (TableState::default(), Vec::new());
        Self { python, directory: tempfile::tempdir().unwrap(), now, columns, state, files }
    }

    fn root(&self) -> &str {
        self.directory.path().to_str().unwrap()
    }

    fn ids(&self) -> String {
        let fields = self.columns.fields_of(&self.now);
        let ids = fields.iter().map(|field| (field.name.clone(), json!(field.id)));
        Value::Object(ids.collect()).to_string()
    }

    /// Writes a file with a row for each of the ledgers.
    fn file(&self, first: u32, last: u32, is_earlier: bool) -> DataFile {
        let bounds = [first.to_string(), last.to_string()];
        let ids = if is_earlier { String::new() } else { self.ids() };
        let made = run(&self.python, &["write", self.root(), &bounds[0], &bounds[1], &ids]);
        let time = |ledger: u32| 1_700_000_000_000_000 + i64::from(ledger) * 5_000_000;
        DataFile {
            path: made["path"].as_str().unwrap().to_owned(),
            first_ledger: first,
            last_ledger: last,
            rows: u64::from(last - first + 1),
            bytes: made["bytes"].as_u64().unwrap(),
            sha256: made["sha256"].as_str().unwrap().to_owned(),
            columns: (!is_earlier).then_some(self.now.len() as u32),
            bounds: Some(Bounds { ledgers: (first, last), times: (time(first), time(last)) }),
            sorted: true,
            digest: None,
            place: None,
        }
    }

    fn commit(&mut self, now_ms: i64) {
        let root = self.root().to_owned();
        let (ledger, closed_at) = (Some("ledger"), Some("closed_at"));
        let table = Table { root: &root, columns: &self.columns, ledger, closed_at, mark: None };
        let change = Change::at(now_ms);
        let made = commit(&mut self.state, &table, &self.now, &mut self.files, change).unwrap();
        let named: Vec<_> = self.files.iter().map(|file| file.path.as_str()).collect();
        let named: Vec<_> = named.into_iter().chain(self.state.paths()).collect();
        let steps =
            order::plan(made.into_iter().collect(), Vec::new(), |path| named.contains(&path));
        order::execute(&steps, &mut Directory(self.directory.path())).unwrap();
    }

    fn metadata(&self) -> String {
        format!("{}/{}", self.root(), self.state.metadata_path().unwrap())
    }
}

/// A catalogue with one table, and one without rows.
struct OneTable {
    location: String,
    empty: String,
}

impl Lake for OneTable {
    fn namespaces(&self) -> Vec<String> {
        ["chain", "my project"].map(str::to_owned).to_vec()
    }

    fn tables(&self, namespace: &str) -> Option<Vec<String>> {
        match namespace {
            "chain" => Some(["events", "nothing"].map(str::to_owned).to_vec()),
            "my project" => Some(Vec::new()),
            _ => None,
        }
    }

    fn location(&self, namespace: &str, table: &str) -> Option<String> {
        match (namespace, table) {
            ("chain", "events") => Some(self.location.clone()),
            ("chain", "nothing") => Some(self.empty.clone()),
            _ => None,
        }
    }

    fn metadata(&self, location: &str) -> Result<String, String> {
        fs::read_to_string(location).map_err(|error| error.to_string())
    }
}

#[test]
fn engines_read_the_table() {
    let Some(python) = python() else { return };
    let mut world = World::new(python.clone());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let mut commits = (0..).map(|number| now - 600_000 + number * 100_000);
    let mut next = || commits.next().unwrap();
    world.commit(next());
    let empty = world.metadata();
    world.files.push(world.file(1, 10, true));
    world.files.push(world.file(11, 30, false));
    world.commit(next());
    world.files.push(world.file(31, 50, false));
    world.commit(next());
    let retired = world.files.remove(1);
    assert!(world.state.retire(retired).is_none());
    world.files.push(world.file(11, 29, false));
    world.commit(next());
    let location = world.metadata();
    let (address, requests) = serve(OneTable { location: location.clone(), empty: empty.clone() });
    let table = format!("{}/iceberg/{UUID}", world.root());
    let found = run(&python, &["read", world.root(), &table, &location, &empty, &address]);
    // Ledgers 1 to 50 without 30; numbers are null in the earliest file.
    let amounts: u64 = (11..=29).chain(31..=50).map(|ledger| ledger * 10).sum();
    let expected = json!({
        "rows": 49, "amount": amounts.to_string(), "digits": 49, "nonce": (1275 - 30).to_string(),
        "first": "10", "pair": "17", "of_map": "17", "tags": ["t17", "x"], "big": format!("17{}", "0".repeat(70)),
        "raw": "11", "ok": 24, "closed_at": "2023-11-14 22:14:45+00:00",
    });
    let mut wrong = Vec::new();
    for (engine, answer) in found.as_object().unwrap() {
        match answer.as_str() {
            Some(reason) if reason.starts_with("absent") => {
                println!("skipped: {engine} is {reason}")
            }
            _ if *answer != expected => wrong.push((engine, answer)),
            _ => println!("{engine} reads the table"),
        }
    }
    assert!(wrong.is_empty(), "{expected}\n{wrong:#?}");
    let requests = requests.lock().unwrap();
    assert!(
        requests.iter().all(|it| it.starts_with("GET ") || it.starts_with("HEAD ")),
        "{requests:?}"
    );
}
