//! Which declarations events have that take long to compare. Pages, streams, webhooks and tables look
//! for each once.

use quick_cache::sync::Cache;
use stellar_xdr::ScVal;

use orrery_interfaces::{Found, Interface, found_counted};
use orrery_ledger::domain::Hash32;

/// Number of events that are kept: some 8 MiB.
const CAPACITY: usize = 1 << 16;
/// Steps from which on an event is kept. Fewer take no longer than looking it up.
const COSTLY: u64 = 64;

/// An interface by the SHA-256 of its module or file, and the id of an event in the store.
type Key = (Hash32, u64);

/// Declarations that were found for events, or that there is none.
pub struct Findings(Cache<Key, Option<Found>>);

impl Default for Findings {
    fn default() -> Self {
        Self(Cache::new(CAPACITY))
    }
}

impl Findings {
    /// Returns which declaration of an interface an event of the store has.
    pub fn find(
        &self,
        (hash, interface): (Hash32, &Interface),
        event: u64,
        topics: &[ScVal],
        data: &ScVal,
    ) -> Option<Found> {
        let key = (hash, event);
        if let Some(found) = self.0.get(&key) {
            return found;
        }
        let (found, steps) = found_counted(interface, topics, data);
        if steps.0 >= COSTLY {
            self.0.insert(key, found);
        }
        found
    }
}
