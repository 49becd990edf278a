//! `orrery backfill`: alone, beside a live source, killed and resumed.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use orrery_testkit::binary::{Ran, Service, configure, orrery_in, run};
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::signal::{self, Signal};
use orrery_testkit::size;
use orrery_testkit::wait::wait_until;

fn ranges(directory: &Path) -> Value {
    run(directory, &["status", "--data-dir", "d", "--json"]).json()["ranges"].clone()
}

/// Returns all events and all transactions, both without ids, and the reported completeness ranges.
fn everything(service: &Service) -> [Vec<Value>; 3] {
    let order = |mut rows: Vec<Value>| {
        rows.sort_by_key(|row| {
            let number = |key: &str| row[key].as_u64().unwrap_or_default();
            (
                number("ledger"),
                number("application_order"),
                number("op_index"),
                number("event_index"),
            )
        });
        rows
    };
    [
        order(service.rows_without_ids("/rest/events/by-ledger?limit=1000", "id")),
        order(service.rows_without_ids("/rest/txs/by-ledger?limit=1000", "tx")),
        // Hashes, numbers of events and digests of the covered ranges.
        service.get("/rest/completeness")["ranges"].as_array().unwrap().clone(),
    ]
}

/// Returns what a service serves that followed all ledgers without interruption.
fn reference(chain: &Chain, ledgers: std::ops::RangeInclusive<u32>) -> [Vec<Value>; 3] {
    let directory = tempfile::tempdir().unwrap();
    let lake = LakeFiles::with(chain, ledgers.clone());
    let service = Service::local(directory.path(), &["--source", &lake.text()]);
    service.wait_until_stored(*ledgers.end());
    everything(&service)
}

fn interrupt(child: &Child) {
    assert!(signal::send(child.id(), Signal::INT));
}

#[test]
fn a_backfill_stores_only_missing_ledgers() {
    let chain = Chain::made(1, 200);
    let lake = LakeFiles::with(&chain, 2..=200);
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let fill = |from: &str, to: &str| {
        let (source, network) = (lake.text(), "local");
        let arguments = ["backfill", "--data-dir", "d", "--network", network, "--json", "--source"];
        run(at, &[&arguments[..], &[&source, "--from", from, "--to", to]].concat()).json()
    };
    let report = fill("50", "59");
    assert_eq!(
        (&report["state"], &report["missing"], &report["stored"]),
        (&json!("done"), &json!(10), &json!(10))
    );
    let report = fill("40", "70");
    assert_eq!((&report["missing"], &report["stored"]), (&json!(21), &json!(21)));
    assert_eq!(ranges(at), json!([[40, 70]]));
    let report = fill("1", "70");
    assert_eq!(
        (&report["missing"], &report["from"]),
        (&json!(38), &json!(2)),
        "genesis has no metadata"
    );
    let report = fill("2", "70");
    assert_eq!((&report["state"], &report["missing"]), (&json!("done"), &json!(0)));
    assert_eq!(ranges(at), json!([[2, 70]]));
    assert!(!at.join("d/backfill.json").exists());

    for (arguments, sentence) in [
        (&["--from", "90", "--to", "80"][..], "give the older one first"),
        (&["--from", "190", "--to", "300"], "no source has ledger 201"),
        (&["--from", "80", "--to", "90", "--source", "laek"], "--source cannot be laek"),
        (&["--from", "80", "--to", "90", "--detach"], "--detach needs a service"),
        (&[], "there is no interrupted backfill"),
    ] {
        let common = ["backfill", "--data-dir", "d", "--network", "local"];
        let source = if arguments.contains(&"300") {
            vec!["--source".to_owned(), lake.text()]
        } else {
            vec![]
        };
        let ran: Ran =
            orrery_in(at).args(common).args(arguments).args(source).output().unwrap().into();
        assert!(ran.code != 0 && ran.stderr.contains(sentence), "{arguments:?}: {}", ran.stderr);
    }
    assert_eq!(ranges(at), json!([[2, 70], [190, 200]]), "available ledgers are stored");
    let none =
        run(at, &["backfill", "--data-dir", "n", "--network", "local", "--from", "2", "--to", "3"]);
    assert!(
        none.stderr.contains("there is no source of older ledgers of local"),
        "{}",
        none.stderr
    );
}

