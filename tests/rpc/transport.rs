//! The RPC route of the built binary: transport of calls, batches and notifications, rejected
//! requests, and calls that are forwarded to another server.

use std::path::Path;
use std::time::{Duration, Instant};

use orrery::decode::decode;
use orrery::domain::Network;
use orrery::store::{Durability, IndexOptions, PreparedLedger, Store};
use reqwest::Method;
use reqwest::blocking::Response;
use serde_json::{Value, json};
use tempfile::TempDir;

use orrery_testkit::binary::{Service, orrery, token};
use orrery_testkit::client::HTTP;
use orrery_testkit::http::Connection;
use orrery_testkit::provider::{Delivery, Provider, Reply};
use orrery_testkit::pubnet;

struct Rpc {
    service: Service,
    directory: TempDir,
}

fn fill(directory: &Path) -> Network {
    let (network, ledgers) = pubnet::made();
    let store = Store::open(directory, Some(&network)).unwrap();
    let options = IndexOptions { raw_ledgers: true, ..IndexOptions::default() };
    for raw in &ledgers {
        let view = decode(raw, network.id()).unwrap();
        let prepared = PreparedLedger::new(&view, &options).unwrap();
        store.commit(prepared, Durability::Deferred).unwrap();
    }
    store.flush().unwrap();
    network
}

impl Rpc {
    fn start(settings: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path());
        let service = Service::start_with(directory.path(), settings);
        Self { service, directory }
    }

    fn url(&self) -> String {
        format!("{}/rpc", self.service.base)
    }

    fn post(&self, content_type: &str, body: impl Into<Vec<u8>>) -> Response {
        let request = HTTP.post(self.url()).header("content-type", content_type);
        request.body(body.into()).send().unwrap()
    }

    /// Posts a JSON document; returns status and body of the response.
    fn send(&self, body: &Value) -> (u16, Value) {
        let answer = self.post("application/json", body.to_string());
        let status = answer.status().as_u16();
        let text = answer.text().unwrap();
        (status, if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() })
    }

    fn call(&self, method: &str, params: &Value) -> Value {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let (status, answer) = self.send(&call);
        assert_eq!(status, 200, "{answer}");
        answer
    }
}

#[test]
fn calls_and_batches_follow_json_rpc() {
    let rpc = Rpc::start(&[]);
    let call = |id: Value, method: &str| json!({ "jsonrpc": "2.0", "id": id, "method": method });
    for id in [json!("a"), json!(7), json!(1.5), json!("")] {
        let (status, answer) = rpc.send(&call(id.clone(), "getLatestLedger"));
        assert_eq!((status, &answer["id"], &answer["jsonrpc"]), (200, &id, &json!("2.0")));
        assert_eq!(answer["result"]["sequence"], 61);
        assert!(answer.get("error").is_none());
    }
    for url in [rpc.url(), format!("{}/", rpc.url())] {
        let body = call(json!(1), "getNetwork").to_string();
        let answer =
            HTTP.post(url).header("content-type", "application/json; charset=utf-8").body(body);
        let answer = answer.send().unwrap();
        assert_eq!(answer.headers()["accept-post"], "application/json");
        assert_eq!(answer.headers()["access-control-allow-origin"], "*");
        let answer: Value = answer.json().unwrap();
        assert_eq!(answer["result"]["passphrase"], "Standalone Network ; February 2017");
    }
    // Notifications: calls with a null id or without one are not answered.
    let mut silent = call(json!(null), "getNetwork");
    assert_eq!(rpc.send(&silent), (204, Value::Null));
    silent.as_object_mut().unwrap().remove("id");
    assert_eq!(rpc.send(&silent), (204, Value::Null));
    assert_eq!(rpc.send(&json!([silent, silent])), (204, Value::Null));
    assert_eq!(rpc.send(&json!([])), (204, Value::Null));
    let (status, answers) =
        rpc.send(&json!([call(json!(1), "getNetwork"), silent, 5, call(json!("x"), "none")]));
    assert_eq!(status, 200);
    let ids: Vec<_> =
        answers.as_array().unwrap().iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [json!(1), json!(null), json!("x")]);
    assert_eq!(answers[1]["error"]["code"], -32700);
    assert_eq!(
        answers[2]["error"],
        json!({ "code": -32601, "message": "method not found", "data": "none" })
    );
    let many = |count: usize| json!(vec![call(json!(1), "getNetwork"); count]);
    assert_eq!(rpc.send(&many(50)).1.as_array().unwrap().len(), 50);
    assert_eq!(rpc.send(&many(51)).1["error"]["code"], -32600);
}

