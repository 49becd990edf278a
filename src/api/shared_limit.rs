//! Rate limit that all callers share, of which each has an equal part. Does not depend on what is
//! limited.
//!
//! While half of what may come at once is left, a caller may have more than its part. The other half
//! is kept for those that have not used up theirs: so a caller that sends all the time has the whole
//! rate while it is alone, and another one that comes gets at least half of what it would get alone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::ApiError;
use super::limits::{RateLimit, retry_after};
use orrery_runtime::budget::Holder;

/// Number of parts at least, so that there is always one for another caller.
const FEWEST_PARTS: usize = 2;
/// How long a caller that has asked has a part, although it may have taken nothing of it: without one,
/// the parts of the others would be all there is.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Rate limit that all callers share.
pub(super) struct SharedLimit(Option<Mutex<Shares>>);

struct Shares {
    speed: Speed,
    all: Bucket,
    /// The parts of callers that have asked lately, or have not all of their parts again.
    parts: HashMap<Holder, Part>,
}

/// The part of a caller.
struct Part {
    left: Bucket,
    /// When the caller asked last.
    asked: Instant,
}

/// How fast a bucket fills up, in requests per second, and how many it holds.
#[derive(Clone, Copy)]
struct Speed {
    per_second: f64,
    burst: f64,
}

/// Number of requests that may still come, as it was at a time.
#[derive(Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl SharedLimit {
    pub(super) fn new(limit: Option<RateLimit>) -> Self {
        Self(limit.map(|limit| Mutex::new(Shares::new(Speed::of(limit), Instant::now()))))
    }

    /// Counts a request, and refuses it when all together are over the limit, or this caller is over
    /// its part and little is left.
    pub(super) fn count(&self, caller: Holder) -> Result<(), ApiError> {
        let Some(shares) = &self.0 else { return Ok(()) };
        let taken = shares.lock().take(caller, Instant::now());
        taken.map_err(|wait| ApiError::Busy { retry_after: retry_after(wait) })
    }
}

impl Speed {
    fn of(limit: RateLimit) -> Self {
        Self { per_second: limit.per_second.get().into(), burst: limit.burst.get().into() }
    }

    /// Returns one of so many equal parts, which holds one request at least.
    fn part(self, parts: usize) -> Self {
        let parts = parts as f64;
        Self { per_second: self.per_second / parts, burst: (self.burst / parts).max(1.0) }
    }

    /// Returns the time in which so many requests come in.
    fn time_for(self, requests: f64) -> Duration {
        Duration::try_from_secs_f64(requests / self.per_second).unwrap_or(Duration::MAX)
    }
}

impl Bucket {
    /// Returns the bucket as it is later.
    fn filled(self, speed: Speed, now: Instant) -> Self {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        Self { left: (self.left + elapsed * speed.per_second).min(speed.burst), at: now }
    }

    fn without_one(self) -> Self {
        Self { left: (self.left - 1.0).max(0.0), ..self }
    }
}

impl Shares {
    fn new(speed: Speed, now: Instant) -> Self {
        Self { speed, all: Bucket { left: speed.burst, at: now }, parts: HashMap::new() }
    }

    /// Takes a request, or returns how long its caller must wait at least.
    fn take(&mut self, caller: Holder, now: Instant) -> Result<(), Duration> {
        let part = self.speed.part(self.parts.len().max(FEWEST_PARTS));
        // A caller whose part is whole again is as one that has never come.
        self.parts.retain(|_, own| {
            let asks = now.saturating_duration_since(own.asked) < REMEMBERED;
            asks || own.left.filled(part, now).left < part.burst
        });
        let others = self.parts.len() - usize::from(self.parts.contains_key(&caller));
        let part = self.speed.part((others + 1).max(FEWEST_PARTS));
        let whole = Bucket { left: part.burst, at: now };
        let own = self.parts.get(&caller).map_or(whole, |own| own.left.filled(part, now));
        let taken = self.take_of(own, part, now);
        let left = if taken.is_ok() { own.without_one() } else { own };
        self.parts.insert(caller, Part { left, asked: now });
        taken
    }

