//! What others do to the tables, and what becomes of them when projects change or go.

use orrery_testkit::binary::Ran;
use orrery_testkit::postgres::{Database, is_missing};
use orrery_testkit::wait::wait_until;
use serde_json::Value;

use super::{Demo, SCHEMAS, of_table, sink, wait_for_rows_of};

/// What a check that finds something says of a table.
#[track_caller]
fn difference(checked: &Ran, table: &str) -> String {
    assert_eq!(checked.code, 1, "{}{}", checked.stdout, checked.stderr);
    let tables: Value = serde_json::from_str(&checked.stdout).unwrap();
    of_table(&tables, table)["difference"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn rows_that_somebody_removes_are_told_and_filled_again() {
    if is_missing() {
        return;
    }
    let database = Database::new(&SCHEMAS);
    let demo = Demo::sinking_into(&database.url());
    demo.wait_for_rows(&database);
    demo.wait_for_project("market", "its tables are known", |it| {
        it["tables"].as_array().is_some_and(|tables| !tables.is_empty())
    });
    database.sql(
        "truncate market.trade; update demo.transfer set amount = 1 where _row = (select _row from demo.transfer order by _row limit 1); \
         create index by_taker on market.trade (taker); create materialized view public.kept as select * from \
         demo.transfer",
    );
    // Within a minute the service says so by itself.
    let told = demo.wait_for_project("market", "it is told", |it| {
        it["reason"].as_str().is_some_and(|reason| reason.contains("were removed"))
    });
    assert!(told["reason"].as_str().unwrap().contains("`orrery sink replace`"), "{told}");
    let listed = demo.sink(&["list"]).json();
    assert!(
        listed[0]["reason"].as_str().unwrap().starts_with("market is live: rows of"),
        "{listed}"
    );
    demo.service.wait_for_health("it is told in health, too", |health| {
        health["components"]["sink.main"]["reason"].is_string()
    });
    let checked = demo.sink(&["check", "main"]);
    let removed = difference(&checked, "market.trade");
    assert!(
        removed.contains("rows, and") && removed.contains("`orrery sink replace`"),
        "{removed}"
    );
    let changed = difference(&checked, "demo.transfer");
    assert!(changed.contains("are not what was written"), "{changed}");
    assert!(checked.stderr.contains("2 tables differ from what was written"), "{}", checked.stderr);

    let replaced = demo.sink(&["replace", "main", "--project", "market", "--project", "demo"]);
    let replaced = replaced.json();
    assert_eq!(
        (&replaced[0]["project"], &replaced[1]["project"]),
        (&"market".into(), &"demo".into())
    );
    demo.has_equal_rows(&database, "market.trade", &["taker", "amount", "_service_event_id"]);
    demo.has_equal_rows(&database, "demo.transfer", &["\"from\"", "amount", "\"transaction\""]);
    demo.has_what_was_written(&["main"]);
    assert!(demo.project("market")["reason"].is_null(), "{}", demo.status());
    let there = |sql: &str| database.sql(sql) == "1";
    assert!(there("select count(*) from pg_indexes where indexname = 'by_taker'"), "theirs stays");
    assert!(there("select 1 - count(*) from pg_matviews"), "what cannot be kept was dropped");
}

#[test]
fn a_table_that_is_dropped_stops_its_project_until_it_is_replaced() {
    if is_missing() {
        return;
    }
    let database = Database::new(&SCHEMAS);
    let demo = Demo::sinking_into(&database.url());
    demo.wait_for_rows(&database);
    database.sql("drop table market.trade cascade");
    demo.wait_for_project("market", "it stops, and says what helps", |it| {
        let reason = it["reason"].as_str().unwrap_or_default();
        it["state"] == "stopped" && reason.contains("trade was dropped or renamed: `orrery sink")
    });
    let listed = demo.sink(&["list"]).json();
    assert!(listed[0]["reason"].as_str().unwrap().starts_with("market is stopped: "), "{listed}");
    // Others go on.
    let before = database.sql("select ledger from orrery.cursor where project = 'demo'");
    wait_until("other projects go on", || {
        database.sql("select ledger from orrery.cursor where project = 'demo'") != before
    });
    demo.sink(&["replace", "main", "--project", "market"]).succeeded();
    demo.has_equal_rows(&database, "market.trade", &["taker", "amount"]);
    demo.has_what_was_written(&["main"]);
}

#[test]
fn projects_that_are_replaced_deleted_and_left_keep_their_tables() {
    if is_missing() {
        return;
    }
    let database = Database::new(&SCHEMAS);
    let demo = Demo::sinking_into(&database.url());
    let contracts = demo.owner(&["list", "--contracts"]);
    let contracts: Vec<String> = contracts.succeeded().lines().map(str::to_owned).collect();
    // Of the asset and the market: both emit.
    let watch = |more: &[&str]| {
        demo.owner(&[&["watch", "mine", "--contract", &contracts[0]], more].concat()).succeeded();
    };
    watch(&[]);
    demo.wait_for_project("mine", "it is there", |it| {
        it["state"] == "live" && it["ledger"].is_u64()
    });
    wait_for_rows_of(&database, "mine.events");
    let first = demo.project("mine")["generation"].clone();
    demo.has_equal_rows(&database, "mine.events", &["name", "contract_id"]);

    watch(&["--replace", "--contract", &contracts[1]]);
    demo.wait_for_project("mine", "the new version is there", |it| {
        it["state"] == "live" && it["generation"] != first
    });
    demo.has_equal_rows(&database, "mine.events", &["name", "contract_id"]);
    demo.has_what_was_written(&["main", "--project", "mine"]);

    demo.owner(&["delete", "mine", "--yes"]).succeeded();
    demo.wait_for_project("mine", "it is deleted", |it| it["state"] == "deleted");
    let state = |project: &str| {
        database.sql(&format!("select state from orrery.cursor where project = '{project}'"))
    };
    assert_eq!(state("mine"), "deleted");
    assert_ne!(database.sql("select count(*) from mine.events"), "0");
    let removed = demo.sink(&["remove", "main", "--project", "mine", "--drop", "--yes"]).json();
    assert_eq!(
        removed,
        serde_json::json!({ "sink": "main", "removed": ["mine"], "dropped": true })
    );
    let tables = "select count(*) from pg_class as c join pg_namespace as n on n.oid = relnamespace where \
                  nspname = 'mine'";
    assert_eq!((&*database.sql(tables), &*state("mine")), ("0", ""));

    // Taken out of the list: its tables stay, and can be given up.
    let demo = demo.again_with(&sink(&database.url(), "['demo', 'pools']"));
    demo.wait_for_project("market", "it is left", |it| it["state"] == "left");
    wait_until("the database says so", || state("market") == "left");
    demo.sink(&["remove", "main", "--project", "market"]).succeeded();
    assert_eq!(state("market"), "");
    assert_ne!(database.sql("select count(*) from market.trade"), "0");
    assert_eq!(demo.project("market"), Value::Null);
    demo.has_what_was_written(&["main"]);
}
