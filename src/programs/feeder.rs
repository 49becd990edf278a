//! Brings rows from the store, where they are true, into the tables, where they are asked for. Knows
//! who reads which program and how far each file has got; a file may be lost at any time. What is wrong
//! with the rows of one program holds up neither the others of its owner nor other owners.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::ProgramError;
use super::manifest::Manifest;
use super::registry::{Entry, Registry, Shown};
use super::row_log::{self, Batch};
use super::turns::{End, Fed, Next, RETRY, Turns};
use crate::domain::{Owner, ProgramId, excerpt};
use crate::store::{Store, StoreError};
use crate::tables::query::QueryError;
use crate::tables::{Change, Tables, TablesError};

/// How long one owner's file is filled before it is the next one's turn.
const TURN: Duration = Duration::from_millis(250);
/// How long a query waits for a file that is being filled.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Attempts in a row that may fail for a reason that passes, before a program is passed over: its
/// worker may have been killed.
const ATTEMPTS: u32 = 3;
/// The longest time between two attempts is [`RETRY`] doubled so many times.
const MOST_DOUBLED: u32 = 6;

/// Feeds all owners' tables.
pub(super) struct Feeder {
    store: Arc<Store>,
    registry: Arc<Registry>,
    tables: Tables,
    files: Mutex<BTreeMap<Owner, Arc<Mutex<File>>>>,
    /// Programs whose rows could not be brought into somebody's tables.
    troubles: Mutex<BTreeMap<(Owner, ProgramId), Trouble>>,
    turns: Turns,
    /// Held while it is reported how all are, so that the last report is the newest.
    reporting: Mutex<()>,
}

/// What is known of an owner's file.
#[derive(Default)]
struct File {
    /// It has once had all rows that there were, but for programs that are passed over.
    was_full: bool,
    /// Nothing in it is ahead of the row log that was found when this process began.
    checked: bool,
    /// The program that was last given rows.
    last: ProgramId,
    /// Log numbers that it has; none when that has to be asked.
    fed: Option<BTreeMap<ProgramId, u64>>,
    /// How its programs were when it was told of them.
    told: BTreeMap<ProgramId, Told>,
}

/// How a program was when a file was told of it.
struct Told(Arc<Manifest>);

/// Why a program's rows are not brought in.
#[derive(Debug, Clone)]
struct Trouble {
    reason: String,
    /// Attempts in a row that failed.
    attempts: u32,
    /// When the next one is made.
    again: Instant,
    /// It is passed over: the same rows would fail again.
    passed_over: bool,
}

impl File {
    /// What is in the file has to be asked again.
    fn forget(&mut self) {
        self.was_full = false;
        self.fed = None;
        self.told.clear();
    }
}

impl Told {
    /// Whether its tables are called and made as they were.
    fn is_as(&self, now: &Manifest) -> bool {
        self.0.project_name == now.project_name && self.0.schema == now.schema
    }
}

impl Feeder {
    pub(super) fn new(store: Arc<Store>, registry: Arc<Registry>, tables: Tables) -> Self {
        Self {
            store,
            registry,
            tables,
            files: Mutex::default(),
            troubles: Mutex::default(),
            turns: Turns::default(),
            reporting: Mutex::default(),
        }
    }

    /// The tables that it feeds.
    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// A program has come, changed or gone, or somebody reads others than before.
    pub(super) fn wake(&self) {
        self.turns.wake();
    }

    /// A program has new rows.
    pub(super) fn has_rows(&self, entry: &Entry) {
        let Shown { manifest, subscribers, .. } = entry.shown();
        let others = subscribers.iter().filter(|_| manifest.public);
        self.turns.announce_to(others.chain([&manifest.owner]));
    }

    /// Ends [`Self::work`].
    pub(super) fn stop(&self) {
        self.turns.stop();
    }

    /// Why the rows of a program cannot be brought into the tables of an owner, when they cannot.
    pub(super) fn trouble(&self, owner: &Owner, id: ProgramId) -> Option<String> {
        let troubles = self.troubles.lock();
        let trouble = troubles.get(&(owner.clone(), id)).filter(|it| it.passed_over);
        trouble.map(|it| it.reason.clone())
    }

