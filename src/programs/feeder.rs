//! Brings rows from the store, where they are true, into the tables, where they are asked for. Knows
//! who reads which program and how far each file has got; a file may be lost at any time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
/// Bytes of their rows, at the most, unless one run has more.
const BYTES_AT_ONCE: usize = 8 << 20;
/// How long one owner's file is filled before it is the next one's turn.
const TURN: Duration = Duration::from_millis(250);
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

/// How all owners' tables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Fed {
    /// Owners with tables.
    pub owners: usize,
    /// Those of them for whom there are more rows to bring.
    pub behind: usize,
    /// Those whose tables cannot be changed right now. The log says why.
    pub failed: usize,
}

/// What is known of an owner's file.
#[derive(Default)]
struct File {
    /// It has once had all rows that there were.
    was_full: bool,
    /// The program that was last given rows.
    last: ProgramId,
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

    /// Feeds until stopped; `report` is told after each round how all are.
    pub(super) fn work(&self, mut report: impl FnMut(Fed)) {
        let mut failed = BTreeMap::new();
        let mut wait = None;
        while self.news(wait) {
            let fed = self.round(&mut failed);
            report(fed);
            wait = match fed.behind {
                0 => failed.values().min().copied(),
                _ => Some(Instant::now()),
            };
        }
    }

    /// Waits for news, `until` then at the longest; false when stopped.
    fn news(&self, until: Option<Instant>) -> bool {
        let mut news = self.news.lock();
        while !news.any && !news.stopped {
            match until {
                None => self.changed.wait(&mut news),
                Some(until) => {
                    if self.changed.wait_until(&mut news, until).timed_out() {
                        break;
                    }
                }
            }
        }
        news.any = false;
        !news.stopped
    }

    /// A turn for everybody, but for those who have `failed` and are not to be tried again yet: nobody
    /// waits for what is wrong with another one's tables.
    fn round(&self, failed: &mut BTreeMap<Owner, Instant>) -> Fed {
        let owners = self.owners();
        let mut fed = Fed { owners: owners.len(), ..Fed::default() };
        failed.retain(|owner, _| owners.contains(owner));
        for owner in owners {
            let now = Instant::now();
            if failed.get(&owner).is_none_or(|again| *again <= now) {
                match self.feed(&owner, Some(now + TURN)) {
                    Ok(full) => {
                        fed.behind += usize::from(!full);
                        failed.remove(&owner);
                    }
                    Err(error) => {
                        tracing::error!(%owner, "rows cannot be brought into the tables: {error}");
                        failed.insert(owner, Instant::now() + RETRY);
                    }
                }
            }
        }
        fed.failed = failed.len();
        fed
    }

    /// Brings an owner's file up to what is stored now, for as long as there is time: one part of what
    /// is missing at least. Says whether it got there.
    pub(super) fn feed(&self, owner: &Owner, until: Option<Instant>) -> Result<bool, ProgramError> {
        let file = Arc::clone(self.files.lock().entry(owner.clone()).or_default());
        let mut file = file.lock();
        self.feed_locked(owner, &mut file, until)
    }

    fn feed_locked(
        &self,
        owner: &Owner,
        file: &mut File,
        until: Option<Instant>,
    ) -> Result<bool, ProgramError> {
        let done = self.feed_file(owner, file, until);
        match &done {
            Ok(full) => file.was_full |= full,
            // Whether the last change is in the file is not known.
            Err(_) => *file = File::default(),
        }
        done
    }

    /// Makes sure that an owner's file has what there was when this process began, and the tables of
    /// everything that was deployed since.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] while the file is being filled, or when it cannot be.
    pub(super) fn current(&self, owner: &Owner) -> Result<(), QueryError> {
        let filled = || QueryError::Unavailable("the tables are being filled".to_owned());
        let file = Arc::clone(self.files.lock().entry(owner.clone()).or_default());
        let mut file = file.try_lock_for(PATIENCE).ok_or_else(filled)?;
        if self.is_current(owner, &file) {
            return Ok(());
        }
        if self.tables.is_incomplete(owner) {
            // The process behind the file was started anew, and found less than there was.
            *file = File::default();
        }
        let fed = self.feed_locked(owner, &mut file, Some(Instant::now() + PATIENCE));
        let full = fed.map_err(|error| {
            // Who asks has nothing from the details, which may tell where files are.
            tracing::warn!(%owner, "a query cannot be answered: {error}");
            QueryError::Unavailable("the tables cannot be read right now".to_owned())
        })?;
        if full || self.is_current(owner, &file) {
            return Ok(());
        }
        self.wake();
        Err(filled())
    }