#[test]
fn a_backfill_runs_beside_live_ingestion() {
    let chain = Chain::made(1, 400);
    let archive = LakeFiles::with(&chain, 2..=320);
    let live = LakeFiles::with(&chain, 290..=300);
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let service = Service::local(at, &["--source", &live.text(), "--start", "tip"]);
    service.wait_until_stored(300);
    let source = archive.text();
    let start = |extra: &[&str]| {
        let arguments = ["backfill", "--data-dir", "d", "--from", "2", "--to", "299", "--source"];
        run(at, &[&arguments[..], &[&source, "--json"], extra].concat())
    };
    let report = start(&["--detach"]).json();
    assert_eq!((&report["state"], &report["missing"]), (&json!("running"), &json!(298)));
    // Live ledgers go on arriving.
    for sequence in 301..=310 {
        live.add(&chain, sequence);
        service.wait_for_health("it is live", |health| health["service_latest_ledger"] == sequence);
    }
    let report = wait_until("the backfill is done", || {
        let report = run(at, &["backfill", "--data-dir", "d", "--status"]).json();
        (report["state"] == "done").then_some(report)
    });
    assert_eq!(report["stored"], 298);
    let health = service.wait_until_stored(310);
    assert_eq!(health["oldest_ledger"], 2);
    let components = health["components"].as_object().unwrap();
    assert_eq!(
        components.keys().collect::<Vec<_>>(),
        [
            "attestation",
            "feed",
            "ingestion",
            "programs",
            "queries",
            "retention",
            "source",
            "webhooks"
        ]
    );
    assert_eq!(ranges(at), json!([[2, 310]]));
    assert_eq!(everything(&service), reference(&chain, 2..=310));
    service.stop();
}

