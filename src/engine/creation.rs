//! Replaces the code of registered contracts that the transaction itself creates. Their instance
//! entries contain the hash of the network's code, which contracts that are not registered may
//! share.

use std::rc::Rc;

use orrery_ledger::domain::ContractId;
use sha2::{Digest, Sha256};
use soroban_env_host::storage::SnapshotSource;
use soroban_env_host::xdr::{
    ContractDataDurability, ContractExecutable, ContractExecutableExternalRef, ContractIdPreimage,
    Hash, HashIdPreimage, HashIdPreimageContractId, HostFunction, LedgerEntryChange,
    LedgerEntryData, LedgerKey, LedgerKeyContractCode, LedgerKeyContractData, Limits as XdrLimits,
    ScAddress, ScVal, WriteXdr,
};
use soroban_env_host::{
    ContractFunctionSet, Env, EnvBase, Host, HostError, Symbol, TryFromVal, Val,
};

use super::check::CheckRules;
use super::engine::Engine;
use super::frame::Replacement;
use super::guest::Run;
use super::invocation::Invocation;
use super::keys::contract_of;
use super::limits::{STOPPED, Stop};
use super::module::Module;
use super::snapshot::Snapshot;

/// A code hash with which the transaction creates registered contracts.
pub(super) struct Creation {
    pub(super) code: Hash,
    /// Registered contracts that the transaction creates with this code.
    pub(super) created: Vec<ContractId>,
    pub(super) engine: Engine,
    pub(super) module: Module,
    pub(super) run: Rc<Run>,
    pub(super) snapshot: Rc<Snapshot>,
}

impl ContractFunctionSet for Creation {
    fn call(&self, function: &Symbol, host: &Host, args: &[Val]) -> Option<Val> {
        let result = self
            .replacement(host)
            .and_then(|replacement| replacement.call_export(function, host, args));
        match result {
            Ok(result) => result,
            Err(error) => host.escalate_error_to_panic(error),
        }
    }
}

impl Creation {
    fn key(&self) -> Rc<LedgerKey> {
        Rc::new(LedgerKey::ContractCode(LedgerKeyContractCode { hash: self.code.clone() }))
    }

    /// Loads the entry of the code. Otherwise the host would create a stub entry in its place.
    pub(super) fn load_entry(&self, host: &Host) -> Result<(), HostError> {
        host.get_ledger_entry(&self.key()).map(drop)
    }

    /// Returns the program for the created contracts, and the network's code for all others.
    fn replacement(&self, host: &Host) -> Result<Replacement, HostError> {
        let address = host.get_current_contract_address()?;
        let current = contract_of(&ScVal::try_from_val(host, &address.to_val())?);
        let contract = current.ok_or(STOPPED)?;
        let is_program = self.created.contains(&contract);
        let module = if is_program { self.module.clone() } else { self.network_code()? };
        Ok(Replacement { contract, module, run: Rc::clone(&self.run), is_program })
    }

    fn network_code(&self) -> Result<Module, HostError> {
        let entry = self.snapshot.get(&self.key())?;
        let code = match entry.as_ref().map(|(entry, _)| &entry.data) {
            Some(LedgerEntryData::ContractCode(entry)) => entry.code.as_slice(),
            _ => return Err(STOPPED.into()),
        };
        let rules = CheckRules {
            must_emit: false,
            memory: self.run.bounds.limits.memory,
            ..CheckRules::default()
        };
        // Compiling the code does not count as time of the program.
        let loaded = self.run.bounds.untimed(|| self.engine.check_and_load(code, &rules));
        loaded.map_err(|error| {
            self.run.bounds.stop(if error.is_about_the_module() {
                Stop::Guest(format!(
                    "the code {} of a contract that is created cannot be run: {error}",
                    hex::encode(self.code.0)
                ))
            } else {
                Stop::Internal(error.to_string())
            });
            STOPPED.into()
        })
    }
}

