//! Deliveries as other implementations verify them: the receivers in the documentation, each where
//! its language is installed, `orrery webhooks listen`, and the libraries of Standard Webhooks. A
//! delivery that was altered, even by one byte, is refused.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use orrery::webhooks::delivery::Headers;
use orrery::webhooks::message::format::Format;
use orrery::webhooks::signature;
use orrery::webhooks::target::{Endpoint, Policy, Sender, Timeouts, system_lookup};
use orrery::webhooks::{Secret, Secrets};
use serde_json::json;

use orrery_testkit::binary::orrery;
use orrery_testkit::server::now;
use orrery_testkit::size;
use orrery_testkit::wait::wait_until;

const CONTRACT: &str = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";
const SECRET: &str = "whsec_000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn payload() -> Vec<u8> {
    json!({
        "event": {
            "ext": "v0", "contract_id": CONTRACT, "type_": "contract", "id": 7, "ledger": 42,
            "body": {"v0": {
                "topics": [{"symbol": "transfer"}, {"string": "naïve ☃"}],
                "data": {"i128": "170141183460469231731687303715884105727"},
            }},
        },
        "tx_hash": "00".repeat(32),
    })
    .to_string()
    .into_bytes()
}

/// A running receiver, and what it prints.
struct Receiver {
    child: Child,
    endpoint: Endpoint,
}

