//! Purpose-built ledgers for what recorded ones do not contain, with the values that both
//! implementations must find.

use orrery_ledger::decode::{DecodeError, EventType, Placement, decode};
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq, Network};
use stellar_xdr::{self as x, *};

use crate::builder::*;
use crate::{Verdict, compare};
use orrery_testkit::full;

fn testnet() -> Network {
    Network::from_name_or_passphrase("testnet")
}

fn accepted(ledger: LedgerCloseMeta) -> full::Ledger {
    match compare(&encode(&ledger), &testnet(), &"made ledger") {
        Verdict::Ledger(ledger) => *ledger,
        refused => panic!("{refused:?}"),
    }
}

fn refused(ledger: LedgerCloseMetaV2) -> DecodeError {
    match compare(&encode(&LedgerCloseMeta::V2(ledger)), &testnet(), &"made ledger") {
        Verdict::Inconsistent(error) => error,
        other => panic!("{other:?}"),
    }
}

fn staged(stage: TransactionEventStage, topic: &str) -> TransactionEvent {
    TransactionEvent { stage, event: event(topic) }
}

/// First topic of each event, which the tests below use as its name.
fn names(ledger: &full::Ledger) -> Vec<String> {
    let name = |event: &full::Event| match ScVal::from_xdr(&event.topics[0], Limits::none()) {
        Ok(ScVal::Symbol(name)) => name.0.to_utf8_string().unwrap(),
        other => panic!("{other:?}"),
    };
    ledger.events.iter().map(name).collect()
}

#[test]
fn events_come_in_canonical_order_with_their_ids() {
    use TransactionEventStage::{AfterAllTxs, AfterTx, BeforeAllTxs};

    let operation = |topics: &[&str]| OperationMetaV2 {
        events: list(topics.iter().map(|topic| event(topic)).collect::<Vec<_>>()),
        ..Default::default()
    };
    let meta = |operations: Vec<OperationMetaV2>, events: Vec<TransactionEvent>| {
        TransactionMeta::V4(TransactionMetaV4 {
            operations: list(operations),
            events: list(events),
            ..Default::default()
        })
    };
    let first = meta(
        vec![operation(&["a0", "a1"]), operation(&[]), operation(&["a2"])],
        vec![
            staged(AfterAllTxs, "a_refund"),
            staged(AfterTx, "a_after0"),
            staged(BeforeAllTxs, "a_fee"),
            staged(AfterTx, "a_after1"),
        ],
    );
    let second = meta(
        vec![operation(&["b0"])],
        vec![staged(BeforeAllTxs, "b_fee"), staged(AfterAllTxs, "b_refund")],
    );
    let ledger = accepted(LedgerCloseMeta::V2(ledger(
        &testnet(),
        1000,
        &[Applied::new(envelope(plain(1)), first), Applied::new(envelope(plain(2)), second)],
    )));

    let order = ["a_fee", "b_fee", "a0", "a1", "a2", "a_after0", "a_after1", "b0"];
    assert_eq!(names(&ledger)[..8], order);
    assert_eq!(names(&ledger)[8..], ["a_refund", "b_refund"]);
    let ids: Vec<_> = ledger.events.iter().map(|event| event.rpc_id.to_string()).collect();
    assert_eq!(
        ids,
        [
            "0004294967296000-0000000000",
            "0004294967296000-0000000001",
            "0004294967300096-0000000000",
            "0004294967300096-0000000001",
            "0004294967300098-0000000000",
            "0004294967304191-0000000000",
            "0004294967304191-0000000001",
            "0004294967304192-0000000000",
            "0004299262259200-0000000000",
            "0004299262259200-0000000001",
        ]
        .map(|id| format!("000{id}"))
    );
    let placements: Vec<_> = ledger.events.iter().map(|event| event.placement).collect();
    let at = |operation, event_index| Placement::Operation { operation, event_index };
    assert_eq!(placements[..2], [Placement::BeforeAllTransactions; 2]);
    assert_eq!(placements[2..5], [at(0, 0), at(0, 1), at(2, 2)]);
    assert_eq!(placements[5..7], [Placement::AfterTransaction; 2]);
    assert_eq!(placements[7..8], [at(0, 0)]);
    assert_eq!(placements[8..], [Placement::AfterAllTransactions; 2]);
    let ranges: Vec<_> = ledger.transactions.iter().map(|t| t.operation_events.clone()).collect();
    assert_eq!(ranges, [2..5, 7..8]);
    let transactions: Vec<_> = ledger.events.iter().map(|event| event.transaction).collect();
    assert_eq!(transactions, [0, 1, 0, 0, 0, 0, 0, 1, 0, 1]);
}

