//! Records evictions and restorations of account entries, for which the network emits no event: it
//! evicts entries when their time to live is over, and a transaction restores archived ones.
//! Ledgers list both beside their events (`evictedKeys`, CAP-62 and CAP-66), so they are recorded
//! only for ledgers whose raw form is stored when the consumer processes them.
//!
//! Only entries whose key has the form of an account entry are kept: instances of contracts, and
//! signers of passkey wallets.

use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataDurability, ContractId as XdrContract, Hash, LedgerKey, LedgerKeyContractData,
    Limits, ReadXdr, ScAddress, ScVal,
};

use super::passkey::event::key as passkey_key;
use super::value;
use orrery_ledger::decode::{EntryKind, LedgerView};
use orrery_ledger::domain::{ContractId, DEEPEST_VALUE, LedgerSeq};
use orrery_store::{
    ConsumerEffects, ConsumerSpec, FedLedger, Gathers, LedgerConsumer, Needs, RowCodec, Rows,
    StartPosition, Store, StoreError, Table, row_codec,
};

/// Name of the feed consumer.
pub const CONSUMER: &str = "evictions";

/// Last change of an entry, and its ledger.
const ENTRIES: Table<Key, (LedgerSeq, EntryStatus)> = Table::new("entries");
type Key = (ContractId, Entry);

/// Last change of an entry that happened without an event. `Evicted` is greater than `Restored`, so
/// within one ledger it wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryStatus {
    /// The entry was archived and has been restored.
    Restored,
    /// The entry is archived, or, if it was temporary, deleted.
    Evicted,
}

row_codec!(enum EntryStatus);

impl EntryStatus {
    const ALL: [Self; 2] = [Self::Restored, Self::Evicted];

    /// Returns the name used in API responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Restored => "restored",
            Self::Evicted => "evicted",
        }
    }
}

/// Identifies an entry of a contract: the SHA-256 of its XDR `LedgerKey`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry([u8; 32]);

row_codec!(Entry { 0 });

impl Entry {
    /// Returns the identifier of a contract's instance entry.
    pub fn instance(contract: &ContractId) -> Self {
        Self::data(contract, ScVal::LedgerKeyContractInstance, ContractDataDurability::Persistent)
    }

    /// Returns the identifier of the contract data under `key`.
    pub fn data(contract: &ContractId, key: ScVal, durability: ContractDataDurability) -> Self {
        let contract = ScAddress::Contract(XdrContract(Hash(contract.0)));
        let key = LedgerKey::ContractData(LedgerKeyContractData { contract, key, durability });
        Self::of(&value::xdr(&key))
    }

    fn of(ledger_key: &[u8]) -> Self {
        Self(Sha256::digest(ledger_key).into())
    }
}

/// Returns the recorded status of an entry of a contract, with the ledger of the change; `None` when
/// none is recorded.
pub fn status(
    rows: &dyn Rows,
    contract: &ContractId,
    entry: Entry,
) -> Result<Option<(EntryStatus, u32)>, StoreError> {
    let found = ENTRIES.get(rows, &(*contract, entry))?;
    Ok(found.map(|(LedgerSeq(ledger), status)| (status, ledger)))
}

/// Fates of a ledger's entries, in order: for each its key in the family, and the [`EntryStatus`].
const STATUSES: Gathers = Gathers { consumer: CONSUMER, from: statuses };

/// Feed consumer that records evictions and restorations.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evictions;

impl LedgerConsumer for Evictions {
    fn spec(&self) -> ConsumerSpec {
        ConsumerSpec {
            name: CONSUMER,
            families: &[ENTRIES.family],
            // It uses whatever is available: retention does not wait for this consumer and does not
            // record what it missed.
            needs: Needs::default(),
            start: StartPosition::FirstLedger,
        }
    }

    fn gathers(&self) -> Option<Gathers> {
        Some(STATUSES)
    }

    fn process_ledger(
        &self,
        store: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        // Without the raw form of a ledger, its evictions and restorations are unknown.
        let Some(statuses) = store.gathered(&STATUSES, ledger.ledger)? else { return Ok(()) };
        let mut statuses = statuses.as_slice();
        while let Some((key, status)) = <(Key, EntryStatus)>::read(&mut statuses) {
            let status = (ledger.ledger, status);
            // Unless a later status is already stored.
            if ENTRIES.get(effects, &key)? < Some(status) {
                ENTRIES.put(effects, &key, &status)?;
            }
        }
        Ok(())
    }

    fn cannot_be_rebuilt(&self) -> Option<&'static str> {
        Some("it can be derived only from ledgers whose raw form is still stored")
    }
}

fn statuses(ledger: &LedgerView<'_>) -> Vec<u8> {
    let restored = ledger.transactions.iter().flat_map(|it| &it.restored_entries);
    let restored = restored.map(|key| (key, EntryStatus::Restored));
    let evicted = ledger.evicted.iter().map(|key| (key, EntryStatus::Evicted));
    let mut statuses = Vec::new();
    for (key, status) in
        restored.chain(evicted).filter(|(key, _)| key.kind == EntryKind::ContractData)
    {
        let xdr = key.to_ledger_key();
        if let Some(contract) = account_of(&xdr) {
            ((contract, Entry::of(&xdr)), status).write(&mut statuses);
        }
    }
    statuses
}

/// Returns the contract of an entry whose key has the form of an account entry.
fn account_of(ledger_key: &[u8]) -> Option<ContractId> {
    let limits = Limits { depth: DEEPEST_VALUE, len: 1 << 20 };
    let LedgerKey::ContractData(data) = LedgerKey::from_xdr(ledger_key, limits).ok()? else {
        return None;
    };
    let ScAddress::Contract(contract) = data.contract else { return None };
    let is_of_account = match &data.key {
        ScVal::LedgerKeyContractInstance => true,
        key => passkey_key(key).is_some(),
    };
    is_of_account.then_some(ContractId(contract.0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores of earlier versions have these bytes.
    #[test]
    fn stored_bytes_are_as_ever() {
        let key: Key = (ContractId([1; 32]), Entry([2; 32]));
        assert_eq!(key.encode(), [[1; 32], [2; 32]].concat());
        for (status, byte) in [(EntryStatus::Restored, 0), (EntryStatus::Evicted, 1)] {
            let row = (LedgerSeq(258), status);
            assert_eq!(row.encode(), [0, 0, 1, 2, byte]);
            assert_eq!(RowCodec::decode(&[0, 0, 1, 2, byte]), Some(row));
        }
        assert_eq!(<(LedgerSeq, EntryStatus)>::decode(&[0, 0, 1, 2, 2]), None);
    }
}