impl Receiver {
    /// Starts a program with a port and the secret in its environment, and waits until it listens.
    fn start(mut command: Command, port: u16) -> Self {
        let child = command
            .env("WEBHOOK_SECRET", SECRET)
            .env("PORT", port.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until(&format!("it listens: {command:?}"), || TcpStream::connect(("127.0.0.1", port)));
        Self { child, endpoint: format!("http://127.0.0.1:{port}/").parse().unwrap() }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns whether a program is installed and runs.
fn found(program: &str, version: &str) -> bool {
    let found = Command::new(program).arg(version).output().is_ok_and(|it| it.status.success());
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/receivers").join(name)
}

/// Sends valid and altered deliveries to a receiver, and checks its responses and its output.
/// Returns the headers of a delivery that is sent now, under one secret.
fn signed_by(secret: &str, delivery: &str, body: &[u8]) -> Headers {
    let present = Secret::chosen(secret.to_owned()).unwrap();
    let secrets = Secrets { present, previous: Vec::new() };
    signature::headers(&secrets, delivery, now() * 1000, body)
}

fn try_out(mut receiver: Receiver, accepted: u16) {
    let policy = Policy { allowed: vec!["127.0.0.0/8".parse().unwrap()] };
    let sender = Sender::new(policy, system_lookup(), Timeouts::default());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let send = |headers: &[(&'static str, String)], body: &[u8]| {
        let body = Bytes::copy_from_slice(body);
        let attempted =
            runtime.block_on(sender.send(&receiver.endpoint, Format::Service, headers, body));
        assert_eq!(attempted.error, None);
        attempted.status.unwrap()
    };
    let body = payload();
    let signed = |delivery: &str| signed_by(SECRET, delivery, &body);
    assert_eq!(send(&signed("first"), &body), accepted);
    let headers = signed("altered");
    for at in (0..body.len()).step_by(size::choose(7, 1) as usize) {
        let mut altered = body.clone();
        altered[at] ^= 1 << (at % 8);
        assert_eq!(send(&headers, &altered), 401, "byte {at}");
    }
    assert_eq!(send(&headers, &body[..body.len() - 1]), 401);
    let given = headers[0].1.clone();
    for wrong in ["", "zz", &given[1..], &given.replace(|c: char| c.is_ascii_digit(), "f")] {
        let mut headers = headers.clone();
        headers[0].1 = wrong.to_owned();
        assert_eq!(send(&headers, &body), 401, "{wrong}");
    }
    assert_eq!(send(&signed("last"), &body), accepted);
    let printed = receiver.child.stdout.take().unwrap();
    let mut seen = Vec::new();
    for line in BufReader::new(printed).lines() {
        let line = line.unwrap();
        assert!(!line.contains("altered") || line.starts_with("REFUSED"), "{line}");
        if line.starts_with("REFUSED") {
            continue;
        }
        for part in [CONTRACT, "transfer", "170141183460469231731687303715884105727"] {
            assert!(line.contains(part), "{line}");
        }
        seen.push(line.contains("first"));
        if line.contains("last") {
            break;
        }
    }
    assert_eq!(seen, [true, false], "one line for each delivery");
}

#[test]
fn the_node_receiver_accepts_only_validly_signed_deliveries() {
    if found("node", "--version") {
        let port = free_port();
        let mut command = Command::new("node");
        command.arg(example("receiver.mjs"));
        try_out(Receiver::start(command, port), 204);
    }
}

#[test]
fn the_python_receiver_accepts_only_validly_signed_deliveries() {
    if found("python3", "--version") {
        let port = free_port();
        let mut command = Command::new("python3");
        command.arg(example("receiver.py"));
        try_out(Receiver::start(command, port), 204);
    }
}

#[test]
fn the_go_receiver_accepts_only_validly_signed_deliveries() {
    if found("go", "version") {
        let directory = tempfile::tempdir().unwrap();
        let built = directory.path().join("receiver");
        let mut build = Command::new("go");
        build.args(["build", "-o"]).arg(&built).arg(example("receiver.go"));
        assert!(build.status().unwrap().success());
        try_out(Receiver::start(Command::new(built), free_port()), 204);
    }
}

#[test]
fn the_rust_receiver_accepts_only_validly_signed_deliveries() {
    // Built beside the tests: target/debug/deps/webhooks-…, target/debug/examples/receiver.
    let built = std::env::current_exe().unwrap();
    let built = built.parent().unwrap().with_file_name("examples").join("receiver");
    if !built.exists() {
        eprintln!("skipped: {} is not built (cargo test --examples)", built.display());
        return;
    }
    try_out(Receiver::start(Command::new(built), free_port()), 204);
}

#[test]
fn webhooks_listen_accepts_only_validly_signed_deliveries() {
    let port = free_port();
    let mut command = orrery();
    command.args(["webhooks", "listen", "--listen", &format!("127.0.0.1:{port}")]);
    command.args(["--secret", SECRET]).stderr(Stdio::null());
    try_out(Receiver::start(command, port), 200);
}

/// Returns deliveries with secrets of all forms, and altered ones: each a secret, headers, a body
/// in base64, and whether the delivery is valid.
fn cases() -> serde_json::Value {
    let body = payload();
    let mut cases = Vec::new();
    let mut add = |secret: &str, headers: &[(&'static str, String)], body: &[u8], good: bool| {
        let headers: serde_json::Map<_, _> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        cases.push(json!([secret, headers, STANDARD.encode(body), good]));
    };
    // With padding, without padding, and without the prefix.
    for secret in [SECRET, "whsec_c2VjcmV0IQ==", "whsec_c2VjcmV0IQ", "c2VjcmV0IQ=="] {
        let signed = signed_by(secret, "delivery-1", &body);
        add(secret, &signed, &body, true);
        for at in (0..body.len()).step_by(5) {
            let mut altered = body.clone();
            // The libraries take text only, so bytes stay ASCII.
            altered[at] = if altered[at].is_ascii() { altered[at] ^ 1 } else { continue };
            add(secret, &signed, &altered, false);
        }
        for (at, value) in
            [(3, "delivery-2".to_owned()), (4, (now() - 1).to_string()), (5, "v1,AAAA".to_owned())]
        {
            let mut headers = signed.clone();
            headers[at].1 = value;
            // The plain signature is made wrong as well, so that both verdicts agree.
            headers[0].1 = "00".repeat(32);
            add(secret, &headers, &body, false);
        }
        add("whsec_b3RoZXI=", &signed, &body, false);
    }
    json!(cases)
}

/// Passes the cases to a script, and checks its verdicts on both signatures of each case.
fn judged(mut script: Command, directory: &Path) {
    let file = directory.join(format!("cases-{}.json", std::process::id()));
    let cases = cases();
    std::fs::write(&file, cases.to_string()).unwrap();
    let ended = script.arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let verdicts: Vec<[bool; 2]> = serde_json::from_slice(&ended.stdout).unwrap();
    let cases = cases.as_array().unwrap();
    assert_eq!(verdicts.len(), cases.len());
    for (case, verdict) in cases.iter().zip(verdicts) {
        let good = case[3].as_bool().unwrap();
        let standard = verdict[0];
        assert_eq!(standard, good, "Standard Webhooks: {case}");
        assert_eq!(verdict[1], good, "plain HMAC: {case}");
    }
    println!("{} deliveries were judged as they should be", cases.len());
}

/// Returns the directory of a library, which is installed once, beside the build output. `None`,
/// with a message, when that fails, for example without a network.
fn library(name: &str, marker: &str, install: impl FnOnce(&Path) -> Command) -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    if !directory.join(marker).exists() {
        let installed = install(&directory).output();
        if !installed.is_ok_and(|it| it.status.success()) || !directory.join(marker).exists() {
            eprintln!("skipped: {name} cannot be installed here");
            return None;
        }
    }
    Some(directory)
}

#[test]
fn the_standard_webhooks_javascript_library_agrees() {
    if !found("node", "--version") || !found("npm", "--version") {
        return;
    }
    let marker = "node_modules/standardwebhooks/package.json";
    let Some(directory) = library("standardwebhooks-npm", marker, |directory| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-save", "--prefix"]).arg(directory);
        npm.arg("standardwebhooks@1.1.1");
        npm
    }) else {
        return;
    };
    const SCRIPT: &str = r#"
        const { Webhook } = require("standardwebhooks");
        const { createHmac } = require("node:crypto");
        const cases = JSON.parse(require("node:fs").readFileSync(process.argv[1]));
        const verdicts = cases.map(([secret, headers, base64]) => {
            const body = Buffer.from(base64, "base64");
            const plain = createHmac("sha256", secret).update(body).digest("hex");
            let standard = true;
            try { new Webhook(secret).verify(body.toString(), headers, { jsonParse: false }) }
            catch (error) {
                if (error.name !== "WebhookVerificationError") throw error;
                standard = false;
            }
            return [standard, plain === headers["x-service-signature"]];
        });
        console.log(JSON.stringify(verdicts));"#;
    let mut node = Command::new("node");
    node.env("NODE_PATH", directory.join("node_modules")).args(["-e", SCRIPT]);
    judged(node, &directory);
}

#[test]
fn the_standard_webhooks_python_library_agrees() {
    if !found("python3", "--version") {
        return;
    }
    let marker = "standardwebhooks/__init__.py";
    let Some(directory) = library("standardwebhooks-pypi", marker, |directory| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--target"]).arg(directory);
        pip.arg("standardwebhooks==1.1.0");
        pip
    }) else {
        return;
    };
    const SCRIPT: &str = r#"
import base64, hashlib, hmac, json, sys
from standardwebhooks import Webhook, WebhookVerificationError
verdicts = []
for secret, headers, body, _ in json.load(open(sys.argv[1])):
    body = base64.b64decode(body)
    plain = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    try:
        Webhook(secret).verify(body, headers, json_parse=False)
        standard = True
    except WebhookVerificationError:
        standard = False
    verdicts.append([standard, plain == headers["x-service-signature"]])
print(json.dumps(verdicts))"#;
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", &directory).args(["-c", SCRIPT]);
    judged(python, &directory);
}

#[test]
fn the_documentation_shows_the_tested_receivers() {
    let shown = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/webhooks.md");
    let shown = std::fs::read_to_string(shown).unwrap();
    for name in ["receiver.mjs", "receiver.py", "receiver.rs", "receiver.go"] {
        let code = std::fs::read_to_string(example(name)).unwrap();
        assert!(shown.contains(code.trim_end()), "the documentation shows another {name}");
    }
}
