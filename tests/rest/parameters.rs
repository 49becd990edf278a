//! Invalid values for every parameter of every route: each is answered with a 400 that names the
//! parameter.

use orrery::api::{Access, ApiSettings};
use orrery::settings::UnknownParameters;
use orrery_testkit::http::Answer;
use orrery_testkit::pubnet;
use orrery_testkit::server::{Server, TempStore};

const CONTRACT: &str = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";
// Base64 of `ScVal::Symbol("transfer")`.
const TOPIC: &str = "AAAADwAAAAh0cmFuc2Zlcg==";

const NUMBERS: [&str; 12] =
    ["", "-1", "-0", "%2B1", "+1", "1+", "1.0", "1e3", "0x10", "ten", "%31%00", "%EF%BC%91"];

fn long(unit: &str, count: usize) -> String {
    vec![unit; count].join(",")
}

/// Invalid values of a parameter.
fn wrong_values(name: &str, route: &str) -> Vec<String> {
    let mut wrong: Vec<String> = match name {
        "cursor" if route.starts_with("/rest/txs") => {
            vec!["", "0", "-1", "zz", "0x", "%20"].into_iter().map(String::from).collect()
        }
        "limit" | "offset" | "cursor" | "from" | "to" => NUMBERS.map(String::from).to_vec(),
        "order" => ["", "ASC", "up", "asc,desc", "%20asc", "1"].map(String::from).to_vec(),
        "combine" | "decoded" => ["", "1", "yes", "TRUE"].map(String::from).to_vec(),
        "topics_match" => ["", "some", "ALL", "0"].map(String::from).to_vec(),
        "contracts" => vec![
            String::new(),
            ",".into(),
            format!(",{CONTRACT}"),
            format!("{CONTRACT},,{CONTRACT}"),
            format!("{CONTRACT};{CONTRACT}"),
            CONTRACT.to_lowercase(),
            CONTRACT[..55].into(),
            format!("{CONTRACT}A"),
            "GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ".into(),
            "-1".into(),
            long(CONTRACT, 201),
            "A".repeat(20_000),
        ],
        "topics" => vec![
            String::new(),
            ",".into(),
            format!("{TOPIC},"),
            format!("{TOPIC},x%20y"),
            "transfer!".into(),
            "u32:4294967296".into(),
            "vec:1".into(),
            "-1".into(),
            long(TOPIC, 17),
            "A".repeat(20_000),
        ],
        "address" => vec![
            String::new(),
            "transfer".into(),
            TOPIC.into(),
            CONTRACT.to_lowercase(),
            format!("address:{CONTRACT}"),
            format!("{CONTRACT},{CONTRACT}"),
            "A".repeat(20_000),
        ],
        _ => vec![
            String::new(),
            "x%20y".into(),
            format!("{TOPIC},{TOPIC}"),
            "bytes:0".into(),
            "A".repeat(20_000),
        ],
    };
    if name == "limit" {
        wrong.extend(["0", "00", "000000"].map(String::from));
    }
    wrong.extend(["%FF", "%C3%28", "%ED%A0%80", "a%FF"].map(String::from));
    wrong
}

