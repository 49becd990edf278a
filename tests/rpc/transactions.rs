//! `getTransactions` and `getTransaction`.

use std::ops::ControlFlow;

use orrery::rpc::CallLimits;
use orrery::store::Bounds;
use serde_json::{Value, json};

use crate::naive::{self, FORMATS, Ledger};
use crate::world::{Chain, World, each_recorded};

fn toid(ledger: u32, order: u64) -> u64 {
    u64::from(ledger) << 32 | order << 12 | 1
}

fn decoded(chain: &Chain) -> Vec<Ledger> {
    chain.ledgers.iter().map(|raw| naive::ledger(raw, &chain.network)).collect()
}

/// Reads all items from a start ledger on, page by page, until a page returns nothing new.
fn all(world: &World, start: u32, limit: u64, format: &str, allowed: CallLimits<'_>) -> Vec<Value> {
    let mut request =
        json!({ "startLedger": start, "pagination": { "limit": limit }, "xdrFormat": format });
    let mut items = Vec::new();
    let mut passed = 0;
    loop {
        let answer = world.call_within("getTransactions", &request, allowed).unwrap();
        let page = answer["transactions"].as_array().unwrap();
        assert!(page.len() as u64 <= limit);
        items.extend(page.iter().cloned());
        let cursor = answer["cursor"].as_str().unwrap();
        let at: u64 = cursor.parse().unwrap();
        if page.len() as u64 == limit {
            let (ledger, order) = (&page.last().unwrap()["ledger"], "applicationOrder");
            let order = page.last().unwrap()[order].as_u64().unwrap();
            assert_eq!(at, toid(ledger.as_u64().unwrap() as u32, order));
        }
        if at == passed {
            assert!(page.is_empty());
            return items;
        }
        assert!(at > passed, "cursors ascend");
        passed = at;
        request = json!({
            "pagination": { "cursor": cursor, "limit": limit }, "xdrFormat": format,
        });
    }
}

fn check(chain: &Chain) {
    let world = World::of(chain);
    let ledgers = decoded(chain);
    let expected: Vec<_> = ledgers.iter().flat_map(|ledger| &ledger.transactions).collect();
    for (place, format) in FORMATS.iter().enumerate() {
        let items = all(&world, ledgers[0].sequence, 200, format, CallLimits::UNLIMITED);
        assert_eq!(items.len(), expected.len(), "{}", chain.name);
        for (item, transaction) in items.iter().zip(&expected) {
            let wanted = &transaction.items[place];
            assert!(item == wanted, "{}\n{item}\n{wanted}", chain.name);
        }
    }
    check_singles(chain, &world, &ledgers, false);
    check_singles(chain, &World::indexed(chain), &ledgers, true);
}

/// Looks up transactions by hash: a sample of each ledger's, and all fee bumps. Those of classic operations
/// are only found in a store whose transactions `are_indexed`, and in its newest ledgers.
fn check_singles(chain: &Chain, world: &World, ledgers: &[Ledger], are_indexed: bool) {
    let [first, last] = [&ledgers[0], ledgers.last().unwrap()];
    for ledger in ledgers {
        let every = ledger.transactions.len() / 8 + 1;
        for (number, transaction) in ledger.transactions.iter().enumerate() {
            if number % every != 0 && transaction.inner_hash.is_none() {
                continue;
            }
            for (place, format) in FORMATS.iter().enumerate() {
                let hashes = [Some(&transaction.hash), transaction.inner_hash.as_ref()];
                for hash in hashes.into_iter().flatten() {
                    for hash in [hash.clone(), hash.to_uppercase()] {
                        let request = json!({ "hash": hash, "xdrFormat": format });
                        let found = world.call("getTransaction", &request).unwrap();
                        let is_known = found["status"] != "NOT_FOUND";
                        let must_be_known = are_indexed || transaction.smart_contract;
                        assert!(is_known || !must_be_known, "{}", chain.name);
                        let mut wanted = transaction.items[place].clone();
                        wanted["createdAt"] = json!(ledger.closed_at.to_string());
                        if !is_known {
                            wanted = not_found();
                        }
                        wanted["txHash"] = json!(hash);
                        wanted["latestLedger"] = json!(last.sequence);
                        wanted["oldestLedger"] = json!(first.sequence);
                        wanted["latestLedgerCloseTime"] = json!(last.closed_at.to_string());
                        wanted["oldestLedgerCloseTime"] = json!(first.closed_at.to_string());
                        assert!(found == wanted, "{}\n{found}\n{wanted}", chain.name);
                    }
                }
            }
        }
    }
}

fn not_found() -> Value {
    json!({
        "status": "NOT_FOUND", "applicationOrder": 0, "feeBump": false, "ledger": 0,
        "createdAt": "0", "events": {},
    })
}

#[test]
fn recorded_transactions_are_returned_unchanged() {
    each_recorded(check);
    check(&Chain::made());
}

#[test]
fn pages_contain_each_transaction_once() {
    let chain = Chain::made();
    let world = World::of(&chain);
    let ledgers = decoded(&chain);
    let never = CallLimits { may_grow_to: &|_| ControlFlow::Break(()), ..CallLimits::UNLIMITED };
    let over = Bounds { interrupted: &|| true, ..Bounds::NONE };
    let over = CallLimits { bounds: over, ..CallLimits::UNLIMITED };
    let cases = (1..=7).map(|limit| (limit, CallLimits::UNLIMITED));
    for (limit, allowed) in cases.chain([(200, never), (200, over)]) {
        let from = limit as usize % 3;
        let wanted: Vec<_> = ledgers[from..].iter().flat_map(|it| &it.transactions).collect();
        let items = all(&world, ledgers[from].sequence, limit, "", allowed);
        assert_eq!(items.len(), wanted.len(), "limit {limit}");
        for (item, transaction) in items.iter().zip(wanted) {
            assert!(*item == transaction.items[0], "limit {limit}");
        }
    }
}

