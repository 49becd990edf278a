//! Looks up one smart account.

use super::fold::Account;
use super::rows::{SmartAccounts, Summary, replay};
use crate::accounts::{AccountIndex, Rows};
use crate::domain::ContractId;
use crate::store::StoreError;

/// Returns the summary and the state of an account; `None` when it currently has no rule.
///
/// # Errors
/// [`StoreError`] when the database fails or a row is damaged.
pub fn account(
    rows: &dyn Rows,
    contract: &ContractId,
) -> Result<Option<(Summary, Account)>, StoreError> {
    match SmartAccounts::summary(rows, contract)? {
        Some(summary) if !summary.rules.is_empty() => {
            Ok(Some((summary, replay(rows, contract)?.account)))
        }
        _ => Ok(None),
    }
}
