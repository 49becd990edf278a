//! Commands as users paste them from the README and the demo, output on a terminal, and a base URL
//! that lacks `/rest`.

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use orrery_testkit::binary::{Ran, Service, orrery_in, run, token};
use orrery_testkit::signal::Signal;
use orrery_testkit::terminal::on_terminal;
use orrery_testkit::wait::wait_until;

#[test]
fn readme_commands_work_in_either_order() {
    let readme = include_str!("../../README.md");
    let (_, block) = readme.split_once("issue a token:\n\n```sh public-network\n").unwrap();
    let lines: Vec<_> = block.split_once("```").unwrap().0.lines().collect();
    let [serve, token, ask] = lines[..] else { panic!("three lines: {lines:?}") };
    assert!(serve.ends_with(" &") && token.contains("token issue"), "{lines:?}");
    let programs = Path::new(env!("CARGO_BIN_EXE_orrery")).parent().unwrap().display();
    for order in [[serve, token], [token, serve]] {
        let directory = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let script = format!(
            "PATH={programs}:$PATH\ntrap 'kill $!; wait $!' EXIT\n{}\n{}\n{}",
            order[0],
            order[1],
            ask.replace("127.0.0.1:8484", &free),
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(directory.path());
        // The default sources of the networks are public servers, which tests must not contact.
        shell.env("ORRERY_SOURCE_KIND", "none").env("ORRERY_HTTP_LISTEN", &free);
        let ran: Ran = shell.output().unwrap().into();
        assert_eq!(ran.json(), serde_json::json!([]), "{order:?}: {}", ran.stderr);
    }
}

#[test]
fn control_characters_are_escaped_on_terminals_and_not_in_pipes() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let service = Service::start_in(at, &["--data-dir", "d", "--network", "testnet"]);
    let token = token(&at.join("d"), "a");
    let base = format!("http://{}/rest", service.address);
    let settings = [("ORRERY_BASE", base.as_str()), ("ORRERY_JWT", token.as_str())];
    let piped = |arguments: &[&str]| -> Ran {
        orrery_in(at).args(arguments).envs(settings).output().unwrap().into()
    };
    let sql = "select chr(27)||'[31mred'||chr(10)||'x'||chr(155) as \"a\u{1b}[2J\"";
    let red = "\u{1b}[31mred\nx\u{9b}";
    wait_until("the tables can be queried", || piped(&["query", sql]).code == 0);
    assert_eq!(piped(&["query", sql]).json(), serde_json::json!([{ "a\u{1b}[2J": red }]));
    let csv = piped(&["query", sql, "--format", "csv"]).stdout;
    assert_eq!(csv, format!("a\u{1b}[2J\r\n\"{red}\"\r\n"));

    let on = |arguments: &[&str]| on_terminal(at, arguments, &settings);
    let Some((drawn, code)) = on(&["query", sql]) else { return };
    assert_eq!((drawn.as_str(), code), ("a\\u001b[2J\n\\u001b[31mred\\nx\\u009b\n", 0));
    for more in [&["--json"][..], &["--format", "columns"], &["--format", "csv"]] {
        let (text, code) = on(&[&["query", sql][..], more].concat()).unwrap();
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("[31mred") && text.contains("\\u009b"), "{text:?}");
        assert!(!text.contains(|it: char| it.is_control() && it != '\n'), "{text:?}");
    }
    let (text, code) = on(&["query", "select 1", "--format", "arrow"]).unwrap();
    assert!(code == 2 && text.contains("send it to a file"), "{text}");
    let (text, code) = on(&["query", "select \"\u{9b}2J\" from nowhere"]).unwrap();
    assert!(code == 1 && text.starts_with("orrery: "), "{text}");
    assert!(!text.contains(|it: char| it.is_control() && it != '\n'), "{text:?}");
}

