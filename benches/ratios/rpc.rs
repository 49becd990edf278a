//! JSON-RPC: the time of `getEvents` and `getTransaction` compared with a no-op call on the same
//! server, and `getEvents` compared with SQLite and the tables of the reference (stellar-rpc). As
//! over REST, the goals are about pages as clients poll them; the time for pages that no client has
//! requested since the newest ledger is reported beside it.

use std::cell::RefCell;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use orrery::domain::{ContractId, LedgerRange, LedgerSeq, Network, RpcEventId, TxHash};
use orrery::store::{Durability, EventQuery, EventRecord};
use parking_lot::Mutex;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use warp::Filter;

use super::amplify;
use super::baseline::sqlite::Sqlite;
use super::client::Client;
use super::http::{REQUESTS, REQUESTS_IN_TURN, Server};
use super::many::Generator;
use super::measure::{REPETITIONS, Sides, micros, quantile, sized};
use super::pages::note_reads;
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};
use super::running::{Running, wait_until};
use super::stores::QuerySample;

const EVENTS: Goal = Goal::at_most(4.0, 2.0);
const TRANSACTION: Goal = Goal::at_most(2.0, 1.3);
const SQLITE: Goal = Goal::at_least(3.0, 10.0);

/// Consumer that indexes transaction hashes.
const HASHES: &str = "transaction_hashes";
/// Number of distinct pages that clients poll. The server's cache holds the responses of all of
/// them.
const POLLED: usize = sized(200, 20);
/// Events per page.
const PAGE: usize = 100;
/// Copies of the recorded ledgers that hold the requested transactions.
const COPIES: u64 = sized(8, 1);

/// Returns a call of an unknown method: the server only parses it and returns an error.
fn no_op() -> Vec<u8> {
    call("nothing", &json!({}))
}

fn call(method: &str, params: &Value) -> Vec<u8> {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string().into_bytes()
}

/// Measures pages of events, against a no-op call and against SQLite.
pub fn events(
    generator: &Generator<'_>,
    network: &Network,
    events: u64,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let service = Running::start(network, directory, |_| {})?;
    let ledgers = generator.ledgers_for(events);
    generator.fill(service.store(), 0..ledgers, Durability::Deferred);
    service.store().compact()?;
    let mut sqlite = Sqlite::create(&service.data.path().join("sqlite"))?;
    sqlite.never_sync()?;
    for number in 0..ledgers {
        sqlite.insert(&generator.ledger(number).view())?;
    }
    let theirs = serve_sqlite(sqlite)?;
    let (calls, queries): (Vec<_>, Vec<_>) = pages(service.store()).into_iter().unzip();
    let (ours, sqlite) = (RefCell::new(service.client("ratios")?), theirs.client()?);
    let sqlite = RefCell::new(sqlite);

    let (mut events, mut longest) = (0, 0);
    for call in calls.iter().step_by(REQUESTS_IN_TURN) {
        let ours = page(ask(&mut ours.borrow_mut(), call)?)?;
        let theirs = page(ask(&mut sqlite.borrow_mut(), call)?)?;
        if ours != theirs {
            return Err("SQLite has other events for the same call".into());
        }
        events += ours.len();
        longest = longest.max(ours.len());
    }
    report.note(format!(
        "getEvents: contract and first topic of an event drawn at random, from a ledger drawn at random; {} events \
         a page on average, {longest} at the most. Both servers found the same events.",
        events / calls.len().div_ceil(REQUESTS_IN_TURN),
    ));

    note_reads(service.store(), "getEvents", &queries, report);
    for (asked, is_first) in [("asked again", false), ("asked first", true)] {
        let name = format!("getEvents, contract and topic, page of 100, {asked}");
        let different = if is_first { calls.len() } else { POLLED };
        let calls: Vec<_> = calls.iter().take(different).cycle().take(REQUESTS).cloned().collect();
        let sides = medians(&calls, is_first, &ours, Some(no_op()), &ours)?;
        let against_nothing = format!("{name} / a call that does nothing");
        report.add(match is_first {
            true => Row::information(against_nothing, "µs", sides),
            false => Row::new(against_nothing, "µs", sides, EVENTS),
        });
        let sides = medians(&calls, is_first, &ours, None, &sqlite)?.to_rates(1e6);
        let against_sqlite = format!("{name} / SQLite, over HTTP");
        report.add(match is_first {
            true => Row::information(against_sqlite, "pages/s", sides),
            false => Row::new(against_sqlite, "pages/s", sides, SQLITE),
        });
    }
    service.stop()
}

