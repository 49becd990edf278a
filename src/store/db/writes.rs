//! Serialised writes to the database: when each is durable, and what is noted in [`Acknowledged`].

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use orrery_ledger::domain::{EventId, LedgerSeq};
use parking_lot::Mutex;
use rocksdb::{DB, FlushOptions, WriteBatch, WriteOptions};

use super::acknowledged;
use super::acknowledged::{Acknowledged, AcknowledgedWrite};
use super::faults::{Faults, WriteKind};
use crate::encoding::error::StoreError;

/// Time after a write to the WAL during which further writes to it are expected.
const LOGGED_WRITE_WINDOW: Duration = Duration::from_secs(1);

/// Ids are reserved in steps of this many, the number that an import gives out in about a second, so
/// that it seldom waits for the fsync. A crash during an import skips at most as many.
pub(crate) const RESERVED_IDS: u64 = 1 << 18;

/// One write: a batch, or a flush of earlier writes (then the batch is empty).
pub(crate) struct Write {
    pub(crate) kind: WriteKind,
    pub(crate) batch: WriteBatch,
    /// The ledgers that the batch stores; `None` when it stores none.
    pub(crate) stored: Option<BatchEnds>,
}

/// What a batch that stores ledgers changes beside their rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchEnds {
    /// Last ledger of the batch, in the order of ingestion.
    pub(crate) last: LedgerSeq,
    /// Id of the next event after those of the batch.
    pub(crate) next_event: EventId,
}

/// What is known under the lock that serialises writes.
struct Last {
    /// Last stored ledger.
    ledger: LedgerSeq,
    /// What [`Acknowledged`] has recorded.
    recorded: AcknowledgedWrite,
}

/// Performs all writes to one database.
pub(crate) struct Writes {
    faults: Faults,
    acknowledged: Option<Acknowledged>,
    /// Whether anything was written without the WAL since the last flush.
    unlogged: AtomicBool,
    /// Whether the WAL has writes that were not synced since.
    unsynced: AtomicBool,
    /// The mutex is held during each write, which serialises writes.
    last: Mutex<Last>,
    /// When the last write that has to be in the WAL was requested.
    last_logged: Mutex<Option<Instant>>,
}

impl Writes {
    /// Creates the writer state. `acknowledged` is the note of what is on disk; `None` when no note
    /// is kept.
    pub(crate) fn new(acknowledged: Option<Acknowledged>) -> Self {
        let recorded = acknowledged.as_ref().and_then(Acknowledged::last_write);
        let recorded = recorded.unwrap_or_default();
        Self {
            faults: Faults::default(),
            acknowledged,
            unlogged: AtomicBool::new(false),
            unsynced: AtomicBool::new(false),
            last: Mutex::new(Last { ledger: recorded.ledger, recorded }),
            last_logged: Mutex::new(None),
        }
    }

    /// Performs a write to a database with these column families.
    pub(crate) fn make(
        &self,
        db: &DB,
        families: &[String],
        Write { kind, batch, stored }: Write,
    ) -> Result<(), StoreError> {
        let mut last = self.last.lock();
        let mut options = WriteOptions::default();
        match kind {
            WriteKind::Flush => return self.flush(db, families, &mut last),
            WriteKind::Unlogged => {
                // Set before the write, because a write that fails may have been applied
                // nevertheless.
                self.unlogged.store(true, Ordering::SeqCst);
                options.disable_wal(true);
            }
            WriteKind::Synced | WriteKind::Logged => {
                // The WAL must never be ahead of writes that bypassed it.
                if self.has_unlogged() {
                    self.flush(db, families, &mut last)?;
                }
                self.unsynced.store(true, Ordering::SeqCst);
                options.set_sync(kind == WriteKind::Synced);
            }
        }
        if kind != WriteKind::Synced
            && let Some(stored) = stored
        {
            self.reserve_ids(&mut last, stored.next_event)?;
        }
        self.faults.write(kind, || Ok(db.write_opt(batch, &options)?))?;
        last.ledger = stored.map_or(last.ledger, |stored| stored.last);
        if kind == WriteKind::Synced {
            self.unsynced.store(false, Ordering::SeqCst);
            self.record_acknowledged(db, &mut last);
        }
        Ok(())
    }

