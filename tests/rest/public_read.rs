//! `http.public_read`: the routes that it opens to callers without a token, and none else.

use std::collections::BTreeSet;

use orrery::api::{self, Access, ApiSettings};
use orrery::settings::{Http, UnknownParameters, nonzero};
use serde_json::Value;

use orrery_testkit::pubnet;
use orrery_testkit::server::{Server, TempStore};

const CONTRACT: &str = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";

/// Everything that the setting opens. A route is added here only if it tells all callers the same, and
/// nothing that belongs to an owner.
const OPENED: [&str; 26] = [
    "GET /api/contract/{contract_id}/keys",
    "GET /api/contract/{contract_id}/storage",
    "GET /rest/contracts/labels",
    "GET /rest/contracts/named",
    "GET /rest/contracts/{contract_id}",
    "GET /rest/contracts/{contract_id}/storage",
    "GET /rest/contracts/{contract_id}/storage/changes",
    "GET /rest/contracts/{contract_id}/storage/{key_hash}",
    "GET /rest/contracts/{contract_id}/storage/{key_hash}/history",
    "GET /rest/events/by-address/{address}",
    "GET /rest/events/by-contract/{contract_id}",
    "GET /rest/events/by-contracts",
    "GET /rest/events/by-id/{id}",
    "GET /rest/events/by-ledger",
    "GET /rest/events/by-ledger/contracts",
    "GET /rest/events/by-tx/{tx_hex}",
    "GET /rest/events/stream",
    "GET /rest/txs/by-contract/{contract_id}",
    "GET /rest/txs/by-contracts",
    "GET /rest/txs/by-hash/{tx_hex}",
    "GET /rest/txs/by-hash/{tx_hex}/changes",
    "GET /rest/txs/by-ledger",
    "GET /rest/txs/by-ledger/contracts",
    "GET /rest/txs/{tx_hex}/storage",
    "GET /{network}/api/contract/{contract_id}/keys",
    "GET /{network}/api/contract/{contract_id}/storage",
];

fn server(is_public_read: bool) -> (Server, TempStore) {
    let store = TempStore::with_storage(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.settings.http.public_read = is_public_read;
        // Routes that would not end, or need a parameter, answer all the same.
        deps.settings.http.unknown_parameters = UnknownParameters::Refuse;
    });
    (server, store)
}

/// A request to a route, with a parameter that none has: a stream would not end otherwise.
fn target(template: &str) -> String {
    let path = ["{contract_id}", "{contractId}", "{address}"]
        .iter()
        .fold(template.to_owned(), |path, name| path.replace(name, CONTRACT));
    let path = path.replace("{tx_hex}", &"ab".repeat(32)).replace("{id}", "1");
    format!("{path}?nonsense=1")
}

/// Names of the routes that need a token by default, and of those of them that answer a caller
/// without one, or with this one, otherwise than with 401.
fn answered(server: &Server, token: Option<&str>) -> (BTreeSet<String>, BTreeSet<String>) {
    let authorization = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> =
        authorization.iter().map(|value| ("authorization", value.as_str())).collect();
    let (mut all, mut open) = (BTreeSet::new(), BTreeSet::new());
    for route in api::routes(&ApiSettings::default()) {
        if !matches!(route.access(), Access::Token(_)) {
            continue;
        }
        let name = format!("{} {}", route.method, route.template);
        let answer = server.connect().request(route.method, &target(route.template), &headers);
        if answer.status == 401 {
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{name}");
        } else {
            // Those outside of /rest ignore parameters that they do not have.
            let expected = match route.template {
                // It looks at the body first.
                "/mcp" => 415,
                template if template.starts_with("/api/") => 200,
                // The network of the path is none.
                template if template.starts_with("/{network}/") => 404,
                // This service exports nothing.
                template if template.starts_with("/iceberg/") => 404,
                _ => 400,
            };
            assert_eq!(answer.status, expected, "{name}: {answer:?}");
            open.insert(name.clone());
        }
        all.insert(name);
    }
    (all, open)
}

