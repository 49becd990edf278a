//! The manifest of an export: which ledgers it has, and in which files their rows are.

use serde::{Deserialize, Serialize};

use super::ExportError;
use crate::domain::{LedgerRange, LedgerSet};

pub(super) const NAME: &str = "manifest.json";
const FORMAT: u32 = 1;

/// What `manifest.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this format: 1.
    pub format: u32,
    /// Passphrase of the network whose ledgers these are.
    pub network_passphrase: String,
    /// Who writes to a bucket now. Nothing for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<Writer>,
    /// First and last ledger of every range that is exported, ascending.
    pub ledgers: Vec<(u32, u32)>,
    /// Files by table.
    pub tables: Tables,
    /// Tables of programs, by the programs' numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ExportedProgram>,
}

/// The tables of a program, as far as they are exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedProgram {
    /// Its number.
    pub id: u32,
    /// Whose it is.
    pub owner: String,
    /// The name that its owner gave it.
    pub project: String,
    /// When it was deployed, UNIX seconds.
    pub deployed_at: u64,
    /// Whether it is gone. What was exported of it stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Number of the last of its runs with rows whose rows are exported, in the order in which runs were made.
    pub runs: u64,
    /// Ledger and application order of that run's transaction: where a store has another one under the number, it is
    /// not the store that was exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<(u32, u32)>,
    /// Its tables that have rows.
    pub tables: Vec<ExportedTable>,
}

impl ExportedProgram {
    /// Rows of all its tables.
    pub fn rows(&self) -> u64 {
        self.tables.iter().flat_map(|table| &table.files).map(|file| file.rows).sum()
    }
}

/// A table of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedTable {
    /// Its name, as in SQL behind `program_ID_`.
    pub name: String,
    /// Names and types of its columns, as Arrow calls them. Files that were written earlier may lack the last ones.
    pub columns: Vec<(String, String)>,
    /// Number of its next file.
    pub next_file: u32,
    /// Its files, in the order in which they were added. First and last ledger are those of the rows.
    pub files: Vec<DataFile>,
}

/// Who writes to a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// Tells it from others.
    pub id: String,
    /// After this time, in UNIX seconds, it is held to be gone.
    pub until: u64,
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
    /// Path below the place of the export.
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
            writer: None,
            ledgers: Vec::new(),
            tables: Tables::default(),
            programs: Vec::new(),
        }
    }

    /// Reads what a manifest says, which lies at `place`.
    ///
    /// # Errors
    /// [`ExportError::Manifest`] when it is not of this format.
    pub fn parse(text: &[u8], place: &str) -> Result<Self, ExportError> {
        let unusable = |reason| ExportError::Manifest { place: place.to_owned(), reason };
        let manifest: Self =
            serde_json::from_slice(text).map_err(|error| unusable(error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(unusable(format!("its format is {}, not {FORMAT}", manifest.format)));
        }
        Ok(manifest)
    }

    /// The text of the file.
    pub(super) fn text(&self, place: &str) -> Result<Vec<u8>, ExportError> {
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| ExportError::Manifest {
            place: place.to_owned(),
            reason: error.to_string(),
        })?;
        text.push(b'\n');
        Ok(text)
    }

    /// Whether it is of the network of this passphrase.
    pub(super) fn check_network(&self, stored: &str, place: &str) -> Result<(), ExportError> {
        if self.network_passphrase == stored {
            return Ok(());
        }
        Err(ExportError::OtherNetwork {
            place: place.to_owned(),
            exported: self.network_passphrase.clone(),
            stored: stored.to_owned(),
        })
    }

    /// Ledgers that are exported.
    pub fn exported(&self) -> LedgerSet {
        self.ledgers.iter().map(|(first, last)| LedgerRange::new(*first, *last)).collect()
    }

    /// Paths of all files that count.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files().map(|file| &*file.path)
    }

    /// All files that count.
    pub fn files(&self) -> impl Iterator<Item = &DataFile> {
        let Tables { events, transactions } = &self.tables;
        let of_programs = self.programs.iter().flat_map(|program| &program.tables);
        events.iter().chain(transactions).chain(of_programs.flat_map(|table| &table.files))
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
