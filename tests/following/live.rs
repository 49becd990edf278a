//! Live ledgers from several sources, with faults.

use std::time::{Duration, Instant};

use orrery_testkit::binary::{Service, configure, run};
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::signal::Signal;
use orrery_testkit::wait::wait_until;

/// Maximum time until ingestion continues after a source was repaired.
const RECOVERY: Duration = Duration::from_secs(10);

#[test]
fn gaps_are_filled_from_the_next_source() {
    let chain = Chain::made(1, 120);
    let directory = tempfile::tempdir().unwrap();
    // The first lake begins late and lacks a ledger; the second ends early.
    let recent = LakeFiles::with(&chain, 60..=100);
    let archive = LakeFiles::with(&chain, 2..=80);
    recent.remove(75);
    let config = format!(
        "[source]\nkind = 'lake'\npath = '{}'\ngaps = ['lake:{}']\nstart = 'genesis'\n",
        recent.text(),
        archive.text()
    );
    let service = Service::local(directory.path(), &configure(directory.path(), &config));
    let health = service.wait_until_stored(100);
    assert_eq!(health["oldest_ledger"], 2);
    assert_eq!(health["network_latest_ledger"], 100);
    wait_until("the first source is used again", || {
        let detail = service.health()["components"]["source"]["detail"].to_string();
        detail.contains(&recent.text()) && !detail.contains("because")
    });
    (101..=110).for_each(|sequence| recent.add(&chain, sequence));
    service.wait_until_stored(110);
    let metrics = service.metrics();
    assert!(metrics.contains("orrery_source_active{source=\"lake\"} 1"), "{metrics}");
    assert!(metrics.contains("orrery_source_active{source=\"lake-2\"} 0"), "{metrics}");
    assert!(metrics.contains("\norrery_network_latest_ledger 110\n"), "{metrics}");

    // No source has ledger 111: health reports it, and nothing is written beyond the gap.
    (112..=115).for_each(|sequence| recent.add(&chain, sequence));
    let health =
        service.wait_for_health("the gap is reported", |health| health["service"] == "down");
    let reason = health["components"]["source"]["reason"].to_string();
    assert!(reason.contains("ledger 111"), "{reason}");
    assert_eq!(health["service_latest_ledger"], 110);
    let healed = Instant::now();
    recent.add(&chain, 111);
    service.wait_until_stored(115);
    assert!(healed.elapsed() < RECOVERY, "{:?}", healed.elapsed());
    service.stop();
}

#[test]
fn ledgers_of_another_chain_are_refused_and_ingestion_recovers() {
    let (chain, other) = (Chain::made(1, 60), Chain::made(2, 60));
    let directory = tempfile::tempdir().unwrap();
    let lake = LakeFiles::with(&chain, 2..=40);
    let service = Service::local(directory.path(), &["--source", &lake.text()]);
    service.wait_until_stored(40);
    lake.add(&other, 41);
    let health = service.wait_for_health("it is refused", |health| health["service"] == "down");
    let reason = health["components"]["ingestion"]["reason"].to_string();
    assert!(reason.contains("ledger 41 links to"), "{reason}");
    assert_eq!(health["service_latest_ledger"], 40);
    // The lake's ledger 40 is the stored one, so this is not a network reset.
    std::thread::sleep(Duration::from_secs(2));
    let source = service.health()["components"]["source"].to_string();
    assert!(!source.contains("empty data directory; this one keeps"), "{source}");
    let healed = Instant::now();
    (41..=50).for_each(|sequence| lake.add(&chain, sequence));
    service.wait_until_stored(50);
    assert!(healed.elapsed() < RECOVERY, "{:?}", healed.elapsed());
    assert!(service.metrics().contains("\norrery_ledgers_refused_total "));
    service.stop();
}

#[test]
fn a_second_source_replaces_a_damaged_ledger() {
    let (chain, other) = (Chain::made(1, 60), Chain::made(2, 60));
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (LakeFiles::with(&chain, 2..=50), LakeFiles::with(&chain, 2..=50));
    first.add(&other, 30);
    let config = format!(
        "[source]\nkind = 'lake'\npath = '{}'\ngaps = ['{}']\n",
        first.text(),
        second.text()
    );
    let service = Service::local(directory.path(), &configure(directory.path(), &config));
    service.wait_until_stored(50);
    service.stop();
}

#[test]
fn a_network_reset_stops_ingestion_and_names_the_remedy() {
    let (chain, other) = (Chain::made(1, 60), Chain::made(2, 30));
    let directory = tempfile::tempdir().unwrap();
    let lake = LakeFiles::with(&chain, 2..=60);
    let service = Service::local(directory.path(), &["--source", &lake.text()]);
    service.wait_until_stored(60);
    service.stop();
    (2..=60).for_each(|sequence| lake.remove(sequence));
    (2..=30).for_each(|sequence| lake.add(&other, sequence));
    let service = Service::local(directory.path(), &["--source", &lake.text()]);
    let reason = wait_until("the reset is reported", || {
        let reason = service.health()["components"]["source"]["reason"].to_string();
        reason.contains("new, empty data directory").then_some(reason)
    });
    assert!(reason.contains("another ledger 30 than the one that is stored"), "{reason}");
    let health = service.health();
    assert_eq!(
        (&health["service"], &health["service_latest_ledger"]),
        (&"down".into(), &60.into())
    );
    assert_eq!(health["network_latest_ledger"], serde_json::Value::Null);
    assert!(
        !service.rows_without_ids("/rest/events/by-ledger?limit=1000", "id").is_empty(),
        "it still answers"
    );
    service.stop();
}

