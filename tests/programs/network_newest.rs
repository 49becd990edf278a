//! Programs on a network with the newest protocol: contracts whose executable is a reference
//! (CAP-85), structs passed as sparse maps (CAP-86), close times in milliseconds (CAP-88) and
//! ledgers without their transaction set (CAP-83).

use std::sync::LazyLock;

use orrery::domain::{LedgerSeq, Network};
use serde_json::{Value, json};

use crate::service::{Owner, PASSPHRASE, Scene};
use orrery_testkit::binary::Service;
use orrery_testkit::newest::{Newest, program};

static NEWEST: LazyLock<Newest> =
    LazyLock::new(|| Newest::made(Network::from_passphrase(PASSPHRASE), 3));

/// Starts a service, deploys a program for the given contracts, imports all ledgers and waits for
/// `answers` rows.
fn run_on(contracts: &[String], answers: usize) -> (Scene, Service, Owner) {
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    let code = program(1);
    owner.post("deploy", &json!({ "code": code, "project_name": "new", "contracts": contracts }));
    scene.import_ledgers(&NEWEST.ledgers);
    owner.wait_for_rows("new_answer", answers);
    (scene, service, owner)
}

fn runs(owner: &Owner) -> Vec<Value> {
    let mut runs = owner.get("1/executions?limit=200").as_array().unwrap().clone();
    runs.reverse();
    runs
}

#[test]
fn contracts_of_external_references_are_indexed_from_creation() {
    let contracts = NEWEST.fleet.map(|id| id.to_string());
    let calls = calls_of_the_fleet();
    let (_scene, _service, owner) = run_on(&contracts, calls.len());
    // Each contract was created in a transaction of its own, in which the program's constructor is
    // run.
    owner.wait_for_rows("new_born", contracts.len());
    let born = owner.query("select contract_id, number from new_born order by _ledger");
    let expected: Vec<Value> =
        contracts.iter().map(|id| json!({ "contract_id": id, "number": 1 })).collect();
    assert_eq!(born, expected);
    // Every call is a row, whichever code the reference pointed at; the run's record says
    // `diverged` where the network ran other code than the program's.
    let runs = runs(&owner);
    let runs = &runs[contracts.len()..];
    assert_eq!(runs.len(), calls.len(), "{runs:?}");
    for (run, (ledger, returned)) in runs.iter().zip(&calls) {
        let fidelity = if *returned == 1 { "exact" } else { "diverged" };
        assert_eq!(
            (&run["ledger_sequence"], &run["status"]),
            (&json!(ledger.0), &json!("success"))
        );
        assert_eq!(run["fidelity"], fidelity, "{run}");
    }
    let within: Vec<u32> =
        calls.iter().filter(|(at, _)| *at == NEWEST.repointed).map(|(_, value)| *value).collect();
    assert_eq!(within, [1, 2], "the reference was pointed elsewhere between two calls");
}

/// Ledger and return value of every call of a contract of the fleet.
fn calls_of_the_fleet() -> Vec<(LedgerSeq, u32)> {
    use stellar_xdr::{ScVal, TransactionMeta};

    let mut calls = Vec::new();
    for sequence in (2..).map(LedgerSeq).take(NEWEST.ledgers.len()) {
        for applied in NEWEST.meta(sequence).tx_processing.iter() {
            let TransactionMeta::V4(meta) = &applied.tx_apply_processing else { continue };
            let events = meta.operations.iter().flat_map(|operation| operation.events.iter());
            let by_fleet = events.filter_map(|event| event.contract_id.as_ref());
            let by_fleet =
                by_fleet.filter(|id| NEWEST.fleet.iter().any(|of| of.0 == id.0.0)).count();
            let soroban = meta.soroban_meta.as_ref();
            if let (1.., Some(ScVal::U32(number))) =
                (by_fleet, soroban.and_then(|soroban| soroban.return_value.clone()))
            {
                calls.push((sequence, number));
            }
        }
    }
    calls
}

#[test]
fn a_contract_stays_indexed_when_it_changes_to_a_reference_and_back() {
    let (_scene, _service, owner) = run_on(&[NEWEST.adopter.to_string()], 3);
    let runs = runs(&owner);
    let of = |ledger: LedgerSeq| {
        runs.iter()
            .find(|run| run["ledger_sequence"] == ledger.0)
            .unwrap_or_else(|| panic!("no run in {ledger}: {runs:?}"))
    };
    // A transaction that changes the executable emits no row; its run is exact, because the
    // executables match those that the network recorded.
    for ledger in NEWEST.adopted {
        let run = of(ledger);
        assert_eq!((&run["status"], &run["rows_written"]), (&json!("success"), &json!(0)), "{run}");
        assert_eq!(run["fidelity"], "exact", "{run}");
    }
    let rows = owner.query("select a, b, \"inner\", number from new_answer order by _ledger");
    let without = json!({ "a": null, "b": null, "inner": { "x": null, "y": null }, "number": 1 });
    let with = json!({ "a": 9, "b": null, "inner": { "x": 9, "y": null }, "number": 1 });
    assert_eq!(rows, [without.clone(), without, with]);
    let columns = owner.query("describe new_answer");
    let kind = |name: &str| {
        let column = columns.iter().find(|it| it["column_name"] == name).unwrap();
        column["column_type"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        ["a", "b", "inner", "number"].map(kind),
        ["UINTEGER", "VARCHAR", "STRUCT(x UINTEGER, y UINTEGER)", "UINTEGER"]
    );
}

#[test]
fn rows_have_milliseconds_where_ledgers_do() {
    let (_scene, _service, owner) = run_on(&[NEWEST.adopter.to_string()], 3);
    let rows = owner.query(
        "select _ledger, epoch_ms(_ledger_closed_at) as ms from new_answer order by _ledger",
    );
    let expected: Vec<Value> = rows
        .iter()
        .map(|row| {
            let ledger = LedgerSeq(u32::try_from(row["_ledger"].as_u64().unwrap()).unwrap());
            let value = NEWEST.meta(ledger).ledger_header.header.scp_value;
            let stellar_xdr::StellarValueExt::SignedMs(value) = value.ext else {
                panic!("{ledger}: {:?}", value.ext)
            };
            json!({ "_ledger": ledger.0, "ms": value.close_time_ms.0 })
        })
        .collect();
    assert_eq!(rows, expected);
    let digits = rows.iter().map(|row| row["ms"].as_u64().unwrap() % 1000);
    assert!(digits.into_iter().any(|part| part != 0), "{rows:?}");
}
