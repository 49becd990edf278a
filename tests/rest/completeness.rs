//! `/rest/completeness`: what it reports about stored ledgers, and that the order of ingestion
//! changes neither the digests nor, except for ids, any response.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orrery::attestation::Attestation;
use orrery::decode::{Placement, decode};
use orrery::domain::{Digest, LedgerSeq, Network};
use orrery::sandbox::network::Sandbox;
use orrery::store::{Durability, IndexOptions, IndexedAs, PreparedLedger, Retention};
use orrery::validators::{Organisation, Validators};
use orrery::verify::{Policy, verify};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use orrery_testkit::forged::{Ledger, signature_of};
use orrery_testkit::http::Connection;
use orrery_testkit::sandbox::{ledgers, local, sandbox};
use orrery_testkit::server::{Server, TempStore};
use orrery_testkit::{digest, full, pubnet, size};

const CONTRACT_EVENTS_ONLY: &str =
    r#"{"classic_events":false,"fee_events":false,"contracts":"all"}"#;

fn settings() -> Value {
    serde_json::from_str(CONTRACT_EVENTS_ONLY).unwrap()
}

fn everything() -> IndexOptions {
    IndexOptions { classic_events: true, fee_events: true, contracts: None, raw_ledgers: true }
}

fn commit(store: &TempStore, xdr: &[u8], options: &IndexOptions) {
    let view = decode(xdr, store.store.network().id()).unwrap();
    let prepared = PreparedLedger::new(&view, options).unwrap();
    store.store.commit(prepared, Durability::Deferred).unwrap();
}

#[test]
fn an_empty_store_reports_no_ranges() {
    let store = TempStore::new(&Network::from_name_or_passphrase("testnet"));
    let answer = Server::start(&store).get_public("/rest/completeness");
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    let expected = json!({
        "network": "testnet",
        "network_passphrase": "Test SDF Network ; September 2015",
        "complete": false,
        "settings": settings(),
        "bound": {
            "invocation_events": true,
            "classic_events": false,
            "fee_events": false,
            "entry_changes": false,
        },
        "ranges": [],
        "gaps": [],
        "removed": { "raw_ledgers": [], "events": [], "transactions": [] },
    });
    assert_eq!((answer.status, answer.json()), (200, expected));
}

/// Ranges, gaps and digests of real ledgers, computed from an independent decoding.
#[test]
fn ranges_and_gaps_are_reported_with_hashes_and_digests() {
    let Some(ledgers) = pubnet::ledgers() else { return };
    let store = TempStore::new(&pubnet::network());
    let decoded: Vec<full::Ledger> =
        ledgers.iter().map(|xdr| full::decode(xdr, pubnet::network().id()).unwrap()).collect();
    let wanted = |ledger: &full::Ledger, event: &full::Event| {
        let by_contract = ledger.transactions[event.transaction].smart_contract;
        by_contract && matches!(event.placement, Placement::Operation { .. })
    };
    let range = |ledgers: &[full::Ledger], indexed_as: Value| {
        let (first, last) = (&ledgers[0], &ledgers[ledgers.len() - 1]);
        let digest: Digest =
            ledgers.iter().map(|ledger| digest::of(ledger, |event| wanted(ledger, event))).sum();
        let events = ledgers
            .iter()
            .flat_map(|ledger| ledger.events.iter().filter(move |event| wanted(ledger, event)));
        json!({
            "first_ledger": first.sequence.0,
            "last_ledger": last.sequence.0,
            "first_hash": first.hash.to_string(),
            "last_hash": last.hash.to_string(),
            "previous_hash": first.previous_hash.to_string(),
            "events": events.count(),
            "digest": digest.to_string(),
            "indexed_as": indexed_as,
            "unattested_because": "validators of 0 trusted organisations have signed ledgers of this \
                range, and 5 are needed",
            "signed": [],
            "reported": { "ledgers": 0, "ranges": [] },
            "unproven": { "ledgers": 0, "ranges": [] },
            "from_backup": { "ledgers": 0, "ranges": [] },
            "storage": "off",
        })
    };
    let server = Server::start_with(&store, |deps| {
        deps.settings.indexed_as = IndexedAs { fee_events: true, ..IndexedAs::default() };
    });
    let asked = || server.get_public("/rest/completeness/").json();
    for at in [0, 1, 2, 5, 6, 11] {
        commit(&store, &ledgers[at], &IndexOptions::default());
    }
    let answer = asked();
    let ranges = [0..3, 5..7, 11..12].map(|part| range(&decoded[part], json!([settings()])));
    assert_eq!(answer["ranges"], json!(ranges));
    let gap = |first: u32, last: u32| json!({"first_ledger": pubnet::FIRST + first, "last_ledger": pubnet::FIRST + last});
    assert_eq!(answer["gaps"], json!([gap(3, 4), gap(7, 10)]));
    assert_eq!(answer["complete"], false);
    assert_eq!(answer["settings"]["fee_events"], true);

    for xdr in &ledgers {
        commit(&store, xdr, &IndexOptions::default());
    }
    let answer = asked();
    assert_eq!(answer["ranges"], json!([range(&decoded, json!([settings()]))]));
    assert_eq!((&answer["complete"], &answer["gaps"]), (&json!(true), &json!([])));
}

