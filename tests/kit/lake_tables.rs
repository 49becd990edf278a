//! Reads the tables of an export as an engine that knows Iceberg does: from the file that names the current
//! metadata of a table down to its data files, with a reader of the formats of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use orrery::export::Manifest;
use orrery::iceberg::layout;
use serde_json::Value;

#[path = "../iceberg/avro.rs"]
mod avro;

/// A table of an export, as its metadata has it.
pub struct LakeTable {
    /// Directory of the export.
    directory: PathBuf,
    /// Address of the export in the metadata.
    pub root: String,
    /// Path of the metadata below the export.
    path: String,
    pub metadata: Value,
}

/// A snapshot, read down to the data files.
#[derive(Debug, Clone, PartialEq)]
pub struct LakeSnapshot {
    pub id: u64,
    pub operation: String,
    /// Paths of its files below the export.
    pub files: BTreeSet<String>,
    pub rows: u64,
}

impl LakeTable {
    /// The table with this UUID; `None` if it has no metadata yet.
    pub fn read(directory: &Path, uuid: &str) -> Option<Self> {
        let name = fs::read_to_string(directory.join(layout::pointer(uuid))).ok()?;
        let path = format!("{}/{name}.metadata.json", layout::directory(uuid));
        let text = fs::read(directory.join(&path)).unwrap_or_else(|_| panic!("{path} is missing"));
        let metadata: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(metadata["table-uuid"], uuid);
        let root = metadata["location"].as_str().unwrap().to_owned();
        Some(Self { directory: directory.to_owned(), root, path, metadata })
    }

    /// Address of the metadata, as an engine is given it.
    pub fn address(&self) -> String {
        format!("{}/{}", self.root, self.path)
    }

    /// The tables of events and of transactions, as far as they have metadata.
    pub fn of_chain(directory: &Path, manifest: &Manifest) -> [Option<Self>; 2] {
        let chain = [&manifest.chain.events, &manifest.chain.transactions];
        chain.map(|table| Self::read(directory, &table.identity.uuid))
    }

    /// All snapshots that have not expired, the newest last. Each file of each is there, with its size.
    pub fn snapshots(&self) -> Vec<LakeSnapshot> {
        let found = self.metadata["snapshots"].as_array().unwrap();
        let newest = self.metadata.get("current-snapshot-id");
        assert_eq!(newest, found.last().map(|it| &it["snapshot-id"]));
        let times = found.iter().map(|it| it["timestamp-ms"].as_i64().unwrap());
        assert!(times.is_sorted_by(|a, b| a < b), "time never goes back");
        found.iter().map(|snapshot| self.snapshot(snapshot)).collect()
    }

    fn bytes(&self, address: &str) -> Vec<u8> {
        let path = self.path(address);
        fs::read(self.directory.join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn path(&self, address: &str) -> String {
        let path = address.strip_prefix(&self.root).and_then(|it| it.strip_prefix('/'));
        path.unwrap_or_else(|| panic!("{address} is not below {}", self.root)).to_owned()
    }

    fn snapshot(&self, snapshot: &Value) -> LakeSnapshot {
        let list = avro::read(&self.bytes(snapshot["manifest-list"].as_str().unwrap()));
        assert_eq!(list.metadata["snapshot-id"], snapshot["snapshot-id"].to_string());
        let (mut files, mut rows) = (BTreeSet::new(), 0);
        for manifest in &list.rows {
            let bytes = self.bytes(manifest["manifest_path"].as_str().unwrap());
            assert_eq!(manifest["manifest_length"], bytes.len());
            for row in avro::read(&bytes).rows.iter().filter(|row| row["status"] != 2) {
                let file = &row["data_file"];
                let path = self.path(file["file_path"].as_str().unwrap());
                let found = fs::metadata(self.directory.join(&path));
                let bytes = found.unwrap_or_else(|error| panic!("{path}: {error}")).len();
                assert_eq!(file["file_size_in_bytes"], bytes, "{path}");
                rows += file["record_count"].as_u64().unwrap();
                assert!(files.insert(path), "a file is there twice");
            }
        }
        assert_eq!(snapshot["summary"]["total-records"], rows.to_string());
        LakeSnapshot {
            id: snapshot["snapshot-id"].as_u64().unwrap(),
            operation: snapshot["summary"]["operation"].as_str().unwrap().to_owned(),
            files,
            rows,
        }
    }
}
