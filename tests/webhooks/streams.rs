//! Streams of events from a growing store: every filter compared with the event routes, events that
//! retention removed, tokens that end, readers that stop reading, and many streams at once.
//!
//! Small: 60 streams at once; full: 1,000.
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use orrery::auth::IssueRequest;
use orrery::decode::decode;
use orrery::settings::{Kib, Mib, Seconds, nonzero};
use orrery::store::{Durability, IndexOptions, PreparedLedger, Retention};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::messages::{Reader, StreamItem};
use orrery_testkit::lake_files::Chain;
use orrery_testkit::model::Universe;
use orrery_testkit::server::{BudgetUsage, Server, TempStore, now};
use orrery_testkit::size;
use orrery_testkit::wait::wait_until;

const LAST: u32 = 160;

static CHAIN: LazyLock<Chain> = LazyLock::new(|| Chain::made(31, LAST));

fn prepared(ledger: u32) -> PreparedLedger {
    let view = decode(CHAIN.xdr(ledger), CHAIN.network.id()).unwrap();
    let options =
        IndexOptions { classic_events: true, fee_events: true, ..IndexOptions::default() };
    PreparedLedger::new(&view, &options).unwrap()
}

fn add(store: &TempStore, ledgers: std::ops::RangeInclusive<u32>, durability: Durability) {
    for ledger in ledgers {
        store.store.commit(prepared(ledger), durability).unwrap();
    }
}

fn store(ledgers: std::ops::RangeInclusive<u32>) -> TempStore {
    let store = TempStore::new(&CHAIN.network);
    add(&store, ledgers, Durability::Synced);
    store
}