#[test]
fn system_events_contractless_events_and_many_topics_are_decoded() {
    let system = ContractEvent { type_: ContractEventType::System, ..event("executable_update") };
    let orphan = ContractEvent { contract_id: None, ..event("orphan") };
    let topics: Vec<_> = (0..12).map(|n| symbol(&format!("t{n}"))).collect();
    let long = ContractEvent {
        body: ContractEventBody::V0(ContractEventV0 {
            topics: list(topics.clone()),
            data: ScVal::Vec(Some(ScVec(list([ScVal::U32(5), ScVal::Bool(true)])))),
        }),
        ..event("")
    };
    let bare = ContractEvent { body: ContractEventBody::default(), ..event("") };
    let meta = meta_with_events([system, orphan, long.clone(), bare]);
    let ledger = accepted(LedgerCloseMeta::V2(ledger(
        &testnet(),
        5,
        &[Applied::new(envelope(plain(1)), meta)],
    )));

    let [system, orphan, many, bare] = &ledger.events[..] else { panic!("{:?}", ledger.events) };
    assert_eq!((system.event_type, system.contract), (EventType::System, Some([9; 32])));
    assert_eq!((orphan.event_type, orphan.contract), (EventType::Contract, None));
    assert_eq!(many.topics, topics.iter().map(encode).collect::<Vec<_>>());
    assert_eq!(
        many.data,
        [0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1]
    );
    assert_eq!(many.xdr, encode(&long));
    assert_eq!(bare.topics, Vec::<Vec<u8>>::new());
}

#[test]
fn diagnostic_events_are_left_out_but_counted() {
    let diagnostic = ContractEvent { type_: ContractEventType::Diagnostic, ..event("core") };
    let in_list = [event("first"), diagnostic.clone(), event("last")];
    let TransactionMeta::V4(mut meta) = meta_with_events(in_list) else { unreachable!() };
    meta.diagnostic_events =
        list([DiagnosticEvent { in_successful_contract_call: true, event: diagnostic }]);
    let applied = Applied::new(envelope(plain(1)), TransactionMeta::V4(meta));
    let ledger = accepted(LedgerCloseMeta::V2(ledger(&testnet(), 5, &[applied])));

    assert_eq!(names(&ledger), ["first", "last"]);
    let last = &ledger.events[1];
    assert_eq!(last.placement, Placement::Operation { operation: 0, event_index: 2 });
    assert_eq!(last.rpc_id.index, 2);
}

#[test]
fn events_of_metadata_version_3_belong_to_operation_0() {
    let soroban_meta =
        SorobanTransactionMeta { events: list([event("one"), event("two")]), ..Default::default() };
    let meta = TransactionMeta::V3(TransactionMetaV3 {
        soroban_meta: Some(soroban_meta),
        ..Default::default()
    });
    let applied = [Applied::new(envelope(plain(1)), meta)];
    let LedgerCloseMetaV2 { ledger_header, tx_set, tx_processing, .. } =
        ledger(&testnet(), 77, &applied);
    let older = tx_processing.iter().map(|one| TransactionResultMeta {
        result: one.result.clone(),
        fee_processing: one.fee_processing.clone(),
        tx_apply_processing: one.tx_apply_processing.clone(),
    });
    let ledger = accepted(LedgerCloseMeta::V1(LedgerCloseMetaV1 {
        ledger_header,
        tx_set,
        tx_processing: list(older.collect::<Vec<_>>()),
        ..Default::default()
    }));

    assert_eq!((ledger.version, ledger.sequence), (1, LedgerSeq(77)));
    assert_eq!(names(&ledger), ["one", "two"]);
    let two = &ledger.events[1];
    assert_eq!(two.placement, Placement::Operation { operation: 0, event_index: 1 });
    assert_eq!(two.rpc_id.to_string(), "0000000330712485888-0000000001");
}

