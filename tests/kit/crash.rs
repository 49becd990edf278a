//! Kills of a process that works on a store, as a copy of its files at one moment: what a killed process
//! leaves. The copy is made while nothing is written, or in the middle of what the store does, just
//! before or after one of its writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use orrery_store::Store;
use tempfile::TempDir;

use super::scratch::scratch;

/// A kill within the next writes of a store.
pub struct Kill(Arc<Mutex<Option<TempDir>>>);

impl Kill {
    /// Plans a kill in the middle of what the store does next: at the write number `write` from now on,
    /// beginning with 0; when it has reached the files if `after`, else before it. `last_moment` is
    /// called then, and the files are those of `directory`. What the store does after that has never
    /// happened.
    pub fn plan(
        store: &Store,
        directory: &Path,
        (write, after): (u32, bool),
        mut last_moment: impl FnMut() + Send + 'static,
    ) -> Self {
        let files = Arc::new(Mutex::new(None));
        let (left, directory) = (Arc::clone(&files), directory.to_owned());
        let mut before = write;
        let mut at_write = move || match before.checked_sub(1) {
            Some(fewer) => before = fewer,
            None => {
                let mut left = left.lock().unwrap();
                if left.is_none() {
                    last_moment();
                    *left = Some(copied(&directory));
                }
            }
        };
        if after {
            store.faults().after_writes(move |_| at_write());
        } else {
            store.faults().plan(move |_| {
                at_write();
                None
            });
        }
        Self(files)
    }

    /// Ends the plan. Returns the files that the kill has left; `None` when the store has made too few
    /// writes, so that it was not killed.
    pub fn files(self, store: &Store) -> Option<TempDir> {
        store.faults().clear();
        self.0.lock().unwrap().take()
    }
}

/// Copies a directory as it is at one moment. Repeats the copy when the list of files changed meanwhile,
/// for example because of a compaction.
pub fn copied(directory: &Path) -> TempDir {
    loop {
        let (copy, before) = (scratch(), listed(directory));
        let whole = before.keys().all(|file| {
            let target = copy.path().join(file.strip_prefix(directory).unwrap());
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::copy(file, target).is_ok()
        });
        if whole && listed(directory) == before {
            return copy;
        }
    }
}

/// Returns the files under a directory with their lengths.
fn listed(directory: &Path) -> BTreeMap<PathBuf, u64> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match fs::metadata(&path) {
            Ok(found) if found.is_dir() => files.extend(listed(&path)),
            Ok(found) => drop(files.insert(path, found.len())),
            // Removed meanwhile.
            Err(_) => {}
        }
    }
    files
}
