//! An upstream RPC server that fails in many ways while it is followed.

use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery::domain::{Fetched, LedgerRange, LedgerSeq, LedgerSource, SourceError};
use orrery::source::rpc::{RpcSettings, RpcSource};
use serde_json::{Value, json};

use orrery_testkit::chain::{self, Chain, ChainLedger, FOREIGN, FORK, MAIN};
use orrery_testkit::contents::Contents;
use orrery_testkit::following::{Following, INGESTION, SOURCE};
use orrery_testkit::provider::{Delivery, Provider, Reply};
use orrery_testkit::upstream::{Call, Upstream};

use crate::scene::{self, Server, assert_holds, bad_ledger, survives, trouble};

type Scene = scene::Scene<Upstream>;

impl Server for Upstream {
    type Request = Call;
    type Honest = Value;
    type Source = RpcSource;

    fn start(chain: &'static Chain, latest: u32) -> Self {
        Self::start(chain, latest)
    }

    fn source(&self, _: Option<u32>) -> RpcSource {
        RpcSource::new(&self.settings()).unwrap()
    }

    fn default_source(&self) -> RpcSource {
        RpcSource::new(&RpcSettings::new(self.url("/"))).unwrap()
    }

    fn set_fault(&self, fault: impl Fn(&Call, Value) -> Reply + Send + Sync + 'static) {
        self.set_fault(fault);
    }

    fn clear_fault(&self) {
        self.clear_fault();
    }

    fn close_up_to(&self, latest: u32) {
        self.close_up_to(latest);
    }
}

/// Returns the response with its list of ledgers changed by `edit`.
fn edited(mut honest: Value, edit: impl FnOnce(&mut Vec<Value>)) -> Reply {
    if let Some(ledgers) = honest.pointer_mut("/result/ledgers").and_then(Value::as_array_mut) {
        edit(ledgers);
    }
    Reply::json(&honest)
}

/// Returns the response with ledger 25 changed by `edit`.
fn edited_25(honest: Value, edit: impl Fn(&mut Value)) -> Reply {
    edited(honest, |ledgers| {
        ledgers.iter_mut().filter(|ledger| ledger["sequence"] == 25).for_each(edit);
    })
}

/// Returns the response with the ledgers from `first` on taken from another chain.
fn with_ledgers_of(other: &Chain, first: u32, honest: Value) -> Reply {
    edited(honest, |ledgers| {
        for ledger in ledgers.iter_mut() {
            let sequence = ledger["sequence"].as_u64().unwrap() as u32;
            if sequence >= first {
                let other = other.ledger(sequence);
                ledger["hash"] = json!(other.hash.to_string());
                ledger["metadataXdr"] = json!(other.base64);
            }
        }
    })
}

fn when(method: &str, call: &Call, honest: Value, reply: impl FnOnce(&Value) -> Reply) -> Reply {
    if call.is(method) { reply(&honest) } else { Reply::json(&honest) }
}

#[test]
fn every_http_failure_is_reported_and_recovered_from() {
    survives::<Upstream>(&[
        trouble("closes connections", "the connection broke", |_, _| {
            Reply::status(200).delivered(Delivery::Refused)
        }),
        trouble("closes its half", "the connection broke", |_, _| {
            Reply::status(200).delivered(Delivery::HalfClosed)
        }),
        trouble("hangs", "no answer in time", |_, _| Reply::status(200).delivered(Delivery::Never)),
        trouble("hangs in the middle", "no answer in time", |call, honest| {
            let reply = Reply::json(&honest);
            let half = reply.body.len() / 2;
            let slowly = Delivery::Slowly(half, Duration::from_millis(400));
            if call.is("getLedgers") { reply.delivered(slowly) } else { reply }
        }),
        trouble("drips", "did not answer within 1 s", |call, honest| {
            let slowly = Delivery::Slowly(10, Duration::from_millis(20));
            let reply = Reply::json(&honest);
            if call.is("getLedgers") { reply.delivered(slowly) } else { reply }
        }),
        trouble(
            "breaks off",
            "the connection broke: end of file before message length",
            |_, honest| Reply::json(&honest).delivered(Delivery::CutAfter(20)),
        ),
        trouble("sends damaged gzip", "the connection broke", |_, honest| {
            let mut reply = Reply::json(&honest).gzip();
            let half = reply.body.len() / 2;
            reply.body[half..].fill(0x55);
            reply
        }),
        trouble("401", "HTTP 401: it does not accept the credentials", |_, _| Reply::status(401)),
        trouble("403", "HTTP 403: it does not accept the credentials", |_, _| Reply::status(403)),
        trouble("404", "HTTP 404: no RPC server is there", |_, _| Reply::status(404)),
        trouble("429", "HTTP 429: it receives more requests", |_, _| Reply::status(429)),
        trouble("500", "HTTP 500: it had an internal error", |_, _| Reply::status(500)),
        trouble("502", "HTTP 502: the server behind it", |_, _| Reply::status(502)),
        trouble("503", "HTTP 503: it is overloaded", |_, _| Reply::status(503)),
        trouble("504", "HTTP 504: it took too long", |_, _| Reply::status(504)),
        trouble("redirects", "redirects to https://other.example/rpc: if", |_, _| {
            Reply::status(308).header("location", "https://me:word@other.example/rpc?key=k")
        }),
    ]);
}