/// Returns the code hashes with which the transaction creates registered contracts, each with these
/// contracts.
pub(super) fn created_code(
    invocation: &Invocation,
    contracts: &[ContractId],
    snapshot: &Snapshot,
) -> Vec<(Hash, Vec<ContractId>)> {
    let mut found: Vec<(Hash, Vec<ContractId>)> = Vec::new();
    let recorded = invocation.recorded.iter().flat_map(|recorded| recorded.changes.iter());
    for (contract, executable) in recorded.filter_map(created).chain(declared(invocation)) {
        if !contracts.contains(&contract) {
            continue;
        }
        for code in codes_of(&executable, invocation, snapshot) {
            match found.iter_mut().find(|(known, _)| *known == code) {
                Some((_, ids)) if ids.contains(&contract) => {}
                Some((_, ids)) => ids.push(contract),
                None => found.push((code, vec![contract])),
            }
        }
    }
    found
}

/// Returns the contract that a change creates, if it creates one.
fn created(change: &LedgerEntryChange) -> Option<(ContractId, ContractExecutable)> {
    let LedgerEntryChange::Created(entry) = change else { return None };
    let LedgerEntryData::ContractData(data) = &entry.data else { return None };
    match (&data.contract, &data.key, &data.val) {
        (
            ScAddress::Contract(contract),
            ScVal::LedgerKeyContractInstance,
            ScVal::ContractInstance(instance),
        ) => Some((ContractId(contract.0.0), instance.executable.clone())),
        _ => None,
    }
}

/// Returns the contract that the transaction's host function creates directly, if it creates one.
fn declared(invocation: &Invocation) -> Option<(ContractId, ContractExecutable)> {
    let (preimage, executable) = match &invocation.host_function {
        HostFunction::CreateContract(args) => (&args.contract_id_preimage, &args.executable),
        HostFunction::CreateContractV2(args) => (&args.contract_id_preimage, &args.executable),
        _ => return None,
    };
    let id = contract_id(invocation, preimage.clone())?;
    Some((id, executable.clone()))
}

/// Returns the code hashes of an executable. The target of a reference may change during the
/// transaction (CAP-85), so every known target is returned.
fn codes_of(
    executable: &ContractExecutable,
    invocation: &Invocation,
    snapshot: &Snapshot,
) -> Vec<Hash> {
    match executable {
        ContractExecutable::Wasm(code) => vec![code.clone()],
        ContractExecutable::StellarAsset => Vec::new(),
        ContractExecutable::ExternalRef(reference) => {
            let key = Rc::new(reference_key(reference));
            // A failed lookup has already stopped the run, which needs this entry.
            let before = snapshot.get(&key).ok().flatten();
            let before = before.and_then(|(entry, _)| referred(&key, &entry.data));
            let recorded = invocation.recorded.iter().flat_map(|one| one.changes.iter());
            let changed = recorded.filter_map(|change| match change {
                LedgerEntryChange::Created(entry) | LedgerEntryChange::Updated(entry) => {
                    referred(&key, &entry.data)
                }
                _ => None,
            });
            before.into_iter().chain(changed).collect()
        }
    }
}

/// Returns the key of the entry that holds the target of a reference (CAP-85).
fn reference_key(reference: &ContractExecutableExternalRef) -> LedgerKey {
    LedgerKey::ContractData(LedgerKeyContractData {
        contract: reference.executable_owner.clone(),
        key: ScVal::ExecutableTag(reference.tag.clone()),
        durability: ContractDataDurability::Persistent,
    })
}

/// Returns the code hash in an entry, if the entry has this key.
fn referred(key: &LedgerKey, entry: &LedgerEntryData) -> Option<Hash> {
    let (LedgerKey::ContractData(key), LedgerEntryData::ContractData(data)) = (key, entry) else {
        return None;
    };
    let same =
        (&key.contract, &key.key, key.durability) == (&data.contract, &data.key, data.durability);
    match &data.val {
        ScVal::Bytes(bytes) if same => bytes.as_slice().try_into().ok().map(Hash),
        _ => None,
    }
}

/// Returns the id of a contract that is to be created (CAP-46-02).
fn contract_id(invocation: &Invocation, preimage: ContractIdPreimage) -> Option<ContractId> {
    let preimage = HashIdPreimage::ContractId(HashIdPreimageContractId {
        network_id: Hash(*invocation.network_id.as_bytes()),
        contract_id_preimage: preimage,
    });
    let xdr = preimage.to_xdr(XdrLimits::none()).ok()?;
    Some(ContractId(Sha256::digest(xdr).into()))
}
