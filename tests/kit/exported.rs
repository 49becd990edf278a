//! Reads an export back from its files: the manifest, and rows of the tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, Int64Type, TimestampMicrosecondType};
use arrow::record_batch::RecordBatch;
use orrery::export::{DataFile, Manifest};
use orrery::iceberg::layout;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::wait::wait_until;

/// Columns of an exported event that are compared with the REST API's rows.
pub const OF_EVENTS: [&str; 13] = [
    "id",
    "contract_id",
    "topic1",
    "topic2",
    "topic3",
    "topic4",
    "data",
    "tx",
    "event_index",
    "ledger",
    "type",
    "application_order",
    "op_index",
];

/// Columns of an exported transaction that are compared with the REST API's rows.
pub const OF_TRANSACTIONS: [&str; 7] = [
    "tx",
    "ledger",
    "application_order",
    "successful",
    "source_account",
    "event_count",
    "envelope_xdr",
];

/// The manifest; `None` when there is none yet.
pub fn manifest(directory: &Path) -> Option<Manifest> {
    let text = fs::read(directory.join("manifest.json")).ok()?;
    Some(Manifest::parse(&text, "manifest.json").unwrap())
}

/// Columns of an exported event with its name and its values as JSON.
pub const DECODED: [&str; 6] = ["id", "ledger", "name", "params", "topics_json", "data_json"];

/// Rows of events, in the order of ids. Checks each file against the manifest.
pub fn events(directory: &Path) -> Vec<Value> {
    columns_of_events(directory, &OF_EVENTS)
}

/// As [`events`], with these columns, of which one is the id and one the ledger.
pub fn columns_of_events(directory: &Path, columns: &[&str]) -> Vec<Value> {
    let files = manifest(directory).unwrap().tables.events;
    let mut rows = rows(directory, &files, columns);
    rows.sort_by_key(|row| row["id"].as_u64());
    rows
}

/// Rows of transactions, in the order of the chain.
pub fn transactions(directory: &Path) -> Vec<Value> {
    let files = manifest(directory).unwrap().tables.transactions;
    let mut rows = rows(directory, &files, &OF_TRANSACTIONS);
    rows.sort_by_key(|row| (row["ledger"].as_u64(), row["application_order"].as_u64()));
    rows
}

/// The given members of an API row in the form that an export has, where empty strings are null.
pub fn comparable(row: &Value, columns: &[&str]) -> Value {
    let member = |column: &&str| {
        let value = match &row[*column] {
            Value::String(text) if text.is_empty() => Value::Null,
            value => value.clone(),
        };
        ((*column).to_owned(), value)
    };
    Value::Object(columns.iter().map(member).collect())
}

/// Rows of a program's table with all columns, in the order of the files; empty when the table has
/// no files. An integer of 128 bits, which files have as a number and as digits, is the digits; checks
/// that the number is the same, or null because it has 39 of them.
pub fn rows_of_program(directory: &Path, program: u32, table: &str) -> Vec<Value> {
    let manifest = manifest(directory).unwrap();
    let program = manifest.programs.iter().find(|it| it.id == program);
    let table = program.and_then(|it| it.tables.iter().find(|it| it.name == table));
    let Some(table) = table else { return Vec::new() };
    let columns: Vec<_> = table.columns.iter().map(|(name, _)| name.as_str()).collect();
    let mut rows = rows(directory, &table.files, &columns);
    let digits = table.identity.current().filter_map(|it| Some((&it.name, it.exact_of.as_ref()?)));
    for (digits, name) in digits {
        for row in rows.iter_mut().map(|row| row.as_object_mut().unwrap()) {
            match row.remove(digits).unwrap() {
                // A file of an earlier version has the digits under the name of the number.
                Value::Null => {}
                Value::String(exact) => {
                    let is_long = exact.trim_start_matches('-').len() > 38;
                    let number = if is_long { Value::Null } else { exact.clone().into() };
                    assert_eq!(row.insert(name.clone(), exact.into()), Some(number));
                }
                other => panic!("{other} are no digits"),
            }
        }
    }
    rows
}

/// Asserts that the directories of files hold exactly those that the manifest names, with the metadata of its
/// tables, that none of a program's directories of an earlier version is empty, and that the views name the files,
/// too. Waits for a service that is still writing.
pub fn assert_no_strays(directory: &Path) {
    wait_until("what is named is there, and nothing else", || {
        let manifest = manifest(directory).unwrap();
        let mut named: BTreeSet<String> = manifest.paths().map(str::to_owned).collect();
        let written = manifest.identified().filter(|(_, state)| state.commit > 0);
        named.extend(written.map(|(uuid, _)| layout::pointer(uuid)));
        let found = all_files(directory)?;
        let strays: Vec<_> = found.difference(&named).collect();
        let missing: Vec<_> = named.difference(&found).collect();
        if !strays.is_empty() || !missing.is_empty() {
            return Err(format!("{strays:?} are not named, {missing:?} are missing"));
        }
        views_name(directory, &manifest)
    });
}

/// The files in the directories of an export.
fn all_files(directory: &Path) -> Result<BTreeSet<String>, String> {
    let mut found = BTreeSet::new();
    let below = ["data", "events", "iceberg", "transactions", "programs"];
    let mut below: Vec<String> = below.map(str::to_owned).into();
    while let Some(path) = below.pop() {
        let Ok(entries) = fs::read_dir(directory.join(&path)) else { continue };
        let entries: Vec<_> = entries.filter_map(Result::ok).collect();
        if path.starts_with("programs/") && entries.is_empty() {
            return Err(format!("{path} is empty"));
        }
        for entry in entries {
            let name = format!("{path}/{}", entry.file_name().into_string().unwrap());
            match entry.path().is_dir() {
                true => below.push(name),
                false => drop(found.insert(name)),
            }
        }
    }
    Ok(found)
}

