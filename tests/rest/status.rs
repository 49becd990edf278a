//! `/rest/status` and the status page: their contents and headers, and what the page shows without
//! scripts.

use std::collections::BTreeSet;

use orrery::domain::{LedgerSeq, Network};
use serde_json::json;

use orrery_testkit::pubnet;
use orrery_testkit::server::{Server, TempStore};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' \
                      data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn empty() -> (Server, TempStore) {
    let store = TempStore::new(&Network::from_name_or_passphrase("testnet"));
    (Server::start(&store), store)
}

fn page(server: &Server) -> String {
    let answer = server.get_public("/");
    assert_eq!(answer.status, 200);
    String::from_utf8(answer.body).unwrap()
}

/// Values of an attribute, in document order.
fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!(" {name}=\"");
    html.split(&begin).skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

#[test]
fn the_page_uses_only_local_files_and_no_inline_scripts() {
    let (server, _store) = empty();
    let html = page(&server);
    let linked: BTreeSet<_> =
        attributes(&html, "href").into_iter().chain(attributes(&html, "src")).collect();
    let mut queue: Vec<String> =
        linked.iter().filter(|it| it.starts_with("status/")).map(|it| format!("/{it}")).collect();
    assert_eq!(queue.len(), 2, "a style and a script: {linked:?}");
    for other in linked.iter().filter(|it| !it.starts_with("status/")) {
        assert!(["#", "rest/", "data:,"].iter().any(|start| other.starts_with(start)), "{other}");
    }
    // The content security policy blocks inline scripts and styles, so the page must contain none.
    assert_eq!(html.matches("<script").count(), html.matches("></script>").count());
    assert!(!html.contains("<style") && !html.contains(" style="), "{html}");
    let handlers = html.split_whitespace().filter(|it| it.starts_with("on") && it.contains('='));
    assert_eq!(handlers.count(), 0, "{html}");

    let mut seen = BTreeSet::new();
    queue.push("/".to_owned());
    while let Some(path) = queue.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let answer = server.get_public(&path);
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-security-policy"), Some(POLICY), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{path}");
        let media_type = match path.rsplit('.').next().unwrap() {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            _ => "text/html; charset=utf-8",
        };
        assert_eq!(answer.header("content-type"), Some(media_type), "{path}");
        let text = String::from_utf8(answer.body).unwrap();
        for imported in text.split(" from \"./").skip(1) {
            queue.push(format!("/status/{}", imported.split('"').next().unwrap()));
        }
        if media_type.starts_with("text/javascript") {
            let forbidden =
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("];
            let stored =
                ["localStorage", "sessionStorage", "indexedDB", "document.cookie", "location"];
            // A token behind # is read, and the address without it takes its place.
            let text = text.replace("location.hash.slice(1)", "").replace(
                "history.replaceState(null, \"\", location.pathname + location.search)",
                "",
            );
            for word in forbidden.iter().chain(&stored) {
                assert!(!text.contains(word), "{path} uses {word}");
            }
        }
    }
    assert!(seen.len() > 5, "{seen:?}");
}

#[test]
fn unchanged_files_return_304() {
    let (server, _store) = empty();
    let mut connection = server.connect();
    let first = connection.request("GET", "/status/app.js", &[]);
    let tag = first.header("etag").unwrap().to_owned();
    assert_eq!(first.header("cache-control"), Some("no-cache"));
    let strong = tag.strip_prefix("W/").unwrap().to_owned();
    for known in [tag.clone(), strong.clone(), "*".to_owned(), format!("\"x\", {tag}")] {
        let again = connection.request("GET", "/status/app.js", &[("if-none-match", &known)]);
        assert_eq!((again.status, again.body.len()), (304, 0), "{known}");
        assert_eq!(again.header("etag"), Some(tag.as_str()));
        assert_eq!(again.header("content-security-policy"), Some(POLICY));
    }
    for other in ["\"x\"", "W/\"0123456789abcdef\"", "", &strong.replace('"', "")] {
        let again = connection.request("GET", "/status/app.js", &[("if-none-match", other)]);
        assert_eq!((again.status, again.body == first.body), (200, true), "{other}");
    }
    let style = connection.request("GET", "/status/style.css", &[("if-none-match", &tag)]);
    assert_eq!(style.status, 200, "another part has another tag");
    let packed = connection.request("GET", "/status/app.js", &[("accept-encoding", "gzip")]);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.body.len() < first.body.len());
    // The page shows the current health, so it is never cached.
    let page = connection.request("GET", "/", &[("if-none-match", "*")]);
    assert_eq!((page.status, page.header("cache-control")), (200, Some("no-store")));
}

