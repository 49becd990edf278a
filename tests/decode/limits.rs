//! Both implementations limit nesting at the same level, and neither overflows a stack.

use orrery_ledger::domain::Network;
use stellar_xdr::*;

use crate::builder::*;
use crate::{Verdict, compare};
use orrery_testkit::full;

/// Finds the deepest nesting that is accepted, on which both implementations must agree.
fn deepest_accepted(name: &str, make: impl Fn(usize) -> LedgerCloseMeta + Sync) -> usize {
    let network = Network::from_name_or_passphrase("testnet");
    let is_accepted = |levels: usize| {
        let raw = full::with_stack(|| encode(&make(levels)));
        let case = format!("{name} {levels} levels deep");
        !matches!(compare(&raw, &network, &case), Verdict::Malformed(_))
    };
    let (mut accepted, mut refused) = (200, 400);
    assert!(is_accepted(accepted), "{name} is refused {accepted} levels deep");
    while is_accepted(refused) {
        (accepted, refused) = (refused, 2 * refused);
    }
    while refused - accepted > 1 {
        let middle = (accepted + refused) / 2;
        match is_accepted(middle) {
            true => accepted = middle,
            false => refused = middle,
        }
    }
    for levels in accepted.saturating_sub(5)..refused + 5 {
        assert_eq!(is_accepted(levels), levels <= accepted, "{name} {levels}");
    }
    accepted
}

fn nest<T>(levels: usize, innermost: T, around: impl Fn(T) -> T) -> T {
    (0..levels).fold(innermost, |inner, _| around(inner))
}

fn vectors(levels: usize) -> ScVal {
    nest(levels, ScVal::Void, |inner| ScVal::Vec(Some(ScVec(list([inner])))))
}

fn contract_data(val: ScVal) -> LedgerCloseMeta {
    with_entry(LedgerEntryData::ContractData(ContractDataEntry { val, ..Default::default() }))
}

fn map(key: ScVal, val: ScVal) -> ScMap {
    ScMap(list([ScMapEntry { key, val }]))
}

#[test]
fn nesting_limits_of_values_agree_in_every_position() {
    deepest_accepted("vector in an entry", |levels| contract_data(vectors(levels)));
    deepest_accepted("map value in an entry", |levels| {
        contract_data(nest(levels, ScVal::U32(1), |val| ScVal::Map(Some(map(ScVal::Void, val)))))
    });
    deepest_accepted("map key in an entry", |levels| {
        contract_data(nest(levels, ScVal::U32(1), |key| ScVal::Map(Some(map(key, ScVal::Void)))))
    });
    deepest_accepted("instance in an entry", |levels| {
        contract_data(nest(levels, ScVal::Bool(true), |val| {
            ScVal::ContractInstance(ScContractInstance {
                executable: ContractExecutable::StellarAsset,
                storage: Some(map(ScVal::Void, val)),
            })
        }))
    });
    deepest_accepted("evicted key", |levels| {
        let key = LedgerKeyContractData { key: vectors(levels), ..Default::default() };
        LedgerCloseMeta::V2(LedgerCloseMetaV2 {
            evicted_keys: list([LedgerKey::ContractData(key)]),
            ..Default::default()
        })
    });
    deepest_accepted("upgrade", |levels| {
        let entry = LedgerEntry {
            data: LedgerEntryData::ContractData(ContractDataEntry {
                val: vectors(levels),
                ..Default::default()
            }),
            ..Default::default()
        };
        let changes = LedgerEntryChanges(list([LedgerEntryChange::Updated(entry)]));
        LedgerCloseMeta::V0(LedgerCloseMetaV0 {
            upgrades_processing: list([UpgradeEntryMeta { changes, ..Default::default() }]),
            ..Default::default()
        })
    });
}

