//! What somebody meets who uses the product for the first time: an address or a path that cannot be
//! used, a mistyped word, a module for the wrong contract.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use orrery::sandbox::network::MARKET_PROGRAM;
use orrery_testkit::binary::{Ran, Service, configure, orrery_in, run};
use orrery_testkit::data::ledgers;
use orrery_testkit::terminal::{Terminal, on_terminal};
use orrery_testkit::wait::wait_until;

/// A program for a contract with other functions than the market's.
const OTHER_PROGRAM: &[u8] = include_bytes!("../programs/built/deposit_program.wasm");

/// An address for documentation (RFC 5737), which no machine has.
const NOWHERE: &str = "192.0.2.1:9000";

#[test]
fn an_address_of_another_machine_is_explained_and_leaves_no_directory() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for verb in [
        &["demo", "--data-dir", "d"][..],
        &["serve", "--no-source", "--data-dir", "d", "--network", "local"],
        &["webhooks", "listen"],
    ] {
        run(at, &[verb, &["--listen", NOWHERE]].concat())
            .refuses(1, &["cannot listen on 192.0.2.1:9000", "does not have that", "--listen"]);
        assert!(!at.join("d").exists(), "{verb:?}");
    }
    let listen = ["webhooks", "listen", "--listen", "9100"];
    let refused = run(at, &listen);
    assert!(refused.stderr.contains("such as 127.0.0.1:8484"), "{}", refused.stderr);
}

#[test]
fn a_path_that_cannot_be_a_data_directory_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    symlink("nowhere", at.join("dangling")).unwrap();
    fs::write(at.join("file"), "").unwrap();
    let serve = ["serve", "--no-source", "--network", "local", "--listen", "127.0.0.1:0"];
    for verb in [
        &["demo", "--listen", "127.0.0.1:0"][..],
        &serve,
        &["token", "issue", "--sub", "a", "--network", "local"],
        &["status"],
        &["backup", "backups"],
    ] {
        for (path, parts) in [
            ("dangling", ["dangling is a link to nowhere, which does not exist", "--data-dir"]),
            ("dangling/d", ["dangling is a link to nowhere", "--data-dir"]),
            ("file", ["file is not a directory", "--data-dir"]),
            ("file/d", ["file is not a directory", "--data-dir"]),
        ] {
            run(at, &[verb, &["--data-dir", path]].concat()).refuses(1, &parts);
        }
    }
    // Nobody may create a directory there.
    for verb in [&["demo", "--listen", "127.0.0.1:0"][..], &serve] {
        run(at, &[verb, &["--data-dir", "/proc/x"]].concat())
            .refuses(1, &["cannot create the data directory /proc/x", "--data-dir", "may write"]);
    }
    let doctor = run(at, &["doctor", "--data-dir", "dangling"]);
    assert!(doctor.stdout.contains("broken  store        dangling is a link"), "{}", doctor.stdout);
}

#[test]
fn a_path_that_cannot_be_a_backup_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::write(at.join("file"), "").unwrap();
    for name in ["nothere", "file", "file/x"] {
        let missing = format!("there is no directory {name}");
        for verb in [&["restore", name][..], &["backup", "--verify", name]] {
            run(at, &[verb, &["--data-dir", "d"]].concat())
                .refuses(1, &[&missing, "a directory of backups"]);
        }
    }
    let issue = ["token", "issue", "--data-dir", "d", "--network", "local", "--sub", "a"];
    run(at, &issue).succeeded();
    for place in ["file", "/proc/x"] {
        run(at, &["backup", "--data-dir", "d", place])
            .refuses(1, &[&format!("cannot create the directory {place}"), "may write"]);
    }
}

#[test]
fn a_mistyped_setting_is_answered_with_what_was_meant() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let config = configure(at, "[http]\nport = 80");
    let check = [&["config", "check"][..], &config].concat();
    run(at, &check).refuses(1, &["line 2", "http.port", "did you mean http.listen?"]);
    configure(at, "network = 'local'\n[source]\nkind = 'rpc'");
    run(at, &check).refuses(1, &["local has no public RPC server", "source.rpc_url"]);
    configure(at, "network = 'local'\n[site]\nlabels = 'nothere'");
    let serve = ["serve", "--no-source", "--data-dir", "d", "--listen", "127.0.0.1:0"];
    for verb in [&check[..], &[&serve[..], &config].concat()] {
        run(at, verb).refuses(1, &["site.labels, nothere: cannot be read"]);
    }
    assert!(!at.join("d").exists(), "the mistake is found before anything is made");
    configure(at, "network = testnet");
    run(at, &check).refuses(1, &["line 1", "quotation marks: network = \"…\""]);
    run(at, &["serve", "--data-dir", "d", "--network", "testnett"])
        .refuses(2, &["did you mean \"testnet\"?", "--network-passphrase"]);
    run(at, &["serve", "--data-dir", "d", "--log-level", "warning"])
        .refuses(2, &["did you mean \"warn\"?"]);
}