#[test]
fn malformed_calls_get_the_errors_of_the_reference() {
    let rpc = Rpc::start(&[]);
    let cases = [
        (json!(5), -32700, "request is not a JSON object", json!(null)),
        (json!({ "id": 1, "method": "getNetwork" }), -32600, "invalid version marker", json!(1)),
        (
            json!({ "jsonrpc": "1.0", "id": 1, "method": "getNetwork" }),
            -32600,
            "invalid version marker",
            json!(1),
        ),
        (
            json!({ "jsonrpc": 2, "id": 1, "method": "getNetwork" }),
            -32700,
            "invalid version key",
            json!(1),
        ),
        (
            json!({ "jsonrpc": "2.0", "id": {}, "method": "x" }),
            -32600,
            "invalid request ID",
            json!(null),
        ),
        (json!({ "jsonrpc": "2.0", "id": 1 }), -32600, "empty method name", json!(1)),
        (json!({ "jsonrpc": "2.0", "id": 1, "method": "" }), -32600, "empty method name", json!(1)),
        (
            json!({ "jsonrpc": "2.0", "id": 1, "method": 7 }),
            -32700,
            "invalid method name",
            json!(1),
        ),
        (
            json!({ "jsonrpc": "2.0", "id": 1, "method": "x", "params": 7 }),
            -32600,
            "parameters must be array or object",
            json!(1),
        ),
        (
            json!({ "jsonrpc": "2.0", "id": 1, "method": "x", "extra": 7 }),
            -32600,
            "extra fields in request",
            json!(1),
        ),
        (
            json!({ "jsonrpc": "2.0", "id": 1, "method": "x", "result": 7 }),
            -32600,
            "mixed request and reply fields",
            json!(1),
        ),
    ];
    for (body, code, message, id) in cases {
        let (status, answer) = rpc.send(&body);
        assert_eq!(status, 200, "{body}");
        assert_eq!(
            (&answer["error"]["code"], &answer["error"]["message"]),
            (&json!(code), &json!(message)),
            "{body}"
        );
        assert_eq!(answer["id"], id, "{body}");
    }
    // The Python client takes nothing but text there.
    let more = json!({ "jsonrpc": "2.0", "id": 1, "method": "x", "foo": 1, "bar": [2] });
    assert_eq!(rpc.send(&more).1["error"]["data"], "bar,foo");
    let not_json = rpc.post("application/json", "{");
    assert_eq!(not_json.status(), 200);
    assert_eq!(not_json.json::<Value>().unwrap()["error"]["code"], -32700);
    for content_type in ["text/plain", "application/json; charset=latin1", ""] {
        let answer = rpc.post(content_type, "{}");
        assert_eq!(answer.status(), 415, "{content_type}");
        assert_eq!(answer.text().unwrap(), "content-type must be application/json");
    }
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let answer = HTTP.request(method, rpc.url()).send().unwrap();
        assert_eq!((answer.status().as_u16(), answer.text().unwrap().as_str()), (405, ""));
    }
    // A person who opens the address in a browser is told what it is for.
    let opened = HTTP.get(rpc.url()).header("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    let opened = opened.send().unwrap();
    assert_eq!(opened.status(), 405);
    assert_eq!(opened.headers()["allow"], "POST, OPTIONS");
    assert!(opened.text().unwrap().contains("getHealth"));
    let long = rpc.post("application/json", vec![b' '; (512 << 10) + 1]);
    assert_eq!(long.status(), 413);
    assert!(long.json::<Value>().unwrap()["error"]["message"].is_string());
    let preflight = HTTP
        .request(Method::OPTIONS, rpc.url())
        .header("origin", "http://localhost:5173")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "content-type,x-client-name,x-client-version");
    let preflight = preflight.send().unwrap();
    assert_eq!(preflight.status(), 204);
    let allowed = preflight.headers()["access-control-allow-headers"].to_str().unwrap();
    assert!(allowed.contains("x-client-name"), "{allowed}");
}