#[test]
fn nesting_limits_of_values_in_metadata_agree() {
    let event = |levels: usize, in_topics: bool| ContractEvent {
        body: ContractEventBody::V0(if in_topics {
            ContractEventV0 { topics: list([vectors(levels)]), data: ScVal::Void }
        } else {
            ContractEventV0 { topics: VecM::default(), data: vectors(levels) }
        }),
        ..Default::default()
    };
    let diagnostic =
        |levels| DiagnosticEvent { in_successful_contract_call: true, event: event(levels, false) };
    let success = TransactionResultResult::default;
    let v3 = |soroban| {
        let meta = TransactionMetaV3 { soroban_meta: Some(soroban), ..Default::default() };
        with_applied(success(), TransactionMeta::V3(meta))
    };
    let v4 = |meta| with_applied(success(), TransactionMeta::V4(meta));
    for in_topics in [false, true] {
        deepest_accepted("event of version 3", |levels| {
            v3(SorobanTransactionMeta {
                events: list([event(levels, in_topics)]),
                ..Default::default()
            })
        });
        deepest_accepted("event of version 4", |levels| {
            with_applied(success(), meta_with_events([event(levels, in_topics)]))
        });
        deepest_accepted("event of a transaction", |levels| {
            v4(TransactionMetaV4 {
                events: list([TransactionEvent {
                    event: event(levels, in_topics),
                    ..Default::default()
                }]),
                ..Default::default()
            })
        });
    }
    deepest_accepted("diagnostic event of version 3", |levels| {
        v3(SorobanTransactionMeta {
            diagnostic_events: list([diagnostic(levels)]),
            ..Default::default()
        })
    });
    deepest_accepted("diagnostic event of version 4", |levels| {
        v4(TransactionMetaV4 {
            diagnostic_events: list([diagnostic(levels)]),
            ..Default::default()
        })
    });
    deepest_accepted("return value of version 3", |levels| {
        v3(SorobanTransactionMeta { return_value: vectors(levels), ..Default::default() })
    });
    deepest_accepted("return value of version 4", |levels| {
        v4(TransactionMetaV4 {
            soroban_meta: Some(SorobanTransactionMetaV2 {
                return_value: Some(vectors(levels)),
                ..Default::default()
            }),
            ..Default::default()
        })
    });
    let entry = |levels| {
        let LedgerCloseMeta::V1(ledger) = contract_data(vectors(levels)) else { unreachable!() };
        LedgerEntryChanges(list([LedgerEntryChange::State(ledger.unused[0].clone())]))
    };
    deepest_accepted("operation change of version 0", |levels| {
        let meta = OperationMeta { changes: entry(levels) };
        with_applied(success(), TransactionMeta::V0(list([meta])))
    });
    deepest_accepted("transaction change of version 1", |levels| {
        let meta = TransactionMetaV1 { tx_changes: entry(levels), ..Default::default() };
        with_applied(success(), TransactionMeta::V1(meta))
    });
    deepest_accepted("transaction change of version 2", |levels| {
        let meta = TransactionMetaV2 { tx_changes_after: entry(levels), ..Default::default() };
        with_applied(success(), TransactionMeta::V2(meta))
    });
    deepest_accepted("operation change of version 4", |levels| {
        let operation = OperationMetaV2 { changes: entry(levels), ..Default::default() };
        v4(TransactionMetaV4 { operations: list([operation]), ..Default::default() })
    });
    deepest_accepted("fee change", |levels| {
        let LedgerCloseMeta::V2(mut ledger) = v4(TransactionMetaV4::default()) else {
            unreachable!()
        };
        let mut applied = ledger.tx_processing.to_vec();
        applied[0].post_tx_apply_fee_processing = entry(levels);
        ledger.tx_processing = list(applied);
        LedgerCloseMeta::V2(ledger)
    });
}