#[test]
fn a_service_starts_at_the_configured_ledger() {
    let chain = Chain::made(1, 60);
    let lake = LakeFiles::with(&chain, 10..=60);
    for (start, oldest) in [("tip", 60), ("oldest", 10), ("33", 33)] {
        let directory = tempfile::tempdir().unwrap();
        let arguments = ["--source", &lake.text(), "--start", start];
        let service = Service::local(directory.path(), &arguments);
        assert_eq!(service.wait_until_stored(60)["oldest_ledger"], oldest, "{start}");
        service.stop();
        // From then on the stored ledgers decide, not `--start`.
        let again = ["--source", &lake.text(), "--start", "genesis"];
        let service = Service::local(directory.path(), &again);
        assert_eq!(service.wait_until_stored(60)["oldest_ledger"], oldest, "{start}");
    }
}

/// Returns the first and last ledgers of the stored ranges.
fn stored_ranges(service: &Service) -> Vec<(u64, u64)> {
    let completeness = service.get("/rest/completeness");
    let ledger = |range: &serde_json::Value, name: &str| range[name].as_u64().unwrap();
    let ranges = completeness["ranges"].as_array().unwrap();
    ranges
        .iter()
        .map(|range| (ledger(range, "first_ledger"), ledger(range, "last_ledger")))
        .collect()
}

#[test]
fn ledgers_before_imported_ones_are_followed_after_a_restart() {
    let chain = Chain::made(1, 120);
    let directory = tempfile::tempdir().unwrap();
    let lake = LakeFiles::with(&chain, 2..=40);
    let begin = || Service::local(directory.path(), &["--source", &lake.text()]);
    let service = begin();
    service.wait_until_stored(40);
    let import = |ledgers| {
        let ahead = LakeFiles::with(&chain, ledgers);
        run(directory.path(), &["import", "--data-dir", "d", &ahead.text()]).succeeded();
    };
    import(61..=70);
    service.stop();
    let service = begin();
    (41..=50).for_each(|sequence| lake.add(&chain, sequence));
    wait_until("the gap grows smaller", || stored_ranges(&service) == [(2, 50), (61, 70)]);
    assert_eq!(service.end_with(Signal::KILL), None);
    // Started without anything new, and again: what was missing stays missing.
    begin().stop();
    let service = begin();
    (51..=80).for_each(|sequence| lake.add(&chain, sequence));
    wait_until("the gap is closed", || stored_ranges(&service) == [(2, 80)]);
    import(91..=100);
    service.stop();

    // The source has lost the ledgers in between: they are named, and nothing is passed over.
    (2..=80).for_each(|sequence| lake.remove(sequence));
    (88..=110).for_each(|sequence| lake.add(&chain, sequence));
    let service = begin();
    let health = service.wait_for_health("the gap is reported", |it| it["service"] == "down");
    let reason = health["components"]["source"]["reason"].to_string();
    assert!(reason.contains("ledger needed is 81: import ledgers 81 to 87"), "{reason}");
    assert_eq!(stored_ranges(&service), [(2, 80), (91, 100)]);
    service.stop();
    // They can be given up, and filled later.
    let arguments = ["--source", &lake.text(), "--start", "91"];
    let service = Service::local(directory.path(), &arguments);
    wait_until("it goes on", || stored_ranges(&service) == [(2, 80), (91, 110)]);
    import(81..=90);
    assert_eq!(stored_ranges(&service), [(2, 110)]);
    service.stop();
}

#[test]
fn a_lake_whose_files_have_other_sizes_is_never_caught_up() {
    let chain = Chain::made(1, 60);
    let directory = tempfile::tempdir().unwrap();
    let lake = LakeFiles::with(&chain, 2..=40);
    let manifest = lake.path().join(".config.json");
    let written = std::fs::read_to_string(&manifest).unwrap();
    let other = written.replace("\"ledgersPerBatch\":1", "\"ledgersPerBatch\":4");
    std::fs::write(&manifest, format!("\u{feff}{other}")).unwrap();
    let arguments = ["--source", &lake.text(), "--start", "2"];
    let service = Service::local(directory.path(), &arguments);
    let health = service.wait_for_health("the sizes are reported", |it| it["service"] == "down");
    let reason = health["components"]["source"]["reason"].as_str().unwrap();
    for part in ["a file of 1 ledger", "its .config.json says files of 4 ledgers"] {
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(service.ask("/rest/health/ready", None).0, 503);
    let caught_up =
        |service: &Service| service.log().iter().any(|line| line.to_string().contains("caught up"));
    assert!(!caught_up(&service));
    std::fs::write(&manifest, format!("\u{feff}{written}")).unwrap();
    service.wait_until_stored(40);
    wait_until("the end is reached", || caught_up(&service));
    service.stop();
}
