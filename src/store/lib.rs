//! The store on RocksDB; no other module uses RocksDB. A ledger is written in one atomic batch,
//! synced unless an import defers that; readers use the queries of [`query`] and see neither column
//! families nor keys.
#![warn(missing_docs)]

mod acknowledged;
mod audit;
mod backup;
mod block;
mod block_cache;
mod bytes;
mod columns;
mod commit;
mod completeness;
mod compression;
mod contract_sizes;
mod coverage;
mod database;
mod digest;
mod disk;
mod entries;
mod error;
mod events;
mod extensions;
mod faults;
mod feed;
mod following;
mod format;
mod generation;
mod index_rows;
mod indexed_as;
mod indexes;
mod intervals;
mod kept;
mod known_entries;
mod ledger_batch;
mod ledgers;
mod listings;
mod lock;
mod log_files;
mod options;
mod positions;
mod prepare;
mod programs;
mod query;
mod raw_form;
mod retention;
mod runs;
mod stored_time;
mod streams;
mod totals;
mod transaction_block;
mod transaction_record;
mod transactions;
mod upgrade;
mod writer_thread;
mod writes;

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, RwLock};

/// For tests that read a database directly.
#[doc(hidden)]
pub use rocksdb;

pub use audit::{Audit, AuditProgress, AuditedRange, Problem, audit, audit_with};
pub use backup::{Checkpoint, DirectoryContents, StoredRange, read_contents};
pub use commit::{Committed, Durability};
pub use completeness::CoveredLedgers;
pub use contract_sizes::{ContractSize, ContractSizes, Sample};
pub use digest::Digest;
pub use entries::EntryReader;
pub use error::StoreError;
pub use extensions::Extensions;
pub use faults::{Fault, Faults, WriteKind};
pub use feed::{
    Arrival, Consumed, ConsumerEffects, ConsumerSpec, ConsumerStatus, ConsumerView, FedLedger,
    Gathers, LedgerConsumer, Needs, RebuildProgress, StartPosition,
};
pub use following::LostEvents;
pub use format::{FORMAT, FormatVersion};
pub use generation::Generation;
pub use indexed_as::IndexedAs;
pub use indexes::{Index, Indexed, IndexedTransaction, Indexes, Tags, Values};
pub use kept::GenerationCache;
pub use known_entries::KnownEntry;
pub use ledgers::{LedgerCounts, LedgerRow};
pub use prepare::{IndexOptions, PreparedLedger};
pub use programs::{ProgramChanges, WaitingRun, consumer_name as program_consumer};
pub use query::{
    Bounds, EventQuery, EventRecord, Interrupted, QueryCost, StoreEnds, StoreStatus, TopicFilter,
    TransactionPosition, TransactionQuery, TransactionRecord, WalkOutcome,
};
pub use retention::{Pruned, Retention, first_kept};
pub use totals::Totals;
pub use upgrade::{UpgradeObserver, UpgradeStep};

use acknowledged::Acknowledged;
use columns::{Family, Key, LedgerKey, RunKey};
use commit::last_ingested;
use coverage::{Coverage, CoveredRange};
use database::{Database, corrupt};
use feed::{Consumers, Gathered, Listener};
use following::DurableEvents;
use format::Migration;
use generation::Generations;
use listings::Listings;
use lock::DirectoryLock;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, Network};
use runs::{Run, Runs};
use totals::TOTALS_ROW;
use upgrade::Upgrade;
use writer_thread::WriterThread;

const RAW_DIRECTORY: &str = "raw";
/// Mode of the data directory: accessible to its owner only.
const PRIVATE: u32 = 0o700;
/// Permission bits of the group and of others.
const NOT_OWNER: u32 = 0o077;
/// Mode bit of a directory in which every account may create files, such as `/tmp`.
const STICKY: u32 = 0o1000;
const PASSPHRASE_ROW: &[u8] = b"passphrase";

