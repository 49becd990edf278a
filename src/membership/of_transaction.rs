//! What a transaction says of who created contracts, and of what they run.

use std::collections::{BTreeMap, BTreeSet};

use orrery_executables::facts::{Change, Facts as Executables, Said};
use orrery_executables::{Before, Executable, unreadable};
use orrery_ledger::domain::{ContractId, Hash32, NetworkId};
use orrery_store::{StoreError, TransactionRecord};

use super::creation::{Creator, creators};
use super::learnt::Learnt;
use super::named::Named;

/// What a transaction says.
#[derive(Debug, Default)]
pub struct OfTransaction {
    /// Its hash.
    pub transaction: Hash32,
    /// The contracts that it created.
    pub created: BTreeMap<ContractId, Creator>,
    /// What the instances of contracts name, before and after.
    pub instances: BTreeMap<ContractId, BTreeSet<Named>>,
    /// What entries name to which contracts refer, before and after.
    pub tags: BTreeMap<[u8; 32], BTreeSet<Hash32>>,
    /// What names something else after the transaction than before it.
    pub changed: BTreeSet<Learnt>,
}

impl OfTransaction {
    /// Reads a stored transaction.
    pub fn read(record: &TransactionRecord<'_>, network: &NetworkId) -> Result<Self, StoreError> {
        let position = record.position;
        let read = Executables::of(record.meta, position.ledger)
            .map_err(|error| unreadable(position, &error))?;
        let mut found = Self { transaction: Hash32(*record.tx), ..Self::default() };
        let mut new = BTreeSet::new();
        for (id, Said { contract, change, is_instance }) in &read.changes {
            match is_instance {
                true => found.add_instance(*contract, change, &mut new),
                false => found.add_tag(*id, change),
            }
        }
        if !new.is_empty() {
            let of = (record.envelope, record.meta);
            let creators =
                creators(of, network, &new).map_err(|error| unreadable(position, &error))?;
            found.created.extend(creators);
        }
        Ok(found)
    }

    /// Adds the instance of a contract; one that is `new` has a creator.
    fn add_instance(
        &mut self,
        contract: ContractId,
        change: &Change,
        new: &mut BTreeSet<ContractId>,
    ) {
        if is_other(change) {
            self.changed.insert(Learnt::Contract(contract));
        }
        match (&change.before, &change.after) {
            (Before::Absent, Some(Executable::Asset)) => {
                self.created.insert(contract, Creator::Asset);
            }
            (Before::Absent, Some(_)) => {
                new.insert(contract);
            }
            _ => {}
        }
        self.instances.entry(contract).or_default().extend(said(change).filter_map(Named::of));
    }

    /// Adds an entry to which contracts refer, by the SHA-256 of its key.
    fn add_tag(&mut self, id: [u8; 32], change: &Change) {
        if is_other(change) {
            self.changed.insert(Learnt::Tag(id));
        }
        self.tags.entry(id).or_default().extend(said(change).filter_map(code_of));
    }
}

fn held_before(change: &Change) -> Option<&Executable> {
    match &change.before {
        Before::Held { executable, .. } => Some(executable),
        Before::Unknown | Before::Absent => None,
    }
}

/// What a change names, before and after.
fn said(change: &Change) -> impl Iterator<Item = &Executable> {
    held_before(change).into_iter().chain(&change.after)
}

/// Whether a change leaves something else than it found.
fn is_other(change: &Change) -> bool {
    let before = held_before(change);
    before.is_none() || before != change.after.as_ref()
}

/// Returns the module that an entry names to which contracts refer.
pub fn code_of(executable: &Executable) -> Option<Hash32> {
    match executable {
        Executable::Code(hash) => Some(*hash),
        _ => None,
    }
}
