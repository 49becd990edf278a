//! A destination in memory, and what a reader finds in it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use orrery_iceberg::order::{Step, Writer};
use orrery_iceberg::{Bounds, Change, Column, Columns, DataFile, Table, TableState, Type, layout};
use serde_json::Value;

use crate::avro;

/// Address of the destination.
pub const ROOT: &str = "/srv/lake";
pub const UUID: &str = "0c8f3a52-9d41-8e0b-a1f2-7d6c5b4a3928";

/// What the export's manifest has: it is written as JSON.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Export {
    pub columns: Columns,
    pub state: TableState,
    pub files: Vec<DataFile>,
}

impl Export {
    pub fn new() -> Self {
        let mut columns = Columns { uuid: UUID.to_owned(), ..Columns::default() };
        columns.set(&columns_of());
        Self { columns, ..Self::default() }
    }

    /// Makes a commit, if there is something to do.
    pub fn commit(&mut self, change: Change) -> Option<orrery_iceberg::Commit> {
        let Self { columns, state, files } = self;
        orrery_iceberg::commit(state, &table(columns), &columns_of(), files, change).unwrap()
    }

    pub fn names(&self) -> BTreeSet<String> {
        let own = self.files.iter().map(|file| file.path.as_str());
        own.chain(self.state.paths()).map(str::to_owned).collect()
    }
}

pub fn columns_of() -> Vec<Column> {
    vec![
        Column::new("ledger", Type::Long),
        Column::new("closed_at", Type::Timestamptz),
        Column::new("amount", Type::Decimal(38)),
        Column { exact_of: Some("amount".to_owned()), ..Column::new("amount_exact", Type::String) },
    ]
}

pub fn table(columns: &Columns) -> Table<'_> {
    let (ledger, closed_at) = (Some("ledger"), Some("closed_at"));
    Table { root: ROOT, columns, ledger, closed_at, mark: None }
}

/// A file with the rows of some ledgers. Its name says its number.
pub fn file(number: u64, ledgers: (u32, u32), bytes: u64) -> DataFile {
    let time = |ledger: u32| 1_700_000_000_000_000 + i64::from(ledger) * 5_000_000;
    DataFile {
        path: format!("data/events/{number:064x}.parquet"),
        first_ledger: ledgers.0,
        last_ledger: ledgers.1,
        rows: number % 7 + 1,
        bytes,
        sha256: format!("{number:064x}"),
        columns: Some(4),
        bounds: Some(Bounds { ledgers, times: (time(ledgers.0), time(ledgers.1)) }),
        sorted: true,
        digest: None,
        place: None,
    }
}

/// Files by their paths.
#[derive(Clone, Default)]
pub struct Disk {
    pub files: BTreeMap<String, Vec<u8>>,
    /// Avro files that were read before, by their addresses: no file gets another content.
    contents: RefCell<BTreeMap<String, Rc<avro::Contents>>>,
    /// What the next step [`Step::Manifest`] writes.
    pub manifest: Vec<u8>,
}

pub const MANIFEST: &str = "manifest.json";

impl Writer for Disk {
    type Error = String;

    fn carry_out(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Manifest => {
                self.files.insert(MANIFEST.to_owned(), self.manifest.clone());
            }
            Step::Write(file) => {
                let before = self.files.insert(file.path.clone(), file.bytes.clone());
                if before.is_some_and(|before| before != file.bytes) {
                    return Err(format!("{} was there with another content", file.path));
                }
            }
            Step::Point(file) => {
                self.files.insert(file.path.clone(), file.bytes.clone());
            }
            Step::Remove(path) => {
                self.files.remove(path);
            }
        }
        Ok(())
    }
}

/// A snapshot as a reader finds it.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub id: u64,
    pub operation: String,
    /// Paths of its files.
    pub files: BTreeSet<String>,
    pub rows: u64,
}