#[test]
fn a_backfill_ends_when_its_client_is_interrupted() {
    let chain = Chain::made(1, 60);
    let live = LakeFiles::with(&chain, 50..=60);
    // Source of the second backfill, which is refused.
    let archive = LakeFiles::with(&chain, 30..=49);
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let service = Service::local(at, &["--source", &live.text(), "--start", "tip"]);
    service.wait_until_stored(60);
    // No server listens at `dead`, so the backfill keeps retrying.
    let arguments = ["backfill", "--data-dir", "d", "--from", "2", "--to", "49", "--source"];
    let dead = "rpc:http://127.0.0.1:9";
    let mut client = orrery_in(at)
        .args(arguments)
        .args([dead, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = || run(at, &["backfill", "--data-dir", "d", "--status"]).json();
    let report = wait_until("the status names the cause of the wait", || {
        let report = status();
        report["reason"].is_string().then_some(report)
    });
    assert_eq!(report["state"], "running");
    let health = service.health();
    assert_eq!(health["components"]["backfill_source"]["status"], "down", "{health}");
    let second = run(at, &[&arguments[..], &[&archive.text()]].concat());
    let errors = second.stderr;
    assert!(errors.contains("a backfill of ledgers 2–49 is running"), "{errors}");
    interrupt(&client);
    assert!(client.wait().unwrap().success());
    assert_eq!(status()["state"], "cancelled");
    assert_eq!(service.wait_until_stored(60)["service"], "up");
    assert!(!at.join("d/backfill.json").exists());

    // The service continues a backfill whose client was killed.
    let mut client = orrery_in(at).args(arguments).arg(dead).stderr(Stdio::null()).spawn().unwrap();
    wait_until("it has begun", || status()["state"] == "running");
    client.kill().unwrap();
    client.wait().unwrap();
    assert_eq!(status()["state"], "running");
    assert!(at.join("d/backfill.json").exists());
    run(at, &["backfill", "--data-dir", "d", "--cancel"]).succeeded();
    wait_until("it has ended", || status()["state"] == "cancelled");
    service.stop();
}

#[test]
fn a_detached_backfill_resumes_after_a_restart() {
    let chain = Chain::made(1, 60);
    let live = LakeFiles::with(&chain, 50..=60);
    let archive = LakeFiles::with(&chain, 20..=49);
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serve = || Service::local(at, &["--source", &live.text(), "--start", "tip"]);
    let service = serve();
    service.wait_until_stored(60);
    let arguments = ["backfill", "--data-dir", "d", "--detach", "--from", "20", "--to", "59"];
    // The only source does not respond, so the backfill is unfinished when the service stops.
    let sources = ["--source", "rpc:http://127.0.0.1:9"];
    run(at, &[&arguments[..], &sources, &["--json"]].concat()).json();
    service.stop();
    assert!(at.join("d/backfill.json").exists());
    let idle = run(at, &["backfill", "--data-dir", "d", "--status", "--json"]).json();
    assert_eq!((&idle["from"], &idle["state"]), (&json!(20), &json!("none")));

    let service = serve();
    let status = || run(at, &["backfill", "--data-dir", "d", "--status"]).json();
    wait_until("it goes on", || status()["state"] == "running");
    service.stop();
    // Without a service, the command itself resumes the backfill; its source now has ledgers 20 to
    // 49.
    let text = std::fs::read_to_string(at.join("d/backfill.json")).unwrap();
    std::fs::write(
        at.join("d/backfill.json"),
        text.replace("rpc:http://127.0.0.1:9", &archive.text()),
    )
    .unwrap();
    let errors = run(at, &["backfill", "--data-dir", "d", "--json"]).stderr;
    assert!(errors.contains("no source has ledger 50"), "{errors}");
    (50..=59).for_each(|sequence| archive.add(&chain, sequence));
    let source = archive.text();
    let order = [&arguments[..3], &arguments[4..], &["--source", &source, "--json"]].concat();
    assert_eq!(run(at, &order).json()["state"], "done");
    assert_eq!(ranges(at), json!([[20, 60]]));
}

/// Kills the backfill with SIGKILL at different moments, alone and beside a live source: stored
/// ledgers stay complete, and the backfill resumes.
#[test]
fn a_killed_backfill_resumes() {
    let last = size::choose(1500, 6000) as u32;
    let chain = Chain::made(1, last);
    let archive = LakeFiles::with(&chain, 2..=last - 10);
    let live = LakeFiles::with(&chain, last - 9..=last);
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (to, source) = ((last - 10).to_string(), archive.text());
    let order = ["backfill", "--data-dir", "d", "--network", "local", "--json", "--from", "2"];
    let order = [&order[..], &["--to", &to, "--source", &source]].concat();
    let kills = size::choose(6, 40);
    for kill in 0..kills {
        let wait = Duration::from_millis(100 + kill * 37 % 400);
        if kill % 2 == 0 {
            let mut child = orrery_in(at)
                .args(&order)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(wait);
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            let service = Service::local(at, &["--source", &live.text()]);
            std::thread::sleep(wait);
            drop(service);
        }
    }
    let service = Service::local(at, &["--source", &live.text()]);
    let status = || run(at, &["backfill", "--data-dir", "d", "--status"]).json();
    wait_until("it is done", || status()["state"] != "running");
    service.stop();
    assert_eq!(run(at, &order).json()["state"], "done");
    let service = Service::local(at, &["--source", &live.text()]);
    service.wait_until_stored(last);
    assert_eq!(ranges(at), json!([[2, last]]));
    assert_eq!(everything(&service), reference(&chain, 2..=last));
}

#[test]
fn an_order_that_cannot_resume_is_shown_until_it_is_cancelled() {
    let chain = Chain::made(1, 60);
    let lake = LakeFiles::with(&chain, 40..=60);
    let directory = tempfile::tempdir().unwrap();
    let settings = "[retention]\nraw_ledgers = 5\nevents = 5\ntransactions = 5\n";
    let configured = configure(directory.path(), settings);
    let lake = lake.text();
    let arguments = ["--source", &lake, configured[0], configured[1]];
    let service = Service::local(directory.path(), &arguments);
    service.wait_until_stored(60);
    service.stop();
    let report =
        |verb: &str| run(directory.path(), &["backfill", "--data-dir", "d", verb, "--json"]).json();
    let file = directory.path().join("d/backfill.json");
    for (order, reason) in [
        (r#"{"from":2,"to":10,"sources":[]}"#, "ledger 56"),
        (r#"{"from":2"#, "it does not contain a backfill order"),
    ] {
        std::fs::write(&file, order).unwrap();
        let service = Service::local(directory.path(), &arguments);
        let found = wait_until("it has failed", || {
            let found = report("--status");
            (found["state"] == "failed").then_some(found)
        });
        let said = found["reason"].as_str().unwrap();
        assert!(said.starts_with("the interrupted backfill cannot resume: "), "{said}");
        assert!(said.contains(reason), "{said}");
        let health = service.health();
        let detail = health["components"]["backfill"]["detail"].as_str().unwrap();
        assert!(detail.contains(reason) && detail.contains("--cancel"), "{detail}");
        assert_eq!(health["service"], "up");
        run(directory.path(), &["backfill", "--data-dir", "d", "--cancel"]).succeeded();
        assert_eq!(report("--status")["state"], "cancelled");
        assert!(!file.exists());
        assert_eq!(service.health()["components"]["backfill"], Value::Null);
        service.stop();
    }
}

/// Killed while it runs, and started again without the directory that it reads, or with one of another
/// network in its place.
#[test]
fn an_order_whose_source_is_absent_waits_for_it() {
    let chain = Chain::made(1, 60);
    let live = LakeFiles::with(&chain, 50..=60);
    let archive = LakeFiles::with(&chain, 20..=40);
    let directory = tempfile::tempdir().unwrap();
    let (at, file) = (directory.path(), directory.path().join("d/backfill.json"));
    let lake = at.join("lake");
    let serve = || Service::local(at, &["--source", &live.text()]);
    let report = || run(at, &["backfill", "--data-dir", "d", "--status", "--json"]).json();
    let service = serve();
    service.wait_until_stored(60);
    // The only source does not respond, so the backfill is unfinished when the service is killed.
    let unanswered = "rpc:http://127.0.0.1:9";
    let order = ["backfill", "--data-dir", "d", "--detach", "--from", "20", "--to", "40"];
    run(at, &[&order[..], &["--source", unanswered]].concat()).succeeded();
    wait_until("it has begun", || report()["state"] == "running");
    service.end_with(Signal::KILL);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(unanswered, lake.to_str().unwrap())).unwrap();

    let foreign = LakeFiles::with(&chain, 20..=40);
    let manifest = foreign.path().join(".config.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("Standalone Network", "Another Network")).unwrap();
    for present in [None, Some(foreign.path())] {
        if let Some(present) = present {
            std::os::unix::fs::symlink(present, &lake).unwrap();
        }
        let service = serve();
        wait_until("it says that it cannot resume", || report()["state"] == "failed");
        let health = service.health();
        let detail = health["components"]["backfill"]["detail"].as_str().unwrap();
        let named = detail.contains("cannot resume") && detail.contains("lake");
        assert!(named && detail.contains("--cancel"), "{detail}");
        assert_eq!(health["service"], "up");
        assert!(file.exists(), "{present:?}");
        service.stop();
        assert!(file.exists(), "{present:?}");
        // Neither does a command without a service throw it away.
        let ran = run(at, &["backfill", "--data-dir", "d", "--json"]);
        assert_ne!(ran.code, 0, "{}", ran.stdout);
        assert!(file.exists(), "{present:?}");
    }
    std::fs::remove_file(&lake).unwrap();
    std::os::unix::fs::symlink(archive.path(), &lake).unwrap();
    let service = serve();
    wait_until("it is done", || report()["state"] == "done");
    assert!(!file.exists());
    service.stop();
    assert_eq!(ranges(at), json!([[20, 40], [50, 60]]));
}
