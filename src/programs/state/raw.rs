//! Raw ledgers, read for what they changed, and kept while ledgers near them are asked about.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use super::StateError;
use super::steps::{Clock, Steps};
use crate::decode::ledger_changes;
use crate::domain::LedgerSeq;
use crate::store::Store;

/// How far from a ledger others are read: a public ledger takes some 20 ms, so that looking for one
/// entry in vain takes half a second once, and 20 ms for each ledger that follows.
pub(super) const NEAR: u32 = 12;

/// Ledgers that are kept: those around one, and some that are done with.
const MOST_KEPT: usize = 2 * NEAR as usize + 8;

/// What a whole ledger changed.
pub(super) struct RawLedger {
    pub clock: Clock,
    pub steps: Steps,
    /// XDR `LedgerKey` of what was evicted after all else.
    pub evicted: HashSet<Vec<u8>>,
}

/// Raw ledgers of a store.
pub(super) struct RawLedgers<'s> {
    store: &'s Store,
    kept: RefCell<BTreeMap<LedgerSeq, Rc<RawLedger>>>,
}

impl<'s> RawLedgers<'s> {
    pub fn new(store: &'s Store) -> Self {
        Self { store, kept: RefCell::default() }
    }

    /// What a ledger changed; none when its raw form is not stored.
    pub fn get(&self, ledger: LedgerSeq) -> Result<Option<Rc<RawLedger>>, StateError> {
        if let Some(kept) = self.kept.borrow().get(&ledger) {
            return Ok(Some(Rc::clone(kept)));
        }
        let Some(xdr) = self.store.raw_ledger(ledger)? else { return Ok(None) };
        let changes = ledger_changes(&xdr).map_err(|_| StateError::Damaged(ledger))?;
        let read = Rc::new(RawLedger {
            clock: Clock::of_ledger(&changes),
            steps: Steps::of_ledger(&changes),
            evicted: changes.evicted.iter().map(|key| key.to_ledger_key()).collect(),
        });
        let mut kept = self.kept.borrow_mut();
        kept.insert(ledger, Rc::clone(&read));
        if kept.len() > MOST_KEPT {
            // The one that is furthest from the one that was wanted.
            let furthest = kept.keys().copied().max_by_key(|kept| kept.0.abs_diff(ledger.0));
            furthest.map(|furthest| kept.remove(&furthest));
        }
        Ok(Some(read))
    }

    /// Whether an entry was evicted in one of the ledgers from `first` up to but without `end`; none
    /// when some of them are not stored or they are too many.
    pub fn is_evicted(
        &self,
        ledger_key: &[u8],
        first: LedgerSeq,
        end: LedgerSeq,
    ) -> Result<Option<bool>, StateError> {
        if end.0.saturating_sub(first.0) > NEAR {
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
