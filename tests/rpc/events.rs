//! `getEvents` and `getEventsV2` against a direct implementation of their rules, which checks every
//! event of fully decoded ledgers in chain order. The stores hold different kinds of events,
//! ingested in different orders, with and without raw ledgers.
//!
//! Small: 600 sets of filters for `getEvents` and 200 for `getEventsV2`; full: 50,000 of each.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery::decode::{EventType, Placement, decode};
use orrery::domain::{ContractId, Network, RpcEventId, TxHash};
use orrery::rpc::{CallLimits, Params, Rpc, Settings};
use orrery::store::{Bounds, Durability, IndexOptions, PreparedLedger, Store};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tempfile::TempDir;

use orrery_testkit::{full, pubnet, size};

/// An event as the methods show it, and the fields that filters match.
struct Event {
    shown: Value,
    id: RpcEventId,
    contract: Option<String>,
    event_type: &'static str,
    topics: Vec<String>,
}

struct World {
    rpc: Rpc,
    /// The stored events, in chain order.
    events: Vec<Event>,
    first: u32,
    last: u32,
    _directory: TempDir,
}

fn shown(ledger: &full::Ledger, event: &full::Event) -> Event {
    let transaction = &ledger.transactions[event.transaction];
    let topics: Vec<_> = event.topics.iter().map(|topic| STANDARD.encode(topic)).collect();
    let event_type = if event.event_type == EventType::System { "system" } else { "contract" };
    let contract = event.contract.map(|id| ContractId(id).to_string());
    let toid = event.rpc_id.toid;
    let closed_at = rfc_3339(ledger.close_time);
    let shown = json!({
        "type": event_type,
        "ledger": ledger.sequence.0,
        "ledgerClosedAt": closed_at,
        "contractId": contract.clone().unwrap_or_default(),
        "id": format!("{:019}-{:010}", toid, event.rpc_id.index),
        "operationIndex": toid & 0xfff,
        "transactionIndex": toid >> 12 & 0xf_ffff,
        "txHash": TxHash::to_string(&transaction.hash),
        "inSuccessfulContractCall": transaction.successful,
        "topic": topics.clone(),
        "value": STANDARD.encode(&event.data),
    });
    Event { shown, id: event.rpc_id, contract, event_type, topics }
}

/// Expected JSON of the events of some ledgers, in chain order.
pub fn shown_events(network: &Network, ledgers: &[Vec<u8>], options: &IndexOptions) -> Vec<Value> {
    World::new(network, ledgers, options, 0).events.into_iter().map(|event| event.shown).collect()
}

/// Formats UNIX seconds as RFC 3339, by counting days of the Gregorian calendar.
fn rfc_3339(seconds: u64) -> String {
    let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, days + 1)
}

impl World {
    fn new(network: &Network, ledgers: &[Vec<u8>], options: &IndexOptions, seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(directory.path(), Some(network)).unwrap());
        // Ingested in chunks of three ledgers, shuffled unless `seed` is 0.
        let mut pieces: Vec<_> = ledgers.chunks(3).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        if seed > 0 {
            pieces.shuffle(&mut rng);
        }
        for raw in pieces.into_iter().flatten() {
            let view = decode(raw, network.id()).unwrap();
            let prepared = PreparedLedger::new(&view, options).unwrap();
            store.commit(prepared, Durability::Deferred).unwrap();
        }
        store.flush().unwrap();
        let decoded: Vec<_> =
            ledgers.iter().map(|raw| full::decode(raw, network.id()).unwrap()).collect();
        let mut events = Vec::new();
        for ledger in &decoded {
            for event in &ledger.events {
                let transaction = &ledger.transactions[event.transaction];
                let is_stored = match event.placement {
                    Placement::Operation { .. } => {
                        transaction.successful
                            && (transaction.smart_contract || options.classic_events)
                    }
                    _ => options.fee_events,
                };
                if is_stored {
                    events.push(shown(ledger, event));
                }
            }
        }
        assert!(events.windows(2).all(|pair| pair[0].id < pair[1].id));
        let sequence = |ledger: Option<&full::Ledger>| ledger.unwrap().sequence.0;
        let (first, last) = (sequence(decoded.first()), sequence(decoded.last()));
        let rpc = Rpc::new(store, Settings::default(), Arc::new(|| 0));
        Self { rpc, events, first, last, _directory: directory }
    }

    fn call(&self, method: &str, params: &Value, records: u64) -> Result<Value, Value> {
        let raw = to_raw_value(params).unwrap();
        let index_rows = records.saturating_mul(64);
        let bounds = Bounds { records, index_rows, interrupted: &|| false };
        let allowed = CallLimits { bounds, ..CallLimits::UNLIMITED };
        let answered = self.rpc.call(method, Params(Some(&raw)), allowed);
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        answered
            .map(|result| value(result.get()))
            .map_err(|error| serde_json::to_value(&error).unwrap())
    }
}

