//! Builds the JSON body of a delivery. Values are written as the XDR crate writes them
//! (stellar-xdr, JSON of SEP-51), so that clients need no XDR.
//! `schema/webhook-delivery.schema.json` describes it.

use serde::Serialize;
use serde_json::json;

use orrery_executables::{DeclaredEvent, InterfaceReader};
use orrery_interfaces::{Matched, Params, TypedXdr};
use orrery_ledger::decode::EventType;
use orrery_ledger::domain::{ContractId, Hash32, NetworkId};
use orrery_store::EventRecord;

/// The body of a delivery.
#[derive(Serialize)]
struct Payload<'a> {
    event: Event<'a>,
    tx_hash: String,
}

/// The documented members first, then additional ones.
#[derive(Serialize)]
struct Event<'a> {
    ext: &'static str,
    contract_id: String,
    type_: &'static str,
    body: Body<'a>,
    id: u64,
    ledger: u32,
    ledger_closed_at: String,
    event_index: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<Params<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    names_pending: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    v0: BodyV0<'a>,
}

#[derive(Serialize)]
struct BodyV0<'a> {
    topics: Vec<TypedXdr<'a>>,
    data: TypedXdr<'a>,
}

/// Returns the body of a delivery for an event, with its name and parameters where `names` has the
/// interface of its contract.
pub fn of_event(
    event: &EventRecord<'_>,
    network: &NetworkId,
    names: Option<&InterfaceReader<'_>>,
) -> Vec<u8> {
    let lacked = || names.map_or(0, InterfaceReader::lacked);
    let before = lacked();
    let declared = names.and_then(|names| DeclaredEvent::of(event, network, names));
    let matched = declared.as_ref().and_then(DeclaredEvent::matched);
    let payload = Payload {
        event: Event {
            ext: "v0",
            contract_id: event.contract.map_or(String::new(), |id| ContractId(*id).to_string()),
            type_: match event.event_type {
                EventType::Contract => "contract",
                EventType::System => "system",
            },
            body: Body {
                v0: BodyV0 {
                    topics: event.topics.iter().map(|topic| TypedXdr(topic)).collect(),
                    data: TypedXdr(event.data),
                },
            },
            id: event.id.0,
            ledger: event.ledger.0,
            ledger_closed_at: event.closed_at.to_string(),
            event_index: event.event_index(),
            name: matched.as_ref().map(Matched::name),
            params: matched.as_ref().map(Params),
            names_pending: lacked() > before,
        },
        tx_hash: Hash32(*event.tx).to_string(),
    };
    serde_json::to_vec(&payload).expect("numbers, texts and values of contracts serialize")
}

