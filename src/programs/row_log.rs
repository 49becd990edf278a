//! Log of the rows that programs have emitted, as stored: one entry per run, in the order in which
//! runs were written, and its rows as they go to the tables. Entries are only appended, so that a consumer only needs to remember the
//! number of the last entry it has read.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::events::{self, EventInterfaces, OfProject, table_rows};
use super::manifest::{Manifest, Progress};
use super::registry::Entry;
use super::rows::{LoggedRun, RunRows};
use super::runner::Runner;
use super::{ProgramError, storage};
use orrery_ledger::domain::ProgramId;
use orrery_store::{Store, StoreError, TransactionPosition};
use orrery_tables::{NewRows, Row, event_id};

/// Maximum number of runs read at once. Few in unit tests, so that their histories take several
/// batches.
const MAX_BATCH_RUNS: usize = if cfg!(test) { 3 } else { 8_192 };
/// Maximum size of their rows in bytes, unless a single run has more.
const MAX_BATCH_BYTES: usize = 4 << 20;

/// A program, with the number of its last run with rows.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedProgram {
    /// Manifest of the program. Its tables can hold the rows of all runs up to `last`.
    pub manifest: Manifest,
    /// Number of its last run with rows; 0 before the first.
    pub last: u64,
}

/// Returns all programs of a store that have a project name, sorted by id.
pub fn programs(store: &Store) -> Result<Vec<LoggedProgram>, StoreError> {
    let mut found = Vec::new();
    for (id, _) in storage::manifests(store)? {
        let damaged = |family| StoreError::Corrupt { family, key: format!("program {id}") };
        // A write commits rows and manifest together, so that this one covers all rows up to the
        // number.
        let rows = store.shared_rows();
        let Some(progress) = rows.get(&storage::progress(id))? else { continue };
        let progress: Progress =
            serde_json::from_slice(&progress).map_err(|_| damaged("program_progress"))?;
        let Some(manifest) = rows.get(&storage::manifest(id))? else { continue };
        let (manifest, _) = Manifest::load(&rows, &manifest).map_err(|error| match error {
            ProgramError::Store(error) => error,
            _ => damaged("programs"),
        })?;
        if manifest.replaces.is_none() {
            found.push(LoggedProgram { manifest, last: progress.log });
        }
    }
    Ok(found)
}

impl LoggedProgram {
    /// Returns a number that is another one once rows of earlier runs are others, or are in other
    /// tables or columns, as in projects of events; `None` while they are about to be derived anew.
    pub fn arrangement(&self) -> Option<u64> {
        self.manifest.events.as_ref().map_or(Some(0), |project| project.arrangement())
    }

    /// Returns whether the rows of this program up to `last` are still what they were when it was
    /// read.
    pub fn is_unchanged(&self, store: &Store) -> Result<bool, StoreError> {
        let Some(events) = &self.manifest.events else { return Ok(true) };
        let now = programs(store)?;
        let now = now.iter().find(|it| it.manifest.id == self.manifest.id);
        Ok(now.is_some_and(|now| now.arrangement() == events.arrangement()))
    }

    /// Returns the rows of its tables of the next runs after the number `after` of the log, up to
    /// `last`. A project of events needs interfaces.
    pub fn rows_after(
        &self,
        store: &Store,
        interfaces: Option<&EventInterfaces>,
        after: u64,
    ) -> Result<Batch<Row>, StoreError> {
        let program = self.manifest.id;
        let runs = runs_after(store, program, after, self.last)?;
        let mut batch =
            runs.into_rows(&self.manifest, interfaces).map_err(|error| match error {
                ProgramError::Store(error) => error,
                _ => StoreError::Corrupt { family: "rows", key: format!("program {program}") },
            })?;
        if self.manifest.events.is_some() && interfaces.is_some() {
            // The rows behind the view of all events are none of a table.
            let tables = self.manifest.schema.tables();
            batch.items.retain(|row| tables.iter().any(|table| table.target == row.emit.target));
        }
        Ok(batch)
    }
}

