//! What is sent of an event: JSON in which values are written as the XDR crate writes them (stellar-xdr, JSON
//! of SEP-51), so that clients need no XDR. `schema/webhook-delivery.schema.json` describes it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};
use serde_json::json;
use stellar_xdr::{Limits, ReadXdr, ScVal};

use crate::decode::EventType;
use crate::domain::{ContractId, Hash32};
use crate::store::EventRecord;

/// Deeper than the network lets a value be (`DEFAULT_XDR_RW_DEPTH_LIMIT` of soroban-env-host is 500).
const LIMITS: Limits = Limits { depth: 500, len: 16 << 20 };

/// The body of a delivery.
#[derive(Serialize)]
struct Payload<'a> {
    event: Event<'a>,
    tx_hash: String,
}

/// The documented members first, then the additive ones.
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
}

#[derive(Serialize)]
struct Body<'a> {
    v0: BodyV0<'a>,
}

#[derive(Serialize)]
struct BodyV0<'a> {
    topics: Vec<Value<'a>>,
    data: Value<'a>,
}

/// The XDR of an `ScVal`.
struct Value<'a>(&'a [u8]);

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match ScVal::from_xdr(self.0, LIMITS) {
            Ok(value) => value.serialize(serializer),
            // What is stored was walked as an `ScVal` before. Should the crate know less of it than the walk
            // does, the receiver gets the value all the same.
            Err(_) => json!({ "xdr": STANDARD.encode(self.0) }).serialize(serializer),
        }
    }
}

/// The body of a delivery of an event.
pub fn of_event(event: &EventRecord<'_>) -> Vec<u8> {
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
                    topics: event.topics.iter().map(|topic| Value(topic)).collect(),
                    data: Value(event.data),
                },
            },
            id: event.id.0,
            ledger: event.ledger.0,
            ledger_closed_at: event.closed_at.to_string(),
            event_index: event.event_index,
        },
        tx_hash: Hash32(*event.tx).to_string(),
    };
    serde_json::to_vec(&payload).expect("numbers, texts and values of contracts serialize")
}

/// The body of a test delivery for a subscription to this contract, if to one: an event that never was, with
/// the ledger and the id of the newest one.
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
    use stellar_xdr::{Int128Parts, ScSymbol, ScVec, UInt256Parts, WriteXdr};

    use super::*;
    use crate::domain::{CloseTime, EventId, LedgerSeq};

    fn xdr(value: &ScVal) -> Vec<u8> {
        value.to_xdr(Limits::none()).unwrap()
    }

    fn payload(topics: &[&[u8]], data: &[u8]) -> Json {
        let event = EventRecord {
            id: EventId(9),
            ledger: LedgerSeq(77),
            closed_at: CloseTime::Seconds(1_700_000_000),
            tx: &[0xab; 32],
            application_order: 1,
            op_index: Some(0),
            event_index: Some(3),
            contract: Some(&[0; 32]),
            event_type: EventType::Contract,
            topics,
            data,
        };
        serde_json::from_slice(&of_event(&event)).unwrap()
    }

    #[test]
    fn is_what_the_interface_shows() {
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
    fn wide_numbers_are_texts_and_void_is_a_word() {
        let data = |value: ScVal| payload(&[], &xdr(&value))["event"]["body"]["v0"]["data"].clone();
        assert_eq!(data(ScVal::U64(u64::MAX)), json!({ "u64": "18446744073709551615" }));
        assert_eq!(data(ScVal::I64(-1)), json!({ "i64": "-1" }));
        assert_eq!(data(ScVal::U32(7)), json!({ "u32": 7 }));
        let wide = UInt256Parts { hi_hi: 0, hi_lo: 0, lo_hi: 1, lo_lo: 0 };
        assert_eq!(data(ScVal::U256(wide)), json!({ "u256": "18446744073709551616" }));
        assert_eq!(data(ScVal::Void), json!("void"));
        assert_eq!(data(ScVal::Bool(true)), json!({ "bool": true }));
    }

    #[test]
    fn a_value_that_is_as_deep_as_may_be_is_sent() {
        let mut value = ScVal::Void;
        for _ in 0..120 {
            value = ScVal::Vec(Some(ScVec(vec![value].try_into().unwrap())));
        }
        let data = xdr(&value);
        let text = serde_json::to_string(&Value(&data)).unwrap();
        assert_eq!(text, "{\"vec\":[".repeat(120) + "\"void\"" + &"]}".repeat(120));
    }

    #[test]
    fn what_the_crate_does_not_read_is_sent_as_xdr() {
        let sent = payload(&[&[0, 0, 0, 99]], &xdr(&ScVal::Void));
        assert_eq!(sent["event"]["body"]["v0"]["topics"][0], json!({ "xdr": "AAAAYw==" }));
    }
}
