//! Parses the serialiser's output with `serde_json` and compares it with the input.

use base64::engine::general_purpose::STANDARD;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use serde_json::{Value, json};

use super::*;
use orrery_ledger::decode::Placement;
use orrery_ledger::domain::{EventId, Hash32, LedgerSeq};
use orrery_store::TransactionPosition;

fn bytes(random: &mut StdRng, longest: usize) -> Vec<u8> {
    let mut bytes = vec![0; random.random_range(0..=longest)];
    random.fill_bytes(&mut bytes);
    bytes
}

fn array(random: &mut StdRng) -> [u8; 32] {
    let mut bytes = [0; 32];
    random.fill_bytes(&mut bytes);
    bytes
}

fn shown(closed: CloseTime) -> String {
    let (text, length) = closed.iso_8601();
    String::from_utf8(text[..length].to_vec()).unwrap()
}

/// Builds the expected fields with `serde_json`, independently of the serialiser.
fn expected_event(event: &EventRecord<'_>) -> Value {
    let topics: Vec<_> = event.topics.iter().map(|topic| STANDARD.encode(topic)).collect();
    let mut expected = json!({
        "id": event.id.0,
        "contract_id": event.contract.map_or(String::new(), |c| ContractId(*c).to_string()),
        "data": STANDARD.encode(event.data),
        "tx": Hash32(*event.tx).to_string(),
        "event_index": event.event_index(),
        "ledger": event.ledger.0,
        "ledger_closed_at": shown(event.closed_at),
        "type": if event.event_type == EventType::System { "system" } else { "contract" },
        "application_order": event.application_order,
        "op_index": event.op_index(),
    });
    if let CloseTime::Milliseconds(milliseconds) = event.closed_at {
        expected["ledger_closed_at_ms"] = json!(milliseconds);
    }
    for position in 0..10 {
        expected[format!("topic{}", position + 1)] = json!(topics.get(position));
    }
    if topics.len() > 10 {
        expected["topics"] = json!(topics);
    }
    expected
}

#[test]
fn events_round_trip_through_json() {
    let mut random = StdRng::seed_from_u64(1);
    let mut list = List::with_room_for(1);
    let mut expected = Vec::new();
    for _ in 0..500 {
        let topics: Vec<_> =
            (0..random.random_range(0..14)).map(|_| bytes(&mut random, 40)).collect();
        let topics: Vec<&[u8]> = topics.iter().map(Vec::as_slice).collect();
        let (contract, tx, data) =
            (array(&mut random), array(&mut random), bytes(&mut random, 300));
        let operation = random.random_bool(0.8);
        let event = EventRecord {
            id: EventId(random.next_u64() >> random.random_range(0..64)),
            ledger: LedgerSeq(random.next_u32()),
            closed_at: if random.random_bool(0.5) {
                CloseTime::Seconds(u64::from(random.next_u32()))
            } else {
                CloseTime::Milliseconds(random.next_u64() >> 20)
            },
            tx: &tx,
            application_order: random.next_u32() >> 12,
            placement: if operation {
                Placement::Operation {
                    operation: random.random_range(0..100),
                    event_index: random.random_range(0..1000),
                }
            } else {
                Placement::BeforeAllTransactions
            },
            operation_begins: None,
            contract: random.random_bool(0.9).then_some(&contract),
            event_type: if operation { EventType::Contract } else { EventType::System },
            successful: None,
            topics: &topics,
            data: &data,
        };
        list.event(&event);
        expected.push(expected_event(&event));
    }
    let written: Vec<Value> = serde_json::from_slice(&list.finish()).unwrap();
    assert_eq!(written, expected);
}

#[test]
fn the_first_fields_come_in_the_documented_order() {
    let mut list = List::with_room_for(1);
    let topics: [&[u8]; 1] = [&[0, 0, 0, 1]];
    list.event(&EventRecord {
        id: EventId(u64::MAX),
        ledger: LedgerSeq(3),
        closed_at: CloseTime::Seconds(1_708_448_400),
        tx: &[0xab; 32],
        application_order: 1,
        placement: Placement::BeforeAllTransactions,
        operation_begins: None,
        contract: None,
        event_type: EventType::Contract,
        successful: None,
        topics: &topics,
        data: &[],
    });
    let expected = concat!(
        r#"[{"id":18446744073709551615,"contract_id":"","topic1":"AAAAAQ==","topic2":null,"#,
        r#""topic3":null,"topic4":null,"topic5":null,"topic6":null,"topic7":null,"topic8":null,"#,
        r#""topic9":null,"topic10":null,"data":"","tx":"abababababababababababababababababab"#,
        r#"abababababababababababababab","event_index":null,"ledger":3,"ledger_closed_at":"#,
        r#""2024-02-20T17:00:00Z","type":"contract","application_order":1,"op_index":null}]"#,
    );
    assert_eq!(String::from_utf8(list.finish()).unwrap(), expected);
}

