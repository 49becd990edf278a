//! Tests of the built binary: every verb, its output and its exit code.

mod attested;
mod backups;
mod descriptors;
mod dev;
mod doctor;
mod documents;
mod events;
mod export;
mod first_contact;
mod interfaces;
mod logs;
mod mcp;
mod modes;
mod network;
mod new;
mod new_directories;
mod packaging;
mod pasted;
mod programs;
mod prove;
mod released;
mod sinks;
mod state_backfill;
mod stellar_cli;
mod storage;
mod storage_scope;
mod streams;
mod types;
mod unit;
mod verify;
mod wasm;

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::thread;

use orrery::domain::Network;
use orrery::store::{Retention, Store};
use orrery_testkit::binary::{Ran, Service, configure, orrery_in, run};
use orrery_testkit::data::ledgers;
use orrery_testkit::signal::Signal;
use orrery_testkit::wait::wait_until;
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn wrong_usage_exits_with_2() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [
        &[][..],
        &["fly"],
        &["import"],
        &["serve", "--listen", "here"],
        &["token", "issue"],
        &["token", "issue", "--sub", "a", "--plan", "gold"],
        &["token", "issue", "--sub", "a", "--trial", "--days", "3"],
        &["token", "issue", "--sub", "a", "--scope", "all"],
        &["verify", "--from", "one"],
    ] {
        let ran = run(directory.path(), arguments);
        assert_eq!(ran.code, 2, "{arguments:?}");
        assert_eq!(ran.stdout, "", "{arguments:?}");
        assert!(ran.stderr.contains("--help"), "{arguments:?}: {}", ran.stderr);
    }
    for verb in ["serve", "demo"] {
        let ran = run(directory.path(), &[verb, "--listen", "8485"]);
        assert!(ran.stderr.contains("give an IP address and a port"), "{}", ran.stderr);
    }
}

