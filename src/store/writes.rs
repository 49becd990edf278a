//! Writes to the database, one after the other: what is durable when, and what is noted of it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocksdb::{DB, FlushOptions, WriteBatch, WriteOptions};

use super::StoreError;
use super::acknowledged::{self, Acknowledged};
use super::faults::{Faults, WriteKind};
use crate::domain::LedgerSeq;

/// How long after a write to the log others are expected to come.
const OTHERS_COME: Duration = Duration::from_secs(1);

/// One write: a batch, or nothing to flush what was written before.
pub(super) struct Write {
    pub(super) kind: WriteKind,
    pub(super) batch: WriteBatch,
    /// The last of the ledgers that it stores, in the order of ingestion.
    pub(super) ledger: Option<LedgerSeq>,
}

/// All writes to one database.
pub(super) struct Writes {
    faults: Faults,
    acknowledged: Option<Acknowledged>,
    /// Whether anything was written without a log since the last flush.
    unlogged: AtomicBool,
    /// Whether anything is in the log that was not synced since.
    unsynced: AtomicBool,
    /// The ledger that was stored last. Held while a write is made.
    last: Mutex<LedgerSeq>,
    /// When a write was made last that had to be in the log.
    logged: Mutex<Option<Instant>>,
}

impl Writes {
    /// What is on disk is noted in `acknowledged`.
    pub(super) fn new(acknowledged: Option<Acknowledged>) -> Self {
        let promise = acknowledged.as_ref().and_then(Acknowledged::promise);
        Self {
            faults: Faults::default(),
            acknowledged,
            unlogged: AtomicBool::new(false),
            unsynced: AtomicBool::new(false),
            last: Mutex::new(promise.unwrap_or_default().ledger),
            logged: Mutex::new(None),
        }
    }

    /// Makes a write to a database that has these families.
    pub(super) fn make(
        &self,
        db: &DB,
        families: &[String],
        Write { kind, batch, ledger }: Write,
    ) -> Result<(), StoreError> {
        let mut last = self.last.lock();
        let mut options = WriteOptions::default();
        match kind {
            WriteKind::Flush => return self.flush(db, families, *last),
            WriteKind::Unlogged => {
                // Before the write: one that fails may have been made.
                self.unlogged.store(true, Ordering::SeqCst);
                options.disable_wal(true);
            }
            WriteKind::Synced | WriteKind::Logged => {
                // The log must never run ahead of what was written without it.
                if self.has_unlogged() {
                    self.flush(db, families, *last)?;
                }
                self.unsynced.store(true, Ordering::SeqCst);
                options.set_sync(kind == WriteKind::Synced);
            }
        }
        self.faults.write(kind, || Ok(db.write_opt(batch, &options)?))?;
        *last = ledger.unwrap_or(*last);
        if kind == WriteKind::Synced {
            self.unsynced.store(false, Ordering::SeqCst);
            self.note(db, *last);
        }
        Ok(())
    }

    /// Makes everything durable, as a write that is synced does for those before it.
    pub(super) fn settle(&self, db: &DB, families: &[String]) -> Result<(), StoreError> {
        let last = self.last.lock();
        if self.has_unlogged() {
            return self.flush(db, families, *last);
        }
        if self.has_pending() {
            self.faults.write(WriteKind::Flush, || Ok(db.flush_wal(true)?))?;
            self.unsynced.store(false, Ordering::SeqCst);
            self.note(db, *last);
        }
        Ok(())
    }

    /// Whether a crash of the machine may undo something that was written.
    pub(super) fn has_pending(&self) -> bool {
        self.has_unlogged() || self.unsynced.load(Ordering::SeqCst)
    }

    /// How to make a write that need not be durable yet. Without a log it costs least, but the next write
    /// that has to be in the log then waits until everything in memory is on disk; so it takes the log as
    /// well while such writes come.
    pub(super) fn deferred(&self) -> WriteKind {
        match self.logged.lock().is_some_and(|at| at.elapsed() < OTHERS_COME) {
            true => WriteKind::Logged,
            false => WriteKind::Unlogged,
        }
    }

    /// Notes that a write is made that has to be in the log.
    pub(super) fn expect_others(&self) {
        *self.logged.lock() = Some(Instant::now());
    }

    /// Whether anything was written without a log since the last flush.
    pub(super) fn has_unlogged(&self) -> bool {
        self.unlogged.load(Ordering::SeqCst)
    }

    /// Notes that everything in a database is on disk, the last ledger being this one.
    pub(super) fn acknowledge(&self, db: &DB, ledger: LedgerSeq) {
        let mut last = self.last.lock();
        *last = ledger;
        self.note(db, ledger);
    }

    /// The line that says what is on disk, in a data directory that this writes to; none where there is none.
    pub(super) fn note_in(&self, directory: &Path) -> Result<Option<String>, StoreError> {
        // Nobody notes anything meanwhile: the line is written in place.
        let _last = self.last.lock();
        Ok(acknowledged::read(directory)?.map(|promise| promise.encode()))
    }

    /// Failures of writes that a test plans.
    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }

    fn flush(&self, db: &DB, families: &[String], last: LedgerSeq) -> Result<(), StoreError> {
        let families: Vec<_> = families.iter().filter_map(|name| db.cf_handle(name)).collect();
        let options = FlushOptions::default();
        self.faults.write(WriteKind::Flush, || Ok(db.flush_cfs_opt(&families, &options)?))?;
        self.unlogged.store(false, Ordering::SeqCst);
        self.unsynced.store(false, Ordering::SeqCst);
        self.note(db, last);
        Ok(())
    }

    fn note(&self, db: &DB, last: LedgerSeq) {
        if let Some(acknowledged) = &self.acknowledged {
            acknowledged.is_now(db.latest_sequence_number(), last);
        }
    }
}
