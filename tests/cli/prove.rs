//! `orrery prove`: certificates of a running network's events and of recorded ledgers, written,
//! checked and refused.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery::decode::{Placement, decode};
use orrery::domain::{ContractId, Network, NodeId};
use orrery::verify::{Policy, verify};
use orrery_testkit::binary::{Service, run};
use orrery_testkit::client::HTTP;
use orrery_testkit::data::ledgers;
use orrery_testkit::signal::Signal;
use orrery_testkit::wait::wait_until;
use serde_json::{Value, json};

/// A contract of the public network with events in the recorded ledgers.
const RECORDED: &str = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";

/// Returns the first contract that emits events in ledgers of the demo, the ledger, and the validator
/// that has signed it.
fn first_events(demo: &Service) -> Option<(ContractId, u32, NodeId)> {
    let network = Network::from_name_or_passphrase("local");
    let page = json!({ "startLedger": 2, "pagination": { "limit": 200 } });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "getLedgers", "params": page });
    let answer = HTTP.post(format!("{}/rpc", demo.base)).json(&request).send().ok()?;
    let answer: Value = answer.json().ok()?;
    answer["result"]["ledgers"].as_array()?.iter().find_map(|ledger| {
        let raw = STANDARD.decode(ledger["metadataXdr"].as_str()?).unwrap();
        let view = decode(&raw, network.id()).unwrap();
        let signer = verify(&view, network.id(), Policy::default()).unwrap().signer?;
        let of_operation = |it: &&orrery::decode::EventView<'_>| {
            let transaction = &view.transactions[it.transaction];
            transaction.smart_contract && matches!(it.placement, Placement::Operation { .. })
        };
        let event = view.events.iter().find(of_operation)?;
        Some((ContractId(*event.contract?), view.header.sequence.0, signer))
    })
}

fn trust(at: &Path, key: NodeId) {
    let text = format!("[trust]\nthreshold = 1\n[trust.validators]\n\"demo\" = [\"{key}\"]\n");
    std::fs::write(at.join("trust.toml"), text).unwrap();
}

#[test]
fn events_of_a_running_network_are_proven() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, _) = Service::demo(at, &["--close-time", "200"]);
    let (contract, ledger, key) = wait_until("a contract emits events", || first_events(&demo));
    wait_until("later ledgers are stored", || {
        demo.health()["service_latest_ledger"].as_u64().filter(|it| *it > u64::from(ledger) + 3)
    });
    trust(at, key);
    let (contract, from) = (contract.to_string(), ledger.to_string());
    let to = (ledger + 1).to_string();
    let base = format!("{}/rest", demo.base);
    let prove = |to: &str, more: &[&str]| {
        let of = ["prove", "--contract", &contract, "--from", &from, "--to", to];
        run(at, &[&of, ["--out", "a.cert", "--base", &base].as_slice(), more].concat())
    };
    prove(&to, &[]).refuses(2, &["no validators of", "--validators"]);
    assert!(!at.join("a.cert").exists());
    let trusted = ["--validators", "trust.toml"];
    let written = prove(&to, &trusted);
    assert!(written.succeeded().contains("attested by  demo"), "{}", written.stdout);
    // Ledgers that are not closed yet.
    prove("4000000000", &trusted).refuses(1, &["is missing"]);
    assert_eq!(demo.end_with(Signal::INT), Some(0));

    let named = ["--network", "local", "--validators", "trust.toml"];
    let check = |more: &[&str]| run(at, &[&["prove", "--check", "a.cert"], more].concat());
    let checked = check(&named);
    let summary = checked.succeeded();
    assert!(summary.contains(&format!("contract     {contract}\n")), "{summary}");
    assert!(written.stdout.starts_with(summary), "{} {summary}", written.stdout);
    let events = check(&[&named, ["--events"].as_slice()].concat());
    let lines: Vec<Value> =
        events.succeeded().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(summary.contains(&format!("events       {}\n", lines.len())), "{summary}");
    assert!(lines.iter().any(|line| line["ledger"] == ledger), "{lines:?}");
    assert_eq!(events.stderr, summary);

    check(&["--network", "local"]).refuses(2, &["no validators of"]);
    check(&["--network", "testnet"]).refuses(1, &["is of the network local, not of testnet"]);
    let other = [&named, ["--contract", RECORDED].as_slice()].concat();
    check(&other).refuses(1, &["is about contract", &contract, RECORDED]);
    // The certificate does not choose the network, and with it whose validators count.
    check(&trusted)
        .refuses(1, &["is of the network local, not of mainnet", "name it with --network"]);
    let mut changed = std::fs::read(at.join("a.cert")).unwrap();
    changed[200] ^= 1;
    std::fs::write(at.join("a.cert"), &changed).unwrap();
    check(&named).refuses(1, &["is refused", "ledger "]);
    std::fs::write(at.join("a.cert"), "no certificate").unwrap();
    check(&named).refuses(1, &["not a certificate"]);
    std::fs::write(at.join("trust.toml"), "[trust]\nvalidators = { a = [\"G\"] }").unwrap();
    std::fs::write(at.join("a.cert"), &written.stdout).unwrap();
    check(&[]).refuses(1, &["not a certificate"]);
}