#[test]
fn every_json_rpc_failure_is_reported_and_recovered_from() {
    survives::<Upstream>(&[
        trouble("a web page", "with text/html that is not a JSON-RPC response", |_, _| {
            Reply::status(200)
        }),
        trouble("JSON that ends early", "with JSON that is cut off", |_, honest| {
            let text = honest.to_string();
            Reply::new(200, "application/json", &text[..text.len() - 3])
        }),
        trouble("other JSON", "with neither a result nor an error", |call, _| {
            Reply::json(&json!({"jsonrpc": "2.0", "id": call.id}))
        }),
        trouble("an answer to another question", "the answer to another question", |_, honest| {
            let mut honest = honest;
            honest["id"] = json!(987_654);
            Reply::json(&honest)
        }),
        trouble("results of another form", "a result of another form", |call, mut honest| {
            honest["result"] = json!({"ledgers": "none", "latestLedger": [], "passphrase": 1});
            when(&call.method, call, honest, Reply::json)
        }),
        trouble("lags", "is not ready to answer getHealth: latency (45s) since", |call, honest| {
            let lags = "latency (45s) since last known ledger closed is too high (>30s)";
            when("getHealth", call, honest, |_| Reply::json(&call.refused(-32603, lags)))
        }),
        trouble("has no data", "getHealth: data stores are not initialized", |call, honest| {
            let empty = call.refused(-32603, "data stores are not initialized");
            when("getHealth", call, honest, |_| Reply::json(&empty))
        }),
        trouble("calls itself ill", "is not ready: it is 'ill'", |call, mut honest| {
            honest["result"]["status"] = json!("ill");
            when("getHealth", call, honest, Reply::json)
        }),
        trouble("does not know the method", "does not know getLedgers", |call, honest| {
            let unknown = call.refused(-32601, "method not found");
            when("getLedgers", call, honest, |_| Reply::json(&unknown))
        }),
        trouble("gives up", "exceeded processing limit threshold (code -32001)", |call, honest| {
            let limit = call.refused(-32001, "request exceeded processing limit threshold");
            when("getLedgers", call, honest, |_| Reply::json(&limit))
        }),
    ]);
}