#[test]
fn removed_records_are_reported() {
    let (network, ledgers) = pubnet::made();
    let store = TempStore::new(&network);
    let options = IndexOptions { raw_ledgers: true, ..IndexOptions::default() };
    ledgers.iter().for_each(|xdr| commit(&store, xdr, &options));
    store.store.flush().unwrap();
    let server = Server::start(&store);
    let asked = || server.get_public("/rest/completeness").json();
    assert_eq!(asked()["complete"], true);
    let range = asked()["ranges"][0].clone();
    let (first, last) = (&range["first_ledger"], range["last_ledger"].as_u64().unwrap());
    let up_to = |last: u64| json!([{ "first_ledger": first, "last_ledger": last }]);
    let prune = |retention: &Retention| {
        while !store.store.prune(retention).unwrap().is_nothing() {}
    };
    // What is answered from records does not lack anything yet.
    prune(&Retention { raw_ledgers: Some(4), ..Retention::default() });
    let raw = json!({ "raw_ledgers": up_to(last - 4), "events": [], "transactions": [] });
    assert_eq!((&asked()["removed"], &asked()["complete"]), (&raw, &json!(true)));
    prune(&Retention { raw_ledgers: Some(4), events: Some(9), ..Retention::default() });
    assert_eq!(asked()["removed"]["events"], up_to(last - 9));
    assert_eq!(asked()["complete"], false);
    prune(&Retention { raw_ledgers: Some(4), transactions: Some(6), ..Retention::default() });
    assert_eq!(asked()["removed"]["transactions"], up_to(last - 6));
}

#[test]
fn changed_index_settings_are_reported() {
    let Some(ledgers) = pubnet::ledgers() else { return };
    let store = TempStore::new(&pubnet::network());
    commit(&store, &ledgers[0], &IndexOptions::default());
    commit(&store, &ledgers[1], &everything());
    let answer = Server::start(&store).get_public("/rest/completeness").json();
    let all = json!({"classic_events": true, "fee_events": true, "contracts": "all"});
    assert_eq!(answer["ranges"][0]["indexed_as"], json!([settings(), all]));
}

/// Stores a ledger as the pipeline does, with the signature of a trusted validator.
fn commit_signed(store: &TempStore, xdr: &[u8], validators: &Validators) {
    let network = store.store.network();
    let view = decode(xdr, network.id()).unwrap();
    let signer = verify(&view, network.id(), Policy::default()).unwrap().signer;
    let signer = signer.filter(|signer| validators.organisation_of(signer).is_some());
    let prepared = PreparedLedger::new(&view, &IndexOptions::default()).unwrap();
    store.store.commit(prepared.signed_by(signer), Durability::Deferred).unwrap();
}

/// What is signed on the public ledgers is read with the second decoder.
#[test]
fn the_validators_of_the_public_network_attest_its_ledgers() {
    let Some(ledgers) = pubnet::ledgers() else { return };
    let store = TempStore::new(&pubnet::network());
    let validators = Validators::of_network(&pubnet::network()).unwrap();
    for at in [0, 1, 2, 5, 6, 7, 8, 9, 10, 11] {
        commit_signed(&store, &ledgers[at], &validators);
    }
    let server = Server::start(&store);
    let ranges = server.get_public("/rest/completeness").json()["ranges"].clone();
    let only_earlier = "the signatures in this range attest only the ledger before it";
    for (range, reason) in [(&ranges[0], "and 5 are needed"), (&ranges[1], only_earlier)] {
        assert_eq!(range.get("attested_ledger"), None, "{range}");
        let said = range["unattested_because"].as_str().unwrap();
        assert!(said.contains(reason), "{said}");
    }
    for at in [3, 4] {
        commit_signed(&store, &ledgers[at], &validators);
    }
    let answer = server.get_public("/rest/completeness").json();
    let range = &answer["ranges"][0];
    assert_eq!(range["attested_ledger"], 63_092_986);
    assert_eq!(
        (&range["attested_by"], range.get("unattested_because")),
        (&json!("validators"), None)
    );

    let mut newest = BTreeMap::new();
    for (raw, sequence) in ledgers.iter().zip(pubnet::FIRST..) {
        let value = &mut Ledger::read(raw).unwrap().header.header.scp_value;
        let signed = signature_of(value).unwrap();
        newest.insert(signed.node_id.to_string(), sequence);
    }
    let signed = range["signed"].as_array().unwrap();
    let ledger = |it: &Value| it["ledger"].as_u64().unwrap();
    assert!(signed.windows(2).all(|pair| ledger(&pair[0]) >= ledger(&pair[1])), "{signed:?}");
    let found = signed.iter().map(|it| (it["validator"].as_str().unwrap().to_owned(), ledger(it)));
    let found: BTreeMap<String, u64> = found.collect();
    let newest: BTreeMap<String, u64> =
        newest.into_iter().map(|(validator, ledger)| (validator, ledger.into())).collect();
    assert_eq!(found, newest);
    let since = |first: u64| {
        let signed = signed.iter().filter(|it| ledger(it) >= first);
        signed.map(|it| it["organisation"].as_str().unwrap()).collect::<BTreeSet<_>>().len()
    };
    assert_eq!((since(63_092_987), since(63_092_988)), (5, 4));
    let health = server.get_public("/rest/health").json();
    assert_eq!(health["attested_ledger"], 63_092_986);
    assert_eq!(health["attested_by"], "validators");
    assert_eq!(health["components"]["attestation"], json!({"status": "up"}));
}

