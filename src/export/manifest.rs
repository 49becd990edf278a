//! The manifest of an export: the exported ledgers, and the files that hold their rows.

use std::fmt::Display;
use std::path::{Component, Path};

pub use orrery_iceberg::DataFile;
use orrery_iceberg::{Columns, TableState};
use serde::{Deserialize, Serialize};

use super::error::{ExportError, Result};
use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet};

pub(super) const NAME: &str = "manifest.json";
/// Version 3 has what Iceberg's metadata is made from; version 2 has files by content, and ids of columns; in
/// version 1, the paths of files are those of tables. An earlier export is continued: its files stay until
/// they are written anew.
pub(super) const FORMAT: u32 = 3;
const OLDEST_FORMAT: u32 = 1;

/// Content of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the manifest format: 3; less in exports that an earlier version has written.
    pub format: u32,
    /// Passphrase of the network whose ledgers are exported.
    pub network_passphrase: String,
    /// Exporter that currently writes to the bucket; `None` when there is none, and always `None`
    /// in a directory. Readers can ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<Writer>,
    /// The exported ledgers.
    pub ledgers: LedgerSet,
    /// First ledger, and newest attested ledger, of every range of exported ledgers that validators or
    /// a followed stellar-core attest, ascending. An export that was written before this was recorded
    /// has none. What is attested later is added when the manifest is written again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attested: Vec<AttestedLedgers>,
    /// Files of events and transactions.
    pub tables: Tables,
    /// Columns and commits of the tables of events and transactions.
    #[serde(default)]
    pub chain: ChainTables,
    /// Exported programs, ascending by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ExportedProgram>,
}

/// Consecutive exported ledgers that are attested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttestedLedgers {
    /// First ledger.
    pub first_ledger: LedgerSeq,
    /// Newest attested ledger.
    pub attested_ledger: LedgerSeq,
}

/// A program, as far as its tables are exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedProgram {
    /// Number of the program.
    pub id: u32,
    /// Owner of the program.
    pub owner: String,
    /// Project name that the owner gave the program.
    pub project: String,
    /// UNIX time in seconds at which the program was deployed.
    pub deployed_at: u64,
    /// Whether the program no longer exists in the store. Its exported files stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Number of the last run whose rows are exported. Runs that emitted rows are numbered in the
    /// order in which they were made.
    pub runs: u64,
    /// Ledger and application order of that run's transaction. A store that has another transaction
    /// under this number is not the store that was exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<(u32, u32)>,
    /// Whether it is a project of events, whose rows are events and not what a program emits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_events: bool,
    /// For a project of events: UNIX time in milliseconds since when the rows of earlier runs are
    /// what they are. Readers can ignore it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub arrangement: u64,
    /// For a project of events: names of the tables that hold the versions of one event, for each event
    /// that has several. The view with the name of the first shows the rows of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<Vec<String>>,
    /// Tables of the program, those without rows among them.
    pub tables: Vec<ExportedTable>,
}

/// The tables of events and transactions, without their files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ChainTables {
    /// That of events.
    pub events: ChainTable,
    /// That of transactions.
    pub transactions: ChainTable,
}

/// A table of events or transactions, without its files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ChainTable {
    /// UUID of the table, and the ids of its columns.
    #[serde(flatten)]
    pub identity: Columns,
    /// What its commits have done.
    #[serde(default)]
    pub state: TableState,
}

impl ExportedProgram {
    /// Returns the number of rows in all tables.
    pub fn rows(&self) -> u64 {
        self.tables.iter().flat_map(|table| &table.files).map(|file| file.rows).sum()
    }
}

