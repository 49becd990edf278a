//! Contracts from WASM modules: their upload and creation, and the keys and ids that follow from
//! code and creator. Does not depend on a particular module.

use orrery_ledger::domain::{ContractId, NetworkId};
use sha2::{Digest, Sha256};
use soroban_env_host::budget::Budget;
use soroban_env_host::storage::Storage;
use soroban_env_host::{Host, ModuleCache};
use stellar_xdr::{
    ContractExecutable, ContractExecutableExternalRef, ContractIdPreimage,
    ContractIdPreimageFromAddress, CreateContractArgsV2, Hash, HashIdPreimage,
    HashIdPreimageContractId, HostFunction, LedgerEntryData, LedgerKey, LedgerKeyContractCode,
    Limits, ScAddress, ScString, ScVal, SorobanResources, Uint256, WriteXdr,
};

use super::error::{Result, SandboxError};
use super::host::PROTOCOL;
use super::state::LedgerState;

/// Returns the host function that uploads a module; contracts refer to it by its hash.
pub(super) fn upload(code: &[u8]) -> Result<HostFunction> {
    Ok(HostFunction::UploadContractWasm(code.try_into()?))
}

/// Returns the host function that creates a contract from an uploaded module, with the arguments of
/// its constructor.
pub(super) fn create(
    creator: &ScAddress,
    salt: [u8; 32],
    code: &[u8],
    arguments: Vec<ScVal>,
) -> Result<HostFunction> {
    Ok(HostFunction::CreateContractV2(CreateContractArgsV2 {
        contract_id_preimage: preimage(creator, salt),
        executable: ContractExecutable::Wasm(code_hash(code)),
        constructor_args: arguments.try_into()?,
    }))
}

/// Returns the host function that creates a contract from the code that a reference points at
/// (CAP-85).
pub(super) fn create_from_reference(
    creator: &ScAddress,
    salt: [u8; 32],
    owner: ScAddress,
    tag: &str,
    arguments: Vec<ScVal>,
) -> Result<HostFunction> {
    let reference =
        ContractExecutableExternalRef { executable_owner: owner, tag: ScString(tag.try_into()?) };
    Ok(HostFunction::CreateContractV2(CreateContractArgsV2 {
        contract_id_preimage: preimage(creator, salt),
        executable: ContractExecutable::ExternalRef(reference),
        constructor_args: arguments.try_into()?,
    }))
}

/// Returns the id of the contract that `creator` creates with `salt` (CAP-46).
pub(super) fn contract_id(
    network: &NetworkId,
    creator: &ScAddress,
    salt: [u8; 32],
) -> Result<ContractId> {
    let preimage = HashIdPreimage::ContractId(HashIdPreimageContractId {
        network_id: Hash(network.0),
        contract_id_preimage: preimage(creator, salt),
    });
    Ok(ContractId(Sha256::digest(preimage.to_xdr(Limits::none())?).into()))
}

/// Returns the ledger key of a module.
pub(super) fn code_key(code: &[u8]) -> LedgerKey {
    LedgerKey::ContractCode(LedgerKeyContractCode { hash: code_hash(code) })
}

/// Returns the address of a contract.
pub(super) fn address(contract: ContractId) -> ScAddress {
    ScAddress::Contract(stellar_xdr::ContractId(Hash(contract.0)))
}

/// Returns the parsed modules of a footprint; `None` when it has none. A node caches all live
/// modules in parsed form, so that parsing is not charged to a call (CAP-65).
pub(super) fn modules(
    state: &LedgerState,
    resources: &SorobanResources,
) -> Result<Option<ModuleCache>> {
    let footprint = &resources.footprint;
    let keys = footprint.read_only.iter().chain(footprint.read_write.iter());
    let codes = keys.filter_map(|key| match &state.get(key)?.data {
        LedgerEntryData::ContractCode(entry) => Some(entry),
        _ => None,
    });
    let codes: Vec<_> = codes.collect();
    if codes.is_empty() {
        return Ok(None);
    }
    let ready = || {
        let budget = Budget::default();
        budget.reset_unlimited()?;
        let context = Host::with_storage_and_budget(Storage::default(), budget);
        let modules = ModuleCache::new(&context)?;
        for entry in codes {
            modules.parse_and_cache_module_simple(&context, PROTOCOL, &entry.code)?;
        }
        Ok(Some(modules))
    };
    ready().map_err(|error| SandboxError::host("make modules ready", &error))
}

fn preimage(creator: &ScAddress, salt: [u8; 32]) -> ContractIdPreimage {
    let (address, salt) = (creator.clone(), Uint256(salt));
    ContractIdPreimage::Address(ContractIdPreimageFromAddress { address, salt })
}

fn code_hash(code: &[u8]) -> Hash {
    Hash(Sha256::digest(code).into())
}
