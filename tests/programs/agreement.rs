//! Whoever asks for the tables of a project learns the same: SQL, the list of tables, `orrery tables`, `orrery types`,
//! an export with its views, and what the site shows; before the first event, after it, and after an upgrade of the
//! contract that declares further events and other forms.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use duckdb::Connection;
use orrery::domain::ContractId;
use orrery::sandbox::network::Request;
use serde_json::Value;
use sha2::{Digest, Sha256};
use stellar_xdr::ScVal;

use crate::exported::{Lake, export};
use crate::network::Chain;
use crate::service::{Owner, Scene};
use crate::service_projects::{tables, wait_for_events, watch};
use orrery_testkit::binary::{Ran, Service, orrery};
use orrery_testkit::exported::{assert_no_strays, views};
use orrery_testkit::specs::{Map, SingleValue, Type, event, option};
use orrery_testkit::upgraded::{version, with_interface};
use orrery_testkit::values::{bytes, symbol};
use orrery_testkit::wait::wait_until;

/// A name that SQL takes in quotes only.
const PROJECT: &str = "my-quiet";
/// The view of all events, which files do not have: those of a project are in its tables, and all are in
/// `chain.events`.
const EVENTS: &str = "events";

/// Names and SQL types of the columns of tables, in their order.
type Columns = BTreeMap<String, Vec<(String, String)>>;

/// The first code: `told` has a form that does not fit in a table with that of the second one.
fn first() -> Vec<u8> {
    let moved = [("amount", Type::I128), ("note", option(Type::String))];
    let spec = [
        event("said", &["said"], &[], SingleValue, &[("value", Type::U32)]),
        event("moved", &["moved"], &[("from", Type::Address), ("by", Type::Address)], Map, &moved),
        event("told", &["told"], &[], SingleValue, &[("value", Type::U32)]),
    ];
    with_interface(version(4), &spec)
}

/// The second code: `said` has another parameter, and `paused` is new.
fn second() -> Vec<u8> {
    let spec = [
        event("said", &["said"], &[], SingleValue, &[("words", Type::Symbol)]),
        event("told", &["told"], &[], SingleValue, &[("value", Type::Symbol)]),
        event("paused", &["paused"], &[("until", Type::U64)], Map, &[("order", Type::Bool)]),
    ];
    with_interface(version(4), &spec)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// The tables as SQL itself tells them, by SHOW TABLES and DESCRIBE.
fn in_sql(owner: &Owner) -> Result<Columns, String> {
    let shown = owner.query("SHOW TABLES");
    let prefix = format!("{PROJECT}_");
    let targets = shown.iter().filter_map(|it| it["name"].as_str()?.strip_prefix(&prefix));
    let mut all = Columns::new();
    for target in targets {
        let described = owner.try_query(&format!("describe \"{PROJECT}\".\"{target}\""));
        let described = described.map_err(|refused| format!("{target}: {refused:?}"))?;
        let column = |it: &Value| (text(&it["column_name"]), text(&it["column_type"]));
        all.insert(target.to_owned(), described.iter().map(column).collect());
    }
    Ok(all)
}

/// The statement with which the site reads tables and columns.
fn of_the_site() -> &'static str {
    let module = include_str!("../../src/site/sql/tables.js");
    let statement = module.split("const COLUMNS = `").nth(1).unwrap();
    statement.split('`').next().unwrap()
}

/// The tables that the site shows.
fn in_site(owner: &Owner) -> Columns {
    let rows = owner.query(of_the_site()).into_iter().filter(|row| row["schema"] == PROJECT);
    let texts = |list: &Value| list.as_array().unwrap().iter().map(text).collect::<Vec<_>>();
    rows.map(|row| {
        (text(&row["table"]), texts(&row["names"]).into_iter().zip(texts(&row["types"])).collect())
    })
    .collect()
}

fn asked(owner: &Owner, arguments: &[&str]) -> String {
    let mut command = orrery();
    command.env("ORRERY_BASE", owner.base("/rest")).env("ORRERY_JWT", owner.token());
    let ran: Ran = command.args(arguments).output().unwrap().into();
    ran.succeeded().to_owned()
}