/// Routes, the query string that each requires, and their parameters.
fn routes() -> Vec<(String, String, Vec<&'static str>)> {
    const PAGE: [&str; 4] = ["limit", "offset", "cursor", "order"];
    const RANGE: [&str; 2] = ["from", "to"];
    const TOPICS: [&str; 7] =
        ["topics", "topics_match", "combine", "topic1", "topic2", "topic3", "topic4"];
    const ADDRESS: [&str; 2] = ["address", "decoded"];
    let needed = format!("contracts={CONTRACT}");
    let mut routes = Vec::new();
    for area in ["events", "txs"] {
        let (topics, address): (&[&str], &[&str]) =
            if area == "events" { (&TOPICS, &ADDRESS) } else { (&[], &[]) };
        let mut add = |path: &str, needed: &str, own: &[&[&'static str]]| {
            let names = own.iter().copied().flatten().chain(&PAGE).copied().collect();
            routes.push((format!("/rest/{area}/{path}"), needed.to_owned(), names));
        };
        add("by-ledger", "", &[&RANGE, address]);
        add(&format!("by-contract/{CONTRACT}"), "", &[&RANGE, topics, address]);
        add("by-contracts", &needed, &[&["contracts"], address]);
        add("by-ledger/contracts", &needed, &[&["contracts"], &RANGE, address]);
    }
    let by_address = format!("/rest/events/by-address/{CONTRACT}");
    let names = vec!["limit", "cursor", "order", "from", "to", "contracts", "decoded"];
    routes.push((by_address, String::new(), names));
    routes
}

fn server() -> (Server, TempStore) {
    let store = TempStore::new(&pubnet::network());
    (Server::start(&store), store)
}

fn assert_refused(answer: &Answer, name: &str, target: &str) {
    let sentence = answer.error(400, "bad_parameter");
    assert!(sentence.contains(&format!("'{name}'")), "{target}: {sentence}");
    assert!(sentence.len() < 400, "{target}: hostile values are shortened");
}

#[test]
fn invalid_values_are_refused_with_the_parameter_name() {
    let (server, _store) = server();
    let authorization = format!("Bearer {}", server.token);
    let mut connection = server.connect();
    let mut asked = 0;
    for (path, needed, names) in routes() {
        for name in names {
            let others = if name == "contracts" { "" } else { &needed };
            for value in wrong_values(name, &path) {
                let target = format!("{path}?{others}&{name}={value}");
                let answer =
                    connection.request("GET", &target, &[("authorization", &authorization)]);
                assert_refused(&answer, name, &target);
                asked += 1;
            }
            let twice = match name {
                "contracts" | "address" => CONTRACT,
                "order" => "asc",
                _ => "1",
            };
            for target in [
                format!("{path}?{others}&{name}={twice}&{name}={twice}"),
                format!(
                    "{path}?{others}&{name}={twice}&%{:02x}{}=",
                    name.as_bytes()[0],
                    &name[1..]
                ),
                format!("{path}?{others}&{name}"),
            ] {
                let answer =
                    connection.request("GET", &target, &[("authorization", &authorization)]);
                assert_refused(&answer, name, &target);
                asked += 1;
            }
        }
    }
    assert!(asked > 600, "{asked}");
}

#[test]
fn missing_parameters_are_refused() {
    let (server, _store) = server();
    for area in ["events", "txs"] {
        for path in ["by-contracts", "by-ledger/contracts"] {
            let target = format!("/rest/{area}/{path}?limit=1");
            assert_refused(&server.get(&target), "contracts", &target);
        }
    }
}

/// Every route of a service, as a path with example values.
fn all_routes() -> Vec<(&'static str, String, Access)> {
    let settings = ApiSettings::default();
    let routes = orrery::api::routes(&settings).map(|route| {
        let segment = |segment: &'static str| match segment {
            "{contract_id}" | "{contractId}" | "{address}" => CONTRACT.to_owned(),
            "{tx_hex}" | "{credentialId}" => "ab".repeat(32),
            "{*rest}" => "nothing".into(),
            _ if segment.starts_with('{') => "1".into(),
            _ => segment.into(),
        };
        let path: Vec<_> = route.template.split('/').map(segment).collect();
        (route.method, path.join("/"), route.access())
    });
    routes.collect()
}

#[test]
fn unknown_parameters_are_refused_by_every_route_that_selects() {
    let (server, _store) = server();
    let authorization = format!("Bearer {}", server.token);
    // Probes and pages are called through links and by programs that add parameters of their own.
    let ignoring = |path: &str, access: Access| {
        !path.starts_with("/rest/") || path.ends_with("/nothing") || matches!(access, Access::Probe)
    };
    let mut refused = 0;
    for (method, path, access) in
        all_routes().into_iter().filter(|(_, path, _)| path != "/friendbot")
    {
        let target = format!("{path}?limt=%FF");
        let answer =
            server.connect().request(method, &target, &[("authorization", &authorization)]);
        if ignoring(&path, access) {
            assert_ne!(answer.status, 400, "{method} {target}");
            continue;
        }
        let sentence = answer.error(400, "unknown_parameter");
        assert!(sentence.contains("there is no parameter 'limt'"), "{target}: {sentence}");
        refused += 1;
    }
    assert!(refused > 40, "{refused}");
}

#[test]
fn mistyped_filters_are_answered_with_the_nearest_name() {
    let (server, _store) = server();
    for (target, nearest) in [
        (format!("/rest/events/by-contract/{CONTRACT}?limt=1"), "limit"),
        (format!("/rest/events/by-contract/{CONTRACT}?topic={TOPIC}"), "topic"),
        (format!("/rest/events/by-contracts?contrct={CONTRACT}"), "contracts"),
        (format!("/rest/events/stream?contrct_id={CONTRACT}"), "contract_id"),
        (format!("/rest/events/by-ledger?adress={CONTRACT}"), "address"),
        ("/rest/txs/by-ledger?form=3".into(), "from"),
        ("/rest/retroshade/1/stats?sauce=live".into(), "source"),
        ("/rest/webhooks/1/deliveries?state=dead".into(), "status"),
    ] {
        let sentence = server.get(&target).error(400, "unknown_parameter");
        assert!(sentence.contains(&format!("did you mean '{nearest}")), "{target}: {sentence}");
    }
    // Neither a missing token nor a missing route is hidden by it.
    assert_eq!(server.get_public("/rest/events/by-ledger?limt=1").status, 401);
    assert_eq!(server.get("/rest/events/by-legder?limt=1").status, 404);
}