#[test]
fn the_help_of_every_verb_has_an_example() {
    let directory = tempfile::tempdir().unwrap();
    for verb in [
        &[][..],
        &["serve"],
        &["demo"],
        &["import"],
        &["backfill"],
        &["export"],
        &["token"],
        &["token", "issue"],
        &["token", "list"],
        &["token", "revoke"],
        &["status"],
        &["verify"],
        &["config"],
        &["config", "check"],
        &["config", "print"],
        &["backup"],
        &["doctor"],
        &["restore"],
        &["sink", "list"],
        &["sink", "status"],
        &["sink", "test"],
        &["sink", "check"],
        &["sink", "replace"],
        &["sink", "remove"],
        &["version"],
    ] {
        let ran = run(directory.path(), &[verb, &["--help"]].concat());
        assert_eq!(ran.code, 0);
        assert!(ran.stdout.contains("Example"), "{verb:?}: {}", ran.stdout);
    }
    let version = run(directory.path(), &["version"]);
    assert_eq!(version.stdout, concat!("orrery ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn config_check_and_print_show_settings() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::write(at.join("good.toml"), "network = 'testnet'\n[limits]\nburst = 7\n").unwrap();
    fs::write(at.join("bad.toml"), "\n[limits]\nbrust = 7\n").unwrap();

    let checked = run(at, &["config", "check", "--config", "good.toml"]);
    assert_eq!((checked.code, checked.stdout.as_str()), (0, ""));
    run(at, &["config", "check", "--config", "bad.toml"])
        .refuses(1, &["bad.toml, line 3", "limits.brust", "did you mean limits.burst?"]);
    run(at, &["status", "--config", "bad.toml"]).refuses(1, &["limits.brust"]);
    run(at, &["config", "check", "--log-level", "loud"])
        .refuses(2, &["--log-level: log.level cannot be \"loud\": give error, warn, info"]);

    let with = |name: &str, value: &str, verb: &str| -> Ran {
        orrery_in(at).args(["config", verb]).env(name, value).output().unwrap().into()
    };
    // Orchestrators set variables of this form for every service, so an unknown one causes a
    // warning and is ignored.
    let odd = with("ORRERY_LIMITS_BRUST", "1", "check");
    assert_eq!((odd.code, odd.stdout.as_str()), (0, ""));
    let warning =
        "ORRERY_LIMITS_BRUST is not a setting and is ignored (did you mean ORRERY_LIMITS_BURST?)";
    assert!(odd.stderr.contains(warning), "{}", odd.stderr);
    with("ORRERY_LIMITS_BURST", "x", "check").refuses(1, &["ORRERY_LIMITS_BURST", "cannot be"]);
    let printed = with("ORRERY_CONFIG", "good.toml", "print").stdout;
    assert!(printed.contains("burst = 7"), "{printed}");
    assert!(printed.contains("# good.toml, line 3"), "{printed}");
    let printed = with("ORRERY_DATA_DIR", "elsewhere", "print").stdout;
    assert!(printed.contains("# environment variable ORRERY_DATA_DIR"), "{printed}");
}

#[test]
fn importing_twice_stores_once() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let lake = data.join("lake-pubnet");
    let import = ["import", "--json", "--data-dir", "d", lake.to_str().unwrap()];

    // The lake's manifest names the network of a new directory.
    let first = run(directory.path(), &import).json();
    assert_eq!((first["new"].as_u64(), first["already_stored"].as_u64()), (Some(12), Some(0)));
    assert_eq!((first["events"].as_u64(), first["transactions"].as_u64()), (Some(123), Some(289)));
    let again = run(directory.path(), &import).json();
    assert_eq!((again["new"].as_u64(), again["already_stored"].as_u64()), (Some(0), Some(12)));
    assert_eq!(again["events"].as_u64(), Some(0));

    let status = run(directory.path(), &["status", "--data-dir", "d"]).json();
    assert_eq!(status["network"], "mainnet");
    assert_eq!(status["running"], false);
    assert_eq!(status["ranges"], serde_json::json!([[63_092_982, 63_092_993]]));
    assert_eq!(status["events"], 123);
    assert_eq!(status["transactions"], 289);
    assert_eq!(status["latest_close_time"], 1_781_828_514);
}

/// What retention has removed is not stored again, and it is said so.
#[test]
fn ledgers_without_their_records_are_counted() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let lake = data.join("lake-pubnet");
    let lake = lake.to_str().unwrap();
    let import = ["import", "--json", "--data-dir", "d", lake];
    assert_eq!(run(directory.path(), &import).json()["without_records"], 0);
    let store = Store::open(&directory.path().join("d"), None).unwrap();
    let retention = Retention { transactions: Some(5), ..Retention::default() };
    while !store.prune(&retention).unwrap().is_nothing() {}
    drop(store);
    let again = run(directory.path(), &import).json();
    assert_eq!(
        (again["already_stored"].as_u64(), again["without_records"].as_u64()),
        (Some(12), Some(7))
    );
    let backfill = ["backfill", "--data-dir", "d", "--from", "63092982", "--to", "63092993"];
    let filled = run(directory.path(), &[&backfill[..], &["--source", lake]].concat()).json();
    assert_eq!((filled["state"].as_str(), filled["missing"].as_u64()), (Some("done"), Some(0)));
    assert_eq!(filled["without_records"], 7);
}

