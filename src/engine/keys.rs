//! Keys of ledger entries and ids of contracts, recognised.

use orrery_ledger::domain::ContractId;
use soroban_env_host::xdr::{LedgerKey, ScAddress, ScVal};

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