    /// Feeds until stopped; `report` is told after each turn how all are. Any number of threads may
    /// do this at a time.
    pub(super) fn work(&self, report: impl Fn(Fed)) {
        loop {
            match self.turns.next() {
                Next::Stop => return,
                Next::News => self.turns.announce(&self.owners()),
                Next::Turn(owner) => {
                    let end = self.turn(&owner);
                    self.turns.done(owner, end);
                }
            }
            let _one_at_a_time = self.reporting.lock();
            report(self.turns.fed());
        }
    }

    fn turn(&self, owner: &Owner) -> End {
        match self.feed(owner, Some(Instant::now() + TURN)) {
            Ok(reached) => {
                let troubles = self.troubles.lock();
                let own = troubles.iter().filter(|((reader, _), _)| reader == owner);
                let troubled = own.clone().filter(|(_, it)| it.passed_over);
                End::Fed {
                    behind: reached == Reached::Part,
                    troubled: troubled.map(|((_, id), _)| *id).collect(),
                    again: own.map(|(_, it)| it.again).min(),
                }
            }
            Err(error) => {
                tracing::error!(%owner, "rows cannot be brought into the tables: {error}");
                End::Failed { by_store: matches!(error, ProgramError::Store(_)) }
            }
        }
    }

    /// Brings an owner's file up to what is stored now, for as long as there is time: one part of what
    /// is missing at least.
    pub(super) fn feed(
        &self,
        owner: &Owner,
        until: Option<Instant>,
    ) -> Result<Reached, ProgramError> {
        let file = Arc::clone(self.files.lock().entry(owner.clone()).or_default());
        let mut file = file.lock();
        self.feed_locked(owner, &mut file, until)
    }

    fn feed_locked(
        &self,
        owner: &Owner,
        file: &mut File,
        until: Option<Instant>,
    ) -> Result<Reached, ProgramError> {
        if file.was_full && self.tables.is_incomplete(owner) {
            // The process behind the file was started anew, and found less than there was.
            file.forget();
        }
        let done = self.feed_file(owner, file, until);
        match &done {
            Ok(reached) => file.was_full |= *reached == Reached::End,
            // Whether the last change is in the file is not known.
            Err(_) => file.forget(),
        }
        done
    }

    /// Makes sure that an owner's file has what there was when this process began, and the tables of
    /// everything that was deployed since, but for programs that are passed over.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] while the file is being filled, or when it cannot be.
    pub(super) fn current(&self, owner: &Owner) -> Result<(), QueryError> {
        let filled = || QueryError::Unavailable("the tables are being filled".to_owned());
        let file = Arc::clone(self.files.lock().entry(owner.clone()).or_default());
        let mut file = file.try_lock_for(TIMEOUT).ok_or_else(filled)?;
        if self.is_current(owner, &file) {
            return Ok(());
        }
        let fed = self.feed_locked(owner, &mut file, Some(Instant::now() + TIMEOUT));
        let reached = fed.map_err(|error| {
            // Who asks has nothing from the details, which may tell where files are.
            tracing::warn!(%owner, "a query cannot be answered: {error}");
            QueryError::Unavailable("the tables cannot be read right now".to_owned())
        })?;
        if reached == Reached::End || self.is_current(owner, &file) {
            return Ok(());
        }
        self.wake();
        Err(filled())
    }

    fn is_current(&self, owner: &Owner, file: &File) -> bool {
        let has_all = |fed: &BTreeMap<_, _>| {
            let mut shelf = self.registry.shelf(owner).into_iter().filter(|it| it.fits);
            shelf.all(|it| fed.contains_key(&it.id) || self.is_passed_over(owner, it.id))
        };
        file.was_full && file.fed.as_ref().is_some_and(has_all) && !self.tables.is_incomplete(owner)
    }

