//! How far the index has processed the ledgers, and waits for it.

use std::time::{Duration, Instant};

use super::consumer::CONSUMER;
use super::interfaces::Interfaces;

/// Number of ledgers by which the index is too far behind for a wait.
const FAR_BEHIND: u64 = 16;

/// Outcome of a wait for the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// It has processed the ledgers.
    Indexed,
    /// It is about to.
    NotYet,
    /// It does not advance.
    Stuck,
}

impl Interfaces {
    /// [`Self::most_waited`] of a service.
    pub const MOST_WAITED: Duration = Duration::from_secs(1);

    /// How long something that needs no answer at once waits for the index at most before it goes on
    /// without names, until the index has caught up: some thousand ledgers, as after a start.
    pub const MOST_WAITED_FOR_INDEX: Duration = Duration::from_secs(10);

    /// How long something that needs no answer at once waits for names. Tests that advance the index
    /// themselves would wait in vain.
    pub fn most_waited(&self) -> Duration {
        self.most_waited
    }

    /// Whether the index has processed all ledgers up to a place, or there is none.
    pub fn has_indexed(&self, place: u64) -> bool {
        self.index_place().is_none_or(|reached| reached >= place)
    }

    /// Returns the place in the feed up to which the index has processed all ledgers.
    fn index_place(&self) -> Option<u64> {
        self.store().consumer(CONSUMER).map(|it| it.place)
    }

    /// Whether the index has not processed all ledgers up to a place, and is about to.
    pub fn will_soon_index(&self, place: u64) -> bool {
        let index = self.store().consumer(CONSUMER);
        index.is_some_and(|it| it.place < place && it.place + FAR_BEHIND > place)
    }

    /// Waits until the index has processed the ledgers up to a place in the feed, for a second at most,
    /// and not at all while it is far behind. Without it, names are missing.
    pub fn wait_until_indexed(&self, place: u64) {
        if self.will_soon_index(place) {
            self.wait_for_index(place, self.most_waited);
        }
    }

    /// Waits until the index has processed the ledgers up to a place in the feed: at most this long, and
    /// not longer than a second while it does not advance.
    pub fn wait_while_indexing(&self, place: u64, most: Duration) -> Waited {
        let until = Instant::now() + most;
        loop {
            let before = self.index_place();
            let left = until.saturating_duration_since(Instant::now());
            if self.wait_for_index(place, left.min(self.most_waited)) {
                return Waited::Indexed;
            }
            if left >= self.most_waited && self.index_place() == before {
                return Waited::Stuck;
            }
            if Instant::now() >= until {
                return Waited::NotYet;
            }
        }
    }

    /// Waits until the index has processed the ledgers up to a place in the feed, at most this long.
    /// Returns whether it has.
    fn wait_for_index(&self, place: u64, most: Duration) -> bool {
        self.knowledge.wait_until(|| self.has_indexed(place), most)
    }
}
