//! Responses are cached until the store changes, and no longer: a server that was called after
//! every ledger answers like one that was never called before.

use std::ops::ControlFlow;
use std::sync::Arc;

use orrery::decode::decode;
use orrery::rpc::{CallLimits, Params, Rpc, Settings};
use orrery::store::Bounds;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::world::{Chain, World};

/// Number of transactions of each ledger that are looked up.
const OF_A_LEDGER: usize = 4;

#[test]
fn cached_results_end_with_the_next_ledger() {
    for chain in [Some(Chain::made()), Chain::public()].into_iter().flatten() {
        let world = World::empty(&chain.network);
        let mut calls = Vec::new();
        let mut first = None;
        for raw in &chain.ledgers {
            let view = decode(raw, chain.network.id()).unwrap();
            first.get_or_insert(view.header.sequence.0);
            for transaction in view.transactions.iter().take(OF_A_LEDGER) {
                calls.push(("getTransaction", json!({ "hash": transaction.hash.to_string() })));
            }
        }
        let first = first.unwrap();
        calls.push((
            "getEvents",
            json!({ "startLedger": first, "pagination": { "limit": 10_000 } }),
        ));
        calls.push(("getEventsV2", json!({ "minLedger": first, "limit": 1000 })));
        calls.push(("queryEvents", json!({ "minLedger": first, "order": "desc" })));
        let mut changes = 0;
        let mut before: Vec<Result<Value, Value>> = Vec::new();
        for raw in &chain.ledgers {
            world.add(std::slice::from_ref(raw));
            let new = Rpc::new(Arc::clone(&world.store), Settings::default(), Arc::new(|| 0));
            let ask_new = |method: &str, params: &Value| {
                let params = to_raw_value(params).unwrap();
                match new.call(method, Params(Some(&params)), CallLimits::UNLIMITED) {
                    Ok(result) => Ok(serde_json::from_str::<Value>(result.get()).unwrap()),
                    Err(error) => Err(serde_json::to_value(&error).unwrap()),
                }
            };
            let mut answers = Vec::new();
            for (method, params) in &calls {
                let [once, again] = [(); 2].map(|()| world.call(method, params));
                assert_eq!(once, ask_new(method, params), "{}: {method} {params}", chain.name);
                assert_eq!(again, once, "{}: {method} {params}", chain.name);
                answers.push(once);
            }
            changes += answers.iter().zip(&before).filter(|(now, before)| now != before).count();
            before = answers;
        }
        assert!(changes >= (chain.ledgers.len() - 1) * 3, "{}: {changes}", chain.name);
    }
}

#[test]
fn a_page_truncated_for_one_caller_is_not_reused_for_others() {
    let chain = Chain::made();
    let (asked, never_asked) = (World::of(&chain), World::of(&chain));
    let view = decode(&chain.ledgers[0], chain.network.id()).unwrap();
    let first = view.header.sequence.0;
    let poor = |bytes: usize| match bytes > 2000 {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let few = Bounds { records: 1, ..Bounds::NONE };
    for (method, params) in [
        ("getEvents", json!({ "startLedger": first, "pagination": { "limit": 100 } })),
        ("getEventsV2", json!({ "minLedger": first, "limit": 100 })),
    ] {
        let count = |page: &Value| page["events"].as_array().unwrap().len();
        let whole = never_asked.call(method, &params).unwrap();
        for allowed in [
            CallLimits { may_grow_to: &poor, ..CallLimits::UNLIMITED },
            CallLimits { bounds: few, ..CallLimits::UNLIMITED },
        ] {
            let short = asked.call_within(method, &params, allowed).unwrap();
            assert!(count(&short) < count(&whole), "{method}: {}", count(&whole));
        }
        assert_eq!(asked.call(method, &params).unwrap(), whole, "{method}");
        // A cached response is not sent to a caller that may not receive as many bytes.
        let allowed = CallLimits { may_grow_to: &poor, ..CallLimits::UNLIMITED };
        assert!(count(&asked.call_within(method, &params, allowed).unwrap()) < count(&whole));
    }
}
