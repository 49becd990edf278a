//! Schedules the threads that feed rows into owners' tables: at most one thread feeds an owner at a
//! time, an owner whose tables failed is retried after a delay, and no owner waits for the problems
//! of another.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use orrery_ledger::domain::{Owner, ProgramId};

/// Delay before an owner's tables are retried after a failure.
pub(super) const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The queue of owners whose tables are to be fed.
#[derive(Default)]
pub(super) struct FeedQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether any owner may have new rows or programs.
    rescan: bool,
    stopped: bool,
    /// Owners to be fed next, each at most once, in order.
    due: VecDeque<Owner>,
    waiting: BTreeSet<Owner>,
    /// Owners that a thread is feeding now.
    busy: BTreeSet<Owner>,
    /// Owners that become due at a later time.
    retries: BTreeMap<Owner, Instant>,
    /// How the last turn of each owner ended.
    ends: BTreeMap<Owner, End>,
}

/// What a feeding thread has to do next.
pub(super) enum Next {
    /// Call [`FeedQueue::set_owners`] with the owners that have tables.
    Rescan,
    /// Feed this owner's tables.
    Turn(Owner),
    /// End the thread.
    Stop,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// Rows were written to the tables.
    Fed {
        /// Whether there are more rows to write.
        behind: bool,
        /// Programs whose rows cannot be written.
        failed_programs: BTreeSet<ProgramId>,
        /// When to retry the programs with problems.
        retry_at: Option<Instant>,
    },
    /// The tables cannot be changed at present.
    Failed {
        /// Whether the store is the cause.
        by_store: bool,
    },
}

/// Summary of the state of all owners' tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FeedSummary {
    /// Number of owners with tables.
    pub owners: usize,
    /// Number of owners for whom there are more rows to write.
    pub behind: usize,
    /// Number of owners whose tables cannot be changed at present. The log says why.
    pub failed: usize,
    /// Whether the store is the cause for at least one of them.
    pub store_failed: bool,
    /// Number of programs whose rows cannot be written to the tables of at least one owner. Their
    /// status says why.
    pub failed_programs: usize,
}

impl FeedQueue {
    /// Wakes a thread to find out which owners have anything new.
    pub(super) fn wake(&self) {
        self.state.lock().rescan = true;
        self.changed.notify_all();
    }

    /// Ends [`Self::next`].
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Waits until there is something to do.
    pub(super) fn next(&self) -> Next {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return Next::Stop;
            }
            if std::mem::take(&mut state.rescan) {
                return Next::Rescan;
            }
            state.take_due(Instant::now());
            let free = state.due.iter().position(|owner| !state.busy.contains(owner));
            if let Some(owner) = free.and_then(|at| state.due.remove(at)) {
                state.waiting.remove(&owner);
                state.busy.insert(owner.clone());
                return Next::Turn(owner);
            }
            match state.retries.values().min().copied() {
                None => self.changed.wait(&mut state),
                Some(until) => {
                    self.changed.wait_until(&mut state, until);
                }
            }
        }
    }

    /// Marks these owners as due, and forgets all others, which have no tables to feed any more.
    pub(super) fn set_owners(&self, owners: &BTreeSet<Owner>) {
        let mut state = self.state.lock();
        state.ends.retain(|owner, _| owners.contains(owner));
        state.retries.retain(|owner, _| owners.contains(owner));
        drop(state);
        self.enqueue(owners);
    }

    /// Marks these owners as due.
    pub(super) fn enqueue<'o>(&self, owners: impl IntoIterator<Item = &'o Owner>) {
        let mut state = self.state.lock();
        for owner in owners {
            let failed = matches!(state.ends.get(owner), Some(End::Failed { .. }));
            // An owner whose tables failed is retried at its time, not earlier.
            if !(failed && state.retries.contains_key(owner)) {
                state.add(owner.clone());
            }
        }
        self.changed.notify_all();
    }

    /// Ends the turn of an owner.
    pub(super) fn done(&self, owner: Owner, end: End) {
        let mut state = self.state.lock();
        state.busy.remove(&owner);
        match &end {
            End::Fed { behind, retry_at, .. } => {
                match retry_at {
                    Some(retry_at) => state.retries.insert(owner.clone(), *retry_at),
                    None => state.retries.remove(&owner),
                };
                if *behind {
                    state.add(owner.clone());
                }
            }
            End::Failed { .. } => {
                state.retries.insert(owner.clone(), Instant::now() + RETRY_DELAY);
            }
        }
        state.ends.insert(owner, end);
        self.changed.notify_all();
    }

    /// Whether somebody waits for the end of an owner's turn: the owner itself, who has become due again, or
    /// another one for whom there is no thread.
    pub(super) fn is_awaited(&self, owner: &Owner) -> bool {
        let state = self.state.lock();
        state.due.iter().any(|due| due == owner || !state.busy.contains(due))
    }

    /// Returns whether the last turn of an owner failed.
    pub(super) fn has_failed(&self, owner: &Owner) -> bool {
        matches!(self.state.lock().ends.get(owner), Some(End::Failed { .. }))
    }

    /// Returns the summary of all owners.
    pub(super) fn summary(&self) -> FeedSummary {
        let state = self.state.lock();
        let mut summary = FeedSummary { owners: state.ends.len(), ..FeedSummary::default() };
        let mut programs: BTreeSet<&ProgramId> = BTreeSet::new();
        for end in state.ends.values() {
            match end {
                End::Fed { behind, failed_programs, .. } => {
                    summary.behind += usize::from(*behind);
                    programs.extend(failed_programs);
                }
                End::Failed { by_store } => {
                    summary.failed += 1;
                    summary.store_failed |= by_store;
                }
            }
        }
        summary.failed_programs = programs.len();
        summary
    }
}

