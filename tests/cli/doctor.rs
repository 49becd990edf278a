//! Findings of `orrery doctor` on healthy and broken machines.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use orrery_testkit::binary::{Service, configure, run};
use orrery_testkit::lake_files::{Chain, LakeFiles};

/// Returns state and sentence of the first finding about `what`. Asserts that the exit code fits
/// the findings.
fn finding(at: &Path, arguments: &[&str], what: &str) -> (String, String) {
    let ran = run(at, &[&["doctor", "--json", "--data-dir", "d"], arguments].concat());
    let findings: Vec<Value> = serde_json::from_str(&ran.stdout).expect(&ran.stderr);
    let broken = findings.iter().any(|finding| finding["state"] == "broken");
    assert_eq!(ran.code, i32::from(broken), "{}", ran.stdout);
    let found = findings.into_iter().find(|finding| finding["what"] == what);
    let found = found.unwrap_or_else(|| panic!("nothing about {what}: {}", ran.stdout));
    let text = |name: &str| found[name].as_str().unwrap().to_owned();
    (text("state"), text("sentence"))
}

#[test]
fn the_doctor_reports_problems_with_their_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    assert!(finding(at, &[], "store").1.contains("there is no data directory d"));
    let chain = Chain::made(6, 20);
    let lake = LakeFiles::with(&chain, 2..=20);
    run(at, &["import", "--json", "--data-dir", "d", &lake.text()]).json();
    let token = ["token", "issue", "--sub", "a", "--data-dir", "d"];
    assert_eq!(run(at, &token).code, 0);
    let source = format!("[source]\nkind = 'lake'\npath = '{}'\n", lake.text());
    let with = configure(at, &source);
    for what in ["secrets", "source", "confinement"] {
        let (state, sentence) = finding(at, &with, what);
        assert_eq!(state, "ok", "{what}: {sentence}");
    }
    assert!(finding(at, &with, "source").1.contains("newest ledger is 20"));
    // The generated ledgers have close times in 2025.
    assert_eq!(finding(at, &with, "clock").0, "look");

    let key = at.join("d/secrets/token-signing-key");
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let (state, sentence) = finding(at, &with, "secrets");
    assert!(
        state == "broken" && sentence.contains("chmod 0600 d/secrets/token-signing-key"),
        "{sentence}"
    );
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();

    configure(at, &format!("{source}[disk]\nreserve_mib = 4294967295\nreserve_percent = 255\n"));
    let (state, sentence) = finding(at, &with, "disk");
    assert!(state == "broken" && sentence.contains("make room"), "{sentence}");

    configure(at, "[source]\nkind = 'rpc'\nrpc_url = 'http://127.0.0.1:9/'\n");
    let (state, sentence) = finding(at, &with, "source");
    assert!(state == "broken" && sentence.contains("check [source]"), "{sentence}");
}

#[test]
fn the_doctor_queries_the_running_service() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, _) = Service::demo(at, &[]);
    let found = |what| finding(at, &[], what);
    assert_eq!(found("service").0, "ok", "{}", found("service").1);
    assert_eq!(found("source").0, "ok", "{}", found("source").1);
    assert_eq!(found("clock").0, "ok", "{}", found("clock").1);
    assert_ne!(found("descriptors").0, "broken");
    drop(demo);
}