#[test]
fn exactly_these_routes_open_and_only_where_the_setting_says_so() {
    let opened: BTreeSet<_> = OPENED.map(str::to_owned).into();
    let (open, _store) = server(true);
    let (all, without) = answered(&open, None);
    assert!(all.len() > 40, "{all:?}");
    assert_eq!(without, opened);
    assert_eq!(answered(&open, Some("not.a.token")).1, BTreeSet::new(), "wrong ones are refused");
    let (closed, _store) = server(false);
    assert_eq!(answered(&closed, None).1, BTreeSet::new());
    // With a token nothing changes.
    let with = |server: &Server| answered(server, Some(&server.token)).1;
    assert_eq!(with(&open), with(&closed));
}

#[test]
fn the_description_and_the_route_table_name_the_same_routes() {
    let (on, off) = (Http { public_read: true, ..Http::default() }, Http::default());
    let mut opened = BTreeSet::new();
    for route in api::routes(&ApiSettings::default()) {
        assert_eq!(route.access_with(&off), route.access(), "{}", route.template);
        if route.access_with(&on) != route.access() {
            assert_eq!(route.access_with(&on), Access::Public);
            opened.insert(format!("{} {}", route.method, route.template));
        }
    }
    assert_eq!(opened, OPENED.map(str::to_owned).into());
    let yaml = include_str!("../../schema/openapi.yaml");
    let root: Value =
        serde_json::to_value(serde_yaml_ng::from_str::<serde_yaml_ng::Value>(yaml).unwrap())
            .unwrap();
    let mut described = BTreeSet::new();
    for (path, item) in root["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if operation["x-public-read"] == true {
                described.insert(format!("{} /rest{path}", method.to_uppercase()));
            }
        }
    }
    // The description is that of the routes under /rest.
    opened.retain(|route| route.starts_with("GET /rest/"));
    assert_eq!(described, opened);
}

#[test]
fn callers_without_a_token_read_the_same_as_owners() {
    let ledgers = pubnet::made();
    let store = pubnet::store_of(&ledgers.0, &ledgers.1);
    let server = Server::start_with(&store, |deps| deps.settings.http.public_read = true);
    let stream = "/rest/events/stream";
    for path in ["/rest/events/by-ledger?limit=5", "/rest/txs/by-ledger?limit=5"] {
        let (open, owned) = (server.get_public(path), server.get(path));
        assert_eq!((open.status, open.json()), (200, owned.json()), "{path}");
        assert!(!open.json().as_array().unwrap().is_empty(), "{path}");
    }
    // A ticket counts as a token.
    let ticket = server.get_public(&format!("{stream}?ticket=none"));
    assert!(ticket.error(401, "unauthorized").contains("ticket"));
    assert_eq!(server.connect().request("POST", &format!("{stream}/ticket"), &[]).status, 401);
}

/// The address is limited as on all public routes, and an owner is not held up by it.
#[test]
fn the_rate_limit_of_the_address_applies() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.settings.http.public_read = true;
        (deps.settings.limits.requests_per_second, deps.settings.limits.burst) = (1, 3);
    });
    for _ in 0..3 {
        assert_eq!(server.get_public("/rest/events/by-ledger").status, 200);
    }
    server.get_public("/rest/events/by-ledger").error(429, "too_many_requests");
    server.get_public("/rest/openapi.json").error(429, "too_many_requests");
    assert_eq!(server.get("/rest/events/by-ledger").status, 200);
}

/// Where there is only one stream at a time, it is for owners.
#[test]
fn callers_without_a_token_never_have_the_last_stream() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.settings.http.public_read = true;
        deps.settings.limits.streams = nonzero!(1);
    });
    server.get_public("/rest/events/stream").error(503, "busy");
    let mut stream = server.connect();
    let bearer = format!("Authorization: Bearer {}", server.token);
    let request = format!("GET /rest/events/stream HTTP/1.1\r\nHost: x\r\n{bearer}\r\n\r\n");
    stream.send(request.as_bytes()).unwrap();
    // Its body does not end.
    assert_eq!(stream.answer(true).status, 200);
}

/// The page says whether it needs a token.
#[test]
fn the_site_says_whether_reading_needs_a_token() {
    for is_public_read in [true, false] {
        let (server, _store) = server(is_public_read);
        let html = String::from_utf8(server.get_public("/").body).unwrap();
        let said = html.contains(" data-public-read>");
        assert_eq!(said, is_public_read, "{html}");
        assert!(html.contains("<html lang=\"en\""), "{html}");
    }
}