/// Stores of recorded and generated ledgers, under different settings.
fn worlds() -> Vec<World> {
    let settings = |classic_events, fee_events, raw_ledgers| IndexOptions {
        classic_events,
        fee_events,
        raw_ledgers,
        contracts: None,
    };
    let all = [
        settings(true, true, true),
        settings(true, true, false),
        settings(false, false, true),
        settings(false, true, false),
        settings(true, false, true),
    ];
    let (made_network, made) = pubnet::made();
    let mut worlds = Vec::new();
    for (seed, options) in (0..).zip(&all) {
        worlds.push(World::new(&made_network, &made, options, seed));
        if let Some(ledgers) = pubnet::ledgers() {
            worlds.push(World::new(&pubnet::network(), &ledgers, options, seed + 1));
        }
    }
    worlds
}

/// Runs a test in all stores, in as many at a time as there are processors, each with random numbers
/// of its own. Returns the sum of the results.
fn sum_over_worlds(test: impl Fn(&World, &mut ChaCha8Rng) -> usize + Sync) -> usize {
    let worlds = worlds();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut sum = 0;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(world) = worlds.get(number) else { return sum };
            sum += test(world, &mut ChaCha8Rng::seed_from_u64(number as u64));
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().map(|it| it.join().unwrap()).sum()
    })
}

type TopicFilter = Vec<String>;

#[derive(Clone)]
struct Filter {
    types: Option<&'static str>,
    contracts: Vec<String>,
    topics: Vec<TopicFilter>,
}

impl Filter {
    fn random(rng: &mut ChaCha8Rng, world: &World) -> Self {
        let contracts = (0..rng.random_range(0..3))
            .filter_map(|_| world.events.choose(rng).and_then(|event| event.contract.clone()));
        let contracts = contracts.collect();
        let topics = (0..rng.random_range(0..3)).map(|_| {
            let event = world.events.choose(rng).unwrap();
            let mut segments: Vec<_> = event.topics.iter().take(4).cloned().collect();
            for segment in &mut segments {
                if rng.random_bool(0.6) {
                    *segment = "*".to_owned();
                }
            }
            if rng.random_bool(0.4) {
                segments.truncate(rng.random_range(0..=segments.len()));
                segments.push("**".to_owned());
            }
            if segments.is_empty() { vec!["**".to_owned()] } else { segments }
        });
        let topics = topics.collect();
        let types =
            *[None, Some("contract"), Some("system"), Some("contract,system")].choose(rng).unwrap();
        Self { types, contracts, topics }
    }

    fn to_json(&self) -> Value {
        json!({ "type": self.types, "contractIds": self.contracts, "topics": self.topics })
    }

    /// Applies the documented rules to an event.
    fn admits(&self, event: &Event) -> bool {
        let of_type =
            self.types.is_none_or(|types| types.split(',').any(|it| it == event.event_type));
        let of_contract = self.contracts.is_empty()
            || event.contract.as_ref().is_some_and(|id| self.contracts.contains(id));
        let fits = |segments: &TopicFilter| {
            let (is_open, segments) = match segments.split_last() {
                Some((last, before)) if last == "**" => (true, before),
                _ => (false, segments.as_slice()),
            };
            let count = event.topics.len();
            let fits_count =
                if is_open { count >= segments.len() } else { count == segments.len() };
            fits_count
                && segments.iter().zip(&event.topics).all(|(want, is)| want == "*" || want == is)
        };
        of_type && of_contract && (self.topics.is_empty() || self.topics.iter().any(fits))
    }
}

