//! A program in memory: its mutable state, under a mutex that is held until a change is on disk,
//! and a copy of it for readers, who never wait for the disk.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::engine::Module;
use crate::events::{Looks, MembersOf};
use crate::manifest::{Manifest, Progress};
use crate::waiting::WaitingRuns;
use crate::{ProgramError, storage};
use orrery_ledger::domain::{LedgerSet, Owner, ProgramId};
use orrery_store::{KindChanges, Store, StoreError};

/// A program in memory.
pub struct Entry {
    /// Id of the program.
    pub id: ProgramId,
    /// Module of the program, once it is loaded: see `Registry::load_module`.
    pub module: OnceLock<Module>,
    /// Number of the last run with rows when this process started.
    pub log_at_start: u64,
    /// Looks for code of which a project of events has read events while it was not known. Locked while
    /// its rows are derived anew.
    pub looks: Mutex<Looks>,
    /// The members of a project with selectors.
    pub members: MembersOf,
    /// When its readers' tables were last scheduled although it goes on to get many rows.
    pub notified: Mutex<Notified>,
    cell: Mutex<Cell>,
    snapshot: RwLock<EntrySnapshot>,
    /// Size of the rows of all programs of the owner, in bytes, without programs that are to
    /// replace another.
    owner_bytes: Arc<AtomicU64>,
    /// The program that this one is to replace.
    replaced: Weak<Entry>,
}

/// When the tables of a program that gets many rows were scheduled.
#[derive(Debug, Default)]
pub struct Notified {
    /// When they were.
    pub at: Option<Instant>,
    /// Whether there are rows since.
    pub has_more: bool,
}

/// Mutable state of a program.
pub struct Cell {
    /// Manifest of the program.
    pub manifest: Arc<Manifest>,
    /// Progress of the program. May be ahead of the stored progress by ledgers without runs.
    pub progress: Progress,
    /// Number of ledgers without runs since progress was last written.
    pub unwritten: usize,
    /// Other owners who have subscribed to the program.
    pub subscribers: Arc<BTreeSet<Owner>>,
    /// Whether the program is deleted from the store; nothing may be written for it any more.
    pub deleted: bool,
    /// Runs that are to be repeated.
    pub waiting: WaitingRuns,
    /// Number of writes of this process that have changed earlier entries of the row log.
    pub merges: u64,
    /// Of a program that is to replace another: what was compared with the rows of that one.
    pub compared: Compared,
    /// Whether a failed write may have reached the store; [`Self::reload_if_in_doubt`] then reads the state
    /// again before it is used.
    pub in_doubt: bool,
}

/// What was compared of a program that is to replace another: none of the other one's rows lacked.
#[derive(Clone, Default)]
pub struct Compared {
    /// Ledgers that are lost to the program.
    pub(super) ledgers: LedgerSet,
    /// Number of the other one's last run with rows of these ledgers.
    pub(super) log: u64,
}

/// Copy of a program's state for readers, as of the last time that the cell was unlocked.
#[derive(Clone)]
pub struct EntrySnapshot {
    /// Manifest of the program.
    pub manifest: Arc<Manifest>,
    /// Other owners who have subscribed to the program.
    pub subscribers: Arc<BTreeSet<Owner>>,
    /// Number of the last run with rows.
    pub log: u64,
    /// Size of the program's rows, in bytes.
    pub row_bytes: u64,
    /// Number of runs that are to be repeated.
    pub waiting: usize,
    is_deleted: bool,
}

/// A locked cell. Dropping it makes changes visible to readers.
pub struct CellGuard<'e> {
    entry: &'e Entry,
    cell: MutexGuard<'e, Cell>,
}

impl Entry {
    /// Creates a program; its rows are added to `owner_bytes`.
    pub(crate) fn new(
        id: ProgramId,
        module: OnceLock<Module>,
        cell: Cell,
        owner_bytes: Arc<AtomicU64>,
    ) -> Self {
        let log_at_start = cell.progress.log;
        let snapshot = cell.snapshot();
        owner_bytes.fetch_add(snapshot.counted_bytes(), Ordering::Relaxed);
        let (cell, snapshot) = (Mutex::new(cell), RwLock::new(snapshot));
        Self {
            id,
            module,
            log_at_start,
            looks: Mutex::default(),
            members: MembersOf::default(),
            notified: Mutex::default(),
            cell,
            snapshot,
            owner_bytes,
            replaced: Weak::new(),
        }
    }

    /// Sets the program that this one is to replace.
    pub(super) fn replacing(self, replaced: &Arc<Entry>) -> Self {
        Self { replaced: Arc::downgrade(replaced), ..self }
    }

    /// Locks the mutable state. A caller that changes it holds the guard until the change is on
    /// disk.
    pub fn lock(&self) -> CellGuard<'_> {
        CellGuard { entry: self, cell: self.cell.lock() }
    }

    /// Locks the mutable state, unless the program is deleted, or earlier entries of its row log have
    /// changed since [`Cell::merges`] was `merges`.
    ///
    /// # Errors
    /// When a write has failed, and the store still does.
    pub(crate) fn lock_if_same(
        &self,
        store: &Store,
        merges: u64,
    ) -> Result<Option<CellGuard<'_>>, ProgramError> {
        let mut cell = self.lock();
        cell.reload_if_in_doubt(store)?;
        Ok((!cell.deleted && cell.merges == merges).then_some(cell))
    }

    /// Returns the state for readers, without waiting for the disk.
    pub fn snapshot(&self) -> EntrySnapshot {
        self.snapshot.read().clone()
    }

    /// Returns the size of the rows of all programs of the owner, in bytes. A program and the one
    /// that it is to replace count once: for each of the two, it is the one that counts.
    pub(crate) fn owner_bytes(&self) -> u64 {
        let all = self.owner_bytes.load(Ordering::Relaxed);
        let snapshot = self.snapshot();
        if snapshot.manifest.replaces.is_none() {
            return all;
        }
        let replaced = self.replaced.upgrade().map_or(0, |it| it.snapshot.read().own_bytes());
        all.saturating_sub(replaced).saturating_add(snapshot.own_bytes())
    }
}

