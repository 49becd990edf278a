//! Rows of projects in a PostgreSQL database, as the built binary copies them: they are those of our own SQL, whatever
//! values they have, also after programs were replaced, and their keys are the same on every machine.

use std::sync::LazyLock;

use orrery::sinks::SinkProjectState;
use serde_json::{Value, json};
use stellar_xdr::{Int256Parts, ScVal, UInt256Parts};

use crate::network::{Chain, call};
use crate::service::{Recorded, Scene};
use crate::service_projects::{emitting, wait_for_events, watch};
use crate::sinking::{assert_equal, project, rows, start, start_with, wait_for};
use orrery_testkit::binary::Service;
use orrery_testkit::postgres::{Database, is_missing};
use orrery_testkit::specs::{self, Map, Type, event, option, structure, udt};
use orrery_testkit::upgraded::{Upgraded, with_interface};
use orrery_testkit::values::{bytes, fields, i128, list, map, string, symbol, u128};
use orrery_testkit::wait::wait_until;

static UPGRADED: LazyLock<Upgraded> = LazyLock::new(Upgraded::made);

/// Schemas that the tests' projects need.
const SCHEMAS: [&str; 2] = ["orrery", "p"];

/// A contract with a declared event that has a parameter of every type.
fn declaring() -> Vec<u8> {
    let pair = structure(
        "Pair",
        &[("wide".to_owned(), Type::U64), ("small".to_owned(), option(Type::I32))],
    );
    let parameters = [
        ("truth", Type::Bool),
        ("u_32", Type::U32),
        ("i_32", Type::I32),
        ("u_64", Type::U64),
        ("i_64", Type::I64),
        ("u_128", Type::U128),
        ("i_128", Type::I128),
        ("u_256", Type::U256),
        ("i_256", Type::I256),
        ("text", Type::String),
        ("raw", Type::Bytes),
        ("numbers", specs::vec(Type::U64)),
        ("lists", specs::vec(specs::vec(Type::U32))),
        ("texts", specs::map(Type::Symbol, Type::U64)),
        ("pairs", specs::map(Type::U32, Type::Bytes)),
        ("pair", udt("Pair")),
        ("any", option(Type::Val)),
        ("select", Type::U32),
        ("_row", Type::U32),
        ("xmin", Type::U32),
    ];
    let every = event("every", &["every"], &[], Map, &parameters);
    with_interface(emitting(), &[pair, every])
}

/// An event with values at the ends of their types.
fn every(number: u32) -> ScVal {
    let most = number.is_multiple_of(2);
    let word = if most { u64::MAX } else { 0 };
    let i_256 = Int256Parts { hi_hi: i64::MIN, hi_lo: word, lo_hi: word, lo_lo: word };
    let u_256 = UInt256Parts { hi_hi: word, hi_lo: word, lo_hi: word, lo_lo: word };
    fields([
        ("truth", ScVal::Bool(most)),
        ("u_32", ScVal::U32(if most { u32::MAX } else { 0 })),
        ("i_32", ScVal::I32(if most { i32::MIN } else { -1 })),
        ("u_64", ScVal::U64(word)),
        ("i_64", ScVal::I64(if most { i64::MIN } else { i64::MAX })),
        ("u_128", u128(if most { u128::MAX } else { 10_u128.pow(38) })),
        ("i_128", i128(if most { i128::MIN } else { i128::MAX })),
        ("u_256", ScVal::U256(u_256)),
        ("i_256", ScVal::I256(i_256)),
        ("text", string(if most { &b"it's \\ \"x\"\n\xe2\x80\xae"[..] } else { &[0xff, 0xfe] })),
        ("raw", bytes(&[0, 255, number as u8])),
        ("numbers", list([ScVal::U64(word), ScVal::U64(7)])),
        ("lists", list([list([ScVal::U32(number)]), list([])])),
        ("texts", map([(symbol("a"), ScVal::U64(word)), (symbol("B"), ScVal::U64(1))])),
        ("pairs", map([(ScVal::U32(9), bytes(&[1])), (ScVal::U32(2), bytes(&[]))])),
        ("pair", fields([("wide", ScVal::U64(word)), ("small", ScVal::Void)])),
        ("any", if most { list([ScVal::U64(word), symbol("x")]) } else { ScVal::Void }),
        ("select", ScVal::U32(number)),
        ("_row", ScVal::U32(number)),
        ("xmin", ScVal::U32(number)),
    ])
}

