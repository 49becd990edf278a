//! Ledgers of the newest protocol, from a network that uses everything its proposals add: both
//! implementations agree, and report what was done.

use std::sync::LazyLock;

use orrery_ledger::decode::{EventType, MAX_PROTOCOL};
use orrery_ledger::domain::{ContractId, LedgerSeq, Network};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::*;

use crate::builder::{
    Applied, contract, encode, envelope, event, ledger, list, meta_with_events, soroban, with_entry,
};
use crate::{Verdict, compare};
use orrery_testkit::newest::{MILLISECONDS_FROM, MUXED_ID, Newest, PER_SECOND, TAG};
use orrery_testkit::{fixtures, full};

/// A network whose ledgers contain everything that is new.
pub static NEWEST: LazyLock<Newest> =
    LazyLock::new(|| Newest::made(Network::from_name_or_passphrase("local"), 4));

fn decoded(sequence: LedgerSeq) -> full::Ledger {
    let raw = &NEWEST.ledgers[sequence.0 as usize - 2];
    match compare(raw, &NEWEST.network, &sequence) {
        Verdict::Ledger(ledger) => *ledger,
        other => panic!("{sequence}: {other:?}"),
    }
}

/// All ledgers of the network, from 2 on.
fn all() -> impl Iterator<Item = full::Ledger> {
    (2..2 + NEWEST.ledgers.len() as u32).map(|sequence| decoded(LedgerSeq(sequence)))
}

#[test]
fn close_times_are_in_milliseconds_and_share_seconds() {
    let mut shared = 0;
    let mut previous: Option<full::Ledger> = None;
    for ledger in all() {
        assert_eq!(ledger.protocol, MAX_PROTOCOL);
        let precise = ledger.sequence >= MILLISECONDS_FROM;
        assert_eq!(ledger.close_time_ms.is_some(), precise);
        if let Some(time) = ledger.close_time_ms {
            assert_eq!(time / 1000, ledger.close_time);
        }
        if let Some(previous) = previous {
            assert!(
                previous.close_time_ms.is_none() || previous.close_time_ms < ledger.close_time_ms
            );
            shared += u32::from(previous.close_time == ledger.close_time);
        }
        previous = Some(ledger);
    }
    assert!(shared > NEWEST.ledgers.len() as u32 * (PER_SECOND - 1) / PER_SECOND - 6);
}

#[test]
fn ledgers_with_a_dropped_transaction_set_are_empty_and_linked() {
    assert_eq!(NEWEST.dropped.len(), 3);
    for sequence in &NEWEST.dropped {
        let ledger = decoded(*sequence);
        assert!(ledger.transactions.is_empty() && ledger.events.is_empty());
        assert!(ledger.close_time_ms.is_some());
        let value = NEWEST.meta(*sequence).ledger_header.header.scp_value;
        assert_eq!(value.tx_set_hash, Hash::default());
        let StellarValueExt::EmptyTxSetMs(proposed) = value.ext else { panic!("{:?}", value.ext) };
        assert_ne!(proposed.tx_set_hash, Hash::default());
        assert_eq!(proposed.previous_ledger_hash.0, *ledger.previous_hash.as_bytes());
        assert_eq!(decoded(LedgerSeq(sequence.0 + 1)).previous_hash, ledger.hash);
    }
}

#[test]
fn contracts_of_external_references_are_listed_as_touched() {
    let reference = LedgerKey::ContractData(LedgerKeyContractData {
        contract: ScAddress::Contract(stellar_xdr::ContractId(Hash(NEWEST.owner.0))),
        key: ScVal::ExecutableTag(ScString(TAG.try_into().unwrap())),
        durability: ContractDataDurability::Persistent,
    });
    let reference = encode(&reference);
    let mut created: Vec<ContractId> = Vec::new();
    let mut pointed = 0;
    for ledger in all() {
        for one in &ledger.transactions {
            pointed += u32::from(one.changed_entries.contains(&reference));
            let envelope = TransactionEnvelope::from_xdr(&one.envelope, Limits::none()).unwrap();
            let creates = operations(&envelope).iter().any(|operation| {
                matches!(&operation.body, OperationBody::InvokeHostFunction(call)
                    if matches!(&call.host_function, HostFunction::CreateContractV2(args)
                        if matches!(args.executable, ContractExecutable::ExternalRef(_))))
            });
            if creates {
                assert!(one.successful);
                created
                    .extend(one.contracts.iter().filter(|id| NEWEST.fleet.contains(id)).copied());
            }
        }
    }
    assert_eq!(created, NEWEST.fleet, "whose id follows from the preimage");
    assert!(pointed >= 2, "the entry behind the reference is known by its key");
    let within = decoded(NEWEST.repointed);
    let callers: Vec<_> = within
        .transactions
        .iter()
        .filter(|one| one.contracts.iter().any(|id| NEWEST.fleet.contains(id)))
        .map(|one| one.application_order)
        .collect();
    let points = within.transactions.iter().find(|one| one.changed_entries.contains(&reference));
    let point = points.unwrap().application_order;
    assert!(callers.len() == 2 && callers[0] < point && point < callers[1], "{callers:?} {point}");
}

