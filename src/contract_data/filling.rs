//! Adds the rows of stored ledgers for contracts that are watched from now on.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, LedgerSet};
use orrery_store::{Evicted, RowBounds, Store, StoreError};

use super::consumer::{Changed, read};
use super::rows::CONSUMER;
use super::scope::{MISSING, WATCHED, Watched};
use super::seen::Seen;

/// Number of ledgers that one call of [`fill_some`] reads.
const LEDGERS_AT_ONCE: usize = 64;
/// Number of changes from which on it reads no further ledger.
const MOST_CHANGES: usize = 20_000;

/// Adds the rows of some stored ledgers for contracts that are watched and lack them. Returns whether there
/// is more to do. To be called by one thread at a time.
///
/// # Errors
/// Errors of the database, that a transaction is damaged, or that there is no index.
pub fn fill_some(store: &Arc<Store>) -> Result<bool, StoreError> {
    let Some((contracts, next)) = unfilled(store)? else { return Ok(false) };
    let ledgers = stored_from(store, next);
    let (mut rows, mut changes) = (Vec::with_capacity(ledgers.len()), 0);
    for ledger in &ledgers {
        let mut seen = read(store, *ledger)?;
        seen.retain(|seen| contracts.contains(&seen.contract));
        let mut evicted = store.evicted(*ledger)?.unwrap_or_default();
        evicted.retain(|evicted| contracts.contains(&evicted.contract));
        changes += seen.len() + evicted.len();
        rows.push(OfLedger { ledger: *ledger, seen, evicted });
        if changes >= MOST_CHANGES {
            break;
        }
    }
    let is_over = ledgers.len() < LEDGERS_AT_ONCE && rows.len() == ledgers.len();
    let next = rows.last().and_then(|last| last.ledger.next()).unwrap_or(next);
    let own = Arc::clone(store);
    store.change_consumer_rows(CONSUMER, move |effects| {
        for OfLedger { ledger, seen, evicted } in &rows {
            // What was read is complete only if nothing has been removed since. While rows are changed,
            // nothing is.
            if !own.has_all_transactions(*ledger)? {
                for contract in &contracts {
                    MISSING.put(effects, &(*contract, *ledger), ledger)?;
                }
                continue;
            }
            let mut changed = Changed::default();
            seen.iter().try_for_each(|seen| changed.add(effects, *ledger, seen))?;
            for evicted in evicted {
                changed.add_evicted(effects, *ledger, evicted)?;
            }
            changed.write(effects)?;
        }
        for contract in &contracts {
            WATCHED.put(effects, contract, &Watched { is_filled: is_over, next })?;
        }
        Ok::<_, StoreError>(())
    })?;
    if is_over {
        store.end_generation();
    }
    Ok(!is_over)
}

/// What a ledger says of the contracts that lack rows.
struct OfLedger {
    ledger: LedgerSeq,
    seen: Vec<Seen>,
    evicted: Vec<Evicted>,
}

/// Returns the contracts whose rows are the nearest to complete, and the first ledger of which they lack
/// some. Those that come later wait, and begin together, so that nobody holds up others by watching more.
fn unfilled(store: &Store) -> Result<Option<(BTreeSet<ContractId>, LedgerSeq)>, StoreError> {
    let view = store.consumer_view(CONSUMER, RowBounds::none())?;
    let mut found: Option<(BTreeSet<ContractId>, LedgerSeq)> = None;
    WATCHED.scan_all(&view, None, |contract, Watched { is_filled, next }| {
        if !is_filled {
            match &mut found {
                Some((contracts, first)) if *first == next => drop(contracts.insert(contract)),
                Some((_, first)) if *first > next => {}
                _ => found = Some((BTreeSet::from([contract]), next)),
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Returns the next stored ledgers, ascending.
fn stored_from(store: &Store, next: LedgerSeq) -> Vec<LedgerSeq> {
    let stored = LedgerSet::from(store.status().ranges);
    let from = LedgerRange { first: next, last: LedgerSeq(u32::MAX) };
    let within = stored.within(from);
    let ledgers = within.ranges().iter().flat_map(|range| range.first.0..=range.last.0);
    ledgers.take(LEDGERS_AT_ONCE).map(LedgerSeq).collect()
}