    fn is_current(&self, owner: &Owner, file: &File) -> bool {
        let has_all = |fed: &BTreeMap<_, _>| {
            self.registry.readable(owner).iter().all(|program| fed.contains_key(program))
        };
        file.was_full && file.fed.as_ref().is_some_and(has_all) && !self.tables.is_incomplete(owner)
    }

    /// Everybody who has programs, or has asked for others' public ones.
    fn owners(&self) -> BTreeSet<Owner> {
        let mut owners: BTreeSet<_> = self.files.lock().keys().cloned().collect();
        let entries = self.registry.all();
        owners.extend(entries.iter().map(|entry| entry.cell.lock().manifest.owner.clone()));
        owners
    }

    fn feed_file(
        &self,
        owner: &Owner,
        file: &mut File,
        until: Option<Instant>,
    ) -> Result<bool, ProgramError> {
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
        // By turns, beginning where the last time ended: one with many rows does not hold up the others.
        let mut left: VecDeque<_> = manifests.iter().map(|manifest| manifest.id).collect();
        left.rotate_left(left.iter().take_while(|id| **id <= file.last).count());
        while let Some(program) = left.pop_front() {
            if self.feed_program(owner, program, fed, &mut file.told)? {
                left.push_back(program);
            }
            file.last = program;
            if !left.is_empty() && until.is_some_and(|until| Instant::now() > until) {
                return Ok(false);
            }
        }
        self.tables.set_complete(owner)?;
        Ok(true)
    }

    /// Brings the next rows of a program. Says whether there are more.
    fn feed_program(
        &self,
        owner: &Owner,
        id: ProgramId,
        fed: &mut BTreeMap<ProgramId, u64>,
        told: &mut BTreeMap<ProgramId, Told>,
    ) -> Result<bool, ProgramError> {
        let known = fed.get(&id).copied();
        let from = known.unwrap_or(0);
        let Batch { rows, up_to, more } = self.rows_after(id, from)?;
        // After the rows: what they needed of the tables is in the manifest by now.
        let Some(entry) = self.registry.get(id) else { return Ok(false) };
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
        if !changes.is_empty() {
            self.tables.apply(owner, changes)?;
            told.insert(id, now);
            fed.insert(id, up_to);
        }
        Ok(more)
    }

    /// Rows of the next runs after a number of the log.
    fn rows_after(&self, program: ProgramId, from: u64) -> Result<Batch, ProgramError> {
        let mut batch = Batch { rows: Vec::new(), up_to: from, more: false };
        let (mut runs, mut bytes) = (0, 0);
        self.store.row_log_after(program, from, |number, position, value| {
            if runs == RUNS_AT_ONCE || (runs > 0 && bytes + value.len() > BYTES_AT_ONCE) {
                batch.more = true;
                return Ok(false);
            }
            let run = RunRows::decode(value).map_err(|_| StoreError::Corrupt {
                family: "rows",
                key: format!("program {program}, ledger {}", position.ledger),
            })?;
            for (index, emit) in (0..).zip(run.emits) {
                batch.rows.push(Row {
                    event_id: event_id(program, &run.transaction, index),
                    transaction: run.transaction,
                    ledger: position.ledger,
                    closed_at: i64::try_from(run.closed_at).unwrap_or(i64::MAX),
                    emit,
                });
            }
            (runs, bytes, batch.up_to) = (runs + 1, bytes + value.len(), number);
            Ok(true)
        })?;
        Ok(batch)
    }
}

/// Rows that go into the tables at once.
struct Batch {
    rows: Vec<Row>,
    /// Number of the last of their runs in the log.
    up_to: u64,
    /// There are more runs after these.
    more: bool,
}
