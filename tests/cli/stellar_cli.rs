//! The published command line client `stellar` builds on the demo: it funds an account, deploys a
//! contract, calls it, and sees its events.

use serde_json::{Value, json};

use crate::network::{own_module, rpc};
use orrery_testkit::binary::Service;
use orrery_testkit::stellar_cli::StellarCli;

/// The passphrase of the demo's network.
const PASSPHRASE: &str = "Standalone Network ; February 2017";

#[test]
fn the_stellar_cli_works_on_the_demo() {
    let Some(program) = StellarCli::program() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (demo, _) = Service::demo(directory.path(), &[]);
    let client = StellarCli::new(program, format!("http://{}/rpc", demo.address), PASSPHRASE);
    for name in ["ana", "ben"] {
        client.text(&["keys", "generate", name, "--fund"]);
    }
    let [ana, ben] = ["ana", "ben"].map(|name| client.text(&["keys", "public-key", name]));
    let call = |contract: &str, function: &str, arguments: &[&str]| {
        let call = ["contract", "invoke", "--id", contract, "--source", "ana", "--", function];
        client.text(&[&call[..], arguments].concat()).trim_matches('"').to_owned()
    };

    // A transfer through the contract of the native asset, and a payment.
    let native = client.text(&["contract", "id", "asset", "--asset", "native"]);
    let balance = || -> i128 { call(&native, "balance", &["--id", &ben]).parse().unwrap() };
    let before = balance();
    let first = client.json(&["ledger", "latest"])["sequence"].to_string();
    call(&native, "transfer", &["--from", &ana, "--to", &ben, "--amount", "70"]);
    let payment = ["tx", "new", "payment", "--source", "ana", "--amount", "5", "--destination"];
    client.text(&[&payment[..], &[&ben]].concat());
    assert_eq!(balance(), before + 75);

    // A contract from a module, which the client reads back with the contract's interface.
    let module = directory.path().join("own.wasm");
    std::fs::write(&module, own_module()).unwrap();
    let module = module.to_str().unwrap();
    let contract = client.text(&["contract", "deploy", "--wasm", module, "--source", "ana"]);
    let fetched = directory.path().join("fetched.wasm");
    client.text(&["contract", "fetch", "--id", &contract, "--out-file", fetched.to_str().unwrap()]);
    assert_eq!(std::fs::read(fetched).unwrap(), own_module());
    call(&contract, "fund", &["--who", &ana, "--cash", "100", "--goods", "100"]);
    let offer = call(&contract, "place", &["--maker", &ana, "--amount", "7", "--price", "3"]);
    assert_eq!(call(&contract, "fill", &["--taker", &ana, "--id", &offer, "--amount", "2"]), "6");

    // The events of the contract, which nobody else calls.
    let arguments = ["events", "--start-ledger", &first, "--id", &contract, "--output", "json"];
    let printed = client.text(&arguments);
    let printed: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = printed.iter().map(|event| event["event_name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Placed", "Filled"]);
    let filter = json!({ "contractIds": [contract] });
    let params = json!({ "startLedger": first.parse::<u32>().unwrap(), "filters": [filter] });
    let events = rpc(&demo, "getEvents", params)["events"].clone();
    let ids = |events: &[Value]| events.iter().map(|it| it["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&printed), ids(events.as_array().unwrap()));
    assert_eq!(printed[0]["params"]["maker"], ana);
}