#[test]
fn version_0_envelopes_hash_like_the_equivalent_version_1() {
    let newer = envelope(plain(42));
    let older = TransactionEnvelope::TxV0(TransactionV0Envelope {
        tx: TransactionV0 {
            source_account_ed25519: Uint256([7; 32]),
            fee: 100,
            seq_num: SequenceNumber(42),
            ..Default::default()
        },
        signatures: VecM::default(),
    });
    let applied = [Applied::new(older.clone(), TransactionMeta::default())];
    let LedgerCloseMetaV2 { ledger_header, tx_processing, .. } = ledger(&testnet(), 3, &applied);
    let ledger = accepted(LedgerCloseMeta::V0(LedgerCloseMetaV0 {
        ledger_header,
        tx_set: TransactionSet { txs: list([older.clone()]), ..Default::default() },
        tx_processing: list([TransactionResultMeta {
            result: tx_processing[0].result.clone(),
            ..Default::default()
        }]),
        ..Default::default()
    }));

    let transaction = &ledger.transactions[0];
    assert_eq!(ledger.version, 0);
    assert_eq!(transaction.hash.0, newer.hash(testnet().id().0).unwrap());
    assert_eq!(transaction.source_account, full::Account { ed25519: [7; 32], id: None });
    assert_eq!(transaction.envelope, encode(&older));
    assert!(!transaction.smart_contract && transaction.successful);
}

#[test]
fn a_fee_bump_of_a_contract_call_lists_every_touched_contract() {
    let instance = LedgerKey::ContractData(LedgerKeyContractData {
        contract: contract(1),
        key: ScVal::LedgerKeyContractInstance,
        durability: ContractDataDurability::Persistent,
    });
    let other_entry = LedgerKey::ContractData(LedgerKeyContractData {
        contract: contract(99),
        key: symbol("Balance"),
        durability: ContractDataDurability::Persistent,
    });
    let footprint = LedgerFootprint {
        read_only: list([other_entry, LedgerKey::default()]),
        read_write: list([instance]),
    };
    let native = CreateContractArgs {
        contract_id_preimage: ContractIdPreimage::Asset(Asset::Native),
        executable: ContractExecutable::StellarAsset,
    };
    let invocation = |function, below: Vec<_>| SorobanAuthorizedInvocation {
        function,
        sub_invocations: list(below),
    };
    let root = invocation(
        SorobanAuthorizedFunction::ContractFn(call(contract(3))),
        vec![
            invocation(SorobanAuthorizedFunction::ContractFn(call(contract(4))), vec![]),
            invocation(SorobanAuthorizedFunction::CreateContractHostFn(native), vec![]),
        ],
    );
    let nested = SorobanDelegateSignature {
        address: contract(7),
        signature: ScVal::Void,
        nested_delegates: VecM::default(),
    };
    let credentials = SorobanAddressCredentialsWithDelegates {
        address_credentials: SorobanAddressCredentials {
            address: contract(5),
            ..Default::default()
        },
        delegates: list([SorobanDelegateSignature {
            address: ScAddress::MuxedContract(MuxedContract {
                id: 1,
                contract_id: x::ContractId(Hash([6; 32])),
            }),
            signature: ScVal::Void,
            nested_delegates: list([nested]),
        }]),
    };
    let invoke = InvokeHostFunctionOp {
        host_function: HostFunction::InvokeContract(call(contract(2))),
        auth: list([
            SorobanAuthorizationEntry {
                credentials: SorobanCredentials::AddressWithDelegates(credentials),
                root_invocation: root.clone(),
            },
            SorobanAuthorizationEntry {
                credentials: SorobanCredentials::SourceAccount,
                root_invocation: root,
            },
        ]),
    };
    let inner = Transaction {
        source_account: MuxedAccount::MuxedEd25519(MuxedAccountMed25519 {
            id: 12,
            ed25519: Uint256([7; 32]),
        }),
        ..soroban(1, invoke, footprint)
    };
    let inner_hash = envelope(inner.clone()).hash(testnet().id().0).unwrap();
    let bump = TransactionEnvelope::TxFeeBump(FeeBumpTransactionEnvelope {
        tx: FeeBumpTransaction {
            fee_source: MuxedAccount::Ed25519(Uint256([8; 32])),
            fee: 400,
            inner_tx: FeeBumpTransactionInnerTx::Tx(TransactionV1Envelope {
                tx: inner,
                signatures: VecM::default(),
            }),
            ..Default::default()
        },
        signatures: VecM::default(),
    });
    let applied = Applied::new(bump, meta_with_events([event("emitted")]));
    let mut made = ledger(&testnet(), 9, &[applied]);
    let GeneralizedTransactionSet::V1(set) = &mut made.tx_set;
    let envelopes = match &set.phases[0] {
        TransactionPhase::V0(components) => {
            let TxSetComponent::TxsetCompTxsMaybeDiscountedFee(component) = &components[0];
            component.txs.to_vec()
        }
        TransactionPhase::V1(_) => unreachable!(),
    };
    set.phases = list([
        TransactionPhase::V0(VecM::default()),
        parallel_phase(vec![vec![vec![], envelopes]]),
    ]);
    let ledger = accepted(LedgerCloseMeta::V2(made));

    let transaction = &ledger.transactions[0];
    assert_eq!(transaction.inner_hash, Some(Hash32(inner_hash)));
    assert_eq!(transaction.source_account, full::Account { ed25519: [7; 32], id: Some(12) });
    assert_eq!(transaction.fee_account, full::Account { ed25519: [8; 32], id: None });
    assert_eq!(transaction.fee_charged, 321);
    assert!(transaction.smart_contract && transaction.successful);
    // The contract of the native asset on the test network.
    let native: ContractId =
        "CDLZFC3SYJYDZT7K67VZ75HPJVIEUVNIXF47ZG2FB2RMQQVU2HHGCYSC".parse().unwrap();
    let mut expected: Vec<_> = [1, 2, 3, 4, 5, 6, 7, 9].map(|n| ContractId([n; 32])).to_vec();
    expected.push(native);
    expected.sort();
    assert_eq!(transaction.contracts, expected);
}