#[test]
fn pages_end_at_the_newest_ledger() {
    let chain = Chain::made();
    let world = World::of(&chain);
    let ledgers = decoded(&chain);
    let last = ledgers.last().unwrap();
    let count = last.transactions.len() as u64;
    let page = world.call("getTransactions", &json!({ "startLedger": last.sequence })).unwrap();
    assert_eq!(page["transactions"].as_array().unwrap().len() as u64, count);
    assert_eq!(page["cursor"], toid(last.sequence, count).to_string());
    assert_eq!(page["latestLedgerCloseTimestamp"], last.closed_at);
    assert_eq!(page["oldestLedgerCloseTimestamp"], ledgers[0].closed_at);
    assert_eq!(page["oldestLedger"], ledgers[0].sequence);
    // The default limit is 50.
    let page = world.call("getTransactions", &json!({ "startLedger": ledgers[0].sequence }));
    assert_eq!(page.unwrap()["transactions"].as_array().unwrap().len(), 50);
    // Cursors at or after the last transaction.
    for (ledger, order) in
        [(last.sequence, count), (last.sequence, count + 3), (last.sequence + 5, 1)]
    {
        let cursor = toid(ledger, order).to_string();
        let page = world.call("getTransactions", &json!({ "pagination": { "cursor": cursor } }));
        let page = page.unwrap_or_else(|error| panic!("{ledger} {order}: {error}"));
        assert_eq!(page["transactions"], json!([]));
        assert_eq!(page["cursor"], cursor, "it is echoed");
    }
    // So is one that names no transaction at all.
    for cursor in [(toid(last.sequence + 5, 1) + 7).to_string(), i64::MAX.to_string()] {
        let page = world.call("getTransactions", &json!({ "pagination": { "cursor": cursor } }));
        assert_eq!(page.unwrap()["cursor"], cursor);
    }
    // The operation in a cursor is ignored, and every cursor before the first transaction yields
    // that transaction.
    for cursor in [toid(last.sequence, 0), toid(last.sequence, 0) + 7, toid(last.sequence, 0) - 1] {
        let request = json!({ "pagination": { "cursor": cursor.to_string(), "limit": 1 } });
        let page = world.call("getTransactions", &request).unwrap();
        let found = page["transactions"].as_array().unwrap();
        assert!(found.is_empty() || found[0] == last.transactions[0].items[0]);
        assert_eq!(found.is_empty(), last.transactions.is_empty());
    }
}

#[test]
fn an_empty_newest_ledger_ends_a_page_before_its_first_transaction() {
    let mut chain = Chain::made();
    let is_empty = |raw: &Vec<u8>| naive::ledger(raw, &chain.network).transactions.is_empty();
    let last = chain.ledgers.iter().rposition(is_empty).expect("some ledgers are empty");
    chain.ledgers.truncate(last + 1);
    let world = World::of(&chain);
    let last = naive::ledger(&chain.ledgers[last], &chain.network).sequence;
    let page = world.call("getTransactions", &json!({ "startLedger": last })).unwrap();
    assert_eq!(page["transactions"], json!([]));
    assert_eq!(page["cursor"], toid(last, 0).to_string());
}

#[test]
fn pages_stay_below_the_response_limit_of_clients() {
    let Some(chain) = Chain::public() else { return };
    let world = World::of(&chain);
    let start = orrery::decode::header(&chain.ledgers[0]).unwrap().sequence.0;
    for format in FORMATS {
        let request = json!({
            "startLedger": start, "xdrFormat": format, "pagination": { "limit": 200 },
        });
        // The size reported to `may_grow_to` bounds the length of the page, up to 500 bytes.
        let reported = std::cell::Cell::new(0);
        let may_grow_to = |bytes: usize| {
            reported.set(bytes);
            ControlFlow::Continue(())
        };
        let allowed = CallLimits { may_grow_to: &may_grow_to, ..CallLimits::UNLIMITED };
        let page = world.call_within("getTransactions", &request, allowed).unwrap();
        let bytes = page.to_string().len();
        assert!(bytes < 10 << 20 && bytes <= reported.get() + 500, "{format}: {bytes}");
    }
}

#[test]
fn a_scan_of_ledgers_without_transactions_can_be_interrupted() {
    let chain = Chain::made();
    let is_empty = |raw: &&Vec<u8>| naive::ledger(raw, &chain.network).transactions.is_empty();
    // Two empty ledgers in a row: the first is read even when the request is interrupted.
    let pairs = chain.ledgers.windows(2);
    let Some(pair) = pairs.into_iter().find(|pair| pair.iter().all(|raw| is_empty(&raw))) else {
        return;
    };
    let world = World::of(&chain);
    let start = orrery::decode::header(&pair[0]).unwrap().sequence.0;
    let over = Bounds { interrupted: &|| true, ..Bounds::NONE };
    let allowed = CallLimits { bounds: over, ..CallLimits::UNLIMITED };
    let request = json!({ "startLedger": start });
    let page = world.call_within("getTransactions", &request, allowed).unwrap();
    assert_eq!(page["transactions"], json!([]));
    assert_eq!(page["cursor"], toid(start, 0).to_string());
}
