//! Limits concurrent requests to the upstream server for ledger entries, in total and per owner.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stellar_xdr::LedgerKey;

use super::engine::UpstreamError;
use super::state::Upstream;
use orrery_ledger::domain::{LiveEntries, Owner};
use orrery_runtime::budget::{Budget, Holder, Limits, Usage};

/// Maximum number of concurrent requests for all owners' programs, and for one owner's.
const MAX_CONCURRENT_REQUESTS: u64 = 4;
const MAX_CONCURRENT_PER_OWNER: u64 = 2;

/// The upstream server, with the limits shared by all programs.
pub(super) struct UpstreamLimiter {
    server: Arc<dyn Upstream + Send + Sync>,
    slots: Budget,
}

/// The upstream server as the programs of one owner use it.
pub(super) struct OwnerUpstream<'q> {
    all: &'q UpstreamLimiter,
    owner: Owner,
}

impl UpstreamLimiter {
    /// Creates the shared limits for requests to `server`.
    pub(super) fn new(server: Arc<dyn Upstream + Send + Sync>) -> Self {
        let limits = Limits::with_any_waiting(MAX_CONCURRENT_REQUESTS, MAX_CONCURRENT_PER_OWNER);
        Self { server, slots: Budget::new("upstream_questions", limits) }
    }

    /// Returns the usage of the request slots.
    pub(super) fn usage(&self) -> Usage {
        self.slots.usage()
    }

    /// Returns the upstream for one owner's programs.
    pub(super) fn for_owner(&self, owner: Owner) -> OwnerUpstream<'_> {
        OwnerUpstream { all: self, owner }
    }
}

impl Upstream for OwnerUpstream<'_> {
    fn look_up(&self, keys: &[LedgerKey], timeout: Duration) -> Result<LiveEntries, UpstreamError> {
        let begun = Instant::now();
        // Limits the wait to a day, so that the addition cannot overflow.
        let deadline = begun + timeout.min(Duration::from_secs(24 * 60 * 60));
        let slot = self.all.slots.take_blocking(Holder::of(&self.owner), 1, Some(deadline));
        let _slot = slot.map_err(|_| UpstreamError::Busy)?;
        self.all.server.look_up(keys, timeout.saturating_sub(begun.elapsed()))
    }
}

/// An upstream that refuses all requests, for turns that must not wait for a response.
pub(super) struct RefusingUpstream;

impl Upstream for RefusingUpstream {
    fn look_up(&self, _: &[LedgerKey], _: Duration) -> Result<LiveEntries, UpstreamError> {
        Err(UpstreamError::NotNow)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use orrery_testkit::wait::wait_until;

    use super::*;
    use orrery_ledger::domain::LedgerSeq;

    /// Answers once as many requests have arrived as the barrier waits for.
    struct Slow(Barrier);

    impl Upstream for Slow {
        fn look_up(&self, _: &[LedgerKey], _: Duration) -> Result<LiveEntries, UpstreamError> {
            self.0.wait();
            Ok(LiveEntries { as_of: LedgerSeq(1), entries: Vec::new() })
        }
    }

    #[test]
    fn an_owner_cannot_take_all_upstream_slots() {
        let owner = |name: &str| Owner(name.to_owned());
        let limiter =
            UpstreamLimiter::new(Arc::new(Slow(Barrier::new(MAX_CONCURRENT_REQUESTS as usize))));
        let long = Duration::from_secs(60);
        std::thread::scope(|scope| {
            let ask = || limiter.for_owner(owner("ana")).look_up(&[], long);
            let anas: Vec<_> = (0..MAX_CONCURRENT_PER_OWNER).map(|_| scope.spawn(ask)).collect();
            wait_until("her slots are taken", || {
                limiter.slots.try_take(Holder::of(&owner("ana")), 1).is_err()
            });
            // A further request of hers must wait; those of other owners need not.
            let refused = limiter.for_owner(owner("ana")).look_up(&[], Duration::ZERO);
            assert_eq!(refused, Err(UpstreamError::Busy));
            let of_others = ["bob", "eve"].map(|name| {
                let limiter = &limiter;
                scope.spawn(move || limiter.for_owner(owner(name)).look_up(&[], long))
            });
            for asked in anas.into_iter().chain(of_others) {
                assert!(asked.join().unwrap().is_ok());
            }
        });
    }
}