/// Log lines of a service on a terminal that ends at once, because its address is taken.
fn log_on_terminal(at: &Path, settings: &[(&str, &str)]) -> Option<String> {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let serve = ["serve", "--no-source", "--data-dir", "d", "--network", "local"];
    let settings = [settings, &[("ORRERY_QUUX", "1")]].concat();
    let (log, code) = on_terminal(at, &[&serve[..], &["--listen", &taken]].concat(), &settings)?;
    assert!(code == 1 && log.contains("ORRERY_QUUX is not a setting"), "{log}");
    Some(log)
}

#[test]
fn logs_have_no_colours_where_they_are_not_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let Some(log) = log_on_terminal(directory.path(), &[("NO_COLOR", "")]) else { return };
    assert!(log.contains('\u{1b}'), "{log}");
    let log = log_on_terminal(directory.path(), &[("NO_COLOR", "1")]).unwrap();
    assert!(!log.contains('\u{1b}'), "{log}");
}

/// Settings of a service that follows the JSON-RPC interfaces at these addresses, the first one
/// usually.
fn following(at: &Path, first: &str, second: Option<&str>) -> [&'static str; 2] {
    let gaps = second.map(|url| format!("gaps = ['rpc:{url}']")).unwrap_or_default();
    let source = format!("kind = 'rpc'\nrpc_url = '{first}'\nstart = 'oldest'\n{gaps}");
    configure(at, &format!("network = 'local'\n[source]\n{source}\n"))
}

fn count(service: &Service, part: &str) -> usize {
    let log = service.log();
    let messages = log.iter().filter_map(|line| line["message"].as_str());
    messages.filter(|message| message.contains(part)).count()
}

#[test]
fn a_service_says_where_it_is_and_when_it_has_caught_up() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, _) = Service::demo(at, &["--close-time", "100"]);
    demo.wait_for_health("a window of ledgers", |health| {
        health["service_latest_ledger"].as_u64() > Some(30)
    });
    let own = tempfile::tempdir().unwrap();
    let config = following(own.path(), &format!("{}/rpc", demo.base), None);
    let data_dir = ["--data-dir", "d"];
    let service = Service::start_in(own.path(), &[&config[..], &data_dir].concat());
    let log = service.log();
    let listening = log.iter().find(|line| line["message"] == "listening").unwrap();
    assert_eq!(listening["url"], format!("{}/", service.base));
    wait_until("it has caught up", || (count(&service, "caught up") > 0).then_some(()));
    let has_ledger = |health: &serde_json::Value| health["service_latest_ledger"].is_u64();
    let health = service.wait_for_health("a ledger", has_ledger);
    let latest = health["service_latest_ledger"].as_u64().unwrap();
    service.wait_for_health("further ledgers", |health| {
        health["service_latest_ledger"].as_u64() > Some(latest + 5)
    });
    assert_eq!(count(&service, "caught up"), 1);
    assert_eq!(count(&service, "ledgers come from"), 1);
    let warnings: Vec<_> = service.log().into_iter().filter(|it| it["level"] == "WARN").collect();
    assert!(warnings.is_empty(), "{warnings:?}");
    service.stop();
    demo.stop();
}

#[test]
fn sources_that_do_not_work_are_not_named_as_those_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let config = following(at, "http://127.0.0.1:9/", Some("http://127.0.0.1:10/"));
    fs::write(
        at.join("orrery.toml"),
        fs::read_to_string(at.join("orrery.toml")).unwrap().replace("oldest", "5"),
    )
    .unwrap();
    let service = Service::start_in(at, &[&config[..], &["--data-dir", "d"]].concat());
    wait_until("both sources have failed for a while", || {
        let failed = |port: &str| {
            count(&service, &format!("the source failed: the RPC server http://127.0.0.1:{port} "))
                > 2
        };
        (failed("9") && failed("10")).then_some(())
    });
    assert_eq!(count(&service, "ledgers come from"), 0, "{:?}", service.log());
    service.stop();
}

