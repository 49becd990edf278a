//! Storage helpers that the account indexes share: numbers in rows, and lookup tags.

use sha2::{Digest, Sha256};
use stellar_xdr::ScAddress;

use super::value;
use crate::domain::ContractId;
use crate::store::StoreError;

pub use crate::store::{RowFlow, Rows, RowsMut};
pub(super) use crate::store::{
    malformed_row as damaged, read_row as read, scan_rows as scan_under,
};

/// SHA-256 under which a signer is looked up. A digest is used because credential ids may be long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub [u8; 32]);

impl Tag {
    /// Returns the tag of a credential id.
    pub fn of_credential(id: &[u8]) -> Self {
        Self(Sha256::new().chain_update(b"c").chain_update(id).finalize().into())
    }

    /// Returns the tag of an address.
    pub fn of_address(address: &ScAddress) -> Self {
        Self(Sha256::new().chain_update(b"a").chain_update(value::xdr(address)).finalize().into())
    }
}

/// Returns the contract id that a value consists of.
pub(super) fn contract_in(value: &[u8]) -> Option<ContractId> {
    value.try_into().ok().map(ContractId)
}

/// Encodes numbers as the value of a row, big-endian.
pub(super) fn put_numbers(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    numbers.into_iter().flat_map(u32::to_be_bytes).collect()
}

/// Decodes the value of a row into numbers; `None` when its length is not a multiple of four.
pub(super) fn numbers(row: &[u8]) -> Option<Vec<u32>> {
    let (numbers, []) = row.as_chunks::<4>() else { return None };
    Some(numbers.iter().map(|number| u32::from_be_bytes(*number)).collect())
}

/// Stores a row unless its key is present. Returns whether it was stored.
pub(super) fn put_new(
    rows: &mut dyn RowsMut,
    family: &str,
    key: Vec<u8>,
    value: Vec<u8>,
) -> Result<bool, StoreError> {
    let is_new = rows.get(family, &key)?.is_none();
    if is_new {
        rows.put(family, key, value)?;
    }
    Ok(is_new)
}
