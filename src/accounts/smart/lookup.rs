//! Queries of the smart account index.

use stellar_xdr::ScAddress;

use super::fold::Account;
use super::rows::{ACCOUNTS, SIGNERS, Summary, replay, summary};
use crate::accounts::rows::{Rows, Tag, contract_in, damaged, scan_under};
use crate::accounts::value;
use crate::domain::ContractId;
use crate::store::StoreError;

pub use super::rows::Stats;

/// Visits the accounts with an active signer that has this credential id, in the order of their
/// strkeys, until `visit` returns false.
///
/// # Errors
/// [`StoreError`] when the database fails or a row is damaged.
pub fn by_credential(
    rows: &dyn Rows,
    credential: &[u8],
    visit: impl FnMut(ContractId, Summary) -> bool,
) -> Result<(), StoreError> {
    by_tag(rows, Tag::of_credential(credential), visit)
}

/// Visits the accounts with an active signer that has this address, as its own or as that of its
/// verifier contract, in the same order.
///
/// # Errors
/// [`StoreError`] when the database fails or a row is damaged.
pub fn by_address(
    rows: &dyn Rows,
    address: &ScAddress,
    visit: impl FnMut(ContractId, Summary) -> bool,
) -> Result<(), StoreError> {
    by_tag(rows, Tag::of_address(&value::xdr(address)), visit)
}

fn by_tag(
    rows: &dyn Rows,
    tag: Tag,
    mut visit: impl FnMut(ContractId, Summary) -> bool,
) -> Result<(), StoreError> {
    scan_under(rows, SIGNERS, &tag.0, &[], |_, value| {
        let contract = contract_in(value)?;
        let summary = summary(rows, &contract)
            .and_then(|summary| summary.ok_or_else(|| damaged(ACCOUNTS, &contract.0)));
        Some(summary.map(|summary| visit(contract, summary)))
    })
}

/// Returns the summary and the state of an account; `None` when it currently has no rule.
///
/// # Errors
/// [`StoreError`] when the database fails or a row is damaged.
pub fn account(
    rows: &dyn Rows,
    contract: &ContractId,
) -> Result<Option<(Summary, Account)>, StoreError> {
    match summary(rows, contract)? {
        Some(summary) if !summary.rules.is_empty() => {
            Ok(Some((summary, replay(rows, contract)?.account)))
        }
        _ => Ok(None),
    }
}
