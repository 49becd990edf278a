//! Keys of ledger entries and ids of contracts, recognised and built.

use orrery_ledger::domain::ContractId;
use soroban_env_host::xdr::{
    ContractDataDurability, ContractId as XdrContractId, Hash, LedgerKey, LedgerKeyContractData,
    ScAddress, ScVal,
};

/// Returns the key of a contract's instance entry.
pub(super) fn instance_key(contract: &ContractId) -> LedgerKey {
    LedgerKey::ContractData(LedgerKeyContractData {
        contract: ScAddress::Contract(XdrContractId(Hash(contract.0))),
        key: ScVal::LedgerKeyContractInstance,
        durability: ContractDataDurability::Persistent,
    })
}

/// Returns whether a key is that of a nonce, which the host stores as temporary data.
pub(super) fn is_nonce(key: &LedgerKey) -> bool {
    matches!(key, LedgerKey::ContractData(data) if matches!(data.key, ScVal::LedgerKeyNonce(_)))
}

/// Returns the id in an address value, if it is that of a contract.
pub(super) fn contract_of(value: &ScVal) -> Option<ContractId> {
    match value {
        ScVal::Address(ScAddress::Contract(contract)) => Some(ContractId(contract.0.0)),
        _ => None,
    }
}