    /// Reserves the ids before `next_event`, which a write is about to give to events that a crash may
    /// lose.
    fn reserve_ids(&self, last: &mut Last, next_event: EventId) -> Result<(), StoreError> {
        let Some(acknowledged) = &self.acknowledged else { return Ok(()) };
        if next_event <= last.recorded.reserved {
            return Ok(());
        }
        let reserved = EventId((next_event.0 / RESERVED_IDS).saturating_add(1) * RESERVED_IDS);
        let recorded = AcknowledgedWrite { reserved, ..last.recorded };
        acknowledged.reserve(recorded)?;
        last.recorded = recorded;
        Ok(())
    }

    /// Makes all earlier writes durable, as a synced write would, at the least cost.
    pub(crate) fn sync_pending(&self, db: &DB, families: &[String]) -> Result<(), StoreError> {
        let mut last = self.last.lock();
        if self.has_unlogged() {
            return self.flush(db, families, &mut last);
        }
        if self.has_pending() {
            self.faults.write(WriteKind::Flush, || Ok(db.flush_wal(true)?))?;
            self.unsynced.store(false, Ordering::SeqCst);
            self.record_acknowledged(db, &mut last);
        }
        Ok(())
    }

    /// Whether a crash of the machine may undo something that was written.
    pub(crate) fn has_pending(&self) -> bool {
        self.has_unlogged() || self.unsynced.load(Ordering::SeqCst)
    }

    /// Chooses how to make a write that need not be durable yet. Bypassing the WAL is cheapest, but
    /// the next write that has to be in the WAL then waits for a flush of all memtables. So the WAL
    /// is used while such writes are expected.
    pub(crate) fn deferred(&self) -> WriteKind {
        match self.last_logged.lock().is_some_and(|at| at.elapsed() < LOGGED_WRITE_WINDOW) {
            true => WriteKind::Logged,
            false => WriteKind::Unlogged,
        }
    }

    /// Records that a write is being made that has to be in the WAL.
    pub(crate) fn note_logged_write(&self) {
        *self.last_logged.lock() = Some(Instant::now());
    }

    /// Whether anything was written without the WAL since the last flush.
    pub(crate) fn has_unlogged(&self) -> bool {
        self.unlogged.load(Ordering::SeqCst)
    }

    /// Notes that everything in the database is on disk and that `ledger` is the last ledger.
    pub(crate) fn acknowledge(&self, db: &DB, ledger: LedgerSeq) {
        let mut last = self.last.lock();
        last.ledger = ledger;
        self.record_acknowledged(db, &mut last);
    }

    /// Returns the acknowledgement note of a data directory that this writes to; `None` when there
    /// is none.
    pub(crate) fn read_acknowledged(&self, directory: &Path) -> Result<Option<String>, StoreError> {
        // The lock keeps writers from changing the note, which is overwritten in place.
        let _last = self.last.lock();
        Ok(acknowledged::read(directory)?.map(|last_write| last_write.encode()))
    }

    /// Write failures planned by a test.
    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    fn flush(&self, db: &DB, families: &[String], last: &mut Last) -> Result<(), StoreError> {
        let families: Vec<_> = families.iter().filter_map(|name| db.cf_handle(name)).collect();
        let options = FlushOptions::default();
        self.faults.write(WriteKind::Flush, || Ok(db.flush_cfs_opt(&families, &options)?))?;
        self.unlogged.store(false, Ordering::SeqCst);
        self.unsynced.store(false, Ordering::SeqCst);
        self.record_acknowledged(db, last);
        Ok(())
    }

    /// Records that everything is durable; so are the events with reserved ids.
    fn record_acknowledged(&self, db: &DB, last: &mut Last) {
        let sequence = db.latest_sequence_number();
        last.recorded = AcknowledgedWrite { sequence, ledger: last.ledger, reserved: EventId(0) };
        if let Some(acknowledged) = &self.acknowledged {
            acknowledged.record(last.recorded);
        }
    }
}
