//! Removes the rows of contracts that nobody watches any more. That nothing is known of them is written
//! before (`scope`), so a kill at any moment leaves no rows that answer, and the rest is removed after it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::{ConsumerView, RowBounds, RowCodec, Rows, RowsMut, Store, StoreError};

use super::found::{CHECKED, FOUND};
use super::rows::{CHANGED, CONSUMER, CREATED, EVICTED, KEPT, KEYS, NAMES};
use super::scope::{MISSING, WATCHED, WatchState};

/// Families of rows whose keys begin with a contract.
pub(super) const BY_CONTRACT: [&str; 8] = [
    KEYS.family,
    CREATED.family,
    CHANGED.family,
    EVICTED.family,
    NAMES.family,
    KEPT.family,
    CHECKED.family,
    MISSING.family,
];

/// Number of rows that one call of [`remove_some`] reads.
const ROWS_AT_ONCE: usize = 10_000;
/// Number of rows under one prefix from which on they are removed by their range: readers pass over each
/// such range, so there must not be one for a few rows.
const MOST_SINGLE: usize = 1000;

/// Removes some rows of contracts that nobody watches any more. Returns whether there is more to do. To be
/// called by the thread that fills.
///
/// # Errors
/// Errors of the database, or that there is no index.
pub fn remove_some(store: &Store) -> Result<bool, StoreError> {
    remove_up_to(store, ROWS_AT_ONCE)
}

/// As [`remove_some`], with another number of rows.
pub(super) fn remove_up_to(store: &Store, rows: usize) -> Result<bool, StoreError> {
    let view = store.consumer_view(CONSUMER, RowBounds::none())?;
    let mut piece = Piece { left: rows.max(1), ..Piece::default() };
    let ledgers = checkpoints_with_rows(&view)?;
    let is_cut = WATCHED.scan_all(&view, None, |contract, watch| {
        if watch.state == WatchState::Leaving {
            piece.add(&view, contract, &ledgers)?;
        }
        let is_over = piece.left == 0;
        Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    drop(view);
    let Piece { prefixes, single, done, .. } = piece;
    if prefixes.is_empty() && single.is_empty() && done.is_empty() {
        return Ok(false);
    }
    store.change_consumer_rows(CONSUMER, move |effects| {
        for ((family, prefix), end) in &prefixes {
            effects.delete_range(family, prefix, end)?;
        }
        for (family, key) in single {
            effects.delete(family, key)?;
        }
        done.iter().try_for_each(|contract| WATCHED.delete(effects, contract))
    })?;
    Ok(is_cut)
}

/// What is removed with one write.
#[derive(Default)]
struct Piece {
    /// Number of rows that may still be read for it.
    left: usize,
    /// All rows of a family under a prefix, up to a key.
    prefixes: BTreeMap<(&'static str, Vec<u8>), Vec<u8>>,
    /// Single rows.
    single: Vec<(&'static str, Vec<u8>)>,
    /// Contracts that have no rows left.
    done: Vec<ContractId>,
}

impl Piece {
    /// Adds the rows of a contract, or as many as may be read.
    fn add(
        &mut self,
        view: &ConsumerView<'_>,
        contract: ContractId,
        ledgers: &[LedgerSeq],
    ) -> Result<(), StoreError> {
        let of_contract = BY_CONTRACT.map(|family| (family, contract.encode()));
        let found = ledgers.iter().map(|at| (FOUND.family, (*at, contract).encode()));
        for (family, prefix) in of_contract.into_iter().chain(found) {
            if !self.add_prefix(view, family, prefix)? {
                return Ok(());
            }
        }
        self.done.push(contract);
        // Many contracts without rows are work, too.
        self.left = self.left.saturating_sub(1);
        Ok(())
    }

    /// Adds the rows under a prefix. Returns false when no more may be read, and some may be left.
    fn add_prefix(
        &mut self,
        view: &ConsumerView<'_>,
        family: &'static str,
        prefix: Vec<u8>,
    ) -> Result<bool, StoreError> {
        let (most, mut keys) = (self.left.min(MOST_SINGLE), Vec::new());
        let is_cut = view.scan_prefix(family, &prefix, &[], &mut |rest, _| {
            if keys.len() == most {
                return Ok(ControlFlow::Break(()));
            }
            keys.push([&prefix, rest].concat());
            Ok(ControlFlow::Continue(()))
        })?;
        self.left -= keys.len();
        match is_cut.is_break() && most == MOST_SINGLE {
            true => {
                let end = after(&prefix);
                self.prefixes.insert((family, prefix), end);
                Ok(true)
            }
            false => {
                self.single.extend(keys.into_iter().map(|key| (family, key)));
                Ok(is_cut.is_continue())
            }
        }
    }
}

/// Returns the ledgers of all checkpoints of which there are rows.
fn checkpoints_with_rows(view: &ConsumerView<'_>) -> Result<Vec<LedgerSeq>, StoreError> {
    let (mut ledgers, mut from) = (Vec::new(), Vec::new());
    loop {
        let mut first = None;
        let read = &mut |key: &[u8], _: &[u8]| {
            first = LedgerSeq::read(&mut &key[..]);
            Ok(ControlFlow::Break(()))
        };
        view.scan_prefix(FOUND.family, &[], &from, read).map(drop)?;
        let Some(ledger) = first else { return Ok(ledgers) };
        ledgers.push(ledger);
        let Some(next) = ledger.next() else { return Ok(ledgers) };
        from = next.encode();
    }
}

/// Returns the first key after all that begin with a prefix.
fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    // Only bytes of 255: no key of the index is as long.
    vec![u8::MAX; 256]
}
