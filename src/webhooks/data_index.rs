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

/// How long a ledger has been waited for.
#[derive(Default)]
pub(super) struct DataIndex(Mutex<Option<(LedgerSeq, Instant)>>);

impl DataIndex {
    /// Whether the index has processed a ledger, or deliveries do not wait for it any longer; at once if they
    /// do not need it. Waits for a short time; false: ask again.
    pub fn has(&self, store: &Store, ledger: LedgerSeq, is_needed: impl Fn() -> bool) -> bool {
        let lacks = || store.lacks(CONSUMER, ledger) == Some(true);
        let mut waiting = self.0.lock();
        if !lacks() || !is_needed() {
            *waiting = None;
            return true;
        }
        let since = match *waiting {
            Some((of, since)) if of == ledger => since,
            _ => Instant::now(),
        };
        *waiting = Some((ledger, since));
        if since.elapsed() >= Interfaces::MOST_WAITED_FOR_INDEX {
            return true;
        }
        let until = Instant::now() + WAITED_AT_ONCE;
        while lacks() {
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(LOOK_EVERY);
        }
        *waiting = None;
        true
    }
}
