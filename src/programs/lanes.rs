//! Scheduler of program turns. Depends only on the programs' numbers and the duration of their
//! turns, not on what they do.
//!
//! Programs belong to unrelated owners, and one that loops until its fuel is used up must not delay
//! the others. Programs with short turns therefore have threads of their own, and slow programs
//! have another thread of low priority. A program without a turn so far may be either: it waits for
//! other new programs, but neither for slow programs nor for requests of new programs to another
//! server. Each thread next runs the program that has used the least time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::engine::ThreadClock;
use orrery_ledger::domain::ProgramId;
use orrery_runtime::supervision::OnPanic;

/// Maximum duration of a turn. A run in progress is not interrupted.
pub(super) const SHORT_TURN: Duration = Duration::from_millis(50);

/// A turn of this duration delays others even if it only waits for the disk or for responses.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// Clock of a turn that is in progress on the thread that created this.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnClock {
    begun: Instant,
    processor: Duration,
}

impl TurnClock {
    /// Starts a turn now.
    pub(super) fn start() -> Self {
        Self { begun: Instant::now(), processor: ThreadClock::of_current_thread() }
    }

    /// Returns the time at which the turn should end.
    pub(super) fn end(self) -> Instant {
        self.begun + SHORT_TURN
    }

    /// Returns whether the turn lasted so long that it delayed others. A program of many short runs
    /// can be interrupted between two runs; a program with long runs cannot, so its turns exceed
    /// the limit. Measures CPU time, so that a turn is not blamed for waiting for a processor, up
    /// to [`LONG_WAIT`].
    pub(super) fn delayed_others(self) -> bool {
        ThreadClock::of_current_thread().saturating_sub(self.processor) >= 2 * SHORT_TURN
            || self.begun.elapsed() >= LONG_WAIT
    }
}

/// Delay before a program whose turn has panicked gets another one: longer than the restart of its
/// thread, so that other programs have turns there in between.
const RETRY_AFTER_PANIC: Duration = Duration::from_secs(3);

/// Weight of the newest turn in the moving average, in per cent.
const NEWEST_TURN_WEIGHT: u32 = 25;

/// Class of programs that a thread serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// Programs that have not yet had a turn with work to do.
    New,
    /// New programs that first need a response from another server, which other new programs should
    /// not wait for.
    Upstream,
    /// Programs with short turns.
    Fast,
    /// All other programs.
    Slow,
}

impl Lane {
    /// Returns whether a turn on a thread of this lane may wait for another server. New programs
    /// share one thread, and it is not known how long their requests take.
    pub(super) fn may_query_upstream(self) -> bool {
        self != Self::New
    }
}

/// Outcome of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// There was nothing to do. The program gets its next turn after [`Lanes::wake`].
    Idle,
    /// Work was done, and there may be more.
    Worked {
        /// Whether the turn delayed others: see [`TurnClock::delayed_others`].
        delayed_others: bool,
    },
    /// The program needs a response from another server, in a turn that may wait for it.
    NeedsUpstream,
    /// There will be work after this delay.
    Later(Duration),
    /// The turn failed through no fault of the program, and is retried after this delay.
    Failed(Duration),
}

/// All programs and their turns.
#[derive(Default)]
pub(super) struct Lanes {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    slots: BTreeMap<ProgramId, Slot>,
    stopped: bool,
}

#[derive(Clone, Copy)]
struct Slot {
    /// Time used so far. Starts at the least time used by an active program when this one is added
    /// or woken.
    used: Duration,
    /// Moving average of the duration of turns with work to do.
    average: Duration,
    lane: Lane,
    busy: bool,
    /// Time of the next turn; `None` when there is nothing to do.
    due: Option<Instant>,
    /// Whether the turn that is due is for work that can wait; a wake-up makes it due at once.
    deferred: bool,
    /// Whether the program was woken during its turn.
    woken: bool,
}

impl Lanes {
    /// Adds a program.
    pub(super) fn add(&self, program: ProgramId) {
        let mut state = self.state.lock();
        let slot = Slot {
            used: state.least_used(),
            average: Duration::ZERO,
            lane: Lane::New,
            busy: false,
            due: Some(Instant::now()),
            deferred: false,
            woken: false,
        };
        state.slots.entry(program).or_insert(slot);
        self.changed.notify_all();
    }

