//! Collects a ledger's events during the walk, in the order in which Stellar RPC numbers them.
//! Leaves out diagnostic events, which are not part of consensus.

use crate::domain::{LedgerSeq, RpcEventId};

use super::xdr::{self, ContractEventType, Cursor, Depth, Xdr, XdrError, each};
use super::{EventType, EventView, Placement};

/// Events found so far, separated by their place in the ledger.
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
    /// Numbers of the next events before and after all transactions. Diagnostic events are counted
    /// too, should there be any, because Stellar RPC numbers positions.
    next_before: u32,
    next_after: u32,
}

impl<'a> Events<'a> {
    /// Creates an empty collection.
    pub fn new(ledger: LedgerSeq) -> Self {
        Self {
            ledger,
            before: Vec::new(),
            of_transactions: Vec::new(),
            after: Vec::new(),
            topics: Vec::new(),
            next_before: 0,
            next_after: 0,
        }
    }

    /// Returns the id of the next event before all transactions.
    pub fn next_id_before(&mut self) -> RpcEventId {
        let id = RpcEventId::new(self.ledger.0, 0, 0, self.next_before);
        self.next_before += 1;
        id
    }

    /// Returns the id of the next event after all transactions.
    pub fn next_id_after(&mut self) -> RpcEventId {
        let transaction = RpcEventId::AFTER_ALL_TRANSACTIONS;
        let id = RpcEventId::new(self.ledger.0, transaction, 0, self.next_after);
        self.next_after += 1;
        id
    }

    /// Walks a `ContractEvent` and adds it, unless it is diagnostic.
    pub fn read(
        &mut self,
        cursor: &mut Cursor<'a>,
        depth: Depth,
        transaction: usize,
        placement: Placement,
        rpc_id: RpcEventId,
    ) -> Result<(), XdrError> {
        let start = *cursor;
        let first_topic = self.topics.len();
        let depth = depth.enter()?;
        xdr::ExtensionPoint::skip(cursor, depth)?;
        let contract = if cursor.flag()? { Some(cursor.array()?) } else { None };
        let event_type = match ContractEventType::read(cursor, depth)? {
            ContractEventType::SYSTEM => Some(EventType::System),
            ContractEventType::CONTRACT => Some(EventType::Contract),
            _ => None,
        };
        // Version of the body; 0 is the only one.
        if cursor.u32()? != 0 {
            return Err(XdrError::UnknownValue);
        }
        let depth = depth.enter()?.enter()?;
        each(cursor, depth, |cursor, depth| {
            self.topics.push(cursor.value::<xdr::ScVal>(depth)?);
            Ok(())
        })?;
        let data = cursor.value::<xdr::ScVal>(depth)?;
        let Some(event_type) = event_type else {
            self.topics.truncate(first_topic);
            return Ok(());
        };
        let list = match placement {
            Placement::BeforeAllTransactions => &mut self.before,
            Placement::Operation { .. } | Placement::AfterTransaction => &mut self.of_transactions,
            Placement::AfterAllTransactions => &mut self.after,
        };
        list.push(EventView {
            transaction,
            placement,
            contract,
            event_type,
            topics: first_topic..self.topics.len(),
            data,
            xdr: start.up_to(cursor),
            rpc_id,
        });
        Ok(())
    }
}