#[test]
fn values_of_every_type_are_those_of_our_own_sql() {
    if is_missing() {
        return;
    }
    let database = Database::new(&SCHEMAS);
    let mut chain = Chain::new();
    let contract = chain.create_of(&declaring(), Vec::new());
    let (before, scene) = (chain.take_unsaved(), Scene::new());
    scene.import_ledgers(&before);
    let service = start(&scene, &database);
    let ana = scene.owner(&service, "ana");
    let id = watch(&ana, "p", &[contract]);
    wait_for(&scene, "p", SinkProjectState::Live);
    for ledger in 0..4 {
        let calls = (0..3).map(|number| {
            let data = every(ledger * 3 + number);
            call(contract, "emit", vec![list([symbol("every")]), data])
        });
        chain.close(&calls.collect::<Vec<_>>());
    }
    scene.import_ledgers(&chain.take_unsaved());
    wait_for_events(&ana, id, 12);
    wait_until("all rows are there", || {
        let found = project(&scene, "p").unwrap();
        let rows = found.tables.iter().find(|it| it.name == "every").map(|it| it.rows);
        (rows == Some(12)).then_some(()).ok_or_else(|| format!("{found:?}"))
    });
    // Maps whose keys are no texts are arrays of pairs here, and objects in answers of our own SQL.
    let first = database.sql(
        "select pairs, numbers::text, i_256, u_128, \"select\", _row_, xmin_, pair, lists from p.every where \"select\" = 0",
    );
    let parts: Vec<&str> = first.split('|').collect();
    assert_eq!(
        parts,
        [
            r#"[[2, ""], [9, "01"]]"#,
            "{18446744073709551615,7}",
            "-57896044618658097705508390768957273162799202909612615603626436559492530307073",
            "340282366920938463463374607431768211455",
            "0",
            "0",
            "0",
            r#"{"wide": "18446744073709551615", "small": null}"#,
            "[[0], []]",
        ]
    );
    let types = database.sql(
        "select string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' order by attnum) from pg_attribute \
         where attrelid = 'p.every'::regclass and attnum > 0",
    );
    for expected in [
        "truth boolean, u_32 bigint, i_32 integer, u_64 numeric(20,0), i_64 bigint, u_128 numeric(39,0), i_128 \
         numeric(39,0), u_256 numeric(78,0), i_256 numeric(78,0), text text, raw bytea, numbers numeric(20,0)[], lists \
         jsonb, texts jsonb, pairs jsonb, pair jsonb, any jsonb",
        "_ledger bigint, _ledger_closed_at timestamp with time zone",
    ] {
        assert!(types.contains(expected), "{types}");
    }
    drop(service);
}

