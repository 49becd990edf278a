//! Writes to the database, one after the other, and the thread that makes some of them.
//!
//! Whoever writes waits for the one before, and a write that waits for the disk takes milliseconds. A thread
//! of low priority gets a processor late when others are busy: if it made its writes itself, threads that
//! store new ledgers would wait behind it. So a thread of normal priority makes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rocksdb::{DB, FlushOptions, WriteBatch, WriteOptions};

use super::StoreError;
use super::acknowledged::Acknowledged;
use super::faults::{Faults, WriteKind};
use crate::domain::LedgerSeq;
use crate::priority;

/// One write: a batch, or nothing to flush what was written before.
pub(super) struct Write {
    pub(super) kind: WriteKind,
    pub(super) batch: WriteBatch,
    /// The last of the ledgers that it stores, in the order of ingestion.
    pub(super) ledger: Option<LedgerSeq>,
}

/// All writes to one database.
pub(super) struct Writes {
    shared: Arc<Shared>,
    /// Nice value of the thread that opened the database, which the writing thread has too.
    nice: i32,
    /// Taken when it is dropped, which ends the thread.
    handed_over: Option<Sender<HandedOver>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    db: Arc<DB>,
    families: Vec<String>,
    faults: Faults,
    acknowledged: Option<Acknowledged>,
    /// Whether anything was written without a log since the last flush.
    unlogged: AtomicBool,
    /// The ledger that was stored last. Held while a write is made.
    last: Mutex<LedgerSeq>,
}

struct HandedOver {
    write: Write,
    outcome: SyncSender<Result<(), StoreError>>,
}

impl Writes {
    /// Starts the thread that writes to these families. What is on disk is noted in `acknowledged`.
    pub(super) fn start(
        db: Arc<DB>,
        families: Vec<String>,
        acknowledged: Option<Acknowledged>,
    ) -> Result<Self, StoreError> {
        let promise = acknowledged.as_ref().and_then(Acknowledged::promise);
        let shared = Arc::new(Shared {
            db,
            families,
            faults: Faults::default(),
            acknowledged,
            unlogged: AtomicBool::new(false),
            last: Mutex::new(promise.unwrap_or_default().ledger),
        });
        let (handed_over, writes) = channel();
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("store-writer".to_owned());
        let thread = thread.spawn(move || own.work(&writes)).map_err(|error| {
            StoreError::Database(format!("the thread that writes cannot be started: {error}"))
        })?;
        let nice = priority::nice();
        Ok(Self { shared, nice, handed_over: Some(handed_over), thread: Some(thread) })
    }

    /// Makes a write; returns when it is made.
    pub(super) fn make(&self, write: Write) -> Result<(), StoreError> {
        if priority::nice() <= self.nice {
            return self.shared.make(write);
        }
        let (outcome, made) = sync_channel(1);
        let ended = || StoreError::Database("the thread that writes has ended".to_owned());
        let thread = self.handed_over.as_ref().ok_or_else(ended)?;
        thread.send(HandedOver { write, outcome }).map_err(|_| ended())?;
        made.recv().map_err(|_| ended())?
    }

    /// Whether anything was written without a log since the last flush.
    pub(super) fn has_unlogged(&self) -> bool {
        self.shared.unlogged.load(Ordering::SeqCst)
    }

    /// Notes that everything there is is on disk, the last ledger being this one.
    pub(super) fn acknowledge(&self, ledger: LedgerSeq) {
        let mut last = self.shared.last.lock();
        *last = ledger;
        self.shared.acknowledge(ledger);
    }

    /// Failures of writes that a test plans.
    pub(super) fn faults(&self) -> &Faults {
        &self.shared.faults
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        drop(self.handed_over.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that writes had panicked");
        }
    }
}

impl Shared {
    fn work(&self, writes: &Receiver<HandedOver>) {
        while let Ok(HandedOver { write, outcome }) = writes.recv() {
            // Nobody waits any more only when the thread that asked has ended.
            let _ = outcome.send(self.make(write));
        }
    }

    fn make(&self, Write { kind, batch, ledger }: Write) -> Result<(), StoreError> {
        let mut last = self.last.lock();
        let mut options = WriteOptions::default();
        match kind {
            WriteKind::Flush => return self.flush(*last),
            WriteKind::Unlogged => {
                // Before the write: one that fails may have been made.
                self.unlogged.store(true, Ordering::SeqCst);
                options.disable_wal(true);
            }
            WriteKind::Synced | WriteKind::Logged => {
                // The log must never run ahead of what was written without it.
                if self.unlogged.load(Ordering::SeqCst) {
                    self.flush(*last)?;
                }
                options.set_sync(kind == WriteKind::Synced);
            }
        }
        self.faults.write(kind, || Ok(self.db.write_opt(batch, &options)?))?;
        *last = ledger.unwrap_or(*last);
        if kind == WriteKind::Synced {
            self.acknowledge(*last);
        }
        Ok(())
    }

    fn flush(&self, last: LedgerSeq) -> Result<(), StoreError> {
        let families: Vec<_> =
            self.families.iter().filter_map(|name| self.db.cf_handle(name)).collect();
        let options = FlushOptions::default();
        self.faults
            .write(WriteKind::Flush, || Ok(self.db.flush_cfs_opt(&families, &options)?))?;
        self.unlogged.store(false, Ordering::SeqCst);
        self.acknowledge(last);
        Ok(())
    }

    fn acknowledge(&self, last: LedgerSeq) {
        if let Some(acknowledged) = &self.acknowledged {
            acknowledged.is_now(self.db.latest_sequence_number(), last);
        }
    }
}
