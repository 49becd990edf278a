//! Who runs next. Knows programs by number and how long they took, not what they do.
//!
//! Programs belong to people who do not know each other, and one that loops until its fuel is gone
//! must not hold up the others. So programs whose turns have been short have threads of their own, and
//! the slow ones another, of low priority. One that has not had a turn yet may be either: it waits for others
//! of its kind and not for slow ones, nor for what those of its kind ask another server. On each thread, whoever
//! has used the least time is next.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::engine::ThreadClock;
use crate::domain::ProgramId;

/// A turn ends after this long, finished or not, but for the run that is under way.
pub(super) const SHORT_TURN: Duration = Duration::from_millis(50);

/// A turn that waits for so long, for a disk or for answers, holds up others as one that works does.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// A turn that has begun, on the thread that made this.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnClock {
    begun: Instant,
    processor: Duration,
}

impl TurnClock {
    /// From now on.
    pub(super) fn start() -> Self {
        Self { begun: Instant::now(), processor: ThreadClock::used_by_own() }
    }

    /// When the turn is to end.
    pub(super) fn end(self) -> Instant {
        self.begun + SHORT_TURN
    }

    /// Whether the runs of the turn went on for too long. A program of many short runs can be cut short
    /// between any two of them; one whose runs are long cannot, and is the one that holds up others. What
    /// counts is processor time: a turn that others kept from the processor is not at fault.
    pub(super) fn held_up(self) -> bool {
        ThreadClock::used_by_own().saturating_sub(self.processor) >= 2 * SHORT_TURN
            || self.begun.elapsed() >= LONG_WAIT
    }
}

/// How much the newest turn counts in the average, in per cent.
const NEWEST_COUNTS: u32 = 25;

/// A thread's choice of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// Programs that have not had a turn in which there was something to do.
    New,
    /// Those of them that need the answer of another server first, for which others are not to wait.
    Asking,
    /// Programs whose turns are short.
    Fast,
    /// The others.
    Slow,
}

impl Lane {
    /// Whether a turn on such a thread may wait for the answers of another server. It is not known of a new
    /// program how long that lasts, and all new ones have one thread.
    pub(super) fn may_ask(self) -> bool {
        self != Self::New
    }
}

/// What came of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// There was nothing to do; there will be when somebody says so.
    Idle,
    /// Something was done, and there may be more.
    Worked {
        /// A run took so long that others had to wait: see [`TurnClock::held_up`].
        held_up: bool,
    },
    /// Another server has to be asked, in a turn in which that may be done.
    Asks,
    /// There is something to do after a while.
    Later(Duration),
    /// It failed through no fault of the program's; to be tried again after a while.
    Failed(Duration),
}

/// The programs and their turns.
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
    /// Time used so far, or what others had used when this one came or woke up.
    used: Duration,
    /// Moving average of its turns in which something was done.
    usual: Duration,
    lane: Lane,
    busy: bool,
    /// When it may have its next turn; none when it has nothing to do.
    due: Option<Instant>,
    /// It is due for something that can wait: news make it due now.
    later: bool,
    /// There was news during its turn.
    woken: bool,
}

impl Lanes {
    /// A program that there is now.
    pub(super) fn add(&self, program: ProgramId) {
        let mut state = self.state.lock();
        let slot = Slot {
            used: state.least_used(),
            usual: Duration::ZERO,
            lane: Lane::New,
            busy: false,
            due: Some(Instant::now()),
            later: false,
            woken: false,
        };
        state.slots.entry(program).or_insert(slot);
        self.changed.notify_all();
    }

    /// A program that there is no more.
    pub(super) fn remove(&self, program: ProgramId) {
        self.state.lock().slots.remove(&program);
    }

    /// There may be something to do for one program, or for all.
    pub(super) fn wake(&self, program: Option<ProgramId>) {
        let mut state = self.state.lock();
        let least = state.least_used();
        let now = Instant::now();
        for (_, slot) in state.slots.iter_mut().filter(|(id, _)| program.is_none_or(|p| p == **id))
        {
            slot.woken = slot.busy;
            if (slot.due.is_none() || slot.later) && !slot.busy {
                slot.used = slot.used.max(least);
                slot.due = Some(now);
                slot.later = false;
            }
        }
        self.changed.notify_all();
    }

