//! What becomes of entries of accounts without an event: the network evicts them when their time to live is over, and a
//! transaction restores those that were archived. Ledgers tell it beside their events (`evictedKeys`, CAP-62 and
//! CAP-66), so it is known of those whose raw form is stored when their turn comes.
//!
//! | Family | Key → value |
//! |---|---|
//! | `entries` | contract, SHA-256 of the XDR `LedgerKey` → what became of it, in which ledger |
//!
//! Kept is what may be of an account, by the form of the keys: instances of contracts, and signers of passkey wallets.

use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataDurability, ContractId as XdrContract, Hash, LedgerKey, LedgerKeyContractData,
    Limits, ReadXdr, ScAddress, ScVal,
};

use super::passkey::event::key as passkey_key;
use super::rows::{Rows, damaged, scan_under};
use super::value;
use crate::decode::{EntryKind, LedgerView};
use crate::domain::ContractId;
use crate::store::{
    Begins, ConsumerEffects, ConsumerSpec, FedLedger, Gathers, LedgerConsumer, Needs, Store,
    StoreError,
};

/// The name under which ledgers are taken from the feed.
pub const CONSUMER: &str = "evictions";

const ENTRIES: &str = "entries";
/// All families.
pub const FAMILIES: &[&str] = &[ENTRIES];

/// What became of an entry last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It was archived, and is there again.
    Restored,
    /// It is archived, or, if it was temporary, gone.
    Evicted,
}

impl Fate {
    /// As answers spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Restored => "restored",
            Self::Evicted => "evicted",
        }
    }
}

/// An entry of a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry([u8; 32]);

impl Entry {
    /// The instance of a contract.
    pub fn instance(contract: &ContractId) -> Self {
        Self::data(contract, ScVal::LedgerKeyContractInstance, ContractDataDurability::Persistent)
    }

    /// Data of a contract under a key.
    pub fn data(contract: &ContractId, key: ScVal, durability: ContractDataDurability) -> Self {
        let contract = ScAddress::Contract(XdrContract(Hash(contract.0)));
        let key = LedgerKey::ContractData(LedgerKeyContractData { contract, key, durability });
        Self::of(&value::xdr(&key))
    }

    fn of(ledger_key: &[u8]) -> Self {
        Self(Sha256::digest(ledger_key).into())
    }
}

/// What became of the entries of a contract of which that is known, each with the ledger.
///
/// # Errors
/// What the store says.
pub fn of_contract(
    rows: &dyn Rows,
    contract: &ContractId,
    mut visit: impl FnMut(Entry, Fate, u32),
) -> Result<(), StoreError> {
    let mut failure = None;
    scan_under(rows, ENTRIES, &contract.0, |key, row| {
        match key.try_into().ok().zip(decode(row)) {
            Some((entry, (ledger, fate))) => visit(Entry(entry), fate, ledger),
            None => failure = Some(damaged(ENTRIES, key)),
        }
        failure.is_none()
    })?;
    failure.map_or(Ok(()), Err)
}

fn decode(row: &[u8]) -> Option<(u32, Fate)> {
    let (ledger, fate) = row.split_first_chunk()?;
    let fate = match fate {
        [0] => Fate::Restored,
        [1] => Fate::Evicted,
        _ => return None,
    };
    Some((u32::from_be_bytes(*ledger), fate))
}

/// What became of entries in a ledger, in order: of each its key in the family, then what became of it.
const FATES: Gathers = Gathers { consumer: CONSUMER, from: fates };

/// Bytes of a key: the contract and the entry.
const KEY: usize = 64;

/// Takes ledgers from the feed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evictions;

impl LedgerConsumer for Evictions {
    fn spec(&self) -> ConsumerSpec {
        ConsumerSpec {
            name: CONSUMER,
            families: FAMILIES,
            // It takes what there is: retention neither waits for it nor tells what it has missed.
            needs: Needs::default(),
            begins: Begins::AtTheBeginning,
        }
    }

    fn gathers(&self) -> Option<Gathers> {
        Some(FATES)
    }

    fn ledger(
        &self,
        store: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        // Where raw ledgers are not kept, nothing is known of this.
        let Some(fates) = store.gathered(&FATES, ledger.ledger)? else { return Ok(()) };
        for fate in fates.chunks_exact(KEY + 1) {
            let (key, fate) = fate.split_at(KEY);
            note(effects, key, [&ledger.ledger.0.to_be_bytes(), fate].concat())?;
        }
        Ok(())
    }

    fn cannot_be_rebuilt(&self) -> Option<&'static str> {
        Some("it is known of ledgers alone whose raw form is still stored")
    }
}

fn fates(ledger: &LedgerView<'_>) -> Vec<u8> {
    let restored = ledger.transactions.iter().flat_map(|it| &it.restored_entries);
    let restored = restored.map(|key| (key, Fate::Restored));
    let evicted = ledger.evicted.iter().map(|key| (key, Fate::Evicted));
    let mut fates = Vec::new();
    for (key, fate) in
        restored.chain(evicted).filter(|(key, _)| key.kind == EntryKind::ContractData)
    {
        let xdr = key.to_ledger_key();
        if let Some(contract) = account_of(&xdr) {
            fates.extend_from_slice(&contract.0);
            fates.extend_from_slice(&Entry::of(&xdr).0);
            fates.push(fate as u8);
        }
    }
    fates
}

/// Notes the row of an entry, unless something became of it later.
fn note(effects: &mut ConsumerEffects<'_>, key: &[u8], row: Vec<u8>) -> Result<(), StoreError> {
    let of = |row: &[u8]| decode(row).ok_or_else(|| damaged(ENTRIES, key));
    let known = effects.get(ENTRIES, key)?.map(|known| of(&known)).transpose()?;
    if known >= Some(of(&row)?) {
        return Ok(());
    }
    effects.put(ENTRIES, key, row)
}

/// The contract to which an entry belongs that may be of an account.
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