#[test]
fn clients_with_a_slash_too_many_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::local(directory.path(), &["--no-source"]);
    for path in ["/rest/smart-account-indexer//api/stats", "/rest//passkey-indexer//api/stats"] {
        let (status, answer) = service.ask(path, None);
        assert_eq!(status, 200, "{path}: {answer}");
    }
    assert_eq!(service.ask("//rest/health", None).0, 404, "only below the base");
    service.stop();
}

#[test]
fn what_is_no_ledger_file_is_skipped_with_a_word() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let lake = at.join("lake");
    fs::create_dir(&lake).unwrap();
    fs::copy(data.join("testnet/ledger-4478.xdr.zst"), lake.join("ledger-4478.xdr.zst")).unwrap();
    fs::write(lake.join("Thumbs.db"), "pictures").unwrap();
    fs::write(lake.join("ledger-11.xdr.zst.part"), "half").unwrap();
    symlink("nowhere", lake.join("dangling")).unwrap();
    symlink("..", lake.join("up")).unwrap();
    let import = ["import", "--json", "--data-dir", "d", "--network", "testnet", "lake"];
    let imported = run(at, &import);
    assert_eq!(imported.json()["new"], 1);
    for name in ["Thumbs.db", "ledger-11.xdr.zst.part", "dangling", "up"] {
        let lines = imported.stderr.matches(&format!("lake/{name} is skipped: ")).count();
        assert_eq!(lines, 1, "{name}: {}", imported.stderr);
    }
}

#[test]
fn messages_name_options_and_verbs() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let service = Service::local(at, &["--no-source"]);
    let base = format!("{}/rest", service.base);
    let ask = |verb: &[&str], base: &str| {
        run(at, &[verb, &["--base", base, "--jwt", service.token()]].concat())
    };
    let new = ["webhooks", "new", "--endpoint", "http://127.0.0.1:9/"];
    ask(&[&new[..], &["--contract", "x"]].concat(), &base)
        .refuses(1, &["--contract: 'x' is not a contract ID"]);
    ask(&["pause", "7"], &base).refuses(1, &["there is no program 7", "`orrery list`"]);
    for wrong in [&service.base, &format!("{}/", service.base)] {
        ask(&["list"], wrong).refuses(1, &["it ends in /rest", &format!("--base {base}")]);
    }
    service.stop();
}

#[test]
fn a_module_for_its_contract_is_not_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, told) = Service::demo(at, &["--close-time", "200"]);
    fs::write(at.join("market.wasm"), MARKET_PROGRAM).unwrap();
    let base = format!("{}/rest", demo.base);
    let contract = told["contract"].as_str().unwrap();
    let deploy = ["deploy", "--project", "right", "--contract", contract];
    let code = ["--code-path", "market.wasm", "--base", &base, "--jwt", demo.token()];
    let deployed = run(at, &[&deploy[..], &code].concat());
    deployed.succeeded();
    assert_eq!(deployed.stderr, "");

    // A module for another contract is refused, unless that is wanted, or nothing is known of the contract.
    fs::write(at.join("other.wasm"), OTHER_PROGRAM).unwrap();
    let other = |project: &str, contract: &str, more: &[&str]| {
        let deploy = ["deploy", "--project", project, "--contract", contract];
        let code = ["--code-path", "other.wasm", "--base", &base, "--jwt", demo.token()];
        run(at, &[&deploy[..], &code, more].concat())
    };
    other("wrong", contract, &[]).refuses(
        1,
        &[
            &format!("--code-path has none of the functions of the contract {contract}"),
            "which has account, fill, fund, place: it has ",
            "--allow-unfit",
        ],
    );
    let tried = ["try", "--code-path", "other.wasm", "--contract", contract];
    let tried = run(at, &[&tried[..], &["--base", &base, "--jwt", demo.token()]].concat());
    tried.succeeded();
    let warning = format!("the module has none of the functions of {contract} (account, fill,");
    assert!(tried.stderr.contains(&warning), "{}", tried.stderr);
    let hook = ["webhooks", "new", "--contract", contract, "--endpoint", "http://127.0.0.1:9/"];
    let hook = |topic: &str| {
        let more = ["--topic1", topic, "--base", &base, "--jwt", demo.token()];
        run(at, &[&hook[..], &more].concat())
    };
    let mistyped = hook("filed");
    mistyped.succeeded();
    let warning = "declares no event whose first topic is filed: it declares filled, placed";
    assert!(mistyped.stderr.contains(warning), "{}", mistyped.stderr);
    assert_eq!(hook("filled").stderr, "");
    other("wrong", contract, &["--allow-unfit"]).succeeded();
    let nobodys = "CCJZ5DGASBWQXR5MPFCJXMBI333XE5U3FSJTNQU7RIKE3P5GN2K2WYD5";
    other("unknown", nobodys, &[]).succeeded();
    other("several", &format!("{contract},{nobodys}"), &[]).succeeded();
    demo.stop();
}

