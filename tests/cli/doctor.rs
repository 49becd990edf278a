//! Findings of `orrery doctor` on healthy and broken machines.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use serde_json::Value;

use orrery_testkit::binary::{Service, configure, run};
use orrery_testkit::lake_files::{Chain, LakeFiles};

/// Returns state and sentence of the first finding about `what`. Asserts that the exit code fits
/// the findings.
fn finding(at: &Path, arguments: &[&str], what: &str) -> (String, String) {
    let ran = run(at, &[&["doctor", "--json", "--data-dir", "d"], arguments].concat());
    let findings: Vec<Value> = serde_json::from_str(&ran.stdout).expect(&ran.stderr);
    let broken = findings.iter().any(|finding| finding["state"] == "broken");
    assert_eq!(ran.code, i32::from(broken), "{}", ran.stdout);
    let found = findings.into_iter().find(|finding| finding["what"] == what);
    let found = found.unwrap_or_else(|| panic!("nothing about {what}: {}", ran.stdout));
    let text = |name: &str| found[name].as_str().unwrap().to_owned();
    (text("state"), text("sentence"))
}

#[test]
fn the_doctor_reports_problems_with_their_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (state, sentence) = finding(at, &[], "store");
    assert_eq!(state, "broken", "it is named, and so it should be there");
    assert!(sentence.contains("there is no data directory d"), "{sentence}");
    let chain = Chain::made(6, 20);
    let lake = LakeFiles::with(&chain, 2..=20);
    run(at, &["import", "--json", "--data-dir", "d", &lake.text()]).json();
    let token = ["token", "issue", "--sub", "a", "--data-dir", "d"];
    assert_eq!(run(at, &token).code, 0);
    let source = format!("[source]\nkind = 'lake'\npath = '{}'\n", lake.text());
    let with = configure(at, &source);
    for what in ["secrets", "source", "confinement"] {
        let (state, sentence) = finding(at, &with, what);
        assert_eq!(state, "ok", "{what}: {sentence}");
    }
    assert!(finding(at, &with, "source").1.contains("newest ledger is 20"));
    // The generated ledgers have close times in 2025.
    assert_eq!(finding(at, &with, "clock").0, "look");

    let key = at.join("d/secrets/token-signing-key");
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let (state, sentence) = finding(at, &with, "secrets");
    assert!(
        state == "broken" && sentence.contains("chmod 0600 d/secrets/token-signing-key"),
        "{sentence}"
    );
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();

    configure(at, &format!("{source}[disk]\nreserve_mib = 4294967295\nreserve_percent = 255\n"));
    let (state, sentence) = finding(at, &with, "disk");
    assert!(state == "broken" && sentence.contains("make room"), "{sentence}");

    configure(at, "[source]\nkind = 'rpc'\nrpc_url = 'http://127.0.0.1:9/'\n");
    let (state, sentence) = finding(at, &with, "source");
    assert!(state == "broken" && sentence.contains("check [source]"), "{sentence}");
}

/// Who asks a server with a key for everybody is told so, unless everybody needs a token.
#[test]
fn the_doctor_names_keys_that_strangers_can_use() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = "upstream = 'https://rpc.example.org'";
    let key = "upstream_headers = ['X-Key: 5eb1c7']";
    let needs_token = "require_token = true";
    for (lines, is_told) in [
        ([server, key, ""], true),
        (
            ["upstream = 'https://rpc.example.org/v1/0123456789abcdef0123456789abcdef'", "", ""],
            true,
        ),
        ([server, key, needs_token], false),
        ([server, "", ""], false),
        (["", "", ""], false),
    ] {
        let with = configure(at, &format!("[rpc]\n{}\n", lines.join("\n")));
        let ran = run(at, &[&["doctor", "--json", "--data-dir", "d"], &with[..]].concat());
        let findings: Vec<Value> = serde_json::from_str(&ran.stdout).expect(&ran.stderr);
        let of_rpc: Vec<_> = findings.iter().filter(|finding| finding["what"] == "rpc").collect();
        assert_eq!(of_rpc.len(), usize::from(is_told), "{lines:?}: {of_rpc:?}");
        for finding in of_rpc {
            let sentence = finding["sentence"].as_str().unwrap();
            assert_eq!(finding["state"], "look");
            assert!(sentence.contains("rpc.require_token is false: set it to true"), "{sentence}");
        }
        assert!(!ran.stdout.contains("5eb1c7") && !ran.stdout.contains("0123456789abcdef"));
    }
}

/// A proxy that passes everything on, or nothing.
#[test]
fn the_doctor_asks_for_the_metrics_as_others_do() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let settings = ["--data-dir", "d", "--network", "testnet"];
    let of = |url: &str| finding(at, &["--public-url", url], "metrics");
    let service = Service::start_in(at, &settings);
    let (state, sentence) = of(&format!("{}/rest/", service.base));
    assert_eq!(state, "broken", "{sentence}");
    for part in ["/metrics", "let the proxy refuse that path", "http.metrics = \"off\""] {
        assert!(sentence.contains(part), "{sentence}");
    }
    let gone = service.base.clone();
    service.stop();
    let (state, sentence) = of(&gone);
    assert!(state == "look" && sentence.contains("does not answer"), "{sentence}");
    let with = configure(at, "[http]\nmetrics = 'off'\n");
    let service = Service::start_in(at, &[&settings[..], &with].concat());
    let (state, sentence) = of(&service.base);
    assert!(state == "ok" && sentence.contains("keeps the metrics from others"), "{sentence}");
    service.stop();
    let wrong = run(at, &["doctor", "--data-dir", "d", "--public-url", "example.org"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("such as https://"), "{}", wrong.stderr);
}

#[test]
fn the_doctor_queries_the_running_service() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, _) = Service::demo(at, &[]);
    let found = |what| finding(at, &[], what);
    assert_eq!(found("service").0, "ok", "{}", found("service").1);
    assert_eq!(found("source").0, "ok", "{}", found("source").1);
    assert_eq!(found("clock").0, "ok", "{}", found("clock").1);
    assert_ne!(found("descriptors").0, "broken");
    drop(demo);
}

/// One behind which nothing answers is not known to keep anything from others.
#[test]
fn the_answer_of_a_proxy_decides_whether_it_keeps_the_metrics() {
    let directory = tempfile::tempdir().unwrap();
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let root = format!("http://{}", proxy.local_addr().unwrap());
    let cases = [
        ("200 OK", "# HELP orrery_x x\norrery_x 1\n", "broken"),
        ("200 OK", "<html>orrery</html>", "ok"),
        ("403 Forbidden", "", "ok"),
        ("404 Not Found", "", "ok"),
        ("502 Bad Gateway", "", "look"),
        ("503 Service Unavailable", "orrery_x 1", "look"),
    ];
    let answering = thread::spawn(move || {
        for (status, body, _) in cases {
            let mut asked = proxy.accept().unwrap().0;
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                asked.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            assert!(head.starts_with(b"GET /metrics "), "{}", String::from_utf8_lossy(&head));
            asked.write_all(answer.as_bytes()).unwrap();
        }
    });
    for (status, _, expected) in cases {
        let (state, said) = finding(directory.path(), &["--public-url", &root], "metrics");
        assert_eq!(state, expected, "{status}: {said}");
    }
    answering.join().unwrap();
}
