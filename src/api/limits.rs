//! Rate limits per owner of tokens, and per client address where no valid token applies.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;

use super::ApiError;
use orrery_ledger::domain::Owner;

/// Number of checks between two sweeps that remove idle keys.
const SWEEP_EVERY: u32 = 4096;

/// Request rate limit of one owner, or of one client address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RateLimit {
    /// Sustained requests per second.
    pub per_second: NonZeroU32,
    /// Maximum number of requests at once after a pause.
    pub burst: NonZeroU32,
}

impl RateLimit {
    /// Creates the limit from settings; `None` when either is 0, which turns the limit
    /// off.
    pub(super) fn from_setting(per_second: u32, burst: u32) -> Option<Self> {
        let per_second = NonZeroU32::new(per_second)?;
        Some(Self { per_second, burst: NonZeroU32::new(burst)? })
    }

    /// Time between two requests at the sustained rate.
    fn interval(self) -> Duration {
        (Duration::from_secs(1) / self.per_second.get()).max(Duration::from_nanos(1))
    }

    /// Returns how long a caller has to wait whose requests end at `until`, at the sustained rate; `None`
    /// when it may send now. The requests may be ahead by one burst.
    fn wait(self, until: Instant, now: Instant) -> Option<Duration> {
        let ahead = self.interval() * (self.burst.get() - 1);
        until.checked_duration_since(now + ahead).filter(|wait| !wait.is_zero())
    }
}

/// Key of a rate limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Caller {
    /// All tokens of an owner.
    Owner(Owner),
    /// A client address; for IPv6 its /64 network, because one customer usually owns all of it.
    Address(IpAddr),
}

impl Caller {
    pub(super) fn address(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => {
                let network = v6.to_bits() & !u128::from(u64::MAX);
                Self::Address(Ipv6Addr::from_bits(network).into())
            }
            v4 => Self::Address(v4),
        }
    }
}

/// Counts requests per caller (generic cell rate algorithm, ITU-T I.371).
pub(super) struct Limits {
    limit: Option<RateLimit>,
    /// Callers that have sent something recently. Sweeps remove those that may send a whole burst again.
    callers: RwLock<HashMap<Caller, Sent>>,
    checks: AtomicU32,
}

/// What a caller has sent.
struct Sent {
    /// When its requests would end if they came at the sustained rate.
    until: Instant,
    /// Whether the last one was refused.
    is_refused: bool,
}

impl Limits {
    pub(super) fn new(limit: Option<RateLimit>) -> Self {
        Self { limit, callers: RwLock::default(), checks: AtomicU32::new(0) }
    }

    /// Counts a request of `caller`, and refuses it when the caller is over its limit.
    pub(super) fn count(&self, caller: impl FnOnce() -> Caller) -> Result<(), ApiError> {
        let Some(limit) = self.limit else { return Ok(()) };
        self.count_at(Instant::now(), limit, caller())
            .map_err(|wait| ApiError::TooManyRequests { retry_after: retry_after(wait) })
    }

    /// Fails with the time until the caller may send again.
    fn count_at(&self, now: Instant, limit: RateLimit, caller: Caller) -> Result<(), Duration> {
        let mut callers = self.callers.write();
        if self.checks.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1 {
            callers.retain(|_, sent| sent.until > now);
        }
        let sent = callers.entry(caller).or_insert(Sent { until: now, is_refused: false });
        let wait = limit.wait(sent.until, now);
        sent.is_refused = wait.is_some();
        if let Some(wait) = wait {
            return Err(wait);
        }
        sent.until = sent.until.max(now) + limit.interval();
        Ok(())
    }

    /// Returns the seconds until an address that is over its limit may send again; `None` when it
    /// is not over its limit. Does not count as a request.
    pub(super) fn refused_for(&self, address: impl FnOnce() -> IpAddr) -> Option<u64> {
        let limit = self.limit?;
        let callers = self.callers.read();
        let sent = callers.get(&Caller::address(address()))?;
        limit.wait(sent.until, Instant::now()).filter(|_| sent.is_refused).map(retry_after)
    }
}

/// Rounds a wait up to whole seconds for `Retry-After`, at least 1.
pub(super) fn retry_after(wait: Duration) -> u64 {
    wait.as_secs_f64().ceil().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// A bucket of `burst` requests, filled at the sustained rate: a request takes one out, and one that
    /// finds less than one waits for what is missing.
    #[test]
    fn requests_are_admitted_as_a_bucket_has_them() {
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..200 {
            let (per_second, burst) = (random.random_range(1..2000), random.random_range(1..50));
            let limit = RateLimit::from_setting(per_second, burst).unwrap();
            let limits = Limits::new(Some(limit));
            let interval = 1_000_000_000 / u64::from(per_second);
            let full = interval * u64::from(burst);
            let (mut now, mut bucket) = (Instant::now(), full);
            for _ in 0..300 {
                let passed = match random.random_range(0..10) {
                    0 => random.random_range(0..2 * full),
                    1..6 => random.random_range(0..2 * interval),
                    _ => 0,
                };
                now += Duration::from_nanos(passed);
                bucket = (bucket + passed).min(full);
                let expected = bucket.checked_sub(interval).ok_or(interval - bucket.min(interval));
                bucket = expected.unwrap_or(bucket);
                let address = Caller::address([192, 0, 2, 1].into());
                let counted = limits.count_at(now, limit, address);
                assert_eq!(counted, expected.map(drop).map_err(Duration::from_nanos));
            }
        }
    }

    #[test]
    fn each_caller_has_its_own_burst() {
        let limits = Limits::new(RateLimit::from_setting(1, 3));
        let owner = |name: &str| Caller::Owner(Owner(name.to_owned()));
        for _ in 0..3 {
            assert!(limits.count(|| owner("a")).is_ok());
        }
        let refused = limits.count(|| owner("a")).unwrap_err();
        assert!(matches!(refused, ApiError::TooManyRequests { retry_after: 1 }));
        assert!(limits.count(|| owner("b")).is_ok());
        assert!(limits.count(|| Caller::address([127, 0, 0, 1].into())).is_ok());
    }

    #[test]
    fn a_refused_address_is_remembered_until_it_may_retry() {
        let limits = Limits::new(RateLimit::from_setting(1, 2));
        let address: IpAddr = [192, 0, 2, 1].into();
        for _ in 0..2 {
            assert!(limits.count(|| Caller::address(address)).is_ok());
            assert_eq!(limits.refused_for(|| address), None);
        }
        assert!(limits.count(|| Caller::address(address)).is_err());
        assert_eq!(limits.refused_for(|| address), Some(1));
        assert_eq!(limits.refused_for(|| [192, 0, 2, 2].into()), None);
    }

    #[test]
    fn zero_disables_the_limit() {
        for (per_second, burst) in [(0, 5), (5, 0)] {
            let limits = Limits::new(RateLimit::from_setting(per_second, burst));
            let address = || Caller::address([192, 0, 2, 1].into());
            assert!((0..1000).all(|_| limits.count(address).is_ok()));
        }
    }

    #[test]
    fn an_ipv6_network_is_one_caller() {
        let caller = |text: &str| Caller::address(text.parse().unwrap());
        assert_eq!(caller("2001:db8::1"), caller("2001:db8::ffff:1"));
        assert_ne!(caller("2001:db8::1"), caller("2001:db8:0:1::1"));
        assert_eq!(caller("::ffff:10.0.0.1"), caller("10.0.0.1"));
        assert_ne!(caller("10.0.0.1"), caller("10.0.0.2"));
    }
}