#[test]
fn verify_checks_everything_that_is_stored() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    run(at, &["verify", "--data-dir", "d"])
        .refuses(1, &["there is no data directory d", "--data-dir"]);
    assert!(!at.join("d").exists(), "asking creates nothing");
    let lake = data.join("lake-pubnet");
    run(at, &["import", "--json", "--data-dir", "d", lake.to_str().unwrap()]).json();
    let status = run(at, &["status", "--data-dir", "d"]).json();
    let covered = &status["covered"][0];
    assert_eq!((&covered["first_ledger"], &covered["events"]), (&63_092_982.into(), &123.into()));

    let digest = covered["digest"].as_str().unwrap();
    let line = format!("ledgers 63092982–63092993 (12), 123 events, digest {digest}\n");
    let verified = run(at, &["verify", "--data-dir", "d"]);
    let expected = format!("{line}12 raw ledgers were decoded again\n");
    assert_eq!((verified.code, verified.stdout), (0, expected), "{}", verified.stderr);
    let some = ["verify", "--data-dir", "d", "--from", "63092985", "--to"];
    let verified = run(at, &[&some[..], &["63092986"]].concat());
    assert!(verified.stdout.starts_with("ledgers 63092985–63092986 (2), "), "{}", verified.stdout);
    run(at, &[&some[..], &["1"]].concat()).refuses(2, &["--from 63092985 is after --to 1"]);

    let service = Service::start_in(at, &["--data-dir", "d"]);
    run(at, &["verify", "--data-dir", "d"]).refuses(75, &["in use"]);
    let (code, asked) = service.ask("/rest/completeness", None);
    assert_eq!((code, asked["ranges"][0]["digest"].as_str()), (200, Some(digest)));
    let running = run(at, &["status", "--data-dir", "d"]).json();
    assert_eq!((&running["running"], &running["covered"]), (&true.into(), &status["covered"]));
    service.stop();

    // Flips a bit in the middle of the largest file, which holds the raw ledgers.
    let files = fs::read_dir(at.join("d/raw")).unwrap().map(|entry| entry.unwrap().path());
    let largest = files.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(&largest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&largest, bytes).unwrap();
    let damaged = run(at, &["verify", "--data-dir", "d"]);
    assert!(damaged.stderr.contains("checksum"), "{}", damaged.stderr);
    damaged.refuses(1, &["found in d: restore a backup"]);
    fs::remove_file(at.join("d/raw/CURRENT")).unwrap();
    run(at, &["verify", "--data-dir", "d"]).refuses(1, &["CURRENT is missing"]);
    run(at, &["status", "--data-dir", "d"]).refuses(1, &["CURRENT is missing"]);
}

#[test]
fn other_networks_are_refused_by_name() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let lake = data.join("lake-pubnet");
    let ledger = data.join("pubnet/ledger-63092982.xdr.gz");
    let (lake, ledger) = (lake.to_str().unwrap(), ledger.to_str().unwrap());
    let testnet = ["import", "--data-dir", "t", "--network", "testnet"];

    run(at, &["import", "--data-dir", "t", ledger]).refuses(1, &["name the network"]);
    run(at, &[&testnet[..], &[lake]].concat())
        .refuses(1, &[".config.json", "of the network mainnet, not of testnet"]);
    run(at, &[&testnet[..], &[ledger]].concat())
        .refuses(1, &["ledger-63092982.xdr.gz holds a ledger of mainnet", "holds testnet"]);
    assert!(!at.join("t").exists(), "a directory without ledgers is not left");
    let issue = ["token", "issue", "--data-dir", "t", "--network", "TestNet", "--sub", "a"];
    let issued = run(at, &issue);
    assert!(issued.stderr.contains("created the data directory t"), "{}", issued.stderr);
    assert!(!run(at, &issue).stderr.contains("created"));
    run(at, &["import", "--data-dir", "t", "--network", "mainnet", ledger])
        .refuses(1, &["the data directory t holds testnet, not mainnet"]);
    run(at, &["status", "--data-dir", "nowhere"])
        .refuses(1, &["there is no data directory nowhere"]);
    assert!(!at.join("nowhere").exists(), "asking creates nothing");
    let status = run(at, &["status", "--data-dir", "t"]).json();
    assert_eq!(status["ranges"], serde_json::json!([]));
}

