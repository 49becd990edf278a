//! Runs at and just above each limit, modules built for either WASM target, and authorised calls.

use orrery::domain::ContractId;
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use crate::network::{Chain, built, call};
use crate::service::{Owner, Scene};
use orrery_testkit::binary::Service;
use orrery_testkit::engine_world::module;

fn deploy(owner: &Owner, program: &str, project: &str, contract: ContractId) -> Value {
    let contracts = [contract.to_string()];
    let body = json!({ "code": built(program), "project_name": project, "contracts": contracts });
    owner.post("deploy", &body)
}

/// Returns the records of a program's runs, oldest first.
fn runs(owner: &Owner, program: u64) -> Vec<Value> {
    let mut runs =
        owner.get(&format!("{program}/executions?limit=200")).as_array().unwrap().clone();
    runs.reverse();
    runs
}

#[test]
fn run_limits_are_inclusive() {
    let mut chain = Chain::new();
    let heavy = chain.create("heavy", Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    deploy(&owner, "heavy_program", "heavy", heavy);
    let number = ScVal::U32;
    let calls: [(&str, Vec<ScVal>, Option<&str>); 8] = [
        ("rows", vec![number(1_000), number(0)], None),
        ("rows", vec![number(1_001), number(0)], Some("1000")),
        ("rows", vec![number(10), number(100_000)], None),
        ("rows", vec![number(11), number(100_000)], Some("1 MiB")),
        ("wide", vec![number(100)], None),
        ("wide", vec![number(101)], Some("may have 100")),
        // The row itself counts as the outermost level.
        ("deep", vec![number(7)], None),
        ("deep", vec![number(8)], Some("deeper than 8 levels")),
    ];
    for (function, arguments, _) in &calls {
        chain.call(heavy, function, arguments.clone());
    }
    chain.import_into(&scene);
    owner.wait("all are run", |it| it.get("1/status")["total_executions"] == 8);
    for ((function, arguments, refused), run) in calls.iter().zip(runs(&owner, 1)) {
        match refused {
            None => assert_eq!(run["status"], "success", "{function} {arguments:?}: {run}"),
            Some(word) => {
                assert_eq!(run["status"], "error", "{function} {arguments:?}: {run}");
                assert_eq!(run["rows_written"], 0);
                let message = run["error_message"].as_str().unwrap();
                assert!(message.contains(word), "{message}");
            }
        }
    }
    owner.wait_for_rows("heavy_heavy_row", 1_010);
    owner.wait_for_rows("heavy_deep_row", 1);
    let sums = "select octet_length(payload) bytes, count(*) n, sum(number) numbers, \
                count(distinct _service_event_id) ids from heavy_heavy_row group by 1 order by 1";
    let expected = [
        json!({ "bytes": 0, "n": 1_000, "numbers": 499_500, "ids": 1_000 }),
        json!({ "bytes": 100_000, "n": 10, "numbers": 45, "ids": 10 }),
    ];
    assert_eq!(owner.query(sums), expected);
    let wide = "select column_000, column_042, column_099 from heavy_wide_row";
    let row = json!({ "column_000": 0, "column_042": 42, "column_099": 99 });
    assert_eq!(owner.query(wide), [row]);
    let deep = "select value from heavy_deep_row";
    assert_eq!(owner.query(deep), [json!({ "value": [[[[[[[7]]]]]]] })]);
}

#[test]
fn an_owner_over_the_row_limit_is_stopped_and_resumes() {
    let mut chain = Chain::new();
    let heavy = chain.create("heavy", Vec::new());
    let scene = Scene::new();
    let little = [("ORRERY_PROGRAMS_OWNER_MIB", "2")];
    {
        let service = Service::start_with(scene.path(), &little);
        let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
        deploy(&ana, "heavy_program", "large", heavy);
        deploy(&bob, "heavy_program", "other", heavy);
        bob.post("2/pause", &json!({}));
        // Just under 1 MiB per call.
        for _ in 0..5 {
            chain.call(heavy, "rows", vec![ScVal::U32(10), ScVal::U32(100_000)]);
        }
        chain.import_into(&scene);
        ana.wait("it stops", |it| it.get("1/status")["running"] == false);
        let status = ana.get("1/status");
        let why = status.to_string();
        assert!(why.contains("have reached the size limit of one owner"), "{why}");
        let kept = runs(&ana, 1).len();
        assert!((2..5).contains(&kept), "{kept} runs");
        ana.wait_for_rows("large_heavy_row", kept * 10);
        // Resuming without freeing space stops the program again.
        ana.post("1/resume", &json!({}));
        ana.wait("it stops again", |it| it.get("1/status")["running"] == false);
        // Quotas are per owner: the other owner still has space.
        bob.post("2/resume", &json!({}));
        bob.wait("bob's is stopped by his own rows", |it| it.get("2/status")["running"] == false);
        assert_eq!(runs(&bob, 2).len(), kept);
        // A backfill of stored ledgers is subject to the same quota.
        bob.post("2/backfill", &json!({ "from": 0, "to": chain.latest() }));
        bob.wait("the backfill ends", |it| it.get("2/backfill")["state"] != "running");
        let order = bob.get("2/backfill");
        assert_eq!((&order["state"], &order["rows_written"]), (&json!("stopped"), &json!(0)));
        assert!(order["message"].as_str().unwrap().contains("the size limit"), "{order}");
    }
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    ana.post("1/resume", &json!({}));
    ana.wait_for_rows("large_heavy_row", 50);
    assert_eq!(runs(&ana, 1).len(), 5, "nothing is left out and nothing run twice");
}

#[test]
fn random_numbers_and_entries_are_reproduced_on_every_run() {
    let mut chain = Chain::new();
    let heavy = chain.create("heavy", Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    deploy(&owner, "heavy_program", "heavy", heavy);
    chain.call(heavy, "store", vec![ScVal::U32(20)]);
    chain.call(heavy, "random", vec![ScVal::U32(9)]);
    chain.call(heavy, "spin", vec![ScVal::U64(100_000)]);
    chain.import_into(&scene);
    owner.wait_for_rows("heavy_random_number", 9);
    owner.wait("all are run", |it| it.get("1/status")["total_executions"] == 3);
    let runs = runs(&owner, 1);
    for run in [&runs[0], &runs[2]] {
        assert_eq!((&run["fidelity"], &run["rows_written"]), (&json!("exact"), &json!(0)), "{run}");
    }
    let sql = "select * from heavy_random_number order by number";
    let rows = owner.query(sql);
    owner.post("1/backfill", &json!({ "from": 0, "to": 1_000 }));
    owner.wait("the backfill ends", |it| it.get("1/backfill")["state"] == "incomplete");
    assert_eq!(owner.get("1/backfill")["rows_written"], 0);
    // A second program with the same code draws the same random numbers for the same ledgers.
    deploy(&owner, "heavy_program", "again", heavy);
    owner.post("2/backfill", &json!({ "from": 0, "to": 1_000 }));
    owner.wait_for_rows("again_random_number", 9);
    assert_eq!(owner.query(sql), rows);
    let both =
        "select count(*) n from heavy_random_number join again_random_number using (number, value)";
    assert_eq!(owner.query(both)[0]["n"], 9);
}

/// A contract that computes like `legacy` does, on small numbers: adds, subtracts, multiplies.
fn calculator() -> Vec<u8> {
    module(
        r#"(memory (export "memory") 1)
           (func $number (param i64) (result i64) (i64.shr_s (local.get 0) (i64.const 8)))
           (func (export "compute") (param i64 i64 i64 i64) (result i64)
             (local $l i64) (local $r i64) (local $operation i64)
             (local.set $l (call $number (local.get 2)))
             (local.set $r (call $number (local.get 3)))
             (local.set $operation (i64.shr_u (local.get 1) (i64.const 32)))
             (i64.or (i64.const 7) (i64.shl
               (if (result i64) (i64.eqz (local.get $operation))
                 (then (i64.add (local.get $l) (local.get $r)))
                 (else (if (result i64) (i64.eq (local.get $operation) (i64.const 1))
                   (then (i64.sub (local.get $l) (local.get $r)))
                   (else (i64.mul (local.get $l) (local.get $r))))))
               (i64.const 8))))
           (func (export "_"))"#,
    )
}

#[test]
fn modules_for_the_older_wasm_target_give_the_same_rows() {
    let mut chain = Chain::new();
    let contract = chain.create_of(&calculator(), Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    let projects = ["legacy", "legacy_defaults", "legacy_proposals"];
    for (number, project) in (1..).zip(projects) {
        let deployed = deploy(&owner, project, project, contract);
        assert_eq!(deployed["tables"], json!([format!("program_{number}_legacy_result")]));
    }
    let who = ScVal::Address(chain.accounts()[0].clone());
    let first = chain.latest() + 1;
    let mut expected = Vec::new();
    for (number, (operation, left, right, result)) in
        (0..).zip([(0, 20, 22, 42), (1, -1, 1 << 40, -1 - (1 << 40)), (2, -7, 6, -42)])
    {
        let arguments =
            vec![who.clone(), ScVal::U32(operation), ScVal::I64(left), ScVal::I64(right)];
        assert_eq!(chain.call(contract, "compute", arguments), ScVal::I64(result));
        expected.push(json!({
            "who": chain.accounts()[0].to_string(), "operation": operation, "left": left,
            "right": right, "result": result, "ledger": first + number,
        }));
    }
    chain.import_into(&scene);
    for (number, project) in (1..).zip(projects) {
        owner.wait_for_rows(&format!("{project}_legacy_result"), 3);
        let sql = format!(
            "select who, operation, \"left\", \"right\", result, ledger from {project}_legacy_result \
             order by ledger"
        );
        assert_eq!(owner.query(&sql), expected, "{project}");
        for run in runs(&owner, number) {
            assert_eq!(
                (&run["status"], &run["fidelity"]),
                (&json!("success"), &json!("exact")),
                "{run}"
            );
        }
    }
}

#[test]
fn authorised_calls_in_one_ledger_are_run_in_order() {
    let mut chain = Chain::new();
    let deposit = chain.create("deposit", Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    deploy(&owner, "deposit_program", "deposits", deposit);
    let accounts: Vec<ScVal> = chain.accounts()[..6].iter().cloned().map(ScVal::Address).collect();
    let amount = |number: i128| ScVal::from(number);
    // The first deposit of each account creates its entry; then one ledger holds six deposits of
    // one account in sequence.
    let made: Vec<_> = accounts
        .iter()
        .map(|who| call(deposit, "deposit", vec![who.clone(), amount(100)]))
        .collect();
    chain.close(&made);
    let many: Vec<_> = (1..=6)
        .map(|number| call(deposit, "deposit", vec![accounts[0].clone(), amount(number)]))
        .collect();
    let returned = chain.close(&many);
    chain.import_into(&scene);
    owner.wait_for_rows("deposits_deposit_made", 12);
    let sql = "select \"before\", \"after\", amount, number from deposits_deposit_made \
               where number > 1 order by number";
    let rows = owner.query(sql);
    let mut before = 100;
    for (row, after) in rows.iter().zip(&returned) {
        let ScVal::I128(after) = after else { panic!("{after:?}") };
        let after = i128::from(after) as i64;
        let number = row["number"].as_i64().unwrap();
        assert_eq!(
            *row,
            json!({ "before": before, "after": after, "amount": after - before, "number": number })
        );
        before = after;
    }
    assert_eq!((rows.len(), before), (6, 121));
    for run in runs(&owner, 1) {
        assert_eq!(
            (&run["status"], &run["fidelity"]),
            (&json!("success"), &json!("exact")),
            "{run}"
        );
    }
}