#[test]
fn the_key_of_a_sandbox_attests_its_ledgers() {
    let (seed, store) = (11, TempStore::new(&local()));
    let key = Sandbox::validator(seed);
    let organisation = Organisation { name: "sandbox".to_owned(), validators: vec![key] };
    let validators = Arc::new(Validators::new(vec![organisation], 1).unwrap());
    let made = ledgers(sandbox(seed, 0..=2), 5);
    commit_signed(&store, &made[0], &validators);
    commit_signed(&store, &made[2], &validators);
    commit_signed(&store, &made[3], &validators);
    let server = Server::start_with(&store, |deps| {
        deps.attestation = Arc::new(Attestation::new(Some(Arc::clone(&validators))));
    });
    let answer = server.get_public("/rest/completeness").json();
    let (first, second) = (&answer["ranges"][0], &answer["ranges"][1]);
    let reason = "the signatures in this range attest only the ledger before it";
    assert_eq!(first["unattested_because"], reason);
    assert_eq!((&second["attested_ledger"], second["last_ledger"].as_u64()), (&json!(4), Some(5)));
    let signed = json!([{"validator": key.to_string(), "organisation": "sandbox", "ledger": 5}]);
    assert_eq!(second["signed"], signed);
}

/// Indices of ledgers in order of ingestion.
type Order = Vec<usize>;

/// Chunks in random order, and the newest half ledger by ledger as on a live network, with some
/// older ledgers from either end in between.
fn orders(rng: &mut ChaCha8Rng, count: usize) -> Vec<(&'static str, Order)> {
    let mut chunks: Vec<Order> = Vec::new();
    let mut at = 0;
    while at < count {
        let end = (at + rng.random_range(1..=count.div_ceil(8))).min(count);
        chunks.push((at..end).collect());
        at = end;
    }
    chunks.shuffle(rng);
    let mut orders = vec![("chunks", chunks.concat())];
    for newest_first in [false, true] {
        let live = count / 2;
        let mut backfill: Order = (0..live).collect();
        if !newest_first {
            backfill.reverse();
        }
        let mut order = Vec::new();
        for ledger in live..count {
            order.push(ledger);
            for _ in 0..rng.random_range(0..4) {
                order.extend(backfill.pop());
            }
        }
        order.extend(backfill.into_iter().rev());
        orders.push((if newest_first { "back from the newest" } else { "forth to it" }, order));
    }
    orders
}

/// All responses about a store, without ids and in chain order.
struct Answers {
    completeness: Value,
    events: Vec<Value>,
    /// Responses of routes without ids, or sorted in chain order.
    others: Vec<Value>,
}

fn walk(connection: &mut Connection, token: &str, path: &str) -> Vec<Value> {
    let authorization = format!("Bearer {token}");
    let mut ask = |cursor: &str| {
        let target = format!("{path}&order=asc&limit=1000{cursor}");
        let answer = connection.request("GET", &target, &[("authorization", &authorization)]);
        assert_eq!(answer.status, 200, "{target}");
        answer.json().as_array().unwrap().clone()
    };
    let mut rows = ask("");
    while let Some(last) = rows.last() {
        let page = ask(&format!("&cursor={}", last["id"]));
        if page.is_empty() {
            break;
        }
        rows.extend(page);
    }
    rows
}

fn without_id(mut event: Value) -> Value {
    event.as_object_mut().unwrap().remove("id");
    event
}

