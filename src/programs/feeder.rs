//! Copies rows from the store, which is authoritative, into the tables, which are queried. Tracks
//! which owner reads which program, and how far each owner's file has been filled; a file may be
//! lost at any time. A failure in the rows of one program delays neither the owner's other programs
//! nor other owners.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::ProgramError;
use super::events::EventProject;
use super::feed_batches::{Batches, Until, transactions};
use super::feed_file::{DeclaredManifest, File, OwnerFile};
use super::feed_queue::{End, FeedQueue, FeedSummary, Next, RETRY_DELAY};
use super::registry::{Entry, Registry};
use super::row_listeners::RowListeners;
use super::row_log::RowsToFeed;
use super::runner::Runner;
use orrery_ledger::domain::{Owner, ProgramId, excerpt};
use orrery_runtime::process;
use orrery_runtime::supervision::OnPanic;
use orrery_store::StoreError;
use orrery_tables::{Change, Tables, TablesError};

/// Time for which one owner's file is filled before the next owner's turn.
const TURN: Duration = Duration::from_millis(250);
/// Number of rows after which freed memory is given back, once an owner's tables are full: what they
/// took on their way may be some hundred MiB.
const MANY_ROWS: usize = 100_000;
/// Time between two turns for rows of a program that goes on to get many.
const FILL_EVERY: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };
/// Number of consecutive failures with a possibly transient cause, such as a killed worker, after
/// which a program is skipped.
const MAX_ATTEMPTS: u32 = 3;
/// Maximum number of times that [`RETRY_DELAY`] is doubled between two attempts.
const MAX_BACKOFF_DOUBLINGS: u32 = 6;

/// Fills the tables of all owners.
pub(super) struct Feeder {
    pub(super) runner: Arc<Runner>,
    pub(super) registry: Arc<Registry>,
    tables: Tables,
    files: Mutex<BTreeMap<Owner, Arc<OwnerFile>>>,
    /// Programs whose rows could not be written to an owner's tables.
    failures: Mutex<BTreeMap<(Owner, ProgramId), FeedFailure>>,
    queue: FeedQueue,
    /// Those who copy rows elsewhere.
    pub(super) listeners: RowListeners,
    /// Serialises the reports, so that the last report is the newest.
    reporting: Mutex<()>,
    /// Number of rows that were written since freed memory was given back.
    rows_in_memory: AtomicUsize,
}

/// Why a program's rows cannot be written.
#[derive(Debug, Clone)]
struct FeedFailure {
    reason: String,
    /// Number of consecutive failed attempts.
    attempts: u32,
    /// Time of the next attempt.
    retry_at: Instant,
    /// Whether the program is skipped, so that it does not keep the owner's tables from being
    /// complete.
    skipped: bool,
}

impl Feeder {
    pub(super) fn new(runner: &Arc<Runner>, registry: Arc<Registry>, tables: Tables) -> Self {
        Self {
            runner: Arc::clone(runner),
            registry,
            tables,
            files: Mutex::default(),
            failures: Mutex::default(),
            queue: FeedQueue::default(),
            listeners: RowListeners::default(),
            reporting: Mutex::default(),
            rows_in_memory: AtomicUsize::new(0),
        }
    }

    /// Returns the tables that are filled.
    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Returns what is known of an owner's file.
    pub(super) fn file(&self, owner: &Owner) -> Arc<OwnerFile> {
        Arc::clone(self.files.lock().entry(owner.clone()).or_default())
    }

    /// Schedules turns after a program was added, changed or removed, or a subscription changed.
    pub(super) fn wake(&self) {
        self.queue.wake();
        self.listeners.notify();
    }

    /// Schedules turns for all owners who read a program that has new rows.
    pub(super) fn notify_new_rows(&self, entry: &Entry) {
        self.queue.enqueue(&self.registry.readers_of(entry));
        self.listeners.notify();
    }

    /// As [`Self::notify_new_rows`], for a program that goes on to get many: not more often than each
    /// [`FILL_EVERY`], because many rows in one transaction take half of the time and of the file that
    /// they take in many. A query finds all of them nevertheless.
    pub(super) fn notify_more_rows(&self, entry: &Entry) {
        let mut notified = entry.notified.lock();
        notified.has_more = notified.at.is_some_and(|at| at.elapsed() < FILL_EVERY);
        if !notified.has_more {
            notified.at = Some(Instant::now());
            drop(notified);
            self.notify_new_rows(entry);
        }
    }