/// Three files: a valid ledger, a truncated one, and another valid one.
fn damaged(data: &Path) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let read = |name: &str| fs::read(data.join("testnet").join(name)).unwrap();
    let (first, second) = (read("ledger-4482.xdr.zst"), read("ledger-36234.xdr.zst"));
    fs::write(directory.path().join("1.xdr.zst"), &first).unwrap();
    fs::write(directory.path().join("2.xdr.zst"), &second[..second.len() / 2]).unwrap();
    fs::write(directory.path().join("3.xdr.zst"), read("ledger-36233.xdr.zst")).unwrap();
    directory
}

#[test]
fn a_damaged_file_is_named_and_earlier_ledgers_stay_stored() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let files = damaged(&data);
    let import = ["import", "--data-dir", "d", "--network", "testnet"];
    let path = files.path().to_str().unwrap();
    run(at, &[&import[..], &[path]].concat())
        .refuses(1, &["2.xdr.zst", "cut off", "the ledger before it is stored"]);
    let status = run(at, &["status", "--data-dir", "d"]).json();
    assert_eq!(status["ranges"], serde_json::json!([[4482, 4482]]));

    fs::write(at.join("notes.txt"), "not a ledger at all").unwrap();
    run(at, &[&import[..], &["notes.txt"]].concat()).refuses(1, &["notes.txt", "holds no ledgers"]);
    run(at, &[&import[..], &["missing.xdr"]].concat()).refuses(1, &["cannot read missing.xdr"]);
    // A flipped bit in the header: the ledger decodes, but its hash does not match.
    let mut ledger = zstd::decode_all(&*fs::read(files.path().join("3.xdr.zst")).unwrap()).unwrap();
    ledger[60] ^= 1;
    fs::write(at.join("flipped.xdr"), ledger).unwrap();
    run(at, &[&import[..], &["flipped.xdr"]].concat()).refuses(1, &["flipped.xdr", "hash"]);
}

#[test]
fn a_killed_import_can_be_resumed() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let bundle = data.join("synthetic/horizon-load-test-ledgers-v28.xdr.zstd");
    let import = ["import", "--json", "--network-passphrase", "Apply Load", "--data-dir", "d"];
    let mut first = orrery_in(directory.path())
        .args(import)
        .arg(&bundle)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the import has begun", || directory.path().join("d/raw/CURRENT").exists());
    first.kill().unwrap();
    first.wait().unwrap();
    let second = run(directory.path(), &[&import[..], &[bundle.to_str().unwrap()]].concat()).json();
    let sum = |name: &str| second[name].as_u64().unwrap();
    assert_eq!(sum("new") + sum("already_stored"), 30);
    let status = run(directory.path(), &["status", "--data-dir", "d"]).json();
    assert_eq!(status["ranges"], serde_json::json!([[10_048, 10_077]]));
    assert_eq!(status["events"], 72_300);
}

#[test]
fn a_directory_in_use_exits_with_75() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::write(at.join("some.xdr"), [0; 16]).unwrap();
    let store = Store::open(&at.join("d"), Some(&Network::from_name_or_passphrase("testnet")));
    let refused = || {
        for arguments in [
            &["serve", "--no-source", "--data-dir", "d", "--listen", "127.0.0.1:0"][..],
            &["import", "--data-dir", "d", "some.xdr"],
            &["status", "--data-dir", "d"],
            &["token", "list", "--data-dir", "d"],
            &["demo", "--data-dir", "d", "--listen", "127.0.0.1:0"],
        ] {
            run(at, arguments).refuses(75, &["the data directory d is in use"]);
        }
    };
    refused();
    // Also if somebody has removed the file that is locked.
    fs::remove_file(at.join("d/orrery.lock")).unwrap();
    refused();
    drop(store);
    let service = Service::start_in(at, &["--data-dir", "d"]);
    // Clients find the service again if somebody has removed its socket, or the lock as well.
    for file in ["d/control.sock", "d/orrery.lock"] {
        fs::remove_file(at.join("d/control.sock")).unwrap();
        let _ = fs::remove_file(at.join(file));
        wait_until("the service has its socket", || at.join("d/control.sock").exists());
        let status = run(at, &["status", "--json", "--data-dir", "d"]).json();
        assert_eq!(status["running"], true, "{file}");
    }
    run(at, &["serve", "--no-source", "--data-dir", "d", "--listen", "127.0.0.1:0"])
        .refuses(75, &["in use"]);
    assert_eq!(service.end_with(Signal::INT), Some(0));
    assert!(!at.join("d/control.sock").exists());
}

