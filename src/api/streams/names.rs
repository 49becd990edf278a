//! Names of the events of one stream. An event is sent once, so it is held back while its name is stored
//! and not at hand: for a bounded time, after which it is sent as it is and says so.

use std::time::Duration;

use tokio::time::Instant;

use orrery_executables::{Interfaces, Lacking};
use orrery_ledger::domain::{EventId, LedgerSeq};

/// Messages of a stream, as read from the store.
pub(super) struct Piece {
    pub text: Vec<u8>,
    /// Id up to which the messages are complete.
    pub reached: EventId,
    /// Ledger of the last event that was read, if one was.
    pub ledger: Option<LedgerSeq>,
    /// What their names lack although it is stored.
    pub lacking: Lacking,
}

/// The wait for the names of a stream's events.
#[derive(Default)]
pub(super) struct Names {
    /// What the next piece lacked when it was read, and since when it is waited for.
    awaited: Option<(Lacking, Instant)>,
    /// Whether the index was waited for in vain, and has not caught up since.
    goes_on_without_index: bool,
}

impl Names {
    /// Returns what is to be waited for before the next piece is read, and until when; `None` when it
    /// is there, or was waited for long enough.
    pub fn begin_waiting(&mut self, interfaces: &Interfaces) -> Option<(Lacking, Instant)> {
        if self.awaited.is_none() {
            // The index is about to process the newest ledger: one read less.
            let place = interfaces.store().last_place();
            let is_soon = !self.goes_on_without_index && interfaces.will_soon_index(place);
            self.awaited = is_soon.then(|| (Lacking::up_to(place), Instant::now()));
        }
        let (lacking, since) = self.awaited.as_ref()?;
        let until = *since + patience(lacking);
        let is_over = Instant::now() >= until || interfaces.has(lacking);
        (!is_over).then(|| (lacking.clone(), until))
    }

    /// Returns whether a piece that was just read is not sent, but read again later, because its names
    /// lack this.
    pub fn holds_back(&mut self, lacking: Lacking) -> bool {
        self.goes_on_without_index &= lacking.has_ledgers();
        let lacking = match self.goes_on_without_index {
            true => lacking.without_ledgers(),
            false => lacking,
        };
        let since = self.awaited.take().map_or_else(Instant::now, |(_, since)| since);
        if lacking.is_empty() {
            return false;
        }
        let is_held = Instant::now() < since + patience(&lacking);
        if is_held {
            self.awaited = Some((lacking, since));
        } else {
            self.goes_on_without_index |= lacking.has_ledgers();
        }
        is_held
    }
}

fn patience(lacking: &Lacking) -> Duration {
    match lacking.has_ledgers() {
        true => Interfaces::MOST_WAITED_FOR_INDEX,
        false => Interfaces::MOST_WAITED,
    }
}