#[test]
fn implausible_ledgers_are_reported_and_never_stored() {
    survives::<Upstream>(&[
        trouble("no ledgers", "has ledger 40 but not ledger 21", |_, honest| {
            edited(honest, Vec::clear)
        }),
        trouble("skips the first", "skips from ledger 21 to 22", |_, honest| {
            edited(honest, |ledgers| ledgers.retain(|ledger| ledger["sequence"] != 21))
        }),
        bad_ledger("skips one", "skips from ledger 25 to 26", |_, honest| {
            edited(honest, |ledgers| ledgers.retain(|ledger| ledger["sequence"] != 25))
        }),
        bad_ledger("no base64", "the metadata of ledger 25 is not base64", |_, honest| {
            edited_25(honest, |ledger| ledger["metadataXdr"] = json!("AAAA#"))
        }),
        bad_ledger("no ledger", "delivers invalid ledgers", |_, honest| {
            edited_25(honest, |ledger| ledger["metadataXdr"] = json!(STANDARD.encode("no ledger")))
        }),
        bad_ledger("another ledger", "ledger 26 under the number 25", |_, honest| {
            edited_25(honest, |ledger| ledger["metadataXdr"] = json!(MAIN.ledger(26).base64))
        }),
        bad_ledger("another hash", "ledger 25 under a hash that is not", |_, honest| {
            edited_25(honest, |ledger| ledger["hash"] = json!("00".repeat(32)))
        }),
        bad_ledger("a changed header", "the header of ledger 25 hashes to", |_, honest| {
            edited_25(honest, |ledger| {
                let mut xdr = MAIN.ledger(25).xdr.clone();
                let hash = MAIN.ledger(24).hash;
                let at = xdr.windows(32).position(|window| window == hash.as_bytes()).unwrap();
                xdr[at] ^= 1;
                ledger["metadataXdr"] = json!(STANDARD.encode(xdr));
            })
        }),
        bad_ledger("a fork", "ledger 25 links to", |_, honest| with_ledgers_of(&FORK, 25, honest)),
        bad_ledger("two of one number", "ledger 25 links to", |_, honest| {
            edited(honest, |ledgers| {
                let Some(found) = ledgers.iter().find(|ledger| ledger["sequence"] == 25) else {
                    return;
                };
                let mut other = found.clone();
                other["hash"] = json!(FORK.ledger(25).hash.to_string());
                other["metadataXdr"] = json!(FORK.ledger(25).base64);
                ledgers.insert(0, other);
            })
        }),
        trouble("another network", "ledger 21 links to", |_, honest| {
            with_ledgers_of(&FOREIGN, 21, honest)
        }),
    ]);
}

#[test]
fn a_decompression_bomb_is_refused_during_decompression() {
    static BOMB: LazyLock<Reply> =
        LazyLock::new(|| Reply::new(200, "application/json", vec![b' '; (64 << 20) + 1]).gzip());
    assert!(BOMB.body.len() < 1 << 20, "it is small on the wire: {}", BOMB.body.len());
    let scene = Scene::new(&MAIN, 20);
    let mut settings = scene.server.settings();
    // The source uses its lower bound instead.
    settings.most_bytes = 1;
    let following = Following::start(&scene.store, RpcSource::new(&settings).unwrap(), Some(2));
    following.wait_until_stored(20);
    scene.server.set_fault(|call, honest| when("getLedgers", call, honest, |_| BOMB.clone()));
    scene.server.close_up_to(40);
    following.wait_until_down(SOURCE, "the answer is longer than 67108864 bytes");
    scene.server.clear_fault();
    scene.recovers(following);
}

#[test]
fn unusual_but_valid_responses_are_accepted() {
    type Habit = fn(&Call, Value) -> Reply;
    let habits: [(&str, Habit); 4] = [
        ("reorders", |_, honest| edited(honest, |ledgers| ledgers.reverse())),
        ("repeats", |_, honest| {
            edited(honest, |ledgers| {
                let twice = ledgers.clone();
                ledgers.extend(twice);
            })
        }),
        ("begins earlier", |_, honest| {
            edited(honest, |ledgers| {
                let ledger = MAIN.ledger(2);
                ledgers.insert(0, json!({"sequence": 2, "metadataXdr": ledger.base64}));
            })
        }),
        ("speaks gzip", |_, honest| Reply::json(&honest).gzip()),
    ];
    for (name, habit) in habits {
        println!("{name}");
        let scene = Scene::new(&MAIN, 20);
        scene.server.set_fault(habit);
        let following = scene.follow(Some(2));
        following.wait_until_stored(20);
        scene.server.close_up_to(40);
        following.wait_until_recovered(40);
        assert_eq!(following.down(SOURCE), None);
        following.stop();
        assert_holds(&scene.store, &MAIN);
    }
}

