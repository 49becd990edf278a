//! Lists the signers of a passkey wallet.

use std::ops::ControlFlow;

use super::event::{Key, Signer};
use super::tables::{self, ORDER, SIGNERS};
use orrery_ledger::domain::ContractId;
use orrery_store::{Rows, StoreError};

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
pub fn signers(
    rows: &dyn Rows,
    contract: &ContractId,
    mut visit: impl FnMut(ListedSigner) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    ORDER
        .scan(rows, contract, None, |_, key| {
            let row_key = (*contract, key);
            let entry = SIGNERS.get(rows, &row_key)?;
            let signer = entry.and_then(|entry| listed(&row_key.1, &entry));
            Ok(visit(signer.ok_or_else(|| SIGNERS.damaged(&row_key))?))
        })
        .map(drop)
}

/// `None` when the entry is not one of a signer that was put.
fn listed(key: &Key, entry: &tables::Signer) -> Option<ListedSigner> {
    let signer = entry.properties(key)?;
    let last_put = entry.put.as_ref()?.last.ledger;
    Some(ListedSigner { key: key.clone(), signer, is_removed: !entry.is_active(), last_put })
}
