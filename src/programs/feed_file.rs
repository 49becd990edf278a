//! What the feeder knows of an owner's file of tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::manifest::Manifest;
use orrery_ledger::domain::ProgramId;

/// An owner's file.
#[derive(Default)]
pub(super) struct OwnerFile {
    /// State of the file, locked while it is changed.
    pub state: Mutex<File>,
    /// [`File::served`] after the last change. Queries read it, so that they need not wait for a
    /// change that does not concern them.
    pub served: Mutex<Option<BTreeMap<ProgramId, Served>>>,
}

/// What is known of the tables of a program in a file.
#[derive(Clone)]
pub(super) struct Served {
    /// Number of the last row log entry in the tables; while they are filled anew, in the new ones.
    pub log: u64,
    /// Manifest of the program when its tables were last declared to the file.
    declared: Option<DeclaredManifest>,
    /// The ledgers of which the tables have all rows, of a project that records what its contracts hold.
    pub ranges: Option<Vec<(u32, u32)>>,
}

impl Served {
    /// Returns whether the tables are, or are being filled to be, those of the program as it is now.
    pub fn has_tables_of(&self, now: &Arc<Manifest>) -> bool {
        let same = |it: &DeclaredManifest| Arc::ptr_eq(&it.0, now) || it.has_same_tables(now);
        self.declared.as_ref().is_some_and(same)
    }
}

/// State of an owner's file.
#[derive(Default)]
pub(super) struct File {
    /// Whether the file has at some time had all stored rows, except those of skipped programs.
    pub was_full: bool,
    /// Whether the file was checked for rows beyond the row log as it was when this process
    /// started.
    pub checked: bool,
    /// Program of the last attempt. The next turn begins with the one after it.
    pub last: ProgramId,
    /// Number of the last row log entry in the file, by program; `None` when the file must be
    /// queried for it.
    pub watermarks: Option<BTreeMap<ProgramId, u64>>,
    /// Manifests of the programs when their tables were last declared to the file.
    pub declared: BTreeMap<ProgramId, DeclaredManifest>,
    /// The ledgers of which the tables of projects have all rows, as the file was told last.
    pub ranges: BTreeMap<ProgramId, Vec<(u32, u32)>>,
}

/// Manifest of a program when its tables were declared to a file.
#[derive(Clone)]
pub(super) struct DeclaredManifest(pub Arc<Manifest>);

impl File {
    /// Returns what the file has of each program, if it had all stored rows at some time.
    pub fn served(&self) -> Option<BTreeMap<ProgramId, Served>> {
        let watermarks = self.watermarks.as_ref().filter(|_| self.was_full)?;
        let served = |(id, log): (&ProgramId, &u64)| {
            let ranges = self.ranges.get(id).cloned();
            (*id, Served { log: *log, declared: self.declared.get(id).cloned(), ranges })
        };
        Some(watermarks.iter().map(served).collect())
    }

    /// Discards the state, so that it is read from the file again.
    pub fn forget(&mut self) {
        self.was_full = false;
        self.watermarks = None;
        self.declared.clear();
        self.ranges.clear();
    }
}

impl DeclaredManifest {
    /// Returns whether names and schema of the tables are unchanged.
    pub fn has_same_tables(&self, now: &Manifest) -> bool {
        self.0.project_name == now.project_name && self.0.schema == now.schema
    }
}
