//! Builds small ledgers from `stellar-xdr` types.

use orrery_ledger::domain::Network;
use stellar_xdr::*;

/// Converts items to an XDR list.
pub fn list<T, const MAX: u32>(items: impl Into<Vec<T>>) -> VecM<T, MAX> {
    items.into().try_into().unwrap()
}

/// Encodes a value as XDR, without a depth limit.
pub fn encode(value: &impl WriteXdr) -> Vec<u8> {
    value.to_xdr(Limits::none()).unwrap()
}

/// A ledger of version 1 that holds one ledger entry and nothing else.
pub fn with_entry(data: LedgerEntryData) -> LedgerCloseMeta {
    let entry = LedgerEntry { data, ..Default::default() };
    LedgerCloseMeta::V1(LedgerCloseMetaV1 { unused: list([entry]), ..Default::default() })
}

/// A ledger whose only transaction has this envelope, and no result.
pub fn with_envelope(envelope: TransactionEnvelope) -> LedgerCloseMeta {
    LedgerCloseMeta::V2(LedgerCloseMetaV2 {
        tx_set: transaction_set([envelope]),
        ..Default::default()
    })
}

/// A ledger whose only transaction has this result and metadata, and no envelope.
pub fn with_applied(result: TransactionResultResult, meta: TransactionMeta) -> LedgerCloseMeta {
    let applied = TransactionResultMetaV1 {
        result: TransactionResultPair {
            result: TransactionResult { result, ..Default::default() },
            ..Default::default()
        },
        tx_apply_processing: meta,
        ..Default::default()
    };
    LedgerCloseMeta::V2(LedgerCloseMetaV2 { tx_processing: list([applied]), ..Default::default() })
}

/// Metadata of version 4 with one operation, which has these events.
pub fn meta_with_events(events: impl Into<Vec<ContractEvent>>) -> TransactionMeta {
    TransactionMeta::V4(TransactionMetaV4 {
        operations: list([OperationMetaV2 { events: list(events), ..Default::default() }]),
        ..Default::default()
    })
}

/// A generalized transaction set with one sequential phase.
pub fn transaction_set(
    envelopes: impl Into<Vec<TransactionEnvelope>>,
) -> GeneralizedTransactionSet {
    let component =
        TxSetComponentTxsMaybeDiscountedFee { base_fee: Some(100), txs: list(envelopes) };
    let component = TxSetComponent::TxsetCompTxsMaybeDiscountedFee(component);
    GeneralizedTransactionSet::V1(TransactionSetV1 {
        phases: list([TransactionPhase::V0(list([component]))]),
        ..Default::default()
    })
}

/// A parallel phase: stages of clusters of envelopes.
pub fn parallel_phase(stages: Vec<Vec<Vec<TransactionEnvelope>>>) -> TransactionPhase {
    let stages: Vec<_> = stages
        .into_iter()
        .map(|clusters| {
            let clusters: Vec<_> =
                clusters.into_iter().map(|cluster| DependentTxCluster(list(cluster))).collect();
            ParallelTxExecutionStage(list(clusters))
        })
        .collect();
    let component = ParallelTxsComponent { base_fee: None, execution_stages: list(stages) };
    TransactionPhase::V1(component)
}

/// A transaction's envelope, and the result and metadata of applying it.
pub struct Applied {
    pub envelope: TransactionEnvelope,
    pub result: TransactionResultResult,
    pub meta: TransactionMeta,
}

impl Applied {
    /// A successful transaction.
    pub fn new(envelope: TransactionEnvelope, meta: TransactionMeta) -> Self {
        let result = match &envelope {
            TransactionEnvelope::TxFeeBump(_) => {
                TransactionResultResult::TxFeeBumpInnerSuccess(InnerTransactionResultPair::default())
            }
            _ => TransactionResultResult::TxSuccess(VecM::default()),
        };
        Self { envelope, result, meta }
    }

    /// The result with the hashes of the envelope filled in, and a fee.
    fn pair(&self, network: &Network) -> TransactionResultPair {
        let id = network.id().0;
        let mut result = self.result.clone();
        if let (
            TransactionEnvelope::TxFeeBump(bump),
            TransactionResultResult::TxFeeBumpInnerSuccess(pair)
            | TransactionResultResult::TxFeeBumpInnerFailed(pair),
        ) = (&self.envelope, &mut result)
        {
            let FeeBumpTransactionInnerTx::Tx(inner) = &bump.tx.inner_tx;
            pair.transaction_hash = Hash(inner.hash(id).unwrap());
        }
        TransactionResultPair {
            transaction_hash: Hash(self.envelope.hash(id).unwrap()),
            result: TransactionResult { fee_charged: 321, result, ..Default::default() },
        }
    }
}

/// A ledger with these transactions in apply order; the transaction set has the reverse order.
pub fn ledger(network: &Network, sequence: u32, applied: &[Applied]) -> LedgerCloseMetaV2 {
    let processing: Vec<_> = applied
        .iter()
        .map(|one| TransactionResultMetaV1 {
            result: one.pair(network),
            tx_apply_processing: one.meta.clone(),
            ..Default::default()
        })
        .collect();
    let envelopes: Vec<_> = applied.iter().rev().map(|one| one.envelope.clone()).collect();
    let mut ledger = LedgerCloseMetaV2 {
        tx_set: transaction_set(envelopes),
        tx_processing: list(processing),
        ..Default::default()
    };
    ledger.ledger_header.header.ledger_seq = sequence;
    ledger.ledger_header.header.ledger_version = 25;
    ledger
}

/// A transaction without operations, distinguished from others by its sequence number.
pub fn plain(number: i64) -> Transaction {
    Transaction {
        source_account: MuxedAccount::Ed25519(Uint256([7; 32])),
        fee: 100,
        seq_num: SequenceNumber(number),
        ..Default::default()
    }
}

pub fn envelope(tx: Transaction) -> TransactionEnvelope {
    TransactionEnvelope::Tx(TransactionV1Envelope { tx, signatures: VecM::default() })
}

/// A transaction that invokes a host function.
pub fn soroban(
    number: i64,
    invoke: InvokeHostFunctionOp,
    footprint: LedgerFootprint,
) -> Transaction {
    let operation =
        Operation { source_account: None, body: OperationBody::InvokeHostFunction(invoke) };
    let data = SorobanTransactionData {
        resources: SorobanResources { footprint, ..Default::default() },
        ..Default::default()
    };
    Transaction { operations: list([operation]), ext: TransactionExt::V1(data), ..plain(number) }
}

/// The address of the contract whose id is this byte, repeated.
pub fn contract(byte: u8) -> ScAddress {
    ScAddress::Contract(ContractId(Hash([byte; 32])))
}

/// A call of the contract's function `f`, without arguments.
pub fn call(contract_address: ScAddress) -> InvokeContractArgs {
    InvokeContractArgs {
        contract_address,
        function_name: ScSymbol("f".try_into().unwrap()),
        args: VecM::default(),
    }
}

pub fn symbol(text: &str) -> ScVal {
    ScVal::Symbol(ScSymbol(text.try_into().unwrap()))
}

/// An event of contract 9 with this topic.
pub fn event(topic: &str) -> ContractEvent {
    ContractEvent {
        contract_id: Some(ContractId(Hash([9; 32]))),
        type_: ContractEventType::Contract,
        body: ContractEventBody::V0(ContractEventV0 {
            topics: list([symbol(topic)]),
            data: ScVal::Void,
        }),
        ..Default::default()
    }
}