#[test]
fn get_events_pages_agree_with_a_direct_implementation() {
    let found = sum_over_worlds(|world, rng| {
        let mut found = 0;
        for _ in 0..size::choose(60, 5_000) {
            let filters: Vec<_> =
                (0..rng.random_range(0..=5)).map(|_| Filter::random(rng, world)).collect();
            let start = rng.random_range(world.first..=world.last);
            let end = rng.random_bool(0.3).then(|| rng.random_range(start..=world.last + 2));
            let limit = *[1, 2, 7, 100, 10_000].choose(rng).unwrap();
            let records = *[u64::MAX, 300, 40].choose(rng).unwrap();
            let until = end.unwrap_or(u32::MAX);
            let wanted = world.events.iter().filter(|event| {
                (start..until).contains(&event.id.ledger().0)
                    && (filters.is_empty() || filters.iter().any(|filter| filter.admits(event)))
            });
            let wanted: Vec<_> = wanted.collect();
            let filters: Vec<_> = filters.iter().map(Filter::to_json).collect();
            let mut request = json!({
                "startLedger": start, "endLedger": end, "filters": filters,
                "pagination": { "limit": limit },
            });
            let mut got: Vec<Value> = Vec::new();
            for _ in 0..50 {
                let answer = world.call("getEvents", &request, records).unwrap();
                let events = answer["events"].as_array().unwrap();
                assert!(events.len() <= limit);
                assert_eq!(answer["latestLedger"], world.last);
                assert_eq!(answer["oldestLedger"], world.first);
                assert!(answer["latestLedgerCloseTime"].is_string());
                got.extend(events.iter().cloned());
                let cursor = answer["cursor"].as_str().unwrap();
                let at: RpcEventId = cursor.parse().unwrap();
                let last = world.last.min(until.saturating_sub(1));
                if events.len() == limit {
                    assert_eq!(cursor, events.last().unwrap()["id"]);
                }
                if at == RpcEventId::end_of(orrery::domain::LedgerSeq(last)) {
                    assert_eq!(got.len(), wanted.len());
                    break;
                }
                if end.is_some() && !got.is_empty() {
                    // A request with a cursor has no end ledger, so it continues beyond that of the
                    // first page.
                    break;
                }
                request = json!({ "filters": filters, "pagination": { "limit": limit, "cursor": cursor } });
            }
            let wanted: Vec<_> = wanted.iter().take(got.len()).map(|event| &event.shown).collect();
            if end.is_some() && got.len() > wanted.len() {
                got.truncate(wanted.len());
            }
            assert_eq!(got.iter().collect::<Vec<_>>(), wanted, "{request}");
            found += got.len();
        }
        found
    });
    println!("{found} events");
    assert!(found > 1_000);
}

/// A filter of `getEventsV2` with some of the fields of a random event.
fn random_v2(rng: &mut ChaCha8Rng, world: &World) -> Value {
    loop {
        let event = world.events.choose(rng).unwrap();
        let mut filter = json!({});
        if rng.random_bool(0.3) {
            filter["type"] = json!(if rng.random_bool(0.9) { event.event_type } else { "system" });
        }
        if let Some(contract) = event.contract.as_ref().filter(|_| rng.random_bool(0.5)) {
            filter["contractId"] = json!(contract);
        }
        for (position, topic) in event.topics.iter().enumerate().take(4) {
            if rng.random_bool(0.3) {
                filter[format!("topic{position}")] = json!(topic);
            }
        }
        if filter != json!({}) {
            return filter;
        }
    }
}

fn admits_v2(filter: &Value, event: &Event) -> bool {
    let filter = filter.as_object().unwrap();
    filter.iter().all(|(field, wanted)| match field.as_str() {
        "type" => wanted == event.event_type,
        "contractId" => event.contract.as_ref().is_some_and(|id| wanted == id),
        topic => {
            let position: usize = topic.strip_prefix("topic").unwrap().parse().unwrap();
            event.topics.get(position).is_some_and(|topic| wanted == topic)
        }
    })
}