impl Deref for CellGuard<'_> {
    type Target = Cell;

    fn deref(&self) -> &Cell {
        &self.cell
    }
}

impl DerefMut for CellGuard<'_> {
    fn deref_mut(&mut self) -> &mut Cell {
        &mut self.cell
    }
}

impl Drop for CellGuard<'_> {
    fn drop(&mut self) {
        let now = self.cell.snapshot();
        if self.entry.snapshot.read().is_same(&now) {
            return;
        }
        let mut snapshot = self.entry.snapshot.write();
        let bytes = &self.entry.owner_bytes;
        bytes.fetch_add(now.counted_bytes(), Ordering::Relaxed);
        bytes.fetch_sub(snapshot.counted_bytes(), Ordering::Relaxed);
        *snapshot = now;
    }
}

impl EntrySnapshot {
    /// Returns the size of the rows as it counts for the owner's limit, in bytes.
    fn counted_bytes(&self) -> u64 {
        if self.manifest.replaces.is_some() { 0 } else { self.own_bytes() }
    }

    /// Returns the size of the rows, and of the summary of a project of events, in bytes.
    fn own_bytes(&self) -> u64 {
        let summary = self.manifest.events.as_ref().filter(|_| !self.is_deleted);
        let summary = summary.map_or(0, |project| project.summary.shapes().bytes());
        self.row_bytes + summary as u64
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.manifest, &other.manifest)
            && Arc::ptr_eq(&self.subscribers, &other.subscribers)
            && (self.log, self.row_bytes, self.waiting, self.is_deleted)
                == (other.log, other.row_bytes, other.waiting, other.is_deleted)
    }
}

impl Cell {
    /// Creates the state of a program without waiting runs or subscribers.
    pub(crate) fn new(manifest: Manifest, progress: Progress) -> Self {
        Self {
            manifest: Arc::new(manifest),
            progress,
            unwritten: 0,
            subscribers: Arc::default(),
            deleted: false,
            waiting: WaitingRuns::default(),
            merges: 0,
            compared: Compared::default(),
            in_doubt: false,
        }
    }

    /// Reads a program's state from the store.
    pub(super) fn load(
        store: &Store,
        id: ProgramId,
        manifest: &[u8],
    ) -> Result<Self, ProgramError> {
        let (manifest, is_earlier) = Manifest::load(&store.shared_rows(), manifest)?;
        if is_earlier {
            storage::change(store, |changes| manifest.put(changes, None))?;
        }
        let progress = store.shared_row(&storage::progress(id))?;
        let progress = progress.and_then(|row| serde_json::from_slice::<Progress>(&row).ok());
        let consumer = storage::consumer(id);
        let (progress, place) = progress
            .zip(store.cursor(&consumer)?)
            .ok_or(ProgramError::Damaged("the progress of a program"))?;
        let progress = Progress { place, ..progress };
        store.set_active(&consumer, manifest.running);
        let subscribers = match store.shared_row(&storage::subscribers(id))? {
            Some(row) => serde_json::from_slice(&row)
                .map_err(|_| ProgramError::Damaged("the list of a program's subscribers"))?,
            None => BTreeSet::new(),
        };
        let (waiting, subscribers) =
            (WaitingRuns::from_stored(storage::waiting_runs(store, id)?), Arc::new(subscribers));
        Ok(Self { waiting, subscribers, ..Self::new(manifest, progress) })
    }

    /// Reads the state from the store again if a write has failed. Must be called before the state
    /// is used for a decision.
    ///
    /// # Errors
    /// When the store still fails; nothing may be done for the program then.
    pub(crate) fn reload_if_in_doubt(&mut self, store: &Store) -> Result<(), ProgramError> {
        if self.in_doubt {
            let id = self.manifest.id;
            match store.shared_row(&storage::manifest(id))? {
                // The write in doubt may have been one that changes earlier entries.
                Some(manifest) => {
                    let merges = self.merges + 1;
                    *self = Self { merges, ..Self::load(store, id, &manifest)? };
                }
                None => self.deleted = true,
            }
            self.in_doubt = false;
        }
        Ok(())
    }

    /// Writes changes. If the write fails, marks the state as in doubt.
    pub(crate) fn write(
        &mut self,
        store: &Store,
        change: impl FnOnce(&mut KindChanges<'_>) -> Result<(), StoreError>,
    ) -> Result<(), ProgramError> {
        let written = storage::change(store, change);
        self.in_doubt |= written.is_err();
        Ok(written?)
    }

    fn snapshot(&self) -> EntrySnapshot {
        EntrySnapshot {
            manifest: Arc::clone(&self.manifest),
            subscribers: Arc::clone(&self.subscribers),
            log: self.progress.log,
            row_bytes: if self.deleted { 0 } else { self.progress.row_bytes },
            waiting: self.waiting.len(),
            is_deleted: self.deleted,
        }
    }
}
