//! The whole of `LedgerCloseMeta` as one type, used only to skip a ledger and so find its end. The
//! files that build a view walk its parts by hand.

use super::blocks::*;
use super::common::*;
use super::contract::*;
use super::entries::*;
use super::ledger::*;
use super::operations::*;
use super::results::*;
use super::{Cursor, Depth, XdrError};

schema! {
    struct TransactionV0 {
        source_account_ed25519: Uint256,
        fee: Uint32,
        seq_num: SequenceNumber,
        time_bounds: Optional<TimeBounds>,
        memo: Memo,
        operations: VarArray<Operation, 100>,
        ext: ExtensionPoint,
    }
    struct TransactionV0Envelope { tx: TransactionV0, signatures: Signatures }
    union TransactionExt(Int32) { 0 => Void, 1 => SorobanTransactionData }
    struct Transaction {
        source_account: MuxedAccount,
        fee: Uint32,
        seq_num: SequenceNumber,
        cond: Preconditions,
        memo: Memo,
        operations: VarArray<Operation, 100>,
        ext: TransactionExt,
    }
    struct TransactionV1Envelope { tx: Transaction, signatures: Signatures }
    union FeeBumpInnerTx(EnvelopeType) { TX => TransactionV1Envelope }
    struct FeeBumpTransaction {
        fee_source: MuxedAccount,
        fee: Int64,
        inner_tx: FeeBumpInnerTx,
        ext: ExtensionPoint,
    }
    struct FeeBumpTransactionEnvelope { tx: FeeBumpTransaction, signatures: Signatures }
    union TransactionEnvelope(EnvelopeType) {
        TX_V0 => TransactionV0Envelope,
        TX => TransactionV1Envelope,
        TX_FEE_BUMP => FeeBumpTransactionEnvelope,
    }
    struct TransactionSet { previous_ledger_hash: Hash, txs: VarArray<TransactionEnvelope> }
    struct TxsMaybeDiscountedFee { base_fee: Optional<Int64>, txs: VarArray<TransactionEnvelope> }
    union TxSetComponent(Int32) { 0 => TxsMaybeDiscountedFee }
    typedef DependentTxCluster { VarArray<TransactionEnvelope> }
    typedef ParallelTxExecutionStage { VarArray<DependentTxCluster> }
    struct ParallelTxsComponent {
        base_fee: Optional<Int64>,
        execution_stages: VarArray<ParallelTxExecutionStage>,
    }
    union TransactionPhase(Int32) { 0 => VarArray<TxSetComponent>, 1 => ParallelTxsComponent }
    struct TransactionSetV1 { previous_ledger_hash: Hash, phases: VarArray<TransactionPhase> }
    union GeneralizedTransactionSet(Int32) { 1 => TransactionSetV1 }

    struct InnerTransactionResultPair { transaction_hash: Hash, result: InnerTransactionResult }
    union TransactionResultResult(TransactionResultCode) {
        FEE_BUMP_INNER_SUCCESS | FEE_BUMP_INNER_FAILED => InnerTransactionResultPair,
        SUCCESS | FAILED => VarArray<OperationResult>,
        _ => Void,
    }
    struct TransactionResult {
        fee_charged: Int64,
        result: TransactionResultResult,
        ext: ExtensionPoint,
    }
    struct TransactionResultPair { transaction_hash: Hash, result: TransactionResult }
    struct SorobanTransactionMeta {
        ext: SorobanTransactionMetaExt,
        events: VarArray<ContractEvent>,
        return_value: ScVal,
        diagnostic_events: VarArray<DiagnosticEvent>,
    }
    struct TransactionMetaV3 {
        ext: ExtensionPoint,
        tx_changes_before: LedgerEntryChanges,
        operations: VarArray<OperationMeta>,
        tx_changes_after: LedgerEntryChanges,
        soroban_meta: Optional<SorobanTransactionMeta>,
    }
    struct OperationMetaV2 {
        ext: ExtensionPoint,
        changes: LedgerEntryChanges,
        events: VarArray<ContractEvent>,
    }
    struct TransactionEvent { stage: TransactionEventStage, event: ContractEvent }
    struct TransactionMetaV4 {
        ext: ExtensionPoint,
        tx_changes_before: LedgerEntryChanges,
        operations: VarArray<OperationMetaV2>,
        tx_changes_after: LedgerEntryChanges,
        soroban_meta: Optional<SorobanTransactionMetaV2>,
        events: VarArray<TransactionEvent>,
        diagnostic_events: VarArray<DiagnosticEvent>,
    }
    union TransactionMeta(Int32) {
        0 => VarArray<OperationMeta>,
        1 => TransactionMetaV1,
        2 => TransactionMetaV2,
        3 => TransactionMetaV3,
        4 => TransactionMetaV4,
    }
    struct TransactionResultMeta {
        result: TransactionResultPair,
        fee_processing: LedgerEntryChanges,
        tx_apply_processing: TransactionMeta,
    }
    struct TransactionResultMetaV1 {
        ext: ExtensionPoint,
        result: TransactionResultPair,
        fee_processing: LedgerEntryChanges,
        tx_apply_processing: TransactionMeta,
        post_tx_apply_fee_processing: LedgerEntryChanges,
    }

    struct StellarValue {
        tx_set_hash: Hash,
        close_time: TimePoint,
        upgrades: VarArray<UpgradeType, 6>,
        ext: StellarValueExt,
    }
    struct LedgerHeader {
        ledger_version: Uint32,
        previous_ledger_hash: Hash,
        scp_value: StellarValue,
        tx_set_result_hash: Hash,
        bucket_list_hash: Hash,
        ledger_seq: Uint32,
        tail: LedgerHeaderTail,
    }
    struct LedgerHeaderHistoryEntry { hash: Hash, header: LedgerHeader, ext: ExtensionPoint }
    struct LedgerCloseMetaV0 {
        ledger_header: LedgerHeaderHistoryEntry,
        tx_set: TransactionSet,
        tx_processing: VarArray<TransactionResultMeta>,
        upgrades_processing: VarArray<UpgradeEntryMeta>,
        scp_info: VarArray<ScpHistoryEntry>,
    }
    struct LedgerCloseMetaV1 {
        ext: LedgerCloseMetaExt,
        ledger_header: LedgerHeaderHistoryEntry,
        tx_set: GeneralizedTransactionSet,
        tx_processing: VarArray<TransactionResultMeta>,
        upgrades_processing: VarArray<UpgradeEntryMeta>,
        scp_info: VarArray<ScpHistoryEntry>,
        total_byte_size_of_live_soroban_state: Uint64,
        evicted_keys: VarArray<LedgerKey>,
        unused: VarArray<LedgerEntry>,
    }
    struct LedgerCloseMetaV2 {
        ext: LedgerCloseMetaExt,
        ledger_header: LedgerHeaderHistoryEntry,
        tx_set: GeneralizedTransactionSet,
        tx_processing: VarArray<TransactionResultMetaV1>,
        upgrades_processing: VarArray<UpgradeEntryMeta>,
        scp_info: VarArray<ScpHistoryEntry>,
        total_byte_size_of_live_soroban_state: Uint64,
        evicted_keys: VarArray<LedgerKey>,
    }
    union LedgerCloseMeta(Int32) {
        0 => LedgerCloseMetaV0,
        1 => LedgerCloseMetaV1,
        2 => LedgerCloseMetaV2,
    }
}

/// `DecoratedSignature signatures<20>`, which adds no level of nesting of its own.
type Signatures = VarArray<DecoratedSignature, 20>;