/// Whether the views name each file of events, transactions and programs that are not deleted once, and
/// no file that the manifest does not.
fn views_name(directory: &Path, manifest: &Manifest) -> Result<(), String> {
    let views = views(directory);
    let all = files_of_views(&views["views.sql"]);
    let of_schemas = views.iter().filter(|(path, _)| *path != "views.sql");
    let mut apart: Vec<_> = of_schemas.flat_map(|(_, text)| files_of_views(text)).collect();
    apart.sort_unstable();
    let mut together = all.clone();
    together.sort_unstable();
    if apart != together {
        return Err(format!("{apart:?} are in single views, {together:?} in all"));
    }
    let mut missing: BTreeSet<&str> = manifest.files().map(|file| &*file.path).collect();
    for file in &all {
        let is_it = |path: &&&str| file.strip_suffix(**path).is_some_and(|it| it.ends_with('/'));
        let found = missing.iter().find(is_it).copied();
        let path = found.ok_or_else(|| format!("{file} is named twice, or not by the manifest"))?;
        missing.remove(path);
    }
    let deleted = manifest.programs.iter().filter(|program| program.deleted);
    let deleted = deleted.flat_map(|program| &program.tables).flat_map(|table| &table.files);
    let deleted: BTreeSet<&str> = deleted.map(|file| &*file.path).collect();
    missing.retain(|path| !deleted.contains(path));
    if missing.is_empty() { Ok(()) } else { Err(format!("no view names {missing:?}")) }
}

/// The texts with views, by their path below the export.
pub fn views(directory: &Path) -> BTreeMap<String, String> {
    let schemas = fs::read_dir(directory.join("tables")).into_iter().flatten();
    let schemas = schemas.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let paths = schemas.map(|schema| format!("tables/{schema}/views.sql"));
    paths
        .chain(["views.sql".to_owned()])
        .map(|path| {
            let text = fs::read_to_string(directory.join(&path)).unwrap_or_default();
            (path, text)
        })
        .collect()
}

/// The files that a text with views names, in its order.
pub fn files_of_views(text: &str) -> Vec<&str> {
    let texts = text.split('\'').skip(1).step_by(2);
    texts.filter(|text| text.ends_with(".parquet")).collect()
}

/// Reads these columns of a table's files and checks size, SHA-256, row count and ledger range of
/// each file against the manifest. Columns that a file does not have are null.
fn rows(directory: &Path, files: &[DataFile], columns: &[&str]) -> Vec<Value> {
    let ledger = if columns.contains(&"ledger") { "ledger" } else { "_ledger" };
    let mut all = Vec::new();
    for file in files {
        let path = directory.join(&file.path);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, file.bytes, "{}", file.path);
        assert_eq!(hex::encode(Sha256::digest(&bytes)), file.sha256, "{}", file.path);
        let before = all.len();
        all.extend(rows_of_file(&path, columns));
        assert_eq!((all.len() - before) as u64, file.rows, "{}", file.path);
        let inside = |row: &Value| {
            let ledger = row[ledger].as_u64().unwrap();
            (u64::from(file.first_ledger)..=u64::from(file.last_ledger)).contains(&ledger)
        };
        assert!(all[before..].iter().all(inside), "{}", file.path);
    }
    all
}

/// Rows of a file with these columns.
pub fn rows_of_file(path: &Path, columns: &[&str]) -> Vec<Value> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap());
    let mut rows = Vec::new();
    for batch in reader.unwrap().build().unwrap() {
        let batch = batch.unwrap();
        rows.extend((0..batch.num_rows()).map(|row| one(&batch, row, columns)));
    }
    rows
}

fn one(batch: &RecordBatch, row: usize, columns: &[&str]) -> Value {
    let member = |column: &&str| {
        let values = batch.column_by_name(column);
        let value = values.map_or(Value::Null, |values| cell(values, row));
        ((*column).to_owned(), value)
    };
    Value::Object(columns.iter().map(member).collect::<Map<_, _>>())
}

/// One value: times in microseconds, decimals as digits, bytes in hexadecimal.
fn cell(values: &dyn Array, row: usize) -> Value {
    match values.data_type() {
        _ if values.is_null(row) => Value::Null,
        DataType::Int64 => values.as_primitive::<Int64Type>().value(row).into(),
        DataType::Decimal128(38, 0) => {
            values.as_primitive::<Decimal128Type>().value(row).to_string().into()
        }
        DataType::Timestamp(..) => {
            values.as_primitive::<TimestampMicrosecondType>().value(row).into()
        }
        DataType::Boolean => values.as_boolean().value(row).into(),
        DataType::Utf8 => values.as_string::<i32>().value(row).into(),
        DataType::Binary => hex::encode(values.as_binary::<i32>().value(row)).into(),
        DataType::List(_) => {
            let items = values.as_list::<i32>().value(row);
            (0..items.len()).map(|at| cell(&items, at)).collect()
        }
        DataType::Map(..) => {
            let entries = values.as_map().value(row);
            let pair = |at| [cell(entries.column(0), at), cell(entries.column(1), at)];
            (0..entries.len()).map(|at| Value::from_iter(pair(at))).collect()
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().zip(values.as_struct().columns());
            let members = columns.map(|(field, inner)| (field.name().clone(), cell(inner, row)));
            Value::Object(members.collect())
        }
        other => panic!("unexpected type {other}"),
    }
}
