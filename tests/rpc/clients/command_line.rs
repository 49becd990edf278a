//! The command line client `stellar`, run for every method that it calls.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{SINGLES, Served, expected};
use orrery_testkit::pubnet;
use orrery_testkit::stellar_cli::StellarCli;

/// Maximum number of events that the client requests at a time: it refuses larger responses than 10
/// MiB.
const PAGE: usize = 2000;
/// One transaction in this many is looked up: each takes three processes.
const LOOKED_UP: usize = 2;
/// The symbol `transfer`.
const TRANSFER: &str = "AAAADwAAAAh0cmFuc2Zlcg==";

/// Returns a page of events.
fn page(client: &StellarCli, from: [&str; 2], more: &[&str]) -> Vec<Value> {
    let count = PAGE.to_string();
    let arguments = [&["events", "--output", "json", "--count", &count], &from[..], more].concat();
    let output = client.text(&arguments);
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns all events that match, page by page.
fn events(client: &StellarCli, more: &[&str]) -> Vec<Value> {
    let first = pubnet::FIRST.to_string();
    let mut all = page(client, ["--start-ledger", &first], more);
    while let Some(last) = all.last() {
        let cursor = last["id"].as_str().unwrap().to_owned();
        let next = page(client, ["--cursor", &cursor], more);
        if next.is_empty() {
            break;
        }
        all.extend(next);
    }
    all.iter().map(listed).collect()
}

/// Returns the members of an event in the order in which [`expected`] lists them.
fn listed(event: &Value) -> Value {
    let names = ["id", "type", "ledger", "ledgerClosedAt", "contractId", "txHash"];
    let more = ["operationIndex", "transactionIndex", "inSuccessfulContractCall", "topic", "value"];
    names.iter().chain(&more).map(|name| event[name].clone()).collect()
}

#[test]
fn the_stellar_cli_reads_the_public_ledgers() {
    let Some(program) = StellarCli::program() else { return };
    let Some(served) = Served::start() else { return };
    let client = StellarCli::new(program, served.url(), pubnet::network().passphrase());
    let expected = expected(&served.ledgers, &served.options);

    let info = client.json(&["network", "info"]);
    assert_eq!(info["passphrase"], expected["passphrase"]);
    assert!(info["version"].as_str().unwrap().starts_with(|it: char| it.is_ascii_digit()));
    let latest = client.json(&["ledger", "latest"]);
    assert_eq!(json!([latest["sequence"], latest["id"]]), expected["latest"]);
    assert!(client.json(&["fees", "stats"])["inclusionFee"]["p99"].is_string());
    // These ledgers closed long ago.
    let health = client.run(&["network", "health"]);
    assert!(!health.status.success());
    assert!(String::from_utf8_lossy(&health.stderr).contains("latency ("));

    for wanted in expected["ledgers"].as_array().unwrap() {
        let sequence = wanted[0].to_string();
        let fetched = client.json(&["ledger", "fetch", &sequence, "--xdr-format", "xdr"]);
        let [ledger] = &fetched["ledgers"].as_array().unwrap()[..] else { panic!("{fetched}") };
        let names = ["sequence", "hash", "headerXdr", "metadataXdr"];
        let found: Value = names.iter().map(|name| ledger[name].clone()).collect();
        assert!(found == *wanted, "ledger {sequence}");
    }

    let singles = expected["singles"].as_array().unwrap();
    assert!(singles.len() > SINGLES);
    for wanted in singles.iter().step_by(LOOKED_UP) {
        let hash = wanted[0].as_str().unwrap();
        let part = |part: &[&str]| {
            let arguments = [&["tx", "fetch"], part, &["--hash", hash, "--output", "xdr"]].concat();
            client.text(&arguments)
        };
        let found = json!([part(&[]), part(&["result"]), part(&["meta"])]);
        let wanted: Value = (5..8).map(|at| wanted[at].clone()).collect();
        assert!(found == wanted, "{hash}");
    }

    let all = events(&client, &[]);
    let wanted = expected["events"].as_array().unwrap();
    assert_eq!(all.len(), wanted.len());
    for (found, wanted) in all.iter().zip(wanted) {
        assert_eq!(found, wanted);
    }
    // The contract with the most transfers of four topics.
    let mut transfers: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for event in wanted {
        if event[9][0] == TRANSFER && event[9].as_array().unwrap().len() == 4 {
            transfers.entry(event[4].as_str().unwrap()).or_default().push(event);
        }
    }
    let (contract, wanted) = transfers.into_iter().max_by_key(|(_, all)| all.len()).unwrap();
    let found = events(&client, &["--id", contract, "--topic", &format!("{TRANSFER},*,*,*")]);
    assert!(found.iter().eq(wanted), "{contract}");
}
