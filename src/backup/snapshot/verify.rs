//! Checks the snapshots of a place without restoring them.

use rand::seq::SliceRandom;

use super::{Progress, Snapshot, Snapshots};
use crate::backup::BackupError;

/// What the check of a snapshot has found.
#[derive(Debug)]
pub struct Verified {
    /// Name of the snapshot.
    pub name: String,
    /// The snapshot, or the first reason why it cannot be restored.
    pub found: Result<Snapshot, BackupError>,
}

impl Snapshots {
    /// Reads all descriptions, looks for all objects, and compares the content of the objects, or of `sample` of
    /// them that are chosen at random, with the descriptions.
    ///
    /// # Errors
    /// When the place cannot be read.
    pub fn verify(
        &self,
        sample: Option<usize>,
        progress: Progress<'_>,
    ) -> Result<Vec<Verified>, BackupError> {
        let (mut verified, mut readable) = (Vec::new(), Vec::new());
        for name in self.names()? {
            let found = self.read(&name);
            let found = found.and_then(|snapshot| self.check_objects(&snapshot).map(|()| snapshot));
            if let Ok(snapshot) = &found {
                readable.push((verified.len(), snapshot.clone()));
            }
            verified.push(Verified { name, found });
        }
        let choose = |names: Vec<&str>| {
            let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            if let Some(sample) = sample {
                names.shuffle(&mut rand::rng());
                names.truncate(sample);
            }
            names
        };
        let snapshots: Vec<Snapshot> = readable.iter().map(|(_, it)| it.clone()).collect();
        let mut damaged = |index: usize, error: BackupError| {
            let entry = readable.get(index).and_then(|(index, _)| verified.get_mut(*index));
            if let Some(entry) = entry
                && entry.found.is_ok()
            {
                entry.found = Err(error);
            }
        };
        self.compare(&snapshots, choose, &mut damaged, progress)?;
        Ok(verified)
    }
}