    /// Ends [`Self::work`] on all threads after their turns.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Gives turns until stopped.
    pub(super) fn work(&self, lane: Lane, mut turn: impl FnMut(ProgramId) -> Turn) {
        while let Some(program) = self.next(lane) {
            let begun = Instant::now();
            let outcome = turn(program);
            self.done(program, outcome, begun.elapsed());
        }
    }

    /// Waits for the next program that this lane may take; none when stopped.
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
        slot.later = matches!(outcome, Turn::Later(_)) && !slot.woken;
        slot.due = match outcome {
            Turn::Idle => slot.woken.then_some(now),
            Turn::Worked { .. } | Turn::Asks => Some(now),
            Turn::Later(_) if slot.woken => Some(now),
            Turn::Later(wait) | Turn::Failed(wait) => Some(now + wait),
        };
        if outcome == Turn::Asks {
            slot.lane = Lane::Asking;
        }
        // Whoever waited in vain for somebody else's answer must not hold up those who need none.
        if matches!(outcome, Turn::Failed(_)) && took >= 2 * SHORT_TURN {
            slot.lane = Lane::Slow;
        }
        if let Turn::Worked { held_up } = outcome {
            slot.usual = (slot.usual * (100 - NEWEST_COUNTS) + took * NEWEST_COUNTS) / 100;
            // One long turn does, and it takes several short ones to come back.
            let is_still_slow = slot.lane == Lane::Slow && slot.usual > SHORT_TURN * 3 / 2;
            slot.lane = if held_up || is_still_slow { Lane::Slow } else { Lane::Fast };
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

    /// Who comes or wakes up gets no credit for the time when it had nothing to do.
    fn least_used(&self) -> Duration {
        let is_active = |slot: &&Slot| slot.busy || (slot.due.is_some() && !slot.later);
        let active = self.slots.values().filter(is_active);
        active.map(|slot| slot.used).min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: ProgramId = ProgramId(1);
    const SLOW: ProgramId = ProgramId(2);

    const SHORT: Turn = Turn::Worked { held_up: false };

    /// Programs that have had a short turn.
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
    fn a_program_is_new_until_it_has_done_something() {
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
        lanes.done(SLOW, Turn::Worked { held_up: true }, 20 * SHORT_TURN);
        // It is at it again, on the thread of slow ones.
        assert_eq!(lanes.next(Lane::Slow), Some(SLOW));
        lanes.add(FAST);
        assert_eq!(lanes.next(Lane::New), Some(FAST));
    }

    #[test]
    fn a_new_program_does_not_wait_for_what_another_asks() {
        let lanes = Lanes::default();
        lanes.add(SLOW);
        assert_eq!(lanes.next(Lane::New), Some(SLOW));
        lanes.done(SLOW, Turn::Asks, Duration::ZERO);
        assert_eq!(lanes.next(Lane::Asking), Some(SLOW));
        lanes.add(FAST);
        assert_eq!(lanes.next(Lane::New), Some(FAST));
        lanes.done(SLOW, SHORT, Duration::ZERO);
        assert_eq!(lanes.next(Lane::Fast), Some(SLOW), "it was not long");
    }

    #[test]
    fn turns_go_to_whoever_has_used_least() {
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
    fn a_slow_program_leaves_the_fast_lane_and_comes_back() {
        let lanes = lanes();
        let long = Turn::Worked { held_up: true };
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
    fn news_during_a_turn_is_not_lost() {
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
    fn what_can_wait_does_not_keep_news_waiting() {
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
        // What failed is tried again in its own time.
        lanes.done(FAST, Turn::Failed(long), Duration::ZERO);
        lanes.wake(None);
        assert_eq!(lanes.state.lock().choose(Lane::Fast, Instant::now()), None);
    }

    #[test]
    fn a_program_that_waits_for_answers_leaves_the_fast_lane() {
        let lanes = lanes();
        let first = lanes.next(Lane::Fast).unwrap();
        lanes.done(first, Turn::Failed(Duration::ZERO), 2 * SHORT_TURN);
        assert_eq!(lanes.next(Lane::Slow), Some(first));
    }

    #[test]
    fn a_program_that_is_gone_gets_no_turn() {
        let lanes = lanes();
        let busy = lanes.next(Lane::Fast).unwrap();
        lanes.remove(busy);
        lanes.done(busy, SHORT, Duration::ZERO);
        let left = lanes.next(Lane::Fast).unwrap();
        assert_ne!(busy, left);
        assert!(lanes.state.lock().slots.len() == 1);
    }
}