/// Returns the transaction of a run by the run's number; `None` when there is no such run.
pub fn transaction_of(
    store: &Store,
    program: ProgramId,
    run: u64,
) -> Result<Option<TransactionPosition>, StoreError> {
    let mut found = None;
    storage::row_log_after(store, program, run.saturating_sub(1), |number, position, _| {
        found = (number == run).then_some(position);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// What there is of consecutive runs.
#[derive(Debug)]
pub struct Batch<T> {
    /// The runs, or their rows, in log order.
    pub items: Vec<T>,
    /// Number of the last of these runs.
    pub up_to: u64,
    /// Transaction of that run; `None` without runs.
    pub last: Option<TransactionPosition>,
    /// Whether there are more runs after these.
    pub more: bool,
}

/// Rows of a program's next runs, and a manifest with every table and column that they need.
pub(super) struct RowsToFeed {
    /// The rows.
    pub rows: NewRows,
    /// Number of the last of these runs.
    pub up_to: u64,
    /// Whether there are more runs after these.
    pub more: bool,
    pub manifest: Arc<Manifest>,
}

/// Returns the next runs after the number `after` of the log, up to the number `last`.
pub fn runs_after(
    store: &Store,
    program: ProgramId,
    after: u64,
    last: u64,
) -> Result<Batch<LoggedRun>, StoreError> {
    let mut batch = Batch { items: Vec::new(), up_to: after, last: None, more: false };
    let mut bytes = 0;
    storage::row_log_after(store, program, after, |number, position, stored| {
        if number > last {
            return Ok(ControlFlow::Break(()));
        }
        let runs = batch.items.len();
        if runs == MAX_BATCH_RUNS || (runs > 0 && bytes + stored.len() > MAX_BATCH_BYTES) {
            batch.more = true;
            return Ok(ControlFlow::Break(()));
        }
        batch.items.push(LoggedRun { number, position, stored: stored.to_vec() });
        bytes += stored.len();
        (batch.up_to, batch.last) = (number, Some(position));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(batch)
}

impl Batch<LoggedRun> {
    /// Returns the rows of tables. Those of a project of events need interfaces.
    fn into_rows(
        self,
        manifest: &Manifest,
        interfaces: Option<&EventInterfaces>,
    ) -> Result<Batch<Row>, ProgramError> {
        let Self { items, up_to, last, more } = self;
        let of_events = manifest.events.as_ref().zip(interfaces);
        let of = OfProject::of(manifest);
        let mut rows = Vec::new();
        for run in items {
            rows.extend(match of_events {
                Some((project, interfaces)) => {
                    table_rows(&of, project, interfaces, (run.position, &run.stored))?
                }
                None => rows_of(manifest.id, &run)?,
            });
        }
        Ok(Batch { items: rows, up_to, last, more })
    }
}

/// Returns the rows of a run of a program with code.
pub(super) fn rows_of(
    program: ProgramId,
    LoggedRun { position, stored, .. }: &LoggedRun,
) -> Result<Vec<Row>, ProgramError> {
    let run = RunRows::decode(stored).map_err(|_| ProgramError::Damaged("the rows of a run"))?;
    let row = |(index, emit)| Row {
        event_id: event_id(program, &run.transaction, index),
        transaction: run.transaction,
        ledger: position.ledger,
        closed_at: run.closed_at,
        emit,
    };
    Ok((0..).zip(run.emits).map(row).collect())
}

/// A program's next runs, and its state when they had been read.
pub(super) struct ReadRuns {
    /// The runs.
    pub runs: Batch<LoggedRun>,
    /// A manifest with every table and column that they need.
    pub manifest: Arc<Manifest>,
    /// How far the program was. It may have more runs than those that were read.
    pub progress: Progress,
}

impl Runner {
    /// Returns a program's next runs, up to the number `last` of the log, for whoever copies their rows; `None` while
    /// they are derived anew.
    pub(super) fn read_runs(
        &self,
        entry: &Entry,
        after: u64,
        last: u64,
    ) -> Result<Option<ReadRuns>, ProgramError> {
        loop {
            let derivation = |manifest: &Manifest| manifest.events.as_ref().map(|it| it.derivation);
            let before = derivation(&entry.snapshot().manifest);
            let runs = runs_after(&self.store, entry.id, after, last)?;
            // Read after the rows and under the lock, when their write is over.
            let (manifest, progress) = {
                let cell = entry.lock();
                (Arc::clone(&cell.manifest), cell.progress)
            };
            // Some are those of the next tables already, and belong into none of these.
            if manifest.events.as_ref().is_some_and(|project| project.is_deriving) {
                return Ok(None);
            }
            // Rows that were derived anew meanwhile do not belong to these tables.
            if derivation(&manifest) == before {
                return Ok(Some(ReadRuns { runs, manifest, progress }));
            }
        }
    }

    /// Returns the rows of a program's next runs, and a manifest with every table and column that
    /// they need; `None` while they are derived anew.
    pub(super) fn rows_to_feed(
        &self,
        entry: &Entry,
        after: u64,
    ) -> Result<Option<RowsToFeed>, ProgramError> {
        let read = self.read_runs(entry, after, u64::MAX)?;
        let Some(ReadRuns { runs, manifest, .. }) = read else { return Ok(None) };
        let Batch { items, mut up_to, mut more, .. } = runs;
        let rows = match &manifest.events {
            Some(project) => {
                let of = OfProject::of(&manifest);
                let (frames, packed) = events::frames(&of, project, &self.events, &items)?;
                if let Some(last) = items.get(..packed).and_then(<[_]>::last) {
                    (up_to, more) = (last.number, more || packed < items.len());
                }
                NewRows::Frames(frames)
            }
            None => {
                let rows = items.iter().map(|run| rows_of(entry.id, run));
                let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
                rows.into_iter().flatten().collect::<Vec<_>>().into()
            }
        };
        Ok(Some(RowsToFeed { rows, up_to, more, manifest }))
    }
}
