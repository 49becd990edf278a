//! A decoded ledger, owned, in the form in which the two implementations of decoding are compared.

use std::ops::Range;

use orrery_ledger::decode::{EntryKey, EventType, LedgerView, MuxedAccountView, Placement};
use orrery_ledger::domain::{ContractId, LedgerHash, LedgerSeq, RpcEventId, TxHash};

/// A decoded ledger with everything that a [`LedgerView`] contains, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    pub version: u32,
    pub header: Vec<u8>,
    pub hash: LedgerHash,
    pub previous_hash: LedgerHash,
    pub sequence: LedgerSeq,
    pub protocol: u32,
    pub close_time: u64,
    pub close_time_ms: Option<u64>,
    pub transactions: Vec<Transaction>,
    pub events: Vec<Event>,
    pub evicted: Vec<Vec<u8>>,
}

/// A transaction; the fields are those of [`TransactionView`](orrery_ledger::decode::TransactionView).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    pub application_order: u32,
    pub hash: TxHash,
    pub inner_hash: Option<TxHash>,
    pub successful: bool,
    pub smart_contract: bool,
    pub source_account: Account,
    pub fee_account: Account,
    pub fee_charged: i64,
    pub envelope: Vec<u8>,
    pub result: Vec<u8>,
    pub meta: Vec<u8>,
    pub contracts: Vec<ContractId>,
    pub changed_entries: Vec<Vec<u8>>,
    pub restored_entries: Vec<Vec<u8>>,
    pub has_new_contract: bool,
    pub operation_events: Range<usize>,
}

/// An account; the fields are those of [`MuxedAccountView`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub ed25519: [u8; 32],
    pub id: Option<u64>,
}

/// An event; the fields are those of [`EventView`](orrery_ledger::decode::EventView).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub transaction: usize,
    pub placement: Placement,
    pub contract: Option<[u8; 32]>,
    pub event_type: EventType,
    pub topics: Vec<Vec<u8>>,
    pub data: Vec<u8>,
    pub xdr: Vec<u8>,
    pub rpc_id: RpcEventId,
}

impl From<&LedgerView<'_>> for Ledger {
    /// Copies the view into the form in which the two implementations are compared.
    fn from(view: &LedgerView<'_>) -> Self {
        let account =
            |account: &MuxedAccountView<'_>| Account { ed25519: *account.ed25519, id: account.id };
        let transactions = view.transactions.iter().map(|one| Transaction {
            application_order: one.application_order,
            hash: one.hash,
            inner_hash: one.inner_hash,
            successful: one.successful,
            smart_contract: one.smart_contract,
            source_account: account(&one.source_account),
            fee_account: account(&one.fee_account),
            fee_charged: one.fee_charged,
            envelope: one.envelope.to_vec(),
            result: one.result.to_vec(),
            meta: one.meta.to_vec(),
            contracts: one.contracts.clone(),
            changed_entries: one.changed_entries.iter().map(|it| it.key.to_ledger_key()).collect(),
            restored_entries: one.restored_entries.iter().map(EntryKey::to_ledger_key).collect(),
            has_new_contract: one.has_new_contract,
            operation_events: one.operation_events.clone(),
        });
        let events = view.events.iter().map(|event| Event {
            transaction: event.transaction,
            placement: event.placement,
            contract: event.contract.copied(),
            event_type: event.event_type,
            topics: view.topics(event).iter().map(|topic| topic.to_vec()).collect(),
            data: event.data.to_vec(),
            xdr: event.xdr.to_vec(),
            rpc_id: event.rpc_id,
        });
        Self {
            version: view.version,
            header: view.header.xdr.to_vec(),
            hash: view.header.hash,
            previous_hash: view.header.previous_hash,
            sequence: view.header.sequence,
            protocol: view.header.protocol,
            close_time: view.header.close_time,
            close_time_ms: view.header.close_time_ms,
            transactions: transactions.collect(),
            events: events.collect(),
            evicted: view.evicted.iter().map(EntryKey::to_ledger_key).collect(),
        }
    }
}
