//! Reads the rows of a program from the store, as they are written to its tables.

use std::sync::Arc;

use super::ProgramError;
use super::events;
use super::manifest::Manifest;
use super::registry::Entry;
use super::row_log::{self, Batch};
use super::runner::Runner;

impl Runner {
    /// Returns the rows of a program's next runs, and a manifest with every table and column that
    /// they need; `None` while they are derived anew.
    pub(super) fn rows_to_feed(
        &self,
        entry: &Entry,
        after: u64,
    ) -> Result<Option<(Batch, Arc<Manifest>)>, ProgramError> {
        let (mut batch, manifest) = loop {
            let derivation = |manifest: &Manifest| manifest.events.as_ref().map(|it| it.derivation);
            let before = derivation(&entry.snapshot().manifest);
            let batch = row_log::rows_after(&self.store, entry.id, after, u64::MAX)?;
            // Read after the rows and under the lock, when their write is over.
            let manifest = Arc::clone(&entry.lock().manifest);
            // Some are those of the next tables already, and belong into none of these.
            if manifest.events.as_ref().is_some_and(|project| project.is_deriving) {
                return Ok(None);
            }
            // Rows that were derived anew meanwhile do not belong to these tables.
            if derivation(&manifest) == before {
                break (batch, manifest);
            }
        };
        if let Some(project) = &manifest.events {
            let events = std::mem::take(&mut batch.rows);
            batch.rows = events::table_rows(
                &events::OfProject::of(&manifest),
                project,
                &self.events,
                events,
            )?;
        }
        Ok(Some((batch, manifest)))
    }
}