#[test]
fn hostile_values_are_those_of_our_own_sql() {
    if is_missing() {
        return;
    }
    let database = Database::new(&SCHEMAS);
    let mut chain = Chain::new();
    let contract = chain.create_of(&emitting(), Vec::new());
    let events = [
        (list([symbol("select")]), ScVal::U32(1)),
        (list([symbol("select")]), ScVal::U64(u64::MAX)),
        (list([symbol("select")]), i128(-1)),
        (list([symbol(&"n".repeat(32)), symbol("x")]), string("'; drop schema p; --")),
        (list([string("é".repeat(40))]), ScVal::U32(5)),
        (list([string([0xff, 0xfe])]), map([(string([0xc3, 0x28]), bytes(&[0; 300]))])),
        (
            list([symbol("wide")]),
            map((0..150).map(|key| (symbol(&format!("key_{key}")), ScVal::U32(key)))),
        ),
        (list([]), ScVal::Void),
        (list([ScVal::U32(3)]), list([])),
        (list([symbol("mixed")]), list([ScVal::I32(-1)])),
        (list([symbol("mixed")]), list([])),
    ];
    for part in events.chunks(3) {
        let calls = part
            .iter()
            .map(|(topics, data)| call(contract, "emit", vec![topics.clone(), data.clone()]));
        chain.close(&calls.collect::<Vec<_>>());
    }
    let scene = Scene::new();
    let service = start(&scene, &database);
    let ana = scene.owner(&service, "ana");
    let id = watch(&ana, "p", &[contract]);
    chain.import_into(&scene);
    wait_for_events(&ana, id, events.len() as u64);
    assert_equal(&scene, &database, &ana, id, "p");
    // U+0000 is the exception: it is written as text, and counted.
    chain.close(&[call(contract, "emit", vec![list([symbol("nul")]), string("a\0b\0")])]);
    scene.import_ledgers(&chain.take_unsaved());
    wait_until("the row is there", || {
        let found = project(&scene, "p").unwrap();
        let nuls = found.tables.iter().find(|it| it.name == "nul").map(|it| it.nuls);
        (nuls == Some(2)).then_some(()).ok_or_else(|| format!("{found:?}"))
    });
    assert_eq!(rows(&database, "p", "nul")[0]["value"], "a\\x00b\\x00");
}

#[test]
fn programs_with_code_are_copied_and_replaced() {
    let Some(recorded) = Recorded::find() else { return };
    if is_missing() {
        return;
    }
    let database = Database::new(&SCHEMAS);
    let scene = Scene::new();
    let service = start(&scene, &database);
    let ana = scene.owner(&service, "ana");
    ana.post("deploy", &recorded.deploy("p"));
    scene.import(&recorded.ledgers());
    ana.wait_for_rows("p_batch_done", recorded.rows("batch_done").len());
    assert_equal(&scene, &database, &ana, 1, "p");
    // An index, a grant and a view of others stay on the tables that take the place of these.
    let (reader, role) = (format!("{}_reader", database.name), database.role());
    database.sql(&format!(
        "create role {reader}; grant usage on schema p to {reader}; grant select on p.balance_changed to {reader}; \
         create index by_ledger on p.balance_changed (_ledger); create view p.all_done as select * from p.batch_done; \
         alter view p.all_done owner to {role}"
    ));
    let mut again = recorded.deploy("p");
    again["replace"] = json!(true);
    let id = ana.post("deploy", &again)["id"].as_u64().unwrap() as u32;
    ana.wait("it has taken its place", |it| {
        it.get("list").as_array().unwrap().iter().all(|it| it["id"] == id)
    });
    wait_until("its rows are there", || {
        let found = project(&scene, "p").unwrap();
        let generation = found.generation.clone().unwrap_or_default();
        generation.starts_with(&format!("{id}-")).then_some(()).ok_or_else(|| format!("{found:?}"))
    });
    assert_equal(&scene, &database, &ana, id, "p");
    let kept = database.sql(&format!(
        "select has_table_privilege('{reader}', 'p.balance_changed', 'select'), to_regclass('p.by_ledger') is not null, \
         (select count(*) from p.all_done)"
    ));
    assert_eq!(kept, format!("t|t|{}", recorded.rows("batch_done").len()));
    // The tables of a deleted project stay.
    assert_eq!(ana.ask("DELETE", &id.to_string(), None).0, 200);
    wait_for(&scene, "p", SinkProjectState::Deleted);
    let state = database.sql("select state from orrery.cursor");
    assert_eq!(state, "deleted");
    let left = database.sql("select count(*) from p.batch_done");
    assert_eq!(left, recorded.rows("batch_done").len().to_string());
}

/// The keys of all rows, with what they say of the chain.
fn keys(database: &Database<'_>) -> String {
    database.sql(
        "select string_agg(encode(_row, 'hex') || ' ' || contract_id || ' ' || ledger || ' ' || coalesce(name, ''), ';' \
         order by _row) from p.events",
    )
}