#[test]
fn tokens_can_be_required_and_rates_limited() {
    let rpc = Rpc::start(&[("ORRERY_RPC_REQUIRE_TOKEN", "true")]);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "getNetwork" }).to_string();
    let request =
        || HTTP.post(rpc.url()).header("content-type", "application/json").body(body.clone());
    let refused = request().send().unwrap();
    assert_eq!(refused.status(), 401);
    assert!(
        refused.json::<Value>().unwrap()["error"]["message"].as_str().unwrap().contains("token")
    );
    let token = token(rpc.directory.path(), "ana");
    let answer: Value = request().bearer_auth(token).send().unwrap().json().unwrap();
    assert!(answer["result"]["passphrase"].is_string());

    let limits = [("ORRERY_LIMITS_REQUESTS_PER_SECOND", "1"), ("ORRERY_LIMITS_BURST", "20")];
    let rpc = Rpc::start(&limits);
    let one = json!({ "jsonrpc": "2.0", "id": 1, "method": "getNetwork" });
    // Each call of a batch counts towards the limit.
    assert_eq!(rpc.send(&json!(vec![&one; 15])).0, 200);
    let (status, answer) = rpc.send(&json!(vec![&one; 15]));
    assert_eq!(status, 429, "{answer}");
    assert!(answer["error"]["message"].is_string());
}

#[test]
fn the_responses_of_a_batch_are_limited_in_total() {
    let rpc = Rpc::start(&[]);
    let params = json!({ "startLedger": 2, "pagination": { "limit": 200 }, "xdrFormat": "json" });
    let call = call_of(&params);
    let one = rpc.post("application/json", call.to_string()).text().unwrap().len();
    let (status, answers) = rpc.send(&json!(vec![call; 50]));
    assert_eq!(status, 200);
    let answers = answers.as_array().unwrap();
    let whole = answers.iter().filter(|answer| answer.get("result").is_some()).count();
    let bytes = answers.iter().map(|answer| answer.to_string().len()).sum::<usize>();
    assert!(0 < whole && bytes < (8 << 20) + one + (1 << 20), "{whole} whole, {bytes} bytes");
    let refused = &answers[49]["error"];
    assert!(refused["message"].as_str().unwrap().contains("send this call by itself"), "{refused}");
    // The bytes in flight of a client are limited.
    let narrow = Rpc::start(&[
        ("ORRERY_LIMITS_BYTES_IN_FLIGHT_PER_TOKEN_MIB", "2"),
        ("ORRERY_QUERIES_ANSWER_MIB", "1"),
    ]);
    let mut calls = vec![call_of(&params); 50];
    calls[49]["id"] = json!("the last");
    let (status, answers) = narrow.send(&json!(calls));
    assert_eq!(status, 200);
    // What can never fit is said to its call, with the limit, instead of "try again".
    let last = answers.as_array().unwrap().last().unwrap();
    assert_eq!(last["id"], "the last");
    let refused = last["error"]["message"].as_str().unwrap();
    assert!(refused.contains("limits.bytes_in_flight_per_token_mib"), "{refused}");
    assert!(!refused.contains("try again"), "{refused}");
}

fn call_of(params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "getLedgers", "params": params })
}

#[test]
fn a_hanging_upstream_does_not_block_other_methods() {
    let other = Provider::start(|_| Reply::status(200).delivered(Delivery::Never));
    let begun = Instant::now();
    let rpc = Rpc::start(&[("ORRERY_RPC_UPSTREAM", &other.url("/"))]);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(rpc.call("getNetwork", &json!(null))["result"].is_object());
}

