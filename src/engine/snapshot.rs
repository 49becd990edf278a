//! The ledger as a run reads it: the known state before the transaction, with the code of
//! registered contracts replaced.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use orrery_ledger::domain::ContractId;
use soroban_env_host::HostError;
use soroban_env_host::ledger_info::get_key_durability;
use soroban_env_host::storage::{EntryWithLiveUntil, SnapshotSource};
use soroban_env_host::xdr::{
    ContractExecutable, Hash, LedgerEntry, LedgerEntryData, LedgerKey, ScAddress, ScErrorCode,
    ScErrorType, ScVal,
};

use super::keys::is_nonce;
use super::limits::{Bounds, STOPPED, Stop};
use super::lookups::Lookups;
use super::state::{EntryState, StateError};

/// Error with which a failed lookup ends the run. A calling contract cannot catch it.
const UNKNOWN: soroban_env_host::Error =
    soroban_env_host::Error::from_type_and_code(ScErrorType::Storage, ScErrorCode::InternalError);

/// Code hash that represents the program in the instance entry of a contract.
pub(super) type Synthetic = Hash;

/// Looks up entries during a run.
pub(super) struct Snapshot {
    lookups: Lookups,
    /// Registered contracts, with the code hash that replaces theirs.
    replaced: HashMap<ContractId, Synthetic>,
    bounds: Arc<Bounds>,
    /// Last ledger assumed for an entry whose lifetime is unknown: the longest possible.
    max_live_until: u32,
    read: RefCell<HashMap<Rc<LedgerKey>, Option<EntryWithLiveUntil>>>,
    originals: RefCell<HashMap<ContractId, ContractExecutable>>,
    missing: RefCell<Vec<LedgerKey>>,
}

impl Snapshot {
    pub(super) fn new(
        lookups: Lookups,
        replaced: HashMap<ContractId, Synthetic>,
        bounds: Arc<Bounds>,
        max_live_until: u32,
    ) -> Self {
        Self {
            lookups,
            replaced,
            bounds,
            max_live_until,
            read: RefCell::default(),
            originals: RefCell::default(),
            missing: RefCell::default(),
        }
    }

    fn look_up(&self, key: &LedgerKey) -> Result<Option<EntryWithLiveUntil>, HostError> {
        if self.bounds.check().is_err() {
            return Err(STOPPED.into());
        }
        // A nonce is used once, so it does not exist before the transaction that uses it.
        if is_nonce(key) || self.is_synthetic(key) {
            return Ok(None);
        }
        match self.lookups.entry(key, &self.bounds) {
            Some(EntryState::Present(entry, live_until)) => {
                let entry = self.with_code_replaced(entry);
                let live_until =
                    get_key_durability(key).map(|_| live_until.unwrap_or(self.max_live_until));
                Ok(Some((entry, live_until)))
            }
            Some(EntryState::Absent) => Ok(None),
            Some(EntryState::Unknown) => {
                self.missing.borrow_mut().push(key.clone());
                self.bounds.stop(Stop::State);
                Err(UNKNOWN.into())
            }
            None => {
                self.bounds.stop(Stop::State);
                Err(UNKNOWN.into())
            }
        }
    }

    fn is_synthetic(&self, key: &LedgerKey) -> bool {
        match key {
            LedgerKey::ContractCode(code) => self.stands_for_program(&code.hash),
            _ => false,
        }
    }

    /// Returns whether a code hash represents a program.
    pub(super) fn stands_for_program(&self, code: &Hash) -> bool {
        self.replaced.values().any(|synthetic| synthetic == code)
    }

    /// Replaces the executable in the instance of a registered contract with the synthetic hash.
    fn with_code_replaced(&self, entry: Rc<LedgerEntry>) -> Rc<LedgerEntry> {
        let LedgerEntryData::ContractData(data) = &entry.data else { return entry };
        let ScAddress::Contract(contract) = &data.contract else { return entry };
        let contract = ContractId(contract.0.0);
        let is_instance = data.key == ScVal::LedgerKeyContractInstance;
        let (true, Some(synthetic)) = (is_instance, self.replaced.get(&contract)) else {
            return entry;
        };
        let mut entry = Rc::unwrap_or_clone(entry);
        if let LedgerEntryData::ContractData(data) = &mut entry.data
            && let ScVal::ContractInstance(instance) = &mut data.val
        {
            let synthetic = ContractExecutable::Wasm(synthetic.clone());
            let original = std::mem::replace(&mut instance.executable, synthetic);
            self.originals.borrow_mut().insert(contract, original);
        }
        Rc::new(entry)
    }

    /// Returns the keys of entries that were needed and are unknown.
    pub(super) fn missing(&self) -> Vec<LedgerKey> {
        self.missing.borrow().clone()
    }

    /// Returns the original executable that a synthetic hash replaced.
    pub(super) fn original(&self, synthetic: &Hash) -> Option<ContractExecutable> {
        let contract = self.replaced.iter().find(|(_, hash)| *hash == synthetic)?.0;
        self.originals.borrow().get(contract).cloned()
    }

    /// Returns an entry as it was before the run changed it. The host deletes entries without
    /// reading them; those are looked up here.
    pub(super) fn entry_before(&self, key: &LedgerKey) -> Option<Rc<LedgerEntry>> {
        if let Some(entry) = self.read.borrow().get(key) {
            return entry.as_ref().map(|(entry, _)| Rc::clone(entry));
        }
        match self.lookups.entry(key, &self.bounds) {
            Some(EntryState::Present(entry, _)) => Some(entry),
            Some(EntryState::Absent | EntryState::Unknown) | None => None,
        }
    }

    /// Takes the error of the first lookup that failed, if any.
    pub(super) fn failure(&self) -> Option<StateError> {
        self.lookups.failure()
    }
}

impl SnapshotSource for Snapshot {
    fn get(&self, key: &Rc<LedgerKey>) -> Result<Option<EntryWithLiveUntil>, HostError> {
        if let Some(entry) = self.read.borrow().get(key) {
            return Ok(entry.clone());
        }
        let entry = self.look_up(key)?;
        self.read.borrow_mut().insert(Rc::clone(key), entry.clone());
        Ok(entry)
    }
}