    /// Schedules turns for rows for which [`Self::notify_more_rows`] has not.
    pub(super) fn notify_last_rows(&self, entry: &Entry) {
        if std::mem::take(&mut entry.notified.lock().has_more) {
            self.notify_new_rows(entry);
        }
    }

    /// Returns whether the tables of an owner could not be changed at the last attempt.
    pub(super) fn has_failed(&self, owner: &Owner) -> bool {
        self.queue.has_failed(owner)
    }

    /// Ends [`Self::work`] on all threads.
    pub(super) fn stop(&self) {
        self.queue.stop();
    }

    /// Returns why the rows of a program are skipped for an owner's tables, if they are.
    pub(super) fn skip_reason(&self, owner: &Owner, id: ProgramId) -> Option<String> {
        let failures = self.failures.lock();
        let failure = failures.get(&(owner.clone(), id)).filter(|it| it.skipped);
        failure.map(|it| it.reason.clone())
    }

    /// Gives turns to owners until stopped; calls `before` at the beginning of each, and `report` with
    /// the state of all tables after it. Several threads may call this concurrently.
    pub(super) fn work(&self, before: impl Fn(), report: impl Fn(FeedSummary)) {
        loop {
            match self.queue.next() {
                Next::Stop => return,
                Next::Rescan => {
                    let _again = OnPanic::new(|| self.queue.wake());
                    self.queue.set_owners(&self.owners());
                }
                Next::Turn(owner) => {
                    let end = {
                        let _not_busy = OnPanic::new(|| {
                            self.queue.done(owner.clone(), End::Failed { by_store: false });
                        });
                        before();
                        self.turn(&owner)
                    };
                    self.queue.done(owner, end);
                }
            }
            let _one_at_a_time = self.reporting.lock();
            report(self.queue.summary());
        }
    }

    fn turn(&self, owner: &Owner) -> End {
        match self.feed(owner, Some(Instant::now() + TURN)) {
            Ok(reached) => {
                if reached == Reached::End
                    && self.rows_in_memory.load(Ordering::Relaxed) >= MANY_ROWS
                {
                    self.rows_in_memory.store(0, Ordering::Relaxed);
                    process::give_back_freed_memory();
                }
                let failures = self.failures.lock();
                let own = failures.iter().filter(|((reader, _), _)| reader == owner);
                let skipped = own.clone().filter(|(_, it)| it.skipped);
                End::Fed {
                    behind: reached == Reached::Part,
                    failed_programs: skipped.map(|((_, id), _)| *id).collect(),
                    retry_at: own.map(|(_, it)| it.retry_at).min(),
                }
            }
            Err(error) => {
                tracing::error!(%owner, "rows cannot be written to the tables: {error}");
                End::Failed { by_store: matches!(error, ProgramError::Store(_)) }
            }
        }
    }

    /// Brings an owner's file up to date with the store, until the deadline. Processes at least one
    /// batch of what is missing.
    pub(super) fn feed(
        &self,
        owner: &Owner,
        deadline: Option<Instant>,
    ) -> Result<Reached, ProgramError> {
        let known = self.file(owner);
        let mut file = known.state.lock();
        let _unknown = OnPanic::new(|| *known.served.lock() = None);
        let reached = self.feed_locked(owner, &mut file, deadline);
        *known.served.lock() = file.served();
        reached
    }

    pub(super) fn feed_locked(
        &self,
        owner: &Owner,
        file: &mut File,
        deadline: Option<Instant>,
    ) -> Result<Reached, ProgramError> {
        if file.was_full && self.tables.is_incomplete(owner) {
            // The worker process was restarted and found rows missing.
            file.forget();
        }
        // A panic leaves an empty state, because it is unknown what reached the file.
        let empty = File { checked: file.checked, ..File::default() };
        let mut feeding = std::mem::replace(file, empty);
        let done = self.feed_file(owner, &mut feeding, deadline);
        *file = feeding;
        match &done {
            Ok(reached) => file.was_full |= *reached == Reached::End,
            // It is unknown whether the last change reached the file.
            Err(_) => file.forget(),
        }
        done
    }

