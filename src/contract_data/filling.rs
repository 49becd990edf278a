//! Adds the rows of stored ledgers for contracts that are watched from now on.
//!
//! A pass over the stored ledgers does it for all contracts that wait when it begins, from the first ledger on
//! that may say anything of one of them. Those that come later wait for the next one, and have it in common:
//! passes never overlap, and what a step of one costs does not grow with the number of contracts that come
//! and go.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, LedgerSet};
use orrery_store::{Evicted, Mark, RowBounds, Store, StoreError};

use super::consumer::{Changed, read};
use super::rows::CONSUMER;
use super::scope::{CONTRACTS_AT_ONCE, MISSING, PASS, WATCHED, Watch, WatchState};
use super::seen::Seen;

/// Number of ledgers that one call of [`fill_some`] reads.
const LEDGERS_AT_ONCE: usize = 64;
/// Number of changes from which on it reads no further ledger.
const MOST_CHANGES: usize = 20_000;

/// What is left to fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filling {
    /// Nothing.
    Done,
    /// A pass over the stored ledgers is under way.
    GoesOn,
    /// A pass has ended. Others may be waiting for the next one.
    Ended,
}

/// Adds the rows of some stored ledgers for contracts that are watched and lack them. To be called by one
/// thread at a time.
///
/// # Errors
/// Errors of the database, that a transaction is damaged, or that there is no index.
pub fn fill_some(store: &Arc<Store>) -> Result<Filling, StoreError> {
    let Some(pass) = Pass::under_way(store)? else { return Ok(Filling::Done) };
    let ledgers = stored_from(store, pass.next);
    let (mut rows, mut changes) = (Vec::with_capacity(ledgers.len()), 0);
    for ledger in &ledgers {
        let mut seen = read(store, *ledger)?;
        seen.retain(|seen| pass.contracts.contains(&seen.contract));
        let mut evicted = store.evicted(*ledger)?.unwrap_or_default();
        evicted.retain(|evicted| pass.contracts.contains(&evicted.contract));
        changes += seen.len() + evicted.len();
        rows.push(OfLedger { ledger: *ledger, seen, evicted });
        if changes >= MOST_CHANGES {
            break;
        }
    }
    let is_over = ledgers.len() < LEDGERS_AT_ONCE && rows.len() == ledgers.len();
    pass.write(store, rows)?;
    if !is_over {
        return Ok(Filling::GoesOn);
    }
    set_states(store, WatchState::Filling, WatchState::Filled)?;
    store.change_consumer_rows(CONSUMER, |effects| PASS.delete(effects, &Mark))?;
    store.end_generation();
    Ok(Filling::Ended)
}

/// What a ledger says of the contracts that lack rows.
struct OfLedger {
    ledger: LedgerSeq,
    seen: Vec<Seen>,
    evicted: Vec<Evicted>,
}

/// A pass over the stored ledgers.
struct Pass {
    contracts: BTreeSet<ContractId>,
    /// The first ledger that it has not read.
    next: LedgerSeq,
}

impl Pass {
    /// Returns the pass that is under way. Begins one if there is none and contracts wait.
    fn under_way(store: &Store) -> Result<Option<Self>, StoreError> {
        loop {
            let view = store.consumer_view(CONSUMER, RowBounds::none())?;
            let next = PASS.get(&view, &Mark)?;
            let wanted = |state| match next {
                Some(_) => state == WatchState::Filling,
                // Those of a pass that a kill has kept from beginning wait, too.
                None => matches!(state, WatchState::Waiting | WatchState::Filling),
            };
            let (mut contracts, mut first) = (BTreeSet::new(), LedgerSeq(u32::MAX));
            WATCHED.scan_all(&view, None, |contract, watch| {
                if wanted(watch.state) {
                    contracts.insert(contract);
                    first = first.min(watch.first);
                }
                Ok(ControlFlow::Continue(()))
            })?;
            drop(view);
            match next {
                Some(next) if !contracts.is_empty() => return Ok(Some(Self { contracts, next })),
                // Nobody watches its contracts any more.
                Some(_) => {
                    store.change_consumer_rows(CONSUMER, |effects| PASS.delete(effects, &Mark))?;
                }
                None if contracts.is_empty() => return Ok(None),
                None => {
                    set_states(store, WatchState::Waiting, WatchState::Filling)?;
                    store.change_consumer_rows(CONSUMER, move |effects| {
                        PASS.put(effects, &Mark, &first)
                    })?;
                    return Ok(Some(Self { contracts, next: first }));
                }
            }
        }
    }

    /// Writes what ledgers say, and that they were read.
    fn write(self, store: &Arc<Store>, rows: Vec<OfLedger>) -> Result<(), StoreError> {
        let Self { contracts, next } = self;
        let next = rows.last().and_then(|last| last.ledger.next()).unwrap_or(next);
        let own = Arc::clone(store);
        store.change_consumer_rows(CONSUMER, move |effects| {
            let mut missing = LedgerSet::default();
            for OfLedger { ledger, seen, evicted } in &rows {
                // What was read is complete only if nothing has been removed since. While rows are
                // changed, nothing is.
                if !own.has_all_transactions(*ledger)? {
                    missing.insert(LedgerRange { first: *ledger, last: *ledger });
                    continue;
                }
                let mut changed = Changed::default();
                seen.iter().try_for_each(|seen| changed.add(effects, *ledger, seen))?;
                for evicted in evicted {
                    changed.add_evicted(effects, *ledger, evicted)?;
                }
                changed.write(effects)?;
            }
            for LedgerRange { first, last } in missing.ranges() {
                for contract in &contracts {
                    MISSING.put(effects, &(*contract, *first), last)?;
                }
            }
            PASS.put(effects, &Mark, &next)
        })
    }
}

/// Gives all contracts of one state another one.
fn set_states(store: &Store, from: WatchState, to: WatchState) -> Result<(), StoreError> {
    let mut found = Vec::new();
    let view = store.consumer_view(CONSUMER, RowBounds::none())?;
    WATCHED.scan_all(&view, None, |contract, watch| {
        if watch.state == from {
            found.push((contract, Watch { state: to, ..watch }));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    drop(view);
    for some in found.chunks(CONTRACTS_AT_ONCE) {
        let some = some.to_vec();
        store.change_consumer_rows(CONSUMER, move |effects| {
            some.iter().try_for_each(|(contract, watch)| WATCHED.put(effects, contract, watch))
        })?;
    }
    Ok(())
}

/// Returns the next stored ledgers, ascending.
fn stored_from(store: &Store, next: LedgerSeq) -> Vec<LedgerSeq> {
    let stored = LedgerSet::from(store.status().ranges);
    let from = LedgerRange { first: next, last: LedgerSeq(u32::MAX) };
    let within = stored.within(from);
    let ledgers = within.ranges().iter().flat_map(|range| range.first.0..=range.last.0);
    ledgers.take(LEDGERS_AT_ONCE).map(LedgerSeq).collect()
}