impl State {
    fn add(&mut self, owner: Owner) {
        if self.waiting.insert(owner.clone()) {
            self.due.push_back(owner);
        }
    }

    fn take_due(&mut self, now: Instant) {
        let due: Vec<Owner> = self
            .retries
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(owner, _)| owner.clone())
            .collect();
        for owner in due {
            self.retries.remove(&owner);
            self.add(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(names: &[&str]) -> BTreeSet<Owner> {
        names.iter().map(|name| Owner((*name).to_owned())).collect()
    }

    fn turn(queue: &FeedQueue) -> Owner {
        match queue.next() {
            Next::Turn(owner) => owner,
            Next::Rescan | Next::Stop => panic!("there is somebody to feed"),
        }
    }

    const FULL: End = End::Fed { behind: false, failed_programs: BTreeSet::new(), retry_at: None };
    const BEHIND: End = End::Fed { behind: true, failed_programs: BTreeSet::new(), retry_at: None };

    #[test]
    fn an_owner_that_is_being_fed_gets_no_second_turn() {
        let queue = FeedQueue::default();
        queue.set_owners(&owners(&["ana", "bob"]));
        let ana = turn(&queue);
        queue.set_owners(&owners(&["ana", "bob"]));
        // The worker of ana hangs: bob gets every turn.
        for _ in 0..3 {
            let bob = turn(&queue);
            assert_eq!(bob.0, "bob");
            queue.done(bob, BEHIND);
        }
        queue.done(ana, BEHIND);
        let both = [turn(&queue), turn(&queue)];
        assert_ne!(both[0], both[1]);
        assert_eq!(queue.summary(), FeedSummary { owners: 2, behind: 2, ..FeedSummary::default() });
    }

    #[test]
    fn a_turn_is_awaited_by_its_owner_and_by_those_without_a_thread() {
        let queue = FeedQueue::default();
        queue.set_owners(&owners(&["ana", "bob"]));
        let ana = turn(&queue);
        assert!(queue.is_awaited(&ana), "no thread has taken bob");
        let bob = turn(&queue);
        assert!(!queue.is_awaited(&ana) && !queue.is_awaited(&bob));
        queue.enqueue(&owners(&["bob"]));
        // The thread of bob will go on with bob.
        assert!(!queue.is_awaited(&ana) && queue.is_awaited(&bob));
    }

    #[test]
    fn an_owner_whose_feed_failed_is_counted_and_retried() {
        let queue = FeedQueue::default();
        queue.set_owners(&owners(&["ana", "bob"]));
        let (ana, bob) = (turn(&queue), turn(&queue));
        queue.done(ana.clone(), End::Failed { by_store: false });
        queue.done(bob.clone(), FULL);
        assert_eq!(queue.summary(), FeedSummary { owners: 2, failed: 1, ..FeedSummary::default() });
        queue.set_owners(&owners(&["ana", "bob"]));
        assert_eq!(turn(&queue), bob);
        queue.done(bob, FULL);
        // Blocks until the retry of ana is due.
        assert_eq!(turn(&queue), ana);
        queue.done(ana, FULL);
        queue.set_owners(&owners(&["bob"]));
        assert_eq!(queue.summary().owners, 1);
        queue.stop();
        assert!(matches!(queue.next(), Next::Stop));
    }
}
