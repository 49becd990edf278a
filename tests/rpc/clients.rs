//! The published official clients read the public ledgers through the built binary; what they
//! return is compared with ledgers decoded in full by other code.
//!
//! `ORRERY_TEST_STELLAR_SDK` names a directory that contains `node_modules/@stellar/stellar-sdk`,
//! `ORRERY_TEST_STELLAR_SDK_PYTHON` a Python with `stellar-sdk`, and `ORRERY_TEST_STELLAR_CLI` the
//! program `stellar`. Without them the tests are skipped.

mod command_line;

use std::process::Command;

use orrery::decode::decode;
use orrery::store::{Durability, IndexOptions, PreparedLedger, Store};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{events, naive};
use orrery_testkit::binary::Service;
use orrery_testkit::pubnet;

/// One transaction in this many is also looked up by its hash.
const SINGLES: usize = 37;

fn picked(item: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| item[name].clone()).collect()
}

/// What a client should return, except for the version and the fees, which depend on the server.
fn expected(ledgers: &[Vec<u8>], options: &IndexOptions) -> Value {
    let network = pubnet::network();
    let decoded: Vec<_> = ledgers.iter().map(|raw| naive::ledger(raw, &network)).collect();
    let last = decoded.last().unwrap();
    let transactions: Vec<Value> = decoded
        .iter()
        .flat_map(|ledger| &ledger.transactions)
        .map(|transaction| {
            let names =
                ["txHash", "status", "ledger", "applicationOrder", "feeBump", "envelopeXdr"];
            let names = [&names[..], &["resultXdr", "resultMetaXdr"]].concat();
            picked(&transaction.items[0], &names)
        })
        .collect();
    let ledger = |ledger: &naive::Ledger| {
        picked(&ledger.items[0], &["sequence", "hash", "headerXdr", "metadataXdr"])
    };
    let event = |event: &Value| {
        let names = ["id", "type", "ledger", "ledgerClosedAt", "contractId", "txHash"];
        let more = ["operationIndex", "transactionIndex", "inSuccessfulContractCall", "topic"];
        picked(event, &[&names[..], &more, &["value"]].concat())
    };
    let events = events::shown_events(&network, ledgers, options);
    json!({
        "passphrase": network.passphrase(),
        "latest": [last.sequence, last.hash],
        "ledgers": decoded.iter().map(ledger).collect::<Vec<_>>(),
        "singles": transactions.iter().step_by(SINGLES).collect::<Vec<_>>(),
        "transactions": transactions,
        "events": events.iter().map(event).collect::<Vec<_>>(),
    })
}

/// The built binary, serving the public ledgers.
struct Served {
    service: Service,
    ledgers: Vec<Vec<u8>>,
    options: IndexOptions,
    _directory: TempDir,
}

impl Served {
    /// Starts the service; `None` when the public ledgers are missing.
    fn start() -> Option<Self> {
        let ledgers = pubnet::ledgers()?;
        let (network, directory) = (pubnet::network(), tempfile::tempdir().unwrap());
        let options = IndexOptions {
            classic_events: true,
            fee_events: true,
            raw_ledgers: true,
            ..IndexOptions::default()
        };
        let store = Store::open(directory.path(), Some(&network)).unwrap();
        for raw in &ledgers {
            let prepared = PreparedLedger::new(&decode(raw, network.id()).unwrap(), &options);
            store.commit(prepared.unwrap(), Durability::Deferred).unwrap();
        }
        store.flush().unwrap();
        drop(store);
        let settings =
            [("ORRERY_INDEX_CLASSIC_EVENTS", "true"), ("ORRERY_INDEX_FEE_EVENTS", "true")];
        let service = Service::start_with(directory.path(), &settings);
        Some(Self { service, ledgers, options, _directory: directory })
    }

    fn url(&self) -> String {
        format!("{}/rpc", self.service.base)
    }
}

fn reads_the_public_ledgers(mut client: impl FnMut(&str, &str) -> Command) {
    let Some(served) = Served::start() else { return };
    let ran = client(&served.url(), &pubnet::FIRST.to_string()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let output: Value = serde_json::from_slice(&ran.stdout).unwrap();
    for (name, wanted) in expected(&served.ledgers, &served.options).as_object().unwrap() {
        let found = &output[name];
        if let (Some(found), Some(wanted)) = (found.as_array(), wanted.as_array()) {
            assert_eq!(found.len(), wanted.len(), "{name}");
            for (found, wanted) in found.iter().zip(wanted) {
                assert!(found == wanted, "{name}\n{found}\n{wanted}");
            }
        }
        assert!(found == wanted, "{name}");
    }
    // These ledgers closed long ago, so `getHealth` fails and reports the latency.
    assert!(output["health"].as_str().unwrap().starts_with("latency ("), "{}", output["health"]);
    assert!(output["version"].as_str().unwrap().starts_with(|it: char| it.is_ascii_digit()));
    assert!(output["fees"].as_array().unwrap().iter().all(|fee| fee.as_str().is_some()));
    println!("{} events", output["events"].as_array().unwrap().len());
}

#[test]
fn the_javascript_sdk_reads_the_public_ledgers() {
    let Some(sdk) = std::env::var_os("ORRERY_TEST_STELLAR_SDK") else {
        println!("skipped: ORRERY_TEST_STELLAR_SDK names no directory");
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rpc/clients/methods.mjs");
    reads_the_public_ledgers(|url, first| {
        let mut node = Command::new("node");
        node.arg(script).arg(&sdk).args([url, first]);
        node
    });
}

#[test]
fn the_python_sdk_reads_the_public_ledgers() {
    let Some(python) = std::env::var_os("ORRERY_TEST_STELLAR_SDK_PYTHON") else {
        println!("skipped: ORRERY_TEST_STELLAR_SDK_PYTHON names no Python");
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rpc/clients/methods.py");
    reads_the_public_ledgers(|url, first| {
        let mut client = Command::new(&python);
        client.arg(script).args([url, first]);
        client
    });
}
