//! `getLedgers` and `getLatestLedger`.

use std::ops::ControlFlow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery::rpc::{CallLimits, RpcError};
use orrery::store::Bounds;
use serde_json::{Value, json};

use crate::naive::{self, FORMATS};
use crate::world::{Chain, World, each_recorded};

/// Reads all items from a start ledger on, page by page.
fn all(world: &World, start: u32, limit: u64, format: &str, allowed: CallLimits<'_>) -> Vec<Value> {
    let mut request =
        json!({ "startLedger": start, "pagination": { "limit": limit }, "xdrFormat": format });
    let mut items = Vec::new();
    loop {
        let answer = world.call_within("getLedgers", &request, allowed).unwrap();
        let page = answer["ledgers"].as_array().unwrap();
        assert!((1..=limit).contains(&(page.len() as u64)));
        items.extend(page.iter().cloned());
        let last = page.last().unwrap()["sequence"].as_u64().unwrap();
        let cursor = answer["cursor"].as_str().unwrap();
        assert_eq!(cursor, last.to_string());
        if answer["latestLedger"] == last {
            return items;
        }
        request = json!({
            "pagination": { "cursor": cursor, "limit": limit }, "xdrFormat": format,
        });
    }
}

fn check(chain: &Chain) {
    let world = World::of(chain);
    let expected: Vec<_> =
        chain.ledgers.iter().map(|raw| naive::ledger(raw, &chain.network)).collect();
    let [first, last] = [&expected[0], expected.last().unwrap()];
    for (place, format) in FORMATS.iter().enumerate() {
        let items = all(&world, first.sequence, 50, format, CallLimits::UNLIMITED);
        assert_eq!(items.len(), expected.len(), "{}", chain.name);
        for (item, ledger) in items.iter().zip(&expected) {
            assert!(*item == ledger.items[place], "{}: {}", chain.name, ledger.sequence);
        }
    }
    let request = json!({ "startLedger": last.sequence });
    let page = world.call("getLedgers", &request).unwrap();
    assert_eq!(page["ledgers"], json!([last.items[0]]), "base64 is the default");
    let latest = world.call("getLatestLedger", &Value::Null).unwrap();
    let metadata = STANDARD.encode(chain.ledgers.last().unwrap());
    let wanted = json!({
        "id": last.hash,
        "protocolVersion": last.protocol,
        "sequence": last.sequence,
        "closeTime": last.closed_at.to_string(),
        "headerXdr": STANDARD.encode(&last.header),
        "metadataXdr": metadata,
    });
    assert!(latest == wanted, "{}", chain.name);
}

#[test]
fn recorded_ledgers_are_returned_unchanged() {
    each_recorded(check);
    check(&Chain::made());
}

#[test]
fn pages_contain_each_ledger_once() {
    let chains = [Some(Chain::made()), Chain::public()];
    for chain in chains.into_iter().flatten() {
        let world = World::of(&chain);
        let sequences: Vec<_> = chain.ledgers.iter().map(|raw| sequence(raw)).collect();
        let (first, latest) = (sequences[0], *sequences.last().unwrap());
        for limit in (1..=7).chain([200]) {
            let start = first + limit as u32 % 3;
            let items = all(&world, start, limit, "", CallLimits::UNLIMITED);
            let got: Vec<_> = items.iter().map(|item| item["sequence"].as_u64().unwrap()).collect();
            let wanted: Vec<_> = (start..=latest).map(u64::from).collect();
            assert_eq!(got, wanted, "{} {limit}", chain.name);
        }
        let page = world.call("getLedgers", &json!({ "startLedger": first, "pagination": null }));
        let page = page.unwrap();
        let count = page["ledgers"].as_array().unwrap().len();
        assert!(count == 50.min(chain.ledgers.len()) || chain.name == "public", "{count}");
        for (member, closed_at) in [
            ("oldestLedgerCloseTime", &chain.ledgers[0]),
            ("latestLedgerCloseTime", chain.ledgers.last().unwrap()),
        ] {
            assert_eq!(page[member], naive::ledger(closed_at, &chain.network).closed_at);
        }
        assert_eq!(page["oldestLedger"], first);
        let at_once = json!({ "startLedger": first, "pagination": { "limit": 0, "cursor": "" } });
        assert_eq!(world.call("getLedgers", &at_once).unwrap(), page);
    }
}

fn sequence(raw: &[u8]) -> u32 {
    orrery::decode::header(raw).unwrap().sequence.0
}

#[test]
fn expensive_pages_end_early() {
    let chain = Chain::made();
    let world = World::of(&chain);
    let first = sequence(&chain.ledgers[0]);
    let never = CallLimits { may_grow_to: &|_| ControlFlow::Break(()), ..CallLimits::UNLIMITED };
    let over = Bounds { interrupted: &|| true, ..Bounds::NONE };
    for allowed in [never, CallLimits { bounds: over, ..CallLimits::UNLIMITED }] {
        let request = json!({ "startLedger": first });
        let page = world.call_within("getLedgers", &request, allowed).unwrap();
        assert_eq!(page["ledgers"].as_array().unwrap().len(), 1);
        assert_eq!(all(&world, first, 50, "json", allowed).len(), chain.ledgers.len());
    }
}

#[test]
fn pages_stay_below_the_response_limit_of_clients() {
    let Some(chain) = Chain::public() else { return };
    let world = World::of(&chain);
    let first = sequence(&chain.ledgers[0]);
    for format in FORMATS {
        let request = json!({ "startLedger": first, "xdrFormat": format });
        let page = world.call("getLedgers", &request).unwrap();
        assert!(page.to_string().len() < 10 << 20, "{format}");
        let count = page["ledgers"].as_array().unwrap().len();
        assert!((1..chain.ledgers.len()).contains(&count), "{format}: {count}");
    }
}

/// Memory for a ledger's response is reserved before the response is built.
#[test]
fn a_ledger_is_built_only_when_there_is_room() {
    let chain = Chain::made();
    let world = World::of(&chain);
    let start = orrery::decode::header(&chain.ledgers[0]).unwrap().sequence.0;
    for format in FORMATS {
        let request =
            json!({ "startLedger": start, "xdrFormat": format, "pagination": { "limit": 20 } });
        let none = || RpcError::internal("no room");
        let reserve = |_| Err(none());
        let allowed =
            CallLimits { reserve: &reserve, reserve_one: &reserve, ..CallLimits::UNLIMITED };
        let refused = world.call_within("getLedgers", &request, allowed).unwrap_err();
        assert_eq!(refused["message"], "no room", "{format}");
        // A page ends where there is no room for another ledger.
        let asked = std::cell::Cell::new(0);
        let reserve = |_| {
            asked.set(asked.get() + 1);
            if asked.get() > 3 { Err(none()) } else { Ok(()) }
        };
        let allowed =
            CallLimits { reserve: &reserve, reserve_one: &reserve, ..CallLimits::UNLIMITED };
        let page = world.call_within("getLedgers", &request, allowed).unwrap();
        assert_eq!(page["ledgers"].as_array().unwrap().len(), 3, "{format}");
    }
}
