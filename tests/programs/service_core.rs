//! Programs that follow a stellar-core started by the service: entries that no stored ledger
//! determines are requested at its query port. Uses the built binary and a stand-in for core.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use stellar_xdr::{Limits, WriteXdr};

use crate::service::{Owner, Recorded, Scene};
use crate::service_upstream::program_reading_unwritten_entry;
use crate::state::timeline;
use crate::state_sections::{Section, local_network};
use crate::state_upstream::entry_as_of;
use orrery_testkit::binary::Service;
use orrery_testkit::client::HTTP;
use orrery_testkit::stand_in_core::StandIn;

/// Core's response for each entry, as a list of versions with the first ledger of each.
fn answers(section: &Section) -> Value {
    let timeline = timeline(section);
    let mut answers = Map::new();
    for key in timeline.keys() {
        let mut versions: Vec<(u32, Value)> = Vec::new();
        for ledger in section.first()..=section.last() {
            let item = match entry_as_of(&timeline, ledger, key) {
                None => json!({ "state": "not-found" }),
                Some(found) => {
                    let entry = found.entry.to_xdr_base64(Limits::none()).unwrap();
                    let state = if found.live_until == Some(0) { "archived" } else { "live" };
                    let mut item = json!({ "entry": entry, "state": state });
                    if let Some(until) = found.live_until {
                        item["liveUntilLedgerSeq"] = until.into();
                    }
                    item
                }
            };
            if versions.last().is_none_or(|last| last.1 != item) {
                versions.push((ledger, item));
            }
        }
        answers.insert(key.to_xdr_base64(Limits::none()).unwrap(), json!(versions));
    }
    Value::Object(answers)
}

/// Deploys two programs of one owner: the contract's own, and one that looks up an entry that does
/// not exist.
fn deploy(recorded: &Recorded, service: &Service, scene: &Scene) -> Owner {
    let ana = scene.owner(service, "ana");
    ana.post("deploy", &recorded.deploy("vault"));
    let mut elsewhere = recorded.deploy("elsewhere");
    elsewhere["code"] = STANDARD.encode(program_reading_unwritten_entry()).into();
    ana.post("deploy", &elsewhere);
    ana
}

/// Records of a program's runs from a ledger on, without durations.
fn runs(owner: &Owner, program: u32, first: u32) -> Vec<Value> {
    let runs = owner.get(&format!("{program}/executions?limit=200"));
    let mut runs = runs.as_array().unwrap().clone();
    runs.retain(|run| run["ledger_sequence"].as_u64() >= Some(first.into()));
    for run in &mut runs {
        let run = run.as_object_mut().unwrap();
        run.retain(|name, _| {
            ["ledger_sequence", "tx_hash", "status", "fidelity", "error_message"]
                .contains(&name.as_str())
        });
    }
    runs.sort_by_key(Value::to_string);
    runs
}

/// All rows of both programs from a ledger on; `None` until all their tables exist.
fn rows(owner: &Owner, first: u32) -> Option<Vec<Value>> {
    let mut rows = Vec::new();
    for table in ["vault_balance_changed", "vault_batch_done", "elsewhere_absent"] {
        let sql =
            format!("select * from {table} where _ledger >= {first} order by _service_event_id");
        let (status, answer) = owner.ask("POST", "query", Some(&json!({ "query": sql })));
        if status != 200 {
            return None;
        }
        rows.extend(answer.as_array().unwrap().iter().cloned());
    }
    Some(rows)
}

fn programs(service: &Service) -> Value {
    let health = HTTP.get(format!("{}/rest/health", service.base)).send().unwrap();
    health.json::<Value>().unwrap()["components"]["programs"].clone()
}

#[test]
fn entries_missing_from_the_store_are_requested_from_core() {
    let (Some(recorded), Some(section)) = (Recorded::find(), local_network()) else { return };
    let first = (section.first() + section.last()) / 2;
    // When all ledgers are stored, every entry is known.
    let whole = Scene::new();
    let service = Service::start(whole.path());
    let ana = deploy(&recorded, &service, &whole);
    whole.import(&recorded.ledgers());
    ana.wait("all runs", |it| {
        [1, 2].iter().all(|program| it.get(&format!("{program}/status"))["lag_ledgers"] == 0)
    });
    let expected = [1, 2].map(|program| runs(&ana, program, first));
    assert!(expected.iter().all(|runs| runs.len() >= 10), "{expected:?}");
    assert!(expected[0].iter().all(|run| run["fidelity"] == "exact"), "{expected:?}");
    let all = ["balance_changed", "batch_done"].map(|target| recorded.rows(target).len());
    let all = all.iter().sum::<usize>() + runs(&ana, 2, 0).len();
    ana.wait("all rows", |it| rows(it, 0).is_some_and(|rows| rows.len() == all));
    let expected_rows = rows(&ana, first);

    // The second half, streamed by a core whose query port fails at first.
    let ledgers = section.ledgers.iter().map(|(sequence, xdr)| (*sequence, xdr.as_slice()));
    let mut core = StandIn::of(ledgers);
    core.archive(section.last(), None);
    let (go, answers) = (core.path("go"), answers(&section));
    core.change("waits_for", go.to_str().unwrap());
    core.answer_queries(&answers, Some("booting"));
    let asked = Scene::new();
    let (program, own, start) = (core.program(), core.own_config(), first.to_string());
    let settings = [
        ("ORRERY_SOURCE_KIND", "core"),
        ("ORRERY_SOURCE_START", &start),
        ("ORRERY_CORE_BINARY", program.to_str().unwrap()),
        ("ORRERY_CORE_CONFIG", own.to_str().unwrap()),
    ];
    let service = Service::follow(asked.path(), &settings);
    let ana = deploy(&recorded, &service, &asked);
    fs::write(&go, "").unwrap();
    let is_out_of_reach = || {
        ana.wait("that core answers nobody", |_| {
            let programs = programs(&service);
            programs["status"] == "down" && programs["reason"].to_string().contains("out of reach")
        });
    };
    let is_behind = || {
        ana.wait("that core is behind", |it| {
            let status = it.get("1/status")["last_error_message"].to_string();
            programs(&service)["status"] == "up" && status.contains("has reached ledger 1")
        });
    };
    is_out_of_reach();
    core.answer_queries(&answers, Some("behind"));
    is_behind();
    core.answer_queries(&answers, Some("unavailable"));
    is_out_of_reach();
    core.answer_queries(&answers, Some("behind"));
    is_behind();
    core.answer_queries(&answers, Some("silent"));
    is_out_of_reach();
    assert!(runs(&ana, 1, 0).is_empty() && runs(&ana, 2, 0).is_empty());

    core.answer_queries(&answers, None);
    ana.wait("all runs", |it| [1, 2].map(|program| runs(it, program, 0)) == expected);
    ana.wait("the failure is over", |_| programs(&service)["status"] != "down");
    let count = expected_rows.as_ref().map(Vec::len);
    ana.wait("all rows", |it| rows(it, 0).map(|rows| rows.len()) == count);
    assert_eq!(rows(&ana, 0), expected_rows);
    let health = service.health();
    assert_eq!(
        (&health["attested_by"], &health["attested_ledger"]),
        (&json!("core"), &health["service_latest_ledger"],)
    );
    assert_eq!(health["components"]["attestation"], json!({ "status": "up" }));
}
