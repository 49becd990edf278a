//! What both indexes keep has in common: rows under keys, tags of what is looked up, and counters.

use sha2::{Digest, Sha256};

use crate::domain::ContractId;
use crate::store::{ConsumerEffects, ConsumerView, StoreError};

/// Rows of a consumer, by family and key.
pub trait Rows {
    /// The value under a key.
    ///
    /// # Errors
    /// What the store says.
    fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Visits rows from a key on, in the order of keys, until `visit` says false.
    ///
    /// # Errors
    /// What the store says.
    fn scan(
        &self,
        family: &str,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError>;
}

/// Rows that can be changed. Reads see what was changed.
pub trait RowsMut: Rows {
    /// Puts a value under a key.
    ///
    /// # Errors
    /// What the store says.
    fn put(&mut self, family: &str, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError>;

    /// Deletes what is under a key.
    ///
    /// # Errors
    /// What the store says.
    fn delete(&mut self, family: &str, key: Vec<u8>) -> Result<(), StoreError>;
}

impl Rows for ConsumerView<'_> {
    fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.get(family, key)
    }

    fn scan(
        &self,
        family: &str,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.scan(family, from, visit)
    }
}

impl Rows for ConsumerEffects<'_> {
    fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.get(family, key)
    }

    fn scan(
        &self,
        family: &str,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.scan(family, from, visit)
    }
}

impl RowsMut for ConsumerEffects<'_> {
    fn put(&mut self, family: &str, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError> {
        self.put(family, key, value)
    }

    fn delete(&mut self, family: &str, key: Vec<u8>) -> Result<(), StoreError> {
        self.delete(family, key)
    }
}

/// Visits the rows whose keys begin with a prefix, each with the rest of its key, until `visit` says false.
pub(super) fn scan_under(
    rows: &dyn Rows,
    family: &str,
    prefix: &[u8],
    mut visit: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), StoreError> {
    rows.scan(family, prefix, &mut |key, value| {
        key.strip_prefix(prefix).is_some_and(|rest| visit(rest, value))
    })
}

/// A row that no version has written.
pub(super) fn damaged(family: &'static str, key: &[u8]) -> StoreError {
    StoreError::Corrupt { family, key: hex::encode(key) }
}

/// What a signer is looked up by: a digest, because ids of credentials may be long. Two of them share one as
/// little as they share a SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub [u8; 32]);

impl Tag {
    /// That of the id of a credential.
    pub fn of_credential(id: &[u8]) -> Self {
        Self(Sha256::new().chain_update(b"c").chain_update(id).finalize().into())
    }

    /// That of an address, by its XDR.
    pub fn of_address(xdr: &[u8]) -> Self {
        Self(Sha256::new().chain_update(b"a").chain_update(xdr).finalize().into())
    }
}

/// Appends a contract as keys have it whose order is that of answers: by its strkey. The order of its bytes is
/// another one.
pub(super) fn put_strkey(key: &mut Vec<u8>, contract: &ContractId) {
    key.extend_from_slice(contract.to_string().as_bytes());
}

/// The contract in a value.
pub(super) fn contract_in(value: &[u8]) -> Option<ContractId> {
    value.try_into().ok().map(ContractId)
}

/// Numbers as a row has them.
pub(super) fn put_numbers(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    numbers.into_iter().flat_map(u32::to_be_bytes).collect()
}

/// The numbers of a row.
pub(super) fn numbers(row: &[u8]) -> Option<Vec<u32>> {
    let (numbers, []) = row.as_chunks::<4>() else { return None };
    Some(numbers.iter().map(|number| u32::from_be_bytes(*number)).collect())
}

/// Counters that are kept in one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counters<const N: usize>(pub [u64; N]);

impl<const N: usize> Counters<N> {
    /// Reads them; zeros where there is no row yet.
    pub(super) fn read(rows: &dyn Rows, family: &'static str) -> Result<Self, StoreError> {
        let Some(row) = rows.get(family, &[])? else { return Ok(Self([0; N])) };
        let (numbers, []) = row.as_chunks::<8>() else { return Err(damaged(family, &[])) };
        let numbers: [[u8; 8]; N] = numbers.try_into().map_err(|_| damaged(family, &[]))?;
        Ok(Self(numbers.map(u64::from_be_bytes)))
    }

    pub(super) fn write(
        &self,
        rows: &mut dyn RowsMut,
        family: &'static str,
    ) -> Result<(), StoreError> {
        rows.put(family, Vec::new(), self.0.iter().flat_map(|it| it.to_be_bytes()).collect())
    }
}

/// Ledgers from the first to the last; zeros before there is one.
pub(super) fn widen(first: &mut u64, last: &mut u64, ledger: u32) {
    let ledger = u64::from(ledger);
    *first = if *first == 0 { ledger } else { (*first).min(ledger) };
    *last = (*last).max(ledger);
}

/// Puts a row that says no more than that it is there. Says whether it was not.
pub(super) fn mark(rows: &mut dyn RowsMut, family: &str, key: Vec<u8>) -> Result<bool, StoreError> {
    if rows.get(family, &key)?.is_some() {
        return Ok(false);
    }
    rows.put(family, key, Vec::new())?;
    Ok(true)
}
