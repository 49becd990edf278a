//! Random queries, answered by the server and by a model of the same ledgers.

use std::sync::LazyLock;

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use stellar_xdr::{Limits, ReadXdr, ScVal};

use orrery_testkit::http::Connection;
use orrery_testkit::pubnet::{self, Model, topics};
use orrery_testkit::server::{Server, TempStore};
use orrery_testkit::size;

struct Served {
    model: Model,
    server: Server,
    _store: TempStore,
}

/// Generated ledgers that share close times, and the recorded ledgers of the public network where
/// they are available.
static SERVED: LazyLock<Vec<Served>> = LazyLock::new(|| {
    let public = pubnet::ledgers().map(|ledgers| (pubnet::network(), ledgers));
    [Some(pubnet::made()), public]
        .into_iter()
        .flatten()
        .map(|(network, ledgers)| {
            let store = pubnet::store_of(&network, &ledgers);
            let server = Server::start(&store);
            Served { model: Model::of_network(&network, &ledgers), server, _store: store }
        })
        .collect()
});

/// A query as the model evaluates it, and the path and query string for the server.
struct Question {
    path: String,
    query: Vec<String>,
    from: u32,
    to: u32,
    contracts: Vec<String>,
    topics: Vec<String>,
    all_topics: bool,
    positional: [Option<String>; 4],
    /// Base64 of the XDR of an address.
    address: Option<String>,
    ascending: bool,
    limit: usize,
    offset: usize,
    /// Index of the cursor's row in the unfiltered ascending list; `Some(None)` is before all rows.
    cursor: Option<Option<usize>>,
}

impl Question {
    fn about(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            query: Vec::new(),
            from: 0,
            to: u32::MAX,
            contracts: Vec::new(),
            topics: Vec::new(),
            all_topics: false,
            positional: [const { None }; 4],
            address: None,
            ascending: false,
            limit: 100,
            offset: 0,
            cursor: None,
        }
    }

    fn target(&self) -> String {
        format!("{}?{}", self.path, self.query.join("&"))
    }

    fn say(&mut self, name: &str, value: impl std::fmt::Display) {
        self.query.push(format!("{name}={}", value.to_string().replace('+', "%2B")));
    }

    fn range(&mut self, rng: &mut ChaCha8Rng, model: &Model) {
        let (first, last) = model.ledgers;
        if rng.random_bool(0.7) {
            self.from = rng.random_range(first - 1..=last + 1);
            self.say("from", self.from);
        }
        if rng.random_bool(0.7) {
            self.to = rng.random_range(first - 1..=last + 1);
            self.say("to", self.to);
        }
    }

    fn name_contracts(&mut self, rng: &mut ChaCha8Rng, model: &Model) {
        let count = rng.random_range(1..6);
        self.contracts = model.contracts.choose_multiple(rng, count).cloned().collect();
        self.say("contracts", self.contracts.join(","));
    }

    fn name_address(&mut self, rng: &mut ChaCha8Rng, model: &Model) {
        let Some((xdr, strkey)) = any_address(rng, model) else { return };
        self.say("address", strkey);
        self.address = Some(xdr);
    }

    fn page(&mut self, rng: &mut ChaCha8Rng, rows: &[Value], key: &str) {
        if rng.random_bool(0.7) {
            self.limit = *[1, 2, 7, 50, 1000].choose(rng).unwrap();
            self.say("limit", self.limit);
        }
        if rng.random_bool(0.4) {
            self.offset = rng.random_range(0..20);
            self.say("offset", self.offset);
        }
        if rng.random_bool(0.5) {
            self.ascending = rng.random_bool(0.7);
            self.say("order", if self.ascending { "asc" } else { "desc" });
        }
        if rng.random_bool(0.4) {
            let row = rng.random_range(0..rows.len());
            self.cursor = Some(Some(row));
            self.say("cursor", rows[row][key].to_string().trim_matches('"'));
        } else if key == "id" && rng.random_bool(0.05) {
            self.cursor = Some(None);
            self.say("cursor", 0);
        }
    }

    /// Returns the rows that the model expects.
    fn select<'a>(
        &self,
        rows: &'a [Value],
        touches: impl Fn(&Value, &str) -> bool,
    ) -> Vec<&'a Value> {
        let in_range = |row: &Value| {
            let ledger = row["ledger"].as_u64().unwrap() as u32;
            self.from <= ledger && ledger <= self.to
        };
        let topics_fit = |row: &Value| {
            let given = topics(row);
            let occurs = |topic: &String| given.contains(&topic.as_str());
            let anywhere = match self.all_topics {
                _ if self.topics.is_empty() => true,
                true => self.topics.iter().all(occurs),
                false => self.topics.iter().any(occurs),
            };
            let at = |(position, wanted): (usize, &Option<String>)| {
                wanted.as_ref().is_none_or(|w| given.get(position) == Some(&w.as_str()))
            };
            let with_address = self.address.as_ref().is_none_or(occurs);
            anywhere && with_address && self.positional.iter().enumerate().all(at)
        };
        let mut wanted: Vec<(usize, &Value)> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| in_range(row) && topics_fit(row))
            .filter(|(_, row)| {
                self.contracts.is_empty() || self.contracts.iter().any(|id| touches(row, id))
            })
            .collect();
        if !self.ascending {
            wanted.reverse();
        }
        let skipped = match self.cursor {
            None => self.offset,
            Some(cursor) => {
                let after = |index: usize| match (cursor, self.ascending) {
                    (Some(row), true) => index > row,
                    (Some(row), false) => index < row,
                    (None, ascending) => ascending,
                };
                wanted.retain(|(index, _)| after(*index));
                0
            }
        };
        wanted.into_iter().map(|(_, row)| row).skip(skipped).take(self.limit).collect()
    }
}

