//! Queries of the passkey wallet index.

use stellar_xdr::ScAddress;

use super::event::{Generation, Key, Signer};
use super::rows::{self, KEYS, SIGNERS, Stored, WALLETS, key_of, stored, tag};
use crate::accounts::rows::{Rows, contract_in, damaged, scan_under};
use crate::domain::ContractId;
use crate::store::StoreError;

pub use super::rows::Stats;

/// Properties of a wallet that a list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Generation of the wallet's last event.
    pub generation: Generation,
    /// Number of signers that were not removed, including expired ones.
    pub signers: u32,
    /// Ledger of the wallet's first event.
    pub first_seen: u32,
    /// Ledger of the wallet's last event.
    pub last_seen: u32,
}

impl From<Stored> for Summary {
    fn from(Stored { wallet, active, .. }: Stored) -> Self {
        Self {
            generation: wallet.generation,
            signers: active,
            first_seen: wallet.first.ledger,
            last_seen: wallet.last.ledger,
        }
    }
}

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

/// Visits the wallets with an active signer that has this credential id, until `visit` returns
/// false. They are ordered by the ledger of their first event and then by strkey.
///
/// # Errors
/// [`StoreError`] when the database fails or a row is damaged.
pub fn by_credential(
    rows: &dyn Rows,
    credential: &[u8],
    visit: impl FnMut(ContractId, Summary) -> bool,
) -> Result<(), StoreError> {
    by_key(rows, &Key::Secp256r1(credential.to_vec()), visit)
}

/// Visits the wallets with an active signer that is this account, as an Ed25519 public key or as a
/// policy, or this contract, as a policy, in the same order.
///
/// # Errors
/// [`StoreError`] when the database fails or a row is damaged.
pub fn by_address(
    rows: &dyn Rows,
    address: &ScAddress,
    visit: impl FnMut(ContractId, Summary) -> bool,
) -> Result<(), StoreError> {
    by_key(rows, &Key::Policy(address.clone()), visit)
}

fn by_key(
    rows: &dyn Rows,
    key: &Key,
    mut visit: impl FnMut(ContractId, Summary) -> bool,
) -> Result<(), StoreError> {
    let mut last = None;
    scan_under(rows, KEYS, &tag(key).0, &[], |_, value| {
        let contract = contract_in(value)?;
        if last.replace(contract) == Some(contract) {
            // The address is both a public key and a policy of this wallet.
            return Some(Ok(true));
        }
        let summary = wallet(rows, &contract)
            .and_then(|summary| summary.ok_or_else(|| damaged(WALLETS, &contract.0)));
        Some(summary.map(|summary| visit(contract, summary)))
    })
}

/// Returns the summary of a wallet; `None` when it never had a signer.
///
/// # Errors
/// [`StoreError`] when the database fails or a row is damaged.
pub fn wallet(rows: &dyn Rows, contract: &ContractId) -> Result<Option<Summary>, StoreError> {
    let stored = stored(rows, contract)?;
    Ok(stored.filter(|stored| stored.signers > 0).map(Summary::from))
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
    let (mut found, mut is_cut, mut looked_at) = (Vec::new(), false, 0);
    scan_under(rows, SIGNERS, &contract.0, &[], |row_key, row| {
        looked_at += 1;
        if looked_at > most {
            is_cut = true;
            return Some(Ok(false));
        }
        let (key, entry) = (key_of(row_key)?, rows::Signer::decode(row)?);
        let Some(put) = &entry.put else { return Some(Ok(true)) };
        let signer = entry.read(&key)?;
        let (is_removed, last_put) = (!entry.is_active(), put.last.ledger);
        found.push((put.first, ListedSigner { key, signer, is_removed, last_put }));
        Some(Ok(true))
    })?;
    found.sort_by_key(|(first, _)| *first);
    Ok((found.into_iter().map(|(_, signer)| signer).collect(), !is_cut))
}
