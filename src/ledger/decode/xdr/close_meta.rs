//! The whole of `LedgerCloseMeta` as one type, with the parts that visitors are told about.

use super::blocks::*;
use super::common::*;
use super::entries::*;
use super::ledger::*;
use super::operations::*;
use super::results::*;
use super::{Cursor, Depth, Part, Visit, XdrError};

visited! {
    part SourceV0 { Uint256 }
    struct TransactionV0 {
        source_account_ed25519: SourceV0,
        fee: Uint32,
        seq_num: SequenceNumber,
        time_bounds: Optional<TimeBounds>,
        memo: Memo,
        operations: VarArray<Operation, 100>,
        ext: ExtensionPoint,
    }
    part SignedTransactionV0 { TransactionV0 }
    struct TransactionV0Envelope { tx: SignedTransactionV0, signatures: Signatures }
    part SorobanData { SorobanTransactionData }
    union TransactionExt(Int32) { 0 => Void, 1 => SorobanData }
    part Source { MuxedAccount }
    struct Transaction {
        source_account: Source,
        fee: Uint32,
        seq_num: SequenceNumber,
        cond: Preconditions,
        memo: Memo,
        operations: VarArray<Operation, 100>,
        ext: TransactionExt,
    }
    part SignedTransaction { Transaction }
    struct TransactionV1Envelope { tx: SignedTransaction, signatures: Signatures }
    union FeeBumpInnerTx(EnvelopeType) { TX => TransactionV1Envelope }
    part FeeSource { MuxedAccount }
    struct FeeBumpTransaction {
        fee_source: FeeSource,
        fee: Int64,
        inner_tx: FeeBumpInnerTx,
        ext: ExtensionPoint,
    }
    part SignedFeeBump { FeeBumpTransaction }
    struct FeeBumpTransactionEnvelope { tx: SignedFeeBump, signatures: Signatures }
    union TransactionEnvelope(EnvelopeType) {
        TX_V0 => TransactionV0Envelope,
        TX => TransactionV1Envelope,
        TX_FEE_BUMP => FeeBumpTransactionEnvelope,
    }
    part Envelope { TransactionEnvelope }
    struct TransactionSet { previous_ledger_hash: Hash, txs: VarArray<Envelope> }
    part TransactionSetV0 { TransactionSet }
    struct TxsMaybeDiscountedFee { base_fee: Optional<Int64>, txs: VarArray<Envelope> }
    union TxSetComponent(Int32) { 0 => TxsMaybeDiscountedFee }
    typedef DependentTxCluster { VarArray<Envelope> }
    typedef ParallelTxExecutionStage { VarArray<DependentTxCluster> }
    struct ParallelTxsComponent {
        base_fee: Optional<Int64>,
        execution_stages: VarArray<ParallelTxExecutionStage>,
    }
    union TransactionPhase(Int32) { 0 => VarArray<TxSetComponent>, 1 => ParallelTxsComponent }
    struct PhasedTransactionSet { previous_ledger_hash: Hash, phases: VarArray<TransactionPhase> }
    union GeneralizedTransactionSet(Int32) { 1 => PhasedTransactionSet }
    part TransactionSetV1 { GeneralizedTransactionSet }

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
    part Outcome { TransactionResultPair }
    struct TransactionResultSet { results: VarArray<Outcome> }
    struct SorobanTransactionMeta {
        ext: SorobanTransactionMetaExt,
        events: OperationEvents,
        return_value: ReturnValue,
        diagnostic_events: VarArray<Diagnostic>,
    }
    part SorobanMeta { SorobanTransactionMeta }
    struct TransactionMetaV3 {
        ext: ExtensionPoint,
        tx_changes_before: ChangesBefore,
        operations: Operations,
        tx_changes_after: ChangesAfter,
        soroban_meta: Optional<SorobanMeta>,
    }
    struct OperationMetaV2 {
        ext: ExtensionPoint,
        changes: OperationChanges,
        events: OperationEvents,
    }
    part OperationsV2 { VarArray<OperationMetaV2> }
    struct TransactionEvent { stage: TransactionEventStage, event: ContractEvent }
    part StagedEvent { TransactionEvent }
    part SorobanMetaV2 { SorobanTransactionMetaV2 }
    struct TransactionMetaV4 {
        ext: ExtensionPoint,
        tx_changes_before: ChangesBefore,
        operations: OperationsV2,
        tx_changes_after: ChangesAfter,
        soroban_meta: Optional<SorobanMetaV2>,
        events: VarArray<StagedEvent>,
        diagnostic_events: VarArray<Diagnostic>,
    }
    union TransactionMeta(Int32) {
        0 => Operations,
        1 => TransactionMetaV1,
        2 => TransactionMetaV2,
        3 => TransactionMetaV3,
        4 => TransactionMetaV4,
    }
    part Meta { TransactionMeta }
    struct TransactionResultMeta {
        result: Outcome,
        fee_processing: FeeChanges,
        tx_apply_processing: Meta,
    }
    struct TransactionResultMetaV1 {
        ext: ExtensionPoint,
        result: Outcome,
        fee_processing: FeeChanges,
        tx_apply_processing: Meta,
        post_tx_apply_fee_processing: RefundChanges,
    }

    part CloseTime { TimePoint }
    part CloseValue { StellarValueExt }
    struct StellarValue {
        tx_set_hash: Hash,
        close_time: CloseTime,
        upgrades: VarArray<UpgradeType, 6>,
        ext: CloseValue,
    }
    part Sequence { Uint32 }
    part BaseReserve { Uint32 }
    struct LedgerHeader {
        ledger_version: Uint32,
        previous_ledger_hash: Hash,
        scp_value: StellarValue,
        // txSetResultHash, bucketListHash
        hashes: Array<Hash, 2>,
        ledger_seq: Sequence,
        total_coins: Int64,
        fee_pool: Int64,
        inflation_seq: Uint32,
        id_pool: Uint64,
        base_fee: Uint32,
        base_reserve: BaseReserve,
        max_tx_set_size: Uint32,
        skip_list: Array<Hash, 4>,
        ext: LedgerHeaderExt,
    }
    part HeaderHash { Hash }
    part Header { LedgerHeader }
    struct LedgerHeaderHistoryEntry { hash: HeaderHash, header: Header, ext: ExtensionPoint }
    part EvictedKey { LedgerKey }
    part StateSize { Uint64 }
    struct LedgerCloseMetaV0 {
        ledger_header: LedgerHeaderHistoryEntry,
        tx_set: TransactionSetV0,
        tx_processing: VarArray<TransactionResultMeta>,
        upgrades_processing: VarArray<UpgradeEntryMeta>,
        scp_info: VarArray<ScpHistoryEntry>,
    }
    struct LedgerCloseMetaV1 {
        ext: LedgerCloseMetaExt,
        ledger_header: LedgerHeaderHistoryEntry,
        tx_set: TransactionSetV1,
        tx_processing: VarArray<TransactionResultMeta>,
        upgrades_processing: VarArray<UpgradeEntryMeta>,
        scp_info: VarArray<ScpHistoryEntry>,
        total_byte_size_of_live_soroban_state: StateSize,
        evicted_keys: VarArray<EvictedKey>,
        unused: VarArray<LedgerEntry>,
    }
    struct LedgerCloseMetaV2 {
        ext: LedgerCloseMetaExt,
        ledger_header: LedgerHeaderHistoryEntry,
        tx_set: TransactionSetV1,
        tx_processing: VarArray<TransactionResultMetaV1>,
        upgrades_processing: VarArray<UpgradeEntryMeta>,
        scp_info: VarArray<ScpHistoryEntry>,
        total_byte_size_of_live_soroban_state: StateSize,
        evicted_keys: VarArray<EvictedKey>,
    }
    union LedgerCloseMeta(Int32) {
        0 => LedgerCloseMetaV0,
        1 => LedgerCloseMetaV1,
        2 => LedgerCloseMetaV2,
    }
}

/// `DecoratedSignature signatures<20>`, which adds no level of nesting of its own.
type Signatures = VarArray<DecoratedSignature, 20>;
