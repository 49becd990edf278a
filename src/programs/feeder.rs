//! Brings rows from the store, where they are true, into the tables, where they are asked for. Knows
//! who reads which program and how far each file has got; a file may be lost at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::ProgramError;
use super::manifest::Manifest;
use super::registry::Registry;
use super::rows::RunRows;
use crate::domain::{Owner, ProgramId};
use crate::store::{Store, StoreError};
use crate::tables::query::QueryError;
use crate::tables::schema::ProgramSchema;
use crate::tables::{Change, Row, Tables, event_id};

/// Runs that go into the tables with one commit, at the most.
const RUNS_AT_ONCE: usize = 2048;
/// Between two attempts to reach tables that failed.
const RETRY: Duration = Duration::from_secs(1);
/// How long a query waits for a file that is being filled.
const PATIENCE: Duration = Duration::from_secs(2);

/// Feeds all owners' tables.
pub(super) struct Feeder {
    store: Arc<Store>,
    registry: Arc<Registry>,
    tables: Tables,
    files: Mutex<BTreeMap<Owner, Arc<Mutex<File>>>>,
    news: Mutex<News>,
    changed: Condvar,
}

#[derive(Default)]
struct News {
    /// There is something new for somebody.
    any: bool,
    stopped: bool,
}

/// What is known of an owner's file.
#[derive(Default)]
struct File {
    /// Log numbers that it has; none when that has to be asked.
    fed: Option<BTreeMap<ProgramId, u64>>,
    /// How its programs were when it was told of them.
    told: BTreeMap<ProgramId, Told>,
}

#[derive(PartialEq)]
struct Told {
    project: String,
    own: bool,
    schema: ProgramSchema,
}

impl Told {
    fn of(manifest: &Manifest, reader: &Owner) -> Self {
        Self {
            project: manifest.project_name.clone(),
            own: manifest.owner == *reader,
            schema: manifest.schema.clone(),
        }
    }
}

