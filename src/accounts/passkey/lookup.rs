//! Lists the signers of a passkey wallet.

use std::ops::ControlFlow;

use super::event::{Key, Signer};
use super::rows::{self, ORDER, SIGNERS, key_of};
use crate::accounts::rows::{Rows, damaged, read, scan_under};
use crate::domain::ContractId;
use crate::store::StoreError;

/// A signer that a wallet has or had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSigner {
    /// Key that identifies the signer.
    pub key: Key,
    /// Properties of the signer, as of its last add or update.
    pub signer: Signer,
    /// Whether the signer was removed.
    pub is_removed: bool,
    /// Ledger of the last event that added or updated the signer.
    pub last_put: u32,
}

/// Visits the signers that a wallet has or had, in the order in which they were first added, until
/// `visit` breaks.
///
/// # Errors
/// [`StoreError`] when the database fails or a row is damaged.
pub fn signers(
    rows: &dyn Rows,
    contract: &ContractId,
    mut visit: impl FnMut(ListedSigner) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    scan_under(rows, ORDER, &contract.0, &[], |_, row_key| {
        let key = key_of(row_key)?;
        match signer(rows, contract, row_key, key) {
            Ok(signer) => Some(visit(signer).map_break(Ok)),
            Err(error) => Some(ControlFlow::Break(Err(error))),
        }
    })
    .map(drop)
}

fn signer(
    rows: &dyn Rows,
    contract: &ContractId,
    row_key: &[u8],
    key: Key,
) -> Result<ListedSigner, StoreError> {
    let row_key = [&contract.0, row_key].concat();
    let found = read(rows, SIGNERS, &row_key, |row| {
        let entry = rows::Signer::decode(row)?;
        let signer = entry.read(&key)?;
        let last_put = entry.put.as_ref()?.last.ledger;
        let is_removed = !entry.is_active();
        Some(ListedSigner { key, signer, is_removed, last_put })
    })?;
    found.ok_or_else(|| damaged(SIGNERS, &row_key))
}