/// Forwarded calls to a server that hangs are charged to a budget of their own, and to a rate limit
/// that all clients share.
#[test]
fn forwarded_calls_take_nothing_from_other_requests() {
    let passphrase = "Standalone Network ; February 2017";
    let other = Provider::start(move |request| {
        let call: Value = serde_json::from_slice(&request.body).unwrap();
        if call["method"] == "getNetwork" {
            let result = json!({ "passphrase": passphrase, "protocolVersion": 23 });
            return Reply::json(&json!({ "jsonrpc": "2.0", "id": call["id"], "result": result }));
        }
        Reply::status(200).delivered(Delivery::Never)
    });
    let rpc = Rpc::start(&[
        ("ORRERY_RPC_UPSTREAM", &other.url("/")),
        ("ORRERY_RPC_UPSTREAM_REQUESTS_PER_SECOND", "1"),
    ]);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"getLedgerEntries","params":{"keys":[]}}"#;
    let request = format!(
        "POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let begun = Instant::now();
    let mut calls: Vec<_> = (0..12)
        .map(|_| {
            let mut connection = Connection::open(rpc.service.address.parse().unwrap());
            connection.send(request.as_bytes()).unwrap();
            connection
        })
        .collect();
    for _ in 0..20 {
        assert!(rpc.call("getNetwork", &json!(null))["result"].is_object());
    }
    // Two of a client are forwarded at once, half of a burst, and one a second from then on.
    let refused = calls.pop().unwrap().answer(false);
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

/// A server that answers `getNetwork` with the passphrase, rejects `sendTransaction`, and returns
/// every other call's method and parameters as its result.
pub fn upstream(passphrase: &'static str) -> Provider {
    Provider::start(move |request| {
        let call: Value = serde_json::from_slice(&request.body).unwrap();
        let answer = match call["method"].as_str().unwrap() {
            "getNetwork" => {
                json!({ "result": { "passphrase": passphrase, "protocolVersion": 23 } })
            }
            "sendTransaction" => {
                json!({ "error": { "code": -32602, "message": "invalid_xdr", "data": { "a": 1 } } })
            }
            method => json!({ "result": { "method": method, "params": call["params"] } }),
        };
        let mut whole = json!({ "jsonrpc": "2.0", "id": call["id"] });
        whole.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        Reply::json(&whole)
    })
}

#[test]
fn calls_that_need_ledger_state_are_forwarded_unchanged() {
    let other = upstream("Standalone Network ; February 2017");
    let rpc = Rpc::start(&[("ORRERY_RPC_UPSTREAM", &other.url("/key"))]);
    let params = json!({ "transaction": "AAAA", "useUpgradedAuth": true, "other": [1, null] });
    for method in ["simulateTransaction", "getLedgerEntries"] {
        let answer = rpc.call(method, &params);
        assert_eq!(answer["result"], json!({ "method": method, "params": params }));
    }
    let refused = rpc.call("sendTransaction", &params);
    let error = json!({ "code": -32602, "message": "invalid_xdr", "data": { "a": 1 } });
    assert_eq!(refused["error"], error);
    drop(other);
    let gone = rpc.call("getLedgerEntries", &json!({ "keys": [] }));
    assert_eq!(gone["error"], json!({ "code": -32603, "message": "upstream rpc unavailable" }));
    assert!(rpc.call("getNetwork", &json!(null))["result"].is_object());

    let alone = Rpc::start(&[]);
    let error = alone.call("simulateTransaction", &params)["error"]["message"].to_string();
    assert!(error.contains("[rpc] upstream"), "{error}");
}

#[test]
fn an_upstream_of_another_network_is_refused_at_start() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let other = upstream("Test SDF Network ; September 2015");
    let ended = orrery()
        .args(["serve", "--listen", "127.0.0.1:0", "--no-source", "--data-dir"])
        .arg(directory.path())
        .env("ORRERY_RPC_UPSTREAM", other.url("/"))
        .output()
        .unwrap();
    assert!(!ended.status.success());
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        stderr.contains("rpc.upstream cannot be used") && stderr.contains("another network"),
        "{stderr}"
    );
}
