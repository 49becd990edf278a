//! The time: readings of the machine's clock, and a clock for deadlines, which counts the time that passes.
//! The machine's clock may be wrong for a while, before it is set by the network for example, and what a
//! deadline of days has ended cannot be made good.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// Returns a time in milliseconds: since 1970, or since any moment for time that passes.
pub type Milliseconds = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Difference in milliseconds up to which the machine's clock is only adjusted.
const ADJUSTMENT: u64 = 2_000;

/// Returns the UNIX time in milliseconds.
pub fn unix_now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

/// Returns the UNIX time in seconds.
pub fn unix_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// Returns the time that passes from now on, which no setting of the machine's clock changes.
pub fn elapsed_ms() -> Milliseconds {
    let begun = Instant::now();
    Arc::new(move || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX))
}

/// A clock that counts the time that passes. It takes over what the machine's clock is ahead only once
/// that has been so for some time, which is how it is after a pause of the process or of the machine;
/// and never what it is behind.
pub struct SteadyClock {
    machine: Milliseconds,
    elapsed: Milliseconds,
    /// Time for which the machine's clock must be ahead, in milliseconds.
    hold: u64,
    state: Mutex<State>,
}

struct State {
    /// UNIX time in milliseconds at the reading of `elapsed` beside it.
    at: (u64, u64),
    /// Milliseconds that the machine's clock is ahead, and the reading of `elapsed` since which it has
    /// been that.
    ahead: (u64, u64),
}

impl SteadyClock {
    /// Creates a clock that begins with `begin`, a UNIX time in milliseconds, or with that of the
    /// machine. `elapsed` returns the time that has passed; `hold` is the time in milliseconds after
    /// which the machine's clock is believed.
    pub fn new(
        machine: Milliseconds,
        elapsed: Milliseconds,
        hold: u64,
        begin: Option<u64>,
    ) -> Self {
        let (now, passed) = (machine(), elapsed());
        let begin = begin.unwrap_or(now);
        let ahead = (now.saturating_sub(begin), passed);
        let state = Mutex::new(State { at: (begin, passed), ahead });
        Self { machine, elapsed, hold, state }
    }

    /// Returns the UNIX time in milliseconds.
    pub fn now(&self) -> u64 {
        let mut state = self.state.lock();
        let (machine, passed) = ((self.machine)(), (self.elapsed)());
        let (at, then) = state.at;
        let now = at.saturating_add(passed.saturating_sub(then));
        let ahead = machine.saturating_sub(now);
        if ahead.abs_diff(state.ahead.0) > ADJUSTMENT {
            state.ahead = (ahead, passed);
        }
        let is_believed = passed.saturating_sub(state.ahead.1) >= self.hold;
        if ahead > ADJUSTMENT && is_believed {
            state.at = (machine, passed);
            state.ahead = (0, passed);
            return machine;
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const HOUR: u64 = 3_600_000;
    const DAY: u64 = 24 * HOUR;

    /// A clock that believes the machine's clock after an hour, and the times that it reads.
    struct Scene {
        machine: Arc<AtomicU64>,
        elapsed: Arc<AtomicU64>,
        clock: SteadyClock,
    }

    impl Scene {
        fn new(machine: u64, begin: Option<u64>) -> Self {
            let (machine, elapsed) = (Arc::new(AtomicU64::new(machine)), Arc::default());
            let read = |it: &Arc<AtomicU64>| -> Milliseconds {
                let it = Arc::clone(it);
                Arc::new(move || it.load(Ordering::SeqCst))
            };
            let clock = SteadyClock::new(read(&machine), read(&elapsed), HOUR, begin);
            Self { machine, elapsed, clock }
        }

        fn pass(&self, time: u64) -> u64 {
            self.machine.fetch_add(time, Ordering::SeqCst);
            self.elapsed.fetch_add(time, Ordering::SeqCst);
            self.clock.now()
        }

        fn set(&self, machine: u64) -> u64 {
            self.machine.store(machine, Ordering::SeqCst);
            self.clock.now()
        }
    }

    #[test]
    fn a_clock_that_is_wrong_for_a_while_changes_nothing() {
        let scene = Scene::new(5 * DAY, None);
        assert_eq!(scene.pass(1_000), 5 * DAY + 1_000);
        for wrong in [25 * DAY, 0, 6 * DAY, 5 * DAY - 3_000] {
            let before = scene.clock.now();
            assert_eq!(scene.set(wrong), before);
            assert_eq!(scene.pass(8_000), before + 8_000);
            assert_eq!(scene.set(before + 8_000), before + 8_000);
            assert_eq!(scene.pass(2 * HOUR), before + 8_000 + 2 * HOUR);
        }
    }

    #[test]
    fn a_clock_that_stays_ahead_is_believed_and_one_that_is_behind_is_not() {
        let scene = Scene::new(5 * DAY, None);
        assert_eq!(scene.set(9 * DAY), 5 * DAY);
        assert_eq!(scene.pass(HOUR - 1), 5 * DAY + HOUR - 1);
        assert_eq!(scene.pass(1), 9 * DAY + HOUR);
        assert_eq!(scene.set(DAY), 9 * DAY + HOUR);
        assert_eq!(scene.pass(2 * HOUR), 9 * DAY + 3 * HOUR);
        // Set right again.
        assert_eq!(scene.set(9 * DAY + 3 * HOUR), 9 * DAY + 3 * HOUR);
        assert_eq!(scene.pass(DAY), 10 * DAY + 3 * HOUR);
    }

    #[test]
    fn it_continues_where_an_earlier_process_ended() {
        let scene = Scene::new(25 * DAY, Some(5 * DAY));
        assert_eq!(scene.clock.now(), 5 * DAY);
        assert_eq!(scene.pass(HOUR - 1), 5 * DAY + HOUR - 1);
        assert_eq!(scene.pass(1), 25 * DAY + HOUR);
        assert_eq!(Scene::new(DAY, Some(5 * DAY)).pass(7), 5 * DAY + 7);
    }

    /// However the machine's clock is set, if no setting lasts an hour.
    #[test]
    fn what_passes_is_what_counts() {
        for seed in 0..200 {
            let rng = &mut ChaCha8Rng::seed_from_u64(seed);
            let scene = Scene::new(100 * DAY, None);
            for _ in 0..300 {
                let (before, step) = (scene.clock.now(), rng.random_range(0..HOUR));
                assert_eq!(scene.pass(step), before + step, "seed {seed}");
                let days = rng.random_range(0..200);
                assert_eq!(scene.set(days * DAY), before + step, "seed {seed}");
            }
        }
    }
}
