//! The manifest of an export: which ledgers it has, and in which files their rows are.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{ExportError, at, files};
use crate::domain::{LedgerRange, LedgerSet};

pub(super) const NAME: &str = "manifest.json";
/// The manifest while it is being written.
pub(super) const DRAFT: &str = "manifest.json.new";
const FORMAT: u32 = 1;

/// What `manifest.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this format: 1.
    pub format: u32,
    /// Passphrase of the network whose ledgers these are.
    pub network_passphrase: String,
    /// First and last ledger of every range that is exported, ascending.
    pub ledgers: Vec<(u32, u32)>,
    /// Files by table.
    pub tables: Tables,
}

/// Files by table, in the order in which they were added.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tables {
    /// Files of events.
    pub events: Vec<DataFile>,
    /// Files of transactions.
    pub transactions: Vec<DataFile>,
}

/// One Parquet file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// Path below the directory of the export.
    pub path: String,
    /// First ledger of its portion.
    pub first_ledger: u32,
    /// Last ledger of its portion.
    pub last_ledger: u32,
    /// Rows.
    pub rows: u64,
    /// Size, bytes.
    pub bytes: u64,
    /// SHA-256 of the file, hex.
    pub sha256: String,
}

impl Manifest {
    pub(super) fn new(passphrase: &str) -> Self {
        Self {
            format: FORMAT,
            network_passphrase: passphrase.to_owned(),
            ledgers: Vec::new(),
            tables: Tables::default(),
        }
    }

    /// The manifest of a directory, if there is one.
    ///
    /// # Errors
    /// When it cannot be read, or is not of this format.
    pub fn read(directory: &Path) -> Result<Option<Self>, ExportError> {
        let path = directory.join(NAME);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(&path)(error)),
        };
        let unusable = |reason| ExportError::Manifest { path: path.clone(), reason };
        let manifest: Self =
            serde_json::from_slice(&text).map_err(|error| unusable(error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(unusable(format!("its format is {}, not {FORMAT}", manifest.format)));
        }
        Ok(Some(manifest))
    }

    pub(super) fn write(&self, directory: &Path) -> Result<(), ExportError> {
        let path = directory.join(NAME);
        let draft = directory.join(DRAFT);
        let written = fs::File::create(&draft).and_then(|mut file| {
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.write_all(b"\n")?;
            file.sync_all()
        });
        written.map_err(at(&draft))?;
        files::put_in_place(&draft, &path, directory)
    }

    /// Ledgers that are exported.
    pub fn exported(&self) -> LedgerSet {
        self.ledgers.iter().map(|(first, last)| LedgerRange::new(*first, *last)).collect()
    }

    pub(super) fn names(&self, path: &str) -> bool {
        let Tables { events, transactions } = &self.tables;
        events.iter().chain(transactions).any(|file| file.path == path)
    }

    pub(super) fn add(
        &mut self,
        ledgers: LedgerRange,
        events: Vec<DataFile>,
        transactions: Vec<DataFile>,
    ) {
        let mut exported = self.exported();
        exported.insert(ledgers);
        self.ledgers =
            exported.ranges().iter().map(|range| (range.first.0, range.last.0)).collect();
        self.tables.events.extend(events);
        self.tables.transactions.extend(transactions);
    }
}