#[test]
fn at_the_tip_no_missing_ledgers_are_requested() {
    let (scene, following) = Scene::followed(20);
    for latest in 21..=40 {
        scene.server.close_up_to(latest);
        following.wait_until_recovered(latest);
    }
    following.wait_until("the newest ledger is known", |following| {
        following.health.network_latest() == Some(LedgerSeq(40))
    });
    following.stop();
    assert_holds(&scene.store, &MAIN);
    assert_eq!(scene.server.range_errors(), Vec::<String>::new());
    let pages = scene.server.calls("getLedgers");
    let first = json!({"startLedger": 2, "pagination": {"limit": 8}});
    assert_eq!(pages[0], first);
    assert!(pages.len() >= 20, "{}", pages.len());
    for page in &pages[1..] {
        assert_eq!(page.get("startLedger"), None, "the cursor goes on: {page}");
        assert!(page["pagination"]["cursor"].is_string(), "{page}");
    }
    assert!(scene.server.calls("getHealth").len() > 20);
}

/// A server that rejects every value of `xdrFormat` can be followed: the source does not send that
/// parameter.
#[test]
fn the_xdr_format_parameter_is_not_sent() {
    let scene = Scene::new(&MAIN, 40);
    scene.server.set_fault(|call, honest| match call.params.get("xdrFormat") {
        Some(format) => {
            Reply::json(&call.refused(-32602, &format!("unknown value of xdrFormat: {format}")))
        }
        None => Reply::json(&honest),
    });
    let following = scene.follow(None);
    scene.completes(following);
}

/// The server reports an oldest ledger that it does not serve: following begins at the first ledger
/// that it does serve, whatever its error for the others is.
#[test]
fn starts_at_the_first_available_ledger() {
    type Lack = fn(&Call, Value) -> Reply;
    let lacks: [(&str, Lack); 4] = [
        ("refuses with its window", |_, honest| Reply::json(&honest)),
        ("refuses with another window", |call, honest| {
            let window = "start ledger (5) must be between the oldest ledger: 12 and the latest \
                          ledger: 40 for this rpc instance";
            let refused = honest.get("error").is_some();
            if refused { Reply::json(&call.refused(-32602, window)) } else { Reply::json(&honest) }
        }),
        ("does not find it", |call, honest| {
            let refused = honest.get("error").is_some();
            let reply = call.refused(-32603, "could not get ledger");
            if refused { Reply::json(&reply) } else { Reply::json(&honest) }
        }),
        ("skips it", |call, honest| {
            let start = call.params["startLedger"].as_u64();
            match start.filter(|start| call.is("getLedgers") && *start < 12) {
                Some(_) => {
                    let first = MAIN.ledger(12);
                    let ledger = json!({"sequence": 12, "metadataXdr": first.base64});
                    let result = json!({"ledgers": [ledger], "latestLedger": 40, "cursor": "12"});
                    Reply::json(&json!({"jsonrpc": "2.0", "id": call.id, "result": result}))
                }
                None => Reply::json(&honest),
            }
        }),
    ];
    for (name, lack) in lacks {
        println!("{name}");
        let scene = Scene::new(&MAIN, 40);
        scene.server.set_oldest(5, 12);
        scene.server.set_fault(lack);
        let following = scene.follow(None);
        following.wait_until_stored(40);
        following.stop();
        assert_eq!(scene.store.status().ranges, [LedgerRange::new(12, 40)]);
        let questions = scene.server.calls("getLedgers").len();
        assert!(questions < 20, "{questions} questions");
    }
    // When the report is right, one request confirms it.
    let scene = Scene::new(&MAIN, 40);
    scene.server.set_oldest(5, 5);
    let following = scene.follow(None);
    following.wait_until_stored(40);
    following.stop();
    assert_eq!(scene.store.status().ranges, [LedgerRange::new(5, 40)]);
    assert_eq!(limits(&scene.server)[..2], [1, 8]);
}

#[test]
fn pages_shrink_under_server_limits_and_grow_again() {
    let scene = Scene::new(&MAIN, 40);
    scene.server.set_fault(|call, honest| {
        let limit = call.refused(-32001, "request exceeded processing limit threshold");
        when("getLedgers", call, honest, |honest| {
            Reply::json(if call.limit() > 2 { &limit } else { honest })
        })
    });
    let following = scene.follow(Some(2));
    scene.completes(following);
    let limits: Vec<_> = limits(&scene.server);
    assert_eq!(limits[..2], [8, 4]);
    assert_eq!(limits[2..10], [2; 8], "eight whole pages until it dares");
    assert_eq!(limits[10..12], [3, 1]);
}

