//! Which ledgers a project has read, for the views that show what its contracts hold: what a key held last
//! holds on only if no ledger in between is missing.

use super::EventProject;
use crate::backfills::stored_backfill;
use crate::registry::Entry;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_ledger::domain::LedgerSet;

/// The ledgers that a project has read, and the number of the last entry that its row log had then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadLedgers {
    pub log: u64,
    /// The first and the last ledger of each range.
    pub ranges: Vec<(u32, u32)>,
}

impl Runner {
    /// Returns the ledgers that a project has read, if it records what its contracts hold; `None` also while
    /// its rows are about to be derived anew.
    pub(crate) fn read_ledgers(&self, entry: &Entry) -> Result<Option<ReadLedgers>, ProgramError> {
        let records = |project: &EventProject| project.has_storage && !project.must_derive();
        if !entry.snapshot().manifest.events.as_ref().is_some_and(records) {
            return Ok(None);
        }
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        let Some(project) = cell.manifest.events.as_ref().filter(|it| records(it)) else {
            return Ok(None);
        };
        let progress = cell.progress;
        let mut read = self.store.ledgers_after(progress.deployed_at_place.unwrap_or(0));
        read.remove_all(&self.store.ledgers_after(progress.place));
        if let Some(backfill) = stored_backfill(&self.store, entry.id)? {
            read.insert_all(&backfill.read_ledgers());
        }
        let consumer = self.store.consumer(&storage::consumer(entry.id));
        read.remove_all(&consumer.map_or_else(LedgerSet::default, |it| it.lost));
        let read = project.wanted(read);
        let ranges = read.ranges().iter().map(|range| (range.first.0, range.last.0)).collect();
        Ok(Some(ReadLedgers { log: progress.log, ranges }))
    }
}
