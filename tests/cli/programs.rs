//! Verbs for programs in a demo network: programs are named by their projects, contracts by one option, and a person
//! is asked before a program is deleted.

use std::collections::BTreeSet;

use orrery::sandbox::network::MARKET_PROGRAM;
use orrery_testkit::binary::{Ran, Service, orrery_in, run, token};
use orrery_testkit::signal::Signal;
use orrery_testkit::terminal::on_terminal_typing;
use orrery_testkit::wait::wait_until;

#[test]
fn programs_are_named_by_their_projects() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, _) = Service::demo(at, &["--close-time", "200"]);
    let token = token(&at.join("d"), "demo");
    let base = format!("http://{}/rest", demo.address);
    let settings = [("ORRERY_BASE", base.as_str()), ("ORRERY_JWT", token.as_str())];
    let asked = |arguments: &[&str]| -> Ran {
        orrery_in(at).args(arguments).envs(settings).output().unwrap().into()
    };
    let answer = |arguments: &[&str]| {
        let ran = asked(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
        ran.json()
    };
    for verb in ["status", "executions", "stats", "pause", "resume"] {
        let (by_name, by_id) = (asked(&[verb, "Market"]), asked(&[verb, "1"]));
        assert_eq!((by_name.code, by_id.code), (0, 0), "{verb}: {}", by_name.stderr);
    }
    assert_eq!(answer(&["pause", "market"])["running"], false);
    assert_eq!(answer(&["resume", "market"])["id"], 1);

    // For shells: the contracts of all programs, each once, one a line.
    let contracts = |program: &serde_json::Value| -> Vec<String> {
        serde_json::from_value(program["contracts"].clone()).unwrap()
    };
    let mut listed: Vec<_> =
        answer(&["list"]).as_array().unwrap().iter().flat_map(contracts).collect();
    let mut known = BTreeSet::new();
    listed.retain(|contract| known.insert(contract.clone()));
    let shown = asked(&["list", "--contracts"]);
    assert_eq!(shown.succeeded().lines().collect::<Vec<_>>(), listed);
    assert!(listed.len() > 1, "{listed:?}");
    assert_eq!(asked(&["list", "--contracts", "--json"]).code, 2);
    assert_eq!(asked(&["list", "--quiet"]).succeeded(), "market\ndemo\npools\n");

    // Of a table, its own columns come first.
    let columns = wait_until("the columns are known", || {
        let tables = answer(&["tables"]);
        let transfers = tables.as_array()?.iter().find(|it| it["table"] == "demo.transfer")?;
        Some(transfers["columns"].as_str()?.to_owned())
    });
    let (first, last) = ("from, to, sep0011_asset, amount, ", ", _service_event_id");
    assert!(columns.starts_with(first) && columns.ends_with(last), "{columns}");

    // A second deploy or watch under an own name says how to replace it.
    let again = asked(&["watch", "demo", "--contract", &listed[0]]);
    again.refuses(1, &["NAME 'demo' is a project of yours already: give --replace"]);

    // Without --to, a program runs up to the newest ledger.
    let latest = || answer(&["status", "--data-dir", "d"])["latest_ledger"].as_u64().unwrap();
    let before = latest();
    let backfill = answer(&["backfill", "market", "--from", "2"]);
    let to = backfill["to"].as_u64().unwrap();
    assert!(backfill["from"] == 2 && (before..=latest()).contains(&to), "{backfill}");
    let refused = asked(&["backfill", "--data-dir", "d", "--from", "2"]);
    assert!(refused.code == 2 && refused.stderr.contains("--to"), "{}", refused.stderr);

    let refused = asked(&["status", "markt"]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.contains("no project 'markt': yours are market, demo"),
        "{}",
        refused.stderr
    );
    let digits = asked(&["deploy", "--project", "7", "--code-path", "x", "--contract", "C"]);
    assert_ne!(digits.code, 0);
    std::fs::write(at.join("market.wasm"), MARKET_PROGRAM).unwrap();
    let deploy = ["deploy", "--project", "market", "--code-path", "market.wasm"];
    asked(&[&deploy[..], &["--contract", &listed[0]]].concat())
        .refuses(1, &["--project 'market' is a project of yours already: give --replace"]);

    let delete = |typed: &str, arguments: &[&str]| {
        on_terminal_typing(at, &[&["delete", "market"], arguments].concat(), &settings, typed)
    };
    let projects = || answer(&["list"]).as_array().map(Vec::len);
    for no in ["n\n", "\n", "delete\n"] {
        let Some((shown, code)) = delete(no, &[]) else { return };
        assert!(code == 1 && shown.contains("Delete the program market"), "{shown}");
        assert_eq!(projects(), Some(3));
    }
    let (shown, code) = delete("y\n", &["--json"]).unwrap();
    assert!(code == 0 && shown.contains("\"deleted\":1"), "{shown}");
    let left = answer(&["list"]);
    assert_eq!(left.as_array().map(Vec::len), Some(2), "{left}");
    assert_eq!(left[0]["project_name"], "demo");
    assert_eq!(demo.end_with(Signal::INT), Some(0));
}