impl Disk {
    pub fn put(&mut self, file: &DataFile) {
        self.files.insert(file.path.clone(), b"rows".to_vec());
    }

    pub fn at(&self, address: &str) -> &[u8] {
        let path = address.strip_prefix(ROOT).unwrap().strip_prefix('/').unwrap();
        self.files.get(path).unwrap_or_else(|| panic!("{path} is not there"))
    }

    /// The content of an Avro file, which is there.
    fn avro(&self, address: &str) -> Rc<avro::Contents> {
        let bytes = self.at(address);
        let mut contents = self.contents.borrow_mut();
        let read = || Rc::new(avro::read(bytes));
        Rc::clone(contents.entry(address.to_owned()).or_insert_with(read))
    }

    /// The current metadata, if there is any.
    pub fn metadata(&self) -> Option<Value> {
        let pointer = self.files.get(&layout::pointer(UUID))?;
        let name = std::str::from_utf8(pointer).unwrap();
        let path = format!("{ROOT}/{}/{name}.metadata.json", layout::directory(UUID));
        Some(serde_json::from_slice(self.at(&path)).unwrap())
    }

    /// All snapshots of the current metadata, read down to the data files.
    pub fn snapshots(&self) -> Vec<Found> {
        let Some(metadata) = self.metadata() else { return Vec::new() };
        let newest = metadata.get("current-snapshot-id");
        let found = metadata["snapshots"].as_array().unwrap();
        assert_eq!(newest, found.last().map(|it| &it["snapshot-id"]));
        found.iter().map(|snapshot| self.snapshot(snapshot)).collect()
    }

    fn snapshot(&self, snapshot: &Value) -> Found {
        let id = snapshot["snapshot-id"].as_u64().unwrap();
        let list = self.avro(snapshot["manifest-list"].as_str().unwrap());
        assert_eq!(list.metadata["snapshot-id"], id.to_string());
        let (mut files, mut rows) = (BTreeSet::new(), 0);
        for manifest in &list.rows {
            let address = manifest["manifest_path"].as_str().unwrap();
            assert_eq!(manifest["manifest_length"], self.at(address).len());
            rows += self.manifest(manifest, &self.avro(address), id, &mut files);
        }
        let summary = &snapshot["summary"];
        assert_eq!(summary["total-records"], rows.to_string());
        assert_eq!(summary["total-data-files"], files.len().to_string());
        let operation = summary["operation"].as_str().unwrap().to_owned();
        Found { id, operation, files, rows }
    }

    /// Adds the files that a manifest has in a snapshot, and returns their rows.
    fn manifest(
        &self,
        entry: &Value,
        manifest: &avro::Contents,
        id: u64,
        files: &mut BTreeSet<String>,
    ) -> u64 {
        let (mut counts, mut rows, mut oldest) = ([0u64; 3], [0u64; 3], u64::MAX);
        for row in &manifest.rows {
            let file = &row["data_file"];
            let status = row["status"].as_u64().unwrap() as usize;
            counts[status] += 1;
            rows[status] += file["record_count"].as_u64().unwrap();
            let sequence = row["sequence_number"].as_u64().unwrap();
            let own = row["snapshot_id"].as_u64().unwrap();
            assert!(sequence <= id && own <= id);
            if status == 2 {
                continue;
            }
            assert_eq!(sequence, own);
            oldest = oldest.min(sequence);
            let path = file["file_path"].as_str().unwrap();
            self.at(path);
            assert!(files.insert(path.to_owned()), "{path} is there twice");
        }
        for (status, name) in [(0, "existing"), (1, "added"), (2, "deleted")] {
            assert_eq!(entry[format!("{name}_files_count")], counts[status]);
            assert_eq!(entry[format!("{name}_rows_count")], rows[status]);
        }
        if oldest < u64::MAX {
            assert_eq!(entry["min_sequence_number"], oldest);
        }
        rows[0] + rows[1]
    }
}