#[test]
fn the_page_size_adapts_to_the_server_limit() {
    let scene = Scene::new(&MAIN, 40);
    scene.server.set_max_ledgers(3);
    let following = scene.follow(Some(2));
    following.wait_until_stored(40);
    assert_eq!(following.down(SOURCE), None);
    following.stop();
    assert_holds(&scene.store, &MAIN);
    let limits = limits(&scene.server);
    assert_eq!(limits[0], 8);
    assert_eq!(limits[1..], vec![3; limits.len() - 1]);
}

fn limits(upstream: &Upstream) -> Vec<u64> {
    let calls = upstream.calls("getLedgers");
    calls.iter().map(|call| call["pagination"]["limit"].as_u64().unwrap()).collect()
}

#[test]
fn retry_after_is_honoured() {
    let (scene, following) = Scene::followed(20);
    scene.server.set_fault(|call, honest| {
        when("getLedgers", call, honest, |_| Reply::status(429).header("retry-after", "1"))
    });
    scene.server.close_up_to(40);
    following.wait_until_down(SOURCE, "HTTP 429");
    let refused = scene.server.requests().len();
    scene.server.clear_fault();
    scene.recovers(following);
    let requests = scene.server.requests();
    let pause = requests[refused].at - requests[refused - 1].at;
    assert!(pause >= Duration::from_secs(1), "{pause:?}");
}

#[test]
fn a_server_is_followed_again_after_an_outage() {
    let (mut scene, following) = Scene::followed(20);
    scene.server.stop();
    following.wait_until_down(SOURCE, "no connection: ");
    scene.server.close_up_to(40);
    scene.server.restart();
    scene.recovers(following);
}

/// With the default timing and settings. Small: one failure, for a moment; full: three failures of
/// 30 seconds each, after which the retry delays are the longest.
#[test]
fn recovery_is_detected_within_ten_seconds() {
    let failures = [
        ("HTTP 503", Reply::status(503)),
        ("no answer in time", Reply::status(200).delivered(Delivery::Never)),
        ("the connection broke", Reply::status(200).delivered(Delivery::Refused)),
    ];
    scene::recovery_is_noticed::<Upstream>(&failures);
}

#[test]
fn another_network_is_refused_before_anything_is_fetched() {
    let scene = Scene::new(&MAIN, 20);
    scene.server.set_passphrase("Public Global Stellar Network ; September 2015");
    let following = scene.follow(Some(2));
    following.wait_until_down(SOURCE, "yields ledgers of the network mainnet, not of local");
    assert_eq!(following.latest(), 0);
    assert!(scene.server.calls("getLedgers").is_empty());
    scene.server.set_passphrase(MAIN.network.passphrase());
    following.wait_until_recovered(20);
    following.stop();
}

/// Errors that only ingestion can find are refused, and the ledger is fetched again until it is
/// right.
#[test]
fn ledgers_that_do_not_continue_the_chain_are_refused_and_reported() {
    type Lie = fn(&Call, Value) -> Reply;
    let lies: [(&str, &str, Lie); 3] = [
        ("another chain", "links to", |_, honest| with_ledgers_of(&FORK, 2, honest)),
        ("another network", "", |_, honest| with_ledgers_of(&FOREIGN, 2, honest)),
        ("half a ledger", "ledger 21", |_, honest| {
            edited(honest, |ledgers| {
                for ledger in ledgers.iter_mut() {
                    let sequence = ledger["sequence"].as_u64().unwrap() as u32;
                    let xdr = &MAIN.ledger(sequence).xdr;
                    ledger["metadataXdr"] = json!(STANDARD.encode(&xdr[..xdr.len() - 8]));
                }
            })
        }),
    ];
    for (name, words, lie) in lies {
        println!("{name}");
        let (scene, following) = Scene::followed(20);
        following.stop();
        scene.server.set_fault(lie);
        scene.server.close_up_to(40);
        let following = scene.follow(None);
        following.wait_until_down(INGESTION, words);
        let reason = following.down(INGESTION).unwrap();
        // After a broken link, the follower compares the ledger before with the stored one.
        let ledgers = [scene.server.url(", ledger 20: "), scene.server.url(", ledger 21: ")];
        assert!(ledgers.iter().any(|ledger| reason.starts_with(ledger)), "{reason}");
        assert_eq!(following.latest(), 20);
        scene.server.clear_fault();
        scene.recovers(following);
    }
}

