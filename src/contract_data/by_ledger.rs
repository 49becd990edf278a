//! Changes of contract data ledger by ledger, for whoever keeps them in another form.

use std::ops::ControlFlow;

use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::{ConsumerView, RowBounds, Store, StoreError, TransactionPosition};

use super::history::Past;
use super::lookup::Lookup;
use super::rows::{CHANGED, CONSUMER, KEYS, KeyTag};

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