impl Feeder {
    pub(super) fn new(store: Arc<Store>, registry: Arc<Registry>, tables: Tables) -> Self {
        Self {
            store,
            registry,
            tables,
            files: Mutex::default(),
            news: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The tables that it feeds.
    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// There are new rows, or a program has changed.
    pub(super) fn wake(&self) {
        self.news.lock().any = true;
        self.changed.notify_all();
    }

    /// Ends [`Self::work`].
    pub(super) fn stop(&self) {
        self.news.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Feeds until stopped; `report` is told how each round went, and for how many owners.
    pub(super) fn work(&self, mut report: impl FnMut(Result<usize, &ProgramError>)) {
        let mut wait = None;
        loop {
            {
                let mut news = self.news.lock();
                while !news.any && !news.stopped {
                    match wait {
                        None => self.changed.wait(&mut news),
                        Some(until) => {
                            if self.changed.wait_until(&mut news, until).timed_out() {
                                break;
                            }
                        }
                    }
                }
                if news.stopped {
                    return;
                }
                news.any = false;
            }
            let owners = self.owners();
            let fed = owners.iter().try_for_each(|owner| self.feed(owner));
            wait = fed.is_err().then(|| Instant::now() + RETRY);
            report(fed.as_ref().map(|()| owners.len()));
        }
    }

    /// Brings an owner's file up to what is stored now.
    pub(super) fn feed(&self, owner: &Owner) -> Result<(), ProgramError> {
        let file = Arc::clone(self.files.lock().entry(owner.clone()).or_default());
        let mut file = file.lock();
        self.feed_locked(owner, &mut file)
    }

    fn feed_locked(&self, owner: &Owner, file: &mut File) -> Result<(), ProgramError> {
        let done = self.feed_file(owner, file);
        if done.is_err() {
            // Whether the last change is in the file is not known.
            *file = File::default();
        }
        done
    }

    /// Makes sure that an owner's file has what there was when this process began, and the tables of
    /// everything that was deployed since.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] while the file is being filled.
    pub(super) fn current(&self, owner: &Owner) -> Result<(), ProgramError> {
        let file = Arc::clone(self.files.lock().entry(owner.clone()).or_default());
        let Some(mut file) = file.try_lock_for(PATIENCE) else {
            return Err(QueryError::Unavailable("the tables are being filled".to_owned()).into());
        };
        match &file.fed {
            Some(fed) if !self.tables.is_incomplete(owner) => {
                let has = |program| fed.contains_key(program);
                if self.registry.readable(owner).iter().all(has) {
                    return Ok(());
                }
            }
            // The process behind the file was started anew, and found less than there was.
            _ => *file = File::default(),
        }
        self.feed_locked(owner, &mut file)
    }

    /// Everybody who has programs, or has asked for others' public ones.
    fn owners(&self) -> BTreeSet<Owner> {
        let mut owners: BTreeSet<_> = self.files.lock().keys().cloned().collect();
        let entries = self.registry.all();
        owners.extend(entries.iter().map(|entry| entry.cell.lock().manifest.owner.clone()));
        owners
    }

    fn feed_file(&self, owner: &Owner, file: &mut File) -> Result<(), ProgramError> {
        let manifests = self.registry.manifests(owner, true);
        let known = match file.fed.take() {
            Some(known) => known,
            None => self.tables.watermarks(owner)?,
        };
        let fed = file.fed.insert(known);
        let gone: Vec<_> =
            fed.keys().filter(|id| !manifests.iter().any(|m| m.id == **id)).copied().collect();
        if !gone.is_empty() {
            let drops = gone.iter().map(|program| Change::Drop { program: *program }).collect();
            self.tables.apply(owner, drops)?;
            for id in gone {
                fed.remove(&id);
                file.told.remove(&id);
            }
        }
        for manifest in &manifests {
            self.feed_program(owner, manifest.id, fed, &mut file.told)?;
        }
        self.tables.set_complete(owner)?;
        Ok(())
    }

    fn feed_program(
        &self,
        owner: &Owner,
        id: ProgramId,
        fed: &mut BTreeMap<ProgramId, u64>,
        told: &mut BTreeMap<ProgramId, Told>,
    ) -> Result<(), ProgramError> {
        loop {
            let known = fed.get(&id).copied();
            let from = known.unwrap_or(0);
            let (rows, runs, up_to) = self.rows_after(id, from)?;
            // After the rows: what they needed of the tables is in the manifest by now.
            let Some(entry) = self.registry.get(id) else { return Ok(()) };
            let now = Told::of(&entry.cell.lock().manifest, owner);
            let mut changes = Vec::new();
            if known.is_none() || told.get(&id) != Some(&now) {
                changes.push(Change::Program {
                    id,
                    project: now.project.clone(),
                    own: now.own,
                    schema: now.schema.clone(),
                });
            }
            if !rows.is_empty() {
                changes.push(Change::Rows { program: id, after: from, up_to, rows });
            }
            if changes.is_empty() {
                return Ok(());
            }
            self.tables.apply(owner, changes)?;
            told.insert(id, now);
            fed.insert(id, up_to);
            if runs < RUNS_AT_ONCE {
                return Ok(());
            }
        }
    }

    /// Rows of the next runs after a number of the log, how many runs these are, and the last number.
    fn rows_after(
        &self,
        program: ProgramId,
        from: u64,
    ) -> Result<(Vec<Row>, usize, u64), ProgramError> {
        let (mut rows, mut runs, mut up_to) = (Vec::new(), 0, from);
        self.store.row_log_after(program, from, RUNS_AT_ONCE, |number, position, value| {
            let run = RunRows::decode(value).map_err(|_| StoreError::Corrupt {
                family: "rows",
                key: format!("program {program}, ledger {}", position.ledger),
            })?;
            for (index, emit) in (0..).zip(run.emits) {
                rows.push(Row {
                    event_id: event_id(program, &run.transaction, index),
                    transaction: run.transaction,
                    ledger: position.ledger,
                    closed_at: i64::try_from(run.closed_at).unwrap_or(i64::MAX),
                    emit,
                });
            }
            (runs, up_to) = (runs + 1, number);
            Ok(())
        })?;
        Ok((rows, runs, up_to))
    }
}
