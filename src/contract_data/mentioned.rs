//! What is said of a key or a contract at all, wherever that is.

use std::ops::ControlFlow;

use orrery_ledger::domain::{ContractId, Direction, Hash32, LedgerRange, LedgerSeq};
use orrery_store::{StoreError, TransactionPosition};

use super::lookup::Lookup;
use super::rows::{CREATED, KEYS, Key, LAST_ORDER, NOWHERE};

/// Number of transactions that are read to find the contract of a key.
const MOST_READ: usize = 16;
/// Number of keys that are read to find the ledgers in which a contract is known.
const MOST_KEYS: usize = 64;

impl Lookup<'_> {
    /// Whether any stored or removed transaction says something of a key.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn mentions(&self, of: &Key) -> Result<bool, StoreError> {
        Ok(self.has_all_rows(&of.0)? && KEYS.has(&self.view, of)?)
    }

    /// Returns the contract of the key with this hash, if a stored transaction changed its entry.
    ///
    /// # Errors
    /// Errors of the database, or that a transaction is damaged.
    pub fn contract_of(&self, key_hash: &Hash32) -> Result<Option<ContractId>, StoreError> {
        let newest =
            TransactionPosition { ledger: LedgerSeq(u32::MAX), application_order: LAST_ORDER };
        let (mut found, mut read) = (None, 0);
        self.walk(&key_hash.0, newest, Direction::NewestFirst, |at, _| {
            read += 1;
            if let Some(transaction) = self.transaction(at)? {
                let mut changes = transaction.changes.values();
                let change = changes.find(|change| change.key_hash == *key_hash);
                found = change.map(|change| change.key.contract());
            }
            let is_over = found.is_some() || read >= MOST_READ;
            Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(found)
    }

    /// Returns stored ledgers that say something of a contract, other than those around this one.
    ///
    /// # Errors
    /// Errors of the database, or that a row is damaged.
    pub fn known_elsewhere(
        &self,
        contract: &ContractId,
    ) -> Result<Option<LedgerRange>, StoreError> {
        let here = self.store.range_of(self.ledger);
        let elsewhere =
            |ledger: LedgerSeq| self.store.range_of(ledger).filter(|range| here != Some(*range));
        if !self.has_all_rows(contract)? {
            return Ok(None);
        }
        let created = CREATED.get(&self.view, contract)?;
        if let Some(range) = created.and_then(|at| elsewhere(at.ledger)) {
            return Ok(Some(range));
        }
        let (mut found, mut read) = (None, 0);
        KEYS.scan(&self.view, contract, None, |_, row| {
            read += 1;
            let changed = Some(row.changed).filter(|at| *at != NOWHERE);
            let said = changed.map(|at| at.ledger).into_iter().chain([row.ttl.at, row.found.at]);
            found = said.into_iter().find_map(elsewhere);
            let is_over = found.is_some() || read >= MOST_KEYS;
            Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(found)
    }
}