/// Returns an address among the topics of some event: as XDR, and as a strkey.
fn any_address(rng: &mut ChaCha8Rng, model: &Model) -> Option<(String, String)> {
    let address = |xdr: &str| match ScVal::from_xdr_base64(xdr, Limits::none()).ok()? {
        ScVal::Address(address) => Some((xdr.to_owned(), address.to_string())),
        _ => None,
    };
    topics(model.events.choose(rng)?).into_iter().find_map(address)
}

/// Spells a topic as people write it, where it is a symbol or an address.
fn written(rng: &mut ChaCha8Rng, xdr: &str) -> String {
    match ScVal::from_xdr_base64(xdr, Limits::none()) {
        Ok(ScVal::Symbol(symbol)) if rng.random_bool(0.5) => symbol.to_string(),
        Ok(ScVal::Address(address)) if rng.random_bool(0.5) => address.to_string(),
        _ => xdr.to_owned(),
    }
}

fn emitted_by(row: &Value, contract: &str) -> bool {
    row["contract_id"] == contract
}

fn touched(row: &Value, contract: &str) -> bool {
    row["contracts"].as_array().unwrap().iter().any(|id| id == contract)
}

fn ask(connection: &mut Connection, token: &str, target: &str) -> Vec<Value> {
    let authorization = format!("Bearer {token}");
    let answer = connection.request("GET", target, &[("authorization", &authorization)]);
    assert_eq!(answer.status, 200, "{target}: {}", String::from_utf8_lossy(&answer.body));
    let Value::Array(rows) = answer.json() else { panic!("{target} is not an array") };
    rows
}

fn event_question(rng: &mut ChaCha8Rng, model: &Model) -> Question {
    let mut question;
    match rng.random_range(0..5) {
        0 => {
            question = Question::about("/rest/events/by-ledger");
            question.range(rng, model);
        }
        1 => {
            question = Question::about("/rest/events/by-contracts/");
            question.name_contracts(rng, model);
        }
        2 => {
            question = Question::about("/rest/events/by-ledger/contracts");
            question.range(rng, model);
            question.name_contracts(rng, model);
        }
        3 => return of_address(rng, model),
        _ => question = one_contract(rng, model),
    }
    if rng.random_bool(0.2) {
        question.name_address(rng, model);
    }
    question.page(rng, &model.events, "id");
    question
}

