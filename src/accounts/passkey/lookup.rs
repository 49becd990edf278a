//! What is asked of the index of passkey wallets.

use stellar_xdr::ScAddress;

use super::event::{Generation, Key, Signer};
use super::rows::{self, KEYS, SIGNERS, Stored, WALLETS, key_of, stored, tag};
use crate::accounts::rows::{Rows, contract_in, damaged, scan_under};
use crate::domain::ContractId;
use crate::store::StoreError;

pub use super::rows::Stats;

/// What is told of a wallet in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// That of its last event.
    pub generation: Generation,
    /// Signers that it has, those whose time is over among them.
    pub signers: u32,
    /// Ledger of its first event.
    pub first_seen: u32,
    /// Ledger of its last event.
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
    /// What it is known by.
    pub key: Key,
    /// How it is, or was when it was removed.
    pub signer: Signer,
    /// Whether it was removed.
    pub is_removed: bool,
    /// Ledger of the last event that put it there.
    pub put_in: u32,
}

/// Visits the wallets that have this credential, the oldest first and those of one ledger by their strkeys, until
/// `visit` says false.
///
/// # Errors
/// What the store says.
pub fn by_credential(
    rows: &dyn Rows,
    credential: &[u8],
    visit: impl FnMut(ContractId, Summary) -> bool,
) -> Result<(), StoreError> {
    by_key(rows, &Key::Secp256r1(credential.to_vec()), visit)
}

/// Visits the wallets that have this account as a public key or as a policy, or this contract as a policy, in the
/// same order.
///
/// # Errors
/// What the store says.
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
    let (mut last, mut failure) = (None, None);
    scan_under(rows, KEYS, &tag(key).0, |row_key, value| {
        let found = match contract_in(value) {
            // As a public key and as a policy.
            Some(contract) if last == Some(contract) => return true,
            Some(contract) => wallet(rows, &contract).map(|found| found.map(|it| (contract, it))),
            None => Err(damaged(KEYS, row_key)),
        };
        match found {
            Ok(Some((contract, summary))) => {
                last = Some(contract);
                return visit(contract, summary);
            }
            Ok(None) => failure = Some(damaged(WALLETS, row_key)),
            Err(error) => failure = Some(error),
        }
        false
    })?;
    failure.map_or(Ok(()), Err)
}

/// What is told of a wallet; none when it never had a signer.
///
/// # Errors
/// What the store says.
pub fn wallet(rows: &dyn Rows, contract: &ContractId) -> Result<Option<Summary>, StoreError> {
    let stored = stored(rows, contract)?;
    Ok(stored.filter(|stored| stored.signers > 0).map(Summary::from))
}

/// The signers that a wallet has or had, in the order in which they were there first; no more than `most`, and
/// then whichever they are. Says whether those are all.
///
/// # Errors
/// What the store says.
pub fn signers(
    rows: &dyn Rows,
    contract: &ContractId,
    most: u64,
) -> Result<(Vec<ListedSigner>, bool), StoreError> {
    let (mut found, mut failure, mut is_cut) = (Vec::new(), None, false);
    let mut looked_at = 0;
    scan_under(rows, SIGNERS, &contract.0, |key, row| {
        looked_at += 1;
        if looked_at > most {
            is_cut = true;
            return false;
        }
        let entry = key_of(key).zip(rows::Signer::decode(row));
        let Some((key, entry)) = entry else {
            failure = Some(damaged(SIGNERS, key));
            return false;
        };
        let Some(put) = &entry.put else { return true };
        let Some(signer) = entry.read(&key) else {
            failure = Some(damaged(SIGNERS, row));
            return false;
        };
        let (is_removed, put_in) = (!entry.is_active(), put.last.ledger);
        found.push((put.first, ListedSigner { key, signer, is_removed, put_in }));
        true
    })?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    found.sort_by_key(|(first, _)| *first);
    Ok((found.into_iter().map(|(_, signer)| signer).collect(), !is_cut))
}
