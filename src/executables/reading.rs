//! The transactions of a ledger that may say something new of executables, for consumers of the feed that gather
//! which these are ([`facts::mentions`]).

use std::collections::BTreeSet;
use std::fmt::Display;

use super::facts;
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::{Gathers, Store, StoreError, TransactionPosition, TransactionRecord};

/// Returns what `read` finds in the successful transactions of a ledger that may say something new, in their order:
/// those that may have changed executables, and the first one that writes the instance of each contract of which it
/// is not known what it runs. Where it is not known any more which these are, all that write some are read.
///
/// # Errors
/// Those of `is_known` and `read`; when the database fails, or a transaction cannot be read.
pub fn read_new<T>(
    store: &Store,
    ledger: LedgerSeq,
    gathers: &Gathers,
    is_known: impl FnMut(&ContractId) -> Result<bool, StoreError>,
    mut read: impl FnMut(&TransactionRecord<'_>) -> Result<T, StoreError>,
) -> Result<Vec<(TransactionPosition, T)>, StoreError> {
    let reader = store.entry_reader(ledger)?;
    let mut all = Vec::new();
    match store.take_gathered(gathers, ledger) {
        Some(mentions) => {
            for application_order in orders(&mentions, is_known)? {
                let position = TransactionPosition { ledger, application_order };
                reader.transaction(position, |record| all.push((position, read(record))))?;
            }
        }
        None => {
            reader.transactions_of(ledger, |record: &TransactionRecord<'_>| {
                // What the operations of a failed transaction did was taken back.
                if !record.successful {
                    return;
                }
                let is_mentioned = facts::is_mentioned(record.meta);
                match is_mentioned.map_err(|error| unreadable(record.position, &error)) {
                    Ok(false) => {}
                    Ok(true) => all.push((record.position, read(record))),
                    Err(error) => all.push((record.position, Err(error))),
                }
            })?;
        }
    }
    all.into_iter().map(|(position, found)| Ok((position, found?))).collect()
}

/// Returns the transactions that have to be read.
fn orders(
    mentions: &[u8],
    mut is_known: impl FnMut(&ContractId) -> Result<bool, StoreError>,
) -> Result<BTreeSet<u32>, StoreError> {
    let (mut orders, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for mention in facts::decode(mentions) {
        let must_read = match mention.written {
            None => true,
            Some(contract) => seen.insert(contract) && !is_known(&contract)?,
        };
        if must_read {
            orders.insert(mention.application_order);
        }
    }
    Ok(orders)
}

/// Returns the error for a transaction of which it cannot be read what it did.
pub fn unreadable(position: TransactionPosition, error: &dyn Display) -> StoreError {
    let TransactionPosition { ledger, application_order } = position;
    StoreError::Database(format!(
        "what transaction {application_order} of ledger {ledger} did cannot be read: {error}"
    ))
}
