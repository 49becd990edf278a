//! The files that have the rows of events and transactions now, with the ledgers of the export: what a reader on
//! this machine needs of a manifest.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::layout::{DATA, EVENTS, TRANSACTIONS};
use super::manifest::{DataFile, Manifest};
use orrery_ledger::domain::{LedgerRange, LedgerSet};
use orrery_tables::chain::{ChainFile, ChainFiles};

/// The files of events and transactions in a directory. No file of another table is in their directories.
#[derive(Debug, Clone)]
pub struct LiveFiles {
    /// The ledgers whose rows they have.
    pub ledgers: LedgerSet,
    /// Files of events.
    pub events: Arc<ChainFiles>,
    /// Files of transactions.
    pub transactions: Arc<ChainFiles>,
}

impl LiveFiles {
    /// Returns the files that a manifest names, below this directory.
    pub fn of(manifest: &Manifest, root: &Path) -> Self {
        let files = |files: &[DataFile]| {
            let file = |file: &DataFile| {
                let path = root.join(&file.path);
                Some(ChainFile {
                    directory: path.parent()?.to_owned(),
                    name: path.file_name()?.to_str()?.to_owned(),
                    rows: file.rows,
                    ledgers: LedgerRange::new(file.first_ledger, file.last_ledger),
                })
            };
            Arc::new(ChainFiles::new(files.iter().filter_map(file).collect()))
        };
        Self {
            ledgers: manifest.ledgers.clone(),
            events: files(&manifest.tables.events),
            transactions: files(&manifest.tables.transactions),
        }
    }

    /// Returns the files of an export that has not begun.
    pub fn none() -> Self {
        let none = || Arc::new(ChainFiles::new(Vec::new()));
        Self { ledgers: LedgerSet::default(), events: none(), transactions: none() }
    }
}

/// Returns the directories below `root` in which files of events and transactions are, as far as they exist. A link
/// in the place of one is left out.
pub fn directories(root: &Path) -> Vec<PathBuf> {
    let is_directory =
        |path: &Path| path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
    let data = root.join(DATA);
    let by_content = [EVENTS, TRANSACTIONS].map(|kind| data.join(kind));
    let older = [EVENTS, TRANSACTIONS].map(|kind| root.join(kind));
    let by_content =
        by_content.into_iter().filter(|path| is_directory(&data) && is_directory(path));
    by_content.chain(older.into_iter().filter(|path| is_directory(path))).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn directories_are_those_of_events_and_transactions_alone() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(directories(root), Vec::<PathBuf>::new());
        for path in ["data/events", "data/programs", "transactions", "programs/1/x", "iceberg"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        symlink("/etc", root.join("data/transactions")).unwrap();
        assert_eq!(directories(root), [root.join("data/events"), root.join("transactions")]);
    }
}