/// One spelling is shown, and the other one is read.
#[test]
fn every_verb_names_contracts_alike() {
    let directory = tempfile::tempdir().unwrap();
    for verb in [
        &["watch"][..],
        &["deploy"],
        &["append-contracts"],
        &["try"],
        &["dev"],
        &["new"],
        &["prove"],
        &["types"],
        &["webhooks", "new"],
    ] {
        let help = run(directory.path(), &[verb, &["--help"]].concat());
        let help = help.succeeded();
        assert!(help.contains("--contract <") && !help.contains("--contracts <"), "{help}");
        let other = run(directory.path(), &[verb, &["--contracts", "C"]].concat());
        assert!(!other.stderr.contains("unexpected argument"), "{verb:?}: {}", other.stderr);
    }
    let help = run(directory.path(), &["query", "--help"]);
    assert!(!help.succeeded().contains("program_"), "examples have the names of SQL");
}

/// SQL sees all events as soon as the command ends, and a wrong contract is told.
#[test]
fn the_tables_of_a_watched_contract_are_filled_when_the_command_ends() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, _) = Service::demo(at, &["--close-time", "200"]);
    let token = token(&at.join("d"), "demo");
    let contract = demo.ask("/rest/retroshade/list", Some(&token)).1[0]["contracts"][0].clone();
    let contract = contract.as_str().unwrap().to_owned();
    // It is ready at some ledger, which may be a later one.
    demo.wait_for_health("enough ledgers are stored", |health| {
        health["service_latest_ledger"].as_u64() >= Some(30)
    });
    demo.stop();
    // Without a source, nothing is added between the command and the query.
    let service = Service::start_in(at, &["--data-dir", "d"]);
    let base = format!("http://{}/rest", service.address);
    let asked = |arguments: &[&str]| -> Ran {
        let settings = [("ORRERY_BASE", base.as_str()), ("ORRERY_JWT", token.as_str())];
        orrery_in(at).args(arguments).envs(settings).output().unwrap().into()
    };
    for number in 0..6 {
        let project = format!("watched{number}");
        let watched = asked(&["watch", &project, "--contract", &contract]);
        assert_eq!(watched.code, 0, "{}", watched.stderr);
        let sql = format!("select count(*) as n from {project}.events");
        let rows = asked(&["query", &sql]);
        assert_eq!(rows.code, 0, "{}", rows.stderr);
        let status = asked(&["status", &project]).json();
        assert!(status["events"].as_u64() > Some(10), "{status}");
        assert_eq!(rows.json()[0]["n"], status["events"], "{project}");
        assert_eq!(status["rows_in_tables"], true);
    }
    let elsewhere = "CCJZ5DGASBWQXR5MPFCJXMBI333XE5U3FSJTNQU7RIKE3P5GN2K2WYD5";
    let watched = asked(&["watch", "nothing", "--contract", elsewhere]);
    assert_eq!(watched.code, 0, "{}", watched.stderr);
    assert!(watched.stderr.contains("no stored event is of these contracts"), "{}", watched.stderr);

    // Settings that are given are not passed over.
    let mut list = orrery_in(at);
    list.args(["list", "--config", "nothere.toml", "--jwt", &token]);
    Ran::from(list.output().unwrap())
        .refuses(1, &["cannot read the configuration file nothere.toml"]);

    // Where nobody can be asked, nothing is deleted.
    asked(&["delete", "nothing"]).refuses(2, &["give --yes"]);
    assert_eq!(asked(&["status", "nothing"]).code, 0);
    assert_eq!(asked(&["delete", "nothing", "--yes"]).code, 0);
    service.stop();
}
