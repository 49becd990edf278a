//! Which checkpoints are recorded, and since when they say what a contract and a key hold.

use std::ops::ControlFlow;

use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq};
use orrery_store::{RowBounds, Store, StoreError};

use super::found::{CHECKPOINTS, CheckpointRow, Difference, FOUND, FoundRow, REFUSED};
use super::lookup::Lookup;
use super::rows::{CONSUMER, Key, end_of};

/// A checkpoint, as completeness shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its ledger.
    pub ledger: LedgerSeq,
    /// Whether trusted validators attested the header that proves it.
    pub is_attested: bool,
    /// Whether it is recorded for all contracts.
    pub is_whole: bool,
    /// Where the stored ledgers say something else: then nothing is answered from it.
    pub difference: Option<Difference>,
}

/// Returns the checkpoints that were recorded or refused, ascending.
///
/// # Errors
/// Errors of the database, or that a row is damaged.
pub fn checkpoints(store: &Store) -> Result<Vec<Checkpoint>, StoreError> {
    if store.consumer(CONSUMER).is_none() {
        return Ok(Vec::new());
    }
    let view = store.consumer_view(CONSUMER, RowBounds::none())?;
    let mut all = Vec::new();
    CHECKPOINTS.scan_all(&view, None, |ledger, CheckpointRow { is_attested, is_whole }| {
        all.push(Checkpoint { ledger, is_attested, is_whole, difference: None });
        Ok(ControlFlow::Continue(()))
    })?;
    REFUSED.scan_all(&view, None, |ledger, difference| {
        match all.iter_mut().find(|checkpoint| checkpoint.ledger == ledger) {
            Some(checkpoint) => checkpoint.difference = Some(difference),
            None => all.push(Checkpoint {
                ledger,
                is_attested: false,
                is_whole: false,
                difference: Some(difference),
            }),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    all.sort_by_key(|checkpoint| checkpoint.ledger);
    Ok(all)
}

impl Lookup<'_> {
    /// Returns the first checkpoint up to this ledger, of those in a range, that has the state of a
    /// contract: from there on all its entries are known.
    ///
    /// # Errors
    /// Errors of the database, or that a row is damaged.
    pub fn checked(
        &self,
        contract: &ContractId,
        range: LedgerRange,
    ) -> Result<Option<LedgerSeq>, StoreError> {
        let all = self.checkpoints.of(&self.view, contract, range)?;
        Ok(all.first().copied().filter(|first| *first <= self.ledger))
    }

    /// Whether a checkpoint of a range, up to a ledger, has a row of a key.
    pub(super) fn has_found(
        &self,
        of: Key,
        range: LedgerRange,
        last: LedgerSeq,
    ) -> Result<bool, StoreError> {
        for ledger in self.checkpoints.of(&self.view, &of.0, range)? {
            if ledger <= last && FOUND.has(&self.view, &(ledger, of))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the first checkpoint of a range that has an entry, if no transaction before says what the
    /// entry is: there its history begins.
    pub(super) fn first_found(
        &self,
        of: Key,
        range: LedgerRange,
    ) -> Result<Option<(LedgerSeq, FoundRow)>, StoreError> {
        for ledger in self.checkpoints.of(&self.view, &of.0, range)? {
            let Some(row) = FOUND.get(&self.view, &(ledger, of))? else { continue };
            let is_told = self.past(of, range, end_of(ledger))?.written.is_some();
            return Ok(Some((ledger, row)).filter(|(_, row)| !is_told && !row.is_dead(ledger)));
        }
        Ok(None)
    }
}