    fn is_passed_over(&self, owner: &Owner, id: ProgramId) -> bool {
        let troubles = self.troubles.lock();
        troubles.get(&(owner.clone(), id)).is_some_and(|it| it.passed_over)
    }

    /// Everybody who has programs or has subscribed to one, and whose file has what belongs to
    /// neither any more. Who has only asked a query has nothing to be fed.
    fn owners(&self) -> BTreeSet<Owner> {
        let mut owners = self.registry.readers();
        for (owner, file) in self.files.lock().iter() {
            let is_empty = |file: &File| file.fed.as_ref().is_some_and(BTreeMap::is_empty);
            if !owners.contains(owner) && !file.try_lock().is_some_and(|file| is_empty(&file)) {
                owners.insert(owner.clone());
            }
        }
        owners
    }

    fn feed_file(
        &self,
        owner: &Owner,
        file: &mut File,
        until: Option<Instant>,
    ) -> Result<Reached, ProgramError> {
        let shelf = self.registry.shelf(owner);
        let has = |id: ProgramId| shelf.iter().any(|it| it.id == id && it.fits);
        self.troubles.lock().retain(|(reader, id), _| reader != owner || has(*id));
        self.drop_what_is_gone(owner, file, has)?;
        // By turns, beginning where the last time ended: one with many rows does not hold up the others.
        let fitting = shelf.iter().filter(|it| it.fits);
        let mut left: VecDeque<_> = fitting.map(|it| it.id).collect();
        left.rotate_left(left.iter().take_while(|id| **id <= file.last).count());
        let mut reached = Reached::End;
        while let Some(program) = left.pop_front() {
            match self.attempt(owner, program, file)? {
                Attempt::More => left.push_back(program),
                Attempt::Full | Attempt::PassedOver => {}
                Attempt::Failed => reached = Reached::Obstacle,
            }
            file.last = program;
            if !left.is_empty() && until.is_some_and(|until| Instant::now() > until) {
                return Ok(Reached::Part);
            }
        }
        if reached == Reached::End {
            self.tables.set_complete(owner)?;
        }
        Ok(reached)
    }

    /// Drops programs that the owner does not read any more, and those of which the file has more than
    /// the store: it is older than the file, as after a backup of it was restored.
    fn drop_what_is_gone(
        &self,
        owner: &Owner,
        file: &mut File,
        has: impl Fn(ProgramId) -> bool,
    ) -> Result<(), ProgramError> {
        let known = match file.fed.take() {
            Some(known) => known,
            None => self.tables.watermarks(owner)?,
        };
        let is_ahead = |id: ProgramId, number: u64| {
            let found = self.registry.get(id).map_or(0, |entry| entry.log_at_start);
            !file.checked && number > found
        };
        let mut dropped = Vec::new();
        for (id, number) in &known {
            if is_ahead(*id, *number) {
                tracing::warn!(
                    %owner, program = %id,
                    "its tables have rows that the store does not have: they are built anew"
                );
                dropped.push(*id);
            } else if !has(*id) {
                dropped.push(*id);
            }
        }
        if !dropped.is_empty() {
            let drops = dropped.iter().map(|program| Change::Drop { program: *program }).collect();
            self.tables.apply(owner, drops)?;
            file.was_full = false;
        }
        file.checked = true;
        let fed = file.fed.insert(known);
        for id in dropped {
            fed.remove(&id);
            file.told.remove(&id);
        }
        Ok(())
    }

