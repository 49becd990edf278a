//! Each verb next to a service that copies rows, and what the verbs say where there is none.

use orrery_testkit::binary::run;
use orrery_testkit::postgres::{Database, Pooler, has, is_missing};
use orrery_testkit::terminal::on_terminal;
use orrery_testkit::wait::wait_until;

use super::{Demo, HERE, SCHEMAS, of_table, sink};

#[test]
fn rows_are_there_and_every_verb_says_so() {
    if is_missing() {
        return;
    }
    let database = Database::new(&SCHEMAS);
    let demo = Demo::sinking_into(&database.url());
    demo.wait_for_rows(&database);
    demo.has_equal_rows(&database, "market.trade", &["taker", "amount", "_service_event_id"]);
    demo.has_equal_rows(&database, "demo.transfer", &["\"from\"", "amount", "\"transaction\""]);
    demo.has_equal_rows(&database, "demo.events", &["name", "contract_id"]);
    demo.has_equal_rows(&database, "demo.storage_changes", &["key_hash", "change"]);
    demo.has_equal_rows(&database, "pools.swap", &["contract_id"]);

    let listed = demo.sink(&["list"]).json();
    let listed = &listed.as_array().unwrap()[..];
    let [main] = listed else { panic!("{listed:?}") };
    assert_eq!((&main["name"], &main["connected"]), (&"main".into(), &true.into()));
    assert!(main["address"].as_str().unwrap().starts_with("postgres://"), "{main}");
    let status = demo.status();
    assert_eq!(status["name"], "main");
    let all = demo.sink(&["status"]).json();
    assert_eq!((all.as_array().unwrap().len(), &all[0]["address"]), (1, &status["address"]));
    wait_until("the rows are counted", || {
        let project = demo.sink(&["status", "main", "--project", "Demo"]).json();
        let tables = project["tables"].as_array()?;
        let transfers = tables.iter().find(|table| table["name"] == "transfer")?;
        transfers["rows"].as_u64().filter(|rows| *rows > 2)
    });

    let tested = demo.sink(&["test", "main"]).json();
    assert_eq!(
        (&tested["user"], &tested["database"]),
        (&database.role().into(), &database.name.clone().into())
    );
    assert_eq!(tested["missing"], serde_json::json!([]));
    let checked = demo.has_what_was_written(&["main"]);
    for name in super::TABLES {
        let table = of_table(&checked, name);
        assert!(table["difference"].is_null() && table["rows"] == table["expected"], "{table}");
    }
    let one = demo.has_what_was_written(&["main", "--project", "market"]);
    assert!(one.as_array().unwrap().len() < checked.as_array().unwrap().len(), "{one}");

    // People get tables.
    let at = demo.at();
    let shown = |arguments: &[&str]| on_terminal(at, &[&["sink"], arguments, &HERE].concat(), &[]);
    let Some((list, 0)) = shown(&["list"]) else { return };
    assert!(list.starts_with("sink  address") && list.contains("\nmain  postgres://"), "{list}");
    // Of a network that goes on, the last row may be on its way.
    wait_until("people see that all rows are there", || {
        let (status, _) = shown(&["status", "main"]).unwrap();
        let mut lines = status.lines();
        let is_there = |row: &str| row.contains(" live") && row.contains(" 100 %");
        let row = lines.find(|line| line.starts_with("market ")).unwrap_or_default();
        is_there(row).then_some(()).ok_or(status)
    });
    let (checked, code) = shown(&["check", "main"]).unwrap();
    assert!(checked.contains("\ndemo.transfer ") && code == 0, "{checked}");
    let (tested, code) = shown(&["test", "main"]).unwrap();
    assert!(
        tested.contains("version   PostgreSQL ") && tested.contains("missing   nothing"),
        "{tested}"
    );
    assert_eq!(code, 0);
}