/// Returns the body of a test delivery: an invented event of the subscription's contract, if it has
/// one, with the newest ledger and the id of the newest event.
pub fn of_test(contract: Option<&ContractId>, id: u64, ledger: u32, closed_at: String) -> Vec<u8> {
    let payload = json!({
        "event": {
            "ext": "v0",
            "contract_id": contract.map_or(String::new(), ToString::to_string),
            "type_": "contract",
            "body": { "v0": { "topics": [{ "symbol": "test" }], "data": { "string": "test" } } },
            "id": id,
            "ledger": ledger,
            "ledger_closed_at": closed_at,
            "event_index": null,
        },
        "tx_hash": "0".repeat(64),
        "test": true,
    });
    payload.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;
    use stellar_xdr::{
        ContractEvent, ContractEventBody, ContractEventV0, Int128Parts, Limits, ScMap, ScMapEntry,
        ScSymbol, ScVal, ScVec, UInt256Parts, VecM, WriteXdr,
    };

    use super::*;
    use orrery_ledger::decode::Placement;
    use orrery_ledger::domain::{CloseTime, EventId, LedgerSeq};

    fn xdr(value: &ScVal) -> Vec<u8> {
        value.to_xdr(Limits::none()).unwrap()
    }

    fn payload(topics: &[&[u8]], data: &[u8]) -> Json {
        serde_json::from_slice(&sent(topics, data)).unwrap()
    }

    fn payload_text(data: &[u8]) -> String {
        String::from_utf8(sent(&[], data)).unwrap()
    }

    fn sent(topics: &[&[u8]], data: &[u8]) -> Vec<u8> {
        let event = EventRecord {
            id: EventId(9),
            ledger: LedgerSeq(77),
            closed_at: CloseTime::Seconds(1_700_000_000),
            tx: &[0xab; 32],
            application_order: 1,
            placement: Placement::Operation { operation: 0, event_index: 3 },
            operation_begins: None,
            contract: Some(&[0; 32]),
            event_type: EventType::Contract,
            successful: Some(true),
            topics,
            data,
        };
        of_event(&event, &Hash32([0; 32]), None)
    }

    #[test]
    fn the_payload_has_the_documented_form() {
        let topic = xdr(&ScVal::Symbol(ScSymbol("transfer".try_into().unwrap())));
        let data = xdr(&ScVal::I128(Int128Parts { hi: -1, lo: 5 }));
        let expected = json!({
            "event": {
                "ext": "v0",
                "contract_id": ContractId([0; 32]).to_string(),
                "type_": "contract",
                "body": { "v0": {
                    "topics": [{ "symbol": "transfer" }],
                    "data": { "i128": "-18446744073709551611" },
                } },
                "id": 9,
                "ledger": 77,
                "ledger_closed_at": "2023-11-14T22:13:20Z",
                "event_index": 3,
            },
            "tx_hash": "ab".repeat(32),
        });
        assert_eq!(payload(&[&topic], &data), expected);
    }

    #[test]
    fn wide_integers_and_void_are_json_strings() {
        let data = |value: ScVal| payload(&[], &xdr(&value))["event"]["body"]["v0"]["data"].clone();
        assert_eq!(data(ScVal::U64(u64::MAX)), json!({ "u64": "18446744073709551615" }));
        assert_eq!(data(ScVal::I64(-1)), json!({ "i64": "-1" }));
        assert_eq!(data(ScVal::U32(7)), json!({ "u32": 7 }));
        let wide = UInt256Parts { hi_hi: 0, hi_lo: 0, lo_hi: 1, lo_lo: 0 };
        assert_eq!(data(ScVal::U256(wide)), json!({ "u256": "18446744073709551616" }));
        assert_eq!(data(ScVal::Void), json!("void"));
        assert_eq!(data(ScVal::Bool(true)), json!({ "bool": true }));
    }

    fn vectors(levels: usize) -> ScVal {
        let around = |inner| ScVal::Vec(Some(ScVec(vec![inner].try_into().unwrap())));
        (0..levels).fold(ScVal::Void, |inner, _| around(inner))
    }

    fn maps(levels: usize) -> ScVal {
        let around = |val| {
            let entry = ScMapEntry { key: ScVal::Void, val };
            ScVal::Map(Some(ScMap(vec![entry].try_into().unwrap())))
        };
        (0..levels).fold(ScVal::Void, |inner, _| around(inner))
    }

    /// Returns the greatest nesting depth for which the contract host writes an event.
    fn deepest(make: fn(usize) -> ScVal) -> usize {
        let is_written = |levels: &usize| {
            let body = ContractEventV0 { topics: VecM::default(), data: make(*levels) };
            let event =
                ContractEvent { body: ContractEventBody::V0(body), ..ContractEvent::default() };
            event.to_xdr(soroban_env_host::DEFAULT_XDR_RW_LIMITS).is_ok()
        };
        (0..500).take_while(is_written).last().unwrap()
    }

    #[test]
    fn values_of_any_depth_are_serialised() {
        stacker::grow(256 << 20, || {
            // As deep as contracts can nest values, deeper, and as deep as a ledger may hold.
            assert_eq!((deepest(vectors), deepest(maps)), (123, 98));
            for levels in [1, 99, 100, 101, 120, 123, 124, 200, 499] {
                let data = xdr(&vectors(levels));
                let text = serde_json::to_string(&TypedXdr(&data)).unwrap();
                let (open, close) = ("{\"vec\":[".repeat(levels), "]}".repeat(levels));
                assert!(text == open + "\"void\"" + &close, "{levels}");
            }
            for levels in [1, 99, 100, 200, 399] {
                let data = xdr(&maps(levels));
                let text = serde_json::to_string(&TypedXdr(&data)).unwrap();
                let open = "{\"map\":[{\"key\":\"void\",\"val\":".repeat(levels);
                assert!(text == open + "\"void\"" + &"}]}".repeat(levels), "{levels}");
            }
            // Deeper than any ledger can hold.
            let data = xdr(&vectors(500));
            let text = serde_json::to_string(&TypedXdr(&data)).unwrap();
            assert!(text.starts_with("{\"xdr\":\""));
        });
    }

    /// Runs on a stack as small as that of the thread that creates deliveries.
    #[test]
    fn deep_values_are_serialised_on_a_small_stack() {
        let data = stacker::grow(256 << 20, || xdr(&vectors(499)));
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        let sent = thread.spawn(move || payload_text(&data)).unwrap().join().unwrap();
        assert_eq!(sent.matches("{\"vec\":[").count(), 499);
    }

    #[test]
    fn values_that_cannot_be_decoded_are_sent_as_xdr() {
        let sent = payload(&[&[0, 0, 0, 99]], &xdr(&ScVal::Void));
        assert_eq!(sent["event"]["body"]["v0"]["topics"][0], json!({ "xdr": "AAAAYw==" }));
    }
}
