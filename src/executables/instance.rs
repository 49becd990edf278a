//! The instance entries of contracts, as the newest of what is stored says.

use stellar_xdr::{LedgerEntryData, ScContractInstance, ScVal};

use super::interfaces::{Interfaces, Wish};
use super::value::{self, instance_key};
use orrery_ledger::decode::{EntryKey, transaction_changes};
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::{StoreError, TransactionPosition};

/// Maximum number of transactions that are read for one instance. The index names transactions by a
/// part of a hash, so in rare cases the first one has changed another entry.
const MOST_TRANSACTIONS: usize = 4;

/// What is known of a contract's instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instance {
    /// The entry as a stored transaction, or another server's answer, says.
    Known(Box<ScContractInstance>),
    /// There was none in this ledger.
    Absent(LedgerSeq),
    /// It is not known.
    Unknown,
}

impl Interfaces {
    /// Returns the instance of a contract as of a ledger: as the last stored transaction that changed
    /// it has left it, or else from another server's last answer. If it is not known and there is
    /// another server, that is asked, and a later call returns its answer.
    pub fn instance(
        &self,
        contract: &ContractId,
        as_of: LedgerSeq,
    ) -> Result<Instance, StoreError> {
        let found = self.stored_instance(contract, as_of)?;
        if found == Instance::Unknown
            && self.has_source()
            && let Some(key) = instance_key(contract)
            && self.store().known_entries(&key)?.is_empty()
        {
            self.wish(Wish::Entry(key));
        }
        Ok(found)
    }

    /// Like [`Self::instance`], but asks no other server for what is not known.
    pub fn stored_instance(
        &self,
        contract: &ContractId,
        as_of: LedgerSeq,
    ) -> Result<Instance, StoreError> {
        let Some(key) = instance_key(contract) else { return Ok(Instance::Unknown) };
        if let Some(entry) = EntryKey::from_ledger_key(&key)
            && let Some(found) = self.last_instance(&entry, as_of)?
        {
            return Ok(found);
        }
        let Some(last) = self.store().known_entries(&key)?.pop() else {
            return Ok(Instance::Unknown);
        };
        Ok(match last.entry.as_deref() {
            None => Instance::Absent(last.to),
            Some(entry) => of_entry(entry).unwrap_or(Instance::Unknown),
        })
    }

    /// Returns what the last stored change before the end of a ledger has left.
    fn last_instance(
        &self,
        key: &EntryKey<'_>,
        as_of: LedgerSeq,
    ) -> Result<Option<Instance>, StoreError> {
        let reader = self.store().entry_reader(as_of)?;
        let ledger = as_of.next().unwrap_or(as_of);
        let mut at = TransactionPosition { ledger, application_order: 0 };
        for _ in 0..MOST_TRANSACTIONS {
            let Some(changed) = reader.last_change(key, at)? else { break };
            let mut found = None;
            reader.transaction(changed, |record| {
                found = in_metadata(record.meta, key, changed.ledger);
            })?;
            if found.is_some() {
                return Ok(found);
            }
            at = changed;
        }
        Ok(None)
    }
}

/// Returns what a transaction's metadata says last of an instance.
fn in_metadata(meta: &[u8], key: &EntryKey<'_>, ledger: LedgerSeq) -> Option<Instance> {
    let changes = transaction_changes(meta).ok()?;
    let lists = [changes.before, changes.operations, changes.after];
    let last = lists.iter().flatten().rev().find(|change| change.key == *key)?;
    match last.entry {
        None => Some(Instance::Absent(ledger)),
        Some(entry) => of_entry(entry),
    }
}

/// Returns the instance in the XDR of a ledger entry.
fn of_entry(entry: &[u8]) -> Option<Instance> {
    match value::entry(entry)?.data {
        LedgerEntryData::ContractData(data) => match data.val {
            ScVal::ContractInstance(instance) => Some(Instance::Known(Box::new(instance))),
            _ => None,
        },
        _ => None,
    }
}
