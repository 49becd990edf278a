//! The official JavaScript client reads the same of generated events, value by value, but for what
//! it converts although it is not of the declared type. `ORRERY_TEST_STELLAR_SDK` names a directory that contains
//! `node_modules/@stellar/stellar-sdk`; without it the test is skipped.

use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery_interfaces::{Interface, Params, declaration};
use orrery_testkit::size;
use serde_json::{Value, json};
use stellar_xdr::{Limits, ScSpecEntry, ScVal, WriteXdr};

use orrery_testkit::random_events::Generator;

/// Number of events of each interface, and for each parameter one that is broken there.
const EVENTS: usize = 20;

fn xdr(value: &impl WriteXdr) -> String {
    STANDARD.encode(value.to_xdr(Limits::none()).unwrap())
}

fn case(entries: &[ScSpecEntry], topics: &[ScVal], data: &ScVal) -> Value {
    let interface = Interface::from_entries(entries.to_vec()).unwrap();
    let interfaces = [&interface];
    let matched = declaration(&interfaces, topics, data);
    let ours = matched.map(
        |matched| json!({"name": matched.declared.name.to_string(), "params": Params(&matched)}),
    );
    json!({
        "spec": entries.iter().map(xdr).collect::<Vec<_>>(),
        "topics": topics.iter().map(xdr).collect::<Vec<_>>(),
        "data": xdr(data),
        "ours": ours,
    })
}

#[test]
fn the_official_client_reads_the_same_values() {
    let Some(sdk) = std::env::var_os("ORRERY_TEST_STELLAR_SDK") else {
        println!("skipped: ORRERY_TEST_STELLAR_SDK names no directory");
        return;
    };
    let mut cases = Vec::new();
    for seed in 0..size::choose(20, 200) {
        let mut generator = Generator::new(seed, true);
        let declared = generator.declared();
        let entries = generator.entries(&declared);
        let broken = (0..declared.topics.len() + declared.data.len()).map(Some);
        for broken in std::iter::repeat_n(None, EVENTS).chain(broken) {
            if let Some((topics, data)) = generator.event(&declared, broken) {
                cases.push(case(&entries, &topics, &data));
            }
        }
    }
    let file = std::env::temp_dir().join(format!("orrery-client-{}.json", std::process::id()));
    std::fs::write(&file, serde_json::to_vec(&cases).unwrap()).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/interfaces/client.mjs");
    let ran = Command::new("node").arg(script).arg(&sdk).arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let output: Value = serde_json::from_slice(&ran.stdout).unwrap();
    println!("{} events: {}", cases.len(), output["counts"]);
    let others = output["others"].as_array().unwrap();
    let first = others.iter().take(5).collect::<Vec<_>>();
    assert!(others.is_empty(), "{} differences: {first:#?}", others.len());
    assert!(output["counts"]["equal"].as_u64() > Some(cases.len() as u64 * 3 / 4));
}
