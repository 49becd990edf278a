//! Data that consumers gather from whole ledgers, beyond what is in stored records. The ledger is
//! decoded when it is prepared for storing; to compute the same later, each consumer would have to
//! decompress and walk its raw form. So the data is gathered during preparation, and kept in memory
//! until the consumer takes it. A consumer that is too late, or that runs after a restart, gathers
//! it from the raw form or reads records instead.

use std::fmt;
use std::ptr;

use orrery_ledger::decode::LedgerView;
use orrery_ledger::domain::LedgerSeq;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Maximum size of all kept values, in bytes: about a thousand ledgers of the public network.
const CAPACITY: u64 = 8 << 20;
/// Typical size of a ledger's value, in bytes; used only to size the table.
const TYPICAL_BYTES: u64 = 2 << 10;
/// Memory overhead of a value, in bytes.
const OVERHEAD: u64 = 64;

/// What a consumer gathers from each ledger.
#[derive(Clone, Copy)]
pub struct Gathers {
    /// The consumer's name.
    pub consumer: &'static str,
    /// Extracts the value from a ledger. The result must depend on the ledger alone.
    pub from: fn(&LedgerView<'_>) -> Vec<u8>,
}

impl fmt::Debug for Gathers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gathers").field(&self.consumer).finish()
    }
}

type Key = (&'static str, LedgerSeq);

/// Values gathered from one ledger, each with the name of its consumer.
pub(crate) type GatheredValues = Vec<(&'static str, Box<[u8]>)>;

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Box<[u8]>> for Weight {
    fn weight(&self, _: &Key, value: &Box<[u8]>) -> u64 {
        OVERHEAD + value.len() as u64
    }
}

/// Gathered values that no consumer has taken yet.
pub(crate) struct Gathered {
    gatherers: Vec<Gathers>,
    cached: Cache<Key, Box<[u8]>, Weight>,
}

impl Gathered {
    pub(crate) fn new(gatherers: Vec<Gathers>) -> Self {
        let cached = Cache::with_weighter((CAPACITY / TYPICAL_BYTES) as usize, CAPACITY, Weight);
        Self { gatherers, cached }
    }

    /// Gathers the values of all consumers from a ledger: once for those that gather the same.
    pub(crate) fn gather(&self, ledger: &LedgerView<'_>) -> GatheredValues {
        let mut gathered = GatheredValues::with_capacity(self.gatherers.len());
        for gathers in &self.gatherers {
            // Functions at one address do the same.
            let is_same = |before: &Gathers| ptr::fn_addr_eq(before.from, gathers.from);
            let before = self.gatherers.iter().position(is_same).and_then(|at| gathered.get(at));
            let value = match before {
                Some((_, value)) => value.clone(),
                None => (gathers.from)(ledger).into_boxed_slice(),
            };
            gathered.push((gathers.consumer, value));
        }
        gathered
    }

    /// Keeps the values gathered from a ledger that is now stored with its raw form.
    pub(crate) fn insert(&self, ledger: LedgerSeq, gathered: GatheredValues) {
        for (consumer, value) in gathered {
            self.cached.insert((consumer, ledger), value);
        }
    }

    pub(crate) fn take(&self, consumer: &'static str, ledger: LedgerSeq) -> Option<Vec<u8>> {
        self.cached.remove(&(consumer, ledger)).map(|(_, value)| value.into_vec())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use orrery_ledger::decode::decode;
    use orrery_testkit::sandbox::local;

    use super::*;
    use crate::sample_ledgers::chain;

    static CALLS: AtomicU32 = AtomicU32::new(0);

    fn counted(_: &LedgerView<'_>) -> Vec<u8> {
        vec![CALLS.fetch_add(1, Ordering::Relaxed) as u8]
    }

    fn other(_: &LedgerView<'_>) -> Vec<u8> {
        b"other".to_vec()
    }

    #[test]
    fn what_several_consumers_gather_is_gathered_once() {
        let of = |consumer, from| Gathers { consumer, from };
        let gatherers = vec![of("a", counted), of("b", other), of("c", counted), of("d", counted)];
        let xdr = chain(1, 1..=2, 1).remove(0);
        let gathered = Gathered::new(gatherers).gather(&decode(&xdr, local().id()).unwrap());
        let expected: [(_, &[u8]); 4] = [("a", &[0]), ("b", b"other"), ("c", &[0]), ("d", &[0])];
        assert_eq!(
            gathered,
            expected.map(|(consumer, value)| (consumer, Box::<[u8]>::from(value)))
        );
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    }
}
