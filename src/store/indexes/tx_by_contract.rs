//! Index of smart-contract transactions by the contracts that they touch.

use super::index::{Index, IndexedTransaction, RowsOf};
use super::values::Values;
use crate::encoding::columns::{ContractTag, Family};

pub(crate) const INDEX: Index = Index {
    family: Family::TxByContract,
    tag_len: ContractTag::LEN,
    rows_of: RowsOf::Transaction(rows_of),
};

fn rows_of(transaction: &IndexedTransaction<'_>, rows: &mut Values<'_>) {
    for contract in transaction.contracts {
        rows.add(&ContractTag::from(contract).0, b"");
    }
}
