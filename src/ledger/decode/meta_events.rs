//! Walks a `TransactionMeta` and collects all events that it contains, in its order, including
//! diagnostic events. [`super::decode`] decides which of them are events of the ledger.

use std::mem;

use super::error::DecodeError;
use super::walk::walk;
use super::xdr::{Part, TransactionMeta, Visit, XdrError};

/// XDR of the events in a transaction's metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetaEvents<'a> {
    /// Each a `TransactionEvent`: events of the transaction as a whole, since protocol 23.
    pub of_transaction: Vec<&'a [u8]>,
    /// Each a `ContractEvent`: one list per operation; before protocol 23, a single list and only
    /// for smart-contract transactions.
    pub of_operations: Vec<Vec<&'a [u8]>>,
    /// Each a `DiagnosticEvent`.
    pub diagnostic: Vec<&'a [u8]>,
}

impl<'a> MetaEvents<'a> {
    /// Returns the events of a `TransactionMeta`.
    ///
    /// # Errors
    /// When `meta` is not an XDR `TransactionMeta`.
    pub fn of(meta: &'a [u8]) -> Result<Self, DecodeError> {
        let mut walked = Walked::default();
        walk::<TransactionMeta>(meta, &mut walked)?;
        Ok(walked.events)
    }
}

/// Events found so far.
#[derive(Default)]
struct Walked<'a> {
    events: MetaEvents<'a>,
    /// Events of the operation that is being walked.
    operation: Vec<&'a [u8]>,
}

impl<'a> Visit<'a> for Walked<'a> {
    #[inline(always)]
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        match part {
            Part::OperationEvent => self.operation.push(xdr),
            Part::OperationEvents => self.events.of_operations.push(mem::take(&mut self.operation)),
            Part::StagedEvent => self.events.of_transaction.push(xdr),
            Part::Diagnostic => self.events.diagnostic.push(xdr),
            _ => {}
        }
        Ok(())
    }
}
