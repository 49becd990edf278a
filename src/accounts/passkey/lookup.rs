//! Lists the signers of a passkey wallet.

use std::ops::ControlFlow;

use super::event::{Key, Signer};
use super::rows::{self, SIGNERS, key_of};
use crate::accounts::rows::{Rows, scan_under};
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

/// Returns the signers that a wallet has or had, in the order in which they were first added, and
/// whether all were read. At most `most` rows are read, in key order.
///
/// # Errors
/// [`StoreError`] when the database fails or a row is damaged.
pub fn signers(
    rows: &dyn Rows,
    contract: &ContractId,
    most: u64,
) -> Result<(Vec<ListedSigner>, bool), StoreError> {
    let (mut found, mut looked_at) = (Vec::new(), 0);
    let is_cut = scan_under(rows, SIGNERS, &contract.0, &[], |row_key, row| {
        looked_at += 1;
        if looked_at > most {
            return Some(ControlFlow::Break(Ok(())));
        }
        let (key, entry) = (key_of(row_key)?, rows::Signer::decode(row)?);
        let Some(put) = &entry.put else { return Some(ControlFlow::Continue(())) };
        let signer = entry.read(&key)?;
        let (is_removed, last_put) = (!entry.is_active(), put.last.ledger);
        found.push((put.first, ListedSigner { key, signer, is_removed, last_put }));
        Some(ControlFlow::Continue(()))
    })?;
    found.sort_by_key(|(first, _)| *first);
    Ok((found.into_iter().map(|(_, signer)| signer).collect(), !is_cut))
}