/// A table of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedTable {
    /// Name of the table: in SQL, the part that follows `program_ID_`.
    pub name: String,
    /// Names and Arrow types of the columns; none if the program has the table no more. Files that were
    /// written earlier may lack some.
    pub columns: Vec<(String, String)>,
    /// Earlier versions number files. It is only there so that such a version can read the manifest, and say
    /// that its format is a newer one.
    #[serde(default)]
    pub next_file: u32,
    /// UUID of the table, and the ids of its columns.
    #[serde(flatten)]
    pub identity: Columns,
    /// What its commits have done.
    #[serde(default)]
    pub state: TableState,
    /// Files in the order in which they were added. Their first and last ledgers are those of the
    /// rows.
    pub files: Vec<DataFile>,
}

/// The exporter that currently writes to a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// Identifier of the exporter.
    pub id: String,
    /// UNIX time in seconds after which the exporter is considered dead.
    pub until: u64,
}

/// Files of events and transactions, in the order in which they were added.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tables {
    /// Files of events.
    pub events: Vec<DataFile>,
    /// Files of transactions.
    pub transactions: Vec<DataFile>,
}

impl Manifest {
    pub(super) fn new(passphrase: &str) -> Self {
        Self {
            format: FORMAT,
            network_passphrase: passphrase.to_owned(),
            writer: None,
            ledgers: LedgerSet::default(),
            attested: Vec::new(),
            tables: Tables::default(),
            chain: ChainTables::default(),
            programs: Vec::new(),
        }
    }

    /// Parses the manifest that was read from `place`.
    ///
    /// # Errors
    /// [`ExportError::Manifest`] when it cannot be parsed or has another format version.
    pub fn parse(text: &[u8], place: &str) -> Result<Self> {
        let manifest: Self =
            serde_json::from_slice(text).map_err(|error| unusable(place, error))?;
        if !(OLDEST_FORMAT..=FORMAT).contains(&manifest.format) {
            let reason = format!("its format is {}, not {FORMAT}", manifest.format);
            return Err(unusable(place, reason));
        }
        if let Some(path) = manifest.paths().find(|path| !stays_below(path)) {
            let reason = format!("it names the file '{path}', which no export writes");
            return Err(unusable(place, reason));
        }
        Ok(manifest)
    }

    /// Serialises the manifest as the text of `manifest.json`, in the newest format.
    pub(super) fn text(&mut self, place: &str) -> Result<Vec<u8>> {
        self.format = FORMAT;
        let mut text = serde_json::to_vec(self).map_err(|error| unusable(place, error))?;
        text.push(b'\n');
        Ok(text)
    }

    /// Fails with [`ExportError::OtherNetwork`] unless the manifest has the passphrase `stored`.
    pub(super) fn check_network(&self, stored: &str, place: &str) -> Result<()> {
        if self.network_passphrase == stored {
            return Ok(());
        }
        Err(ExportError::OtherNetwork(format!(
            "{place} holds an export of the network '{}', not of '{stored}'",
            self.network_passphrase
        )))
    }

    /// Returns the exported ledgers that are attested.
    pub fn attested(&self) -> LedgerSet {
        let range = |it: &AttestedLedgers| LedgerRange::new(it.first_ledger, it.attested_ledger);
        self.attested.iter().map(range).collect()
    }

    /// Adds what is attested of the exported ledgers.
    pub(super) fn attest(&mut self, attested: &LedgerSet) {
        let mut all = self.attested();
        for range in self.ledgers.ranges() {
            all.insert_all(&attested.within(*range));
        }
        let of = |range: &LedgerRange| AttestedLedgers {
            first_ledger: range.first,
            attested_ledger: range.last,
        };
        self.attested = all.ranges().iter().map(of).collect();
    }

