//! What creates a data directory and what does not, and where its first ledgers come from.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::Stdio;

use orrery_testkit::binary::{Ran, orrery_in, run};
use orrery_testkit::data::ledgers;

#[test]
fn a_mistyped_network_or_address_creates_no_directory() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (verb, network) in [
        (&["serve", "--listen", "127.0.0.1:0"][..], "testnett"),
        (&["token", "issue", "--sub", "a"], "Main"),
        (&["import", "orrery.toml"], "Apply Load"),
        (&["backfill", "--from", "2", "--to", "3"], "futurnet"),
    ] {
        let arguments = [verb, &["--data-dir", "d", "--network", network]].concat();
        run(at, &arguments).refuses(2, &[network, "give testnet, mainnet", "--network-passphrase"]);
    }
    let serve = ["serve", "--no-source", "--data-dir", "d", "--listen", &taken];
    run(at, &[&serve[..], &["--network", "Testnet"]].concat())
        .refuses(1, &["cannot listen on", "--listen"]);
    assert!(!at.join("d").exists(), "nothing is left of a start that failed");
    let issue = ["token", "issue", "--data-dir", "d", "--sub", "a"];
    let network = ["--network-passphrase", "Mine"];
    run(at, &[&issue[..], &network].concat()).succeeded();
    run(at, &[&serve[..], &network].concat()).refuses(1, &["cannot listen on"]);
    assert_eq!(run(at, &["status", "--data-dir", "d"]).json()["network_passphrase"], "Mine");
    run(at, &[&issue[..], &["--network", "testnet"]].concat())
        .refuses(1, &["\"Mine\", not testnet"]);
}

#[test]
fn a_token_that_was_not_issued_here_is_said_so() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for verb in [&["list"][..], &["revoke", "abc"]] {
        run(at, &[&["token"], verb, &["--data-dir", "typo", "--network", "testnet"]].concat())
            .refuses(1, &["there is no data directory typo", "--data-dir"]);
    }
    run(at, &["token", "issue", "--data-dir", "typo", "--sub", "a"])
        .refuses(1, &["name the network"]);
    assert!(!at.join("typo").exists());
    let issue = ["token", "issue", "--data-dir", "d", "--network", "local", "--sub", "a"];
    run(at, &[&issue[..], &["--scope", "read,webhooks"]].concat()).succeeded();
    let listed = run(at, &["token", "list", "--data-dir", "d"]).json();
    assert_eq!(listed["scopes"], serde_json::json!(["read", "webhooks"]));
    let id = run(at, &["token", "list", "--data-dir", "d", "--quiet"]).succeeded().to_owned();
    assert_eq!(id, format!("{}\n", listed["jti"].as_str().unwrap()));
    run(at, &["token", "revoke", "--data-dir", "d", "abc"])
        .refuses(1, &["no token with the id abc was issued here", "`orrery token list`"]);
}

#[test]
fn ledgers_are_imported_from_standard_input() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let bundle = data.join("testnet/ledger-4478.xdr.zst");
    let import = ["import", "--json", "--data-dir", "d", "--network", "testnet", "-"];
    let mut command = orrery_in(directory.path());
    let mut child =
        command.args(import).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&fs::read(bundle).unwrap()).unwrap();
    drop(pipe);
    let imported: Ran = child.wait_with_output().unwrap().into();
    assert_eq!(imported.json()["new"], 1);
}
