//! `orrery dev` in a demo network: a program is built at each save, and what changed is shown.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

use orrery_testkit::binary::{Ran, Service, orrery_in, token};
use orrery_testkit::signal::{self, Signal};
use orrery_testkit::wait::wait_until;

fn module(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path).to_str().unwrap().to_owned()
}

/// Transactions that are run again: so many have more than one trade among them.
const LAST: u64 = 12;

#[test]
fn a_program_is_built_at_each_save_and_what_changed_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, _) = Service::demo(at, &["--close-time", "200"]);
    let token = token(&at.join("d"), "demo");
    let base = format!("http://{}/rest", demo.address);
    let with_rows = module("src/sandbox/network/market/market_program.wasm");
    // A program for another contract: each of its runs fails.
    let without_rows = module("tests/programs/built/counter_program.wasm");
    // The service has a deployed program of this name, whose contracts are used.
    fs::create_dir_all(at.join("market/src")).unwrap();
    let save = |text: &str| fs::write(at.join("market/src/lib.rs"), text).unwrap();
    save(&with_rows);
    wait_until("transactions of the market", || {
        let (_, status) = demo.ask("/rest/retroshade/1/status", Some(&token));
        (status["total_executions"].as_u64() > Some(LAST)).then_some(())
    });

    let dev = |arguments: &[&str]| {
        let mut command = orrery_in(at);
        command.args(["dev", "market", "--build", "cp \"$(cat src/lib.rs)\" program.wasm"]);
        command.args(arguments).env("ORRERY_BASE", &base).env("ORRERY_JWT", &token);
        command
    };
    let (out, err) = (at.join("out"), at.join("err"));
    let mut command = dev(&["--last", &LAST.to_string()]);
    command.stdin(Stdio::null());
    command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    let mut running = command.spawn().unwrap();
    let shown = |path: &Path, what: &str, times: usize| {
        wait_until(&format!("{times} times {what}"), || {
            let text = fs::read_to_string(path).unwrap();
            (text.matches(what).count() == times).then_some(text)
        })
    };
    shown(&err, "waiting for a save in market", 1);
    let first = fs::read_to_string(&out).unwrap();
    assert!(first.contains("fidelity") && first.contains(" rows\n_ledger"), "{first}");
    let rows = first.lines().filter(|line| line.contains("  exact  ")).count();
    assert_eq!(rows as u64, LAST, "{first}");

    save(&without_rows);
    let text = shown(&err, "waiting for a save in market", 2);
    assert!(text.contains("the module has none of the functions of C"), "{text}");
    let text = fs::read_to_string(&out).unwrap();
    let second = text.strip_prefix(&first).unwrap();
    assert!(second.contains("0 new, ") && second.contains("\n-  "), "{second}");
    assert!(second.contains(&format!("{LAST} transactions, 0 rows, ")), "{second}");
    let matches = second.matches("; before: success, exact\n").count();
    assert_eq!(matches as u64, LAST, "{second}");

    // A build that fails is told, and the next one is compared with the last that did not.
    save("nothing.wasm");
    let text = shown(&err, "waiting for a save in market", 3);
    assert!(text.contains("nothing.wasm") && text.contains("program.wasm` failed"), "{text}");
    save(&format!("{without_rows}\n"));
    shown(&err, "waiting for a save in market", 4);
    let text = fs::read_to_string(&out).unwrap();
    assert!(text.ends_with(": all as before\n"), "{text}");
    assert!(signal::send(running.id(), Signal::INT));
    assert_eq!(running.wait().unwrap().code(), Some(0));

    // What cannot work is told before anything is built.
    let refused = |arguments: &[&str], words: &[&str]| {
        let ran: Ran = dev(arguments).output().unwrap().into();
        ran.refuses(1, words);
    };
    refused(&["--base", "http://127.0.0.1:1/rest"], &["is a service running there?"]);
    refused(&["--jwt", "no"], &["token"]);
    let mut unknown = orrery_in(at);
    fs::create_dir(at.join("other")).unwrap();
    unknown.args(["dev", "other", "--base", &base, "--jwt", &token]);
    let ran: Ran = unknown.output().unwrap().into();
    ran.refuses(2, &["contracts", "--contract C…"]);
    let ran: Ran = orrery_in(at).args(["dev", "gone"]).output().unwrap().into();
    ran.refuses(2, &["no folder gone", "orrery new"]);
    assert_eq!(demo.end_with(Signal::INT), Some(0));
}