    /// Returns the paths of all files that must stay: those that are part of the export, those of its tables'
    /// snapshots that have not expired, and their metadata.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let files = self.files().map(|file| &*file.path);
        files.chain(self.states().flat_map(TableState::paths))
    }

    /// Returns the columns and states of all tables.
    fn identities(&self) -> impl Iterator<Item = (&Columns, &TableState)> {
        let ChainTables { events, transactions } = &self.chain;
        let of_chain = [events, transactions].into_iter().map(|it| (&it.identity, &it.state));
        let of_programs = self.programs.iter().flat_map(|program| &program.tables);
        of_chain.chain(of_programs.map(|it| (&it.identity, &it.state)))
    }

    /// Returns the UUIDs and states of all tables. One that an earlier version has written, and that was not
    /// exported since, has none.
    pub fn identified(&self) -> impl Iterator<Item = (&str, &TableState)> {
        let all = self.identities().map(|(columns, state)| (&*columns.uuid, state));
        all.filter(|(uuid, _)| !uuid.is_empty())
    }

    /// Returns the states of all tables.
    pub(super) fn states(&self) -> impl Iterator<Item = &TableState> {
        self.identities().map(|(_, state)| state)
    }

    /// Returns all files that are part of the export.
    pub fn files(&self) -> impl Iterator<Item = &DataFile> {
        let Tables { events, transactions } = &self.tables;
        let of_programs = self.programs.iter().flat_map(|program| &program.tables);
        events.iter().chain(transactions).chain(of_programs.flat_map(|table| &table.files))
    }

    /// Adds a portion of ledgers with the files of its events and transactions.
    pub(super) fn add(
        &mut self,
        ledgers: LedgerRange,
        events: Vec<DataFile>,
        transactions: Vec<DataFile>,
    ) {
        self.ledgers.insert(ledgers);
        self.tables.events.extend(events);
        self.tables.transactions.extend(transactions);
    }
}

fn unusable(place: &str, reason: impl Display) -> ExportError {
    ExportError::Manifest(format!(
        "{place} is not a manifest that this version can continue from: {reason}"
    ))
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Whether a relative path stays below the destination of the export.
fn stays_below(path: &str) -> bool {
    let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
    !path.is_empty() && Path::new(path).components().all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attested_ledgers_are_those_of_the_export_and_stay() {
        let mut manifest = Manifest::new("a passphrase");
        manifest.add(LedgerRange::new(10, 19), Vec::new(), Vec::new());
        manifest.add(LedgerRange::new(30, 39), Vec::new(), Vec::new());
        let before = manifest.text("m").unwrap();
        assert!(!String::from_utf8_lossy(&before).contains("attested"), "as earlier versions do");
        assert!(Manifest::parse(&before, "m").unwrap().attested().is_empty());
        let attest = |manifest: &mut Manifest, first: u32, last: u32| {
            manifest.attest(&LedgerRange::new(first, last).into());
            let attested = manifest.attested.iter();
            attested.map(|it| (it.first_ledger.0, it.attested_ledger.0)).collect::<Vec<_>>()
        };
        assert_eq!(attest(&mut manifest, 5, 14), [(10, 14)]);
        assert_eq!(attest(&mut manifest, 12, 33), [(10, 19), (30, 33)]);
        assert_eq!(attest(&mut manifest, 100, 200), [(10, 19), (30, 33)], "nothing is forgotten");
        let parsed = Manifest::parse(&manifest.text("m").unwrap(), "m").unwrap();
        assert_eq!(parsed, manifest);
    }

    #[test]
    fn files_outside_of_the_export_are_refused() {
        for (path, fits) in [
            ("events/0000000002-0000000009-0.parquet", true),
            ("../x.parquet", false),
            ("events/../../x.parquet", false),
            ("/x.parquet", false),
            ("", false),
        ] {
            let mut manifest = Manifest::new("a passphrase");
            let path = path.to_owned();
            manifest.tables.events.push(DataFile {
                path,
                first_ledger: 2,
                last_ledger: 9,
                rows: 1,
                bytes: 1,
                sha256: String::new(),
                columns: None,
                bounds: None,
                sorted: false,
                digest: None,
                place: None,
            });
            let parsed = Manifest::parse(&manifest.text("m").unwrap(), "m");
            assert_eq!(parsed.is_ok(), fits, "{parsed:?}");
        }
    }
}