#[test]
fn get_events_v2_scans_agree_with_a_direct_implementation() {
    let found = sum_over_worlds(|world, rng| {
        let mut found = 0;
        for _ in 0..size::choose(20, 5_000) {
            let count = *[0, 1, 3, 40].choose(rng).unwrap();
            let filters: Vec<_> = (0..count).map(|_| random_v2(rng, world)).collect();
            let descends = rng.random_bool(0.5);
            let min = rng.random_range(world.first.saturating_sub(3).max(2)..=world.last + 3);
            let min = if descends { min } else { min.max(world.first) };
            let max = rng.random_bool(0.7).then(|| rng.random_range(min..=world.last + 5));
            let limit = *[7, 50, 1000].choose(rng).unwrap();
            let records = *[u64::MAX, 300, 40].choose(rng).unwrap();
            let mut request = json!({
                "minLedger": min, "maxLedger": max,
                "order": if descends { "desc" } else { "asc" }, "limit": limit,
            });
            if !filters.is_empty() {
                request["filters"] = json!(filters);
            }
            let upper = max.unwrap_or(if descends { world.last } else { u32::MAX });
            let wanted = world.events.iter().filter(|event| {
                (min..=upper).contains(&event.id.ledger().0)
                    && (filters.is_empty() || filters.iter().any(|filter| admits_v2(filter, event)))
            });
            let mut wanted: Vec<_> = wanted.map(|event| event.shown.clone()).collect();
            for event in &mut wanted {
                event.as_object_mut().unwrap().remove("inSuccessfulContractCall");
            }
            let expected = match (descends, max) {
                (true, None) if min > world.last => None,
                (true, Some(max)) if max > world.last => Some("WAITING_FOR_LEDGERS"),
                (true, _) if min < world.first => Some("OLDEST_REACHED"),
                (false, None) => Some("WAITING_FOR_LEDGERS"),
                (false, Some(max)) if max > world.last => Some("WAITING_FOR_LEDGERS"),
                _ => Some("COMPLETE"),
            };
            if descends {
                wanted.reverse();
            }
            let Some(expected) = expected else {
                let error = world.call("getEventsV2", &request, records).unwrap_err();
                assert_eq!(error["data"]["reason"], "ledger_out_of_range", "{error}");
                continue;
            };
            if descends && max.is_some_and(|max| max > world.last) {
                wanted.clear();
            }
            let mut got: Vec<Value> = Vec::new();
            let mut pages = 0;
            loop {
                pages += 1;
                assert!(pages < 5_000, "{request}");
                let answer = world.call("getEventsV2", &request, records).unwrap();
                got.extend(answer["events"].as_array().unwrap().iter().cloned());
                let status = answer["scanStatus"].as_str().unwrap();
                let scanned = answer["scannedLedger"].as_u64().unwrap();
                assert_eq!(answer.get("cursor").is_none(), status == "COMPLETE");
                if status != "HAS_MORE" {
                    assert_eq!(status, expected, "{request} {answer}");
                    let end = match (descends, status) {
                        (false, "COMPLETE") => upper,
                        (false, _) => world.last.max(min - 1),
                        (true, "COMPLETE") => min,
                        (true, "OLDEST_REACHED") => world.first.min(upper + 1),
                        (true, _) => upper + 1,
                    };
                    assert_eq!(scanned, u64::from(end), "{request} {answer}");
                    break;
                }
                request = json!({ "cursor": answer["cursor"], "limit": limit });
            }
            assert_eq!(got, wanted, "{request}");
            found += got.len();
        }
        found
    });
    println!("{found} events");
    assert!(found > 1_000);
}

