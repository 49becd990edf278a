//! What the feeder knows of an owner's file of tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::manifest::Manifest;
use crate::domain::ProgramId;

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
}

/// Manifest of a program when its tables were declared to a file.
pub(super) struct DeclaredManifest(pub Arc<Manifest>);

impl File {
    /// Discards the state, so that it is read from the file again.
    pub fn forget(&mut self) {
        self.was_full = false;
        self.watermarks = None;
        self.declared.clear();
    }
}

impl DeclaredManifest {
    /// Returns whether names and schema of the tables are unchanged.
    pub fn has_same_tables(&self, now: &Manifest) -> bool {
        self.0.project_name == now.project_name && self.0.schema == now.schema
    }
}