    /// Takes a request of a caller with so much left of its part, or returns how long it must wait at
    /// least.
    fn take_of(&mut self, own: Bucket, part: Speed, now: Instant) -> Result<(), Duration> {
        let all = self.all.filled(self.speed, now);
        if all.left < 1.0 {
            return Err(self.speed.time_for(1.0 - all.left));
        }
        // Of bursts of one, nothing can be kept.
        let kept = (self.speed.burst / 2.0).min(self.speed.burst - 1.0);
        if own.left < 1.0 && all.left < kept + 1.0 {
            let until_spare = self.speed.time_for(kept + 1.0 - all.left);
            return Err(part.time_for(1.0 - own.left).min(until_spare));
        }
        self.all = all.without_one();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: u64 = 120;

    /// A caller, and in how many milliseconds it sends how many requests.
    #[derive(Clone, Copy)]
    struct Sender {
        name: &'static str,
        every: u64,
        at_once: u64,
    }

    /// Lets callers send for two minutes, after one in which only the first does, and returns how
    /// many requests of each were taken in these.
    fn taken(limit: RateLimit, senders: &[Sender]) -> Vec<u64> {
        let begin = Instant::now();
        let mut shares = Shares::new(Speed::of(limit), begin);
        let mut taken = vec![0; senders.len()];
        for now in 0..(60 + SECONDS) * 1000 {
            let is_counted = now >= 60_000;
            for (sender, taken) in senders.iter().zip(&mut taken) {
                if now % sender.every != 0 || (!is_counted && sender.name != "greedy") {
                    continue;
                }
                let now = begin + Duration::from_millis(now);
                let one = || u64::from(shares.take(Holder::of(sender.name), now).is_ok());
                let more = std::iter::repeat_with(one).take(sender.at_once as usize).sum::<u64>();
                *taken += if is_counted { more } else { 0 };
            }
        }
        taken
    }

    #[test]
    fn each_caller_has_an_equal_part_and_more_while_there_is_more() {
        let greedy = Sender { name: "greedy", every: 1, at_once: 10 };
        for (per_second, burst) in [(50, 200), (10, 40), (1, 4), (5, 2)] {
            let limit = RateLimit::from_setting(per_second, burst).unwrap();
            let all = SECONDS * u64::from(per_second);
            let [alone] = taken(limit, &[greedy])[..] else { unreachable!() };
            assert!(20 * alone >= 19 * all, "the whole rate for one: {alone} of {all}");
            for (every, at_once) in [(1, 1), (100, 10), (1000, 100), (7919, 1000)] {
                let other = Sender { name: "other", every, at_once };
                let [alone] = taken(limit, &[other])[..] else { unreachable!() };
                let [_, beside] = taken(limit, &[greedy, other])[..] else { unreachable!() };
                let case = format!("{beside} of {alone}, {limit:?}, {at_once} each {every} ms");
                assert!(20 * beside >= 9 * alone, "{case}");
            }
        }
    }

    #[test]
    fn several_callers_have_equal_parts() {
        let names = ["greedy", "a", "b", "c", "d"];
        let senders = names.map(|name| Sender { name, every: 1, at_once: 1 });
        let limit = RateLimit::from_setting(50, 200).unwrap();
        let all = SECONDS * 50;
        for taken in taken(limit, &senders) {
            assert!(50 * taken >= 9 * all, "{taken} of {all}");
        }
    }

    #[test]
    fn the_limit_is_that_of_all_together() {
        let limit = SharedLimit::new(RateLimit::from_setting(1, 4));
        let takes = |name: &str| limit.count(Holder::of(name));
        let served = |name: &str| std::iter::from_fn(|| takes(name).ok()).take(10).count();
        assert_eq!((served("a"), served("b")), (2, 2));
        assert!(matches!(takes("b"), Err(ApiError::Busy { retry_after: 1 | 2 })));
        let unlimited = SharedLimit::new(None);
        assert!((0..1000).all(|_| unlimited.count(Holder::of("a")).is_ok()));
    }
}