/// In the background, it would be written over what somebody types for the shell.
#[test]
fn the_live_line_is_shown_in_the_foreground_only() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let demo = "orrery demo --listen 127.0.0.1:0 --close-time 100 --data-dir d > said &";
    let Some(mut terminal) = Terminal::run(at, &format!("{demo} read -r go; fg")) else { return };
    wait_until("the demo is ready", || {
        fs::read_to_string(at.join("said")).ok().filter(|said| said.contains("More: "))
    });
    // The line would be there as soon as it is ready, and again each second.
    let latest = || {
        let status = run(at, &["status", "--data-dir", "d", "--json"]);
        status.json()["latest_ledger"].as_u64().unwrap()
    };
    let ready = latest();
    wait_until("two seconds of ledgers", || Some(latest()).filter(|now| *now > ready + 20));
    assert!(!terminal.shown().contains("events/s"), "{:?}", terminal.shown());
    terminal.type_in("\n");
    wait_until("the line is shown", || {
        let shown = terminal.shown();
        if shown.contains("events/s") { Ok(()) } else { Err(shown) }
    });
    // It is written once a second, and again below a line of the log.
    let written = || terminal.shown().matches("events/s").count();
    let (before, since, ready) = (written(), Instant::now(), latest());
    wait_until("three seconds of ledgers", || Some(latest()).filter(|now| *now > ready + 30));
    let (times, seconds) = (written() - before, since.elapsed().as_secs());
    assert!((1..=2 * seconds + 5).contains(&(times as u64)), "{times} times in {seconds} s");
    terminal.type_in("\u{3}");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn commands_without_a_directory_find_the_service_below_this_one() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, _) = Service::demo(at, &[]);
    let place = at.canonicalize().unwrap().join("d").display().to_string();
    let latest = demo.health()["service_latest_ledger"].as_u64().unwrap();
    let status = run(at, &["status", "--json"]);
    assert!(status.json()["latest_ledger"].as_u64().unwrap() >= latest);
    assert!(status.stderr.contains(&place), "{}", status.stderr);
    let token = run(at, &["token", "issue", "--sub", "a"]).succeeded().trim().to_owned();
    assert_eq!(demo.ask("/rest/retroshade/list", Some(&token)).0, 200);
    let findings = run(at, &["doctor"]);
    assert!(findings.stdout.contains("service"), "{}{}", findings.stdout, findings.stderr);
    let backfill = run(at, &["backfill", "--status", "--json"]);
    assert_eq!(backfill.json()["state"], "none");
    assert!(!at.join("orrery-data").exists());

    // A directory of the default name is the one that is meant, and so is one that is named.
    fs::create_dir(at.join("orrery-data")).unwrap();
    run(at, &["status"]).refuses(1, &["orrery-data holds nothing yet"]);
    run(at, &["status", "--data-dir", "nowhere"]).refuses(1, &["no data directory nowhere"]);
    demo.stop();
}

#[test]
fn the_program_alone_shows_its_help() {
    let directory = tempfile::tempdir().unwrap();
    let help = run(directory.path(), &["--help"]);
    let alone = run(directory.path(), &[]);
    assert_eq!((alone.code, &alone.stderr), (2, &help.stdout), "{}", alone.stdout);
    let token = [("ORRERY_JWT", "x"), ("ORRERY_BASE", "http://127.0.0.1:9/rest")];
    let aided: Ran = orrery_in(directory.path()).arg("query").envs(token).output().unwrap().into();
    assert!(aided.stderr.contains("Usage: orrery query <SQL>"), "{}", aided.stderr);
}