/// Measures transactions by hash, with envelope, result, metadata and events.
pub fn transaction(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let service = Running::start(&recorded.network, directory, |_| {})?;
    service.seconds_to_ingest(&amplify::chain(recorded, COPIES))?;
    let is_done = || service.store().consumer(HASHES).is_some_and(|it| it.lag == 0);
    wait_until("all transactions are known by their hashes", is_done)?;
    let (mut of_contracts, mut others) = (Vec::new(), Vec::new());
    for hash in QuerySample::of(service.store()).transactions {
        match service.store().transaction(&hash, |_| ())?.records {
            0 => others.push(hash),
            _ => of_contracts.push(hash),
        }
    }
    let client = RefCell::new(service.client("ratios")?);
    for (which, hashes, count, goal) in [
        ("of a smart contract", of_contracts, REQUESTS, Some(TRANSACTION)),
        ("of classic operations", others, REQUESTS_IN_TURN, None),
    ] {
        let call = |hash: &TxHash| call("getTransaction", &json!({"hash": hash.to_string()}));
        let calls: Vec<_> = hashes.iter().map(call).cycle().take(count).collect();
        let mut bytes = 0;
        for call in &calls {
            let answer = ask(&mut client.borrow_mut(), call)?;
            if answer["result"]["status"] == "NOT_FOUND" {
                return Err("a stored transaction is not found".into());
            }
            bytes += answer.to_string().len();
        }
        report.note(format!(
            "getTransaction, {which}: {} of them, {} KB an answer on average.",
            hashes.len(),
            bytes / calls.len().max(1) / 1000,
        ));
        for (asked, is_first, goal) in [("asked again", false, goal), ("asked first", true, None)] {
            let sides = medians(&calls, is_first, &client, Some(no_op()), &client)?;
            let name = format!("getTransaction, {which}, {asked} / a call that does nothing");
            report.add(Row { name, unit: "µs", sides, goal });
        }
    }
    service.stop()
}

/// Sends calls to both sides in turn, several at a time; returns the medians of each repetition, in
/// microseconds. The baseline gets the same calls unless `own` is given.
fn medians(
    calls: &[Vec<u8>],
    is_first: bool,
    ours: &RefCell<Client>,
    own: Option<Vec<u8>>,
    baseline: &RefCell<Client>,
) -> Result<Sides, Box<dyn Error>> {
    let failed = RefCell::new(None);
    let post = |client: &RefCell<Client>, call: &[u8]| {
        if let Err(error) = client.borrow_mut().post("/rpc", call) {
            failed.borrow_mut().get_or_insert(error);
        }
    };
    let mut number = 0;
    let mut repetition = || {
        let mut times = (Vec::with_capacity(calls.len()), Vec::with_capacity(calls.len()));
        for turn in calls.chunks(REQUESTS_IN_TURN) {
            let mut asked = |call: &Vec<u8>| {
                number += 1;
                if is_first { numbered(call, number) } else { call.clone() }
            };
            let turn: Vec<_> = turn.iter().map(&mut asked).collect();
            times.0.extend(micros(&turn, |call| post(ours, call)));
            times.1.extend(micros(&turn, |call| post(baseline, own.as_ref().unwrap_or(call))));
        }
        (quantile(&times.0, 0.5), quantile(&times.1, 0.5))
    };
    // The first repetition is a warm-up.
    repetition();
    let sides = (0..REPETITIONS).map(|_| repetition()).collect();
    failed.into_inner().map_or(Ok(sides), |error| Err(error.into()))
}

/// Makes a call unique by adding a number in a parameter that no method reads.
fn numbered(call: &[u8], number: u64) -> Vec<u8> {
    let mut call: Value = serde_json::from_slice(call).unwrap_or_default();
    call["params"]["number"] = number.into();
    call.to_string().into_bytes()
}

fn ask(client: &mut Client, call: &[u8]) -> Result<Value, Box<dyn Error>> {
    let answer: Value = serde_json::from_slice(client.post("/rpc", call)?)?;
    match answer.get("error") {
        Some(error) => Err(error.to_string().into()),
        None => Ok(answer),
    }
}

/// Returns the events of a response, without the field that later versions of the reference omit.
fn page(mut answer: Value) -> Result<Vec<Value>, Box<dyn Error>> {
    let Value::Array(mut events) = answer["result"]["events"].take() else {
        return Err("an answer without events".into());
    };
    for event in &mut events {
        if let Value::Object(event) = event {
            event.remove("inSuccessfulContractCall");
        }
    }
    Ok(events)
}