    /// Removes a program.
    pub(super) fn remove(&self, program: ProgramId) {
        self.state.lock().slots.remove(&program);
    }

    /// Schedules a turn for one program, or for all, because there may be work.
    pub(super) fn wake(&self, program: Option<ProgramId>) {
        self.wake_those(|id| program.is_none_or(|program| program == id));
    }

    /// Schedules a turn for some programs, because there may be work.
    pub(super) fn wake_those(&self, are_meant: impl Fn(ProgramId) -> bool) {
        let mut state = self.state.lock();
        let least = state.least_used();
        let now = Instant::now();
        for (_, slot) in state.slots.iter_mut().filter(|(id, _)| are_meant(**id)) {
            slot.woken = slot.busy;
            if (slot.due.is_none() || slot.deferred) && !slot.busy {
                slot.used = slot.used.max(least);
                slot.due = Some(now);
                slot.deferred = false;
            }
        }
        self.changed.notify_all();
    }

    /// Ends [`Self::work`] on all threads after their turns.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Gives turns to programs of this lane until stopped.
    pub(super) fn work(&self, lane: Lane, mut turn: impl FnMut(ProgramId) -> Turn) {
        while let Some(program) = self.next(lane) {
            let begun = Instant::now();
            let outcome = {
                let _not_busy = OnPanic::new(|| {
                    tracing::error!(%program, "a turn of a program has panicked");
                    self.done(program, Turn::Failed(RETRY_AFTER_PANIC), begun.elapsed());
                });
                turn(program)
            };
            self.done(program, outcome, begun.elapsed());
        }
    }

    /// Waits for the next program of this lane; `None` when stopped.
    fn next(&self, lane: Lane) -> Option<ProgramId> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            let now = Instant::now();
            if let Some(program) = state.choose(lane, now) {
                if let Some(slot) = state.slots.get_mut(&program) {
                    slot.busy = true;
                    slot.woken = false;
                }
                return Some(program);
            }
            match state.earliest_due(lane) {
                Some(due) => drop(self.changed.wait_until(&mut state, due)),
                None => self.changed.wait(&mut state),
            }
        }
    }

    fn done(&self, program: ProgramId, outcome: Turn, took: Duration) {
        let mut state = self.state.lock();
        let Some(slot) = state.slots.get_mut(&program) else { return };
        slot.busy = false;
        slot.used += took;
        let now = Instant::now();
        slot.deferred = matches!(outcome, Turn::Later(_)) && !slot.woken;
        slot.due = match outcome {
            Turn::Idle => slot.woken.then_some(now),
            Turn::Worked { .. } | Turn::NeedsUpstream => Some(now),
            Turn::Later(_) if slot.woken => Some(now),
            Turn::Later(wait) | Turn::Failed(wait) => Some(now + wait),
        };
        if outcome == Turn::NeedsUpstream {
            slot.lane = Lane::Upstream;
        }
        // A program that waited unsuccessfully for another server must not delay programs that need
        // none.
        if matches!(outcome, Turn::Failed(_)) && took >= 2 * SHORT_TURN {
            slot.lane = Lane::Slow;
        }
        if let Turn::Worked { delayed_others } = outcome {
            slot.average =
                (slot.average * (100 - NEWEST_TURN_WEIGHT) + took * NEWEST_TURN_WEIGHT) / 100;
            // One long turn makes a program slow; it takes several short ones to become fast again.
            let is_still_slow = slot.lane == Lane::Slow && slot.average > SHORT_TURN * 3 / 2;
            slot.lane = if delayed_others || is_still_slow { Lane::Slow } else { Lane::Fast };
        }
        self.changed.notify_all();
    }
}

impl State {
    fn ready(&self, now: Instant) -> impl Iterator<Item = (&ProgramId, &Slot)> {
        self.slots
            .iter()
            .filter(move |(_, slot)| !slot.busy && slot.due.is_some_and(|due| due <= now))
    }

