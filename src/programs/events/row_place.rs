//! The place of a row in the chain: the same on every machine, after a replacement and after all is derived anew.

use orrery_contract_data::LAST_ORDER;
use orrery_ledger::domain::{Hash32, LedgerSeq, TxHash};
use orrery_store::TransactionPosition;

/// The place of a row in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPlace {
    /// The ledger.
    pub ledger: LedgerSeq,
    /// In which transaction of the ledger.
    pub within: Within,
    /// Number in the transaction: the index of the event or of the emit, the number of the change.
    pub number: u32,
    /// What tells rows of one place from others, where nothing in the chain numbers them: which of them are known
    /// first depends on the machine.
    pub tie: Option<Hash32>,
}

/// A transaction of a ledger, or what is outside of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// Before all transactions.
    Before,
    /// The transaction with this application order.
    Transaction(u32),
    /// The transaction with this hash, whose order only the store knows.
    Hash(TxHash),
    /// After all transactions: evictions.
    After,
}

impl RowPlace {
    /// The place of a row with this number in a transaction.
    pub fn in_transaction(ledger: LedgerSeq, order: u32, number: u32) -> Self {
        Self { ledger, within: Within::Transaction(order), number, tie: None }
    }

    /// The place of a change of contract data in an entry of the row log, of whose rows it has this number.
    pub(super) fn of_change(
        ledger: LedgerSeq,
        at: TransactionPosition,
        number: u32,
        key: &Hash32,
    ) -> Self {
        // What was found before the first ledger is in entries as it was found.
        if at.ledger.0 == 0 {
            return Self { ledger, within: Within::Before, number: 0, tie: Some(*key) };
        }
        let within = match at.application_order {
            LAST_ORDER => Within::After,
            order => Within::Transaction(order),
        };
        Self { ledger, within, number, tie: None }
    }

    /// The place of a change of a member, which has this number among those of its contract, and a key that tells it
    /// from those of others.
    pub(super) fn of_member(
        ledger: LedgerSeq,
        transaction: TxHash,
        number: u32,
        key: Hash32,
    ) -> Self {
        let is_before = transaction.as_bytes().iter().all(|byte| *byte == 0);
        let within = if is_before { Within::Before } else { Within::Hash(transaction) };
        Self { ledger, within, number, tie: Some(key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_changes() {
        let (key, ledger) = (Hash32([7; 32]), LedgerSeq(9));
        let at = |ledger, application_order| TransactionPosition {
            ledger: LedgerSeq(ledger),
            application_order,
        };
        let place = |at| RowPlace::of_change(ledger, at, 3, &key);
        assert_eq!(place(at(9, 4)), RowPlace::in_transaction(ledger, 4, 3));
        assert_eq!(place(at(9, LAST_ORDER)).within, Within::After);
        let before = place(at(0, 5));
        assert_eq!((before.within, before.number, before.tie), (Within::Before, 0, Some(key)));
        let member = |hash| RowPlace::of_member(ledger, TxHash::from([hash; 32]), 1, key).within;
        assert_eq!(member(0), Within::Before);
        assert_eq!(member(2), Within::Hash(TxHash::from([2; 32])));
    }
}
