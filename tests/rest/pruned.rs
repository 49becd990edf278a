//! An answer does not change because something else was removed, or because of a restart: the same
//! questions before and after get equal answers, or one that says what was removed.

use std::collections::BTreeMap;

use orrery::decode::decode;
use orrery::domain::Network;
use orrery::store::{Durability, IndexOptions, PreparedLedger, Retention};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use orrery_testkit::http::{Answer, Connection};
use orrery_testkit::model::Universe;
use orrery_testkit::pubnet;
use orrery_testkit::server::{Server, TempStore};

/// Status and body by question.
type Answers = BTreeMap<String, (u16, Value)>;

/// A store in which fees and classic operations have events, too.
fn store_of(network: &Network, ledgers: &[Vec<u8>]) -> TempStore {
    let options = IndexOptions {
        classic_events: true,
        fee_events: true,
        raw_ledgers: true,
        ..IndexOptions::default()
    };
    let store = TempStore::with_names(network);
    for raw in ledgers {
        let view = decode(raw, network.id()).unwrap();
        let prepared = PreparedLedger::new(&view, &options).unwrap();
        store.store.commit(prepared, Durability::Deferred).unwrap();
    }
    store.store.flush().unwrap();
    store
}

/// Questions about what is stored, made from the answers of the lists.
struct Questions {
    events: Vec<String>,
    transactions: Vec<String>,
    /// Parameters of `getEvents`, for each ledger.
    calls: Vec<Value>,
}

impl Questions {
    fn about(server: &Server) -> Self {
        let events = server.get("/rest/events/by-ledger?limit=1000&order=asc").json();
        let transactions = server.get("/rest/txs/by-ledger?limit=1000&order=asc").json();
        let of = |rows: &Value, member: &str| -> Vec<String> {
            let mut values: Vec<_> =
                rows.as_array().unwrap().iter().map(|row| row[member].to_string()).collect();
            values.dedup();
            values.iter().map(|value| value.trim_matches('"').to_owned()).collect()
        };
        let mut contracts = of(&events, "contract_id");
        contracts.retain(|contract| contract.len() == 56);
        contracts.sort();
        contracts.dedup();
        let step = contracts.len() / 10 + 1;
        let mut asked = vec!["/rest/events/by-ledger?limit=1000&decoded=true".to_owned()];
        for ledger in of(&events, "ledger") {
            let within = format!("from={ledger}&to={ledger}&limit=1000&decoded=true");
            asked.push(format!("/rest/events/by-ledger?{within}"));
        }
        for contract in contracts.iter().step_by(step) {
            asked.push(format!("/rest/events/by-contract/{contract}?limit=300&decoded=true"));
            asked.push(format!("/rest/events/by-contract/{contract}?topics=transfer&order=asc"));
        }
        for id in of(&events, "id").iter().step_by(29) {
            asked.push(format!("/rest/events/by-id/{id}?decoded=true"));
        }
        let mut of_transactions = vec!["/rest/txs/by-ledger?limit=200&decoded=true".to_owned()];
        for hash in of(&transactions, "tx").iter().step_by(7) {
            asked.push(format!("/rest/events/by-tx/{hash}?decoded=true"));
            of_transactions.push(format!("/rest/txs/by-hash/{hash}?decoded=true"));
            of_transactions.push(format!("/rest/txs/by-hash/{hash}/changes"));
        }
        for hash in of(&events, "tx").iter().step_by(31) {
            asked.push(format!("/rest/events/by-tx/{hash}"));
        }
        for contract in contracts.iter().step_by(step) {
            of_transactions.push(format!("/rest/txs/by-contract/{contract}?limit=50&decoded=true"));
            of_transactions.push(format!("/rest/contracts/{contract}"));
        }
        let ledgers = of(&events, "ledger");
        let calls = ledgers.iter().map(|ledger| {
            let first: u32 = ledger.parse().unwrap();
            json!({ "startLedger": first, "endLedger": first + 1, "pagination": { "limit": 10_000 } })
        });
        Self { calls: calls.collect(), events: asked, transactions: of_transactions }
    }

    fn ask_events(&self, server: &Server) -> Answers {
        let mut answers = ask(server, &self.events);
        let mut connection = server.connect();
        for call in &self.calls {
            let mut answer = call_rpc(&mut connection, "getEvents", call);
            // The range of what is stored, which pruning events moves.
            if let Some(result) = answer["result"].as_object_mut() {
                result.retain(|name, _| !name.starts_with("oldestLedger"));
            }
            answers.insert(call.to_string(), (200, answer));
        }
        answers
    }
}

fn ask(server: &Server, questions: &[String]) -> Answers {
    let mut connection = server.connect();
    let authorization = format!("Bearer {}", server.token);
    let headers = [("authorization", authorization.as_str())];
    let mut answer = |question: &String| {
        let Answer { status, .. } = &connection.request("GET", question, &headers);
        let answer = connection.request("GET", question, &headers);
        assert_eq!(*status, answer.status, "{question}: the second answer differs");
        (question.clone(), (answer.status, answer.json()))
    };
    questions.iter().map(&mut answer).collect()
}

