//! Programs from the perspective of those who copy their rows elsewhere, such as into a database of the operator: which
//! programs there are, their next rows with their places in the chain, and when there may be more.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::events::{DeclaredTable, EventProject, OfProject, RowPlace, each_row};
use super::manifest::{Manifest, Progress};
use super::registry::Entry;
use super::row_log::{self, ReadRuns};
use super::rows::LoggedRun;
use super::{ProgramError, Programs};
use orrery_ledger::domain::{LedgerSeq, ProgramId};
use orrery_store::TransactionPosition;
use orrery_tables::Row;

/// A program with a project name.
#[derive(Debug, Clone)]
pub struct CopiedProgram {
    /// Manifest of the program.
    pub manifest: Arc<Manifest>,
    /// Number of its last run with rows; 0 before the first.
    pub last: u64,
}

impl CopiedProgram {
    /// Returns a number that is another one once rows of earlier runs are others, or are in other tables or columns;
    /// `None` while they are about to be derived anew.
    pub fn arrangement(&self) -> Option<u64> {
        arrangement(&self.manifest)
    }
}

fn arrangement(manifest: &Manifest) -> Option<u64> {
    manifest.events.as_ref().map_or(Some(0), EventProject::arrangement)
}

/// A program's next runs.
pub struct RunsToCopy {
    /// A manifest with every table and column that their rows need.
    pub manifest: Arc<Manifest>,
    /// The runs, in log order.
    pub runs: Vec<LoggedRun>,
    /// Whether there were more when they were read.
    pub more: bool,
    /// A ledger of which only a part is processed yet.
    pub unfinished: Option<LedgerSeq>,
    /// What is known once the rows of all of them are copied, if there were no more.
    pub end: Option<EndOfLog>,
}

/// What holds of a program at the end of its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndOfLog {
    /// Up to this ledger the program has processed everything that is stored; `None` if it has processed nothing.
    pub ledger: Option<LedgerSeq>,
    /// The first ledger without a gap before that one, of a project that records what its contracts hold: what they held
    /// earlier is not known to hold on.
    pub held_from: Option<LedgerSeq>,
}

impl Programs {
    /// Calls `listener` whenever rows may have been written, or programs have been added, changed or deleted. It must
    /// return at once.
    pub fn listen(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.feeder.listeners.add(listener);
    }

    /// Returns all programs with a project name, sorted by id. Of those that have one name, as when one is replaced at
    /// this moment, the last one has it.
    pub fn copied(&self) -> Vec<CopiedProgram> {
        let snapshots = self.registry.all().into_iter().map(|entry| entry.snapshot());
        let named = snapshots.filter(|it| it.manifest.replaces.is_none());
        named.map(|it| CopiedProgram { manifest: it.manifest, last: it.log }).collect()
    }

    /// Returns a program's next runs after the number `after` of its log, up to the number `last`; `None` while rows
    /// are derived anew, and when there is no such program.
    ///
    /// # Errors
    /// When the store fails, or something stored is damaged.
    pub fn runs_to_copy(
        &self,
        id: ProgramId,
        after: u64,
        last: u64,
    ) -> Result<Option<RunsToCopy>, ProgramError> {
        let Some(entry) = self.registry.get(id) else { return Ok(None) };
        let Some(read) = self.runner.read_runs(&entry, after, last)? else { return Ok(None) };
        let ReadRuns { runs, manifest, progress } = read;
        if arrangement(&manifest).is_none() {
            return Ok(None);
        }
        let is_end = !runs.more && runs.up_to.max(after) >= progress.log;
        let end = is_end.then(|| self.end_of_log(&entry, &manifest, progress)).transpose()?;
        let unfinished = progress.part.and_then(|part| {
            let place = part.place.saturating_sub(1);
            self.runner.store.fed_after(place, 1).first().map(|it| it.ledger)
        });
        Ok(Some(RunsToCopy { manifest, runs: runs.items, more: runs.more, unfinished, end }))
    }

    fn end_of_log(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        progress: Progress,
    ) -> Result<EndOfLog, ProgramError> {
        let ledger = match self.runner.store.fed_after(progress.place, 1).first() {
            Some(next) => next.ledger.previous(),
            None => self.runner.store.status().latest(),
        };
        let held_from = match manifest.schema.has_storage() {
            true => self.runner.read_ledgers(entry)?.and_then(|read| {
                let newest = read.ranges.last().copied();
                newest.map(|(first, _)| LedgerSeq(first))
            }),
            false => None,
        };
        Ok(EndOfLog { ledger, held_from })
    }

    /// Returns what contracts declare of the events in the tables of a project, by target.
    ///
    /// # Errors
    /// When the store fails.
    pub fn declared_tables(
        &self,
        manifest: &Manifest,
    ) -> Result<BTreeMap<String, DeclaredTable>, ProgramError> {
        self.runner.events.declared_tables(manifest)
    }

    /// Visits the rows of a run of a program, in the tables of this manifest, with their places in the chain.
    ///
    /// # Errors
    /// When the store fails, or something stored is damaged; and those of `visit`.
    pub fn rows_of(
        &self,
        manifest: &Manifest,
        run: &LoggedRun,
        visit: &mut dyn FnMut(RowPlace, Row) -> Result<(), ProgramError>,
    ) -> Result<(), ProgramError> {
        if let Some(project) = &manifest.events {
            let of = OfProject::of(manifest);
            let stored = (run.position, &*run.stored);
            return each_row(&of, project, &self.runner.events, stored, visit);
        }
        let TransactionPosition { ledger, application_order } = run.position;
        for (number, row) in (0..).zip(row_log::rows_of(manifest.id, run)?) {
            visit(RowPlace::in_transaction(ledger, application_order, number), row)?;
        }
        Ok(())
    }

    /// Returns the transaction of a run by the run's number in a program's log; `None` when there is no such run.
    ///
    /// # Errors
    /// When the store fails.
    pub fn logged_transaction(
        &self,
        id: ProgramId,
        run: u64,
    ) -> Result<Option<TransactionPosition>, ProgramError> {
        Ok(row_log::transaction_of(&self.runner.store, id, run)?)
    }
}
