//! Changes of the code that contracts run, by single transactions.
//!
//! The host emits an event for each change of its own executable that a contract makes, also where several
//! changes of one transaction end with the code that was there. A change of an entry to which contracts
//! refer (CAP-85) has no event of theirs.

use std::collections::BTreeSet;
use std::fmt::Display;

use stellar_xdr::{ContractEvent, ContractEventBody, ContractEventType};

use super::facts::{self, Facts};
use super::lookup::{Lookup, Ran, Side, ran};
use super::reader::InterfaceReader;
use super::transaction::{RecordError, recorded_events};
use super::updates::{UPDATE, Update};
use super::value::{Before, Executable, id_of, instance_key};
use orrery_ledger::domain::{ContractId, Hash32};
use orrery_store::{StoreError, TransactionPosition, TransactionRecord};

/// Set in the number of a change without an event, whose other bits are the first ones of the contract.
const WITHOUT_EVENT: u64 = 1 << 63;

/// A change of the code that a contract runs, references followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upgrade {
    /// The contract.
    pub contract: ContractId,
    /// Its number among the changes of the transaction that contracts make themselves, or that come from
    /// what they refer to. Changes of one contract have different ones.
    pub number: u64,
    /// What it ran before; `None` when that is not known.
    pub old: Option<Ran>,
    /// What it runs after; `None` when that is not known.
    pub new: Option<Ran>,
}

impl InterfaceReader<'_> {
    /// Returns the changes that contracts have made of their own code in a successful transaction, in their
    /// order; only those of contracts that are `wanted`.
    ///
    /// # Errors
    /// Errors of the database, or that the transaction is damaged.
    pub fn upgrades(
        &self,
        record: &TransactionRecord<'_>,
        wanted: impl Fn(&ContractId) -> bool,
    ) -> Result<Vec<Upgrade>, RecordError> {
        let at = record.position;
        let damaged = |error: &dyn Display| damaged(at, error);
        let (mut found, mut told) = (Vec::new(), BTreeSet::new());
        if names_update(record.meta) {
            let events = recorded_events(record.meta).map_err(|error| damaged(&error))?;
            let updates = events.iter().filter_map(updated);
            for ((contract, old, new), number) in updates.zip(1..) {
                if wanted(&contract) {
                    told.insert(contract);
                    found.extend(self.step(contract, number, (old, new), at)?);
                }
            }
        }
        // Where the metadata has no events.
        let may_have_changed =
            |contract: &&ContractId| wanted(contract) && !told.contains(*contract);
        if record.contracts.iter().any(|contract| may_have_changed(&contract))
            && facts::is_mentioned(record.meta).map_err(|error| damaged(&error))?
        {
            let facts = Facts::of(record.meta, at.ledger).map_err(|error| damaged(&error))?;
            for contract in record.contracts.iter().filter(may_have_changed) {
                let Some(key) = instance_key(contract) else { continue };
                let change = facts.changes.get(&id_of(&key)).map(|said| &said.change);
                if let Some(change) = change
                    && let (Before::Held { executable, .. }, Some(after)) =
                        (&change.before, &change.after)
                    && executable != after
                {
                    let first = contract.0.first_chunk().copied().map_or(0, u64::from_be_bytes);
                    let both = (Some(executable.clone()), Some(after.clone()));
                    found.extend(self.step(*contract, WITHOUT_EVENT | first >> 1, both, at)?);
                }
            }
        }
        Ok(found)
    }

    fn step(
        &self,
        contract: ContractId,
        number: u64,
        (old, new): (Option<Executable>, Option<Executable>),
        at: TransactionPosition,
    ) -> Result<Option<Upgrade>, StoreError> {
        if old.is_some() && old == new {
            return Ok(None);
        }
        let code = |of: &Option<Executable>, side| match of {
            Some(executable) => self.code_of(executable, at, side),
            None => Ok(None),
        };
        let (old, new) = (code(&old, Side::Before)?, code(&new, Side::After)?);
        let is_same = old.is_some() && old == new;
        Ok((!is_same).then_some(Upgrade { contract, number, old, new }))
    }

    /// Returns what an executable is, references followed; `None` when that is not known.
    fn code_of(
        &self,
        executable: &Executable,
        at: TransactionPosition,
        side: Side,
    ) -> Result<Option<Ran>, StoreError> {
        let Executable::Reference(key) = executable else {
            return Ok(Some(ran(Some(executable.clone()))));
        };
        let named = self.lookup().named(key, at, side)?;
        Ok(named.map(ran))
    }

    /// Returns those of these contracts whose code a successful transaction has changed by changing what
    /// they refer to, by contract id. `refers` says to which entries contracts may refer.
    ///
    /// # Errors
    /// Errors of the database, or that the transaction is damaged.
    pub fn repointed(
        &self,
        record: &TransactionRecord<'_>,
        refers: &References,
    ) -> Result<Vec<Upgrade>, RecordError> {
        let at = record.position;
        let mut found = Vec::new();
        if refers.0.is_empty() {
            return Ok(found);
        }
        let Some(facts) = facts_of_tags(record)? else { return Ok(found) };
        let lookup = self.lookup();
        for (contract, key) in &refers.0 {
            if !facts.changes.contains_key(&id_of(key)) {
                continue;
            }
            let named = |side| reference_of(lookup, contract, at, side);
            if named(Side::Before)?.as_ref() != Some(key)
                || named(Side::After)?.as_ref() != Some(key)
            {
                continue;
            }
            let code = |side| Ok::<_, StoreError>(lookup.named(key, at, side)?.map(ran));
            let (old, new) = (code(Side::Before)?, code(Side::After)?);
            if old.is_none() || old != new {
                let number = contract.0.first_chunk().copied().map_or(0, u64::from_be_bytes);
                found.push(Upgrade { contract: *contract, number, old, new });
            }
        }
        Ok(found)
    }

    /// Returns those contracts that refer to something before a successful transaction that changed it, each
    /// with that. `may_refer` returns who may refer to an entry, by the SHA-256 of its key.
    ///
    /// # Errors
    /// Errors of the database, or that the transaction is damaged.
    pub fn referring(
        &self,
        record: &TransactionRecord<'_>,
        may_refer: impl Fn([u8; 32]) -> Result<Vec<ContractId>, StoreError>,
    ) -> Result<References, RecordError> {
        let mut refers = BTreeSet::new();
        let at = record.position;
        let Some(facts) = facts_of_tags(record)? else { return Ok(References(refers)) };
        for (entry, _) in facts.changes.iter().filter(|(_, said)| !said.is_instance) {
            for contract in may_refer(*entry)? {
                let named = reference_of(self.lookup(), &contract, at, Side::Before)?;
                let is_it = |key: &Vec<u8>| id_of(key) == *entry;
                refers.extend(named.filter(is_it).map(|key| (contract, key)));
            }
        }
        Ok(References(refers))
    }

    /// Returns to what contracts may refer in the transactions of a ledger: what they refer to before it,
    /// and after each transaction that changes that.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn references<'c>(
        &self,
        contracts: impl Iterator<Item = &'c ContractId>,
        ledger: orrery_ledger::domain::LedgerSeq,
    ) -> Result<References, StoreError> {
        let mut refers = BTreeSet::new();
        let first = TransactionPosition { ledger, application_order: 0 };
        let last = TransactionPosition { ledger, application_order: u32::MAX };
        let lookup = self.lookup();
        for contract in contracts {
            for (at, side) in [(first, Side::Before), (last, Side::After)] {
                let named = reference_of(lookup, contract, at, side)?;
                refers.extend(named.map(|key| (*contract, key)));
            }
            let within = lookup.references_within(contract, ledger)?;
            refers.extend(within.into_iter().map(|key| (*contract, key)));
        }
        Ok(References(refers))
    }

    /// Returns what the instance of a contract says after a transaction, where a reference is not followed;
    /// `Some(None)` when there is no instance, `None` when the transactions up to this one do not say it.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn executable_after(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
    ) -> Result<Option<Option<Executable>>, StoreError> {
        let Some(key) = instance_key(contract) else { return Ok(None) };
        self.lookup().shown(&key, at)
    }

    /// Returns the code that an entry names to which contracts refer, after a transaction, if the transactions up
    /// to this one say it.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn named_code(
        &self,
        key: &[u8],
        at: TransactionPosition,
    ) -> Result<Option<Hash32>, StoreError> {
        Ok(match self.lookup().shown(key, at)? {
            Some(Some(Executable::Code(hash))) => Some(hash),
            _ => None,
        })
    }
}

