//! The open store: what it holds in memory, and how it is locked. What a store does is in the floors
//! above, which extend it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use orrery_ledger::domain::{EventId, LedgerRange, LedgerSeq, LedgerSet, Network};
use parking_lot::{Mutex, RwLock};

use super::consumers::spec::Needs;
use super::consumers::states::Consumers;
use super::coverage::Coverage;
use super::extracts::Gathered;
use super::generation::{Generation, Generations};
use super::keepers::Keeper;
use super::marks::Marks;
use super::removed::{Removed, removed_at};
use super::totals::Totals;
use crate::db::database::Database;
use crate::db::faults::Faults;
use crate::db::lock::DirectoryLock;
use crate::db::writer_thread::WriterThread;
use crate::encoding::columns::{Family, Key, LedgerKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::ledgers::LedgerRow;
use crate::encoding::raw_form;
use crate::indexes::registry::Indexes;

/// An open store. Holds the lock of its data directory, so no other process opens it.
pub struct Store {
    /// First field: joins its thread before the database is closed.
    pub(crate) writer_thread: WriterThread,
    pub(crate) database: Arc<Database>,
    pub(crate) indexes: Indexes,
    pub(crate) network: Network,
    pub(crate) directory: PathBuf,
    pub(crate) coverage: RwLock<Coverage>,
    /// Excludes prunes from each other, so that each subtracts what it counted from totals that no
    /// other prune has changed since. Also held while a rebuild begins. Locked before `writer`.
    pub(crate) pruning: Mutex<()>,
    /// Locked by every change of which ledgers are stored; never by consumers, which must not delay
    /// ingestion.
    pub(crate) writer: Mutex<Writer>,
    /// Size of `known_entries` in bytes, once counted. Locked while its rows change.
    pub(crate) known_bytes: Mutex<Option<u64>>,
    pub(crate) consumers: Arc<Consumers>,
    /// What consumers gather from ledgers stored by this process.
    pub(crate) gathered: Gathered,
    pub(crate) keepers: Vec<Keeper>,
    /// Called after new ledgers were stored or became durable.
    pub(crate) listeners: Mutex<Vec<Listener>>,
    /// Called after a consumer has advanced.
    pub(crate) step_listeners: Mutex<Vec<Listener>>,
    pub(crate) totals: RwLock<Totals>,
    /// Updated after the write that changes the rows, as the totals are.
    pub(crate) removed: RwLock<Removed>,
    /// Updated after the write that changes the rows.
    pub(crate) marks: RwLock<Marks>,
    /// The row of the same name; see [`Self::contradiction`].
    pub(crate) contradiction: RwLock<Option<Arc<[u8]>>>,
    pub(crate) durable_events: DurableEvents,
    pub(crate) generations: Generations,
    /// Never read. Last field, so that the lock is released last.
    pub(crate) _lock: DirectoryLock,
}

/// Id of the last event that survives a crash; every event before it does, too.
#[derive(Default)]
pub(crate) struct DurableEvents(pub(crate) AtomicU64);

impl DurableEvents {
    /// Creates the value for a store that was just opened, all of whose events are on disk.
    pub(crate) fn up_to(last: EventId) -> Self {
        Self(AtomicU64::new(last.0))
    }

    /// Records that every event up to `last` is on disk; returns whether the durable id advanced.
    pub(crate) fn advance_to(&self, last: EventId) -> bool {
        self.0.fetch_max(last.0, Ordering::AcqRel) < last.0
    }
}

/// State that the writer mutex protects.
#[derive(Default)]
pub(crate) struct Writer {
    /// Whether a write of ledgers or totals failed that may have taken effect: coverage and totals
    /// are read back before the next write.
    pub(crate) in_doubt: bool,
    /// When ledgers were last stored with `Durability::Synced`.
    pub(crate) newest_synced: Option<Instant>,
    /// Second copy of the store's coverage, to which changes are applied before their write is
    /// known to have succeeded; `None` when it must be cloned first.
    pub(crate) coverage: Option<Coverage>,
}

impl Store {
    /// Returns the network whose ledgers the store holds.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the data directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the permanent row of a ledger, if the ledger is stored.
    pub fn ledger(&self, sequence: LedgerSeq) -> Result<Option<LedgerRow>, StoreError> {
        let key = LedgerKey(sequence).encode();
        let Some(bytes) = self.database.get(Family::Ledgers, key)? else { return Ok(None) };
        LedgerRow::decode(&bytes).map(Some).map_err(corrupt(Family::Ledgers, key))
    }

    /// Returns the row of a ledger that the coverage lists as stored.
    pub(crate) fn ledger_or_missing(&self, sequence: LedgerSeq) -> Result<LedgerRow, StoreError> {
        self.ledger(sequence)?.ok_or(StoreError::Missing(sequence))
    }

    /// Returns the `LedgerCloseMeta` of a ledger as XDR, if it is still kept.
    pub fn raw_ledger(&self, sequence: LedgerSeq) -> Result<Option<Vec<u8>>, StoreError> {
        let key = LedgerKey(sequence).encode();
        let row = self.database.get(Family::LedgerXdr, key)?;
        row.map(|row| raw_form::unpack(&row)).transpose()
    }

    /// Returns these ranges of bytes of a ledger's `LedgerCloseMeta`, if it is still kept: less is
    /// decompressed than for the whole. What lies behind its end is left out.
    pub fn raw_ledger_parts(
        &self,
        sequence: LedgerSeq,
        parts: &[Range<usize>],
    ) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
        let key = LedgerKey(sequence).encode();
        let row = self.database.get(Family::LedgerXdr, key)?;
        row.map(|row| raw_form::unpack_parts(&row, parts)).transpose()
    }

    /// Returns the generation of all readable content; `None` while a write is in progress.
    pub fn generation(&self) -> Option<Generation> {
        self.generations.now()
    }

    /// Ends the generation after rows have changed from which answers about ledgers are made that were
    /// stored before: those that were read until now are given from no cache.
    pub fn end_generation(&self) {
        let _writer = self.writer.lock();
        drop(self.generations.change());
    }

    /// Returns the injector of write failures for tests.
    pub fn faults(&self) -> &Faults {
        self.database.faults()
    }

    /// Returns the covered range that contains a ledger.
    pub fn range_of(&self, sequence: LedgerSeq) -> Option<LedgerRange> {
        self.coverage.read().range_of(sequence).map(|range| range.ledgers)
    }

    /// Returns the ledgers of which something in `needs` is no longer stored, as the database knows
    /// them at this moment. What was read of another ledger before this call was complete. A ledger
    /// that never had anything of the kind may be among them.
    pub fn removed(&self, needs: Needs) -> Result<LedgerSet, StoreError> {
        removed_at(&self.database.snapshot(), needs)
    }

    /// Returns the marks of the stored ledgers.
    pub fn marks(&self) -> Marks {
        self.marks.read().clone()
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

    /// Registers `listener` to be called after every commit of new ledgers, until it returns false.
    /// It must return quickly.
    pub fn listen(&self, listener: impl Fn() -> bool + Send + Sync + 'static) {
        self.listeners.lock().push(Box::new(listener));
    }

    /// Notifies all listeners of new ledgers.
    pub(crate) fn notify_listeners(&self) {
        self.listeners.lock().retain(|listener| listener());
    }

    /// Returns the id of the last event that is on disk; 0 when there is none. Later events may be
    /// readable already, but a crash may remove them and reuse their ids.
    pub fn last_durable_event(&self) -> EventId {
        EventId(self.durable_events.0.load(Ordering::Acquire))
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// A callback for commits or consumer steps; it is removed when it returns false.
pub(crate) type Listener = Box<dyn Fn() -> bool + Send + Sync>;
