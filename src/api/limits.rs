//! Rate limits per owner of tokens, and per client address where no valid token applies.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use parking_lot::RwLock;

use super::ApiError;
use crate::domain::Owner;

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

    fn quota(self) -> Quota {
        Quota::per_second(self.per_second).allow_burst(self.burst)
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

/// Counts requests per caller.
pub(super) struct Limits {
    limiter: Option<DefaultKeyedRateLimiter<Caller>>,
    clock: DefaultClock,
    checks: AtomicU32,
    /// Addresses over their limit, each with the time at which it may send again. Sweeps remove
    /// expired entries.
    refused: RwLock<HashMap<IpAddr, Instant>>,
}

impl Limits {
    pub(super) fn new(limit: Option<RateLimit>) -> Self {
        let limiter = limit.map(|limit| RateLimiter::keyed(limit.quota()));
        Self {
            limiter,
            clock: DefaultClock::default(),
            checks: AtomicU32::new(0),
            refused: RwLock::default(),
        }
    }

    /// Counts a request of `caller`, and refuses it when the caller is over its limit.
    pub(super) fn count(&self, caller: impl FnOnce() -> Caller) -> Result<(), ApiError> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        if self.checks.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1 {
            limiter.retain_recent();
            let now = Instant::now();
            self.refused.write().retain(|_, until| *until > now);
        }
        let caller = caller();
        limiter.check_key(&caller).map_err(|too_early| {
            let wait = too_early.wait_time_from(self.clock.now());
            if let Caller::Address(address) = caller {
                self.refused.write().insert(address, Instant::now() + wait);
            }
            ApiError::TooManyRequests { retry_after: retry_after(wait) }
        })
    }

    /// Returns the seconds until an address that is over its limit may send again; `None` when it
    /// is not over its limit. Does not count as a request.
    pub(super) fn refused_for(&self, address: impl FnOnce() -> IpAddr) -> Option<u64> {
        let refused = self.refused.read();
        if refused.is_empty() {
            return None;
        }
        let Caller::Address(address) = Caller::address(address()) else { return None };
        let left = refused.get(&address)?.checked_duration_since(Instant::now())?;
        (!left.is_zero()).then(|| retry_after(left))
    }
}

/// Rounds a wait up to whole seconds for `Retry-After`, at least 1.
pub(super) fn retry_after(wait: Duration) -> u64 {
    wait.as_secs_f64().ceil().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

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
