//! `orrery types`: the printed types match the rows of the tables.

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
    asked(&stranger, &["types", "--lang", "ts"]).refuses(1, &["no table that you may read"]);
    assert_eq!(demo.end_with(Signal::INT), Some(0));
}