#[test]
fn nesting_limits_of_transactions_agree_in_every_envelope_and_phase() {
    let arguments = |levels| InvokeHostFunctionOp {
        host_function: HostFunction::InvokeContract(InvokeContractArgs {
            args: list([vectors(levels)]),
            ..call(contract(1))
        }),
        ..Default::default()
    };
    let invocations = |levels| {
        let innermost = SorobanAuthorizedInvocation::default();
        let root_invocation = nest(levels, innermost, |inner| SorobanAuthorizedInvocation {
            sub_invocations: list([inner]),
            ..Default::default()
        });
        InvokeHostFunctionOp {
            auth: list([SorobanAuthorizationEntry { root_invocation, ..Default::default() }]),
            ..Default::default()
        }
    };
    let delegates = |levels| {
        let innermost = SorobanDelegateSignature::default();
        let delegate = nest(levels, innermost, |inner| SorobanDelegateSignature {
            nested_delegates: list([inner]),
            ..Default::default()
        });
        let credentials = SorobanAddressCredentialsWithDelegates {
            delegates: list([delegate]),
            ..Default::default()
        };
        InvokeHostFunctionOp {
            auth: list([SorobanAuthorizationEntry {
                credentials: SorobanCredentials::AddressWithDelegates(credentials),
                ..Default::default()
            }]),
            ..Default::default()
        }
    };
    let plain = |invoke| soroban(1, invoke, LedgerFootprint::default());
    deepest_accepted("arguments", |n| with_envelope(envelope(plain(arguments(n)))));
    deepest_accepted("invocations", |n| with_envelope(envelope(plain(invocations(n)))));
    deepest_accepted("delegates", |n| with_envelope(envelope(plain(delegates(n)))));
    deepest_accepted("footprint", |levels| {
        let key = LedgerKeyContractData { key: vectors(levels), ..Default::default() };
        let footprint = LedgerFootprint {
            read_write: list([LedgerKey::ContractData(key)]),
            ..Default::default()
        };
        with_envelope(envelope(soroban(1, InvokeHostFunctionOp::default(), footprint)))
    });
    deepest_accepted("fee bump", |levels| {
        with_envelope(TransactionEnvelope::TxFeeBump(FeeBumpTransactionEnvelope {
            tx: FeeBumpTransaction {
                inner_tx: FeeBumpTransactionInnerTx::Tx(TransactionV1Envelope {
                    tx: plain(arguments(levels)),
                    signatures: VecM::default(),
                }),
                ..Default::default()
            },
            signatures: VecM::default(),
        }))
    });
    deepest_accepted("version 0", |levels| {
        let tx =
            TransactionV0 { operations: plain(arguments(levels)).operations, ..Default::default() };
        with_envelope(TransactionEnvelope::TxV0(TransactionV0Envelope {
            tx,
            signatures: VecM::default(),
        }))
    });
    deepest_accepted("parallel phase", |levels| {
        let phase = parallel_phase(vec![vec![vec![envelope(plain(arguments(levels)))]]]);
        let set = TransactionSetV1 { phases: list([phase]), ..Default::default() };
        LedgerCloseMeta::V2(LedgerCloseMetaV2 {
            tx_set: GeneralizedTransactionSet::V1(set),
            ..Default::default()
        })
    });
    deepest_accepted("legacy set", |levels| {
        let txs = list([envelope(plain(arguments(levels)))]);
        LedgerCloseMeta::V0(LedgerCloseMetaV0 {
            tx_set: TransactionSet { txs, ..Default::default() },
            ..Default::default()
        })
    });
}

#[test]
fn nesting_limits_of_predicates_and_quorum_sets_agree() {
    let claimable = |predicate| {
        let claimant = Claimant::ClaimantTypeV0(ClaimantV0 { predicate, ..Default::default() });
        with_entry(LedgerEntryData::ClaimableBalance(ClaimableBalanceEntry {
            claimants: list([claimant]),
            ..Default::default()
        }))
    };
    let now = ClaimPredicate::Unconditional;
    deepest_accepted("not", |levels| {
        claimable(nest(levels, now.clone(), |inner| ClaimPredicate::Not(Some(Box::new(inner)))))
    });
    deepest_accepted("and", |levels| {
        claimable(nest(levels, now.clone(), |inner| ClaimPredicate::And(list([inner]))))
    });
    deepest_accepted("or", |levels| {
        claimable(nest(levels, ClaimPredicate::BeforeAbsoluteTime(1), |inner| {
            ClaimPredicate::Or(list([inner]))
        }))
    });
    deepest_accepted("quorum set", |levels| {
        let innermost = ScpQuorumSet::default();
        let set = nest(levels, innermost, |inner| ScpQuorumSet {
            inner_sets: list([inner]),
            ..Default::default()
        });
        let messages = ScpHistoryEntryV0 { quorum_sets: list([set]), ..Default::default() };
        LedgerCloseMeta::V2(LedgerCloseMetaV2 {
            scp_info: list([ScpHistoryEntry::V0(messages)]),
            ..Default::default()
        })
    });
}

#[test]
fn excessively_nested_values_are_refused() {
    let network = Network::from_name_or_passphrase("testnet");
    let good = encode(&contract_data(ScVal::Bool(true)));
    let before_value = good.len() - 12;
    for unit in [
        &[0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 1][..],
        &[0, 0, 0, 17, 0, 0, 0, 1, 0, 0, 0, 1],
        &[0, 0, 0, 16, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff],
    ] {
        let bomb = [&good[..before_value], &unit.repeat(500_000)].concat();
        assert!(matches!(compare(&bomb, &network, &"bomb"), Verdict::Malformed(_)));
    }
}