/// Returns calls for pages, each with the query of the store that it leads to. Contracts with more events
/// occur more often.
fn pages(store: &orrery::store::Store) -> Vec<(Vec<u8>, EventQuery)> {
    let questions = QuerySample::of(store);
    let status = store.status();
    let [first, last] =
        [status.oldest(), status.latest()].map(|ledger| ledger.unwrap_or_default().0);
    let mut random = ChaCha8Rng::seed_from_u64(15);
    let mut draw = || {
        let (contract, topic) = questions.first_topics.choose(&mut random).expect("an event");
        // Only the first half, so that few pages lack events.
        let start = random.random_range(first..=first + (last - first) / 2);
        let topics = [[BASE64_STANDARD.encode(topic), "**".to_owned()]];
        let filter = json!({"contractIds": [contract.to_string()], "topics": topics});
        let params = json!({
            "startLedger": start, "filters": [filter], "pagination": {"limit": PAGE},
        });
        let mut query = EventQuery::of_ledgers(LedgerRange::new(start, last));
        (query.contracts, query.page.limit) = (vec![*contract], PAGE);
        query.topics.positional[0] = Some(topic.clone());
        (call("getEvents", &params), query)
    };
    (0..REQUESTS).map(|_| draw()).collect()
}

/// The parts of a call that the baseline reads.
#[derive(Deserialize)]
struct Asked {
    params: Params,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params {
    start_ledger: u32,
    filters: Vec<Wanted>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wanted {
    contract_ids: Vec<String>,
    topics: Vec<Vec<String>>,
}

/// An event as the baseline serialises it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "type")]
    event_type: &'static str,
    ledger: u32,
    ledger_closed_at: String,
    contract_id: String,
    id: String,
    operation_index: u32,
    transaction_index: u32,
    tx_hash: String,
    topic: Vec<String>,
    value: String,
}

impl Event {
    fn of(event: &EventRecord<'_>) -> Self {
        let toid = event.id.0;
        let index = event.event_index().unwrap_or_default();
        let (transaction, operation) = (toid >> 12 & 0xf_ffff, toid & 0xfff);
        let id = RpcEventId::new(event.ledger.0, transaction as u32, operation as u32, index);
        Self {
            event_type: "contract",
            ledger: event.ledger.0,
            ledger_closed_at: event.closed_at.to_string(),
            contract_id: event.contract.map(|id| ContractId(*id).to_string()).unwrap_or_default(),
            id: id.to_string(),
            operation_index: id.operation(),
            transaction_index: id.transaction(),
            tx_hash: hex::encode(event.tx),
            topic: event.topics.iter().map(|topic| BASE64_STANDARD.encode(topic)).collect(),
            value: BASE64_STANDARD.encode(event.data),
        }
    }
}

/// Serves SQLite with the same HTTP library, but without other methods, limits or logs.
fn serve_sqlite(sqlite: Sqlite) -> Result<Server, Box<dyn Error>> {
    let sqlite = Arc::new(Mutex::new(sqlite));
    let route =
        warp::path!("rpc").and(warp::body::bytes()).map(move |body: warp::hyper::body::Bytes| {
            let body = match answer(&sqlite.lock(), &body) {
                Ok(body) => body,
                Err(error) => error.to_string().into_bytes(),
            };
            warp::reply::with_header(body, "content-type", "application/json")
        });
    Server::run(String::new(), Arc::default(), |listener, stop| async move {
        let server = warp::serve(route).incoming(listener);
        server.graceful(async { drop(stop.await) }).run().await;
    })
}

fn answer(sqlite: &Sqlite, body: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    #[derive(Serialize)]
    struct Reply {
        jsonrpc: &'static str,
        id: u32,
        result: Events,
    }
    #[derive(Serialize)]
    struct Events {
        events: Vec<Event>,
    }
    let Asked { params } = serde_json::from_slice(body)?;
    let wanted = params.filters.first().ok_or("no filter")?;
    let contract = wanted.contract_ids.first().ok_or("no contract")?.parse()?;
    let topic = wanted.topics.first().and_then(|topics| topics.first()).ok_or("no topic")?;
    let topic = BASE64_STANDARD.decode(topic)?;
    let mut events = Vec::with_capacity(PAGE);
    let from = LedgerSeq(params.start_ledger);
    sqlite.by_contract_and_topic(&contract, &topic, from, PAGE, |event| {
        events.push(Event::of(event));
    })?;
    Ok(serde_json::to_vec(&Reply { jsonrpc: "2.0", id: 1, result: Events { events } })?)
}
