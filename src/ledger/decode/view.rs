//! The view of a decoded ledger that consumers use. Does not depend on how the ledger was read.

use std::fmt;
use std::ops::Range;

use stellar_strkey::ed25519;

use super::conditions::Conditions;
use super::entry::{ChangedEntry, EntryKey};
use crate::domain::{CloseTime, ContractId, LedgerHash, LedgerSeq, RpcEventId, TxHash};

/// One closed ledger, borrowed from the bytes of its `LedgerCloseMeta`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerView<'a> {
    /// The whole `LedgerCloseMeta`, XDR.
    pub raw: &'a [u8],
    /// Version of the `LedgerCloseMeta`: 0, 1 or 2. Independent of the header's protocol.
    pub version: u32,
    /// The ledger's header.
    pub header: HeaderView<'a>,
    /// The transaction set: XDR `TransactionSet` in version 0, else `GeneralizedTransactionSet`.
    pub transaction_set: &'a [u8],
    /// Transactions in apply order.
    pub transactions: Vec<TransactionView<'a>>,
    /// Events in the canonical order of the ledger: fee charges of all transactions, then for each
    /// transaction the events of its operations and those after them, then fee refunds of all
    /// transactions. Does not include diagnostic events.
    pub events: Vec<EventView<'a>>,
    /// Topics of all events, concatenated, each an XDR `ScVal`. See [`EventView::topics`].
    pub topics: Vec<&'a [u8]>,
    /// Keys of temporary data that was deleted and of persistent data that was archived, after all
    /// other changes (`evictedKeys`, CAP-62).
    pub evicted: Vec<EntryKey<'a>>,
    /// What governs calls on the state after the ledger, as far as the ledger says it.
    pub conditions: Conditions<'a>,
}

/// A ledger's header and the hash that the source delivered with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderView<'a> {
    /// XDR `LedgerHeader`.
    pub xdr: &'a [u8],
    /// Hash of the header as the source claims it; [`crate::verify`] checks it.
    pub hash: LedgerHash,
    /// Hash of the previous ledger.
    pub previous_hash: LedgerHash,
    /// Sequence number.
    pub sequence: LedgerSeq,
    /// Protocol version after this ledger's upgrades.
    pub protocol: u32,
    /// Close time (`closeTime`), UNIX seconds, rounded down. Several ledgers may share one.
    pub close_time: u64,
    /// Close time (`closeTimeMs`), UNIX milliseconds; `None` before protocol 30 (CAP-88). In a
    /// [decoded](super::decode) ledger it agrees with the seconds.
    pub close_time_ms: Option<u64>,
}

/// One transaction as it was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionView<'a> {
    /// 1-based position in apply order.
    pub application_order: u32,
    /// Hash of the transaction; of the outer transaction for a fee bump.
    pub hash: TxHash,
    /// Hash of the inner transaction of a fee bump; `None` for other transactions.
    pub inner_hash: Option<TxHash>,
    /// Whether it succeeded (`txSUCCESS` or `txFEE_BUMP_INNER_SUCCESS`).
    pub successful: bool,
    /// Whether it is a smart-contract transaction: its (inner) `ext.v` is 1.
    pub smart_contract: bool,
    /// Source of the (inner) transaction, as in the envelope: `G…` or `M…`.
    pub source_account: MuxedAccountView<'a>,
    /// Account that pays the fee: the fee source of a fee bump, otherwise the source account.
    pub fee_account: MuxedAccountView<'a>,
    /// Fee charged, stroops, as in the result.
    pub fee_charged: i64,
    /// XDR `TransactionEnvelope`.
    pub envelope: &'a [u8],
    /// XDR `TransactionResult`.
    pub result: &'a [u8],
    /// XDR `TransactionMeta`.
    pub meta: &'a [u8],
    /// Contracts that a smart-contract transaction touches: instances in the footprint, the
    /// invoked or created contract, contracts in authorization trees, emitters of its operations'
    /// events. Sorted, without repeats; empty for a classic transaction.
    pub contracts: Vec<ContractId>,
    /// Entries that the operations of a successful smart-contract transaction changed. Sorted,
    /// without repeats; empty for other transactions.
    pub changed_entries: Vec<ChangedEntry<'a>>,
    /// The changed entries that had been archived or had an expired time to live, and are live
    /// again (CAP-66). In the order of the metadata.
    pub restored_entries: Vec<EntryKey<'a>>,
    /// Whether the changed entries include a created instance of a contract.
    pub has_new_contract: bool,
    /// Events of its operations, as indexes into [`LedgerView::events`].
    pub operation_events: Range<usize>,
    /// Number of events in the metadata of its operations, diagnostic ones included, should there
    /// be any.
    pub listed_events: u32,
    /// Number of operations in its metadata.
    pub operations: u32,
    /// XDR `ScVal` that the invocation of a smart-contract transaction returned.
    pub return_value: Option<&'a [u8]>,
}

