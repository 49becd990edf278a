//! The shipped systemd unit: the service works under its directives and sends notifications. Also
//! the manual pages and shell completions that the package generates from the command line.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use orrery_testkit::binary::{Service, orrery_in, run};
use orrery_testkit::client::HTTP;
use orrery_testkit::signal::{self, Signal};
use orrery_testkit::wait::wait_until;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether a command succeeds.
fn works(command: &[&str]) -> bool {
    let ran = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).output();
    ran.is_ok_and(|ran| ran.status.success())
}

/// `packaging/run-restricted` documents which directives it applies, and rejects a unit with
/// others.
#[test]
fn programs_and_sql_work_under_the_systemd_restrictions() {
    let has_tools = works(&["/usr/bin/python3", "-c", "import seccomp"])
        && works(&["systemd-analyze", "syscall-filter", "@default"])
        && works(&[
            "unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt",
        ]);
    if !has_tools {
        println!("skipped: it needs root, systemd-analyze and python3-seccomp");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    // The service runs as another account, which must be able to enter the directory.
    std::fs::set_permissions(at, PermissionsExt::from_mode(0o755)).unwrap();
    let program = at.join("orrery");
    std::fs::copy(env!("CARGO_BIN_EXE_orrery"), &program).unwrap();
    let state = at.join("state");
    std::fs::create_dir(&state).unwrap();
    let out = at.join("out");
    let mut restricted = Command::new(root().join("packaging/run-restricted"));
    restricted.arg(root().join("systemd/orrery@.service")).arg(&state).arg(&program);
    restricted.args([
        "demo",
        "--json",
        "--listen",
        "127.0.0.1:0",
        "--close-time",
        "200",
        "--data-dir",
    ]);
    restricted.arg(state.join("d")).stdout(std::fs::File::create(&out).unwrap());
    let mut restricted = restricted.spawn().unwrap();
    let output = wait_until("the demo says where it listens", || {
        if let Some(status) = restricted.try_wait().unwrap() {
            panic!("it ended: {status}");
        }
        let output = std::fs::read_to_string(&out).unwrap();
        serde_json::from_str::<Value>(&output).ok()
    });
    let [base, token] = ["base", "token"].map(|name| output[name].as_str().unwrap().to_owned());
    let ask = |query: &str| -> Option<Value> {
        let request = HTTP.post(format!("{base}/retroshade/query"));
        let request = request.bearer_auth(&token).json(&json!({ "query": query }));
        request.send().ok()?.json().ok()
    };
    // The program's module was compiled and runs, and its rows are queried in a child process.
    wait_until("there is a row", || {
        ask("select count(*) as trades from market_trade")?[0]["trades"]
            .as_u64()
            .filter(|it| *it > 0)
    });
    let health: Value = HTTP.get(format!("{base}/health")).send().unwrap().json().unwrap();
    assert_eq!(health["service"], "up", "{health}");
    let walls = health["components"]["queries"]["detail"].as_str().unwrap();
    assert!(walls.contains("Landlock") && walls.contains("seccomp"), "{walls}");

    // The restrictions are in effect.
    let children = |of: u32| -> Vec<u32> {
        let path = format!("/proc/{of}/task/{of}/children");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().map(|it| it.parse().unwrap()).collect()
    };
    let service = *children(restricted.id()).first().expect("unshare has a child");
    let status = std::fs::read_to_string(format!("/proc/{service}/status")).unwrap();
    for line in ["CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Uid:\t65534"] {
        assert!(status.contains(line), "{line}\n{status}");
    }
    assert!(signal::send(service, Signal::TERM));
    assert!(restricted.wait().unwrap().success(), "a clean stop");
    assert!(state.join("d/raw").is_dir());
}

/// sd_notify(3): `READY=1` once the service answers requests, `WATCHDOG=1` while it runs, and
/// `STOPPING=1` after SIGTERM.
#[test]
fn the_supervisor_is_notified() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let socket = UnixDatagram::bind(at.join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut service = orrery_in(at);
    service.args(["serve", "--data-dir", "d", "--network", "testnet", "--no-source"]);
    service.args(["--listen", "127.0.0.1:0", "--log-format", "json"]);
    service.env("NOTIFY_SOCKET", at.join("notify")).env("WATCHDOG_USEC", "400000");
    let service = Service::spawn(service, &at.join("d")).unwrap();
    let heard = || {
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).expect("a word to the supervisor");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let first = heard();
    assert!(
        first.contains("READY=1") && first.contains("STATUS=no ledger is stored yet"),
        "{first}"
    );
    let (status, _) = service.ask("/rest/health/live", None);
    assert_eq!(status, 200, "it is ready");
    // Each notification arrives within the watchdog interval of 400 ms; the service sends two per
    // interval.
    let begun = Instant::now();
    for _ in 0..4 {
        let next = heard();
        assert!(next.contains("WATCHDOG=1"), "{next}");
    }
    assert!(begun.elapsed() < Duration::from_millis(1600), "{:?}", begun.elapsed());
    service.signal(Signal::TERM);
    let mut words = Vec::new();
    while !words.last().is_some_and(|last: &String| last.contains("STOPPING=1")) {
        words.push(heard());
        assert!(words.len() < 100, "{words:?}");
    }
    assert_eq!(service.end(), Some(0));
}

/// Collects the verbs and subcommands that the help lists, as names of manual pages.
fn verbs(before: &[&str], found: &mut BTreeSet<String>) {
    let help = run(Path::new("/"), &[before, &["--help"]].concat()).stdout;
    let mut lists_verbs = false;
    for line in help.lines() {
        if let Some(heading) = line.strip_suffix(':').filter(|it| !it.starts_with(' ')) {
            let groups = ["Commands", "Service", "Data", "Programs", "Tables", "Webhooks"];
            lists_verbs = groups.contains(&heading);
            continue;
        }
        // Other lines continue a description.
        let verb = line.strip_prefix("  ").and_then(|it| it.split(' ').next()).unwrap_or_default();
        if !lists_verbs || verb.is_empty() || verb == "help" {
            continue;
        }
        let all = [before, &[verb]].concat();
        found.insert(format!("orrery-{}", all.join("-")));
        verbs(&all, found);
    }
}

#[test]
fn every_verb_has_a_man_page_and_completions_load_in_shells() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let write = |name: &str| {
        let ran = run(at, &["generate", name]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    };
    write("out");
    write("again");
    let mut wanted = BTreeSet::from(["orrery".to_owned()]);
    verbs(&[], &mut wanted);
    assert!(wanted.len() > 20 && wanted.contains("orrery-token-issue"), "{wanted:?}");
    let mut pages = BTreeSet::new();
    for page in std::fs::read_dir(at.join("out/man1")).unwrap() {
        let name = page.unwrap().file_name().into_string().unwrap();
        let text = std::fs::read(at.join("out/man1").join(&name)).unwrap();
        assert_eq!(text, std::fs::read(at.join("again/man1").join(&name)).unwrap(), "{name}");
        assert!(String::from_utf8(text).unwrap().contains(".SH SYNOPSIS"), "{name}");
        pages.insert(name.strip_suffix(".1").unwrap().to_owned());
    }
    let missing: Vec<_> = wanted.difference(&pages).collect();
    assert!(missing.is_empty(), "no page for {missing:?}");
    for (shell, file) in
        [("bash", "bash/orrery"), ("zsh", "zsh/_orrery"), ("fish", "fish/orrery.fish")]
    {
        let path = at.join("out").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("backfill") && text.contains("data-dir"), "{file}");
        if works(&[shell, "-c", "true"]) {
            assert!(works(&[shell, "-n", path.to_str().unwrap()]), "{shell} cannot read {file}");
        } else {
            println!("skipped: there is no {shell}");
        }
    }
}
