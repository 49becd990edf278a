//! Contracts with events that may turn out to have a name by which a project selects events of any contract,
//! because their code at the time is not known.
//!
//! Nearly all contracts of a network may be such ones, so they are in the store, a row for each contract: no more rows
//! than there are contracts with stored events, none with more than some spans, and nothing of them in memory. Which
//! contracts have one follows from what is stored and known, not from which were there first.

use std::collections::BTreeMap;

use super::EventInterfaces;
use super::spans::{Spans, Unnamed};
use crate::{ProgramError, storage};
use orrery_ledger::domain::{ContractId, ProgramId};
use orrery_store::{KindChanges, RowCodec, Store, StoreError};

impl EventInterfaces {
    /// Returns the rows that change with what was read: each contract's transactions with such events, those that are
    /// stored included.
    pub(crate) fn unnamed_rows<'u>(
        &self,
        program: ProgramId,
        read: impl IntoIterator<Item = &'u Unnamed>,
    ) -> Result<Unnamed, ProgramError> {
        let mut read = read.into_iter().flatten().peekable();
        if read.peek().is_none() {
            return Ok(Unnamed::new());
        }
        let (store, names) = (self.interfaces.store(), self.interfaces.loading_reader()?);
        let is_same = |contract: &ContractId, from, to| names.is_same_between(contract, from, to);
        let mut rows: BTreeMap<ContractId, (Spans, bool)> = BTreeMap::new();
        for (contract, more) in read {
            let (mut spans, changed) = match rows.remove(contract) {
                Some(known) => known,
                None => (stored(store, program, contract)?, false),
            };
            let changed = spans.join(contract, more, is_same)? || changed;
            rows.insert(*contract, (spans, changed));
        }
        let changed = rows.into_iter().filter(|(_, (_, changed))| *changed);
        Ok(changed.map(|(contract, (spans, _))| (contract, spans)).collect())
    }
}

fn stored(store: &Store, program: ProgramId, contract: &ContractId) -> Result<Spans, ProgramError> {
    let row = storage::unnamed(program, contract);
    let Some(stored) = store.shared_row(&row)? else { return Ok(Spans::default()) };
    Ok(Spans::decode(&stored).ok_or_else(|| row.damaged())?)
}

/// Puts rows of contracts with such events.
pub fn put_unnamed(
    changes: &mut KindChanges<'_>,
    program: ProgramId,
    unnamed: &Unnamed,
) -> Result<(), StoreError> {
    unnamed.iter().try_for_each(|(contract, spans)| {
        changes.put(&storage::unnamed(program, contract), spans.encode())
    })
}
