//! Whether an owner's tables have what a query, or a program that is to replace another, needs.

use std::time::{Duration, Instant};

use super::events::EventProject;
use super::feed_file::OwnerFile;
use super::feeder::{Feeder, Reached};
use super::manifest::Manifest;
use super::row_log;
use orrery_ledger::domain::{LedgerSeq, Owner, ProgramId};
use orrery_runtime::supervision::OnPanic;
use orrery_store::StoreError;
use orrery_tables::query::QueryError;

/// Time that a query waits for a file that is being filled.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Whether rows of a program are in an owner's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copied {
    /// All of them are.
    Yes,
    /// Some of them are not yet.
    NotYet,
    /// Some of them are not, and cannot be written at present.
    Failing,
}

impl Feeder {
    /// Ensures that an owner's file contains the rows that were stored when this process started,
    /// and the tables of all named programs deployed since, except for skipped programs, and none of
    /// programs that the owner no longer reads: a query finds the program that the list shows.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] while the file is being filled, or when it cannot be.
    pub(super) fn ensure_current(&self, owner: &Owner) -> Result<(), QueryError> {
        let filled = || QueryError::Unavailable("the tables are being filled".to_owned());
        let known = self.file(owner);
        if self.is_current(owner, &known) {
            return Ok(());
        }
        let mut file = known.state.try_lock_for(TIMEOUT).ok_or_else(filled)?;
        // Another thread may have filled the file meanwhile.
        if self.is_current(owner, &known) {
            return Ok(());
        }
        let _unknown = OnPanic::new(|| *known.served.lock() = None);
        let result = self.feed_locked(owner, &mut file, Some(Instant::now() + TIMEOUT));
        *known.served.lock() = file.served();
        let reached = result.map_err(|error| {
            // The client does not receive the details, which may reveal file paths.
            tracing::warn!(%owner, "a query cannot be answered: {error}");
            QueryError::Unavailable("the tables cannot be read right now".to_owned())
        })?;
        if reached == Reached::End || self.is_current(owner, &known) {
            return Ok(());
        }
        self.wake();
        Err(filled())
    }

    /// Returns the ledger up to which an owner's tables have all rows of the programs that it reads, as far as these
    /// have processed the stored ledgers; `None` when it reads none, or nothing is known.
    pub(super) fn reached(&self, owner: &Owner) -> Result<Option<LedgerSeq>, StoreError> {
        let Some(served) = self.file(owner).served.lock().clone() else { return Ok(None) };
        let store = &self.runner.store;
        let readable = self.registry.readable_programs(owner);
        let mut reached: Option<LedgerSeq> = None;
        for program in readable.iter().filter(|it| it.fits && it.named) {
            let Some(entry) = self.registry.get(program.id) else { continue };
            let progress = entry.lock().progress;
            let copied = served.get(&program.id).map_or(0, |served| served.log);
            let missing = match copied < progress.log {
                true => row_log::transaction_of(store, program.id, copied + 1)?.map(|it| it.ledger),
                false => store.fed_after(progress.place, 1).first().map(|next| next.ledger),
            };
            let up_to = match missing {
                Some(missing) => missing.previous(),
                None => store.status().latest(),
            };
            let Some(up_to) = up_to else { return Ok(None) };
            reached = Some(reached.map_or(up_to, |reached| reached.min(up_to)));
        }
        Ok(reached)
    }

    fn is_current(&self, owner: &Owner, known: &OwnerFile) -> bool {
        let Some(served) = known.served.lock().clone() else { return false };
        let readable = self.registry.readable_programs(owner);
        let mut needed = readable.iter().filter(|it| it.fits && it.named);
        let is_read = |id: &ProgramId| readable.iter().any(|it| it.fits && it.id == *id);
        needed.all(|it| served.contains_key(&it.id) || self.skip_reason(owner, it.id).is_some())
            && served.keys().all(is_read)
            && !self.tables().is_incomplete(owner)
    }

    /// Whether the tables of a project that records what its contracts hold are told which ledgers they have.
    /// Must not be called while the project is locked.
    pub(super) fn has_ledgers(&self, reader: &Owner, program: ProgramId) -> bool {
        let entry = self.registry.get(program);
        let read = entry.and_then(|entry| self.runner.read_ledgers(&entry).ok().flatten());
        let Some(read) = read else { return true };
        let file = self.file(reader);
        let served = file.served.lock();
        let served = served.as_ref().and_then(|served| served.get(&program));
        served.and_then(|served| served.ranges.as_ref()) == Some(&read.ranges)
    }

    /// Returns whether the rows of a program up to this number of the row log are in the tables of
    /// a reader, as they are now.
    pub(super) fn copied(&self, reader: &Owner, program: ProgramId, log: u64) -> Copied {
        let readable = self.registry.readable_programs(reader);
        let is_skipped = self.skip_reason(reader, program).is_some();
        let fits = readable.iter().any(|it| it.id == program && it.fits);
        let file = self.file(reader);
        let served = file.served.lock().as_ref().and_then(|served| served.get(&program).cloned());
        let manifest = self.registry.get(program).map(|entry| entry.snapshot().manifest);
        // Events of earlier runs may have been added, or may get other names.
        let will_change = |it: &Manifest| it.events.as_ref().is_some_and(EventProject::must_derive);
        match served.zip(manifest) {
            _ if is_skipped || !fits || self.has_failed(reader) => Copied::Failing,
            Some((served, manifest))
                if served.log >= log
                    && !will_change(&manifest)
                    && served.has_tables_of(&manifest)
                    && (served.ranges.is_some() || !manifest.schema.has_storage()) =>
            {
                Copied::Yes
            }
            _ => Copied::NotYet,
        }
    }
}