/// Contracts, each with the XDR `LedgerKey` of an entry to which it may refer.
#[derive(Debug, Clone, Default)]
pub struct References(BTreeSet<(ContractId, Vec<u8>)>);

impl References {
    /// Whether no contract refers to anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn reference_of(
    lookup: &Lookup<'_>,
    contract: &ContractId,
    at: TransactionPosition,
    side: Side,
) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(key) = instance_key(contract) else { return Ok(None) };
    Ok(match lookup.named(&key, at, side)? {
        Some(Some(Executable::Reference(named))) => Some(named),
        _ => None,
    })
}

/// Returns what a transaction says, if it changes an entry to which contracts may refer.
fn facts_of_tags(record: &TransactionRecord<'_>) -> Result<Option<Facts>, RecordError> {
    let at = record.position;
    if !facts::changes_tag(record.meta).map_err(|error| damaged(at, &error))? {
        return Ok(None);
    }
    Facts::of(record.meta, at.ledger).map(Some).map_err(|error| damaged(at, &error))
}

fn damaged(at: TransactionPosition, error: &dyn Display) -> RecordError {
    let TransactionPosition { ledger, application_order } = at;
    RecordError::Damaged(format!(
        "the metadata of transaction {application_order} of ledger {ledger} cannot be read: {error}"
    ))
}

/// Whether the metadata may have the event of a change.
fn names_update(meta: &[u8]) -> bool {
    meta.windows(UPDATE.len()).any(|part| part == UPDATE)
}

/// Returns what the event of a change says: the contract, what it had and what it has. `None` for other
/// events.
fn updated(event: &ContractEvent) -> Option<(ContractId, Option<Executable>, Option<Executable>)> {
    let ContractEventBody::V0(body) = &event.body;
    let contract = ContractId(event.contract_id.as_ref()?.0.0);
    let update = Update::of_values(&body.topics);
    let Update { before, after } = update.filter(|_| event.type_ == ContractEventType::System)?;
    Some((contract, before, after))
}