/// Files and orchestrators end a secret with a line end.
#[test]
fn a_token_is_taken_without_the_line_end_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let service = Service::start_in(at, &["--data-dir", "d", "--network", "testnet"]);
    let token = token(&at.join("d"), "a");
    let base = format!("http://{}/rest", service.address);
    for token in [format!("{token}\n"), format!("{token}\r\n"), format!(" {token}\t\n\n")] {
        let by_variable: Ran = orrery_in(at)
            .args(["list", "--base", &base])
            .env("ORRERY_JWT", &token)
            .output()
            .unwrap()
            .into();
        let by_argument = run(at, &["list", "--base", &base, "--jwt", &token]);
        for ran in [by_variable, by_argument] {
            assert_eq!((ran.code, ran.stdout.as_str()), (0, "[]\n"), "{token:?}: {}", ran.stderr);
        }
    }
    service.stop();
}

#[test]
fn a_base_url_without_rest_gives_a_hint() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let service = Service::start_in(at, &["--data-dir", "d", "--network", "testnet"]);
    let token = token(&at.join("d"), "a");
    let base = format!("http://{}", service.address);
    let ask = ["list", "--base", &base, "--jwt", &token];
    run(at, &ask).refuses(1, &["is not a base address", "--base", "ends in /rest"]);
    let rest = format!("{base}/rest");
    let status = ["status", "7", "--base", &rest, "--jwt", &token];
    let ran = run(at, &status);
    assert!(ran.code == 1 && !ran.stderr.contains("--base"), "{}", ran.stderr);
}

#[test]
fn the_demo_prints_working_commands_and_resumes() {
    let directory = tempfile::tempdir().unwrap();
    let (mut latest, mut rows) = (0, 0);
    for round in 0..2 {
        let (demo, commands) = Service::demo(directory.path(), &[]);
        let (classic, accounts) = commands.split_at(5);
        for command in accounts {
            // The accounts are created in the first ledgers, one after the other.
            wait_until("there is something to look up", || {
                let answer = pasted(command);
                let has = |name: &str| answer[name].as_array().is_some_and(|it| !it.is_empty());
                ["contracts", "wallets", "contextRules", "signers"].into_iter().any(has)
            });
        }
        for command in classic {
            let answer = pasted(command);
            let rows = answer.as_array().map_or(1, Vec::len);
            assert!(rows > 0, "{command} finds nothing");
        }
        let health = wait_until("all of it is up", || {
            let health = pasted(&commands[0]);
            if health["service"] == "up" { Ok(health) } else { Err(health) }
        });
        let now = health["service_latest_ledger"].as_u64().unwrap();
        assert!(now >= latest, "round {round}: {now} after {latest}");
        latest = wait_until("the next ledger comes", || {
            pasted(&commands[0])["service_latest_ledger"].as_u64().filter(|next| *next > now)
        });
        let trades = || pasted(&commands[4])[0]["trades"].as_u64().unwrap();
        let before = trades();
        assert!(before >= rows, "round {round}: {before} after {rows}");
        rows = wait_until("the rows grow", || Some(trades()).filter(|rows| *rows > before));
        let ask = |path: &str| {
            let (before, _) = commands[1].rsplit_once(" '").unwrap();
            pasted(&format!("{before} 'http://{}/rest/retroshade/{path}'", demo.address))
        };
        let projects: Vec<_> = ask("list").as_array().unwrap().clone();
        let projects: Vec<_> = projects.iter().map(|it| &it["project_name"]).collect();
        assert_eq!(projects, ["market", "demo"], "each is there once");
        let status = ask("1/status");
        assert!(status["running"] == true && status["total_errors"] == 0, "{status}");
        let runs = ask("1/executions?limit=200");
        assert!(runs.as_array().unwrap().iter().all(|run| run["fidelity"] == "exact"), "{runs}");
        assert_eq!(demo.end_with(Signal::INT), Some(0));
    }
}

/// Runs a command of the demo in a shell and parses its output.
fn pasted(command: &str) -> Value {
    let mut shell = Command::new("sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    writeln!(shell.stdin.take().unwrap(), "{command}").unwrap();
    let output = shell.wait_with_output().unwrap();
    assert!(output.status.success(), "{command}");
    serde_json::from_slice(&output.stdout).unwrap()
}