fn operations(envelope: &TransactionEnvelope) -> &[Operation] {
    match envelope {
        TransactionEnvelope::Tx(envelope) => &envelope.tx.operations,
        TransactionEnvelope::TxFeeBump(bump) => {
            let FeeBumpTransactionInnerTx::Tx(envelope) = &bump.tx.inner_tx;
            &envelope.tx.operations
        }
        TransactionEnvelope::TxV0(envelope) => &envelope.tx.operations,
    }
}

fn value(xdr: &[u8]) -> ScVal {
    ScVal::from_xdr(xdr, Limits::none()).unwrap()
}

fn field<'a>(map: &'a ScVal, name: &str) -> Option<&'a ScVal> {
    let ScVal::Map(Some(map)) = map else { panic!("{map:?}") };
    let named = |entry: &&ScMapEntry| matches!(&entry.key, ScVal::Symbol(symbol) if symbol.0.as_slice() == name.as_bytes());
    map.iter().find(named).map(|entry| &entry.val)
}

#[test]
fn events_contain_muxed_contracts_and_external_references() {
    let owner = NEWEST.owner.0;
    let paid = decoded(NEWEST.paid);
    let native = NEWEST.native().0;
    let transfer = paid
        .events
        .iter()
        .find(|event| {
            let to = |topic: &Vec<u8>| value(topic) == ScVal::Address(contract_with(owner));
            event.contract == Some(native) && event.topics.iter().any(to)
        })
        .expect("a payment to the contract's own address");
    assert_eq!(field(&value(&transfer.data), "to_muxed_id"), Some(&ScVal::U64(MUXED_ID)));
    for (sequence, from, to) in
        [(NEWEST.adopted[0], "Wasm", "ExternalRef"), (NEWEST.adopted[1], "ExternalRef", "Wasm")]
    {
        let ledger = decoded(sequence);
        let update = ledger.events.iter().find(|event| event.event_type == EventType::System);
        let topics: Vec<ScVal> = update.unwrap().topics.iter().map(|topic| value(topic)).collect();
        let kind = |topic: &ScVal| match topic {
            ScVal::Vec(Some(vec)) => match &vec[0] {
                ScVal::Symbol(symbol) => symbol.to_string(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert_eq!((kind(&topics[1]).as_str(), kind(&topics[2]).as_str()), (from, to));
    }
}

fn contract_with(id: [u8; 32]) -> ScAddress {
    ScAddress::Contract(stellar_xdr::ContractId(Hash(id)))
}

#[test]
fn sparse_maps_omit_void_fields() {
    let answers = all().flat_map(|ledger| ledger.events);
    let answers: Vec<ScVal> = answers
        .filter(|event| {
            let by = event.contract.map(ContractId);
            event.event_type == EventType::Contract
                && by.is_some_and(|id| NEWEST.fleet.contains(&id) || id == NEWEST.adopter)
        })
        .map(|event| value(&event.data))
        .collect();
    assert!(answers.len() >= 5, "{answers:?}");
    assert!(answers.iter().all(|answer| field(answer, "b").is_none()));
    let (with, without): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| field(answer, "a").is_some());
    assert!(!with.is_empty() && !without.is_empty());
    assert!(without.iter().all(|answer| field(field(answer, "inner").unwrap(), "x").is_none()));
}

/// A random value of a kind that is new, or that contains such a value.
fn new_value(rng: &mut ChaCha8Rng, depth: u32) -> ScVal {
    let text = |rng: &mut ChaCha8Rng| {
        let bytes: Vec<u8> = (0..rng.random_range(0..9)).map(|_| rng.random()).collect();
        ScString(bytes.try_into().unwrap())
    };
    match rng.random_range(0..if depth > 3 { 4 } else { 7 }) {
        0 => ScVal::ExecutableTag(text(rng)),
        1 => ScVal::Address(ScAddress::MuxedContract(MuxedContract {
            id: rng.random(),
            contract_id: stellar_xdr::ContractId(Hash(rng.random())),
        })),
        2 | 3 => {
            let owner = match rng.random_range(0..3) {
                0 => contract(rng.random()),
                1 => ScAddress::Account(AccountId::default()),
                _ => ScAddress::MuxedContract(MuxedContract::default()),
            };
            let executable = ContractExecutable::ExternalRef(ContractExecutableExternalRef {
                executable_owner: owner,
                tag: text(rng),
            });
            let count = if depth > 3 { 0 } else { rng.random_range(0..3) };
            let entries = (0..count).map(|_| ScMapEntry {
                key: new_value(rng, depth + 3),
                val: new_value(rng, depth + 3),
            });
            let storage = ScMap(list(entries.collect::<Vec<_>>()));
            let storage = rng.random_bool(0.5).then_some(storage);
            ScVal::ContractInstance(ScContractInstance { executable, storage })
        }
        4 => ScVal::Void,
        _ => {
            let items = (0..rng.random_range(0..4)).map(|_| new_value(rng, depth + 1));
            ScVal::Vec(Some(ScVec(list(items.collect::<Vec<_>>()))))
        }
    }
}

/// A random consensus value with any kind of extension, and with close times that agree or not.
fn agreed(rng: &mut ChaCha8Rng) -> StellarValue {
    let milliseconds = rng.random::<u64>() >> rng.random_range(0..64);
    let seconds = match rng.random_range(0..4) {
        0 => milliseconds,
        1 => (milliseconds / 1000).wrapping_add(rng.random_range(0..2)),
        _ => milliseconds / 1000,
    };
    let close_time_ms = TimePointMs(milliseconds);
    let signature: Vec<u8> = (0..rng.random_range(0..65)).map(|_| rng.random()).collect();
    let lc_value_signature = LedgerCloseValueSignature {
        signature: Signature(signature.try_into().unwrap()),
        ..Default::default()
    };
    let ext = match rng.random_range(0..5) {
        0 => StellarValueExt::Basic,
        1 => StellarValueExt::Signed(lc_value_signature),
        2 => StellarValueExt::EmptyTxSet(StellarValueProposedValue {
            lc_value_signature,
            ..Default::default()
        }),
        3 => StellarValueExt::SignedMs(StellarValueSignedMsValue {
            close_time_ms,
            lc_value_signature,
        }),
        _ => StellarValueExt::EmptyTxSetMs(StellarValueProposedMsValue {
            close_time_ms,
            lc_value_signature,
            ..Default::default()
        }),
    };
    StellarValue { close_time: TimePoint(seconds), ext, ..Default::default() }
}

#[test]
fn both_implementations_agree_on_random_values_of_new_types() {
    let network = Network::from_name_or_passphrase("testnet");
    let cases = if fixtures::full_size() { 100_000 } else { 3_000 };
    let (mut accepted, mut precise, mut refused) = (0, 0, 0);
    for case in 0..cases {
        let mut rng = ChaCha8Rng::seed_from_u64(case);
        let emitted = ContractEvent {
            body: ContractEventBody::V0(ContractEventV0 {
                topics: list([new_value(&mut rng, 0), new_value(&mut rng, 0)]),
                data: new_value(&mut rng, 0),
            }),
            ..event("emitted")
        };
        let call = InvokeHostFunctionOp {
            host_function: HostFunction::InvokeContract(InvokeContractArgs {
                contract_address: match new_value(&mut rng, 4) {
                    ScVal::Address(address) => address,
                    _ => contract(1),
                },
                function_name: ScSymbol::default(),
                args: list([new_value(&mut rng, 0)]),
            }),
            auth: VecM::default(),
        };
        let key = LedgerKey::ContractData(LedgerKeyContractData {
            contract: contract(3),
            key: new_value(&mut rng, 0),
            durability: ContractDataDurability::Persistent,
        });
        let footprint = LedgerFootprint { read_only: list([key]), read_write: VecM::default() };
        let transaction = envelope(soroban(1, call, footprint));
        let applied = Applied::new(transaction, meta_with_events([emitted]));
        let mut made = ledger(&network, 9, &[applied]);
        made.ledger_header.header.scp_value = agreed(&mut rng);
        match compare(&encode(&LedgerCloseMeta::V2(made)), &network, &format!("case {case}")) {
            Verdict::Ledger(ledger) => {
                accepted += 1;
                precise += u32::from(ledger.close_time_ms.is_some());
            }
            Verdict::Inconsistent(_) => refused += 1,
            Verdict::Malformed(error) => panic!("case {case}: {error}"),
        }
        let entry = LedgerEntryData::ContractData(ContractDataEntry {
            val: new_value(&mut rng, 0),
            key: new_value(&mut rng, 0),
            ..Default::default()
        });
        let verdict = compare(&encode(&with_entry(entry)), &network, &format!("entry {case}"));
        assert!(matches!(verdict, Verdict::Ledger(_)), "entry {case}: {verdict:?}");
    }
    println!("{cases} cases: {accepted} accepted, {precise} in milliseconds, {refused} refused");
    assert!(precise > cases as u32 / 8 && refused > cases as u32 / 16);
}