#[test]
fn ledgers_dropped_by_the_server_are_reported_and_requested_again() {
    let scene = Scene::new(&MAIN, 40);
    scene.server.set_oldest(30, 30);
    let following = scene.follow(Some(2));
    following.wait_until_down(
        SOURCE,
        "begins at ledger 30 and does not have ledger 2, which is needed next: import ledgers 2 to 29",
    );
    assert_eq!(following.latest(), 0);
    // The same server serves them once it has a lake behind it.
    scene.server.set_oldest(30, 2);
    scene.recovers(following);
}

#[test]
fn a_window_that_moves_past_the_next_ledger_leaves_no_gap() {
    let (scene, following) = Scene::followed(20);
    scene.server.set_oldest(35, 35);
    scene.server.close_up_to(40);
    following.wait_until_down(SOURCE, "begins at ledger 35 and does not have ledger 21");
    following.stop();
    Contents::of(&scene.store).assert_beginning_of(&MAIN.whole, LedgerSeq(2));
}

#[test]
fn old_servers_whose_health_names_no_ledgers_are_followed() {
    let scene = Scene::new(&MAIN, 20);
    scene.server.set_oldest(5, 5);
    scene.server.omit_ledgers_from_health();
    let following = scene.follow(None);
    following.wait_until_stored(20);
    scene.server.close_up_to(40);
    following.wait_until_recovered(40);
    following.stop();
    assert_eq!(scene.store.status().ranges, [LedgerRange::new(5, 40)]);
    for ledger in &MAIN.ledgers[3..] {
        let stored = scene.store.ledger(LedgerSeq(ledger.sequence)).unwrap().unwrap();
        assert_eq!(stored.hash, ledger.hash);
    }
    assert_eq!(scene.server.range_errors(), Vec::<String>::new());
}

#[test]
fn recorded_ledgers_arrive_byte_for_byte() {
    let Some(chain) = chain::public() else { return };
    let scene = Scene::new(chain, chain.first() + 5);
    scene.server.set_fault(|_, honest| Reply::json(&honest).gzip());
    let following = scene.follow(None);
    following.wait_until_stored(chain.first() + 5);
    scene.server.close_up_to(chain.last());
    following.wait_until_stored(chain.last());
    following.stop();
    assert_holds(&scene.store, chain);
    for request in scene.server.requests() {
        let version = concat!("orrery/", env!("CARGO_PKG_VERSION"));
        assert_eq!(request.header("user-agent"), Some(version));
        assert!(request.header("accept-encoding").unwrap().contains("gzip"));
    }
}

/// Sends one request that fails, and returns the error message.
async fn failure(settings: &RpcSettings) -> String {
    let mut source = RpcSource::new(settings).unwrap();
    source.passphrase().await.unwrap_err().to_string()
}

#[tokio::test]
async fn credentials_are_sent_and_never_shown() {
    const SECRETS: [&str; 5] =
        ["passw0rd", "apikey1234", "0123456789abcdef0123", "bearer-xyz", "user-7"];
    let provider = Provider::start(|request| match request.target.contains("echo") {
        true => Reply::json(&json!({"id": null, "error": {
            "code": -32000,
            "message": format!("no plan for\n {} {:?}", request.target, request.headers),
        }})),
        false => Reply::status(403),
    });
    let address = provider.address();
    let url = format!("http://user-7:passw0rd@{address}/v1/0123456789abcdef0123?key=apikey1234");
    let mut settings = RpcSettings::new(&url);
    settings.headers.push(("x-token".to_owned(), "bearer-xyz".to_owned()));
    let mut shown = vec![format!("{settings:?}"), failure(&settings).await];
    assert!(shown[0].contains("x-token"), "{}", shown[0]);
    assert_eq!(
        shown[1],
        format!(
            "the RPC server http://{address}/v1/… answers getNetwork with HTTP 403: it does not \
             accept the credentials in its address or headers"
        )
    );
    settings.url = format!("{url}&echo");
    shown.push(failure(&settings).await);
    assert!(shown[2].contains("refuses getNetwork: no plan for /v1/…?"), "{}", shown[2]);
    let request = &provider.requests()[0];
    assert_eq!(request.target, "/v1/0123456789abcdef0123?key=apikey1234");
    assert_eq!(request.header("x-token"), Some("bearer-xyz"));
    let basic = format!("Basic {}", STANDARD.encode("user-7:passw0rd"));
    assert_eq!(request.header("authorization"), Some(basic.as_str()));
    drop(provider);
    shown.push(failure(&settings).await);
    assert!(shown[3].contains("no connection: "), "{}", shown[3]);
    settings.url = "http://user-7:passw0rd@[broken?apikey1234".to_owned();
    shown.push(format!("{settings:?}"));
    shown.push(RpcSource::new(&settings).err().unwrap().to_string());
    settings.url = "ftp://user-7:passw0rd@host/".to_owned();
    shown.push(RpcSource::new(&settings).err().unwrap().to_string());
    settings.url = url;
    settings.headers.push(("x-other".to_owned(), "passw0rd\n".to_owned()));
    shown.push(RpcSource::new(&settings).err().unwrap().to_string());
    assert!(shown[7].contains("the header 'x-other' for the RPC server is wrong"), "{}", shown[7]);
    for text in &shown {
        assert!(!text.contains('\n'), "{text}");
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret} in: {text}");
        }
    }
}

