//! Commands as users paste them from the README and the demo, output on a terminal, and a base URL
//! that lacks `/rest`.

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
    let line = |start: &str| readme.lines().find(|line| line.starts_with(start)).unwrap();
    // It has a terminal of its own in the README.
    let serve = format!("{} &", line("orrery serve --data-dir orrery-data --network testnet"));
    let token = line("export ORRERY_JWT=$(orrery token issue --data-dir orrery-data ");
    let ask = line("curl --retry ");
    let programs = Path::new(env!("CARGO_BIN_EXE_orrery")).parent().unwrap().display();
    for order in [[&serve, token], [token, &serve]] {
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
    assert_eq!(csv, format!("a\u{1b}[2J\n\"{red}\"\n"));

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
fn the_demo_prints_a_screen_of_working_commands_and_resumes() {
    let directory = tempfile::tempdir().unwrap();
    let (mut latest, mut rows) = (0, 0);
    for round in 0..2 {
        let (demo, said) = Service::demo_in_words(directory.path(), &[]);
        let token = said.iter().find_map(|line| line.strip_prefix("export ORRERY_JWT=")).unwrap();
        assert_eq!(said.join("\n").matches(token).count(), 1, "{said:#?}");
        let long: Vec<_> = said.iter().filter(|line| line.chars().count() > 80).collect();
        let paths = ["export ORRERY_JWT=", "export PATH=", "Everything stays in "];
        assert!(
            long.iter().all(|line| paths.iter().any(|it| line.starts_with(it))),
            "wider than a terminal: {long:#?}"
        );
        // Two of them are for this demo alone: where the program is, and where it listens.
        let lines = said.iter().filter(|line| !line.is_empty()).count();
        assert!(lines <= 16, "{said:#?}");

        let commands = said.iter().skip_while(|line| !line.starts_with("Try")).skip(1);
        let commands: Vec<_> = commands.take_while(|line| !line.is_empty()).cloned().collect();
        // The project is there already when the demo is resumed.
        let commands = commands.join("\n").replace(" orders ", &format!(" orders{round} "));
        let elsewhere = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-euc", &commands]).current_dir(elsewhere.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ORRERY_") {
                shell.env_remove(name);
            }
        }
        let ran: Ran = shell.output().unwrap().into();
        let answers: Vec<_> = ran.succeeded().lines().collect();
        let [tables, transfers, swaps, watched, site] = answers[..] else { panic!("{answers:#?}") };
        let json = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        assert!(json(tables).as_array().unwrap().iter().any(|it| it["table"] == "demo.transfer"));
        let transfers = json(transfers);
        assert!(transfers[0]["from"].is_string(), "{transfers}");
        let swaps = json(swaps);
        assert!(swaps[0]["sold"].is_string() || swaps[0]["sold"].is_number(), "{swaps}");
        assert!(json(watched)["tables"][0].is_string(), "{watched}");
        assert_eq!(site, format!("{}/#token={token}", demo.base));

        let ask = |path: &str| demo.ask(&format!("/rest/{path}"), Some(token)).1;
        let health = demo.wait_for_health("all of it is up", |health| health["service"] == "up");
        let now = health["service_latest_ledger"].as_u64().unwrap();
        assert!(now >= latest, "round {round}: {now} after {latest}");
        latest = wait_until("the next ledger comes", || {
            demo.health()["service_latest_ledger"].as_u64().filter(|next| *next > now)
        });
        let trades = || {
            let count = "select count(*) as trades from market.trade";
            let base = format!("{}/rest", demo.base);
            let ran = run(elsewhere.path(), &["query", count, "--base", &base, "--jwt", token]);
            ran.json()[0]["trades"].as_u64().unwrap()
        };
        let before = trades();
        assert!(before >= rows, "round {round}: {before} after {rows}");
        rows = wait_until("the rows grow", || Some(trades()).filter(|rows| *rows > before));
        let projects = ask("retroshade/list");
        let projects: Vec<_> =
            projects.as_array().unwrap().iter().map(|it| &it["project_name"]).collect();
        let watched = ["orders0", "orders1"];
        let expected = [&["market", "demo", "pools"], &watched[..=round]].concat();
        assert_eq!(projects, expected, "each is there once");
        let status = ask("retroshade/1/status");
        assert!(status["running"] == true && status["total_errors"] == 0, "{status}");
        let runs = ask("retroshade/1/executions?limit=200");
        assert!(runs.as_array().unwrap().iter().all(|run| run["fidelity"] == "exact"), "{runs}");
        assert_eq!(demo.end_with(Signal::INT), Some(0));
    }
}