#[test]
fn unknown_parameters_can_be_ignored() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.settings.http.unknown_parameters = UnknownParameters::Ignore;
    });
    let target = "/rest/events/by-ledger?limit=1&unknown=%FF&unknown=2&LIMIT=x&topics=x&=&&";
    assert_eq!(server.get(target).status, 200);
    assert_refused(&server.get("/rest/events/by-ledger?x=1&limit=0"), "limit", "limit=0");
}

/// Sends a JSON body with the server's token.
fn post(server: &Server, target: &str, body: &str) -> Answer {
    let mut connection = server.connect();
    let head = format!(
        "POST {target} HTTP/1.1\r\nhost: orrery\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        server.token,
        body.len()
    );
    connection.send(head.as_bytes()).unwrap();
    connection.answer(false)
}

/// A mistyped member is never silently nothing.
#[test]
fn unknown_members_of_a_body_are_refused_by_every_route() {
    let (server, _store) = server();
    let mut refused = 0;
    for (_, path, _) in all_routes().into_iter().filter(|(method, ..)| *method == "POST") {
        // JSON-RPC ignores what it does not know; a ticket has no body; what is replayed belongs to
        // someone, which is looked up first.
        if !path.starts_with("/rest/") || path.ends_with("/ticket") || path.ends_with("/replay") {
            continue;
        }
        let sentence = post(&server, &path, r#"{"zzz":1}"#).error(400, "unknown_parameter");
        assert!(sentence.contains("there is no parameter 'zzz'"), "{path}: {sentence}");
        refused += 1;
    }
    assert!(refused > 15, "{refused}");
    for (path, members, nearest) in [
        ("retroshade/watch", r#"{"project_name":"p","contracts":[],"specs":[]}"#, "spec"),
        ("retroshade/watch", r#"{"project_name":"p","contracts":[],"form":5}"#, "from"),
        ("retroshade/deploy", r#"{"projectname":"p"}"#, "project_name"),
        ("retroshade/try", r#"{"transaction":[]}"#, "transactions"),
        ("retroshade/query", r#"{"query":"select 1","max_row":1}"#, "max_rows"),
        ("retroshade/subscribe", r#"{"projects":"p"}"#, "project"),
        ("retroshade/1/backfill", r#"{"form":1,"to":2}"#, "from"),
        ("webhooks/new", r#"{"webhook_endpoint":"https://a.example","topic_1":"x"}"#, "topic1"),
    ] {
        let answer = post(&server, &format!("/rest/{path}"), members);
        let sentence = answer.error(400, "unknown_parameter");
        assert!(sentence.contains(&format!("did you mean '{nearest}'?")), "{path}: {sentence}");
    }
    for (path, body) in [("retroshade/1/pause", ""), ("webhooks/1/test", "{}")] {
        post(&server, &format!("/rest/{path}"), body).error(404, "not_found");
    }
}

#[test]
fn unknown_members_of_a_body_can_be_ignored() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.settings.http.unknown_parameters = UnknownParameters::Ignore;
    });
    let sentence = post(&server, "/rest/retroshade/subscribe", r#"{"projects":"p"}"#)
        .error(400, "bad_request");
    assert!(sentence.contains("'project' is missing"), "{sentence}");
}

/// It would be the name of an event, which none ever has.
#[test]
fn a_topic_of_xdr_that_was_cut_is_no_symbol() {
    let (server, _store) = server();
    let longer = format!("{}AAAA", &TOPIC[..20]);
    for topic in ["AAAA", &TOPIC[..12], &TOPIC[..TOPIC.len() - 3], &longer] {
        for target in [
            format!("/rest/events/by-contract/{CONTRACT}?topics={topic}"),
            format!("/rest/events/by-contract/{CONTRACT}?topic1={topic}"),
            format!("/rest/events/stream?topic2={topic}"),
        ] {
            let sentence = server.get(&target).error(400, "bad_parameter");
            assert!(sentence.contains("begins as XDR does"), "{target}: {sentence}");
        }
        let body = format!(
            r#"{{"webhook_endpoint":"https://a.example","contract_ids":["{CONTRACT}"],"topic1":"{topic}"}}"#
        );
        let sentence = post(&server, "/rest/webhooks/new", &body).error(400, "bad_request");
        assert!(sentence.contains("begins as XDR does"), "{topic}: {sentence}");
    }
}

#[test]
fn long_lists_may_be_sent_as_a_body() {
    let ledgers = pubnet::made();
    let store = pubnet::store_of(&ledgers.0, &ledgers.1);
    let server = Server::start(&store);
    let events = server.get("/rest/events/by-ledger?limit=1000").json();
    let mut contracts: Vec<_> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["contract_id"].as_str().unwrap())
        .filter(|it| !it.is_empty())
        .collect();
    contracts.sort_unstable();
    contracts.dedup();
    contracts.truncate(200);
    let list = contracts.join(",");
    for (path, more) in [
        ("events/by-contracts", ""),
        ("events/by-ledger/contracts", "&from=1"),
        ("txs/by-contracts", ""),
        ("txs/by-ledger/contracts", "&to=4294967295"),
    ] {
        let asked = server.get(&format!("/rest/{path}?limit=7&order=asc&contracts={list}{more}"));
        assert_eq!(asked.status, 200);
        let mut members = serde_json::json!({ "limit": 7, "order": "asc", "contracts": contracts });
        if let Some((name, value)) = more.trim_start_matches('&').split_once('=') {
            members[name] = value.into();
        }
        let sent = post(&server, &format!("/rest/{path}"), &members.to_string());
        assert_eq!((sent.status, &sent.body), (200, &asked.body), "{path}");
        // Parameters may stand in either place, but only once.
        let both = post(&server, &format!("/rest/{path}?limit=7"), &members.to_string());
        assert_refused(&both, "limit", path);
        let unknown = post(&server, &format!("/rest/{path}"), r#"{"contrcts":[]}"#);
        assert!(unknown.error(400, "unknown_parameter").contains("did you mean 'contracts'?"));
        let other = serde_json::json!({ "contracts": [contracts[0]] }).to_string();
        assert_ne!(
            post(&server, &format!("/rest/{path}"), &other).body,
            sent.body,
            "no cached body"
        );
    }
}

#[test]
fn invalid_path_values_are_refused_with_the_parameter_name() {
    let (server, _store) = server();
    for value in [
        "C",
        "-1",
        "%20",
        "%FF",
        "%C3%28",
        "a%2Fb",
        "null",
        "0x",
        &"A".repeat(9000),
        &CONTRACT.to_lowercase(),
        &format!("{CONTRACT}A"),
        &"zz".repeat(32),
        &"ab".repeat(31),
        &"ab".repeat(33),
        &format!("0x0x{}", "ab".repeat(32)),
        &format!("%20{}", "ab".repeat(32)),
    ] {
        for (path, name) in [
            ("/rest/events/by-contract", "contract_id"),
            ("/rest/txs/by-contract", "contract_id"),
            ("/rest/events/by-tx", "tx_hex"),
            ("/rest/events/by-address", "address"),
            ("/rest/txs/by-hash", "tx_hex"),
        ] {
            let target = format!("{path}/{value}");
            assert_refused(&server.get(&target), name, &target);
        }
    }
}

#[test]
fn unusual_encodings_of_valid_values_are_accepted() {
    let (server, _store) = server();
    let plus = "AAAAAwAA%2B/s=";
    for target in [
        "/rest/events/by-ledger?limit=1000000&from=00001&to=99999999999999999999&offset=0"
            .to_owned(),
        "/rest/events/by-ledger?&limit=1&&".into(),
        "/rest/events/by-ledger/?%6Cimit=%31".into(),
        "/rest/%65vents/by-ledger?".into(),
        format!("/rest/events/by-contracts?contracts={CONTRACT},"),
        format!("/rest/events/by-contracts?contracts={}", long(CONTRACT, 200)),
        format!("/rest/events/by-contracts?contracts={}", long(CONTRACT, 200).replace(',', "%2C")),
        format!("/rest/events/by-contract/{CONTRACT}?topics={plus}&topic1={TOPIC}"),
        format!("/rest/events/by-contract/{CONTRACT}?topics={}", plus.replace("%2B", "+")),
        format!("/rest/events/by-contract/{CONTRACT}?topics={}", plus.replace("%2B", "%20")),
        format!("/rest/events/by-contract/{CONTRACT}?topics={}", long(TOPIC, 16)),
        format!("/rest/txs/by-hash/0x{}", "aB".repeat(32)),
    ] {
        let answer = server.get(&target);
        assert_eq!((answer.status, &answer.body[..]), (200, &b"[]"[..]), "{target}");
    }
}

#[test]
fn an_unknown_cursor_is_refused() {
    let (server, _store) = server();
    let hash = "Ab".repeat(32);
    for target in [
        format!("/rest/txs/by-ledger?cursor={hash}"),
        format!("/rest/txs/by-ledger?cursor=0x{hash}&from=2&to=1"),
        format!("/rest/txs/by-contract/{CONTRACT}?cursor={hash}"),
        format!("/rest/txs/by-contracts?contracts={CONTRACT}&cursor={hash}"),
    ] {
        let sentence = server.get(&target).error(400, "unknown_cursor");
        assert!(sentence.contains(&hash.to_lowercase()), "{sentence}");
    }
}