fn of_address(rng: &mut ChaCha8Rng, model: &Model) -> Question {
    let Some((xdr, strkey)) = any_address(rng, model) else { return one_contract(rng, model) };
    let mut question = Question::about(&format!("/rest/events/by-address/{strkey}"));
    question.address = Some(xdr);
    if rng.random_bool(0.5) {
        question.range(rng, model);
    }
    if rng.random_bool(0.3) {
        question.name_contracts(rng, model);
    }
    question.limit = *[1, 2, 7, 50, 1000].choose(rng).unwrap();
    question.say("limit", question.limit);
    question
}

fn one_contract(rng: &mut ChaCha8Rng, model: &Model) -> Question {
    let example = model.events.choose(rng).unwrap();
    let contract = example["contract_id"].as_str().unwrap().to_owned();
    let mut question = Question::about(&format!("/rest/events/by-contract/{contract}"));
    question.contracts = vec![contract];
    if rng.random_bool(0.5) {
        question.range(rng, model);
    }
    let ranged = !question.query.is_empty();
    if rng.random_bool(0.6) {
        let other = model.events.choose(rng).unwrap();
        let given: Vec<String> =
            topics(example).into_iter().chain(topics(other)).map(str::to_owned).collect();
        let count = rng.random_range(1..3);
        let given: Vec<String> = given.choose_multiple(rng, count).cloned().collect();
        let spelled: Vec<String> = given.iter().map(|topic| written(rng, topic)).collect();
        question.say("topics", spelled.join(","));
        let combine = rng.random_bool(0.5);
        if combine {
            question.say("combine", true);
        }
        if combine || !ranged {
            question.topics = given;
        }
        if rng.random_bool(0.4) {
            question.all_topics = true;
            question.say("topics_match", "all");
        }
    }
    for position in 0..4 {
        let Some(topic) = topics(example).get(position).map(|topic| (*topic).to_owned()) else {
            break;
        };
        if rng.random_bool(0.15) {
            question.say(&format!("topic{}", position + 1), written(rng, &topic));
            question.positional[position] = Some(topic);
        }
    }
    question
}

fn transaction_question(rng: &mut ChaCha8Rng, model: &Model) -> Question {
    let mut question;
    match rng.random_range(0..4) {
        0 => {
            question = Question::about("/rest/txs/by-ledger");
            question.range(rng, model);
        }
        1 => {
            question = Question::about("/rest/txs/by-contracts");
            question.name_contracts(rng, model);
        }
        2 => {
            question = Question::about("/rest/txs/by-ledger/contracts");
            question.range(rng, model);
            question.name_contracts(rng, model);
        }
        _ => {
            let contract = model.contracts.choose(rng).unwrap().clone();
            question = Question::about(&format!("/rest/txs/by-contract/{contract}"));
            question.contracts = vec![contract];
            if rng.random_bool(0.5) {
                question.range(rng, model);
            }
        }
    }
    question.page(rng, &model.transactions, "tx");
    question
}

#[test]
fn pages_of_events_equal_the_model() {
    for served in SERVED.iter() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut connection = served.server.connect();
        let mut rows_seen = 0;
        for _ in 0..size::choose(1500, 50_000) {
            let question = event_question(&mut rng, &served.model);
            let target = question.target();
            let rows = ask(&mut connection, &served.server.token, &target);
            let expected = question.select(&served.model.events, emitted_by);
            assert_eq!(rows.iter().collect::<Vec<_>>(), expected, "{target}");
            rows_seen += rows.len();
        }
        assert!(rows_seen > 1000, "the questions have answers");
    }
}

#[test]
fn pages_of_transactions_equal_the_model() {
    for served in SERVED.iter() {
        let mut rng = ChaCha8Rng::seed_from_u64(12);
        let mut connection = served.server.connect();
        let mut rows_seen = 0;
        for _ in 0..size::choose(150, 5_000) {
            let question = transaction_question(&mut rng, &served.model);
            let target = question.target();
            let rows = ask(&mut connection, &served.server.token, &target);
            let expected = question.select(&served.model.transactions, touched);
            assert!(rows.iter().eq(expected.iter().copied()), "{target}");
            rows_seen += rows.len();
        }
        assert!(rows_seen > 1000, "the questions have answers");
    }
}