/// A mistyped contract is a mistake of the command, whatever the certificate is: nothing is said of it.
#[test]
fn a_mistyped_contract_is_told_from_a_certificate_that_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("a.cert"), "no certificate").unwrap();
    let check = |contract: &str| run(at, &["prove", "--check", "a.cert", "--contract", contract]);
    check(RECORDED).refuses(1, &["not a certificate"]);
    let account = "GDKIJJIKXLOM2NRMPNQZUUYK24ZPVFC6426GZAICZ6O4Y4MEFVRJEYMA";
    let wrong_end = format!("{}B", &RECORDED[..55]);
    for (given, cause, mend) in [
        (
            "CABC",
            "'CABC' is not a contract ID",
            "give a strkey of 56 characters that starts with C",
        ),
        (account, "is not a contract ID", "give a strkey of 56 characters that starts with C"),
        (&wrong_end, "is mistyped: the checksum", "copy it again"),
    ] {
        let ran = check(given);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{given}");
        let sentence = ran.stderr.lines().next().unwrap();
        assert!(sentence.contains(cause) && sentence.contains(mend), "{}", ran.stderr);
    }
}

#[test]
fn recorded_ledgers_are_proven_with_the_validators_of_the_public_network() {
    let Some(ledgers) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let lake = ledgers.join("lake-pubnet");
    let lake = lake.to_str().unwrap();
    let prove = |from: &str, to: &str, more: &[&str]| {
        let of = ["prove", "--contract", RECORDED, "--from", from, "--to", to];
        run(at, &[&of, ["--out", "a.cert"].as_slice(), more].concat())
    };
    prove("63092982", "63092986", &["--network", "mainnet", lake]).succeeded();
    let checked = run(at, &["prove", "--check", "a.cert"]);
    for part in ["events       12\n", "Public Global Stellar Network", "lobstr.co"] {
        assert!(checked.succeeded().contains(part), "{}", checked.stdout);
    }
    let mainnet = ["--network", "mainnet", lake];
    prove("63092982", "63092990", &mainnet).refuses(1, &["ledger 63092990 is not attested", "5"]);
    prove("63092980", "63092983", &mainnet).refuses(1, &["ledger 63092980 is missing"]);
    prove("5", "4", &mainnet).refuses(2, &["--from 5 is after --to 4"]);
    let (network, trusted) = (["--network", "mainnet"], ["--validators", "trust.toml"]);
    let check = || run(at, &[&["prove", "--check", "a.cert"], &network[..], &trusted[..]].concat());
    for (text, told) in [
        ("", "trust"),
        ("[trust]\nvalidators = { a = ['G'] }", "'G' is not the key of a validator"),
        ("[trust]\nvalidators = { }", "no validators are named"),
    ] {
        std::fs::write(at.join("trust.toml"), text).unwrap();
        check().refuses(1, &["trust.toml does not name validators", told]);
    }
    trust(at, NodeId([7; 32]));
    check().refuses(1, &["a.cert is refused: ledger "]);
}

/// Old ledgers that are stored are proven, whether a service runs on them or not, and whatever its RPC
/// interface says of their age.
#[test]
fn stored_ledgers_are_proven_however_old_they_are() {
    let Some(ledgers) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let lake = ledgers.join("lake-pubnet");
    run(at, &["import", "--data-dir", "d", lake.to_str().unwrap()]).succeeded();
    let prove = |name: &str, more: &[&str]| {
        let of = ["prove", "--contract", RECORDED, "--from", "63092982", "--to", "63092986"];
        let ran = run(at, &[&of, ["--out", name].as_slice(), more].concat());
        assert!(ran.succeeded().contains("events       12\n"), "{}", ran.stdout);
        std::fs::read(at.join(name)).unwrap()
    };
    let archive = prove("archive.cert", &["--data-dir", "d"]);
    let service = Service::start_in(at, &["--data-dir", "d"]);
    assert_eq!(prove("served.cert", &["--data-dir", "d"]), archive);
    let base = format!("http://{}/rest", service.address);
    assert_eq!(prove("over-rpc.cert", &["--base", &base]), archive);
    service.stop();
    run(at, &["prove", "--check", "archive.cert"]).succeeded();
    let missing = ["prove", "--contract", RECORDED, "--from", "7", "--to", "8", "--out", "b"];
    run(at, &[&missing[..], &["--data-dir", "d"]].concat()).refuses(1, &["ledger 7 is missing"]);
    // Another service than that of the mistyped directory is not asked.
    let mistyped = run(at, &[&missing[..], &["--data-dir", "dd"]].concat());
    mistyped.refuses(1, &["there is no data directory dd"]);
}
