//! Changes of contract data ledger by ledger, for whoever keeps them in another form.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use orrery_ledger::decode::{EntryKind, transaction_changes};
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq, Page};
use orrery_store::{
    Bounds, ConsumerView, RowBounds, Store, StoreError, TransactionPosition, TransactionQuery,
    TransactionRecord,
};

use super::changes::{Unreadable, data_changes, hash_of};
use super::consumer::read;
use super::history::Past;
use super::lookup::Lookup;
use super::rows::{CHANGED, CONSUMER, KEYS, KeyTag};

/// What the transactions of a ledger changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllChanged {
    /// Contracts, each with the keys whose entry or time to live was changed.
    pub keys: BTreeMap<ContractId, BTreeSet<KeyTag>>,
    /// Entries by which contracts may live beside their own: modules, and entries to which instances refer
    /// (CAP-85).
    pub shared: BTreeSet<KeyTag>,
}

/// Returns what the transactions of a ledger changed, whatever contract it belongs to, as their metadata says.
///
/// # Errors
/// Errors of the database, or that a transaction is damaged.
pub fn all_changed_in(store: &Store, ledger: LedgerSeq) -> Result<AllChanged, StoreError> {
    let mut all = AllChanged::default();
    let query = TransactionQuery {
        ledgers: Some(LedgerRange::only(ledger)),
        contracts: Vec::new(),
        page: Page::all(),
    };
    let walked = store.transactions_within(&query, Bounds::NONE, |record| {
        match all.add(record).map_err(|error| error.at(record.position)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    })?;
    walked.broken_off.map_or(Ok(all), Err)
}

impl AllChanged {
    fn add(&mut self, record: &TransactionRecord<'_>) -> Result<(), Unreadable> {
        if !record.successful {
            return Ok(());
        }
        let data = data_changes(record.meta, record.envelope)?;
        for (hash, change) in &data {
            let tag = KeyTag::of(hash);
            self.keys.entry(change.key.contract()).or_default().insert(tag);
            if change.key.entry_key().is_executable_tag() {
                self.shared.insert(tag);
            }
        }
        let changes = transaction_changes(record.meta);
        let changes = changes.map_err(|error| Unreadable(format!("its metadata: {error}")))?;
        for change in &changes.operations {
            match change.key.kind {
                EntryKind::Ttl => {
                    let hash = change.key.body.first_chunk().copied().map(Hash32);
                    let of_code = hash.filter(|hash| !data.contains_key(hash));
                    self.shared.extend(of_code.map(|hash| KeyTag::of(&hash)));
                }
                EntryKind::ContractCode => {
                    self.shared.insert(KeyTag::of(&hash_of(&change.key)));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns those of these contracts whose data a ledger has changed, each with the positions of the
/// transactions that did, in apply order, and the position after all of them if it evicted some. The index
/// must have processed the ledger.
///
/// # Errors
/// Errors of the database, or that there is no index.
pub fn changed_in(
    store: &Store,
    ledger: LedgerSeq,
    contracts: &[ContractId],
) -> Result<Vec<(ContractId, Vec<TransactionPosition>)>, StoreError> {
    let view = store.consumer_view(CONSUMER, RowBounds::none())?;
    let mut changed = Vec::new();
    for contract in contracts {
        let positions = positions(&view, contract, ledger)?;
        if !positions.is_empty() {
            changed.push((*contract, positions));
        }
    }
    Ok(changed)
}

/// Returns the contracts whose data a ledger may have changed, by id, as its stored transactions and its evictions
/// say. Which of them have, [`changed_in`] says.
///
/// # Errors
/// Errors of the database, or that a transaction is damaged.
pub fn contracts_changed_in(
    store: &Store,
    ledger: LedgerSeq,
) -> Result<Vec<ContractId>, StoreError> {
    let seen = read(store, ledger)?;
    let changed = seen.iter().filter(|seen| seen.is_change).map(|seen| seen.contract);
    let evicted = store.evicted(ledger)?.unwrap_or_default();
    let mut contracts: Vec<ContractId> =
        changed.chain(evicted.iter().map(|evicted| evicted.contract)).collect();
    contracts.sort_unstable();
    contracts.dedup();
    Ok(contracts)
}

/// Returns the next ledgers after one that have changed data of a contract, ascending, at most so many.
///
/// # Errors
/// Errors of the database, or that there is no index.
pub fn ledgers_that_changed(
    store: &Store,
    contract: &ContractId,
    after: Option<LedgerSeq>,
    most: usize,
) -> Result<Vec<LedgerSeq>, StoreError> {
    let view = store.consumer_view(CONSUMER, RowBounds::none())?;
    let (mut ledgers, first) = (Vec::new(), after.map_or(Some(LedgerSeq(0)), LedgerSeq::next));
    let Some(ledger) = first else { return Ok(ledgers) };
    let from = (*contract, TransactionPosition { ledger, application_order: 0 });
    CHANGED.scan(&view, contract, Some(&from), |(_, at), ()| {
        if ledgers.last() != Some(&at.ledger) {
            if ledgers.len() >= most {
                return Ok(ControlFlow::Break(()));
            }
            ledgers.push(at.ledger);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(ledgers)
}

fn positions(
    view: &ConsumerView<'_>,
    contract: &ContractId,
    ledger: LedgerSeq,
) -> Result<Vec<TransactionPosition>, StoreError> {
    let mut positions = Vec::new();
    let first = (*contract, TransactionPosition { ledger, application_order: 0 });
    CHANGED.scan(view, contract, Some(&first), |(_, at), ()| {
        if at.ledger != ledger {
            return Ok(ControlFlow::Break(()));
        }
        positions.push(at);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(positions)
}

impl Lookup<'_> {
    /// Returns the changes of a contract's data at one position of this ledger, ordered by the hashes of
    /// the keys: those of a transaction, or the evictions of the ledger. Of what is not known, more may
    /// become known with further ledgers. `None` when the ledger is not complete for the contract.
    ///
    /// # Errors
    /// Errors of the database, or that stored bytes are damaged.
    pub fn changes_at(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
    ) -> Result<Option<Vec<Past>>, StoreError> {
        self.range(contract)?.map(|range| self.all_at(contract, range, at)).transpose()
    }

    /// Returns the keys of a contract that any ledger names, after one, at most so many.
    ///
    /// # Errors
    /// Errors of the database, or that a row is damaged.
    pub fn keys_after(
        &self,
        contract: &ContractId,
        after: Option<KeyTag>,
        most: usize,
    ) -> Result<Vec<KeyTag>, StoreError> {
        let mut keys = Vec::new();
        let from = after.map(|tag| (*contract, tag));
        KEYS.scan(&self.view, contract, from.as_ref(), |(_, tag), _| {
            if Some(tag) != after {
                keys.push(tag);
            }
            let is_over = keys.len() >= most;
            Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(keys)
    }
}
