//! `orrery types`: the printed types match the rows of the tables.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use orrery_testkit::binary::{Ran, Service, orrery_in, token};
use orrery_testkit::signal::Signal;
use orrery_testkit::wait::wait_until;

/// Python script that checks that rows conform to the printed types, and that wrong rows do not.
const CONFORMS: &str = r#"
import json, runpy, sys, typing

def conforms(value, kind):
    if kind is typing.Any:
        return True
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Union:
        return any(conforms(value, one) for one in inside)
    if origin is list:
        return isinstance(value, list) and all(conforms(one, inside[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(conforms(one, inside[1]) for one in value.values())
    if typing.is_typeddict(kind):
        members = typing.get_type_hints(kind)
        return isinstance(value, dict) and members.keys() == value.keys() and all(
            conforms(value[name], one) for name, one in members.items())
    return type(value) is kind

row = runpy.run_path(sys.argv[1])["MarketTrade"]
rows = json.load(open(sys.argv[2]))
assert rows and all(conforms(one, row) for one in rows), rows
assert not conforms({**rows[0], "price": "text"}, row)
assert not conforms({**rows[0], "more": 1}, row)
"#;

#[test]
fn printed_types_match_the_rows() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, _) = Service::demo(at, &["--close-time", "200"]);
    let [token, stranger] = ["demo", "stranger"].map(|owner| token(&at.join("d"), owner));
    let base = format!("http://{}/rest", demo.address);
    let asked = |token: &str, arguments: &[&str]| -> Ran {
        let mut command = orrery_in(at);
        command.args(arguments).env("ORRERY_BASE", &base).env("ORRERY_JWT", token);
        command.output().unwrap().into()
    };
    let rows = wait_until("there is a trade", || {
        let ran = asked(&token, &["query", "select * from market_trade limit 50"]);
        (ran.code == 0 && ran.stdout.contains("maker")).then_some(ran.stdout)
    });
    let typescript = asked(&token, &["types", "--lang", "ts"]);
    assert_eq!(typescript.code, 0, "{}", typescript.stderr);
    for line in [
        "export interface MarketTrade {",
        "  _ledger: number;",
        "  _ledger_closed_at: string;",
        "  amount: Integer | null;",
        "  price: number | null;",
        "  taker: string | null;",
    ] {
        assert!(typescript.stdout.lines().any(|it| it == line), "{line}\n{}", typescript.stdout);
    }
    // The tables of the project `demo` may grow between two commands.
    let market = || asked(&token, &["types", "--lang", "ts", "--project", "market"]).stdout;
    assert!(market().contains("export interface MarketTrade {"));
    assert_eq!(market(), market());
    let of_events = asked(&token, &["types", "--lang", "ts", "--project", "demo"]).stdout;
    for line in ["export interface DemoTransfer {", "export interface DemoEvents {"] {
        assert!(of_events.lines().any(|it| it == line), "{line}\n{of_events}");
    }
    let as_text = asked(&token, &["types", "--lang", "ts", "--numbers", "string"]).stdout;
    for line in ["  _ledger: string;", "  amount: string | null;", "  price: number | null;"] {
        assert!(as_text.lines().any(|it| it == line), "{line}\n{as_text}");
    }
    let python = asked(&token, &["types", "--lang", "python", "--project", "market"]);
    assert_eq!(python.code, 0, "{}", python.stderr);
    fs::write(at.join("tables.py"), &python.stdout).unwrap();
    fs::write(at.join("rows.json"), rows).unwrap();
    let mut judge = Command::new("python3");
    judge.args(["-c", CONFORMS, "tables.py", "rows.json"]).current_dir(at);
    match judge.output() {
        Ok(judged) => {
            let stderr = String::from_utf8_lossy(&judged.stderr);
            assert!(judged.status.success(), "{}\n{stderr}", python.stdout);
        }
        Err(error) => println!("skipped: Python cannot be run: {error}"),
    }
    asked(&token, &["types", "--lang", "ts", "--project", "nothing"])
        .refuses(1, &["no table of a project 'nothing'"]);
    // Events of the chain belong to nobody, and may have no contract.
    let of_stranger = asked(&stranger, &["types", "--lang", "ts"]).stdout;
    for line in
        ["export interface ChainEvents {", "  contract_id: string | null;", "  ledger: number;"]
    {
        assert!(of_stranger.lines().any(|it| it == line), "{line}\n{of_stranger}");
    }
    assert_eq!(of_stranger.matches("export interface ").count(), 2, "{of_stranger}");
    assert_eq!(demo.end_with(Signal::INT), Some(0));
}

/// Python script that checks that decoded events conform to the printed types, and that wrong ones do
/// not.
const EVENTS_CONFORM: &str = r#"
import json, runpy, sys, typing

names = runpy.run_path(sys.argv[1])

def resolved(kind):
    holder = type("Holder", (), {"__annotations__": {"kind": kind}})
    return typing.get_type_hints(holder, names)["kind"]

def conforms(value, kind):
    if kind is typing.Any:
        return True
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Union:
        return any(conforms(value, one) for one in inside)
    if origin is typing.Literal:
        return value in inside
    if origin is list:
        return isinstance(value, list) and all(conforms(one, inside[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(conforms(one, inside[1]) for one in value.values())
    if typing.is_typeddict(kind):
        members = typing.get_type_hints(kind, names)
        return isinstance(value, dict) and kind.__required_keys__ <= value.keys() <= members.keys() and all(
            conforms(one, members[name]) for name, one in value.items())
    return type(value) is kind

event = resolved(names["DecodedEvent"])
events = [{name: one["decoded"][name] for name in ("name", "params")} for one in json.load(open(sys.argv[2]))]
assert {one["name"] for one in events} >= {"transfer", "filled"}, events
for one in events:
    assert conforms(one, event), one
    if one["name"] is not None:
        assert not conforms({**one, "name": "other"}, event), one
        assert not conforms({**one, "params": {**one["params"], "more": 1}}, event), one
        for name in ("from", "to", "amount", "maker", "taker"):
            if name in one["params"]:
                assert not conforms({**one, "params": {**one["params"], name: [0.5]}}, event), (name, one)
"#;

/// Code that compiles only if the parts of the union are told apart by their names.
const USE_IN_TYPESCRIPT: &str = "
import type { DecodedEvent } from \"./events\";
export function amount(event: DecodedEvent): string | null {
  switch (event.name) {
    case \"transfer\": return `${event.params.from} ${event.params.to} ${event.params.amount}`;
    case \"filled\": return event.params.amount;
    default: return null;
  }
}
// @ts-expect-error no such member
export const wrong = (event: DecodedEvent) => event.name === \"transfer\" && event.params.maker;
";
const USE_IN_PYTHON: &str = "
from events import DecodedEvent

def amount(event: DecodedEvent) -> str:
    if event[\"name\"] == \"transfer\":
        return event[\"params\"][\"from\"] + event[\"params\"][\"to\"] + event[\"params\"][\"amount\"]
    if event[\"name\"] == \"filled\":
        return event[\"params\"][\"maker\"]
    return \"\"
";

#[test]
fn printed_types_match_decoded_events() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, _) = Service::demo(at, &["--close-time", "200"]);
    let token = token(&at.join("d"), "demo");
    let base = format!("http://{}/rest", demo.address);
    let asked = |arguments: &[&str]| -> Ran {
        let settings = [("ORRERY_BASE", base.as_str()), ("ORRERY_JWT", token.as_str())];
        orrery_in(at).args(arguments).envs(settings).output().unwrap().into()
    };
    let contracts = asked(&["list", "--contracts"]);
    let contracts: BTreeSet<&str> = contracts.succeeded().lines().collect();
    // Some contracts of the demo declare nothing.
    let declaring = wait_until("the market and an asset are known", || {
        let (mut found, mut names) = (Vec::new(), BTreeSet::new());
        for contract in &contracts {
            let known = demo.ask(&format!("/rest/contracts/{contract}"), Some(&token)).1;
            let events = known["events"].as_array().map_or(&[][..], Vec::as_slice);
            names.extend(events.iter().map(|it| it["name"].as_str().unwrap().to_lowercase()));
            found.extend((!events.is_empty()).then_some(*contract));
        }
        ["transfer", "filled"].iter().all(|name| names.contains(*name)).then_some(found)
    });
    let listed = declaring.join(",");
    let printed = |lang: &str| {
        let ran = asked(&["types", "--events", "--lang", lang, "--contract", &listed]);
        ran.succeeded().to_owned()
    };
    let (typescript, python) = (printed("ts"), printed("python"));
    for line in ["  name: \"transfer\";", "export interface TransferParams {", "  from: string;"] {
        assert!(typescript.lines().any(|it| it == line), "{line}\n{typescript}");
    }
    fs::write(at.join("events.ts"), &typescript).unwrap();
    fs::write(at.join("use.ts"), USE_IN_TYPESCRIPT).unwrap();
    fs::write(at.join("events.py"), &python).unwrap();
    fs::write(at.join("use.py"), USE_IN_PYTHON).unwrap();
    let path = format!("/rest/events/by-contracts?contracts={listed}&decoded=true&limit=1000");
    let events = wait_until("there are events of both kinds", || {
        let events = demo.ask(&path, Some(&token)).1;
        let text = events.to_string();
        let has_both =
            text.contains("\"name\":\"filled\"") && text.contains("\"name\":\"transfer\"");
        if has_both { Ok(events) } else { Err(text) }
    });
    fs::write(at.join("rows.json"), events.to_string()).unwrap();
    let tools: [&[&str]; 3] = [
        &["python3", "-c", EVENTS_CONFORM, "events.py", "rows.json"],
        &["mypy", "--strict", "events.py", "use.py"],
        &["tsc", "--strict", "--noEmit", "--target", "es2022", "events.ts", "use.ts"],
    ];
    for tool in tools {
        match Command::new(tool[0]).args(&tool[1..]).current_dir(at).output() {
            Ok(judged) => {
                let said = [judged.stdout, judged.stderr].concat();
                let said = String::from_utf8_lossy(&said);
                assert!(judged.status.success(), "{said}\n{typescript}\n{python}");
            }
            Err(error) => println!("skipped: {} cannot be run: {error}", tool[0]),
        }
    }

    let nobodys = "CCJZ5DGASBWQXR5MPFCJXMBI333XE5U3FSJTNQU7RIKE3P5GN2K2WYD5";
    asked(&["types", "--events", "--lang", "ts", "--contract", nobodys])
        .refuses(1, &["the interface of CCJZ", "is not known: "]);
    assert_eq!(asked(&["types", "--events", "--lang", "ts"]).code, 2);
    let both = ["types", "--events", "--lang", "ts", "--contract", nobodys, "--project", "market"];
    assert_eq!(asked(&both).code, 2);
    assert_eq!(demo.end_with(Signal::INT), Some(0));
}
