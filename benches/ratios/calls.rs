//! Adds contract calls to ledgers as a network would have recorded them: envelope, result, return
//! value, events and changes. The envelopes have no signatures; nothing here checks signatures.

use orrery::domain::NetworkId;
use orrery::programs::engine::Invocation;
use stellar_xdr::{
    GeneralizedTransactionSet, Hash, HostFunction, InvokeContractArgs, InvokeHostFunctionOp,
    InvokeHostFunctionResult, LedgerCloseMetaV2, LedgerEntry, LedgerEntryChange,
    LedgerEntryChanges, LedgerFootprint, LedgerKey, Memo, MuxedAccount, Operation, OperationBody,
    OperationMetaV2, OperationResult, OperationResultTr, Preconditions, PublicKey, ScAddress,
    ScVal, SequenceNumber, SorobanAuthorizationEntry, SorobanResources, SorobanTransactionData,
    SorobanTransactionDataExt, SorobanTransactionMetaV2, Transaction, TransactionEnvelope,
    TransactionExt, TransactionMeta, TransactionMetaV4, TransactionPhase, TransactionResult,
    TransactionResultExt, TransactionResultMetaV1, TransactionResultPair, TransactionResultResult,
    TransactionV1Envelope, TxSetComponent, Uint256, VecM,
};

use super::variation::edit;

/// Makes transactions from calls, each with its own sequence number.
pub struct Calls<'n> {
    network: &'n NetworkId,
    made: i64,
}

/// A contract call and its outcome.
struct Made<'a> {
    source: &'a PublicKey,
    function: HostFunction,
    authorization: Vec<SorobanAuthorizationEntry>,
    footprint: Vec<LedgerKey>,
    meta: OperationMetaV2,
    return_value: ScVal,
}

impl<'n> Calls<'n> {
    pub fn new(network: &'n NetworkId) -> Self {
        Self { network, made: 0 }
    }

    /// Appends recorded calls after the ledger's own transactions.
    pub fn add(&mut self, ledger: &mut LedgerCloseMetaV2, calls: &[Invocation]) {
        for call in calls {
            let recorded = call.recorded.as_ref().expect("the recorded result is known");
            let made = Made {
                source: &call.source_account.0,
                function: call.host_function.clone(),
                authorization: call.authorization.clone(),
                footprint: call.footprint.clone(),
                meta: OperationMetaV2 {
                    changes: recorded.changes.clone(),
                    events: list(recorded.events.clone()),
                    ..OperationMetaV2::default()
                },
                return_value: recorded.return_value.clone(),
            };
            self.put(ledger, made);
        }
    }

    /// Appends a transaction that creates these entries. It calls a contract that no program
    /// indexes.
    pub fn create(&mut self, ledger: &mut LedgerCloseMetaV2, entries: Vec<LedgerEntry>) {
        self.change(ledger, entries.into_iter().map(LedgerEntryChange::Created).collect());
    }

    /// Like [`Calls::create`], with any changes of entries.
    pub fn change(&mut self, ledger: &mut LedgerCloseMetaV2, changes: Vec<LedgerEntryChange>) {
        let function = HostFunction::InvokeContract(InvokeContractArgs {
            contract_address: ScAddress::Contract(stellar_xdr::ContractId(Hash([99; 32]))),
            function_name: stellar_xdr::ScSymbol("create".try_into().expect("it is short")),
            args: VecM::default(),
        });
        let made = Made {
            source: &PublicKey::PublicKeyTypeEd25519(Uint256([98; 32])),
            function,
            authorization: Vec::new(),
            footprint: Vec::new(),
            meta: OperationMetaV2 {
                changes: LedgerEntryChanges(list(changes)),
                ..OperationMetaV2::default()
            },
            return_value: ScVal::Void,
        };
        self.put(ledger, made);
    }

    fn put(&mut self, ledger: &mut LedgerCloseMetaV2, made: Made<'_>) {
        self.made += 1;
        let PublicKey::PublicKeyTypeEd25519(source) = made.source;
        let call =
            InvokeHostFunctionOp { host_function: made.function, auth: list(made.authorization) };
        let operation =
            Operation { source_account: None, body: OperationBody::InvokeHostFunction(call) };
        let resources = SorobanResources {
            footprint: LedgerFootprint {
                read_only: VecM::default(),
                read_write: list(made.footprint),
            },
            instructions: 10_000_000,
            disk_read_bytes: 10_000,
            write_bytes: 10_000,
        };
        let envelope = TransactionEnvelope::Tx(TransactionV1Envelope {
            tx: Transaction {
                source_account: MuxedAccount::Ed25519(source.clone()),
                fee: 100_000,
                seq_num: SequenceNumber(self.made),
                cond: Preconditions::None,
                memo: Memo::None,
                operations: list(vec![operation]),
                ext: TransactionExt::V1(SorobanTransactionData {
                    ext: SorobanTransactionDataExt::V0,
                    resources,
                    resource_fee: 90_000,
                }),
            },
            signatures: VecM::default(),
        });
        let hash = envelope.hash(self.network.0).unwrap_or_else(|error| unreachable!("{error}"));
        add_to_set(&mut ledger.tx_set, envelope);
        let result = result(Hash(hash), made.meta, made.return_value);
        edit(&mut ledger.tx_processing, |transactions| transactions.push(result));
    }
}

/// Adds an envelope to the phase of smart-contract transactions, which is the last one.
fn add_to_set(set: &mut GeneralizedTransactionSet, envelope: TransactionEnvelope) {
    let GeneralizedTransactionSet::V1(set) = set;
    edit(&mut set.phases, |phases| match phases.last_mut() {
        Some(TransactionPhase::V0(components)) => edit(components, |components| {
            for TxSetComponent::TxsetCompTxsMaybeDiscountedFee(component) in
                components.iter_mut().take(1)
            {
                edit(&mut component.txs, |envelopes| envelopes.push(envelope.clone()));
            }
        }),
        Some(TransactionPhase::V1(parallel)) => edit(&mut parallel.execution_stages, |stages| {
            for stage in stages.iter_mut().take(1) {
                edit(&mut stage.0, |clusters| {
                    for cluster in clusters.iter_mut().take(1) {
                        edit(&mut cluster.0, |envelopes| envelopes.push(envelope.clone()));
                    }
                });
            }
        }),
        None => {}
    });
}

fn result(hash: Hash, meta: OperationMetaV2, return_value: ScVal) -> TransactionResultMetaV1 {
    let success = InvokeHostFunctionResult::Success(Hash([0; 32]));
    let operation = OperationResult::OpInner(OperationResultTr::InvokeHostFunction(success));
    TransactionResultMetaV1 {
        result: TransactionResultPair {
            transaction_hash: hash,
            result: TransactionResult {
                fee_charged: 90_000,
                result: TransactionResultResult::TxSuccess(list(vec![operation])),
                ext: TransactionResultExt::V0,
            },
        },
        tx_apply_processing: TransactionMeta::V4(TransactionMetaV4 {
            operations: list(vec![meta]),
            soroban_meta: Some(SorobanTransactionMetaV2 {
                return_value: Some(return_value),
                ..SorobanTransactionMetaV2::default()
            }),
            ..TransactionMetaV4::default()
        }),
        ..TransactionResultMetaV1::default()
    }
}

fn list<T, const MAX: u32>(items: Vec<T>) -> VecM<T, MAX> {
    items.try_into().unwrap_or_else(|_| unreachable!("there are few"))
}