    fn choose(&self, lane: Lane, now: Instant) -> Option<ProgramId> {
        let ready = self.ready(now).filter(|(_, slot)| slot.lane == lane);
        ready.min_by_key(|(_, slot)| slot.used).map(|(id, _)| *id)
    }

    fn earliest_due(&self, lane: Lane) -> Option<Instant> {
        let waiting = self.slots.values().filter(|slot| !slot.busy);
        waiting.filter(|slot| slot.lane == lane).filter_map(|slot| slot.due).min()
    }

    /// Returns the least time used by an active program. Programs that are added or woken start
    /// with it, so that idle time earns no credit.
    fn least_used(&self) -> Duration {
        let is_active = |slot: &&Slot| slot.busy || (slot.due.is_some() && !slot.deferred);
        let active = self.slots.values().filter(is_active);
        active.map(|slot| slot.used).min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: ProgramId = ProgramId(1);
    const SLOW: ProgramId = ProgramId(2);

    const SHORT: Turn = Turn::Worked { delayed_others: false };

    /// Returns lanes with programs that have had a short turn.
    fn lanes() -> Lanes {
        let lanes = Lanes::default();
        for program in [FAST, SLOW] {
            lanes.add(program);
            assert_eq!(lanes.next(Lane::New), Some(program));
            lanes.done(program, SHORT, Duration::ZERO);
        }
        lanes
    }

    #[test]
    fn a_program_is_new_until_its_first_run() {
        let lanes = Lanes::default();
        lanes.add(FAST);
        let lane = |lanes: &Lanes| lanes.state.lock().slots[&FAST].lane;
        for _ in 0..3 {
            assert_eq!(lanes.next(Lane::New), Some(FAST));
            lanes.done(FAST, Turn::Idle, Duration::ZERO);
            assert_eq!(lane(&lanes), Lane::New, "there was nothing to do");
            lanes.wake(None);
        }
        assert_eq!(lanes.next(Lane::New), Some(FAST));
        lanes.done(FAST, SHORT, SHORT_TURN);
        assert_eq!(lane(&lanes), Lane::Fast);
    }

    #[test]
    fn a_new_program_does_not_wait_for_a_slow_one() {
        let lanes = Lanes::default();
        lanes.add(SLOW);
        assert_eq!(lanes.next(Lane::New), Some(SLOW));
        lanes.done(SLOW, Turn::Worked { delayed_others: true }, 20 * SHORT_TURN);
        // It has another turn, on the thread for slow programs.
        assert_eq!(lanes.next(Lane::Slow), Some(SLOW));
        lanes.add(FAST);
        assert_eq!(lanes.next(Lane::New), Some(FAST));
    }

    #[test]
    fn a_new_program_does_not_wait_for_upstream_lookups_of_another() {
        let lanes = Lanes::default();
        lanes.add(SLOW);
        assert_eq!(lanes.next(Lane::New), Some(SLOW));
        lanes.done(SLOW, Turn::NeedsUpstream, Duration::ZERO);
        assert_eq!(lanes.next(Lane::Upstream), Some(SLOW));
        lanes.add(FAST);
        assert_eq!(lanes.next(Lane::New), Some(FAST));
        lanes.done(SLOW, SHORT, Duration::ZERO);
        assert_eq!(lanes.next(Lane::Fast), Some(SLOW), "it was not long");
    }

    #[test]
    fn turns_go_to_the_program_that_used_the_least_time() {
        let lanes = lanes();
        let mut turns = BTreeMap::new();
        for _ in 0..100 {
            let program = lanes.next(Lane::Fast).unwrap();
            *turns.entry(program).or_insert(0) += 1;
            let took = if program == SLOW { 30 } else { 10 };
            lanes.done(program, SHORT, Duration::from_millis(took));
        }
        assert_eq!(turns[&FAST] / turns[&SLOW], 3, "{turns:?}");
    }

    #[test]
    fn a_slow_program_leaves_the_fast_lane_and_returns_once_it_is_fast() {
        let lanes = lanes();
        let long = Turn::Worked { delayed_others: true };
        let first = lanes.next(Lane::Fast).unwrap();
        lanes.done(first, long, 20 * SHORT_TURN);
        let other = lanes.next(Lane::Fast).unwrap();
        assert_ne!(first, other, "the slow one is not for the fast lane");
        assert_eq!(lanes.next(Lane::Slow), Some(first));
        let mut turns = 1;
        loop {
            lanes.done(first, SHORT, Duration::ZERO);
            let now = Instant::now();
            let mut state = lanes.state.lock();
            let Some(next) = state.choose(Lane::Slow, now) else { break };
            state.slots.get_mut(&next).unwrap().busy = true;
            turns += 1;
        }
        assert!(turns > 3, "one short turn does not make it fast: {turns}");
        assert_eq!(lanes.next(Lane::Fast), Some(first));
    }

    #[test]
    fn a_program_of_many_short_runs_stays_on_the_fast_lane() {
        let lanes = lanes();
        let mut turns = BTreeMap::new();
        for _ in 0..20 {
            let program = lanes.next(Lane::Fast).unwrap();
            *turns.entry(program).or_insert(0) += 1;
            lanes.done(program, SHORT, SHORT_TURN + SHORT_TURN / 50);
        }
        assert_eq!((turns[&FAST], turns[&SLOW]), (10, 10));
    }

    #[test]
    fn a_wake_up_during_a_turn_is_not_lost() {
        let lanes = lanes();
        lanes.remove(SLOW);
        assert_eq!(lanes.next(Lane::Fast), Some(FAST));
        lanes.wake(None);
        lanes.done(FAST, Turn::Idle, Duration::ZERO);
        assert_eq!(lanes.next(Lane::Fast), Some(FAST));
        lanes.stop();
        assert_eq!(lanes.next(Lane::Fast), None);
    }

    #[test]
    fn a_wake_up_ends_a_postponement_but_not_a_failure_delay() {
        let lanes = lanes();
        lanes.remove(SLOW);
        let long = Duration::from_hours(1);
        assert_eq!(lanes.next(Lane::Fast), Some(FAST));
        lanes.done(FAST, Turn::Later(long), Duration::ZERO);
        assert_eq!(lanes.state.lock().choose(Lane::Fast, Instant::now()), None);
        lanes.wake(None);
        assert_eq!(lanes.next(Lane::Fast), Some(FAST));
        lanes.wake(None);
        lanes.done(FAST, Turn::Later(long), Duration::ZERO);
        assert_eq!(lanes.next(Lane::Fast), Some(FAST), "there were news during the turn");
        // A wake-up does not shorten the delay after a failure.
        lanes.done(FAST, Turn::Failed(long), Duration::ZERO);
        lanes.wake(None);
        assert_eq!(lanes.state.lock().choose(Lane::Fast, Instant::now()), None);
    }

    #[test]
    fn a_program_that_waits_for_upstream_leaves_the_fast_lane() {
        let lanes = lanes();
        let first = lanes.next(Lane::Fast).unwrap();
        lanes.done(first, Turn::Failed(Duration::ZERO), 2 * SHORT_TURN);
        assert_eq!(lanes.next(Lane::Slow), Some(first));
    }

    #[test]
    fn a_program_whose_turn_panics_gets_another_one_later() {
        let lanes = lanes();
        lanes.remove(SLOW);
        let panics = std::panic::AssertUnwindSafe(|| {
            lanes.work(Lane::Fast, |_| panic!("in a turn"));
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(lanes.state.lock().choose(Lane::Fast, Instant::now()), None);
        let later = Instant::now() + RETRY_AFTER_PANIC;
        // A panic whose backtrace is printed can take longer than a short turn.
        let choose = |lane| lanes.state.lock().choose(lane, later);
        assert_eq!(choose(Lane::Fast).or_else(|| choose(Lane::Slow)), Some(FAST));
    }

    #[test]
    fn a_removed_program_gets_no_turn() {
        let lanes = lanes();
        let busy = lanes.next(Lane::Fast).unwrap();
        lanes.remove(busy);
        lanes.done(busy, SHORT, Duration::ZERO);
        let left = lanes.next(Lane::Fast).unwrap();
        assert_ne!(busy, left);
        assert!(lanes.state.lock().slots.len() == 1);
    }
}