#[tokio::test]
async fn tls_with_a_plain_http_server_gives_a_one_line_error() {
    let provider = Provider::start(|_| Reply::status(400));
    let address = provider.address();
    let error = failure(&RpcSettings::new(format!("https://{address}/rpc"))).await;
    assert_eq!(
        error,
        format!(
            "the RPC server https://{address}/rpc cannot be asked for getNetwork: no connection: it \
             does not speak TLS; its address may have to begin with http://"
        )
    );
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_server_only() {
    let provider = Provider::start(|request| match request.target.as_str() {
        "/new" => {
            let asked: Value = serde_json::from_slice(&request.body).unwrap();
            Reply::json(&json!({"id": asked["id"], "result": {"passphrase": "p"}}))
        }
        "/old" => Reply::status(307).header("location", "/new"),
        "/circle" => Reply::status(307).header("location", "/circle"),
        _ => Reply::status(301).header("location", "/new"),
    });
    let mut source = RpcSource::new(&RpcSettings::new(provider.url("/old"))).unwrap();
    assert_eq!(source.passphrase().await.unwrap().as_deref(), Some("p"));
    // Following a 301 would turn the POST into a GET.
    let error = failure(&RpcSettings::new(provider.url("/moved"))).await;
    assert!(error.contains(&format!("redirects to {}", provider.url("/new"))), "{error}");
    let error = failure(&RpcSettings::new(provider.url("/circle"))).await;
    assert!(error.contains("redirects to"), "{error}");
    assert!(provider.requests().len() < 12);
}

#[tokio::test]
async fn range_and_fetch_report_available_and_future_ledgers() {
    let upstream = Upstream::start(&MAIN, 20);
    let mut source = RpcSource::new(&upstream.settings()).unwrap();
    assert_eq!(source.name(), format!("the RPC server {}", upstream.url("")));
    assert_eq!(source.range().await.unwrap(), Some(LedgerRange::new(2, 20)));
    assert!(matches!(source.fetch(LedgerSeq(21)).await.unwrap(), Fetched::NotYet));
    let Fetched::Ledgers(ledgers) = source.fetch(LedgerSeq(19)).await.unwrap() else {
        panic!("they are there")
    };
    let expected: Vec<&ChainLedger> = MAIN.ledgers[17..19].iter().collect();
    assert!(ledgers.iter().map(|ledger| &ledger.xdr).eq(expected.iter().map(|ledger| &ledger.xdr)));
    assert_eq!(ledgers[0].origin.to_string(), upstream.url(", ledger 19").replace("/,", ","));
    // As if another server behind the same address, which lags, answered.
    upstream.close_up_to(18);
    assert!(matches!(source.fetch(LedgerSeq(20)).await.unwrap(), Fetched::NotYet));
    upstream.set_oldest(10, 10);
    let error = source.fetch(LedgerSeq(9)).await.unwrap_err();
    assert!(matches!(error, SourceError::Gone(_)), "{error}");
}
