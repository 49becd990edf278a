//! Stored events and transactions, as they are returned and indexed. Depends on neither column
//! families nor keys.

use orrery_ledger::decode::{EventType, Placement};
use orrery_ledger::domain::{CloseTime, ContractId, EventId, LedgerSeq};

/// A stored event, borrowed from its decompressed block while it is visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRecord<'a> {
    /// Row id.
    pub id: EventId,
    /// Its ledger.
    pub ledger: LedgerSeq,
    /// When that ledger closed.
    pub closed_at: CloseTime,
    /// Hash of its transaction (the outer one of a fee bump).
    pub tx: &'a [u8; 32],
    /// 1-based position of its transaction in apply order.
    pub application_order: u32,
    /// Where in its transaction it was emitted.
    pub placement: Placement,
    /// Index in its transaction of the first event of its operation. `None` for fee events and when
    /// it does not follow from the events that were read together.
    pub operation_begins: Option<u32>,
    /// Emitting contract, if any.
    pub contract: Option<&'a [u8; 32]>,
    /// Kind of event.
    pub event_type: EventType,
    /// Whether its transaction succeeded: one that failed has fee events. `None` in ledgers that were
    /// stored before this was recorded.
    pub successful: Option<bool>,
    /// Topics, each the XDR of an `ScVal`.
    pub topics: &'a [&'a [u8]],
    /// Data, the XDR of an `ScVal`.
    pub data: &'a [u8],
}

impl EventRecord<'_> {
    /// Returns the size of its topics and its data, in bytes.
    pub fn size(&self) -> usize {
        self.topics.iter().map(|topic| topic.len()).sum::<usize>() + self.data.len()
    }

    /// Returns the 0-based index of its operation; `None` for fee events.
    pub fn op_index(&self) -> Option<u32> {
        match self.placement {
            Placement::Operation { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// Returns its 0-based index in its transaction; `None` for fee events.
    pub fn event_index(&self) -> Option<u32> {
        match self.placement {
            Placement::Operation { event_index, .. } => Some(event_index),
            _ => None,
        }
    }
}

/// Position of a transaction on the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionPosition {
    /// Its ledger.
    pub ledger: LedgerSeq,
    /// Its 1-based position in apply order.
    pub application_order: u32,
}

impl TransactionPosition {
    /// Encodes the position in bytes that sort in chain order: the ledger in 4, the application order
    /// in 3 (SEP-35 gives it 20 bits).
    pub(crate) fn to_bytes(self) -> [u8; 7] {
        let [a, b, c, d] = self.ledger.0.to_be_bytes();
        let [_, e, f, g] = self.application_order.to_be_bytes();
        [a, b, c, d, e, f, g]
    }

    /// Decodes a position from [`Self::to_bytes`]; `None` for another number of bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, d, e, f, g] = bytes else { return None };
        let (ledger, application_order) = ([a, b, c, d], [0, e, f, g]);
        Some(Self {
            ledger: LedgerSeq(u32::from_be_bytes(ledger)),
            application_order: u32::from_be_bytes(application_order),
        })
    }
}

/// A stored smart-contract transaction, borrowed while it is visited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionRecord<'a> {
    /// Hash (the outer one of a fee bump).
    pub tx: &'a [u8; 32],
    /// Hash of the inner transaction of a fee bump.
    pub inner_tx: Option<&'a [u8; 32]>,
    /// Its ledger and application order.
    pub position: TransactionPosition,
    /// When its ledger closed.
    pub closed_at: CloseTime,
    /// Whether it succeeded.
    pub successful: bool,
    /// Source account of the inner transaction as a strkey, `G…` or `M…`.
    pub source_account: &'a str,
    /// Account that paid the fee, as a strkey.
    pub fee_account: &'a str,
    /// Fee charged, stroops.
    pub fee_charged: i64,
    /// Contracts that it touched.
    pub contracts: &'a [ContractId],
    /// Number of its events that are stored.
    pub event_count: u32,
    /// XDR `TransactionEnvelope`.
    pub envelope: &'a [u8],
    /// XDR `TransactionResult`.
    pub result: &'a [u8],
    /// XDR `TransactionMeta`.
    pub meta: &'a [u8],
}
