//! Keys that a request names.

use stellar_xdr::{ReadXdr, ScVal};

use super::super::ApiError;
use super::super::params::Query;
use super::record::INSTANCE;
use orrery_contract_data::{Durability, hash_of_data_key};
use orrery_ledger::domain::{ContractId, ENTERED_VALUE, Hash32, excerpt};

/// Names of parameters.
pub(super) const KEY: &str = "key";
pub(super) const NAME: &str = "name";
const KEY_HASH: &str = "key_hash";
/// Maximum number of characters of a symbol.
const LONGEST_SYMBOL: usize = 32;

/// Returns the hash of a contract's key.
pub(super) fn hash(
    contract: &ContractId,
    key: ScVal,
    durability: Durability,
) -> Result<Hash32, ApiError> {
    hash_of_data_key(contract, key, durability).ok_or(ApiError::Encoding)
}

/// Returns the hash of the key of a contract's instance.
pub(super) fn instance_hash(contract: &ContractId) -> Result<Hash32, ApiError> {
    hash(contract, ScVal::LedgerKeyContractInstance, Durability::Persistent)
}

/// Parses `key`; `None` when it is not given. The word with which answers show the key of the instance
/// names it; `symbol:instance` is the symbol.
pub(super) fn key(query: &Query<'_>) -> Result<Option<ScVal>, ApiError> {
    if query.get(KEY) == Some(INSTANCE) {
        return Ok(Some(ScVal::LedgerKeyContractInstance));
    }
    let Some(xdr) = query.topic(KEY)? else { return Ok(None) };
    // It was read within the same limits just before.
    ScVal::from_xdr(xdr, ENTERED_VALUE).map(Some).map_err(|_| ApiError::Encoding)
}

/// Parses `name`, a symbol; `None` when it is not given.
pub(super) fn name(query: &Query<'_>) -> Result<Option<Vec<u8>>, ApiError> {
    let Some(text) = query.get(NAME) else { return Ok(None) };
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if text.is_empty() || text.len() > LONGEST_SYMBOL || !text.bytes().all(is_part) {
        let problem = format!(
            "is '{}': give a symbol, 1 to {LONGEST_SYMBOL} letters, digits and underscores",
            excerpt(text)
        );
        return Err(ApiError::parameter(NAME, problem));
    }
    Ok(Some(text.as_bytes().to_vec()))
}

/// Parses the hash of a key in the path.
pub(super) fn path_hash(raw: &str) -> Result<Hash32, ApiError> {
    let is_hash = raw.len() == 2 * Hash32::LEN && raw.bytes().all(|it| it.is_ascii_hexdigit());
    match raw.parse() {
        Ok(hash) if is_hash => Ok(hash),
        _ => {
            let problem = format!("is '{}': give 64 hexadecimal digits", excerpt(raw));
            Err(ApiError::parameter(KEY_HASH, problem))
        }
    }
}