/// Asserts that `orrery tables` lists these tables by names that queries take, with their columns and rows.
fn assert_listed(owner: &Owner, expected: &Columns) {
    let listed: Vec<Value> = serde_json::from_str(&asked(owner, &["tables"])).unwrap();
    let listed = listed.iter().filter(|it| it["project_name_plain"] == PROJECT);
    let mut found = BTreeMap::new();
    for table in listed {
        let called = text(&table["table"]);
        let rows = owner.query(&format!("select count(*) as n from {called}"));
        assert_eq!(rows[0]["n"], table["rows"], "{called}");
        assert_eq!(found.insert(called, text(&table["columns"])), None, "{table}");
    }
    let names = |columns: &Vec<(String, String)>| {
        columns.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let called = |target: &String| format!("\"{PROJECT}\".{target}");
    let expected: BTreeMap<_, _> =
        expected.iter().map(|(target, columns)| (called(target), names(columns))).collect();
    assert_eq!(found, expected);
}

/// Asserts that the routes list the tables that SQL has, and no others. The view of all events and those of single
/// versions are no tables of their own.
fn assert_routes(owner: &Owner, id: u32, expected: &Columns) {
    let prefix = format!("program_{id}_");
    let listed = owner.get("tables");
    let listed = listed.as_array().unwrap().iter().filter(|it| it["project_name_plain"] == PROJECT);
    let listed: Vec<_> = listed
        .map(|it| text(&it["table_name"]).strip_prefix(&prefix).unwrap().to_owned())
        .collect();
    assert_eq!(listed, tables(owner, id));
    let is_view = |target: &&String| *target == EVENTS || target.ends_with("_v1");
    let expected: BTreeSet<_> = expected.keys().filter(|target| !is_view(target)).collect();
    assert_eq!(listed.iter().collect::<BTreeSet<_>>(), expected);
}

/// The type of a column in TypeScript, and whether its values are never null.
fn typescript(table: &str, column: &str, kind: &str) -> String {
    let of_all =
        ["contract_id", "transaction", "_service_event_id", "_ledger", "_ledger_closed_at"];
    let of_events = ["_event_id", "_declared"];
    let is_present = match table {
        EVENTS => !["name", "params"].contains(&column),
        "undeclared" => column != "_event_index",
        _ => of_all.contains(&column) || of_events.contains(&column),
    };
    if kind == "JSON" {
        return "Anything".to_owned();
    }
    let is_ledger = kind == "BIGINT" && column.ends_with("ledger");
    let plain = if is_ledger { "number".to_owned() } else { plain(kind) };
    if is_present { plain } else { format!("{plain} | null") }
}

/// The type of values that are not null in TypeScript.
fn plain(kind: &str) -> String {
    if let Some(element) = kind.strip_suffix("[]") {
        let element =
            if element == "JSON" { plain(element) } else { format!("{} | null", plain(element)) };
        return format!("({element})[]");
    }
    let plain = match kind {
        "BOOLEAN" => "boolean",
        "UINTEGER" => "number",
        "UBIGINT" | "HUGEINT" => "Integer",
        "VARCHAR" | "BLOB" | "TIMESTAMP" => "string",
        "JSON" => "Anything",
        other => panic!("{other} is not expected"),
    };
    plain.to_owned()
}
/// Asserts that the printed types are of these tables, with the types of their columns.
fn assert_typed(owner: &Owner, expected: &Columns) {
    let printed = asked(owner, &["types", "--lang", "ts", "--project", PROJECT]);
    let mut found = BTreeMap::new();
    for part in printed.split("/** A row of `").skip(1) {
        let (called, rest) = part.split_once("`. */").unwrap();
        let body = rest.split_once("{\n").unwrap().1.split_once("}\n").unwrap().0;
        let member = |line: &str| {
            let (name, kind) = line.trim().trim_end_matches(';').split_once(": ").unwrap();
            (name.to_owned(), kind.to_owned())
        };
        found.insert(called.to_owned(), body.lines().map(member).collect::<Vec<_>>());
    }
    let of = |target: &String, columns: &Vec<(String, String)>| {
        let column =
            |(name, kind): &(String, String)| (name.clone(), typescript(target, name, kind));
        (format!("\"{PROJECT}\".{target}"), columns.iter().map(column).collect::<Vec<_>>())
    };
    let expected: BTreeMap<_, _> =
        expected.iter().map(|(target, columns)| of(target, columns)).collect();
    assert_eq!(found, expected, "{printed}");
    // A column without null in its type has none in SQL.
    for (called, columns) in &found {
        let present =
            columns.iter().filter(|(_, kind)| !kind.contains("null") && kind != "Anything");
        for (name, _) in present {
            let nulls = format!("select count(*) as n from {called} where \"{name}\" is null");
            assert_eq!(owner.query(&nulls)[0]["n"], 0, "{called}.{name}");
        }
    }
}

/// The columns that files have for those of a table in SQL (docs/export.md): integers of 128 bits are two.
fn portable(columns: &[(String, String)]) -> Vec<(String, String)> {
    let mut exact = Vec::new();
    let mut portable: Vec<(String, String)> = Vec::new();
    for (name, kind) in columns {
        if kind == "HUGEINT" {
            exact.push((format!("{name}_exact"), "VARCHAR".to_owned()));
        }
        portable.push((name.clone(), portable_type(kind)));
    }
    portable.extend(exact);
    portable
}

/// The type in files for one in SQL.
fn portable_type(kind: &str) -> String {
    let portable = match kind {
        "UINTEGER" | "BIGINT" => "BIGINT",
        "UBIGINT" | "HUGEINT" => "DECIMAL(38,0)",
        "JSON" => "VARCHAR",
        "TIMESTAMP" => "TIMESTAMP WITH TIME ZONE",
        // Those of 128 bits in lists are digits.
        "HUGEINT[]" => "VARCHAR[]",
        other => match other.strip_suffix("[]") {
            Some(element) => return format!("{}[]", portable_type(element)),
            None => other,
        },
    };
    portable.to_owned()
}

/// The views of the project as DuckDB reads them. Without Parquet, which the linked one lacks, a view has the
/// columns that its text gives it, and no rows.
fn linked(views: &str) -> Columns {
    let mut text = String::new();
    for part in views.split("\nunion all by name\n") {
        let is_of_files = part.starts_with("select * from read_parquet(");
        match is_of_files {
            true => text += part.split_once("])").unwrap().1,
            false if text.is_empty() => text += part,
            false => text += &format!("\nunion all by name\n{part}"),
        }
    }
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let sql = "select table_name, column_name, data_type from information_schema.columns
        where table_schema = ? order by table_name, ordinal_position";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([PROJECT], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let mut all = Columns::new();
    for row in rows.unwrap() {
        let (table, name, kind): (String, String, String) = row.unwrap();
        all.entry(table).or_default().push((name, kind));
    }
    all
}

/// The same by another DuckDB with the files themselves, and the number of rows of each table; `None` when
/// `ORRERY_TEST_PYTHON` names no Python with duckdb.
fn separate(lake: &Path) -> Option<(Columns, BTreeMap<String, u64>)> {
    let Some(python) = std::env::var_os("ORRERY_TEST_PYTHON") else {
        println!("skipped another DuckDB: ORRERY_TEST_PYTHON names no Python with duckdb");
        return None;
    };
    let script = "import duckdb, json, sys
duckdb.execute(open(sys.argv[1] + '/views.sql').read())
schema = sys.argv[2]
tables = [row[0] for row in duckdb.execute('select table_name from information_schema.tables where table_schema = ?', [schema]).fetchall()]
quoted = lambda table: '\"' + schema + '\".\"' + table + '\"'
columns = {table: [row[:2] for row in duckdb.sql('describe ' + quoted(table)).fetchall()] for table in tables}
counts = {table: duckdb.sql('select count(*) from ' + quoted(table)).fetchall()[0][0] for table in tables}
print(json.dumps([columns, counts]))";
    let ran = Command::new(python).args(["-c", script]).arg(lake).arg(PROJECT).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Some(serde_json::from_slice(&ran.stdout).unwrap())
}

/// Exports, and asserts that the views are of these tables, with the types that files have for their columns.
fn assert_exported(owner: &Owner, scene: &Scene, lake: &Lake, expected: &Columns) {
    export(scene, lake, &[]);
    assert_no_strays(&lake.directory);
    let in_files = expected.iter().filter(|(target, _)| *target != EVENTS);
    let expected: Columns =
        in_files.map(|(target, columns)| (target.clone(), portable(columns))).collect();
    let text = &views(&lake.directory)[&format!("tables/{PROJECT}/views.sql")];
    assert_eq!(linked(text), expected, "{text}");
    if let Some((columns, counts)) = separate(&lake.directory) {
        assert_eq!(columns, expected);
        for (table, count) in counts {
            let sql = format!("select count(*) as n from \"{PROJECT}\".\"{table}\"");
            assert_eq!(owner.query(&sql)[0]["n"], count, "{table}");
        }
    }
}

struct Asked<'a> {
    owner: &'a Owner,
    scene: &'a Scene,
    lake: Lake,
    id: u32,
}

