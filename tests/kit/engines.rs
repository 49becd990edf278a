//! The engines that read exported tables: pyiceberg, polars, DuckDB and ClickHouse, as far as they are installed, in
//! one process that is asked again and again.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::lake_tables::LakeTable;

/// A table as engines are asked for it.
pub struct AskedTable {
    /// Namespace and name.
    pub name: [&'static str; 2],
    /// Address of its metadata.
    pub metadata: String,
    /// The columns that are read.
    pub columns: &'static [&'static str],
    /// The column that is added up: of the columns, one with integers.
    pub sum: &'static str,
}

impl AskedTable {
    /// This one of the tables of an export.
    pub fn of(
        table: &LakeTable,
        name: [&'static str; 2],
        columns: &'static [&'static str],
        sum: &'static str,
    ) -> Self {
        Self { name, metadata: table.address(), columns, sum }
    }

    fn json(&self) -> Value {
        let Self { name, metadata, columns, sum } = self;
        json!({ "name": name, "metadata": metadata, "columns": columns, "sum": sum })
    }

    /// What each engine answers if the table has these rows: their number, the sum, and the digest.
    pub fn answer(&self, rows: &[Value]) -> Value {
        let text = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let line = |row: &Value| {
            self.columns.iter().map(|it| text(&row[*it])).collect::<Vec<_>>().join("|")
        };
        let mut lines: Vec<_> = rows.iter().map(line).collect();
        lines.sort();
        let summed = |row: &Value| text(&row[self.sum]).parse::<i128>().ok();
        // A sum of nothing is null.
        let sum = rows.iter().filter_map(summed).reduce(|a, b| a + b);
        let sum = sum.map(|sum| sum.to_string()).unwrap_or_default();
        json!([rows.len(), sum, hex::encode(Sha256::digest(lines.join("\n")))])
    }
}

/// The engines of the Python that `ORRERY_TEST_PYTHON` names.
pub struct Engines {
    process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Those that have read tables.
    have_read: BTreeSet<String>,
}

impl Engines {
    /// Starts them; `None`, which is said, where there are none.
    pub fn start() -> Option<Self> {
        let python = std::env::var_os("ORRERY_TEST_PYTHON").map(PathBuf::from);
        let has_arrow = |python: &PathBuf| {
            let ran = Command::new(python).args(["-c", "import pyarrow"]).output();
            ran.is_ok_and(|ran| ran.status.success())
        };
        let Some(python) = python.filter(has_arrow) else {
            println!("skipped engines: ORRERY_TEST_PYTHON names no Python with pyarrow");
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("engines.py");
        let mut command = Command::new(python);
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let questions = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Some(Self { process, questions, answers, have_read: BTreeSet::new() })
    }

    /// Asserts that each engine finds the tables of an export as `expected`. `at` says where it is: `root`, and the
    /// `ways` in which it is read (`directory`; `bucket`, with the properties `s3`; `views`; `catalogue`, with
    /// `address` and `token`).
    pub fn assert_read(&mut self, mut at: Value, tables: &[AskedTable], expected: &[Value]) {
        at["tables"] = tables.iter().map(AskedTable::json).collect();
        writeln!(self.questions, "{at}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let found: Value = serde_json::from_str(&line).expect("an answer");
        let expected = Value::from(expected);
        let mut wrong = Vec::new();
        for (engine, answer) in found.as_object().unwrap() {
            match answer.as_str() {
                Some(reason) if reason.starts_with("absent") => {
                    if self.have_read.insert(format!("{engine} is {reason}")) {
                        println!("skipped: {engine} is {reason}");
                    }
                }
                _ if *answer != expected => wrong.push((engine, answer)),
                _ => drop(self.have_read.insert(engine.clone())),
            }
        }
        assert!(wrong.is_empty(), "{expected}\n{wrong:#?}");
    }

    /// Says which engines have read tables.
    pub fn say(&self) {
        println!("engines: {:?}", self.have_read);
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        // One that has ended needs neither.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
