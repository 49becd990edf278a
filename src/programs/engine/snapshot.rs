//! The ledger as a run sees it: what is known of the state before the transaction, with the code of
//! registered contracts replaced.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use soroban_env_host::HostError;
use soroban_env_host::ledger_info::get_key_durability;
use soroban_env_host::storage::{EntryWithLiveUntil, SnapshotSource};
use soroban_env_host::xdr::{
    ContractExecutable, Hash, LedgerEntry, LedgerEntryData, LedgerKey, ScAddress, ScErrorCode,
    ScErrorType, ScVal,
};

use super::limits::{Bounds, STOPPED, Stop};
use super::lookups::Lookups;
use crate::domain::ContractId;
use crate::programs::state::{Known, StateError};

/// The error with which a lookup ends the run. No caller can catch it.
const UNKNOWN: soroban_env_host::Error =
    soroban_env_host::Error::from_type_and_code(ScErrorType::Storage, ScErrorCode::InternalError);

/// The hash that stands for a program in the entry of a contract.
pub(super) type Synthetic = Hash;

/// Looks entries up while a run lasts.
pub(super) struct Snapshot {
    lookups: Lookups,
    /// Registered contracts, by id.
    replaced: HashMap<ContractId, Synthetic>,
    bounds: Arc<Bounds>,
    /// An unknown lifetime counts as the longest.
    longest_life: u32,
    read: RefCell<HashMap<Rc<LedgerKey>, Option<EntryWithLiveUntil>>>,
    originals: RefCell<HashMap<ContractId, ContractExecutable>>,
    missing: RefCell<Vec<LedgerKey>>,
}

impl Snapshot {
    pub(super) fn new(
        lookups: Lookups,
        replaced: HashMap<ContractId, Synthetic>,
        bounds: Arc<Bounds>,
        longest_life: u32,
    ) -> Self {
        Self {
            lookups,
            replaced,
            bounds,
            longest_life,
            read: RefCell::default(),
            originals: RefCell::default(),
            missing: RefCell::default(),
        }
    }

    fn look_up(&self, key: &LedgerKey) -> Result<Option<EntryWithLiveUntil>, HostError> {
        if self.bounds.check().is_err() {
            return Err(STOPPED.into());
        }
        // A nonce is used once: before the transaction that uses it, there is none.
        if is_nonce(key) || self.is_synthetic(key) {
            return Ok(None);
        }
        match self.lookups.entry(key, &self.bounds) {
            Some(Known::Present(entry, live_until)) => {
                let entry = self.with_code_replaced(entry);
                let live_until =
                    get_key_durability(key).map(|_| live_until.unwrap_or(self.longest_life));
                Ok(Some((entry, live_until)))
            }
            Some(Known::Absent) => Ok(None),
            Some(Known::Unknown) => {
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

    /// Whether a hash of code is one that stands for a program.
    pub(super) fn stands_for_program(&self, code: &Hash) -> bool {
        self.replaced.values().any(|synthetic| synthetic == code)
    }

    /// Puts the synthetic hash into the instance of a registered contract.
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

    /// Entries that were needed and are not known.
    pub(super) fn missing(&self) -> Vec<LedgerKey> {
        self.missing.borrow().clone()
    }

    /// The executable that a synthetic hash stands for.
    pub(super) fn original(&self, synthetic: &Hash) -> Option<ContractExecutable> {
        let contract = self.replaced.iter().find(|(_, hash)| *hash == synthetic)?.0;
        self.originals.borrow().get(contract).cloned()
    }

    /// An entry as the run found it. The host deletes entries without reading them; of those this
    /// finds out now.
    pub(super) fn found(&self, key: &LedgerKey) -> Option<Rc<LedgerEntry>> {
        if let Some(entry) = self.read.borrow().get(key) {
            return entry.as_ref().map(|(entry, _)| Rc::clone(entry));
        }
        match self.lookups.entry(key, &self.bounds) {
            Some(Known::Present(entry, _)) => Some(entry),
            Some(Known::Absent | Known::Unknown) | None => None,
        }
    }

    /// Why looking an entry up failed, if it did.
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

/// Whether a key is that of a nonce, which the host keeps as temporary data.
pub(super) fn is_nonce(key: &LedgerKey) -> bool {
    matches!(key, LedgerKey::ContractData(data) if matches!(data.key, ScVal::LedgerKeyNonce(_)))
}