fn answers(store: &TempStore, contracts: &[String], ledgers: &[u32]) -> Answers {
    let server = Server::start(store);
    let mut connection = server.connect();
    let mut events = walk(&mut connection, &server.token, "/rest/events/by-ledger?from=0");
    let ids: Vec<u64> = events.iter().map(|event| event["id"].as_u64().unwrap()).collect();
    assert!(ids.iter().copied().eq(1..=ids.len() as u64), "ids are dense");
    // Within a ledger ids follow the chain, so a stable sort gives the chain's order.
    events.sort_by_key(|event| event["ledger"].as_u64());
    let mut others = Vec::new();
    for contract in contracts {
        let mut of_contract =
            walk(&mut connection, &server.token, &format!("/rest/events/by-contract/{contract}?"));
        of_contract.sort_by_key(|event| event["ledger"].as_u64());
        others.extend(of_contract.into_iter().map(without_id));
        others.push(server.get(&format!("/rest/txs/by-contract/{contract}?limit=50")).json());
    }
    let (first, last) = (ledgers[0], ledgers[ledgers.len() - 1]);
    let cuts = [(first, last), (first + 3, last - 2), (last - 4, last), (first, first + 4)];
    for (from, to) in cuts {
        let range = format!("from={from}&to={to}");
        others.push(server.get(&format!("/rest/txs/by-ledger?{range}&limit=1000")).json());
        let mut cut =
            walk(&mut connection, &server.token, &format!("/rest/events/by-ledger?{range}"));
        cut.sort_by_key(|event| event["ledger"].as_u64());
        others.extend(cut.into_iter().map(without_id));
    }
    for ledger in ledgers.iter().step_by(3) {
        // The first page of a single ledger does not depend on the order of ingestion, in either
        // direction.
        for order in ["asc", "desc"] {
            let path =
                format!("/rest/events/by-ledger?from={ledger}&to={ledger}&order={order}&limit=7");
            let page = server.get(&path).json().as_array().unwrap().clone();
            others.extend(page.into_iter().map(without_id));
        }
    }
    for event in events.iter().step_by(events.len() / 20 + 1) {
        let tx = event["tx"].as_str().unwrap();
        let of_tx = server.get(&format!("/rest/events/by-tx/{tx}")).json();
        others.extend(of_tx.as_array().unwrap().iter().cloned().map(without_id));
        others.push(server.get(&format!("/rest/txs/by-hash/{tx}")).json());
    }
    let completeness = server.get_public("/rest/completeness").json();
    Answers { completeness, events: events.into_iter().map(without_id).collect(), others }
}

fn made(count: u32) -> (Network, Vec<Vec<u8>>) {
    (local(), ledgers(sandbox(11, 0..=12).with_milliseconds(LedgerSeq(20), 3), count))
}

/// Small: 60 generated and 12 recorded ledgers in 4 orders each; full: 400 generated ledgers, in
/// 13.
#[test]
fn the_order_of_ingestion_changes_only_ids() {
    let mut rng = ChaCha8Rng::seed_from_u64(21);
    let real = pubnet::ledgers().map(|ledgers| (pubnet::network(), ledgers));
    for (network, ledgers) in [Some(made(size::choose(60, 400) as u32)), real].into_iter().flatten()
    {
        let fill = |order: &[usize]| {
            let store = TempStore::new(&network);
            order.iter().for_each(|at| commit(&store, &ledgers[*at], &everything()));
            store.store.flush().unwrap();
            store
        };
        let (mut sequences, mut contracts) = (Vec::new(), BTreeSet::new());
        for xdr in &ledgers {
            let ledger = full::decode(xdr, network.id()).unwrap();
            sequences.push(ledger.sequence.0);
            let touched = ledger.transactions.iter().flat_map(|one| &one.contracts);
            contracts.extend(touched.map(ToString::to_string));
        }
        let step = contracts.len() / 4 + 1;
        let contracts: Vec<String> = contracts.into_iter().step_by(step).collect();
        let straight: Order = (0..ledgers.len()).collect();
        let expected = answers(&fill(&straight), &contracts, &sequences);
        assert!(expected.events.len() > 100 && !contracts.is_empty());
        assert_eq!(expected.completeness["complete"], true);
        for _ in 0..size::choose(1, 4) {
            for (name, order) in orders(&mut rng, ledgers.len()) {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, straight, "{name}");
                let store = fill(&order);
                let found = answers(&store, &contracts, &sequences);
                assert_eq!(found.completeness, expected.completeness, "{name}");
                assert!(found.events == expected.events, "{name}: events differ");
                assert!(found.others == expected.others, "{name}: other answers differ");
            }
        }
    }
}