#[test]
fn error_messages_equal_those_of_the_reference() {
    let (network, ledgers) = pubnet::made();
    let world = World::new(&network, &ledgers[5..], &IndexOptions::default(), 0);
    let (first, last) = (world.first, world.last);
    let symbol = "AAAADwAAAAh0cmFuc2Zlcg==";
    let many = |value: Value, count: usize| vec![value; count];
    let contract = ContractId([1; 32]).to_string();
    let with = |filter: Value| json!({ "startLedger": first, "filters": [{}, filter] });
    let topic = |segments: &[&str]| with(json!({ "topics": [["*"], segments] }));
    let range = format!("startLedger must be within the ledger range: {first} - {last}");
    let cases = [
        (json!({}), -32602, "startLedger must be positive"),
        (json!(null), -32602, "startLedger must be positive"),
        (json!([]), -32602, "invalid parameters"),
        (json!({ "startLedger": 0 }), -32602, "startLedger must be positive"),
        (json!({ "startLedger": -1 }), -32602, "invalid parameters"),
        (json!({ "startLedger": "1" }), -32602, "invalid parameters"),
        (json!({ "startLedger": first - 1 }), -32600, &*range),
        (json!({ "startLedger": last + 1 }), -32600, &*range),
        (
            json!({ "pagination": { "cursor": RpcEventId::new(last + 1, 0, 0, 0).to_string() } }),
            -32600,
            &*range,
        ),
        (json!({ "pagination": { "cursor": "x" } }), -32602, "invalid parameters"),
        (
            json!({ "startLedger": first, "pagination": { "cursor": "0000000000000000001-0000000000" } }),
            -32602,
            "ledger ranges and cursor cannot both be set",
        ),
        (
            json!({ "startLedger": first, "pagination": { "limit": 10_001 } }),
            -32602,
            "limit must not exceed 10000",
        ),
        (
            json!({ "startLedger": first, "filters": many(json!({}), 6) }),
            -32602,
            "maximum 5 filters per request",
        ),
        (
            with(json!({ "type": "diagnostic" })),
            -32602,
            "filter 2 invalid: filter type invalid: if set, type must be either 'system' or 'contract'",
        ),
        (
            with(json!({ "contractIds": many(json!(contract), 6) })),
            -32602,
            "filter 2 invalid: maximum 5 contract IDs per filter",
        ),
        (
            with(json!({ "contractIds": [contract, "C"] })),
            -32602,
            "filter 2 invalid: contract ID 2 invalid",
        ),
        (
            with(json!({ "topics": many(json!(["*"]), 6) })),
            -32602,
            "filter 2 invalid: maximum 5 topics per filter",
        ),
        (
            topic(&[]),
            -32602,
            "filter 2 invalid: topic 2 invalid: topic must have at least 1 segment",
        ),
        (
            topic(&["*"; 5]),
            -32602,
            "filter 2 invalid: topic 2 invalid: topic cannot have more than 4 segments",
        ),
        (
            topic(&["*", "**", symbol]),
            -32602,
            "filter 2 invalid: topic 2 invalid: segment 2 invalid: wildcard '**' is only allowed as the last segment",
        ),
        (topic(&["*", "AAAA"]), -32602, "invalid parameters"),
        (
            json!({ "startLedger": first, "xdrFormat": "xml" }),
            -32602,
            "got 'xml': expected base64, json for optional 'xdrFormat'",
        ),
    ];
    for (request, code, message) in cases {
        let error = world.call("getEvents", &request, u64::MAX).unwrap_err();
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(code), &json!(message)),
            "{request}"
        );
        assert!(error.get("data").is_none_or(Value::is_string), "{error}");
    }
    for request in [
        json!({ "startLedger": first, "filters": null, "pagination": { "cursor": null, "limit": null }, "endLedger": null, "xdrFormat": null }),
        json!({ "startLedger": first, "filters": [], "pagination": {}, "other": 1 }),
        json!({ "startLedger": first, "filters": [{ "type": "", "contractIds": null, "topics": null }] }),
        topic(&["*", "*", "*", "*", "**"]),
        topic(&["**"]),
    ] {
        world.call("getEvents", &request, u64::MAX).unwrap();
    }
    let topic0 = json!([{ "topic0": symbol }]);
    let of_v2 = [
        (json!({}), "minLedger is required for ascending order"),
        (json!({ "minLedger": 9, "maxLedger": 8 }), "minLedger must be <= maxLedger"),
        (json!({ "minLedger": 9, "order": "up" }), "order must be \"asc\" or \"desc\""),
        (json!({ "minLedger": 9, "limit": 0 }), "limit must be between 1 and 1000"),
        (json!({ "minLedger": 9, "limit": 1001 }), "limit must be between 1 and 1000"),
        (json!({ "minLedger": 9, "filters": [] }), "filters must contain 1 to 256 filters"),
        (
            json!({ "minLedger": 9, "filters": many(json!({ "type": "system" }), 257) }),
            "filters must contain 1 to 256 filters",
        ),
        (
            json!({ "minLedger": 9, "filters": [{}] }),
            "filters[0]: filter must specify type, contractId, or at least one topic position",
        ),
        (
            json!({ "minLedger": 9, "filters": [{ "topic1": "AAAA" }] }),
            "filters[0].topic1 is not valid base64-encoded XDR",
        ),
        (
            json!({ "minLedger": 9, "xdrInputFormat": "json", "filters": [{ "topic1": { "u3": 2 } }] }),
            "filters[0].topic1 is not an ScVal as JSON",
        ),
        (
            json!({ "cursor": "x", "filters": topic0 }),
            "cursor is mutually exclusive with minLedger, maxLedger, order, filters, xdrInputFormat",
        ),
    ];
    for (request, message) in of_v2 {
        let error = world.call("getEventsV2", &request, u64::MAX).unwrap_err();
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(-32602), &json!(message)),
            "{request}"
        );
        assert_eq!(error["data"], json!({ "reason": "invalid_params" }));
    }
    for unknown in [
        json!({ "minLedger": 9, "x": 1 }),
        json!({ "minLedger": 9, "filters": [{ "topic4": symbol }] }),
    ] {
        let error = world.call("getEventsV2", &unknown, u64::MAX).unwrap_err();
        assert_eq!(error["data"]["reason"], "invalid_params", "{error}");
    }
    let error = world.call("queryEvents", &json!({ "cursor": "x" }), u64::MAX).unwrap_err();
    assert_eq!(
        error["data"],
        json!({ "reason": "cursor_malformed", "oldestLedger": first, "latestLedger": last })
    );
    let error =
        world.call("getEventsV2", &json!({ "minLedger": first - 1 }), u64::MAX).unwrap_err();
    assert_eq!(
        error["data"],
        json!({ "reason": "ledger_out_of_range", "missingLedger": first - 1, "oldestLedger": first, "latestLedger": last })
    );
    // Topics given as JSON are equivalent to base64.
    let given = json!({ "minLedger": first, "filters": topic0, "limit": 1000 });
    let as_json = json!({
        "minLedger": first, "xdrInputFormat": "json", "limit": 1000,
        "filters": [{ "topic0": { "symbol": "transfer" } }],
    });
    let mut both =
        [given, as_json].map(|request| world.call("getEventsV2", &request, u64::MAX).unwrap());
    assert!(!both[0]["events"].as_array().unwrap().is_empty());
    both.iter_mut().for_each(|answer| answer["cursor"] = json!(null));
    assert_eq!(both[0], both[1]);
}

#[test]
fn events_as_json_equal_the_xdr_crates_json() {
    use stellar_xdr::{Limits, ReadXdr, ScVal};
    for world in worlds().into_iter().take(2) {
        let request = |format: &str| json!({ "startLedger": world.first, "xdrFormat": format, "pagination": { "limit": 500 } });
        let [base64, as_json] = ["base64", "json"].map(|format| {
            world.call("getEvents", &request(format), u64::MAX).unwrap()["events"].take()
        });
        let value = |text: &Value| {
            let value = ScVal::from_xdr_base64(text.as_str().unwrap(), Limits::none()).unwrap();
            serde_json::to_value(value).unwrap()
        };
        for (mut event, spelled) in
            base64.as_array().unwrap().iter().cloned().zip(as_json.as_array().unwrap())
        {
            let event = event.as_object_mut().unwrap();
            let topics = event.remove("topic").unwrap();
            let topics: Vec<_> = topics.as_array().unwrap().iter().map(value).collect();
            event.insert("topicJson".to_owned(), json!(topics));
            let data = value(&event.remove("value").unwrap());
            event.insert("valueJson".to_owned(), data);
            assert_eq!(spelled.as_object().unwrap(), event);
        }
    }
}