    /// Brings the next rows of a program, unless it is passed over or has failed a moment ago.
    ///
    /// # Errors
    /// What concerns all programs of the owner: the file cannot be opened, or the store fails.
    fn attempt(
        &self,
        owner: &Owner,
        id: ProgramId,
        file: &mut File,
    ) -> Result<Attempt, ProgramError> {
        let key = (owner.clone(), id);
        let before = self.troubles.lock().get(&key).cloned();
        if let Some(trouble) = before.as_ref().filter(|it| it.again > Instant::now()) {
            return Ok(if trouble.passed_over { Attempt::PassedOver } else { Attempt::Failed });
        }
        let fed = match &mut file.fed {
            Some(fed) => fed,
            none => none.insert(self.tables.watermarks(owner)?),
        };
        let error = match self.feed_program(owner, id, fed, &mut file.told) {
            Ok(more) => {
                if before.is_some() {
                    self.troubles.lock().remove(&key);
                }
                return Ok(if more { Attempt::More } else { Attempt::Full });
            }
            Err(error) => error,
        };
        if matches!(&error, ProgramError::Store(error) if !matches!(error, StoreError::Corrupt { .. }))
        {
            return Err(error);
        }
        // Whether the change is in the file, and what else is, has to be asked. When that fails, it
        // is not this program's trouble.
        file.told.clear();
        file.fed = None;
        let has = self.tables.watermarks(owner)?;
        if self.tables.is_incomplete(owner) {
            file.was_full = false;
        }
        file.fed = Some(has);
        let attempts = before.map_or(0, |it| it.attempts).saturating_add(1);
        // These fail every time; for other reasons, a worker that was killed among them, it may pass.
        let refused = matches!(
            error,
            ProgramError::Store(_)
                | ProgramError::Tables(
                    TablesError::Refused(_)
                        | TablesError::NotAdmitted { .. }
                        | TablesError::UnknownTarget { .. }
                )
        );
        let passed_over = refused || attempts >= ATTEMPTS;
        let again = Instant::now() + RETRY * 2u32.pow((attempts - 1).min(MOST_DOUBLED));
        let reason = excerpt(&error.to_string());
        tracing::warn!(%owner, program = %id, passed_over, "rows cannot be brought in: {reason}");
        self.troubles.lock().insert(key, Trouble { reason, attempts, again, passed_over });
        Ok(if passed_over { Attempt::PassedOver } else { Attempt::Failed })
    }

    /// Brings the next rows of a program. Says whether there are more.
    fn feed_program(
        &self,
        owner: &Owner,
        id: ProgramId,
        fed: &mut BTreeMap<ProgramId, u64>,
        told: &mut BTreeMap<ProgramId, Told>,
    ) -> Result<bool, ProgramError> {
        let Some(entry) = self.registry.get(id) else { return Ok(false) };
        let known = fed.get(&id).copied();
        let shown = entry.shown();
        let is_told = |told: &Told| Arc::ptr_eq(&told.0, &shown.manifest);
        if known == Some(shown.log) && told.get(&id).is_some_and(is_told) {
            return Ok(false);
        }
        let from = known.unwrap_or(0);
        let Batch { rows, up_to, more, .. } = row_log::rows_after(&self.store, id, from, u64::MAX)?;
        // After the rows, and once their write is over: what they needed of the tables is in it by now.
        let now = Arc::clone(&entry.lock().manifest);
        let is_new = known.is_none() || !told.get(&id).is_some_and(|told| told.is_as(&now));
        let (project, own, schema) =
            (now.project_name.clone(), now.owner == *owner, now.schema.clone());
        told.insert(id, Told(now));
        if is_new {
            let changed =
                self.tables.apply(owner, vec![Change::Program { id, project, own, schema }]);
            if let Err(error) = changed {
                told.remove(&id);
                return Err(error.into());
            }
            // Where the tables could not become what they are to be, they were begun anew.
            let has = self.tables.watermarks(owner)?.get(&id).copied().unwrap_or(0);
            fed.insert(id, has);
            if has != from {
                return Ok(true);
            }
        }
        if !rows.is_empty() {
            self.tables
                .apply(owner, vec![Change::Rows { program: id, after: from, up_to, rows }])?;
            fed.insert(id, up_to);
        }
        Ok(more)
    }
}

/// How far an owner's file was brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// To what was stored, but for programs that are passed over.
    End,
    /// As far as there was time.
    Part,
    /// To where a program has failed for a reason that may pass.
    Obstacle,
}

/// How an attempt to bring rows of a program ended.
enum Attempt {
    /// There are more.
    More,
    /// There are no more.
    Full,
    /// It has failed for a reason that may pass.
    Failed,
    /// It would fail again.
    PassedOver,
}
