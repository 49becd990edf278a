//! What consumers keep of transactions that retention removes: each has a function that is called for
//! every such transaction, and whose changes of rows are part of the write that removes it.

use std::fmt;

use super::consumers::rows::RowsMut;
use crate::encoding::error::StoreError;
use crate::encoding::records::TransactionRecord;

/// How a consumer keeps what it needs of a transaction.
#[derive(Clone, Copy)]
pub struct Keeper {
    /// The consumer's name.
    pub consumer: &'static str,
    /// Changes the rows of the consumer. It is called for all transactions of a ledger in apply order,
    /// after the consumer has processed the ledger or lost it, and possibly for younger ledgers before
    /// older ones.
    pub keep: fn(&TransactionRecord<'_>, &mut dyn RowsMut) -> Result<(), StoreError>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keeper").field(&self.consumer).finish()
    }
}
