//! Opens a store: takes its lock, brings its layout and its indexes up to date, and loads its state.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use orrery_ledger::domain::{EventId, Network};
use parking_lot::{Mutex, RwLock};

use super::extensions::Extensions;
use super::format::migrations::{self, Migration};
use super::network::resolve_network;
use super::upgrade::Upgrade;
use super::{backup, format, index_fill};
use crate::db::acknowledged::{Acknowledged, AcknowledgedWrite};
use crate::db::database::Database;
use crate::db::directory::{RAW_DIRECTORY, holds_database};
use crate::db::lock::DirectoryLock;
use crate::db::privacy::{PRIVATE, make_private};
use crate::db::writer_thread::WriterThread;
use crate::db::{acknowledged, log_files};
use crate::encoding::columns::Family;
use crate::encoding::error::StoreError;
use crate::ingest::commit::last_ingested;
use crate::ingest::contradiction;
use crate::state::consumers::rows;
use crate::state::consumers::states::Consumers;
use crate::state::coverage::Coverage;
use crate::state::extracts::Gathered;
use crate::state::generation::Generations;
use crate::state::marks::Marks;
use crate::state::removed::Removed;
use crate::state::store::{DurableEvents, Store};
use crate::state::totals::Totals;
use crate::state::unused_ids;

impl Store {
    /// Opens or creates the store in a data directory. Without a network, an existing store keeps
    /// its own and a new one is refused.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process has it open, [`StoreError::Empty`] when nothing
    /// names a network; also when it holds another network, another version wrote it, or
    /// acknowledged writes are missing.
    pub fn open(directory: &Path, network: Option<&Network>) -> Result<Self, StoreError> {
        Self::open_with(directory, network, Extensions::default())
    }

    /// Opens the store with additional indexes and consumers. An index that is new to the directory
    /// is filled from the stored records. Consumers that the directory has and that are not passed
    /// here take no ledgers.
    ///
    /// # Errors
    /// As [`Self::open`], and when two extensions name the same family.
    pub fn open_with(
        directory: &Path,
        network: Option<&Network>,
        extensions: Extensions,
    ) -> Result<Self, StoreError> {
        Self::open_migrated(directory, network, extensions, migrations::ALL)
    }

    /// Opens an existing store for reading: nothing in the data directory changes. Several processes
    /// may do so at the same time. Every write fails.
    ///
    /// # Errors
    /// As [`Self::open_with`], and [`StoreError::NotUpgraded`].
    pub fn open_read_only(directory: &Path, extensions: Extensions) -> Result<Self, StoreError> {
        if !holds_database(directory)? {
            return Err(StoreError::Empty(directory.to_owned()));
        }
        let lock = DirectoryLock::take_shared(directory)?;
        let open = || {
            let raw = directory.join(RAW_DIRECTORY);
            let last_write = acknowledged::read_unless_damaged(directory)?;
            log_files::check_acknowledged(&raw, last_write)?;
            let shared: Vec<_> = extensions.shared_families().collect();
            let database = Database::open_read_only(&raw, &shared)?;
            acknowledged::check(directory, last_write, database.sequence())?;
            format::check(&database, migrations::ALL)?;
            database.check_families()?;
            let network = resolve_network(&database, directory, None)?;
            let coverage = Coverage::load(&database)?;
            // Nothing can be filled here, and an index that is not complete would hide events.
            let indexes = extensions.indexes.complete_in(&database)?;
            let extensions = Extensions { indexes, ..extensions }.without_unknown(&database)?;
            Self::over(database, coverage, network, directory, extensions, lock)
        };
        open().map_err(|error: StoreError| error.while_reading(directory))
    }

    /// As [`Self::open_with`], with `migrations` instead of those of this version.
    pub(crate) fn open_migrated(
        directory: &Path,
        network: Option<&Network>,
        extensions: Extensions,
        migrations: &[Migration],
    ) -> Result<Self, StoreError> {
        let io = |source| StoreError::Io { path: directory.to_owned(), source };
        if !holds_database(directory)? && network.is_none() {
            return Err(StoreError::Empty(directory.to_owned()));
        }
        DirBuilder::new().recursive(true).mode(PRIVATE).create(directory).map_err(io)?;
        let lock = DirectoryLock::take(directory)?;
        make_private(directory, &lock);
        backup::remove_leftovers(directory);
        Self::open_locked(directory, network, extensions, migrations, lock)
            .map_err(|error| error.while_reading(directory))
    }