#[test]
fn transactions_round_trip_through_json() {
    let contracts = [ContractId([1; 32]), ContractId([2; 32])];
    let mut list = List::with_room_for(1);
    let mut expected = Vec::new();
    for inner_tx in [None, Some(&[9; 32])] {
        list.transaction(&TransactionRecord {
            tx: &[8; 32],
            inner_tx,
            position: TransactionPosition { ledger: LedgerSeq(7), application_order: 2 },
            closed_at: CloseTime::Seconds(0),
            successful: inner_tx.is_none(),
            source_account: "MA",
            fee_account: "GA",
            fee_charged: i64::MAX,
            contracts: &contracts[..if inner_tx.is_none() { 2 } else { 0 }],
            event_count: 4,
            envelope: &[1],
            result: &[2, 3],
            meta: &[4, 5, 6],
        });
        expected.push(json!({
            "tx": "08".repeat(32),
            "ledger": 7,
            "ledger_closed_at": "1970-01-01T00:00:00Z",
            "application_order": 2,
            "successful": inner_tx.is_none(),
            "fee_bump": inner_tx.is_some(),
            "inner_tx": inner_tx.map(|_| "09".repeat(32)),
            "source_account": "MA",
            "fee_account": "GA",
            "fee_charged": "9223372036854775807",
            "contracts": if inner_tx.is_none() {
                contracts.iter().map(ToString::to_string).collect::<Vec<_>>()
            } else {
                Vec::new()
            },
            "event_count": 4,
            "envelope_xdr": "AQ==",
            "result_xdr": "AgM=",
            "meta_xdr": "BAUG",
        }));
    }
    let written: Vec<Value> = serde_json::from_slice(&list.finish()).unwrap();
    assert_eq!(written, expected);
}

#[test]
fn an_empty_list_is_an_empty_array() {
    assert_eq!(List::with_room_for(0).finish(), b"[]");
}

#[test]
fn times_have_four_digit_years() {
    let of_seconds = |seconds| shown(CloseTime::Seconds(seconds));
    assert_eq!(of_seconds(951_782_399), "2000-02-28T23:59:59Z");
    assert_eq!(of_seconds(u64::MAX), "9999-12-31T23:59:59Z");
    assert_eq!(of_seconds(253_402_300_800), "9999-12-31T23:59:59Z");
}

#[test]
fn milliseconds_have_three_digits() {
    let of_milliseconds = |milliseconds| shown(CloseTime::Milliseconds(milliseconds));
    assert_eq!(of_milliseconds(951_782_399_007), "2000-02-28T23:59:59.007Z");
    assert_eq!(of_milliseconds(951_782_399_980), "2000-02-28T23:59:59.980Z");
    assert_eq!(of_milliseconds(253_402_300_799_123), "9999-12-31T23:59:59.123Z");
    assert_eq!(of_milliseconds(253_402_300_800_000), "9999-12-31T23:59:59.999Z");
}

#[test]
fn records_of_the_same_second_keep_their_milliseconds() {
    let times = [1_999, 1_999, 1_998].map(CloseTime::Milliseconds);
    let mut list = List::with_room_for(3);
    for closed_at in times.into_iter().chain([CloseTime::Seconds(1)]) {
        list.event(&EventRecord {
            id: EventId(1),
            ledger: LedgerSeq(3),
            closed_at,
            tx: &[0xab; 32],
            application_order: 1,
            placement: Placement::BeforeAllTransactions,
            operation_begins: None,
            contract: None,
            event_type: EventType::Contract,
            successful: None,
            topics: &[],
            data: &[],
        });
    }
    let written: Vec<Value> = serde_json::from_slice(&list.finish()).unwrap();
    let shown: Vec<_> = written
        .iter()
        .map(|event| (event["ledger_closed_at"].as_str().unwrap(), &event["ledger_closed_at_ms"]))
        .collect();
    assert_eq!(
        shown,
        [
            ("1970-01-01T00:00:01.999Z", &json!(1_999)),
            ("1970-01-01T00:00:01.999Z", &json!(1_999)),
            ("1970-01-01T00:00:01.998Z", &json!(1_998)),
            ("1970-01-01T00:00:01Z", &Value::Null),
        ]
    );
}