#[test]
fn commands_wait_for_the_lock_of_a_killed_service() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let network = Network::from_name_or_passphrase("testnet");
    let store = Store::open(&at.join("d"), Some(&network)).unwrap();
    let socket = UnixListener::bind(at.join("d/control.sock")).unwrap();
    let lets_go = thread::spawn(move || {
        let asked = socket.accept().unwrap();
        drop((socket, asked, store));
    });
    let listed = run(at, &["token", "list", "--data-dir", "d"]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    lets_go.join().unwrap();
}

#[test]
fn imports_go_through_a_running_service() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let service = Service::start_in(at, &["--data-dir", "d", "--network", "mainnet"]);
    assert_eq!(service.get("/rest/events/by-ledger"), serde_json::json!([]));

    let lake = data.join("lake-pubnet");
    let import = ["import", "--json", "--data-dir", "d", lake.to_str().unwrap()];
    let imported = run(at, &import).json();
    assert_eq!((imported["new"].as_u64(), imported["events"].as_u64()), (Some(12), Some(123)));
    assert_eq!(run(at, &import).json()["already_stored"].as_u64(), Some(12));
    let events = service.get("/rest/events/by-ledger?limit=1000");
    assert_eq!(events.as_array().unwrap().len(), 123);

    let asked = run(at, &["status", "--data-dir", "d"]).json();
    assert_eq!(asked["running"], true);
    assert_eq!(asked["listen"], service.address);
    assert_eq!(asked["ranges"], serde_json::json!([[63_092_982, 63_092_993]]));

    let testnet = data.join("testnet/ledger-36234.xdr.zst");
    run(at, &["import", "--data-dir", "d", testnet.to_str().unwrap()])
        .refuses(1, &["ledger-36234.xdr.zst holds a ledger of testnet", "holds mainnet"]);
    run(at, &["import", "--data-dir", "d", "--network", "testnet", testnet.to_str().unwrap()])
        .refuses(1, &["holds mainnet, not testnet"]);
    let ledger = fs::read(data.join("pubnet/ledger-57500008.xdr.gz")).unwrap();
    fs::create_dir(at.join("files")).unwrap();
    fs::write(at.join("files/1.xdr.gz"), &ledger).unwrap();
    fs::write(at.join("files/2.xdr.gz"), &ledger[..ledger.len() / 2]).unwrap();
    run(at, &["import", "--data-dir", "d", "files"])
        .refuses(1, &["files/2.xdr.gz", "cut off", "the ledger before it is stored"]);
    let asked = run(at, &["status", "--data-dir", "d"]).json();
    assert_eq!(asked["ranges"][0], serde_json::json!([57_500_008, 57_500_008]));
    service.stop();
}

#[test]
fn tokens_can_be_issued_and_revoked_while_the_service_runs() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    // Tokens can also be issued before the first start.
    let issue = ["token", "issue", "--data-dir", "d", "--network", "testnet", "--sub"];
    let early = run(at, &[&issue[..], &["early"]].concat()).stdout;
    let service = Service::start_in(at, &["--data-dir", "d"]);
    let route = "/rest/events/by-ledger";
    assert_eq!(service.ask(route, Some(early.trim())).0, 200);
    assert_eq!(service.ask(route, None).0, 401);

    let late = run(at, &["token", "issue", "--data-dir", "d", "--sub", "late", "--trial"]).stdout;
    assert_eq!(late.lines().count(), 1);
    assert_eq!(service.ask(route, Some(late.trim())).0, 200);
    let listed = run(at, &["token", "list", "--data-dir", "d"]).stdout;
    let listed: Vec<Value> =
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(listed.len(), 2);
    assert_eq!((&listed[1]["sub"], &listed[1]["plan"]), (&"late".into(), &"builder".into()));

    let jti = listed[1]["jti"].as_str().unwrap();
    assert_eq!(run(at, &["token", "revoke", "--data-dir", "d", jti]).code, 0);
    assert_eq!(service.ask(route, Some(late.trim())).0, 401);
    assert_eq!(service.ask(route, Some(early.trim())).0, 200);
    let again = run(at, &["token", "revoke", "--data-dir", "d", jti]).stdout;
    assert!(again.contains("was revoked before"), "{again}");
}