/// An open store. Holds the lock of its data directory, so no other process opens it.
pub struct Store {
    /// First field: joins its thread before the database is closed.
    writer_thread: WriterThread,
    database: Arc<Database>,
    indexes: Indexes,
    network: Network,
    directory: PathBuf,
    coverage: RwLock<Coverage>,
    /// Excludes prunes from each other, so that each subtracts what it counted from totals that no
    /// other prune has changed since. Also held while a rebuild begins. Locked before `writer`.
    pruning: Mutex<()>,
    /// Locked by every change of which ledgers are stored; never by indexing programs, which must
    /// not delay ingestion.
    writer: Mutex<Writer>,
    /// Size of `known_entries` in bytes, once counted. Locked while its rows change.
    known_bytes: Mutex<Option<u64>>,
    consumers: Arc<Consumers>,
    /// What consumers gather from ledgers stored by this process.
    gathered: Gathered,
    /// Called after new ledgers were stored or became durable.
    listeners: Mutex<Vec<Listener>>,
    /// Called after a consumer has advanced.
    step_listeners: Mutex<Vec<Listener>>,
    totals: RwLock<Totals>,
    durable_events: DurableEvents,
    generations: Generations,
    /// Never read. Last field, so that the lock is released last.
    _lock: DirectoryLock,
}

/// State that the writer mutex protects.
#[derive(Default)]
struct Writer {
    /// Whether a write of ledgers or totals failed that may have taken effect: coverage and totals
    /// are read back before the next write.
    in_doubt: bool,
    /// When ledgers were last stored with [`Durability::Synced`].
    newest_synced: Option<Instant>,
    /// Second copy of the store's coverage, to which changes are applied before their write is
    /// known to have succeeded; `None` when it must be cloned first.
    coverage: Option<Coverage>,
}

impl Store {
    /// Opens or creates the store in a data directory. Without a network, an existing store keeps
    /// its own and a new one is refused.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process has it open, [`StoreError::NetworkMismatch`] when
    /// it holds another network, [`StoreError::Format`] when another version wrote it,
    /// [`StoreError::Damaged`] or [`StoreError::Lost`] when acknowledged writes are missing.
    pub fn open(directory: &Path, network: Option<&Network>) -> Result<Self, StoreError> {
        Self::open_with(directory, network, Extensions::default())
    }

    /// Opens the store with additional indexes and consumers. An index that is new to the directory
    /// is filled from the stored records. Consumers that the directory has and that are not passed
    /// here take no ledgers.
    ///
    /// # Errors
    /// As [`Self::open`], and [`StoreError::FamilyTaken`].
    pub fn open_with(
        directory: &Path,
        network: Option<&Network>,
        extensions: Extensions,
    ) -> Result<Self, StoreError> {
        Self::open_migrated(directory, network, extensions, format::MIGRATIONS)
    }