#[test]
fn names_that_are_unknown_are_told() {
    if is_missing() {
        return;
    }
    let database = Database::new(&SCHEMAS);
    let demo = Demo::with(&sink(&database.url(), "['market']"));
    for verb in ["status", "test", "check"] {
        demo.sink(&[verb, "mian"]).refuses(1, &["there is no sink mian: there are main"]);
    }
    for verb in ["replace", "remove"] {
        demo.sink(&[verb, "mian", "--project", "market"]).refuses(1, &["there is no sink mian"]);
        let unknown = demo.sink(&[verb, "main", "--project", "demo"]);
        unknown.refuses(1, &["the sink main has no project demo: it has market"]);
        assert_eq!(demo.sink(&[verb, "main"]).code, 2, "{verb} needs --project");
    }
    demo.sink(&["status", "main", "--project", "demo"]).refuses(1, &["it has market"]);
    // What is written on cannot be removed.
    demo.wait_for_project("market", "it is live", |it| it["state"] == "live");
    demo.sink(&["remove", "main", "--project", "market", "--drop"])
        .refuses(2, &["nobody can be asked here", "--yes"]);
    let refused = demo.sink(&["remove", "main", "--project", "market", "--drop", "--yes"]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("market"), "{}", refused.stderr);
    assert_ne!(database.sql("select count(*) from market.trade"), "");
}

#[test]
fn where_no_service_runs_settings_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let asked = |arguments: &[&str]| {
        run(at, &[&["sink"], arguments, &["--data-dir", "d", "--config", "orrery.toml"]].concat())
    };
    std::fs::write(at.join("orrery.toml"), "").unwrap();
    assert_eq!(asked(&["list"]).json(), serde_json::json!([]));
    asked(&["test", "main"]).refuses(1, &["there is no sink main, and no other", "[sinks.main]"]);
    for arguments in [&["status"][..], &["check", "main"], &["replace", "main", "--project", "x"]] {
        asked(arguments).refuses(1, &["no service runs on the data directory d"]);
    }
    let settings = sink("postgres://me@127.0.0.1:1/data?connect_timeout=1", "['xlm', 'pools']");
    std::fs::write(at.join("orrery.toml"), settings).unwrap();
    let listed = asked(&["list"]).json();
    assert_eq!(listed[0]["projects"], serde_json::json!(["xlm", "pools"]));
    assert_eq!(listed[0]["address"], "postgres://me@127.0.0.1:1/data");
    let reason = listed[0]["reason"].as_str().unwrap();
    assert!(reason.contains("no service runs on the data directory d"), "{listed}");
    asked(&["test", "main"]).refuses(1, &["no connection to postgres://me@127.0.0.1:1/data"]);
    asked(&["test", "second"]).refuses(1, &["there is no sink second: there are main"]);
    assert!(!at.join("d").exists(), "what only looks makes no data directory");
}

#[test]
fn what_is_missing_is_said_as_sql_that_mends_it() {
    if is_missing() {
        return;
    }
    let database = Database::new(&[]);
    database.sql("create schema pools");
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let settings = sink(&database.url(), "['market', 'pools', 'pg_x']");
    std::fs::write(at.join("orrery.toml"), settings).unwrap();
    let test = || run(at, &["sink", "test", "main", "--config", "orrery.toml", "--data-dir", "d"]);
    let tested = test();
    assert_eq!(tested.code, 1, "{}", tested.stderr);
    assert!(tested.stderr.ends_with("the sink main lacks 4 things\n"), "{}", tested.stderr);
    let report: serde_json::Value = serde_json::from_str(&tested.stdout).unwrap();
    let missing = report["missing"].as_array().unwrap();
    assert_eq!(missing.len(), 3, "{report}");
    assert!(report["refused"][0].as_str().unwrap().contains("pg_x"), "{report}");
    for sentence in missing {
        // Behind the colon is a statement for whoever owns the database.
        let (_, sql) = sentence.as_str().unwrap().split_once(": ").unwrap();
        database.sql(sql);
    }
    let report: serde_json::Value = serde_json::from_str(&test().stdout).unwrap();
    assert_eq!(report["missing"], serde_json::json!([]), "{report}");
    let settings = sink(&database.url(), "['market', 'pools']");
    std::fs::write(at.join("orrery.toml"), settings).unwrap();
    assert_eq!(test().code, 0);
    // Nothing was written.
    assert_eq!(database.sql("select count(*) from pg_tables where schemaname = 'orrery'"), "0");
}

#[test]
fn a_pooler_may_be_between() {
    if is_missing() || !has("pgbouncer") {
        return;
    }
    let database = Database::new(&SCHEMAS);
    let pooler = Pooler::start(&database);
    let demo = Demo::sinking_into(&database.at(pooler.port));
    demo.wait_for_rows(&database);
    demo.has_equal_rows(&database, "demo.transfer", &["\"from\"", "amount"]);
    demo.has_what_was_written(&["main"]);
    assert_eq!(demo.sink(&["test", "main"]).json()["missing"], serde_json::json!([]));
}
