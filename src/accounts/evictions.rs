//! Records evictions and restorations of account entries, for which the network emits no event: it
//! evicts entries when their time to live is over, and a transaction restores archived ones.
//! Ledgers list both beside their events (`evictedKeys`, CAP-62 and CAP-66), so they are recorded
//! only for ledgers whose raw form is stored when the consumer processes them.
//!
//! | Family | Key → value |
//! |---|---|
//! | `entries` | contract, SHA-256 of the XDR `LedgerKey` → ledger of the last change, [`EntryStatus`] |
//!
//! Only entries whose key has the form of an account entry are kept: instances of contracts, and
//! signers of passkey wallets.

use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataDurability, ContractId as XdrContract, Hash, LedgerKey, LedgerKeyContractData,
    Limits, ReadXdr, ScAddress, ScVal,
};

use super::passkey::event::key as passkey_key;
use super::rows::{Rows, damaged, read};
use super::value;
use crate::decode::{EntryKind, LedgerView};
use crate::domain::ContractId;
use crate::store::{
    ConsumerEffects, ConsumerSpec, FedLedger, Gathers, LedgerConsumer, Needs, StartPosition, Store,
    StoreError,
};

/// Name of the feed consumer.
pub const CONSUMER: &str = "evictions";

const ENTRIES: &str = "entries";
/// Column families of this consumer.
pub const FAMILIES: &[&str] = &[ENTRIES];

/// Last change of an entry that happened without an event. `Evicted` is greater than `Restored`, so
/// within one ledger it wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryStatus {
    /// The entry was archived and has been restored.
    Restored,
    /// The entry is archived, or, if it was temporary, deleted.
    Evicted,
}

impl EntryStatus {
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
///
/// # Errors
/// [`StoreError`] when the database fails or the row is damaged.
pub fn status(
    rows: &dyn Rows,
    contract: &ContractId,
    entry: Entry,
) -> Result<Option<(EntryStatus, u32)>, StoreError> {
    let found = read(rows, ENTRIES, &[contract.0, entry.0].concat(), decode)?;
    Ok(found.map(|(ledger, status)| (status, ledger)))
}

fn decode(row: &[u8]) -> Option<(u32, EntryStatus)> {
    let (ledger, status) = row.split_first_chunk()?;
    let status = match status {
        [0] => EntryStatus::Restored,
        [1] => EntryStatus::Evicted,
        _ => return None,
    };
    Some((u32::from_be_bytes(*ledger), status))
}

/// Fates of a ledger's entries, in order: for each its key in the family, followed by one byte for
/// the [`EntryStatus`].
const STATUSES: Gathers = Gathers { consumer: CONSUMER, from: statuses };

/// Bytes of a key: 32 for the contract and 32 for the entry.
const KEY: usize = 64;

/// Feed consumer that records evictions and restorations.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evictions;

impl LedgerConsumer for Evictions {
    fn spec(&self) -> ConsumerSpec {
        ConsumerSpec {
            name: CONSUMER,
            families: FAMILIES,
            // It uses whatever is available: retention does not wait for this consumer and does not
            // record what it missed.
            needs: Needs::default(),
            start: StartPosition::FirstLedger,
        }
    }

    fn gathers(&self) -> Option<Gathers> {
        Some(STATUSES)
    }

    fn ledger(
        &self,
        store: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        // Without the raw form of a ledger, its evictions and restorations are unknown.
        let Some(statuses) = store.gathered(&STATUSES, ledger.ledger)? else { return Ok(()) };
        for status in statuses.chunks_exact(KEY + 1) {
            let (key, status) = status.split_at(KEY);
            put_if_newer(effects, key, [&ledger.ledger.0.to_be_bytes(), status].concat())?;
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
            statuses.extend_from_slice(&contract.0);
            statuses.extend_from_slice(&Entry::of(&xdr).0);
            statuses.push(status as u8);
        }
    }
    statuses
}

/// Stores the row of an entry, unless a later status is already stored.
fn put_if_newer(
    effects: &mut ConsumerEffects<'_>,
    key: &[u8],
    row: Vec<u8>,
) -> Result<(), StoreError> {
    let status = decode(&row).ok_or_else(|| damaged(ENTRIES, key))?;
    if read(effects, ENTRIES, key, decode)? >= Some(status) {
        return Ok(());
    }
    effects.put(ENTRIES, key, row)
}

/// Returns the contract of an entry whose key has the form of an account entry.
fn account_of(ledger_key: &[u8]) -> Option<ContractId> {
    let limits = Limits { depth: 500, len: 1 << 20 };
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