impl Asked<'_> {
    /// Waits until SQL has these tables, and asserts that all say the same of them.
    fn assert_agree(&self, targets: &[&str]) {
        let wanted: BTreeSet<&str> = targets.iter().copied().collect();
        let expected = wait_until("SQL has the tables", || {
            let found = in_sql(self.owner)?;
            let is_it = found.keys().map(String::as_str).collect::<BTreeSet<_>>() == wanted;
            if is_it { Ok(found) } else { Err(format!("{:?}", found.keys())) }
        });
        assert_routes(self.owner, self.id, &expected);
        assert_eq!(in_site(self.owner), expected);
        assert_listed(self.owner, &expected);
        assert_typed(self.owner, &expected);
        assert_exported(self.owner, self.scene, &self.lake, &expected);
    }
}

/// Names of the own columns of a table.
fn own(owner: &Owner, table: &str) -> Vec<String> {
    let described = owner.query(&format!("describe \"{PROJECT}\".{table}"));
    let names = described.iter().map(|it| text(&it["column_name"]));
    names.take_while(|name| name != "contract_id").collect()
}

#[test]
fn all_that_tell_of_declared_tables_agree() {
    let (first, second) = (first(), second());
    let mut chain = Chain::new();
    let contract: ContractId = chain.create_of(&first, Vec::new());
    chain.close(&[Request::Upload { code: second.clone() }]);
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    chain.import_into(&scene);
    let id = watch(&ana, PROJECT, &[contract]);
    let lake = Lake::directory(scene.path().join("lake"));
    let all = Asked { owner: &ana, scene: &scene, lake, id };

    all.assert_agree(&["said", "moved", "told", "undeclared", "events"]);
    assert_eq!(own(&ana, "moved"), ["from", "by", "amount", "note"]);

    chain.call(contract, "say", vec![ScVal::U32(7)]);
    chain.import_into(&scene);
    ana.wait_for_rows("\"my-quiet\".said", 1);
    all.assert_agree(&["said", "moved", "told", "undeclared", "events"]);

    chain.call(contract, "upgrade", vec![bytes(&Sha256::digest(&second))]);
    chain.call(contract, "say", vec![symbol("words")]);
    chain.import_into(&scene);
    wait_for_events(&ana, id, 3);
    ana.wait_for_rows("\"my-quiet\".said", 2);
    ana.wait_for_rows("\"my-quiet\".executable_update", 1);
    all.assert_agree(&[
        "said",
        "moved",
        "told",
        "told_v1",
        "told_v2",
        "paused",
        "executable_update",
        "undeclared",
        "events",
    ]);
    // What the first code declared is still there, and with it what is in its events.
    assert_eq!(own(&ana, "said"), ["value", "words"]);
    assert_eq!(own(&ana, "moved"), ["from", "by", "amount", "note"]);
    let events =
        asked(&ana, &["types", "--lang", "ts", "--events", "--contract", &contract.to_string()]);
    for line in ["export interface MovedParams {", "  value?: number;", "  words?: string;"] {
        assert!(events.lines().any(|it| it == line), "{line}\n{events}");
    }
    assert!(events.lines().any(|it| it == "  value: string | number;"), "of told: {events}");
}
