//! Whose tables are fed next, when several threads feed those of different owners: nobody is fed by
//! two at a time, who has failed waits a while, and nobody waits for what is wrong with another's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::domain::{Owner, ProgramId};

/// Between two attempts to reach tables that failed.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// Turns of all owners.
#[derive(Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// There is something new for somebody.
    news: bool,
    stopped: bool,
    /// Who is to be fed, each once, and in which order.
    due: VecDeque<Owner>,
    waiting: BTreeSet<Owner>,
    /// Who is being fed.
    busy: BTreeSet<Owner>,
    /// Who becomes due by itself, and when.
    later: BTreeMap<Owner, Instant>,
    /// How everybody's last turn ended.
    ends: BTreeMap<Owner, End>,
}

/// What there is to do.
pub(super) enum Next {
    /// There are news: say who may be concerned.
    News,
    /// Feed this owner's tables.
    Turn(Owner),
    /// Nothing any more.
    Stop,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The tables were reached.
    Fed {
        /// There are more rows to bring.
        behind: bool,
        /// Programs whose rows cannot be brought in.
        troubled: BTreeSet<ProgramId>,
        /// When to look at those again.
        again: Option<Instant>,
    },
    /// The tables cannot be changed right now.
    Failed {
        /// The store is the cause.
        by_store: bool,
    },
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
    /// Whether the store is the cause for one of them.
    pub store_failed: bool,
    /// Programs whose rows cannot be brought into somebody's tables. Their status says why.
    pub troubled: usize,
}

impl Turns {
    /// Something is new.
    pub(super) fn wake(&self) {
        self.state.lock().news = true;
        self.changed.notify_all();
    }

    /// Ends [`Self::next`].
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Waits for something to do.
    pub(super) fn next(&self) -> Next {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return Next::Stop;
            }
            if std::mem::take(&mut state.news) {
                return Next::News;
            }
            state.take_due(Instant::now());
            let free = state.due.iter().position(|owner| !state.busy.contains(owner));
            if let Some(owner) = free.and_then(|at| state.due.remove(at)) {
                state.waiting.remove(&owner);
                state.busy.insert(owner.clone());
                return Next::Turn(owner);
            }
            match state.later.values().min().copied() {
                None => self.changed.wait(&mut state),
                Some(until) => {
                    self.changed.wait_until(&mut state, until);
                }
            }
        }
    }

    /// Everybody who may be concerned by the news; the others have no tables to feed any more.
    pub(super) fn announce(&self, owners: &BTreeSet<Owner>) {
        let mut state = self.state.lock();
        state.ends.retain(|owner, _| owners.contains(owner));
        state.later.retain(|owner, _| owners.contains(owner));
        drop(state);
        self.announce_to(owners);
    }

    /// There is something new for these owners.
    pub(super) fn announce_to<'o>(&self, owners: impl IntoIterator<Item = &'o Owner>) {
        let mut state = self.state.lock();
        for owner in owners {
            let failed = matches!(state.ends.get(owner), Some(End::Failed { .. }));
            // Who has failed is tried again later, whatever is new.
            if !(failed && state.later.contains_key(owner)) {
                state.add(owner.clone());
            }
        }
        self.changed.notify_all();
    }

    /// The turn of an owner is over.
    pub(super) fn done(&self, owner: Owner, end: End) {
        let mut state = self.state.lock();
        state.busy.remove(&owner);
        match &end {
            End::Fed { behind, again, .. } => {
                match again {
                    Some(again) => state.later.insert(owner.clone(), *again),
                    None => state.later.remove(&owner),
                };
                if *behind {
                    state.add(owner.clone());
                }
            }
            End::Failed { .. } => {
                state.later.insert(owner.clone(), Instant::now() + RETRY);
            }
        }
        state.ends.insert(owner, end);
        self.changed.notify_all();
    }

    /// How all are.
    pub(super) fn fed(&self) -> Fed {
        let state = self.state.lock();
        let mut fed = Fed { owners: state.ends.len(), ..Fed::default() };
        let mut programs: BTreeSet<&ProgramId> = BTreeSet::new();
        for end in state.ends.values() {
            match end {
                End::Fed { behind, troubled, .. } => {
                    fed.behind += usize::from(*behind);
                    programs.extend(troubled);
                }
                End::Failed { by_store } => {
                    fed.failed += 1;
                    fed.store_failed |= by_store;
                }
            }
        }
        fed.troubled = programs.len();
        fed
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
            .later
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(owner, _)| owner.clone())
            .collect();
        for owner in due {
            self.later.remove(&owner);
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

    fn turn(turns: &Turns) -> Owner {
        match turns.next() {
            Next::Turn(owner) => owner,
            Next::News | Next::Stop => panic!("there is somebody to feed"),
        }
    }

    const FULL: End = End::Fed { behind: false, troubled: BTreeSet::new(), again: None };
    const BEHIND: End = End::Fed { behind: true, troubled: BTreeSet::new(), again: None };

    #[test]
    fn who_is_being_fed_is_passed_over() {
        let turns = Turns::default();
        turns.announce(&owners(&["ana", "bob"]));
        let ana = turn(&turns);
        turns.announce(&owners(&["ana", "bob"]));
        // Ana's worker hangs: bob has every turn.
        for _ in 0..3 {
            let bob = turn(&turns);
            assert_eq!(bob.0, "bob");
            turns.done(bob, BEHIND);
        }
        turns.done(ana, BEHIND);
        let both = [turn(&turns), turn(&turns)];
        assert_ne!(both[0], both[1]);
        assert_eq!(turns.fed(), Fed { owners: 2, behind: 2, ..Fed::default() });
    }

    #[test]
    fn who_has_failed_is_tried_again_and_counted_meanwhile() {
        let turns = Turns::default();
        turns.announce(&owners(&["ana", "bob"]));
        let (ana, bob) = (turn(&turns), turn(&turns));
        turns.done(ana.clone(), End::Failed { by_store: false });
        turns.done(bob.clone(), FULL);
        assert_eq!(turns.fed(), Fed { owners: 2, failed: 1, ..Fed::default() });
        turns.announce(&owners(&["ana", "bob"]));
        assert_eq!(turn(&turns), bob);
        turns.done(bob, FULL);
        // This waits until it is time.
        assert_eq!(turn(&turns), ana);
        turns.done(ana, FULL);
        turns.announce(&owners(&["bob"]));
        assert_eq!(turns.fed().owners, 1);
        turns.stop();
        assert!(matches!(turns.next(), Next::Stop));
    }
}