/// Returns all stored events as the event routes return them, oldest first.
fn stored(server: &Server) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    loop {
        let cursor = all.last().map_or(0, |last| last["id"].as_u64().unwrap());
        let page = format!("/rest/events/by-ledger?order=asc&limit=1000&cursor={cursor}");
        let page = server.get(&page).json().as_array().unwrap().clone();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

fn open(server: &Server, query: &str, last_id: Option<&str>) -> Reader {
    Reader::open(server.address, &server.token, query, last_id).unwrap()
}

/// Returns whether an event matches a filter.
type Condition = Box<dyn Fn(&Value) -> bool>;

/// Returns a random filter as query parameters and as a condition on events.
fn filter(rng: &mut ChaCha8Rng, events: &[Value]) -> (String, Condition) {
    let event = events.choose(rng).unwrap();
    let mut parts = Vec::new();
    let mut wanted: Vec<(&'static str, Value)> = Vec::new();
    for field in ["contract_id", "topic1", "topic2", "topic3", "topic4"] {
        let given = event[field].as_str().filter(|text| !text.is_empty());
        if let Some(text) = given.filter(|_| rng.random_bool(0.35)) {
            let encoded: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
            parts.push(format!("{field}={encoded}"));
            wanted.push((field, event[field].clone()));
        }
    }
    let matches = move |event: &Value| wanted.iter().all(|(field, value)| event[*field] == *value);
    (parts.join("&"), Box::new(matches))
}

#[test]
fn streams_agree_with_the_event_routes_from_any_position() {
    let store = store(2..=60);
    let server = Server::start(&store);
    let before = stored(&server);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut readers = Vec::new();
    for round in 0..40 {
        let (query, matches) = filter(&mut rng, &before);
        let after = match round % 4 {
            0 => None,
            1 => Some(0),
            _ => Some(rng.random_range(0..=before.len() as u64)),
        };
        let reader = open(&server, &query, after.map(|id| id.to_string()).as_deref());
        readers.push((reader, query, matches, after.unwrap_or(before.len() as u64)));
    }
    for (reader, .., after) in &mut readers {
        assert_eq!(reader.position(), *after, "a client knows from the start where it is");
    }
    add(&store, 61..=80, Durability::Synced);
    let all = stored(&server);
    assert!(all.len() > before.len());
    for (mut reader, query, matches, after) in readers {
        let expected: Vec<_> =
            all.iter().filter(|it| it["id"].as_u64().unwrap() > after && matches(it)).collect();
        let got = reader.events(expected.len());
        assert!(got.iter().eq(expected), "{query} after {after}");
    }
}

#[test]
fn the_address_filter_matches_any_topic() {
    let store = store(2..=60);
    let server = Server::start(&store);
    let all = stored(&server);
    let topics = |event: &Value| -> Vec<String> {
        let fields = (1..=10).map(|number| event[format!("topic{number}")].as_str());
        fields.filter_map(|topic| topic.map(str::to_owned)).collect()
    };
    // The XDR of ScVal::Address begins with 18; contracts have the strkey that `contract_id` shows.
    let address =
        all.iter().flat_map(&topics).find(|topic| topic.starts_with("AAAAEgAAAA")).unwrap();
    let strkey = {
        use base64::Engine;
        use stellar_xdr::{Limits, ReadXdr, ScVal};
        let xdr = base64::engine::general_purpose::STANDARD.decode(&address).unwrap();
        match ScVal::from_xdr(xdr, Limits::none()).unwrap() {
            ScVal::Address(address) => address.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let expected: Vec<_> = all.iter().filter(|event| topics(event).contains(&address)).collect();
    assert!(!expected.is_empty() && expected.len() < all.len());
    let mut reader = open(&server, &format!("address={strkey}"), Some("0"));
    assert!(reader.events(expected.len()).iter().eq(expected));
}

#[test]
fn malformed_and_unauthorised_stream_requests_are_refused() {
    let store = store(2..=10);
    let server = Server::start(&store);
    let newest = stored(&server).len();
    let with = |query: &str, lines: &str| {
        let token = format!("authorization: Bearer {}\r\n{lines}", server.token);
        Reader::open_with(server.address, query, &token).err().map(|it| (it.status, it.body))
    };
    for (query, name) in [
        ("contract_id=x", "contract_id"),
        ("topic1=", "topic1"),
        ("topic4=!", "topic4"),
        ("address=C", "address"),
        ("topic1=AAAAAQ==&topic1=AAAAAQ==", "topic1"),
    ] {
        let (status, body) = with(query, "").unwrap();
        assert_eq!(status, 400);
        assert!(body.contains(&format!("'{name}'")) && body.contains("bad_parameter"), "{body}");
    }
    for id in ["x", "-1", "+1", "1.0", "\u{e9}", &format!("{}", newest + 1), &"9".repeat(40)] {
        let (status, body) = with("", &format!("last-event-id: {id}\r\n")).unwrap();
        assert!(status == 400 && body.contains("'Last-Event-ID'"), "{id}: {body}");
    }
    assert!(with("", &format!("last-event-id: {newest}\r\n")).is_none());
    // What stand-ins for a browser's EventSource send when they have received nothing yet.
    assert!(with("", "last-event-id:\r\n").is_none());
    assert!(with("last_event_id=", "").is_none());
    assert!(with("last_event_id=", "last-event-id: x\r\n").is_some());
    assert!(with("last_event_id=x", "last-event-id:\r\n").is_some());
    let (status, body) = with("unknown=1", "").unwrap();
    assert!(status == 400 && body.contains("unknown_parameter"), "{body}");
    let no_token = Reader::open_with(server.address, "contract_id=x", "").err().unwrap();
    assert_eq!(no_token.status, 401, "before parameters are looked at");
    let scopes = vec![orrery::auth::Scope::Deploy];
    let request = IssueRequest { scopes, ..IssueRequest::for_owner("deployer") };
    let token = server.tokens.issue(&request).unwrap().token;
    assert_eq!(Reader::open(server.address, &token, "", None).err().unwrap().status, 403);
    let mut connection = server.connect();
    let authorization = format!("Bearer {}", server.token);
    let head =
        connection.request("HEAD", "/rest/events/stream", &[("authorization", &authorization)]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(connection.request("POST", "/rest/events/stream", &[]).status, 405);
}

#[test]
fn pruned_events_are_reported_once_with_their_ledgers() {
    let store = store(2..=80);
    let server = Server::start(&store);
    let all = stored(&server);
    let keep = Retention { events: Some(20), ..Retention::default() };
    while !store.store.prune(&keep).unwrap().is_nothing() {}
    let kept = stored(&server);
    let ledger = |event: &Value| event["ledger"].as_u64().unwrap();
    let id = |event: &Value| event["id"].as_u64().unwrap();
    assert!(kept.iter().all(|event| ledger(event) > 60) && !kept.is_empty());
    let last_lost = id(&kept[0]) - 1;
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let some = rng.random_range(1..last_lost);
    for after in [0, 1, some, last_lost - 1, last_lost, last_lost + 1] {
        let mut reader = open(&server, "", Some(&after.to_string()));
        let lost: Vec<_> =
            all.iter().filter(|it| (after + 1..=last_lost).contains(&id(it))).collect();
        if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
            let (kind, position, data) = reader.message().unwrap();
            assert_eq!((kind.as_str(), position), ("gap", last_lost.to_string()));
            assert_eq!(data["from"], first["ledger"], "after {after}");
            assert_eq!(data["to"], last["ledger"]);
            assert_eq!(data["events"], lost.len());
        }
        let rest: Vec<_> = kept.iter().filter(|event| id(event) > after).collect();
        assert!(reader.events(rest.len()).iter().eq(rest));
    }
    // A client that received the gap resumes behind it.
    let mut reader = open(&server, "", Some("0"));
    assert_eq!(reader.message().unwrap().0, "gap");
    let mut again = open(&server, "", Some(&reader.last_id));
    assert!(again.events(kept.len()).iter().eq(&kept));
}

/// By their ids, ledgers that were backfilled and removed again lie between those that are kept.
#[test]
fn gaps_are_reported_at_their_position() {
    let store = store(61..=80);
    add(&store, 40..=45, Durability::Synced);
    add(&store, 81..=90, Durability::Synced);
    add(&store, 20..=25, Durability::Synced);
    let server = Server::start(&store);
    let all = stored(&server);
    let keep = Retention { events: Some(30), ..Retention::default() };
    while !store.store.prune(&keep).unwrap().is_nothing() {}
    let mut reader = open(&server, "", Some("0"));
    let (mut seen, mut gaps) = (0, Vec::new());
    while seen < all.len() as u64 {
        let (kind, position, data) = reader.message().unwrap();
        let position: u64 = position.parse().unwrap();
        match kind.as_str() {
            "gap" => {
                gaps.push((data["from"].as_u64().unwrap(), data["to"].as_u64().unwrap()));
                seen += data["events"].as_u64().unwrap();
            }
            _ => {
                assert_eq!(data, all[seen as usize]);
                seen += 1;
            }
        }
        assert_eq!(position, seen, "no event is skipped silently");
    }
    assert_eq!(gaps.len(), 2, "{gaps:?}");
    assert!((40..=45).contains(&gaps[0].0) && (20..=25).contains(&gaps[1].1), "{gaps:?}");
}

/// Ledgers that are older than what retention removed, and stored after it, are sent like all others.
#[test]
fn older_ledgers_that_are_stored_after_a_prune_are_sent() {
    let store = store(41..=80);
    let keep = Retention { events: Some(20), ..Retention::default() };
    while !store.store.prune(&keep).unwrap().is_nothing() {}
    let server = Server::start(&store);
    let newest = store.store.ends().last_event_id.0;
    let mut resumed = open(&server, "", Some(&newest.to_string()));
    add(&store, 2..=40, Durability::Synced);
    let all = stored(&server);
    let older: Vec<_> = all.iter().filter(|event| event["id"].as_u64().unwrap() > newest).collect();
    assert!(older.len() > 10);
    assert!(resumed.events(older.len()).iter().eq(older.iter().copied()));
    let mut again = open(&server, "", Some(&newest.to_string()));
    assert!(again.events(older.len()).iter().eq(older));
}

#[test]
fn events_are_streamed_only_once_they_are_durable() {
    let store = store(2..=20);
    let server = Server::start_with(&store, |deps| {
        deps.settings.tunables.stream_heartbeat = Duration::from_millis(50);
    });
    let durable = stored(&server).len();
    let mut reader = open(&server, "", Some("0"));
    reader.events(durable);
    let mut news = open(&server, "", None);
    add(&store, 21..=30, Durability::Deferred);
    let all = stored(&server);
    assert!(all.len() > durable, "the event routes have them already");
    for _ in 0..5 {
        assert!(matches!(reader.next(), StreamItem::Nothing), "heartbeats and nothing else");
        assert!(matches!(news.next(), StreamItem::Nothing));
    }
    store.store.flush().unwrap();
    assert_eq!(reader.events(all.len() - durable), all[durable..]);
    assert_eq!(news.events(all.len() - durable), all[durable..]);
}

#[test]
fn a_stream_without_matches_reports_its_position() {
    let store = store(2..=20);
    let server = Server::start_with(&store, |deps| {
        deps.settings.tunables.stream_heartbeat = Duration::from_millis(30);
    });
    // ScVal::Symbol("no_such_event"), which no event of the sandbox has.
    let query = "topic1=AAAADwAAAA1ub19zdWNoX2V2ZW50AAAA";
    let mut reader = open(&server, query, Some("0"));
    let mut positions = vec![reader.position()];
    let wanted = stored(&server).len() as u64;
    wait_until("it reports its position", || {
        positions.push(reader.position());
        positions.last() == Some(&wanted)
    });
    add(&store, 21..=22, Durability::Synced);
    let wanted = stored(&server).len() as u64;
    wait_until("it reports the position of new events", || reader.position() == wanted);
    assert!(positions.is_sorted());
}

#[test]
fn streams_end_when_their_token_expires_or_the_service_stops() {
    let store = store(2..=20);
    let clock = Arc::new(Mutex::new(now()));
    let reads = Arc::clone(&clock);
    let mut server = Server::start_with(&store, |deps| {
        deps.clock = Arc::new(move || *reads.lock().unwrap());
    });
    let last_words = |reader: &mut Reader| loop {
        match reader.next() {
            StreamItem::Comment(text) => {
                assert_eq!(reader.next(), StreamItem::End);
                break text;
            }
            StreamItem::Nothing => {}
            other => panic!("{other:?}"),
        }
    };
    let issue = |days| {
        let request = IssueRequest { days, ..IssueRequest::for_owner("somebody") };
        server.tokens.issue(&request).unwrap()
    };
    let (short, taken_back) = (issue(1), issue(100));
    let mut expiring = Reader::open(server.address, &short.token, "", None).unwrap();
    let mut revoked = Reader::open(server.address, &taken_back.token, "", None).unwrap();
    let mut lasting = open(&server, "", None);
    server.tokens.revoke(&taken_back.claims.jti).unwrap();
    assert!(last_words(&mut revoked).contains("revoked"));
    assert_eq!(
        Reader::open(server.address, &taken_back.token, "", None).err().unwrap().status,
        401
    );
    *clock.lock().unwrap() += 2 * 86_400;
    assert!(last_words(&mut expiring).contains("expired"));
    server.begin_stop();
    assert!(last_words(&mut lasting).contains("stopping"));
    server.finish_stop();
}

#[test]
fn a_ticket_opens_streams_for_a_minute_and_they_outlast_it() {
    let store = store(2..=20);
    let clock = Arc::new(Mutex::new(now()));
    let reads = Arc::clone(&clock);
    let server = Server::start_with(&store, |deps| {
        deps.clock = Arc::new(move || *reads.lock().unwrap());
    });
    let token = server.tokens.issue(&IssueRequest::for_owner("page")).unwrap();
    let authorization = format!("Bearer {}", token.token);
    let ask = |headers: &[(&str, &str)]| {
        server.connect().request("POST", "/rest/events/stream/ticket", headers)
    };
    assert_eq!(ask(&[]).status, 401);
    let given = ask(&[("authorization", &authorization)]).json();
    assert_eq!(given["expires_in"], 60);
    let ticket = given["ticket"].as_str().unwrap();
    let opened = |query: &str, lines: &str| {
        Reader::open_with(server.address, query, lines).map_err(|refused| refused.status)
    };
    let query = format!("ticket={ticket}&last_event_id=0");
    let all: Vec<Value> = stored(&server);
    let mut reader = opened(&query, "").unwrap();
    let first = |reader: &mut Reader| reader.events(1).remove(0);
    assert_eq!(first(&mut reader), all[0]);
    // A browser that connects again sends the header with what it has received.
    assert_eq!(first(&mut opened(&query, "last-event-id: 3\r\n").unwrap())["id"], 4);
    // A ticket is no token, stands for nothing elsewhere, and is not mixed with headers.
    let bearer = format!("authorization: Bearer {ticket}\r\n");
    assert_eq!(opened("", &bearer).err(), Some(401));
    let elsewhere = format!("/rest/events/by-ledger?ticket={ticket}");
    assert_eq!(server.get_public(&elsewhere).status, 401);
    assert_eq!(opened("ticket=x", "").err(), Some(401));
    let twice = format!("authorization: Bearer {0}\r\nauthorization: Bearer {0}\r\n", token.token);
    assert_eq!(opened(&query, &twice).err(), Some(401));
    assert_eq!(opened(&format!("{query}&last_event_id=1"), "").err(), Some(400));
    assert_eq!(opened(&format!("ticket={ticket}&last_event_id=x"), "").err(), Some(400));
    *clock.lock().unwrap() += 61;
    assert_eq!(opened(&query, "").err(), Some(401), "it has expired");
    // The stream goes on, until the token ends.
    assert_eq!(first(&mut reader), all[1]);
    server.tokens.revoke(&token.claims.jti).unwrap();
    let mut last = String::new();
    loop {
        match reader.next() {
            StreamItem::End => break,
            StreamItem::Comment(text) => last = text,
            _ => {}
        }
    }
    assert!(last.contains("revoked"), "{last}");
}

/// Where everyone may read: callers without a token have half of all streams, and an address a quarter
/// of those of an owner.
#[test]
fn streams_without_a_token_leave_owners_theirs() {
    let store = store(2..=20);
    let budgets = BudgetUsage::default();
    let server = Server::start_with(&store, |deps| {
        budgets.watch(deps);
        deps.settings.http.public_read = true;
        deps.settings.limits.streams = nonzero!(16);
        deps.settings.limits.streams_per_token = nonzero!(8);
    });
    let open_without = || Reader::open_with(server.address, "", "last-event-id: 0\r\n");
    let mut strangers: Vec<_> = (0..2).map(|_| open_without().unwrap()).collect();
    let refused = open_without().err().unwrap();
    assert_eq!(refused.status, 429);
    assert!(refused.body.contains("too many streams at a time"), "{}", refused.body);
    wait_until("both are counted", || budgets.of(&server, "strangers_streams").taken == 2);
    let owned: Vec<_> = (0..6).map(|_| open(&server, "", None)).collect();
    // They tell the same as those of owners.
    let all = stored(&server);
    assert_eq!(strangers[0].events(all.len()), all);
    let wrong = Reader::open(server.address, "not.a.token", "", None).err().unwrap();
    assert_eq!(wrong.status, 401);
    drop((strangers, owned));
    for name in ["streams", "strangers_streams", "strangers_readers", "bytes"] {
        wait_until(name, || budgets.of(&server, name).taken == 0);
    }
}

#[test]
fn streams_have_their_own_limits_and_release_their_slots() {
    let store = store(2..=20);
    let budgets = BudgetUsage::default();
    let server = Server::start_with(&store, |deps| {
        budgets.watch(deps);
        deps.settings.limits.streams = nonzero!(6);
        deps.settings.limits.streams_per_token = nonzero!(3);
        // Streams use up neither of these.
        deps.settings.limits.requests_in_flight = nonzero!(2);
        deps.settings.tunables.readers = 1;
        deps.settings.tunables.stream_heartbeat = Duration::from_millis(50);
    });
    let mut readers: Vec<_> = (0..3).map(|_| open(&server, "", None)).collect();
    let refused = Reader::open(server.address, &server.token, "", None).err().unwrap();
    assert_eq!(refused.status, 429);
    assert!(refused.body.contains("too many streams at a time"), "{}", refused.body);
    assert!(!stored(&server).is_empty(), "other requests are answered");
    for name in ["streams", "bytes", "readers"] {
        let expected = match name {
            "streams" => 3,
            "bytes" => 3 * (64 << 10),
            _ => 0,
        };
        wait_until(name, || budgets.of(&server, name).taken == expected);
    }
    // Closing a connection frees its slot.
    drop(readers.pop());
    wait_until("its place is free", || budgets.of(&server, "streams").taken == 2);
    let mut another = open(&server, "", None);
    another.position();
    drop((readers, another));
    for name in ["streams", "bytes"] {
        wait_until(name, || budgets.of(&server, name).taken == 0);
    }
}

/// Adds more bytes of events than all buffers of a connection hold, and about three times as many
/// as all streams share in memory. Returns the approximate number of bytes when they are sent.
fn add_many_bytes(store: &TempStore) -> usize {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let universe = Universe::random(&mut rng);
    let (mut previous, mut bytes) = ([0; 32], 0);
    for sequence in 2..=4 {
        let mut ledger = universe.dense_ledger(&mut rng, sequence, previous);
        ledger.events.iter_mut().for_each(|event| event.data = vec![7; 10_000]);
        bytes += 4 * 10_000 / 3 * ledger.events.len();
        previous = ledger.hash;
        let options = IndexOptions { classic_events: true, ..IndexOptions::default() };
        store.store.commit(ledger.prepare(&options), Durability::Synced).unwrap();
    }
    bytes
}

#[test]
fn a_stream_that_falls_behind_continues_from_the_store() {
    let store = TempStore::new(&CHAIN.network);
    let budgets = BudgetUsage::default();
    let server = Server::start_with(&store, |deps| budgets.watch(deps));
    let mut readers = [open(&server, "", None), open(&server, "", Some("0"))];
    let bytes = add_many_bytes(&store);
    let newest = store.store.ends().last_event_id.0 as usize;
    let mut most = 0;
    for part in 0..4 {
        most = most.max(budgets.of(&server, "bytes").taken as usize);
        for reader in &mut readers {
            let (from, to) = (part * newest / 4, (part + 1) * newest / 4);
            let events = reader.events(to - from);
            let ids = events.iter().map(|event| event["id"].as_u64().unwrap() as usize);
            assert!(ids.eq(from + 1..=to));
        }
    }
    assert!(bytes > 2 * most && most < 20 << 20, "{most} bytes are held of {bytes}");
    drop(readers);
    wait_until("nothing is kept for nobody", || budgets.of(&server, "bytes").taken == 0);
}

#[test]
fn a_stalled_reader_is_disconnected_and_can_resume() {
    let store = TempStore::new(&CHAIN.network);
    let bytes = add_many_bytes(&store);
    let budgets = BudgetUsage::default();
    let server = Server::start_with(&store, |deps| {
        budgets.watch(deps);
        deps.settings.limits.answer_seconds = Seconds::new(nonzero!(1));
        deps.settings.limits.answer_kib_per_second = Kib::new(nonzero!(1 << 10));
    });
    let mut slow = open(&server, "", Some("0"));
    let mut seen = slow.events(3);
    let mut most = 0;
    wait_until("it is given up", || {
        most = most.max(budgets.of(&server, "bytes").taken);
        budgets.of(&server, "streams").taken == 0
    });
    assert!(bytes > 60 << 20 && most <= 1 << 20, "{most} bytes are held for a stream of {bytes}");
    // The client reads what was sent, and later streams send the rest, in as many pieces as it
    // takes.
    let newest = store.store.ends().last_event_id.0 as usize;
    let (mut reader, mut streams) = (slow, 1);
    loop {
        while seen.len() < newest
            && let Some((kind, _, data)) = reader.message()
        {
            assert_eq!(kind, "message");
            assert_eq!(data["id"], seen.len() + 1, "nothing is left out, and nothing comes twice");
            seen.push(data);
        }
        if seen.len() == newest {
            break;
        }
        streams += 1;
        reader = open(&server, "", Some(&reader.last_id));
    }
    assert!(streams > 1, "it was given up in the middle");
}

#[test]
fn many_concurrent_streams_are_all_complete() {
    let streams = size::choose(60, 1000) as usize;
    let store = store(2..=40);
    let budgets = BudgetUsage::default();
    let server = Server::start_with(&store, |deps| {
        budgets.watch(deps);
        deps.settings.http.connections = nonzero!(3000);
        deps.settings.limits.connections_per_address = nonzero!(3000);
        deps.settings.limits.streams = u32::try_from(2 * streams).unwrap().try_into().unwrap();
        deps.settings.limits.streams_per_token =
            u32::try_from(streams).unwrap().try_into().unwrap();
        deps.settings.limits.bytes_in_flight_per_token_mib = Mib::new(nonzero!(200));
    });
    let before = stored(&server);
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut readers: Vec<_> = (0..streams)
        .map(|number| {
            let (query, matches) = filter(&mut rng, &before);
            let after = if number % 3 == 0 { before.len() / 2 } else { before.len() };
            (open(&server, &query, Some(&after.to_string())), matches, after as u64)
        })
        .collect();
    wait_until("all of them are there", || budgets.of(&server, "streams").taken == streams as u64);
    let began = Instant::now();
    add(&store, 41..=LAST, Durability::Synced);
    let all = stored(&server);
    for (reader, matches, after) in &mut readers {
        let wanted = |event: &&Value| event["id"].as_u64().unwrap() > *after && matches(event);
        let expected: Vec<_> = all.iter().filter(wanted).collect();
        assert!(reader.events(expected.len()).iter().eq(expected));
    }
    println!("{streams} streams had all of {} events after {:?}", all.len(), began.elapsed());
}