    fn open_locked(
        directory: &Path,
        network: Option<&Network>,
        extensions: Extensions,
        migrations: &[Migration],
        lock: DirectoryLock,
    ) -> Result<Self, StoreError> {
        let raw = directory.join(RAW_DIRECTORY);
        let is_new = !raw.exists();
        let acknowledged = Acknowledged::open(directory)?;
        let last_write = acknowledged.last_write();
        log_files::make_ready(&raw, last_write)?;
        extensions.check_families()?;
        let indexes = extensions.indexes.registered().map(|(_, index)| index.family);
        let shared = extensions.shared_families().map(Family::Shared);
        let registered: Vec<_> = indexes.chain(shared).collect();
        let of_consumers = rows::families(&extensions.consumers);
        let tuning = &extensions.tuning;
        let database =
            Database::open_with(&raw, &registered, &of_consumers, tuning, Some(acknowledged))?;
        acknowledged::check(directory, last_write, database.sequence())?;
        let upgrade = Upgrade::with_observer(extensions.upgrade_observer.as_ref());
        format::bring_up_to_date(&database, &upgrade, migrations)?;
        index_fill::bring_up_to_date(&database, &extensions.indexes, &upgrade)?;
        let network = resolve_network(&database, directory, network)?;
        let coverage = load_coverage(&database, last_write, is_new)?;
        let extensions = match is_new {
            true => extensions,
            false => extensions.without_unknown(&database)?,
        };
        let store = Self::over(database, coverage, network, directory, extensions, lock)?;
        // RocksDB has flushed what it recovered from its WAL to SST files, which are on disk.
        store.database.acknowledge(last_ingested(&store.coverage.read()));
        store.replace_old_floors()?;
        store.begin_new_consumers()?;
        Ok(store)
    }

    /// Reads what an open store holds in memory from its database.
    fn over(
        database: Database,
        coverage: Coverage,
        network: Network,
        directory: &Path,
        extensions: Extensions,
        lock: DirectoryLock,
    ) -> Result<Self, StoreError> {
        let Extensions { indexes, consumers, gathers, keepers, .. } = extensions;
        let totals = Totals::load(&database)?;
        let removed = Removed::load(&database)?;
        let marks = Marks::load(&database)?;
        let contradiction = contradiction::load(&database)?;
        let consumers = Consumers::load(&database, &consumers, coverage.last_place())?;
        let database = Arc::new(database);
        Ok(Self {
            writer_thread: WriterThread::start(&database)?,
            database,
            indexes,
            network,
            directory: directory.to_owned(),
            durable_events: DurableEvents::up_to(coverage.last_event()),
            coverage: RwLock::new(coverage),
            pruning: Mutex::default(),
            writer: Mutex::default(),
            known_bytes: Mutex::default(),
            consumers: Arc::new(consumers),
            gathered: Gathered::new(gathers),
            keepers,
            listeners: Mutex::default(),
            step_listeners: Mutex::default(),
            totals: RwLock::new(totals),
            removed: RwLock::new(removed),
            marks: RwLock::new(marks),
            contradiction: RwLock::new(contradiction),
            generations: Generations::default(),
            _lock: lock,
        })
    }
}

/// Loads what is stored. Without a record of acknowledged writes it is unknown which ids were given
/// out: [`acknowledged::FILE`] is not restored from a backup, and its removal makes a store go on
/// that has lost writes.
fn load_coverage(
    database: &Database,
    last_write: Option<AcknowledgedWrite>,
    is_new: bool,
) -> Result<Coverage, StoreError> {
    let coverage = Coverage::load(database)?;
    let last = coverage.last_event();
    // An empty record is left by a process that was killed before it reached the end of
    // `open_locked`: it has given out nothing, but may have found no record.
    let is_known = is_new || last_write.is_some_and(|it| it.sequence > 0 || last == EventId(0));
    if !is_known {
        unused_ids::skip(database, last)?;
        return Coverage::load(database);
    }
    // A crash may have lost events with reserved ids.
    let reserved = last_write.unwrap_or_default().reserved;
    if reserved > coverage.next_event() {
        unused_ids::wait_for_clock(reserved);
        unused_ids::skip_to(database, reserved)?;
        return Coverage::load(database);
    }
    Ok(coverage)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use orrery_testkit::sandbox::local;

    use super::*;
    use crate::indexes::registry::Indexes;

    /// RocksDB writes down with which options it has opened each family.
    #[test]
    fn all_indexes_are_kept_in_runs() {
        let directory = tempfile::tempdir().unwrap();
        let _store = Store::open(directory.path(), Some(&local())).unwrap();
        let raw = fs::read_dir(directory.path().join(RAW_DIRECTORY)).unwrap();
        let names = raw.map(|entry| entry.unwrap().path());
        let is_options = |path: &std::path::PathBuf| {
            path.file_name().unwrap().to_str().unwrap().starts_with("OPTIONS-")
        };
        let newest = names.filter(is_options).max().unwrap();
        let options = fs::read_to_string(newest).unwrap();
        let is_in_runs = |family: Family| {
            let head = format!("[CFOptions \"{}\"]", family.name());
            let of_family = options.split_once(&head).unwrap().1;
            let of_family = of_family.split("[CFOptions").next().unwrap();
            of_family.contains("compaction_style=kCompactionStyleUniversal")
        };
        for index in Indexes::default().iter() {
            assert!(is_in_runs(index.family), "{}", index.family.name());
        }
        for other in [Family::Events, Family::LedgerXdr, Family::KnownEntries] {
            assert!(!is_in_runs(other), "{}", other.name());
        }
    }
}
