//! The index of contract data, as far as deliveries wait for it: for a bounded time, after which they are made
//! with what the transactions say.

use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use orrery_contract_data::CONSUMER;
use orrery_executables::Interfaces;
use orrery_ledger::domain::LedgerSeq;
use orrery_store::Store;

/// How long new deliveries wait for the index at once, and how often they look.
const WAITED_AT_ONCE: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What new deliveries have seen of the index.
#[derive(Default)]
pub(super) struct DataIndex(Mutex<Seen>);

#[derive(Default)]
enum Seen {
    /// It had their ledgers.
    #[default]
    CaughtUp,
    /// They wait for it since then.
    Behind(Instant),
    /// They have waited in vain, and do not until it has caught up.
    TooSlow,
}

impl DataIndex {
    /// Whether the index has processed a ledger, or deliveries do not wait for it any longer; at once if they
    /// do not need it. Waits for a short time; false: ask again.
    pub fn has(&self, store: &Store, ledger: LedgerSeq, is_needed: impl Fn() -> bool) -> bool {
        let lacks = || store.lacks(CONSUMER, ledger) == Some(true);
        let mut seen = self.0.lock();
        if !lacks() || !is_needed() {
            *seen = Seen::CaughtUp;
            return true;
        }
        let since = match *seen {
            Seen::TooSlow => return true,
            Seen::Behind(since) => since,
            Seen::CaughtUp => Instant::now(),
        };
        if since.elapsed() >= Interfaces::MOST_WAITED_FOR_INDEX {
            *seen = Seen::TooSlow;
            return true;
        }
        *seen = Seen::Behind(since);
        let until = Instant::now() + WAITED_AT_ONCE;
        while lacks() {
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(LOOK_EVERY);
        }
        *seen = Seen::CaughtUp;
        true
    }
}
