//! A program in memory: what of it changes, under a lock that is held until a change is on disk, and what
//! others are shown of it, who wait for no disk.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::domain::{Owner, ProgramId};
use crate::programs::ProgramError;
use crate::programs::engine::Module;
use crate::programs::manifest::{Manifest, Progress};
use crate::programs::waiting::Waiting;
use crate::store::{ProgramChanges, Store, StoreError, program_consumer};

/// A program in memory.
pub struct Entry {
    /// Its number.
    pub id: ProgramId,
    /// What it runs, once it has been made ready: see `Registry::make_ready`.
    pub module: OnceLock<Module>,
    /// Number of the last run with rows that was found when this process began.
    pub log_at_start: u64,
    cell: Mutex<Cell>,
    shown: RwLock<Shown>,
    /// Bytes of the rows of all programs of its owner.
    owner_bytes: Arc<AtomicU64>,
}

/// The part of a program that changes.
pub struct Cell {
    /// What it is.
    pub manifest: Arc<Manifest>,
    /// How far it has got. Between writes it may be ahead of the disk by ledgers without runs.
    pub progress: Progress,
    /// Ledgers without runs since progress was last written.
    pub unwritten: usize,
    /// Other owners who have subscribed to it.
    pub subscribers: Arc<BTreeSet<Owner>>,
    /// It is gone from the store; nothing may be written for it any more.
    pub deleted: bool,
    /// Runs that are to be made again.
    pub waiting: Waiting,
    /// A write failed, which may have been made all the same: what is here is read again before it is used.
    pub in_doubt: bool,
}

/// What of a program others are shown: as it was when its cell was last unlocked.
#[derive(Clone)]
pub struct Shown {
    /// What it is.
    pub manifest: Arc<Manifest>,
    /// Other owners who have subscribed to it.
    pub subscribers: Arc<BTreeSet<Owner>>,
    /// Number of its last run with rows.
    pub log: u64,
    /// Bytes of its rows.
    pub row_bytes: u64,
    /// How many runs are to be made again.
    pub waiting: usize,
}

/// A locked cell. What has changed is shown when this is dropped.
pub struct CellGuard<'e> {
    entry: &'e Entry,
    cell: MutexGuard<'e, Cell>,
}

impl Entry {
    /// A program whose owner's rows are counted there.
    pub(in crate::programs) fn new(
        id: ProgramId,
        module: OnceLock<Module>,
        cell: Cell,
        owner_bytes: Arc<AtomicU64>,
    ) -> Self {
        let log_at_start = cell.progress.log;
        let shown = cell.show();
        owner_bytes.fetch_add(shown.row_bytes, Ordering::Relaxed);
        let (cell, shown) = (Mutex::new(cell), RwLock::new(shown));
        Self { id, module, log_at_start, cell, shown, owner_bytes }
    }

    /// What changes. Whoever changes it holds this until the change is on disk.
    pub fn lock(&self) -> CellGuard<'_> {
        CellGuard { entry: self, cell: self.cell.lock() }
    }

    /// What it is, at once.
    pub fn shown(&self) -> Shown {
        self.shown.read().clone()
    }

    /// Bytes of the rows of all programs of its owner.
    pub(in crate::programs) fn owner_bytes(&self) -> u64 {
        self.owner_bytes.load(Ordering::Relaxed)
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
        let now = self.cell.show();
        if self.entry.shown.read().is_same(&now) {
            return;
        }
        let mut shown = self.entry.shown.write();
        let bytes = &self.entry.owner_bytes;
        bytes.fetch_add(now.row_bytes, Ordering::Relaxed);
        bytes.fetch_sub(shown.row_bytes, Ordering::Relaxed);
        *shown = now;
    }
}

impl Shown {
    /// Whether its tables are in the file of this owner.
    pub(super) fn is_read_by(&self, reader: &Owner) -> bool {
        let Self { manifest, subscribers, .. } = self;
        manifest.owner == *reader || manifest.public && subscribers.contains(reader)
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.manifest, &other.manifest)
            && Arc::ptr_eq(&self.subscribers, &other.subscribers)
            && (self.log, self.row_bytes, self.waiting)
                == (other.log, other.row_bytes, other.waiting)
    }
}

impl Cell {
    /// Of a program that waits for nothing.
    pub(in crate::programs) fn new(manifest: Manifest, progress: Progress) -> Self {
        Self {
            manifest: Arc::new(manifest),
            progress,
            unwritten: 0,
            subscribers: Arc::default(),
            deleted: false,
            waiting: Waiting::default(),
            in_doubt: false,
        }
    }

    /// What is stored of a program.
    pub(super) fn stored(
        store: &Store,
        id: ProgramId,
        manifest: &[u8],
    ) -> Result<Self, ProgramError> {
        let manifest: Manifest = serde_json::from_slice(manifest)
            .map_err(|_| ProgramError::Damaged("the manifest of a program"))?;
        let progress = store.program_progress(id)?;
        let progress = progress.and_then(|row| serde_json::from_slice::<Progress>(&row).ok());
        let consumer = program_consumer(id);
        let (progress, place) = progress
            .zip(store.cursor(&consumer)?)
            .ok_or(ProgramError::Damaged("the progress of a program"))?;
        let progress = Progress { place, ..progress };
        store.set_active(&consumer, manifest.running);
        let subscribers = match store.program_subscribers(id)? {
            Some(row) => serde_json::from_slice(&row)
                .map_err(|_| ProgramError::Damaged("the list of a program's subscribers"))?,
            None => BTreeSet::new(),
        };
        let (waiting, subscribers) = (Waiting::of(store.waiting_runs(id)?), Arc::new(subscribers));
        Ok(Self { waiting, subscribers, ..Self::new(manifest, progress) })
    }

    /// Reads from the store what a failed write may have changed, if one failed. To be called before what
    /// is here decides about anything.
    ///
    /// # Errors
    /// When the store still fails; then nothing may be done for the program.
    pub(in crate::programs) fn settle(&mut self, store: &Store) -> Result<(), ProgramError> {
        if self.in_doubt {
            let id = self.manifest.id;
            match store.program(id)? {
                Some(manifest) => *self = Self::stored(store, id, &manifest)?,
                None => self.deleted = true,
            }
            self.in_doubt = false;
        }
        Ok(())
    }

    /// Writes changes; when that fails, it is in doubt what the store holds.
    pub(in crate::programs) fn write(
        &mut self,
        store: &Store,
        change: impl FnOnce(&mut ProgramChanges<'_>) -> Result<(), StoreError>,
    ) -> Result<(), ProgramError> {
        let written = store.change_programs(change);
        self.in_doubt |= written.is_err();
        Ok(written?)
    }

    fn show(&self) -> Shown {
        Shown {
            manifest: Arc::clone(&self.manifest),
            subscribers: Arc::clone(&self.subscribers),
            log: self.progress.log,
            row_bytes: if self.deleted { 0 } else { self.progress.row_bytes },
            waiting: self.waiting.len(),
        }
    }
}
