//! Reads raw ledgers for the entries they changed, and caches them while nearby ledgers are looked
//! up.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use super::StateError;
use super::changes::{Clock, Steps};
use orrery_ledger::decode::ledger_changes;
use orrery_ledger::domain::LedgerSeq;
use orrery_store::Store;

/// Maximum distance, in ledgers, at which neighbouring raw ledgers are read. Decoding a public
/// ledger takes about 20 ms, so an unsuccessful search costs half a second once, and 20 ms for each
/// ledger that follows.
pub(super) const MAX_DISTANCE: u32 = 12;

/// Maximum number of cached ledgers: those around the current one and a few earlier ones.
const MAX_CACHED_LEDGERS: usize = 2 * MAX_DISTANCE as usize + 8;

/// Changes of a whole ledger.
pub(super) struct RawLedger {
    pub clock: Clock,
    pub steps: Steps,
    /// XDR `LedgerKey`s of the entries evicted at the end of the ledger.
    pub evicted: HashSet<Vec<u8>>,
}

/// The raw ledgers of a store, with a cache of decoded ones.
pub(super) struct RawLedgers<'s> {
    store: &'s Store,
    cache: RefCell<BTreeMap<LedgerSeq, Rc<RawLedger>>>,
}

impl<'s> RawLedgers<'s> {
    pub fn new(store: &'s Store) -> Self {
        Self { store, cache: RefCell::default() }
    }

    /// Returns the changes of a ledger, or `None` when its raw form is not stored.
    pub fn get(&self, ledger: LedgerSeq) -> Result<Option<Rc<RawLedger>>, StateError> {
        if let Some(cached) = self.cache.borrow().get(&ledger) {
            return Ok(Some(Rc::clone(cached)));
        }
        let Some(xdr) = self.store.raw_ledger(ledger).map_err(StateError::store)? else {
            return Ok(None);
        };
        let changes = ledger_changes(&xdr).map_err(|_| StateError::Damaged(ledger))?;
        let read = Rc::new(RawLedger {
            clock: Clock::of_ledger(&changes),
            steps: Steps::of_ledger(&changes),
            evicted: changes.evicted.iter().map(|key| key.to_ledger_key()).collect(),
        });
        let mut cache = self.cache.borrow_mut();
        cache.insert(ledger, Rc::clone(&read));
        if cache.len() > MAX_CACHED_LEDGERS {
            // Evict the ledger furthest from the requested one.
            let furthest = cache.keys().copied().max_by_key(|cached| cached.0.abs_diff(ledger.0));
            furthest.map(|furthest| cache.remove(&furthest));
        }
        Ok(Some(read))
    }

    /// Returns whether an entry was evicted in the ledgers `first..end`, or `None` when one of them
    /// is not stored or there are more than [`MAX_DISTANCE`] of them.
    pub fn is_evicted(
        &self,
        ledger_key: &[u8],
        first: LedgerSeq,
        end: LedgerSeq,
    ) -> Result<Option<bool>, StateError> {
        if end.0.saturating_sub(first.0) > MAX_DISTANCE {
            return Ok(None);
        }
        for ledger in (first.0..end.0).map(LedgerSeq) {
            match self.get(ledger)? {
                None => return Ok(None),
                Some(raw) if raw.evicted.contains(ledger_key) => return Ok(Some(true)),
                Some(_) => {}
            }
        }
        Ok(Some(false))
    }
}
