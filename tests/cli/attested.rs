//! What is attested, as a user sees it: in `orrery status`, health, completeness, the page `/status` and
//! the metrics.

use std::fs;

use serde_json::{Value, json};

use orrery_testkit::binary::{Service, run};
use orrery_testkit::client::HTTP;
use orrery_testkit::data::ledgers;

/// The newest of the recorded public ledgers that five of seven organisations attest.
const ATTESTED: u32 = 63_092_986;

#[test]
fn imported_ledgers_are_attested_by_the_networks_validators() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let lake = data.join("lake-pubnet");
    run(at, &["import", "--json", "--data-dir", "d", lake.to_str().unwrap()]).json();
    let attestation = json!({
        "attested_ledger": ATTESTED,
        "attested_by": "validators",
        "organisations": 5,
        "of": 7,
        "needed": 5,
    });
    let status = run(at, &["status", "--data-dir", "d"]).json();
    assert_eq!(status["attestation"], attestation);
    assert_eq!(status["covered"][0]["attested_ledger"], ATTESTED);

    let service = Service::start_in(at, &["--data-dir", "d"]);
    let running = run(at, &["status", "--data-dir", "d"]).json();
    assert_eq!(running["attestation"], attestation);
    assert_eq!(running["covered"], status["covered"]);
    let health = service.health();
    assert_eq!(health["attested_ledger"], ATTESTED);
    assert_eq!(health["components"]["attestation"], json!({ "status": "up" }));
    let (_, completeness) = service.ask("/rest/completeness", None);
    assert_eq!(completeness["ranges"][0]["attested_ledger"], ATTESTED);
    let page = HTTP.get(format!("http://{}/", service.address));
    let page = page.send().unwrap().text().unwrap();
    assert!(page.contains(&format!("<dd id=\"attested_ledger\">{ATTESTED}</dd>")), "{page}");
    let metrics = service.metrics();
    assert!(metrics.contains(&format!("\norrery_attested_ledger {ATTESTED}\n")), "{metrics}");
    assert!(metrics.contains("orrery_component_up{component=\"attestation\"} 1"), "{metrics}");
    service.stop();
}

#[test]
fn what_is_missing_for_attestation_is_said() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let ledger = data.join("pubnet/ledger-63092982.xdr.gz");
    let ledger = ledger.to_str().unwrap();
    run(at, &["import", "--data-dir", "d", "--network", "mainnet", "--json", ledger]).json();
    let status = run(at, &["status", "--data-dir", "d"]).json();
    let attestation = &status["attestation"];
    assert_eq!(
        (&attestation["attested_ledger"], &attestation["needed"]),
        (&Value::Null, &json!(5))
    );
    let reason = attestation["unattested_because"].as_str().unwrap();
    assert!(reason.contains("validators of 1 trusted organisations have signed"), "{reason}");
    assert_eq!(status["covered"][0]["unattested_because"], reason);

    let directory = tempfile::tempdir().unwrap();
    let started = ["--data-dir", "d", "--network-passphrase", "Somewhere ; 2026"];
    let service = Service::start_in(directory.path(), &started);
    let health = service.health();
    let detail = health["components"]["attestation"]["detail"].as_str().unwrap();
    assert!(detail.contains("no validators of this network are trusted"), "{detail}");
    assert!(detail.contains("name them in trust.validators"), "{detail}");
    assert_eq!((&health["attested_ledger"], &health["service"]), (&Value::Null, &json!("up")));
    assert!(service.metrics().contains("\norrery_attested_ledger 0\n"));
    service.stop();
}

/// Checks of ledgers on their way into the store are counted.
#[test]
fn invocations_are_counted_by_how_they_are_bound() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::write(
        at.join("c.toml"),
        format!(
            "network = 'mainnet'\ndata_dir = 'd'\n[source]\nkind = 'lake'\npath = '{}'\n\
             start = 63092982\n",
            data.join("lake-pubnet").display()
        ),
    )
    .unwrap();
    let service = Service::start_in(at, &["--config", "c.toml"]);
    service.wait_for_health("all ledgers are stored", |health| {
        health["service_latest_ledger"] == 63_092_993
    });
    assert_eq!(service.health()["attested_ledger"], ATTESTED);
    let metrics = service.metrics();
    let value = |name: &str| {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or_else(|| {
            panic!("{name} is not in {metrics}");
        })
    };
    assert!(value("orrery_invocations_total{binding=\"bound\"}") > 50, "{metrics}");
    assert_eq!(value("orrery_invocations_total{binding=\"rewritten\"}"), 0);
    assert_eq!(value("orrery_invocations_total{binding=\"unproven\"}"), 0);
    assert_eq!(value("orrery_ledger_faults_reported_total"), 0);
    service.stop();
}
