//! What is attested, as a user sees it: in `orrery status`, health, completeness, the page `/status` and
//! the metrics.

use std::fs;
use std::path::Path;

use orrery::decode::decode;
use orrery::domain::{Network, NodeId};
use orrery::validators::Validators;
use orrery::verify::{Policy, verify};
use rocksdb::{DB, IteratorMode, Options};
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use orrery_testkit::binary::{Service, run};
use orrery_testkit::client::HTTP;
use orrery_testkit::data::ledgers;
use orrery_testkit::fixtures;
use orrery_testkit::forged::Ledger;

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

/// Adds to the only covered range of a data directory that all known validators have signed its last ledger.
fn claim_signatures(data_dir: &Path) {
    let (options, raw) = (Options::default(), data_dir.join("raw"));
    let database = DB::open_cf(&options, &raw, DB::list_cf(&options, &raw).unwrap()).unwrap();
    let ranges = database.cf_handle("ranges").unwrap();
    let (key, row) = database.iterator_cf(ranges, IteratorMode::Start).next().unwrap().unwrap();
    let network = Network::from_name_or_passphrase("mainnet");
    let known = Validators::of_network(&network).unwrap();
    let keys = known.organisations().iter().flat_map(|one| one.validators.iter());
    let mut keys: Vec<NodeId> = keys.copied().collect();
    keys.sort_unstable();
    // Each signature is a key and a ledger, 36 bytes, at the end of the row.
    let is_key = |at: &usize| keys.iter().any(|key| row[*at..].starts_with(key.as_bytes()));
    let end = (4..row.len() - 36).find(is_key).unwrap_or(row.len());
    let signed = keys.iter().flat_map(|key| [&key.as_bytes()[..], &row[..4]].concat());
    let row: Vec<u8> = row[..end].iter().copied().chain(signed).collect();
    database.put_cf(ranges, key, row).unwrap();
}

/// What a backup says of signatures is not believed: they are read again from the raw ledgers in it, and
/// where these are gone, it is the word of the backup.
#[test]
fn a_restored_store_reads_its_signatures_again() {
    let Some(data) = ledgers() else { return };
    let lake = data.join("lake-pubnet");
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::write(at.join("without.toml"), "[retention]\nraw_ledgers = 0\n").unwrap();
    for (settings, name) in [(None, "d"), (Some("without.toml"), "e")] {
        let config = settings.map_or(Vec::new(), |file| vec!["--config", file]);
        let import = ["import", "--data-dir", name, lake.to_str().unwrap()];
        run(at, &[&import[..], &config[..]].concat()).succeeded();
        claim_signatures(&at.join(name));
        let attested = run(at, &["status", "--data-dir", name]).json()["attestation"].clone();
        assert_eq!(
            (&attested["attested_ledger"], &attested["organisations"]),
            (&json!(63_092_992), &json!(7))
        );
        let (backups, restored) = (format!("{name}-backups"), format!("{name}-restored"));
        run(at, &["backup", "--data-dir", name, &backups]).succeeded();
        run(at, &["restore", &backups, "--data-dir", &restored]).succeeded();
    }
    let restored = run(at, &["status", "--data-dir", "d-restored"]).json();
    let attestation = &restored["attestation"];
    assert_eq!(attestation["attested_ledger"], ATTESTED);
    assert_eq!(
        (&attestation["attested_by"], &attestation["organisations"]),
        (&json!("validators"), &json!(5))
    );
    run(at, &["verify", "--data-dir", "d-restored"]).succeeded();

    let claimed = run(at, &["status", "--data-dir", "e-restored"]).json();
    assert_eq!(claimed["attestation"]["attested_by"], "backup");
    assert_eq!(claimed["covered"][0]["from_backup"]["ledgers"], 12);
    let service = Service::start_in(at, &["--data-dir", "e-restored"]);
    let ledger = service.get("/rest/ledgers/63092990");
    assert_eq!((&ledger["attested"], &ledger["attested_by"]), (&json!(true), &json!("backup")));
    assert_eq!(service.health()["attested_by"], "backup");
    service.stop();
    let verified = run(at, &["verify", "--data-dir", "e-restored"]);
    assert!(
        verified.succeeded().contains("only the backup vouches for them"),
        "{}",
        verified.stdout
    );
}

/// Rewritten events that are not proven are stored by default, and listed whatever process stored them.
#[test]
fn unproven_events_are_listed_and_not_attested() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let raw = fixtures::load(&data, "pubnet/ledger-57500008.xdr.gz");
    let original = Ledger::read(&raw.ledgers[0]).unwrap();
    // Any other form of the rewritten events is not found again.
    let network = Network::from_name_or_passphrase("mainnet");
    let is_unproven = |ledger: &Ledger| {
        let raw = ledger.encode();
        let view = decode(&raw, network.id()).unwrap();
        let verified = verify(&view, network.id(), Policy::default());
        verified.is_ok_and(|verified| verified.invocations.unproven == 1)
    };
    let with_events = original.invocations().into_iter().filter(|(_, events)| *events > 0);
    let mut changed = with_events.map(|(position, _)| {
        let mut changed = original.clone();
        changed.set_return_value(position, ScVal::U32(1));
        changed
    });
    let ledger = changed.find(is_unproven).unwrap();
    fs::write(at.join("changed.xdr"), ledger.encode()).unwrap();
    run(at, &["import", "--data-dir", "d", "--network", "mainnet", "changed.xdr"]).succeeded();
    let listed = json!({ "ledgers": 1, "ranges": [[57_500_008, 57_500_008]] });
    let status = run(at, &["status", "--data-dir", "d"]).json();
    assert_eq!(status["covered"][0]["unproven"], listed);
    let service = Service::start_in(at, &["--data-dir", "d"]);
    let completeness = service.get("/rest/completeness");
    assert_eq!(completeness["bound"]["invocation_events"], false);
    assert_eq!(completeness["ranges"][0]["unproven"]["ledgers"], 1);
    assert_eq!(service.get("/rest/ledgers/57500008")["unproven"], true);
    service.stop();
    let verified = run(at, &["verify", "--data-dir", "d"]);
    let line = "1 ledgers have rewritten events that are not proven: 57500008";
    assert!(verified.succeeded().contains(line), "{}", verified.stdout);
}