#[test]
fn keys_are_the_same_on_every_machine() {
    if is_missing() {
        return;
    }
    let all = &*UPGRADED;
    let mut found = Vec::new();
    for is_late in [false, true] {
        let database = Database::new(&SCHEMAS);
        let scene = Scene::new();
        let service = start(&scene, &database);
        let ana = scene.owner(&service, "ana");
        let first = if is_late { 1 } else { 3 };
        let id = watch(&ana, "p", &all.contracts[..first]);
        let (early, late) = all.ledgers.split_at(all.ledgers.len() / 2);
        // Later ledgers first: what contracts declare becomes known afterwards.
        for part in if is_late { [late, early] } else { [early, late] } {
            scene.import_ledgers(part);
        }
        if is_late {
            let more: Vec<_> = all.contracts[1..].iter().map(ToString::to_string).collect();
            ana.post("append-contracts", &json!({ "program_id": id, "contracts": more }));
        }
        let count = crate::service_projects::count(&all.ledgers, &all.contracts);
        wait_for_events(&ana, id, count);
        assert_equal(&scene, &database, &ana, id, "p");
        assert_eq!(database.sql("select count(*) from p.events"), count.to_string());
        found.push(keys(&database));
    }
    assert_eq!(found[0], found[1]);
    // A key says where the row is.
    assert!(found[0].len() > 1000, "{}", found[0]);
}

#[test]
fn what_a_sink_does_not_have_any_more_stays_and_what_it_cannot_have_is_told() {
    if is_missing() {
        return;
    }
    let all = &*UPGRADED;
    let longest = "n".repeat(63);
    let schemas = ["orrery", "p", &*longest, "\"select\"", "\"User\""];
    let database = Database::new(&schemas);
    let scene = Scene::new();
    scene.import_ledgers(&all.ledgers);
    {
        let service = start_with(&scene, &database.url(), "*", &[]);
        let ana = scene.owner(&service, "ana");
        let id = watch(&ana, "p", &all.contracts[..1]);
        watch(&ana, "pg_x", &all.contracts[..1]);
        watch(&ana, &"q".repeat(64), &all.contracts[..1]);
        // The longest name that PostgreSQL keeps, and words of SQL.
        for name in [&*longest, "select", "User"] {
            let id = watch(&ana, name, &all.contracts[..1]);
            assert_equal(&scene, &database, &ana, id, name);
        }
        assert_equal(&scene, &database, &ana, id, "p");
        for refused in ["pg_x", &"q".repeat(64)] {
            let found = wait_for(&scene, refused, SinkProjectState::Refused);
            assert!(found.reason.unwrap().contains("cannot have the schema"));
        }
        let (status, refused) = ana.ask(
            "POST",
            "watch",
            Some(&json!({
                "project_name": "Chain", "contracts": [all.contracts[0].to_string()]
            })),
        );
        assert_eq!((status, refused["code"].is_string()), (400, true), "{refused}");
        // Nothing that the service answers depends on it.
        let health: Value = health(&service);
        assert_eq!(health["service"], "up", "{health}");
        let sink = &health["components"]["sink.main"];
        assert!(sink["reason"].as_str().unwrap().contains("rows of 2 projects wait"), "{sink}");
        assert!(!sink.to_string().contains("pg_x"), "{sink}");
    }
    let _service = start_with(&scene, &database.url(), "other", &[]);
    wait_for(&scene, "p", SinkProjectState::Left);
    wait_for(&scene, "other", SinkProjectState::Waiting);
    assert_eq!(database.sql("select state from orrery.cursor where project = 'p'"), "left");
    assert_ne!(database.sql("select count(*) from p.events"), "0");
}

fn health(service: &Service) -> Value {
    let url = format!("{}/rest/health", service.base);
    orrery_testkit::client::HTTP.get(url).send().unwrap().json().unwrap()
}