    /// Returns the owners with programs or subscriptions, and those whose file still contains
    /// tables that they no longer read. An owner who has only sent queries has nothing to be
    /// filled.
    fn owners(&self) -> BTreeSet<Owner> {
        let mut owners = self.registry.readers();
        for (owner, file) in self.files.lock().iter() {
            let is_empty = |file: &File| file.watermarks.as_ref().is_some_and(BTreeMap::is_empty);
            if !owners.contains(owner) && !file.state.try_lock().is_some_and(|file| is_empty(&file))
            {
                owners.insert(owner.clone());
            }
        }
        owners
    }

    fn feed_file(
        &self,
        owner: &Owner,
        file: &mut File,
        deadline: Option<Instant>,
    ) -> Result<Reached, ProgramError> {
        let readable = self.registry.readable_programs(owner);
        let has = |id: ProgramId| readable.iter().any(|it| it.id == id && it.fits);
        self.failures.lock().retain(|(reader, id), _| reader != owner || has(*id));
        self.drop_stale_programs(owner, file, has)?;
        // Round robin, starting after the program of the last attempt: a program with many rows
        // does not delay the others.
        let fitting = readable.iter().filter(|it| it.fits);
        let mut left: VecDeque<_> = fitting.map(|it| it.id).collect();
        left.rotate_left(left.iter().take_while(|id| **id <= file.last).count());
        let mut reached = Reached::End;
        while let Some(program) = left.pop_front() {
            match self.attempt(owner, program, file, deadline)? {
                Attempt::More => left.push_back(program),
                Attempt::Full | Attempt::Skipped => {}
                Attempt::Failed | Attempt::Waits => reached = Reached::NotAll,
            }
            file.last = program;
            if !left.is_empty() && deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Ok(Reached::Part);
            }
        }
        if reached == Reached::End {
            if self.tables.is_incomplete(owner) && self.was_put_aside(owner, file)? {
                file.forget();
                return Ok(Reached::NotAll);
            }
            self.tables.set_complete(owner)?;
        }
        Ok(reached)
    }

    /// Whether the owner's file is another one than that which was fed: a query may have found it damaged meanwhile.
    fn was_put_aside(&self, owner: &Owner, file: &File) -> Result<bool, ProgramError> {
        let now = self.tables.watermarks(owner)?;
        let mut fed = file.watermarks.iter().flatten();
        Ok(fed.any(|(program, number)| *number > 0 && !now.contains_key(program)))
    }

    /// Drops programs that the owner no longer reads, and those of which the file has more rows
    /// than the store, as happens after an older backup of the store was restored. A program that
    /// has taken the name of a dropped one gets its views in the same transaction, so that queries
    /// find the one or the other under the name.
    fn drop_stale_programs(
        &self,
        owner: &Owner,
        file: &mut File,
        has: impl Fn(ProgramId) -> bool,
    ) -> Result<(), ProgramError> {
        let known = match file.watermarks.take() {
            Some(known) => known,
            None => self.tables.watermarks(owner)?,
        };
        let filled_anew =
            if file.checked { BTreeMap::new() } else { self.tables.filled_anew(owner)? };
        let is_ahead = |id: ProgramId, number: u64| {
            let found = self.registry.get(id).map_or(0, |entry| entry.log_at_start);
            let shown = filled_anew.get(&id).copied().unwrap_or(0);
            !file.checked && number.max(shown) > found
        };
        let (mut dropped, mut are_rebuilt) = (Vec::new(), false);
        for (id, number) in &known {
            if is_ahead(*id, *number) {
                tracing::warn!(
                    %owner, program = %id,
                    "its tables have rows that the store does not have: they are rebuilt"
                );
                dropped.push(*id);
                are_rebuilt = true;
            } else if !has(*id) {
                dropped.push(*id);
            }
        }
        if !dropped.is_empty() {
            let drops = dropped.iter().map(|program| Change::Drop { program: *program });
            let kept = known.keys().filter(|id| !dropped.contains(id));
            // Read after the list of programs: a program has its new name before the old one is
            // gone from that list.
            let renames = kept.filter_map(|id| {
                let project = self.registry.get(*id)?.snapshot().manifest.project_name.clone();
                Some(Change::Rename { program: *id, project })
            });
            self.tables.apply(owner, drops.chain(renames).collect())?;
            file.was_full &= !are_rebuilt;
        }
        file.checked = true;
        let watermarks = file.watermarks.insert(known);
        for id in dropped {
            watermarks.remove(&id);
            file.declared.remove(&id);
            file.ranges.remove(&id);
        }
        Ok(())
    }

    /// Writes the next rows of a program, unless the delay before its next attempt is still
    /// running.
    ///
    /// # Errors
    /// Failures that affect all programs of the owner: the file cannot be opened, or the store
    /// fails.
    fn attempt(
        &self,
        owner: &Owner,
        id: ProgramId,
        file: &mut File,
        deadline: Option<Instant>,
    ) -> Result<Attempt, ProgramError> {
        let key = (owner.clone(), id);
        let before = self.failures.lock().get(&key).cloned();
        if let Some(failure) = before.as_ref().filter(|it| it.retry_at > Instant::now()) {
            return Ok(if failure.skipped { Attempt::Skipped } else { Attempt::Failed });
        }
        let watermarks = match &mut file.watermarks {
            Some(watermarks) => watermarks,
            none => none.insert(self.tables.watermarks(owner)?),
        };
        let fed = self.feed_program(owner, id, watermarks, &mut file.declared, deadline);
        let told = |attempt: Attempt| -> Result<Attempt, ProgramError> {
            if matches!(attempt, Attempt::Full) {
                self.tell_ledgers(owner, id, watermarks.get(&id).copied(), &mut file.ranges)?;
            }
            Ok(attempt)
        };
        let fed = fed.and_then(told);
        let error = match fed {
            Ok(attempt) => {
                if before.is_some() {
                    self.failures.lock().remove(&key);
                }
                return Ok(attempt);
            }
            Err(error) => error,
        };
        if matches!(&error, ProgramError::Store(error) if !matches!(error, StoreError::Corrupt { .. }))
        {
            return Err(error);
        }
        // It is unknown whether the change reached the file and what else it contains: reads the
        // watermarks again. A failure of that is not attributed to this program.
        file.declared.clear();
        file.ranges.clear();
        file.watermarks = None;
        let has = self.tables.watermarks(owner)?;
        if self.tables.is_incomplete(owner) {
            file.was_full = false;
        }
        file.watermarks = Some(has);
        let attempts = before.map_or(0, |it| it.attempts).saturating_add(1);
        // These errors recur with every attempt; others, such as a killed worker, may be transient.
        let refused =
            matches!(error, ProgramError::Store(_) | ProgramError::Tables(TablesError::Refused(_)));
        let skipped = refused || attempts >= MAX_ATTEMPTS;
        let retry_at =
            Instant::now() + RETRY_DELAY * 2u32.pow((attempts - 1).min(MAX_BACKOFF_DOUBLINGS));
        let reason = excerpt(&error.to_string());
        tracing::warn!(%owner, program = %id, passed_over = skipped, "rows cannot be written: {reason}");
        self.failures.lock().insert(key, FeedFailure { reason, attempts, retry_at, skipped });
        Ok(if skipped { Attempt::Skipped } else { Attempt::Failed })
    }

    /// Tells the file of which ledgers it has all rows of a project that records what its contracts hold.
    /// `reached` is the number of the last row log entry in the file.
    fn tell_ledgers(
        &self,
        owner: &Owner,
        id: ProgramId,
        reached: Option<u64>,
        told: &mut BTreeMap<ProgramId, Vec<(u32, u32)>>,
    ) -> Result<(), ProgramError> {
        let Some(entry) = self.registry.get(id) else { return Ok(()) };
        let Some(read) = self.runner.read_ledgers(&entry)? else { return Ok(()) };
        if reached == Some(read.log) && told.get(&id) != Some(&read.ranges) {
            let ranges = read.ranges.clone();
            self.tables.apply(owner, vec![Change::Progress { program: id, ranges }])?;
            told.insert(id, read.ranges);
        }
        Ok(())
    }

    /// Writes the next rows of a program.
    fn feed_program(
        &self,
        owner: &Owner,
        id: ProgramId,
        watermarks: &mut BTreeMap<ProgramId, u64>,
        declared: &mut BTreeMap<ProgramId, DeclaredManifest>,
        deadline: Option<Instant>,
    ) -> Result<Attempt, ProgramError> {
        let Some(entry) = self.registry.get(id) else { return Ok(Attempt::Full) };
        let known = watermarks.get(&id).copied();
        let snapshot = entry.snapshot();
        // All that there was is in the tables, which stay as they are until there are other rows.
        let waits = if known == Some(snapshot.log) { Attempt::Full } else { Attempt::Waits };
        if snapshot.manifest.events.as_ref().is_some_and(EventProject::is_of_earlier_rule) {
            return Ok(waits);
        }
        let is_declared =
            |declared: &DeclaredManifest| Arc::ptr_eq(&declared.0, &snapshot.manifest);
        if known == Some(snapshot.log) && declared.get(&id).is_some_and(is_declared) {
            return Ok(Attempt::Full);
        }
        let from = known.unwrap_or(0);
        let Some(first) = self.runner.rows_to_feed(&entry, from)? else { return Ok(waits) };
        let now = Arc::clone(&first.manifest);
        let is_new = known.is_none()
            || !declared.get(&id).is_some_and(|declared| declared.has_same_tables(&now));
        let (project, own, schema) =
            (now.project_name.clone(), now.owner == *owner, now.schema.clone());
        declared.insert(id, DeclaredManifest(now));
        if is_new {
            let changed =
                self.tables.apply(owner, vec![Change::Program { id, project, own, schema }]);
            if let Err(error) = changed {
                declared.remove(&id);
                return Err(error.into());
            }
            // Tables that cannot be changed to the new schema are filled anew, from the first row on.
            let has = self.tables.watermarks(owner)?.get(&id).copied().unwrap_or(0);
            watermarks.insert(id, has);
            if has != from {
                return Ok(Attempt::More);
            }
        }
        if first.rows.is_empty() {
            return Ok(if first.more { Attempt::More } else { Attempt::Full });
        }
        let reached = watermarks.entry(id).or_insert(from);
        self.feed_rows(owner, &entry, first, reached, declared.get(&id), deadline)
    }

    /// Writes the rows of a program's next runs, first these, as far as they need no other tables than
    /// the declared ones. `reached` is the number of the last run whose rows are written.
    fn feed_rows(
        &self,
        owner: &Owner,
        entry: &Entry,
        first: RowsToFeed,
        reached: &mut u64,
        declared: Option<&DeclaredManifest>,
        deadline: Option<Instant>,
    ) -> Result<Attempt, ProgramError> {
        let is_awaited = || self.queue.is_awaited(owner);
        let until = deadline.map(|deadline| Until { deadline, is_awaited: &is_awaited });
        let next = |after| match self.runner.rows_to_feed(entry, after)? {
            Some(next) if declared.is_some_and(|it| it.has_same_tables(&next.manifest)) => {
                Ok(Some(next))
            }
            // The next attempt declares the tables that these rows need.
            _ => Ok(None),
        };
        let batches = RefCell::new(Batches::new(entry.id, *reached, first, until, &next));
        self.tables.apply_in_order(owner, transactions(&batches))?;
        let Batches { up_to, more, failed, all_rows, .. } = batches.into_inner();
        self.rows_in_memory.fetch_add(all_rows, Ordering::Relaxed);
        *reached = up_to;
        failed.map_or(Ok(if more { Attempt::More } else { Attempt::Full }), Err)
    }
}

/// How far an owner's file was filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// All stored rows, except those of skipped programs.
    End,
    /// The time was over before all rows were written.
    Part,
    /// Rows of a program could not be written, for a reason that passes.
    NotAll,
}

/// Result of an attempt to write rows of a program.
enum Attempt {
    /// There are more rows.
    More,
    /// There are no more rows.
    Full,
    /// The attempt failed for a possibly transient reason.
    Failed,
    /// The rows are derived anew: there is another attempt after that.
    Waits,
    /// The program is skipped, because the attempt would fail again.
    Skipped,
}
