//! The sandbox's ledger entries, and the recording of their changes. Does not depend on
//! transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use orrery_ledger::domain::{has_lifetime, ttl_key};
use sha2::{Digest, Sha256};
use soroban_env_host::HostError;
use soroban_env_host::storage::{EntryWithLiveUntil, SnapshotSource};
use stellar_xdr::{
    AccountEntry, AccountId, Asset, LedgerEntry, LedgerEntryChange, LedgerEntryData,
    LedgerEntryExt, LedgerKey, Limits, TrustLineEntry, WriteXdr,
};

use super::error::Result;
use super::fees::rent_size;
use super::keys::{account_key, trustline_key};

/// All ledger entries, archived ones included, and the keys that the open ledger has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LedgerState {
    entries: BTreeMap<LedgerKey, LedgerEntry>,
    /// Size of all contract data and code in bytes, as rent counts it; reported as
    /// `totalByteSizeOfLiveSorobanState`.
    contract_bytes: u64,
    changed: BTreeSet<LedgerKey>,
}

impl LedgerState {
    /// Builds a state from these entries.
    pub(super) fn from_entries(entries: Vec<LedgerEntry>) -> Result<Self> {
        let mut state = Self::default();
        for entry in entries {
            state.put(entry)?;
        }
        state.changed.clear();
        Ok(state)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&LedgerKey, &LedgerEntry)> {
        self.entries.iter()
    }

    pub(super) fn get(&self, key: &LedgerKey) -> Option<&LedgerEntry> {
        self.entries.get(key)
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn contract_bytes(&self) -> u64 {
        self.contract_bytes
    }

    pub(super) fn account(&self, id: &AccountId) -> Option<&AccountEntry> {
        match &self.get(&account_key(id))?.data {
            LedgerEntryData::Account(account) => Some(account),
            _ => None,
        }
    }

    /// Returns the trustline of `id` for an issued asset; `None` when there is none, and for the
    /// native asset.
    pub(super) fn trustline(&self, id: &AccountId, asset: &Asset) -> Option<&TrustLineEntry> {
        match &self.get(&trustline_key(id, asset))?.data {
            LedgerEntryData::Trustline(line) => Some(line),
            _ => None,
        }
    }

    /// Returns the last ledger in which a contract entry is live; `None` for an entry without a
    /// TTL.
    pub(super) fn live_until(&self, key: &LedgerKey) -> Result<Option<u32>> {
        if !has_lifetime(key) {
            return Ok(None);
        }
        Ok(self.get(&ttl_key(key)?).and_then(|entry| match &entry.data {
            LedgerEntryData::Ttl(ttl) => Some(ttl.live_until_ledger_seq),
            _ => None,
        }))
    }

    /// Writes an entry and returns the changes for the metadata: STATE and UPDATED, or CREATED.
    pub(super) fn write(
        &mut self,
        data: LedgerEntryData,
        ledger: u32,
    ) -> Result<Vec<LedgerEntryChange>> {
        let entry = LedgerEntry { last_modified_ledger_seq: ledger, data, ext: LedgerEntryExt::V0 };
        Ok(match self.put(entry.clone())? {
            Some(before) => {
                vec![LedgerEntryChange::State(before), LedgerEntryChange::Updated(entry)]
            }
            None => vec![LedgerEntryChange::Created(entry)],
        })
    }

    /// Removes an entry and returns STATE and REMOVED; returns no changes when there is no such
    /// entry.
    pub(super) fn remove(&mut self, key: &LedgerKey) -> Result<Vec<LedgerEntryChange>> {
        let Some(before) = self.take(key)? else {
            return Ok(Vec::new());
        };
        Ok(vec![LedgerEntryChange::State(before), LedgerEntryChange::Removed(key.clone())])
    }

    /// Reverts changes that [`Self::write`] and [`Self::remove`] returned, given in the order in
    /// which they were made.
    pub(super) fn undo(&mut self, changes: Vec<LedgerEntryChange>) -> Result<()> {
        for change in changes.into_iter().rev() {
            match change {
                LedgerEntryChange::Created(entry) => {
                    self.take(&entry.to_key())?;
                }
                LedgerEntryChange::State(before) => {
                    self.put(before)?;
                }
                LedgerEntryChange::Updated(_)
                | LedgerEntryChange::Removed(_)
                | LedgerEntryChange::Restored(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the keys that the open ledger has changed, in order.
    pub(super) fn changed(&self) -> impl Iterator<Item = &LedgerKey> {
        self.changed.iter()
    }

    /// Closes the open ledger and returns a digest over every entry that it changed, in key order.
    pub(super) fn seal(&mut self) -> Result<[u8; 32]> {
        let mut digest = Sha256::new();
        for key in std::mem::take(&mut self.changed) {
            digest.update(key.to_xdr(Limits::none())?);
            if let Some(entry) = self.entries.get(&key) {
                digest.update(entry.to_xdr(Limits::none())?);
            }
        }
        Ok(digest.finalize().into())
    }

    fn put(&mut self, entry: LedgerEntry) -> Result<Option<LedgerEntry>> {
        let key = entry.to_key();
        self.contract_bytes += contract_size(&entry)?;
        self.changed.insert(key.clone());
        let before = self.entries.insert(key, entry);
        if let Some(before) = &before {
            self.contract_bytes -= contract_size(before)?;
        }
        Ok(before)
    }

    fn take(&mut self, key: &LedgerKey) -> Result<Option<LedgerEntry>> {
        let before = self.entries.remove(key);
        if let Some(before) = &before {
            self.contract_bytes -= contract_size(before)?;
            self.changed.insert(key.clone());
        }
        Ok(before)
    }
}

/// State that a simulation reads: that after the latest ledger.
pub(super) struct Snapshot(pub(super) Arc<LedgerState>);

impl SnapshotSource for Snapshot {
    fn get(&self, key: &Rc<LedgerKey>) -> Result<Option<EntryWithLiveUntil>, HostError> {
        let Some(entry) = self.0.get(key) else {
            return Ok(None);
        };
        let live_until = self.0.live_until(key).map_err(|_| internal_storage_error())?;
        Ok(Some((Rc::new(entry.clone()), live_until)))
    }
}

fn internal_storage_error() -> HostError {
    use stellar_xdr::{ScErrorCode, ScErrorType};
    soroban_env_host::Error::from_type_and_code(ScErrorType::Storage, ScErrorCode::InternalError)
        .into()
}

fn contract_size(entry: &LedgerEntry) -> Result<u64> {
    match &entry.data {
        LedgerEntryData::ContractData(_) | LedgerEntryData::ContractCode(_) => {
            Ok(u64::from(rent_size(entry)?))
        }
        _ => Ok(0),
    }
}
