//! Storage helpers that the account indexes share: access to rows, and lookup tags.

use std::ops::ControlFlow;

use sha2::{Digest, Sha256};
use stellar_xdr::ScAddress;

use super::value;
use crate::domain::ContractId;
use crate::store::{ConsumerEffects, ConsumerView, StoreError};

/// Whether a visit of rows continues, or has ended because of an error or with all that it needs.
pub type RowFlow = ControlFlow<Result<(), StoreError>>;

/// Read access to the rows of a feed consumer, by family and key.
pub trait Rows {
    /// Returns the value under a key.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Visits the rows of a family whose keys begin with `prefix` in key order, starting at the one
    /// that continues with `from`, until `visit` breaks. `visit` receives the rest of each key.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    fn scan_prefix(
        &self,
        family: &str,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> RowFlow,
    ) -> Result<RowFlow, StoreError>;
}

/// Write access to the rows of a feed consumer. Reads return earlier changes.
pub trait RowsMut: Rows {
    /// Stores a value under a key.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    fn put(&mut self, family: &str, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError>;

    /// Deletes the row under a key.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    fn delete(&mut self, family: &str, key: Vec<u8>) -> Result<(), StoreError>;
}

macro_rules! rows {
    ($($type:ident),*) => {$(
        impl Rows for $type<'_> {
            fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
                self.get(family, key)
            }

            fn scan_prefix(
                &self,
                family: &str,
                prefix: &[u8],
                from: &[u8],
                visit: &mut dyn FnMut(&[u8], &[u8]) -> RowFlow,
            ) -> Result<RowFlow, StoreError> {
                self.scan_prefix(family, prefix, from, visit)
            }
        }
    )*};
}

rows!(ConsumerView, ConsumerEffects);

impl RowsMut for ConsumerEffects<'_> {
    fn put(&mut self, family: &str, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError> {
        self.put(family, key, value)
    }

    fn delete(&mut self, family: &str, key: Vec<u8>) -> Result<(), StoreError> {
        self.delete(family, key)
    }
}

/// Visits the rows whose keys begin with a prefix, starting at the one that continues with `from`,
/// each with the rest of its key, until `visit` breaks or returns `None` for a malformed row.
/// Returns whether it broke.
///
/// # Errors
/// [`StoreError`] when the database or `visit` fails, or when a row is malformed.
pub(super) fn scan_under(
    rows: &dyn Rows,
    family: &'static str,
    prefix: &[u8],
    from: &[u8],
    mut visit: impl FnMut(&[u8], &[u8]) -> Option<RowFlow>,
) -> Result<bool, StoreError> {
    let flow = rows.scan_prefix(family, prefix, from, &mut |rest, value| {
        let malformed = || ControlFlow::Break(Err(damaged(family, &[prefix, rest].concat())));
        visit(rest, value).unwrap_or_else(malformed)
    })?;
    Ok(flow.break_value().transpose()?.is_some())
}

/// Returns the row under a key, decoded; `None` when there is no such row.
///
/// # Errors
/// [`StoreError`] when the database fails, or when the row is malformed.
pub(super) fn read<T>(
    rows: &dyn Rows,
    family: &'static str,
    key: &[u8],
    decode: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    let row = rows.get(family, key)?;
    row.map(|row| decode(&row).ok_or_else(|| damaged(family, key))).transpose()
}

/// Returns the error for a row that is malformed.
pub(super) fn damaged(family: &'static str, key: &[u8]) -> StoreError {
    StoreError::Corrupt { family, key: hex::encode(key) }
}

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