#[test]
fn a_failed_fee_bump_keeps_its_inner_hash() {
    let bump = TransactionEnvelope::TxFeeBump(FeeBumpTransactionEnvelope {
        tx: FeeBumpTransaction {
            inner_tx: FeeBumpTransactionInnerTx::Tx(TransactionV1Envelope {
                tx: plain(1),
                signatures: VecM::default(),
            }),
            ..Default::default()
        },
        signatures: VecM::default(),
    });
    // The inner transaction was not attempted, so the result does not contain its hash.
    let applied = Applied {
        envelope: bump,
        result: TransactionResultResult::TxInsufficientBalance,
        meta: TransactionMeta::default(),
    };
    let ledger = accepted(LedgerCloseMeta::V2(ledger(&testnet(), 9, &[applied])));
    let inner_hash = envelope(plain(1)).hash(testnet().id().0).unwrap();
    assert_eq!(ledger.transactions[0].inner_hash, Some(Hash32(inner_hash)));
    assert!(!ledger.transactions[0].successful);
}

#[test]
fn a_ledger_whose_transaction_set_was_dropped_is_empty() {
    let mut made = ledger(&testnet(), 9, &[]);
    // The validators dropped the transaction set (CAP-83).
    made.ledger_header.header.scp_value.ext =
        StellarValueExt::EmptyTxSet(StellarValueProposedValue::default());
    made.ledger_header.header.scp_value.close_time = TimePoint(1_700_000_000);
    let ledger = accepted(LedgerCloseMeta::V2(made));
    assert_eq!((ledger.transactions.len(), ledger.close_time), (0, 1_700_000_000));
}