/// Calls a method of JSON-RPC.
pub fn call_rpc(connection: &mut Connection, method: &str, params: &Value) -> Value {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let body = call.to_string();
    let head = format!(
        "POST /rpc HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.send(head.as_bytes()).unwrap();
    connection.answer(false).json()
}

fn prune(store: &TempStore, retention: &Retention) {
    while !store.store.prune(retention).unwrap().is_nothing() {}
}

/// Asserts that answers are equal, but for those that say with 410 what was removed.
fn assert_same(before: &Answers, after: &Answers, what: &str) -> usize {
    let mut removed = 0;
    for (question, answer) in after {
        if answer.0 == 410 {
            removed += 1;
            let said = answer.1["error"].as_str().unwrap();
            assert!(said.contains("retention has removed"), "{what}: {question}: {said}");
            continue;
        }
        assert_eq!(answer, &before[question], "{what}: {question}");
    }
    removed
}

fn networks() -> Vec<(Network, Vec<Vec<u8>>)> {
    let public = pubnet::ledgers().map(|ledgers| (pubnet::network(), ledgers[..4].to_vec()));
    [Some(pubnet::made()), public].into_iter().flatten().collect()
}

#[test]
fn answers_do_not_depend_on_what_else_is_stored() {
    for (network, ledgers) in networks() {
        let mut store = store_of(&network, &ledgers);
        let server = Server::start(&store);
        let questions = Questions::about(&server);
        let events = questions.ask_events(&server);
        let transactions = ask(&server, &questions.transactions);
        assert!(events.len() > 30 && transactions.len() > 10);

        let no_raw = Retention { raw_ledgers: Some(0), ..Retention::default() };
        prune(&store, &no_raw);
        assert_eq!(assert_same(&events, &questions.ask_events(&server), "raw ledgers"), 0);
        let again = ask(&server, &questions.transactions);
        assert_eq!(assert_same(&transactions, &again, "raw ledgers"), 0);
        drop(server);

        store = store.reopened();
        let server = Server::start(&store);
        assert_eq!(assert_same(&events, &questions.ask_events(&server), "a restart"), 0);
        let again = ask(&server, &questions.transactions);
        assert_eq!(assert_same(&transactions, &again, "a restart"), 0);

        prune(&store, &Retention { transactions: Some(1), ..no_raw });
        assert_eq!(assert_same(&events, &questions.ask_events(&server), "transactions"), 0);
    }
}

#[test]
fn transactions_do_not_depend_on_events() {
    for (network, ledgers) in networks() {
        let store = store_of(&network, &ledgers);
        let server = Server::start(&store);
        let questions = Questions::about(&server);
        let events = questions.ask_events(&server);
        let transactions = ask(&server, &questions.transactions);
        prune(&store, &Retention { events: Some(1), ..Retention::default() });
        let mut again = ask(&server, &questions.transactions);
        // Only its events tell that a contract is that of an asset.
        again.retain(|asked, (_, answer)| {
            if answer == &transactions[asked].1 || !asked.starts_with("/rest/contracts/") {
                return true;
            }
            assert_eq!(transactions[asked].1["executable"], json!({ "stellar_asset": true }));
            let because = answer["interface_unknown_because"].as_str().unwrap();
            assert!(because.contains("retention has removed events up to ledger"), "{because}");
            false
        });
        assert_eq!(assert_same(&transactions, &again, "events"), 0);
        // What is asked for alone is said to be gone; lists are shorter.
        let alone = |asked: &str| asked.contains("by-id") || asked.contains("by-tx");
        for (asked, (_, answer)) in ask(&server, &questions.events) {
            let is_known = asked.contains("decoded");
            if alone(&asked) && is_known && events[&asked].1 != json!([]) {
                assert_ne!(answer, json!([]), "{asked}");
            }
        }
    }
}

/// Retention removes the events of a ledger in pieces. Meanwhile a transaction of which some are left is
/// not answered as if it had no others.
#[test]
fn a_part_of_a_transactions_events_is_never_all_of_them() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let (universe, mut previous) = (Universe::random(&mut rng), [0; 32]);
    let store = TempStore::new(&Network::from_name_or_passphrase("local"));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for sequence in 2..7 {
        let ledger = universe.dense_ledger(&mut rng, sequence, previous);
        previous = ledger.hash;
        let prepared = ledger.prepare(&IndexOptions::default());
        store.store.commit(prepared, Durability::Deferred).unwrap();
    }
    store.store.flush().unwrap();
    let server = Server::start(&store);
    let mut connection = server.connect();
    let authorization = format!("Bearer {}", server.token);
    let headers = [("authorization", authorization.as_str())];
    let mut cursor = json!(0);
    loop {
        let path = format!("/rest/events/by-ledger?limit=1000&order=asc&cursor={cursor}");
        let page = server.get(&path).json();
        let Some(last) = page.as_array().unwrap().last() else { break };
        cursor = last["id"].clone();
        for event in page.as_array().unwrap() {
            *counts.entry(event["tx"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    let retention = Retention { events: Some(1), ..Retention::default() };
    let mut partial = 0;
    loop {
        for (hash, count) in &counts {
            let path = format!("/rest/events/by-tx/{hash}");
            let answer = connection.request("GET", &path, &headers);
            match answer.status {
                200 => assert_eq!(answer.json().as_array().unwrap().len(), *count, "{hash}"),
                410 => partial += 1,
                other => panic!("{hash}: {other}"),
            }
        }
        if store.store.prune(&retention).unwrap().is_nothing() {
            break;
        }
    }
    assert!(partial > 0 && counts.len() > 100, "{partial} of {}", counts.len());
}
