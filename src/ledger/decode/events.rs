//! Collects a ledger's events during the walk, in the order in which Stellar RPC numbers them.
//! Leaves out diagnostic events, which are not part of consensus.

use std::mem;
use std::ops::Range;

use crate::domain::{LedgerSeq, RpcEventId};

use super::view::{EventType, EventView, Placement};
use super::xdr::{ContractEventType, Cursor, Part, TransactionEventStage, Visit, XdrError};

/// Events found so far, separated by their place in the ledger.
#[derive(Default)]
pub struct Events<'a> {
    /// Sequence number of the ledger.
    pub ledger: LedgerSeq,
    /// Events before all transactions.
    pub before: Vec<EventView<'a>>,
    /// Events of the transactions, in apply order.
    pub of_transactions: Vec<EventView<'a>>,
    /// Events after all transactions.
    pub after: Vec<EventView<'a>>,
    /// Topics of all events.
    pub topics: Vec<&'a [u8]>,
    /// Index of the current transaction.
    transaction: usize,
    /// The current transaction's operations.
    operations: OperationEvents,
    /// Numbers of the next events. Diagnostic events are counted too, should there be any, because
    /// Stellar RPC numbers positions.
    next_before_all: u32,
    next_after_all: u32,
    next: Next,
    /// Number of topics before the current event.
    first_topic: usize,
    /// Data of the current event.
    data: &'a [u8],
}

/// Events of a transaction's operations.
#[derive(Default)]
pub struct OperationEvents {
    /// Number of operations that have a list of events each.
    pub operations: u32,
    /// Number of events in these lists, diagnostic ones included.
    pub listed: u32,
    /// Their events, as indexes into [`Events::of_transactions`].
    pub events: Range<usize>,
}

/// Numbers of the next events of the current transaction.
#[derive(Default)]
struct Next {
    in_operation: u32,
    in_operations: u32,
    after_transaction: u32,
}

impl<'a> Events<'a> {
    /// Returns the events of the current transaction's operations, and goes on to the next
    /// transaction.
    pub fn end_transaction(&mut self) -> OperationEvents {
        let end = self.of_transactions.len();
        self.transaction += 1;
        let listed = mem::take(&mut self.next).in_operations;
        let next = OperationEvents { operations: 0, listed: 0, events: end..end };
        OperationEvents { listed, ..mem::replace(&mut self.operations, next) }
    }

    /// Adds an event of the current operation.
    fn add_operation_event(&mut self, xdr: &'a [u8]) -> Result<(), XdrError> {
        let operation = self.operations.operations;
        let event_index = number(&mut self.next.in_operations);
        let placement = Placement::Operation { operation, event_index };
        let order = application_order(self.transaction);
        let number = number(&mut self.next.in_operation);
        self.add(placement, RpcEventId::new(self.ledger.0, order, operation, number), xdr)
    }

    /// Adds a `TransactionEvent`.
    fn add_staged_event(&mut self, xdr: &'a [u8]) -> Result<(), XdrError> {
        use TransactionEventStage as Stage;

        let (stage, event) = xdr.split_first_chunk().ok_or(XdrError::UnexpectedEnd)?;
        let (placement, order, operation, next) = match i32::from_be_bytes(*stage) {
            Stage::BEFORE_ALL_TXS => {
                (Placement::BeforeAllTransactions, 0, 0, &mut self.next_before_all)
            }
            Stage::AFTER_ALL_TXS => {
                let order = RpcEventId::AFTER_ALL_TRANSACTIONS;
                (Placement::AfterAllTransactions, order, 0, &mut self.next_after_all)
            }
            _ => {
                let order = application_order(self.transaction);
                let operation = RpcEventId::AFTER_TRANSACTION;
                (Placement::AfterTransaction, order, operation, &mut self.next.after_transaction)
            }
        };
        let id = RpcEventId::new(self.ledger.0, order, operation, number(next));
        self.add(placement, id, event)
    }

    /// Adds a `ContractEvent`, unless it is diagnostic.
    fn add(
        &mut self,
        placement: Placement,
        rpc_id: RpcEventId,
        xdr: &'a [u8],
    ) -> Result<(), XdrError> {
        let cursor = &mut Cursor::new(xdr);
        // ext
        cursor.u32()?;
        let contract = if cursor.flag()? { Some(cursor.array()?) } else { None };
        let event_type = match cursor.i32()? {
            ContractEventType::SYSTEM => EventType::System,
            ContractEventType::CONTRACT => EventType::Contract,
            _ => {
                self.topics.truncate(self.first_topic);
                return Ok(());
            }
        };
        let list = match placement {
            Placement::BeforeAllTransactions => &mut self.before,
            Placement::Operation { .. } | Placement::AfterTransaction => &mut self.of_transactions,
            Placement::AfterAllTransactions => &mut self.after,
        };
        let topics = self.first_topic..self.topics.len();
        self.first_topic = topics.end;
        let (transaction, data) = (self.transaction, self.data);
        list.push(EventView {
            transaction,
            placement,
            contract,
            event_type,
            topics,
            data,
            xdr,
            rpc_id,
        });
        Ok(())
    }
}

impl<'a> Visit<'a> for Events<'a> {
    #[inline(always)]
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        match part {
            Part::Topic => self.topics.push(xdr),
            Part::EventData => self.data = xdr,
            Part::OperationEvent => self.add_operation_event(xdr)?,
            Part::OperationEvents => {
                self.operations.operations += 1;
                self.operations.events.end = self.of_transactions.len();
                self.next.in_operation = 0;
            }
            Part::StagedEvent => self.add_staged_event(xdr)?,
            _ => {}
        }
        Ok(())
    }
}

/// Returns the number, and adds one to it.
fn number(next: &mut u32) -> u32 {
    let number = *next;
    *next += 1;
    number
}

/// Returns the 1-based position in the apply order. [`matching`](super::matching) refuses a ledger
/// with more transactions than an id can number.
pub fn application_order(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1)
}