#[test]
fn a_port_in_use_gives_a_one_line_error() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    run(directory.path(), &["serve", "--no-source", "--network", "testnet", "--listen", &address])
        .refuses(1, &[&format!("cannot listen on {address}"), "--listen"]);
    run(directory.path(), &["serve", "--listen", "127.0.0.1:0", "--data-dir", "new"])
        .refuses(1, &["name the network", "--network testnet"]);
}

#[test]
fn metrics_contain_the_steps_of_ingestion() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start_in(directory.path(), &["--data-dir", "d", "--network", "mainnet"]);
    let lake = data.join("lake-pubnet");
    run(directory.path(), &["import", "--data-dir", "d", lake.to_str().unwrap()]);
    assert_eq!(service.ask("/rest/health", None).0, 200);
    let text = service.metrics();
    for line in [
        "orrery_ledgers_total 12",
        "orrery_events_total 123",
        "orrery_latest_ledger 63092993",
        "orrery_step_seconds_count{step=\"decode\"} 12",
        "orrery_http_requests_total{route=\"/rest/health\",status=\"200\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    // Ledgers that arrive in quick succession share a write.
    let commits = "orrery_step_seconds_count{step=\"commit\"} ";
    let commits = text.lines().find_map(|line| line.strip_prefix(commits)?.parse::<u32>().ok());
    assert!(commits.is_some_and(|count| (1..=12).contains(&count)), "{commits:?}");
}

#[test]
fn a_service_follows_a_growing_lake() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let partition = "FC3E15FF--63040000-63103999";
    let original = data.join("lake-pubnet");
    let mut names: Vec<_> = fs::read_dir(original.join(partition))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    // File names begin with the inverted sequence, so the oldest ledger sorts last.
    names.sort_by(|left, right| right.cmp(left));
    fs::create_dir_all(at.join("lake").join(partition)).unwrap();
    fs::copy(original.join(".config.json"), at.join("lake/.config.json")).unwrap();
    let add = |name: &String| {
        let target = at.join("lake").join(partition).join(name);
        let unfinished = at.join("unfinished");
        fs::copy(original.join(partition).join(name), &unfinished).unwrap();
        fs::rename(unfinished, target).unwrap();
    };
    names[..5].iter().for_each(add);
    let config = "network = 'mainnet'\ndata_dir = 'd'\n[source]\nkind = 'lake'\npath = 'lake'\n";
    let service = Service::start_in(at, &configure(at, config));
    let reached = |ledger: u64| {
        service.wait_for_health(&format!("ledger {ledger} is stored"), |health| {
            health["service_latest_ledger"] == ledger
        })
    };
    reached(63_092_986);
    // This is not the next ledger: nothing is stored beyond the gap.
    add(&names[6]);
    add(&names[5]);
    reached(63_092_988);
    names[7..].iter().for_each(add);
    let health = reached(63_092_993);
    assert_eq!(health["service"], "up");
    assert_eq!(health["network_latest_ledger"], 63_092_993);
    service.stop();

    let other = "network = 'testnet'\ndata_dir = 't'\n[source]\nkind = 'lake'\npath = 'lake'\n";
    let [config, file] = configure(at, other);
    run(at, &["serve", config, file, "--listen", "127.0.0.1:0"])
        .refuses(1, &["of the network mainnet, not of testnet"]);
}
