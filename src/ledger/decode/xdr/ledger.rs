//! `Stellar-ledger.x`: upgrades, values of the consensus, changes of entries, events.

use super::blocks::*;
use super::common::*;
use super::contract::*;
use super::entries::*;
use super::scp::{ScpEnvelope, ScpQuorumSet};
use super::{Cursor, Depth, Part, Visit, XdrError};

schema! {
    typedef UpgradeType { VarOpaque<128> }
    enum StellarValueType {
        BASIC = 0, SIGNED = 1, EMPTY_TX_SET = 2, SIGNED_MS = 3, EMPTY_TX_SET_MS = 4,
    }
    struct LedgerCloseValueSignature { node_id: NodeId, signature: Signature }
    struct StellarValueProposedValue {
        tx_set_hash: Hash,
        previous_ledger_hash: Hash,
        previous_ledger_version: Uint32,
        lc_value_signature: LedgerCloseValueSignature,
    }
    struct StellarValueSignedMsValue {
        close_time_ms: TimePointMs,
        lc_value_signature: LedgerCloseValueSignature,
    }
    struct StellarValueProposedMsValue {
        close_time_ms: TimePointMs,
        tx_set_hash: Hash,
        previous_ledger_hash: Hash,
        previous_ledger_version: Uint32,
        lc_value_signature: LedgerCloseValueSignature,
    }
    union StellarValueExt(StellarValueType) {
        BASIC => Void,
        SIGNED => LedgerCloseValueSignature,
        EMPTY_TX_SET => StellarValueProposedValue,
        SIGNED_MS => StellarValueSignedMsValue,
        EMPTY_TX_SET_MS => StellarValueProposedMsValue,
    }
    struct LedgerHeaderExtensionV1 { flags: Uint32, ext: ExtensionPoint }
    union LedgerHeaderExt(Int32) { 0 => Void, 1 => LedgerHeaderExtensionV1 }
    enum LedgerUpgradeType {
        VERSION = 1, BASE_FEE = 2, MAX_TX_SET_SIZE = 3, BASE_RESERVE = 4, FLAGS = 5, CONFIG = 6,
        MAX_SOROBAN_TX_SET_SIZE = 7,
    }
    struct ConfigUpgradeSetKey { contract_id: ContractId, content_hash: Hash }
    union LedgerUpgrade(LedgerUpgradeType) {
        VERSION => Uint32,
        BASE_FEE => Uint32,
        MAX_TX_SET_SIZE => Uint32,
        BASE_RESERVE => Uint32,
        FLAGS => Uint32,
        CONFIG => ConfigUpgradeSetKey,
        MAX_SOROBAN_TX_SET_SIZE => Uint32,
    }
    struct LedgerScpMessages { ledger_seq: Uint32, messages: VarArray<ScpEnvelope> }
    struct ScpHistoryEntryV0 {
        quorum_sets: VarArray<ScpQuorumSet>,
        ledger_messages: LedgerScpMessages,
    }
    union ScpHistoryEntry(Int32) { 0 => ScpHistoryEntryV0 }
    enum LedgerEntryChangeType { CREATED = 0, UPDATED = 1, REMOVED = 2, STATE = 3, RESTORED = 4 }
    union LedgerEntryChange(LedgerEntryChangeType) {
        CREATED => LedgerEntry,
        UPDATED => LedgerEntry,
        REMOVED => LedgerKey,
        STATE => LedgerEntry,
        RESTORED => LedgerEntry,
    }
    enum TransactionEventStage { BEFORE_ALL_TXS = 0, AFTER_TX = 1, AFTER_ALL_TXS = 2 }
    enum ContractEventType { SYSTEM = 0, CONTRACT = 1, DIAGNOSTIC = 2 }
    struct DiagnosticEvent { in_successful_contract_call: Bool, event: ContractEvent }
    struct SorobanTransactionMetaExtV1 {
        ext: ExtensionPoint,
        total_non_refundable_resource_fee_charged: Int64,
        total_refundable_resource_fee_charged: Int64,
        rent_fee_charged: Int64,
    }
    union SorobanTransactionMetaExt(Int32) { 0 => Void, 1 => SorobanTransactionMetaExtV1 }
    struct LedgerCloseMetaExtV1 { ext: ExtensionPoint, soroban_fee_write_1kb: Int64 }
    union LedgerCloseMetaExt(Int32) { 0 => Void, 1 => LedgerCloseMetaExtV1 }
}

visited! {
    part Change { LedgerEntryChange }
    typedef LedgerEntryChanges { VarArray<Change> }
    part FeeChanges { LedgerEntryChanges }
    part ChangesBefore { LedgerEntryChanges }
    part ChangesAfter { LedgerEntryChanges }
    part RefundChanges { LedgerEntryChanges }
    part UpgradeChanges { LedgerEntryChanges }
    part OperationChange { LedgerEntryChange }
    typedef OperationChanges { VarArray<OperationChange> }
    struct OperationMeta { changes: OperationChanges }
    part Operations { VarArray<OperationMeta> }
    struct TransactionMetaV1 { tx_changes: ChangesBefore, operations: Operations }
    struct TransactionMetaV2 {
        tx_changes_before: ChangesBefore,
        operations: Operations,
        tx_changes_after: ChangesAfter,
    }
    part Topic { ScVal }
    part EventData { ScVal }
    struct ContractEventV0 { topics: VarArray<Topic>, data: EventData }
    union ContractEventBody(Int32) { 0 => ContractEventV0 }
    struct ContractEvent {
        ext: ExtensionPoint,
        contract_id: Optional<ContractId>,
        event_type: ContractEventType,
        body: ContractEventBody,
    }
    part OperationEvent { ContractEvent }
    part OperationEvents { VarArray<OperationEvent> }
    part Diagnostic { DiagnosticEvent }
    part ReturnValue { ScVal }
    struct InvokeHostFunctionSuccessPreImage {
        return_value: ReturnValue,
        events: VarArray<OperationEvent>,
    }
    struct SorobanTransactionMetaV2 {
        ext: SorobanTransactionMetaExt,
        return_value: Optional<ReturnValue>,
    }
    struct UpgradeEntryMeta { upgrade: LedgerUpgrade, changes: UpgradeChanges }
}
