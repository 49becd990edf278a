//! Who may ask another server for entries, and how many at a time: no owner's programs take all places.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stellar_xdr::LedgerKey;

use super::state::{Upstream, UpstreamAnswer, UpstreamError};
use crate::budget::{Budget, Holder, Limits, Usage};
use crate::domain::Owner;

/// Questions that are asked at a time, of all owners' programs and of one owner's.
const AT_A_TIME: u64 = 4;
const OF_ONE_OWNER: u64 = 2;

/// The questions of all programs.
pub(super) struct Questions {
    server: Arc<dyn Upstream + Send + Sync>,
    places: Budget,
}

/// Those of one owner's programs.
pub(super) struct OwnersQuestions<'q> {
    all: &'q Questions,
    owner: Owner,
}

impl Questions {
    /// To this server.
    pub(super) fn new(server: Arc<dyn Upstream + Send + Sync>) -> Self {
        let limits = Limits::with_any_waiting(AT_A_TIME, OF_ONE_OWNER);
        Self { server, places: Budget::new("upstream_questions", limits) }
    }

    /// What is taken of their places.
    pub(super) fn usage(&self) -> Usage {
        self.places.usage()
    }

    /// Those of an owner's programs.
    pub(super) fn of(&self, owner: Owner) -> OwnersQuestions<'_> {
        OwnersQuestions { all: self, owner }
    }
}

impl Upstream for OwnersQuestions<'_> {
    fn look_up(
        &self,
        keys: &[LedgerKey],
        within: Duration,
    ) -> Result<UpstreamAnswer, UpstreamError> {
        let begun = Instant::now();
        // Saturates: what is asked without a limit waits for a day.
        let until = begun + within.min(Duration::from_secs(24 * 60 * 60));
        let place = self.all.places.take_blocking(Holder::of(&self.owner), 1, Some(until));
        let _place = place.map_err(|_| UpstreamError::Busy)?;
        self.all.server.look_up(keys, within.saturating_sub(begun.elapsed()))
    }
}

/// Refuses all questions: for a turn in which nobody may wait for an answer.
pub(super) struct AskedLater;

impl Upstream for AskedLater {
    fn look_up(&self, _: &[LedgerKey], _: Duration) -> Result<UpstreamAnswer, UpstreamError> {
        Err(UpstreamError::NotNow)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::domain::LedgerSeq;

    /// Answers when as many questions are there as the barrier waits for.
    struct Slow(Barrier);

    impl Upstream for Slow {
        fn look_up(&self, _: &[LedgerKey], _: Duration) -> Result<UpstreamAnswer, UpstreamError> {
            self.0.wait();
            Ok(UpstreamAnswer { as_of: LedgerSeq(1), entries: Vec::new() })
        }
    }

    #[test]
    fn an_owner_does_not_take_all_places() {
        let owner = |name: &str| Owner(name.to_owned());
        let questions = Questions::new(Arc::new(Slow(Barrier::new(AT_A_TIME as usize))));
        let long = Duration::from_secs(60);
        std::thread::scope(|scope| {
            let ask = || questions.of(owner("ana")).look_up(&[], long);
            let anas: Vec<_> = (0..OF_ONE_OWNER).map(|_| scope.spawn(ask)).collect();
            while questions.places.try_take(Holder::of(&owner("ana")), 1).is_ok() {
                std::thread::yield_now();
            }
            // One more of hers has to wait, and those of others do not.
            let refused = questions.of(owner("ana")).look_up(&[], Duration::ZERO);
            assert_eq!(refused, Err(UpstreamError::Busy));
            let of_others = ["bob", "eve"].map(|name| {
                let questions = &questions;
                scope.spawn(move || questions.of(owner(name)).look_up(&[], long))
            });
            for asked in anas.into_iter().chain(of_others) {
                assert!(asked.join().unwrap().is_ok());
            }
        });
    }
}