    /// As [`Self::open_with`], with `migrations` instead of those of this version.
    fn open_migrated(
        directory: &Path,
        network: Option<&Network>,
        extensions: Extensions,
        migrations: &[Migration],
    ) -> Result<Self, StoreError> {
        let io = |source| StoreError::Io { path: directory.to_owned(), source };
        if network.is_none() && !directory.join(RAW_DIRECTORY).exists() {
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
        Extensions { indexes, consumers, gathers, upgrade_observer }: Extensions,
        migrations: &[Migration],
        lock: DirectoryLock,
    ) -> Result<Self, StoreError> {
        let raw = directory.join(RAW_DIRECTORY);
        let acknowledged = Acknowledged::open(directory)?;
        let last_write = acknowledged.last_write();
        log_files::make_ready(&raw, last_write)?;
        let mut families = indexes.registered_families()?;
        families.extend(feed::families(&consumers));
        let database = Database::open_with(&raw, &families, Some(acknowledged))?;
        acknowledged::check(directory, last_write, database.sequence())?;
        let upgrade = Upgrade::with_observer(upgrade_observer.as_ref());
        format::bring_up_to_date(&database, &upgrade, migrations)?;
        indexes::bring_up_to_date(&database, &indexes, &upgrade)?;
        let network = resolve_network(&database, directory, network)?;
        let coverage = load_coverage(&database)?;
        let totals = Totals::load(&database)?;
        let consumers = Consumers::load(&database, &consumers, coverage.last_place())?;
        // RocksDB has flushed what it recovered from its WAL to SST files, which are on disk.
        database.acknowledge(last_ingested(&coverage));
        let database = Arc::new(database);
        let store = Self {
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
            listeners: Mutex::default(),
            step_listeners: Mutex::default(),
            totals: RwLock::new(totals),
            generations: Generations::default(),
            _lock: lock,
        };
        store.begin_new_consumers()?;
        Ok(store)
    }

    /// Returns the network whose ledgers the store holds.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the data directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the permanent row of a ledger, if the ledger is stored.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails or the row is damaged.
    pub fn ledger(&self, sequence: LedgerSeq) -> Result<Option<LedgerRow>, StoreError> {
        let key = LedgerKey(sequence).encode();
        let Some(bytes) = self.database.get(Family::Ledgers, key)? else { return Ok(None) };
        LedgerRow::decode(&bytes).map(Some).map_err(corrupt(Family::Ledgers, key))
    }

    /// Returns the row of a ledger that the coverage lists as stored.
    fn ledger_or_missing(&self, sequence: LedgerSeq) -> Result<LedgerRow, StoreError> {
        self.ledger(sequence)?.ok_or(StoreError::Missing(sequence))
    }

    /// Returns the `LedgerCloseMeta` of a ledger as XDR, if it is still kept.
    ///
    /// # Errors
    /// [`StoreError`] when the database or zstd fails.
    pub fn raw_ledger(&self, sequence: LedgerSeq) -> Result<Option<Vec<u8>>, StoreError> {
        let key = LedgerKey(sequence).encode();
        let row = self.database.get(Family::LedgerXdr, key)?;
        row.map(|row| raw_form::unpack(&row)).transpose()
    }

    /// Returns the generation of all readable content; `None` while a write is in progress.
    pub fn generation(&self) -> Option<Generation> {
        self.generations.now()
    }

    /// Returns the injector of write failures for tests.
    pub fn faults(&self) -> &Faults {
        self.database.faults()
    }

    /// Returns what the store holds.
    pub fn status(&self) -> StoreStatus {
        let coverage = self.coverage.read();
        let totals = *self.totals.read();
        StoreStatus {
            ranges: coverage.ranges().map(|range| range.ledgers).collect(),
            latest_close_time: (totals.latest_close_time > 0).then_some(totals.latest_close_time),
            last_event_id: coverage.last_event(),
            totals,
        }
    }

    /// Returns the newest and oldest ledger and the newest event of the store, without the list of
    /// ranges.
    pub fn ends(&self) -> StoreEnds {
        let coverage = self.coverage.read();
        let totals = *self.totals.read();
        let kept = coverage.ranges().find(|range| range.ledgers.last >= totals.events_from);
        StoreEnds {
            latest: coverage.latest(),
            oldest: kept.map(|range| range.ledgers.first.max(totals.events_from)),
            events_from: totals.events_from,
            latest_close_time: (totals.latest_close_time > 0).then_some(totals.latest_close_time),
            last_event_id: coverage.last_event(),
        }
    }

    /// Returns the covered range that contains a ledger.
    pub fn range_of(&self, sequence: LedgerSeq) -> Option<LedgerRange> {
        self.coverage.read().range_of(sequence).map(|range| range.ledgers)
    }

    /// Returns the stored ledgers of a range in the order of the chain, in pieces: within each,
    /// event ids ascend with the ledgers.
    pub fn pieces(&self, ledgers: LedgerRange) -> Vec<LedgerRange> {
        self.coverage.read().pieces(ledgers)
    }

    /// Returns the memory that decompressed blocks take now, in bytes.
    pub fn cache_bytes(&self) -> usize {
        self.database.cache_bytes()
    }

    /// Flushes and compacts all families, which gives an imported store its smallest size. Takes a
    /// while; reads and writes continue.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    pub fn compact(&self) -> Result<(), StoreError> {
        self.flush()?;
        self.database.flush()?;
        self.database.compact_all()
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Removes other accounts' access to an existing data directory. Only logs a warning when that
/// fails, or when the directory is shared between accounts (sticky bit, or an owner other than that
/// of the lock file): the account that created `lock` must keep its access.
fn make_private(directory: &Path, lock: &DirectoryLock) {
    let outcome = fs::metadata(directory).and_then(|metadata| {
        let mode = metadata.permissions().mode();
        if mode & NOT_OWNER == 0 {
            return Ok(None);
        }
        if mode & STICKY != 0 || lock.metadata()?.uid() != metadata.uid() {
            return Ok(Some("is shared with other accounts: give orrery a directory of its own"));
        }
        fs::set_permissions(directory, Permissions::from_mode(mode & 0o7777 & !NOT_OWNER))?;
        Ok(Some("was accessible to other accounts: now only its owner can access it"))
    });
    match outcome {
        Ok(None) => {}
        Ok(Some(what)) => tracing::warn!("the data directory {} {what}", directory.display()),
        Err(error) => tracing::warn!(
            "the data directory {} is accessible to other accounts, and its mode cannot be changed \
             ({error}): set it to 0700",
            directory.display()
        ),
    }
}

fn stored_network(database: &Database) -> Result<Option<Network>, StoreError> {
    let Some(bytes) = database.get(Family::Meta, PASSPHRASE_ROW)? else { return Ok(None) };
    let passphrase = std::str::from_utf8(&bytes)
        .map_err(|_| corrupt(Family::Meta, PASSPHRASE_ROW)(bytes::Malformed))?;
    Ok(Some(Network::from_passphrase(passphrase)))
}

fn resolve_network(
    database: &Database,
    directory: &Path,
    wanted: Option<&Network>,
) -> Result<Network, StoreError> {
    match (stored_network(database)?, wanted) {
        (Some(stored), Some(wanted)) if stored != *wanted => Err(StoreError::NetworkMismatch {
            directory: directory.to_owned(),
            stored: Box::new(stored),
            wanted: Box::new(wanted.clone()),
        }),
        (Some(stored), _) => Ok(stored),
        (None, None) => Err(StoreError::Empty(directory.to_owned())),
        (None, Some(wanted)) => {
            let mut batch = database.batch();
            batch.put_raw(Family::Meta, PASSPHRASE_ROW, wanted.passphrase().as_bytes())?;
            database.write_synced(batch)?;
            Ok(wanted.clone())
        }
    }
}

fn load_coverage(database: &Database) -> Result<Coverage, StoreError> {
    let mut ranges = Vec::new();
    database.scan(Family::Ranges, |key, value| {
        let first = LedgerKey::decode(key).ok_or(bytes::Malformed);
        let range = first.and_then(|first| CoveredRange::decode(first.0, value));
        ranges.push(range.map_err(corrupt(Family::Ranges, key))?);
        Ok(())
    })?;
    let mut runs = Runs::default();
    database.scan(Family::Runs, |key, value| {
        let number = RunKey::decode(key).filter(|key| key.0 as usize == runs.len());
        number.ok_or(bytes::Malformed).map_err(corrupt(Family::Runs, key))?;
        runs.push(Run::decode(value).map_err(corrupt(Family::Runs, key))?);
        Ok(())
    })?;
    Ok(Coverage::new(ranges, runs, Listings::load(database)?))
}