#[test]
fn a_transaction_is_found_by_either_hash_in_any_spelling() {
    for served in SERVED.iter() {
        let mut connection = served.server.connect();
        let mut fee_bumps = 0;
        for transaction in &served.model.transactions {
            let outer = transaction["tx"].as_str().unwrap();
            let events: Vec<_> = served.model.events.iter().filter(|e| e["tx"] == outer).collect();
            let mut spellings = vec![outer.to_owned(), format!("0x{}", outer.to_uppercase())];
            if let Some(inner) = transaction["inner_tx"].as_str() {
                spellings.push(inner.to_owned());
                fee_bumps += 1;
            }
            for hash in spellings {
                let target = format!("/rest/txs/by-hash/{hash}");
                let rows = ask(&mut connection, &served.server.token, &target);
                assert_eq!(rows.iter().collect::<Vec<_>>(), [transaction]);
                let target = format!("/rest/events/by-tx/{hash}/");
                let rows = ask(&mut connection, &served.server.token, &target);
                assert_eq!(rows.iter().collect::<Vec<_>>(), events, "{hash}");
            }
        }
        assert!(fee_bumps > 0);
    }
}

#[test]
fn paging_by_cursor_returns_every_row_once() {
    for served in SERVED.iter() {
        let lists =
            [("events", "id", &served.model.events), ("txs", "tx", &served.model.transactions)];
        for (list, key, rows) in lists {
            for (order, limit) in [("asc", 1000), ("desc", 7), ("asc", 50)] {
                let mut connection = served.server.connect();
                let mut walked: Vec<Value> = Vec::new();
                let mut cursor = String::new();
                loop {
                    let target =
                        format!("/rest/{list}/by-ledger?order={order}&limit={limit}{cursor}");
                    let page = ask(&mut connection, &served.server.token, &target);
                    let Some(last) = page.last() else { break };
                    cursor = format!("&cursor={}", last[key].to_string().trim_matches('"'));
                    walked.extend(page);
                }
                if order == "desc" {
                    walked.reverse();
                }
                assert!(walked == **rows, "{list} {order} {limit}");
            }
        }
    }
}

#[test]
fn a_transaction_cursor_may_be_an_inner_hash_and_lie_outside_the_filter() {
    for served in SERVED.iter() {
        let rows = &served.model.transactions;
        let at = rows.iter().position(|row| row["fee_bump"] == true).unwrap();
        let (inner, ledger) = (rows[at]["inner_tx"].as_str().unwrap(), &rows[at]["ledger"]);
        let below = ledger.as_u64().unwrap() + 1;
        let target = format!("/rest/txs/by-ledger?order=asc&limit=3&from={below}&cursor={inner}");
        let page = ask(&mut served.server.connect(), &served.server.token, &target);
        let expected: Vec<_> =
            rows[at..].iter().filter(|row| row["ledger"] != *ledger).take(3).collect();
        assert_eq!(page.iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn unknown_ids_and_empty_ranges_return_empty_arrays() {
    for served in SERVED.iter() {
        let unknown = "CAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAD2KM";
        let mut connection = served.server.connect();
        for target in [
            format!("/rest/events/by-contract/{unknown}"),
            format!("/rest/events/by-contracts?contracts={unknown}"),
            format!("/rest/txs/by-contract/{unknown}"),
            format!("/rest/events/by-tx/{}", "00".repeat(32)),
            format!("/rest/txs/by-hash/{}", "00".repeat(32)),
            "/rest/events/by-ledger?from=2&to=1".into(),
            "/rest/txs/by-ledger?from=99999999999999999999".into(),
            "/rest/events/by-ledger?cursor=0".into(),
            "/rest/events/by-ledger?cursor=99999999999999999999&order=asc".into(),
        ] {
            let rows = ask(&mut connection, &served.server.token, &target);
            assert!(rows.is_empty(), "{target}");
        }
        let newest = ask(
            &mut connection,
            &served.server.token,
            "/rest/events/by-ledger?cursor=99999999999999999999&limit=1",
        );
        assert_eq!(newest[0], *served.model.events.last().unwrap());
    }
}