#[test]
fn page_routes_handle_other_methods_and_paths_like_all_routes() {
    let (server, _store) = empty();
    let mut connection = server.connect();
    for path in ["/", "/status/app.js", "/rest/status"] {
        let whole = connection.request("GET", path, &[]);
        let head = connection.request("HEAD", path, &[]);
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-type"), whole.header("content-type"));
        let answer = connection.request("POST", path, &[("content-length", "0")]);
        answer.error(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), Some("GET, HEAD, OPTIONS"), "{path}");
        assert_eq!(connection.request("OPTIONS", path, &[]).status, 204, "{path}");
    }
    for path in ["/app.js", "/status/other.js", "/status/../secrets", "/status/%2e%2e/app.js"] {
        connection.request("GET", path, &[]).error(404, "not_found");
    }
    assert_eq!(connection.request("GET", "/?token=x", &[]).status, 200);
}

#[test]
fn the_page_contains_health_as_escaped_text() {
    let store = TempStore::new(&Network::from_passphrase("a <b>\"private\"</b> & 'own' network"));
    let server = Server::start(&store);
    server.health.up_with("source", "it's at <https://example.org/?a=1&b=2>");
    let html = page(&server);
    assert!(html.contains("<strong>up</strong> <span>Everything works.</span>"), "{html}");
    assert!(html.contains("it&#39;s at &lt;https://example.org/?a=1&amp;b=2&gt;"), "{html}");
    assert!(html.contains("a &lt;b&gt;&quot;private&quot;&lt;/b&gt; &amp; &#39;own&#39; network"));
    assert!(html.contains("<dd id=\"service_latest_ledger\">–</dd>"), "{html}");

    server.health.down("source", "<script>alert(1)</script> <!-- health -->");
    let html = page(&server);
    assert!(html.contains("<strong>down</strong>"), "{html}");
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt; &lt;!-- health --&gt;"), "{html}");
    assert_eq!(html.matches("<script").count(), 1);
}

#[test]
fn an_empty_store_has_a_status() {
    let (server, _store) = empty();
    let answer = server.get_public("/rest/status");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    let status = answer.json();
    assert_eq!((&status["ledgers"], &status["store"]["events"]), (&json!([]), &json!(0)));
    assert!(status.get("protocol_version").is_none());
    let nothing = json!({"at": [], "latest_ledger": [], "lag_ledgers": [], "lag_seconds": []});
    assert_eq!(status["history"], nothing);
}

#[test]
fn the_status_reports_ledgers_and_lag_history() {
    let Some(ledgers) = pubnet::ledgers() else { return };
    let store = pubnet::store(&ledgers);
    let server = Server::start(&store);
    let health = &server.health;
    let (latest, closed) = (Some(LedgerSeq(pubnet::LAST)), Some(1000));
    health.record_lag(1003, latest, closed);
    health.set_follows_source();
    health.record_lag(1004, latest, closed);
    health.set_network_latest(LedgerSeq(pubnet::LAST + 2));
    health.record_lag(1014, latest, closed);
    let status = server.get_public("/rest/status").json();
    let last = pubnet::LAST;
    let expected = json!({
        "at": [1003, 1004, 1014],
        "latest_ledger": [last, last, last],
        "lag_ledgers": [null, null, 2],
        "lag_seconds": [null, 4, 14],
    });
    assert_eq!(status["history"], expected);

    let reported = status["ledgers"].as_array().unwrap();
    let sequences: Vec<_> =
        reported.iter().map(|it| it["ledger"].as_u64().unwrap() as u32).collect();
    assert_eq!(sequences, (pubnet::FIRST..=pubnet::LAST).collect::<Vec<_>>());
    let mut total = 0;
    for ledger in reported {
        let of = &ledger["ledger"];
        let rows = |what| {
            let rows = server.get(&format!("/rest/{what}/by-ledger?from={of}&to={of}&limit=1000"));
            rows.json().as_array().unwrap().clone()
        };
        let (events, transactions) = (rows("events"), rows("txs"));
        assert_eq!(ledger["events"], events.len(), "ledger {of}");
        assert_eq!(ledger["transactions"], transactions.len(), "ledger {of}");
        assert_eq!(ledger["closed_at"], transactions[0]["ledger_closed_at"]);
        total += events.len();
    }
    assert!(total > 0);
    assert_eq!(status["store"]["events"], total);
    let parts = status["store"]["parts"].as_object().unwrap();
    let sum: u64 = parts.values().map(|size| size.as_u64().unwrap()).sum();
    assert_eq!(status["store"]["bytes"], sum);
    assert!(sum > 10_000, "recent data is in the write-ahead log: {parts:?}");
}