#[test]
fn a_ledger_with_inconsistent_parts_is_refused() {
    let applied =
        || [1, 2, 3].map(|n| Applied::new(envelope(plain(n)), TransactionMeta::default()));
    let good = ledger(&testnet(), 9, &applied());
    let ledger_9 = LedgerSeq(9);
    let hash = |n: usize| Hash32(good.tx_processing[n].result.transaction_hash.0);
    let processing = |order: &[usize]| {
        list(order.iter().map(|n| good.tx_processing[*n].clone()).collect::<Vec<_>>())
    };

    let missing = LedgerCloseMetaV2 { tx_processing: processing(&[0, 1]), ..good.clone() };
    let counts = |results, alone| DecodeError::CountMismatch {
        ledger: ledger_9,
        envelopes: 3,
        results,
        alone,
    };
    assert_eq!(refused(missing), counts(2, Some(hash(2))));
    for (order, alone) in [
        (&[0, 1, 2, 1][..], Some(hash(1))),
        (&[0][..], None),
        (&[0, 1, 1, 1][..], None),
        (&[0, 1, 2, 1, 1][..], None),
    ] {
        let other = LedgerCloseMetaV2 { tx_processing: processing(order), ..good.clone() };
        assert_eq!(refused(other), counts(order.len(), alone), "{order:?}");
    }

    let repeated = LedgerCloseMetaV2 { tx_processing: processing(&[0, 1, 0]), ..good.clone() };
    let error = DecodeError::RepeatedResult(ledger_9, hash(0));
    assert_eq!(refused(repeated), error);

    let twice = [3, 1, 3].map(|n| envelope(plain(n)));
    let repeated = LedgerCloseMetaV2 { tx_set: transaction_set(twice), ..good.clone() };
    let error = DecodeError::RepeatedEnvelope(ledger_9, hash(2));
    assert_eq!(refused(repeated), error);

    let others = [3, 1, 4].map(|n| envelope(plain(n)));
    let foreign = LedgerCloseMetaV2 { tx_set: transaction_set(others), ..good.clone() };
    let error = DecodeError::ResultWithoutEnvelope(ledger_9, hash(1));
    assert_eq!(refused(foreign), error);

    let others = [4, 5, 6].map(|n| envelope(plain(n)));
    let foreign = LedgerCloseMetaV2 { tx_set: transaction_set(others), ..good.clone() };
    let error = DecodeError::NoEnvelopeMatches(ledger_9, 3);
    assert_eq!(refused(foreign), error);

    let mut names_another = good.tx_processing.to_vec();
    names_another[1].result.result.result =
        TransactionResultResult::TxFeeBumpInnerSuccess(InnerTransactionResultPair::default());
    let mismatch = LedgerCloseMetaV2 { tx_processing: list(names_another), ..good.clone() };
    let error = DecodeError::InnerHashMismatch(ledger_9, hash(1));
    assert_eq!(refused(mismatch), error);

    let mut crowded = good.tx_processing.to_vec();
    crowded[2].tx_apply_processing = TransactionMeta::V4(TransactionMetaV4 {
        operations: list(vec![OperationMetaV2::default(); 4096]),
        ..Default::default()
    });
    let crowded = LedgerCloseMetaV2 { tx_processing: list(crowded), ..good.clone() };
    let error =
        DecodeError::TooManyOperations { ledger: ledger_9, transaction: hash(2), count: 4096 };
    assert_eq!(refused(crowded), error);
}

#[test]
fn malformed_bytes_are_refused_with_their_position() {
    let network = testnet();
    let good = encode(&LedgerCloseMeta::V2(ledger(&network, 9, &[])));
    let longer = [good.as_slice(), &[0; 4]].concat();
    let shorter = &good[..good.len() - 1];
    for (raw, part) in [
        (&[][..], "the ledger cannot be decoded: the data ends inside a value, at byte 0 of 0"),
        (&longer, "ledger 9 cannot be decoded: bytes are left over after the end"),
        (shorter, "ledger 9 cannot be decoded: the data ends inside a value"),
        (
            b"{\"ledgers\": []}",
            "the ledger cannot be decoded: a type or flag has a value that is not known",
        ),
    ] {
        let error = decode(raw, network.id()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(matches!(compare(raw, &network, &part), Verdict::Malformed(_)));
    }
}

#[test]
fn a_bool_must_be_zero_or_one() {
    let data = LedgerEntryData::ContractData(ContractDataEntry {
        val: ScVal::Bool(true),
        ..Default::default()
    });
    let mut raw = encode(&with_entry(data));
    // The value is the last but one word; the extension of the entry follows.
    let last = raw.len() - 5;
    assert_eq!(raw[last], 1);
    assert!(matches!(compare(&raw, &testnet(), &"bool 1"), Verdict::Ledger(_)));
    raw[last] = 2;
    assert!(matches!(compare(&raw, &testnet(), &"bool 2"), Verdict::Malformed(_)));
}
