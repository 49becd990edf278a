//! Contracts that call each other, and programs that were not written by their contract's author:
//! which rows survive, and what a run's record says when the program behaves differently from what
//! the network recorded.

use orrery::domain::ContractId;
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use crate::network::{Chain, address, built};
use crate::service::{Owner, Scene};
use orrery_testkit::binary::Service;
use orrery_testkit::values::list;

fn deploy(owner: &Owner, program: &str, project: &str, contracts: &[ContractId]) -> Value {
    let contracts: Vec<String> = contracts.iter().map(ContractId::to_string).collect();
    let code = built(program);
    owner.post("deploy", &json!({ "code": code, "project_name": project, "contracts": contracts }))
}

fn u32v(number: u32) -> ScVal {
    ScVal::U32(number)
}

/// Returns the records of a program's runs, oldest first.
fn runs(owner: &Owner, program: u64) -> Vec<Value> {
    let mut runs =
        owner.get(&format!("{program}/executions?limit=200")).as_array().unwrap().clone();
    runs.reverse();
    runs
}

#[test]
fn rows_of_a_failed_call_are_rolled_back() {
    let mut chain = Chain::new();
    let caller = chain.create("caller", Vec::new());
    let inner = chain.create("inner", Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    deploy(&owner, "caller_program", "calls", &[caller]);
    deploy(&owner, "inner_program", "works", &[inner]);
    let begun = chain.latest() + 1;
    for fail in 0..=3 {
        let arguments = vec![address(inner), u32v(2), u32v(fail)];
        assert_eq!(chain.call(caller, "attempt", arguments), ScVal::Bool(fail == 0));
    }
    assert_eq!(chain.call(caller, "insist", vec![address(inner), u32v(1), u32v(0)]), u32v(2));
    // Called directly by an account, not through the caller contract.
    assert_eq!(chain.call(inner, "work", vec![u32v(1), u32v(0)]), u32v(3));
    chain.import_into(&scene);
    owner.wait_for_rows("calls_call_stage", 10);
    owner.wait_for_rows("works_work_done", 4);

    let stages = owner
        .query("select _ledger, me, stage, ok from calls_call_stage order by _ledger, stage desc");
    let me = caller.to_string();
    let stage = |ledger: u32, stage: &str, ok: bool| json!({ "_ledger": ledger, "me": me, "stage": stage, "ok": ok });
    let expected: Vec<Value> = (0..5)
        .flat_map(|call| {
            let ok = call == 0 || call == 4;
            [stage(begun + call, "before", true), stage(begun + call, "after", ok)]
        })
        .collect();
    assert_eq!(stages, expected);
    let done = owner.query(
        "select _ledger, worker, unit, calls, contract_id from works_work_done \
         order by _ledger, unit",
    );
    let work = |ledger: u32, unit: u32, calls: u32| {
        let (worker, contract_id) = (inner.to_string(), inner.to_string());
        json!({
            "_ledger": ledger, "worker": worker, "unit": unit, "calls": calls,
            "contract_id": contract_id,
        })
    };
    let expected =
        [work(begun, 0, 1), work(begun, 1, 1), work(begun + 4, 0, 2), work(begun + 5, 0, 3)];
    assert_eq!(done, expected);
    // A run whose rows were all rolled back is a success with no rows.
    let written: Vec<Value> =
        runs(&owner, 2).iter().map(|run| run["rows_written"].clone()).collect();
    assert_eq!(written, [2, 0, 0, 0, 1, 1]);
    for run in runs(&owner, 1).iter().chain(&runs(&owner, 2)) {
        assert_eq!(
            (&run["status"], &run["fidelity"]),
            (&json!("success"), &json!("exact")),
            "{run}"
        );
    }
}

#[test]
fn a_program_for_several_contracts_runs_at_every_call_depth() {
    let mut chain = Chain::new();
    let all: Vec<ContractId> = (0..4).map(|_| chain.create("caller", Vec::new())).collect();
    let (a, rest) = (all[0], &all[1..]);
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    deploy(&owner, "caller_program", "calls", &all);
    let path = || list(rest.iter().map(|contract| address(*contract)));
    let descend = |path: ScVal, fail: ScVal| vec![path, fail];
    let first = chain.latest() + 1;
    assert_eq!(chain.call(a, "descend", descend(path(), ScVal::Void)), u32v(3));
    assert_eq!(chain.call(a, "descend", descend(path(), u32v(1))), u32v(1));
    // The host rejects re-entrant calls.
    assert_eq!(chain.call(a, "descend", descend(list([address(a)]), ScVal::Void)), u32v(0));
    chain.import_into(&scene);
    owner.wait_for_rows("calls_call_stage", 14);
    let sql = "select _ledger - ? as number, me, stage, \"left\", ok from calls_call_stage \
               order by _ledger, stage desc, \"left\" desc";
    let rows = owner.post("query", &json!({ "query": sql, "params": [first] }));
    let row = |call: u32, at: usize, stage: &str, left: u32, ok: bool| {
        let me = all[at].to_string();
        json!({ "number": call, "me": me, "stage": stage, "left": left, "ok": ok })
    };
    let mut expected = Vec::new();
    for stage in ["before", "after"] {
        expected.extend((0..4).map(|at| row(0, at, stage, 3 - at as u32, true)));
    }
    // The third call failed and rolled the fourth back; the second handled the error.
    expected.extend([row(1, 0, "before", 3, true), row(1, 1, "before", 2, true)]);
    expected.extend([row(1, 0, "after", 3, true), row(1, 1, "after", 2, false)]);
    expected.extend([row(2, 0, "before", 1, true), row(2, 0, "after", 1, false)]);
    assert_eq!(rows, json!(expected));
}

#[test]
fn a_program_with_other_code_is_exact_or_reports_the_divergence() {
    let mut chain = Chain::new();
    let counter = chain.create("counter", vec![u32v(8)]);
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    deploy(&owner, "counter_program", "count", &[counter]);
    deploy(&owner, "counter_diverging", "diverge", &[counter]);
    let mut count = 8;
    // The service sees the contract's creation after the deploy, so it runs the constructor.
    let start = json!({ "before": 0, "after": 8, "difference": 8, "how": "start" });
    let mut expected = vec![start];
    for by in [1, 101, 102, 103, 104, 105] {
        let before = count;
        count += by;
        assert_eq!(chain.call(counter, "increment", vec![u32v(by)]), u32v(count));
        expected.push(
            json!({ "before": before, "after": count, "difference": by, "how": "increment" }),
        );
    }
    assert_eq!(chain.call(counter, "reset", Vec::new()), u32v(count));
    expected.push(
        json!({ "before": count, "after": 0, "difference": -i64::from(count), "how": "reset" }),
    );
    chain.import_into(&scene);
    let sql = |project: &str| {
        format!(
            "select before, after, difference, how from {project}_count_changed order by _ledger"
        )
    };
    owner.wait_for_rows("count_count_changed", expected.len());
    assert_eq!(owner.query(&sql("count")), expected);
    let exact = runs(&owner, 1);
    assert!(exact.iter().all(|run| run["fidelity"] == "exact"), "{exact:?}");

    // Each run starts from the state that the network recorded, whatever the diverging program did
    // before.
    owner.wait_for_rows("diverge_count_changed", expected.len() - 1);
    expected.remove(6);
    assert_eq!(owner.query(&sql("diverge")), expected);
    let runs = runs(&owner, 2);
    let found: Vec<_> =
        runs.iter().map(|run| (run["status"].clone(), run["fidelity"].clone())).collect();
    let succeeded = |fidelity: &str| (json!("success"), json!(fidelity));
    assert_eq!(found.len(), 8, "{found:?}");
    assert_eq!(found[..2], [succeeded("exact"), succeeded("exact")]);
    for run in &runs[2..6] {
        assert_eq!(
            (&run["status"], &run["fidelity"]),
            (&json!("success"), &json!("diverged")),
            "{run}"
        );
    }
    assert_eq!(runs[6]["status"], "error", "{}", runs[6]);
    assert_eq!(runs[6]["rows_written"], 0);
    assert_eq!(found[7], succeeded("exact"));
}

#[test]
fn a_missing_function_fails_only_its_run() {
    let mut chain = Chain::new();
    let counter = chain.create("counter", vec![u32v(0)]);
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    deploy(&owner, "counter_program", "count", &[counter]);
    assert_eq!(chain.call(counter, "forgotten", Vec::new()), u32v(1));
    assert_eq!(chain.call(counter, "increment", vec![u32v(2)]), u32v(3));
    chain.import_into(&scene);
    owner.wait_for_rows("count_count_changed", 2);
    let runs = runs(&owner, 1);
    assert_eq!(runs.len(), 3, "{runs:?}");
    assert_eq!(runs[1]["status"], "error");
    let message = runs[1]["error_message"].as_str().unwrap();
    assert!(message.contains("forgotten"), "{message}");
    assert_eq!(runs[2]["status"], "success");
    assert_eq!(
        owner.query("select before, after from count_count_changed where how = 'increment'"),
        [json!({ "before": 1, "after": 3 })]
    );
}