/// An account as it is given in an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MuxedAccountView<'a> {
    /// The account's ed25519 key.
    pub ed25519: &'a [u8; 32],
    /// Id of a muxed account; `None` for an ordinary account.
    pub id: Option<u64>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventView<'a> {
    /// Index of its transaction in [`LedgerView::transactions`].
    pub transaction: usize,
    /// Place in the transaction where the event was emitted.
    pub placement: Placement,
    /// Emitting contract; the format allows `None`.
    pub contract: Option<&'a [u8; 32]>,
    /// Type of the event.
    pub event_type: EventType,
    /// Topics of the event, as indexes into [`LedgerView::topics`].
    pub topics: Range<usize>,
    /// XDR `ScVal` of the event's data.
    pub data: &'a [u8],
    /// XDR of the whole `ContractEvent`.
    pub xdr: &'a [u8],
    /// Id of the event as Stellar RPC returns it.
    pub rpc_id: RpcEventId,
}

/// Place in its transaction where an event was emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Before all transactions of the ledger, when the fee is charged.
    BeforeAllTransactions,
    /// By an operation.
    Operation {
        /// 0-based position of the operation in its transaction.
        operation: u32,
        /// 0-based position of the event in its transaction, counted across operations.
        event_index: u32,
    },
    /// After the operations of the transaction (refunds up to protocol 22).
    AfterTransaction,
    /// After all transactions of the ledger (refunds from protocol 23).
    AfterAllTransactions,
}

/// Kind of an event that is not diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventType {
    /// Emitted by the host, when a contract's executable changes.
    System,
    /// Emitted by a contract, or on behalf of an asset's contract.
    Contract,
}

impl fmt::Display for MuxedAccountView<'_> {
    /// Formats the account as a strkey (SEP-23): `G…`, or `M…` when muxed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ed25519 = *self.ed25519;
        match self.id {
            None => f.write_str(&ed25519::PublicKey(ed25519).to_string()),
            Some(id) => f.write_str(&ed25519::MuxedAccount { ed25519, id }.to_string()),
        }
    }
}

impl HeaderView<'_> {
    /// Returns the close time at the highest precision that the header has.
    pub fn closed_at(&self) -> CloseTime {
        self.close_time_ms.map_or(CloseTime::Seconds(self.close_time), CloseTime::Milliseconds)
    }
}

impl TransactionView<'_> {
    /// Returns the version of its `TransactionMeta`.
    pub fn meta_version(&self) -> u32 {
        self.meta.first_chunk().copied().map_or(0, u32::from_be_bytes)
    }
}

impl<'a> LedgerView<'a> {
    /// Returns the topics of `event`, in order.
    pub fn topics(&self, event: &EventView<'a>) -> &[&'a [u8]] {
        &self.topics[event.topics.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_displayed_as_strkeys() {
        // The example of SEP-23.
        let key = "GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ";
        let ed25519 = &ed25519::PublicKey::from_string(key).unwrap().0;
        assert_eq!(MuxedAccountView { ed25519, id: None }.to_string(), key);
        assert_eq!(
            MuxedAccountView { ed25519, id: Some(1 << 63) }.to_string(),
            "MA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVAAAAAAAAAAAAAJLK"
        );
    }
}
