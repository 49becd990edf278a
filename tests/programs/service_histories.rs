//! Random emits through the whole service: runs on new ledgers and in a backfill, tables of the
//! owner and of a subscriber, with workers killed in between. Tables filled step by step equal,
//! cell by cell, those rebuilt from the same rows.
//!
//! Small: 6 steps of 5 calls; full: 60 of 20.

use std::path::Path;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::network::{Chain, built, call};
use crate::network_growth::silent;
use crate::service::{Owner, Scene};
use orrery_testkit::binary::Service;
use orrery_testkit::random_values;
use orrery_testkit::size;
use orrery_testkit::values::{fields, symbol};

const FIELDS: [&str; 3] = ["a", "b", "c"];

/// Kills the SQL workers of a data directory; returns their number.
fn kill_workers(directory: &Path) -> usize {
    let mut killed = 0;
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let is_its = std::fs::read_link(process.path().join("cwd"))
            .is_ok_and(|at| at.starts_with(directory.join("tables")));
        let id = process.file_name().into_string().unwrap_or_default();
        if is_its && id.bytes().all(|digit| digit.is_ascii_digit()) {
            let done = std::process::Command::new("kill").args(["-9", &id]).status();
            killed += usize::from(done.is_ok_and(|status| status.success()));
        }
    }
    killed
}

/// All cells and columns of a project's tables, without `_service_event_id`, which differs between
/// programs.
fn cells(owner: &Owner, project: &str) -> Value {
    let mut all = Vec::new();
    for target in ["t", "u"] {
        let columns = owner.query(&format!("describe {project}.{target}"));
        let names = columns.iter().map(|it| json!([it["column_name"], it["column_type"]]));
        let names: Vec<Value> = names.collect();
        let rows = owner.query(&format!(
            "select * exclude (_service_event_id) from {project}.{target} order by _ledger, transaction"
        ));
        let mut rows: Vec<String> = rows.iter().map(ToString::to_string).collect();
        rows.sort();
        all.push(json!({ "columns": names, "rows": rows }));
    }
    Value::Array(all)
}

/// Number of rows so far; 0 while there is no table.
fn count(owner: &Owner, project: &str) -> u64 {
    let mut sum = 0;
    for target in ["t", "u"] {
        let query = json!({ "query": format!("select count(*) n from {project}.{target}") });
        let (_, body) = owner.ask("POST", "query", Some(&query));
        sum += body[0]["n"].as_u64().unwrap_or(0);
    }
    sum
}

fn written(owner: &Owner, id: u32) -> u64 {
    let stats = owner.get(&format!("{id}/stats?limit=1000"));
    stats.as_array().unwrap().iter().map(|it| it["rows_written"].as_u64().unwrap()).sum()
}

#[test]
fn tables_filled_in_steps_equal_rebuilt_ones() {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut chain = Chain::new();
    let contract = chain.create_of(&silent(), Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    let deploy = |project: &str| {
        json!({
            "code": built("raw"), "project_name": project, "public": true,
            "contracts": [contract.to_string()],
        })
    };
    ana.post("deploy", &deploy("live"));
    bob.post("subscribe", &json!({ "project": "live" }));
    let templates: Vec<_> =
        (0..2 * FIELDS.len()).map(|_| random_values::template(&mut random, 3)).collect();
    let (steps, calls) = (size::choose(6, 60), size::choose(5, 20));
    for step in 0..steps {
        for number in 0..calls {
            let target = usize::from(number % 2 == 1);
            let mut values = [0, 1, 2].map(|at| {
                random_values::value(&mut random, &templates[target * FIELDS.len() + at])
            });
            // The first row of each table holds nulls, so that the table is certain to be created.
            if step == 0 && number < 2 {
                values = [0, 1, 2].map(|_| stellar_xdr::ScVal::Void);
            }
            let [a, b, c] = values;
            let row = fields([(FIELDS[0], a), (FIELDS[1], b), (FIELDS[2], c)]);
            let arguments = vec![symbol(["t", "u"][target]), row];
            // Calls that fail on the network are allowed: programs are not run on them.
            chain.close_allowing_failures(&[call(contract, "emit", arguments)]);
        }
        chain.import_into(&scene);
        if step % 2 == 1 {
            kill_workers(scene.path());
        }
    }
    // The other program runs on the same ledgers in a backfill.
    bob.post("deploy", &deploy("late"));
    bob.post("2/backfill", &json!({ "from": 0, "to": 4_000_000_000_u32 }));
    bob.wait("the backfill ends", |it| it.get("2/backfill")["state"] == "incomplete");
    ana.wait("all is run", |it| it.get("1/status")["lag_ledgers"] == 0);
    let rows = written(&ana, 1);
    assert_eq!(rows, written(&bob, 2));
    assert!(rows > 10, "{rows}");
    let all_come = |owner: &Owner, project: &str| {
        owner.wait(project, |it| count(it, project) == rows);
        cells(owner, project)
    };
    let grown = all_come(&ana, "live");
    assert_eq!(all_come(&bob, "live"), grown, "a subscriber reads the same");
    assert_eq!(all_come(&bob, "late"), grown, "a backfill makes the same");
    drop(service);
    std::fs::remove_dir_all(scene.path().join("tables")).unwrap();
    let service = Service::start(scene.path());
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    for (owner, project) in [(&ana, "live"), (&bob, "live"), (&bob, "late")] {
        assert_eq!(all_come(owner, project), grown, "{project} is the same after a rebuild");
    }
}
