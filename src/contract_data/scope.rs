//! Of which contracts it is recorded what they hold: all, or those that somebody watches. One that is
//! watched from now on gets the rows of the ledgers that are stored already (`filling`); until it has them,
//! nothing is known of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, LedgerSet};
use orrery_store::{Mark, RowBounds, RowCodec, Rows, Store, StoreError, Table, row_codec};

use super::rows::CONSUMER;

/// Whose rows there are. Without a row: those of all contracts.
pub(super) const SCOPE: Table<Mark<0>, Scope> = Table::new("scope");
/// Contracts that are watched.
pub(super) const WATCHED: Table<ContractId, Watched> = Table::new("watched");
/// Stored ledgers of which a contract has no rows, because their transactions were removed before the
/// contract was watched: first and last one.
pub(super) const MISSING: Table<(ContractId, LedgerSeq), LedgerSeq> = Table::new("missing");

/// Families of the rows above.
pub(super) const FAMILIES: [&str; 3] = [SCOPE.family, WATCHED.family, MISSING.family];

/// Of which contracts it is recorded what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// All contracts.
    #[default]
    All,
    /// Those that somebody watches.
    Watched,
}

row_codec!(enum Scope);

impl Scope {
    const ALL: [Self; 2] = [Self::All, Self::Watched];
}

/// A contract that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Watched {
    /// Whether it has the rows of all ledgers that were stored before.
    pub is_filled: bool,
    /// The first ledger whose rows it may lack.
    pub next: LedgerSeq,
}

row_codec!(Watched { is_filled, next });

/// Returns of which contracts rows are recorded.
///
/// # Errors
/// Errors of the database, or that there is no index.
pub fn scope(store: &Store) -> Result<Scope, StoreError> {
    scope_in(&store.consumer_view(CONSUMER, RowBounds::none())?)
}

pub(super) fn scope_in(rows: &dyn Rows) -> Result<Scope, StoreError> {
    Ok(SCOPE.get(rows, &Mark)?.unwrap_or_default())
}

/// Makes the index record these contracts. Where it has recorded others so far, it begins again: what it
/// knows from removed ledgers and from checkpoints goes. Returns whether it does.
///
/// # Errors
/// Errors of the database, or that there is no index.
pub fn set_scope(store: &Store, wanted: Scope) -> Result<bool, StoreError> {
    if scope(store)? == wanted {
        return Ok(false);
    }
    store.begin_again(CONSUMER)?;
    store.change_consumer_rows(CONSUMER, move |effects| SCOPE.put(effects, &Mark, &wanted))?;
    Ok(true)
}

/// Watches contracts, each with the first ledger that may say anything of it. Those that are watched already
/// stay as they are.
///
/// # Errors
/// Errors of the database, or that there is no index.
pub fn watch(store: &Store, contracts: &BTreeMap<ContractId, LedgerSeq>) -> Result<(), StoreError> {
    let new = unwatched(store, contracts.keys().copied())?;
    if new.is_empty() {
        return Ok(());
    }
    let first = |contract: &ContractId| contracts.get(contract).copied().unwrap_or_default();
    let new: Vec<_> = new.iter().map(|contract| (*contract, first(contract))).collect();
    store.change_consumer_rows(CONSUMER, move |effects| {
        new.iter().try_for_each(|(contract, first)| {
            let row = Watched { is_filled: false, next: *first };
            WATCHED.put_new(effects, contract, &row).map(drop)
        })
    })
}

/// Returns those of these contracts that are not watched.
///
/// # Errors
/// Errors of the database, or that there is no index.
pub fn unwatched(
    store: &Store,
    contracts: impl IntoIterator<Item = ContractId>,
) -> Result<Vec<ContractId>, StoreError> {
    let view = store.consumer_view(CONSUMER, RowBounds::none())?;
    let mut new = Vec::new();
    for contract in contracts {
        if !WATCHED.has(&view, &contract)? {
            new.push(contract);
        }
    }
    Ok(new)
}

/// Returns the contracts that are watched and have all their rows.
///
/// # Errors
/// Errors of the database, or that there is no index.
pub fn watched(store: &Store) -> Result<BTreeSet<ContractId>, StoreError> {
    let view = store.consumer_view(CONSUMER, RowBounds::none())?;
    let mut all = BTreeSet::new();
    WATCHED.scan_all(&view, None, |contract, row| {
        if row.is_filled {
            all.insert(contract);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(all)
}

/// Whether all of these contracts are recorded, with the rows of the ledgers that were stored before.
///
/// # Errors
/// Errors of the database, or that there is no index.
pub fn are_recorded<'c>(
    store: &Store,
    contracts: impl IntoIterator<Item = &'c ContractId>,
) -> Result<bool, StoreError> {
    let view = store.consumer_view(CONSUMER, RowBounds::none())?;
    if scope_in(&view)? == Scope::All {
        return Ok(true);
    }
    for contract in contracts {
        if !WATCHED.get(&view, contract)?.is_some_and(|row| row.is_filled) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes from the ledgers of which all changes of a contract's data are stored those of which it has no
/// rows.
pub(super) fn leave_out(
    rows: &dyn Rows,
    contract: &ContractId,
    known: &mut LedgerSet,
) -> Result<(), StoreError> {
    if !WATCHED.get(rows, contract)?.is_some_and(|row| row.is_filled) {
        *known = LedgerSet::default();
        return Ok(());
    }
    MISSING.scan(rows, contract, None, |(_, first), last| {
        known.remove_all(&LedgerRange { first, last }.into());
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(())
}

/// Which contracts get rows, within one ledger.
pub(super) struct Recorded {
    scope: Scope,
    asked: BTreeMap<ContractId, bool>,
}

impl Recorded {
    /// Reads whose rows there are.
    pub fn load(rows: &dyn Rows) -> Result<Self, StoreError> {
        Ok(Self { scope: scope_in(rows)?, asked: BTreeMap::new() })
    }

    /// Whether a contract gets rows.
    pub fn has(&mut self, rows: &dyn Rows, contract: &ContractId) -> Result<bool, StoreError> {
        if self.scope == Scope::All {
            return Ok(true);
        }
        if let Some(known) = self.asked.get(contract) {
            return Ok(*known);
        }
        let is_watched = WATCHED.has(rows, contract)?;
        self.asked.insert(*contract, is_watched);
        Ok(is_watched)
    }
}
